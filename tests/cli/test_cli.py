"""Facts about the command line, each of a real process."""

import asyncio
import json
import os
import resource
import shutil
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from harness import (
    Outcome,
    command,
    connected,
    http,
    looped,
    playing,
    post,
    read,
    run,
    taping,
    unmeasured,
)
from messages import NO_ANSWER, JsonObject, asks, compact, message, result, tool, yes
from standin import (
    JSON,
    Visit,
    answering,
    chunk,
    event,
    event_stream,
    json_response,
    response,
    stream_head,
    upstream,
)

from mrtr_cassette.errors import CassetteError

UPSTREAM = ("--upstream", "http://127.0.0.1:1/mcp")
STATE = "a-request-state-that-is-long-enough"
SUBCOMMANDS = ["record", "replay", "inspect", "recover", "check", "schema", "demo"]


async def conversation(url: str) -> list[JsonObject]:
    """Call a tool that asks, and decline, then accept; return the results."""
    asked = (await post(url, tool("deploy", id=1))).json
    state = asked["result"]["requestState"]
    answers: tuple[JsonObject, ...] = ({"confirm": NO_ANSWER}, yes("confirm"))
    return [asked] + [
        (await post(url, tool("deploy", id=n, inputResponses=one, requestState=state))).json
        for n, one in enumerate(answers, start=2)
    ]


async def asking(visit: Visit) -> None:
    """Answer a first call with an ask, a decline and an accept each with its own result."""
    body = visit.request.json
    params, identity = body.get("params", {}), body.get("id")
    if "requestState" not in params:
        await visit.send(json_response(asks(STATE, "confirm", id=identity)))
    else:
        action = params["inputResponses"]["confirm"]["action"]
        await visit.send(json_response(result({"was": action}, id=identity)))


async def recorded(path: Path) -> Path:
    """Record a conversation of one ask and two branches."""
    async with taping(path, asking) as tape:
        await conversation(tape.url)
    return path


async def pinged(path: Path) -> Path:
    """Record one `ping`."""
    async with taping(path, answering(json_response(result({})))) as tape:
        await post(tape.url, message("ping"))
    return path


def caller(*methods: str, code: int = 0, then: str = "") -> list[str]:
    """Return a command that calls these methods at `MRTR_CASSETTE_URL` and exits with a code."""
    program = f"""
import json, os, sys, urllib.request
for number, method in enumerate({methods!r}):
    body = json.dumps(dict(jsonrpc="2.0", id=number, method=method)).encode()
    request = urllib.request.Request(os.environ["MRTR_CASSETTE_URL"], body)
    with urllib.request.urlopen(request) as response:
        print(response.read().decode())
{then}
sys.exit({code})
"""
    return [sys.executable, "-c", program]


# --- record ---


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@looped
async def test_a_signal_ends_a_recording_in_good_order(
    tmp_path: Path, number: signal.Signals
) -> None:
    """SIGINT and SIGTERM publish the cassette; stdout has one line, stderr the rest, the code is 0."""
    path = tmp_path / "c.json"
    arguments = ("record", "--port", 0, "--output", path)
    async with upstream(asking) as server, command(*arguments, "--upstream", server.url) as process:
        url = await process.listening()
        await conversation(url)
        ended = await process.stopped(number)
    assert process.first_line == f"listening on {url}\n"
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.splitlines()[-1] == f"wrote {path}: 2 interactions, 3 exchanges recorded"
    assert len(read(path)["interactions"]) == 2
    assert [one.name for one in tmp_path.iterdir()] == ["c.json"]
    assert STATE not in ended.err + path.read_text()


@looped
async def test_the_installed_command_records_to_the_working_directory(tmp_path: Path) -> None:
    """The installed `mrtr-cassette` writes `cassette.json` where it was started."""
    program = shutil.which("mrtr-cassette", path=Path(sys.executable).parent)
    assert program is not None
    async with (
        upstream(asking) as server,
        command(
            "record", "--port", 0, "--upstream", server.url, program=[program], cwd=tmp_path
        ) as process,
    ):
        await conversation(await process.listening())
        ended = await process.stopped()
    assert ended.code == 0
    assert len(read(tmp_path / "cassette.json")["interactions"]) == 2


@looped
async def test_open_streams_do_not_hold_up_the_end(tmp_path: Path) -> None:
    """A recording with an open stream ends when it is told to, and keeps what the stream had."""
    path = tmp_path / "c.json"

    async def script(visit: Visit) -> None:
        await visit.send(stream_head(), chunk(b": open\n\n"))
        await visit.left()

    async with (
        upstream(script) as server,
        command("record", "--port", 0, "--output", path, "--upstream", server.url) as process,
        connected(await process.listening()) as client,
    ):
        _, body = await client.ask("GET", "/mcp")
        assert await body.some() == b": open\n\n"
        ended = await process.stopped()
    assert ended.code == 0
    assert read(path)["interactions"][0]["response"]["end"] == "open"


@looped
async def test_an_upstream_that_is_away_is_told_and_survived(tmp_path: Path) -> None:
    """A recording in which the upstream never answered says so, writes nothing and ends with 4."""
    path = tmp_path / "c.json"
    async with upstream(asking) as server:
        url = server.url
    async with command("record", "--port", 0, "--output", path, "--upstream", url) as process:
        answer = await post(await process.listening(), message("ping", id="x"))
        ended = await process.stopped()
    assert (answer.status, answer.json["id"]) == (502, "x")
    assert ended.code == 4
    assert "gave no response" in ended.err
    assert ended.err.splitlines()[-1] == "nothing was recorded, no cassette was written"
    assert list(tmp_path.iterdir()) == []


@looped
async def test_a_command_is_recorded_and_its_code_passed_on(tmp_path: Path) -> None:
    """`-- COMMAND` finds the URL, its end ends the recording, and its code is ours."""
    for code in (0, 7):
        path = tmp_path / f"{code}.json"
        async with upstream(answering(json_response(result({}, id=0)))) as server:
            ended = await run(
                "record", "--port", 0, "--output", path, "--upstream", server.url, "--",
                *caller("ping", code=code),
            )  # fmt: skip
        assert ended.code == code
        assert ended.out.splitlines()[1:] == ['{"jsonrpc":"2.0","id":0,"result":{}}']
        assert len(read(path)["interactions"]) == 1


@pytest.mark.parametrize(
    ("what", "code", "said"),
    [
        (["no-such-command", "--flag"], 127, "error: can't run 'no-such-command': no such file"),
        ([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], 137, ""),
        (["/"], 126, "error: can't run '/': permission denied"),
    ],
)
@pytest.mark.parametrize("mode", ["record", "replay"])
@looped
async def test_a_command_that_fails_to_run_has_the_shells_code(
    tmp_path: Path, mode: str, what: list[str], code: int, said: str
) -> None:
    """A command that isn't there, can't be run or is killed gives the code that a shell would."""
    options: tuple[object, ...] = (*UPSTREAM, "--output", tmp_path / "c.json")
    if mode == "replay":
        options = (await pinged(tmp_path / "c.json"),)
    ended = await run(mode, *options, "--port", 0, "--", *what)
    assert ended.code == code
    assert said in ended.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@looped
async def test_a_signal_ends_the_command_and_the_recording(
    tmp_path: Path, number: signal.Signals
) -> None:
    """A signal to us ends the command too, and what it did until then is published."""
    path = tmp_path / "c.json"
    waits = caller("ping", then="import signal; print('done', flush=True); signal.pause()")
    async with (
        upstream(answering(json_response(result({}, id=0)))) as server,
        command(
            "record", "--port", 0, "--output", path, "--upstream", server.url, "--", *waits
        ) as process,
    ):
        await process.listening()
        assert process.process.stdout is not None
        await process.process.stdout.readuntil(b"done\n")
        ended = await process.stopped(number)
    assert ended.code == 128 + signal.SIGTERM
    assert len(read(path)["interactions"]) == 1


@looped
async def test_credentials_of_options_are_not_written(tmp_path: Path) -> None:
    """`--header` and the URL's userinfo reach the upstream, and neither the file nor the terminal."""
    path = tmp_path / "c.json"
    async with upstream(asking) as server:
        url = server.url.replace("//", "//user:SECRET-1@")
        async with command(
            "record", "--port", 0, "--output", path, "--upstream", url,
            "--header", "X-Api-Key: SECRET-2", "--header", "X-Colon: a:b",
        ) as process:  # fmt: skip
            announced = await process.listening()
            await post(announced, tool("x"))
            ended = await process.stopped()
    head = server.only.head
    assert head.values("x-api-key") == ["SECRET-2"]
    assert head.values("x-colon") == ["a:b"]
    assert head.values("authorization") == ["Basic dXNlcjpTRUNSRVQtMQ=="]
    for text in (announced, ended.out, ended.err, path.read_text()):
        assert not any(word in text for word in ("SECRET", "user:", "dXNlcjpT"))


@looped
async def test_verbatim_keeps_the_state(tmp_path: Path) -> None:
    """`--request-state verbatim` keeps the raw state, and the cassette says that it does."""
    path = tmp_path / "c.json"
    async with (
        upstream(asking) as server,
        command(
            "record", "--port", 0, "--output", path, "--upstream", server.url,
            "--request-state", "verbatim",
        ) as process,
    ):  # fmt: skip
        await conversation(await process.listening())
        assert (await process.stopped()).code == 0
    assert STATE in path.read_text()
    assert read(path)["request_state"] == "verbatim"


# --- What exists ---


@looped
async def test_an_existing_output_is_left_alone(tmp_path: Path) -> None:
    """An output that exists is refused with 3 and what to do, whatever it is."""
    path = tmp_path / "c.json"
    path.write_text("precious")
    ended = await run("record", "--port", 0, "--output", path, *UPSTREAM)
    assert ended == Outcome(
        3,
        "",
        f"error: {path}: the cassette exists; use --force to replace it or --append to add to it\n",
    )
    assert path.read_text() == "precious"


@looped
async def test_force_replaces_what_exists(tmp_path: Path) -> None:
    """`--force` replaces the output, but not by nothing."""
    path = tmp_path / "c.json"
    path.write_text("old")
    async with upstream(asking) as server:
        arguments = ("record", "--port", 0, "--output", path, "--upstream", server.url, "--force")
        async with command(*arguments) as process:
            await process.listening()
            assert (await process.stopped()).code == 0
        assert path.read_text() == "old"
        async with command(*arguments) as process:
            await conversation(await process.listening())
            assert (await process.stopped()).code == 0
    assert len(read(path)["interactions"]) == 2


@looped
async def test_append_adds_what_is_missing(tmp_path: Path) -> None:
    """`--append` plays what is there, records the rest, and then has nothing left to do."""
    path = await pinged(tmp_path / "c.json")
    said = []
    async with upstream(asking) as server:
        for _ in range(2):
            async with command(
                "record", "--port", 0, "--output", path, "--upstream", server.url, "--append"
            ) as process:
                url = await process.listening()
                await post(url, message("ping"))
                live = await conversation(url)
                ended = await process.stopped()
                assert ended.code == 0
                said.append(ended.err.splitlines()[-1])
        assert len(server.received) == 3
    assert said == [
        f"wrote {path}: 3 interactions, 3 exchanges recorded, 1 played",
        f"{path} stays as it is, 0 exchanges recorded, 4 played",
    ]
    async with command("replay", path, "--port", 0) as process:
        url = await process.listening()
        await post(url, message("ping"))
        assert [one["result"] for one in (await conversation(url))[1:]] == [
            one["result"] for one in live[1:]
        ]
        ended = await process.stopped()
    assert (ended.code, ended.err) == (0, "played 3 of 3 interactions, no misses\n")


@looped
async def test_append_that_cannot_be_led_exits_with_1(tmp_path: Path) -> None:
    """A retry to an ask that the live server does not repeat is told, counted, and fails the run."""
    path = tmp_path / "c.json"
    async with taping(path, asking) as tape:
        await post(tape.url, tool("deploy", id=1))
    before = path.read_bytes()

    async def script(visit: Visit) -> None:
        await visit.send(json_response(result({}, id=visit.request.json["id"])))

    async with (
        upstream(script) as server,
        command(
            "record", "--port", 0, "--output", path, "--upstream", server.url, "--append"
        ) as process,
    ):
        await conversation(await process.listening())
        ended = await process.stopped()
    assert ended.code == 1
    assert ended.err.startswith("not recorded: the live server asks nothing in turn 1: HTTP 200\n")
    assert ended.err.endswith(
        f"{path} stays as it is, 0 exchanges recorded, 1 played, 2 could not be recorded\n"
    )
    assert path.read_bytes() == before


@looped
async def test_append_leaves_out_what_is_ignored(tmp_path: Path) -> None:
    """A value that is nobody's to fix doesn't make a call another one, so nothing is added."""
    path = tmp_path / "c.json"
    async with taping(path, asking) as tape:
        await post(tape.url, message("tools/list", {"at": 1}))
    before = path.read_bytes()
    arguments = ("record", "--port", 0, "--output", path, *UPSTREAM, "--append")
    async with command(*arguments, "--ignore", "/at") as process:
        await post(await process.listening(), message("tools/list", {"at": 2}))
        assert (await process.stopped()).code == 0
    assert path.read_bytes() == before


@looped
async def test_append_continues_the_sessions(tmp_path: Path) -> None:
    """Session ids of an appended recording are other surrogates than the first's, and play."""
    path = tmp_path / "c.json"

    async def script(visit: Visit) -> None:
        identity = visit.request.json["id"]
        sessions = visit.request.head.values("mcp-session-id")
        reply = result({"session": len(sessions)}, id=identity)
        await visit.send(
            json_response(reply, *([] if sessions else [f"Mcp-Session-Id: raw-{visit.number}"]))
        )

    async def converse(url: str, identity: int) -> str:
        opened = await post(url, message("initialize", {"n": identity}, id=identity))
        (session,) = opened.head.values("mcp-session-id")
        listed = await post(url, message("tools/list", id=9), f"Mcp-Session-Id: {session}")
        assert listed.json == result({"session": 1}, id=9)
        return session

    async with upstream(script) as server:
        for number in (1, 2):
            async with command(
                "record", "--port", 0, "--output", path, "--upstream", server.url, "--append"
            ) as process:
                await converse(await process.listening(), number)
                assert (await process.stopped()).code == 0
    async with command("replay", path, "--port", 0) as process:
        url = await process.listening()
        assert [await converse(url, n) for n in (2, 1)] == ["mrtr-session:2", "mrtr-session:1"]
        assert (await process.stopped()).code == 0


@looped
async def test_append_to_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """`--append` to a damaged file is refused before anything is recorded, and leaves it alone."""
    path = tmp_path / "c.json"
    path.write_text('{"version":1,"interactions"')
    ended = await run("record", "--port", 0, "--output", path, *UPSTREAM, "--append")
    assert ended.code == 3
    assert path.read_text() == '{"version":1,"interactions"'
    assert ended.err.startswith(f"error: {path}: not JSON: ")


@looped
async def test_append_in_another_mode_is_refused(tmp_path: Path) -> None:
    """Sealed and verbatim states are not mixed in one cassette."""
    path = await recorded(tmp_path / "c.json")
    ended = await run(
        "record", "--port", 0, "--output", path, *UPSTREAM, "--append",
        "--request-state", "verbatim",
    )  # fmt: skip
    assert ended.code == 2
    assert "sealed" in ended.err
    assert "verbatim" in ended.err


# --- Where a cassette can't be written ---


def read_only(tmp_path: Path) -> Path:
    """Return a directory in which nobody can make a file, not even root."""
    if os.geteuid() == 0:
        return Path("/sys")
    tmp_path.chmod(0o500)
    return tmp_path


PLACES: dict[str, Callable[[Path], Path]] = {
    "a missing directory": lambda tmp_path: tmp_path / "none" / "c.json",
    "a directory": lambda tmp_path: tmp_path,
    "a read-only directory": lambda tmp_path: read_only(tmp_path) / "c.json",
}


@pytest.mark.parametrize("place", PLACES)
@looped
async def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, place: str) -> None:
    """Where no cassette can be made that is said at once, with 3, before anything is recorded."""
    path = PLACES[place](tmp_path)
    ended = await run("record", "--port", 0, "--output", path, *UPSTREAM)
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.startswith(f"error: {path}")


@looped
async def test_a_full_disk_breaks_no_call_and_is_told(tmp_path: Path) -> None:
    """When the journal can't be written the traffic goes on; the end is 3 and says what is lost."""
    path = tmp_path / "c.json"
    small, large = result({"n": 1}), result({"n": "x" * 50_000}, id=2)
    replies = (json_response(small), json_response(large), json_response(result({}, id=3)))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    async with (
        upstream(answering(*replies)) as server,
        command(
            *("record", "--port", 0, "--output", path, "--upstream", server.url),
            preexec_fn=limit,
            env=unmeasured(),
        ) as process,
    ):
        url = await process.listening()
        for identity, expected in ((1, small), (2, large), (3, result({}, id=3))):
            assert (await post(url, message("ping", id=identity))).json == expected
        ended = await process.stopped()
    assert ended.code == 3
    assert "RECORDING FAILED: " in ended.err
    assert "the recording is not whole" in ended.err
    assert read(path)["interactions"][0]["response"]["body"] == small


# --- Usage ---


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("record",), "Missing option '--upstream'"),
        (("record", *UPSTREAM, "--force", "--append"), "--force and --append don't go together"),
        (("record", *UPSTREAM, "--ignore", "/a"), "--ignore and --repeat need --append"),
        (("record", *UPSTREAM, "--repeat", "never"), "--ignore and --repeat need --append"),
        (("record", "--upstream", "localhost:8000"), "the upstream 'localhost:8000' is no HTTP URL"),
        (("record", "--upstream", ""), "the upstream '' is no HTTP URL"),
        (("record", *UPSTREAM, "--header", "no colon"), "none that HTTP can carry"),
        (("record", *UPSTREAM, "--header", "Na me: x"), "none that HTTP can carry"),
        (("record", *UPSTREAM, "--header", ": x"), "none that HTTP can carry"),
        (("record", *UPSTREAM, "--header", "X: a\nY: b"), "none that HTTP can carry"),
        (("record", *UPSTREAM, "--request-state", "raw"), "'raw' is not one of"),
        (("record", *UPSTREAM, "--port", "65536"), "65536 is not in the range"),
        (("record", *UPSTREAM, "--host", "192.0.2.1"), "can't listen on 192.0.2.1"),
        (("replay",), "Missing argument 'CASSETTE'"),
        (("replay", "c.json", "--ignore", "arguments/at"), "--ignore 'arguments/at' is no JSON Pointer"),
        (("replay", "c.json", "--ignore", ""), "--ignore '' is no JSON Pointer"),
        (("replay", "c.json", "--repeat", "once"), "'once' is not one of"),
        (("replay", "c.json", "--pace", "slow"), "'slow' is not one of"),
        (("inspect",), "Missing argument 'CASSETTE'"),
        (("frobnicate",), "No such command 'frobnicate'"),
    ],
)  # fmt: skip
@looped
async def test_wrong_usage_is_2_and_said(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    """A wrong option or a wrong value is told on stderr with 2, and nothing is made."""
    ended = await run(*arguments, cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert said.lower() in ended.err.lower()
    assert list(tmp_path.iterdir()) == []


@looped
async def test_a_header_that_is_no_text_is_refused_or_sent(tmp_path: Path) -> None:
    """A `--header` whose bytes are no UTF-8 is a usage error, or is sent; it is no 500."""
    path = tmp_path / "c.json"
    async with (
        upstream(asking) as server,
        command(
            "record",
            "--port",
            0,
            "--output",
            path,
            "--upstream",
            server.url,
            "--header",
            b"X: \xff",
        ) as process,
    ):
        assert process.process.stdout is not None
        line = await process.process.stdout.readline()
        if line:
            url = line.decode().split()[-1]
            assert (await post(url, tool("x"))).status == 200
        else:
            assert (await process.ended()).code == 2


@looped
async def test_a_pointer_is_checked_before_the_cassette(tmp_path: Path) -> None:
    """A good pointer is taken, and leaves its value out of the comparison."""
    path = tmp_path / "c.json"
    async with taping(path, answering(json_response(result({"done": 1})))) as tape:
        await post(tape.url, tool("x", arguments={"at": 1, "a~/b": 2}))
    async with command(
        "replay", path, "--port", 0, "--ignore", "/arguments/at", "--ignore", "/arguments/a~0~1b"
    ) as process:
        answer = await post(await process.listening(), tool("x", arguments={"at": 5}))
        assert answer.json == result({"done": 1})
        assert (await process.stopped()).code == 0


@pytest.mark.parametrize("mode", ["record", "replay"])
@looped
async def test_a_port_in_use_is_2(tmp_path: Path, mode: str) -> None:
    """A port that somebody has is named, in both modes, with what to do."""
    cassette = await pinged(tmp_path / "c.json")
    options = (*UPSTREAM, "--output", tmp_path / "new.json") if mode == "record" else (cassette,)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = await run(mode, *options, "--port", port)
    assert ended == Outcome(
        2, "", f"error: port {port} on 127.0.0.1 is in use; choose another --port\n"
    )
    assert [one.name for one in tmp_path.iterdir()] == ["c.json"]


@pytest.mark.parametrize("name", SUBCOMMANDS)
@looped
async def test_every_subcommand_has_help(name: str) -> None:
    """`--help` explains a subcommand and ends with 0."""
    ended = await run(name, "--help")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"Usage: python -m mrtr_cassette {name} ")


@looped
async def test_the_program_names_its_subcommands_and_version() -> None:
    """The program's own help lists the subcommands; `--version` is one line."""
    ended = await run("-h")
    assert ended.code == 0
    assert await run("--help") == ended
    listed = ended.out.partition("Commands:\n")[2].split("\n")
    assert {line.split()[0] for line in listed if line.startswith("  ")} >= set(SUBCOMMANDS)
    version = await run("--version")
    assert (version.code, version.out.split()[0]) == (0, "mrtr-cassette,")


# --- replay ---


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@looped
async def test_a_replay_without_misses_is_0(tmp_path: Path, number: signal.Signals) -> None:
    """A replay in which everything was played says so and ends with 0."""
    path = await recorded(tmp_path / "c.json")
    before = path.read_bytes()
    async with command("replay", path, "--port", 0) as process:
        url = await process.listening()
        assert [one["result"] for one in (await conversation(url))[1:]] == [
            {"was": "decline"},
            {"was": "accept"},
        ]
        ended = await process.stopped(number)
    assert process.first_line == f"listening on {url}\n"
    assert ended == Outcome(0, "", "played 2 of 2 interactions, no misses\n")
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["c.json"]


@looped
async def test_a_miss_is_1_and_explained(tmp_path: Path) -> None:
    """A miss is told on stderr as to the client; the summary counts it; the code is 1."""
    path = await recorded(tmp_path / "c.json")
    async with command("replay", path, "--port", 0) as process:
        answer = await post(await process.listening(), tool("undeploy"))
        ended = await process.stopped()
    assert answer.reason == "unknown-name"
    assert (ended.code, ended.out) == (1, "")
    assert answer.json["error"]["message"] in ended.err
    assert ended.err.splitlines()[-3:] == [
        "played 0 of 2 interactions, 1 miss (unknown-name 1)",
        '  never played: #1 tools/call "deploy"',
        '  never played: #2 tools/call "deploy"',
    ]


@pytest.mark.parametrize(
    ("methods", "code", "expected"),
    [(("ping",), 0, 0), (("ping",), 7, 7), (("ping", "unknown"), 0, 1), (("unknown",), 7, 7)],
)
@looped
async def test_a_command_is_served_and_its_code_passed_on(
    tmp_path: Path, methods: tuple[str, ...], code: int, expected: int
) -> None:
    """`replay -- COMMAND` ends with the command's code where it failed, else with 1 on a miss."""
    path = await pinged(tmp_path / "c.json")
    ended = await run("replay", path, "--port", 0, "--", *caller(*methods, code=code))
    assert ended.code == expected
    assert ('"code":-32010' in ended.out) == ("unknown" in methods)


@pytest.mark.parametrize("code", [0, 5])
@looped
async def test_a_report_is_written_whatever_the_command_came_to(tmp_path: Path, code: int) -> None:
    """`--report` has what was played and missed, also where the command failed."""
    path, report = await pinged(tmp_path / "c.json"), tmp_path / "report.json"
    program = caller("ping", "tools/list", code=code)
    ended = await run("replay", path, "--port", 0, "--report", report, "--", *program)
    assert ended.code == (code or 1)
    tree = json.loads(report.read_bytes())
    assert tree["interactions"] == [{"number": 1, "call": "ping", "outcome": "played", "plays": 1}]
    assert [one["reason"] for one in tree["misses"]] == ["unknown-method"]


@looped
async def test_a_report_in_xml_is_written_at_a_signal(tmp_path: Path) -> None:
    """Where the name ends in `.xml` it is JUnit, and Ctrl-C doesn't lose it."""
    path, report = await pinged(tmp_path / "c.json"), tmp_path / "report.XML"
    report.write_text("an earlier one")
    async with command("replay", path, "--port", 0, "--report", report) as process:
        await process.listening()
        assert (await process.stopped()).code == 0
    assert [one.get("message") for one in ET.parse(report).iter("skipped")] == ["unplayed"]


@looped
async def test_a_report_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """A missing directory is told before anything is played."""
    path = await pinged(tmp_path / "c.json")
    ended = await run("replay", path, "--report", tmp_path / "none" / "r.json")
    assert (ended.code, ended.out) == (3, "")
    assert "there is no directory" in ended.err


@pytest.mark.parametrize("value", ["true", "false"])
@looped
async def test_misses_are_annotations_in_github_actions(tmp_path: Path, value: str) -> None:
    """There, and nowhere else, standard output has a workflow command for each miss."""
    path = await pinged(tmp_path / "c.json")
    environment = {**os.environ, "GITHUB_ACTIONS": value}
    program = caller("tools/list")
    ended = await run("replay", path, "--port", 0, "--", *program, env=environment)
    lines = [line for line in ended.out.splitlines() if line.startswith("::")]
    assert ended.out.startswith("listening on ")
    if value == "false":
        assert lines == []
    else:
        (line,) = lines
        assert line.startswith(f"::error file={path},title=miss%3A unknown-method::miss: unknown-")
        assert "%0A  fix:" in line


@looped
async def test_repeats_are_the_users_choice(tmp_path: Path) -> None:
    """`--repeat never` refuses a second `ping`, which `auto` plays."""
    path = await pinged(tmp_path / "c.json")
    for repeat, code in (("never", 1), ("auto", 0), ("always", 0)):
        ended = await run(
            "replay", path, "--port", 0, "--repeat", repeat, "--", *caller("ping", "ping")
        )
        assert ended.code == code


@looped
async def test_the_recorded_pace_still_plays(tmp_path: Path) -> None:
    """`--pace recorded` serves the same bytes."""
    path = tmp_path / "c.json"
    stream = event_stream(message("notifications/n", id=None), result({}))
    async with taping(path, answering(stream)) as tape:
        live = await post(tape.url, message("ping"))
    async with command("replay", path, "--port", 0, "--pace", "recorded") as process:
        assert (await post(await process.listening(), message("ping"))).body == live.body
        assert (await process.stopped()).code == 0


@looped
async def test_an_upstream_with_a_query_replays_under_it(tmp_path: Path) -> None:
    """The URL that a command gets on replay is the one that it got when recording, query and all."""
    path = tmp_path / "c.json"
    async with upstream(answering(json_response(result({}, id=0)))) as server:
        url = server.url + "?tenant=a"
        assert (
            await run(
                "record", "--port", 0, "--output", path, "--upstream", url, "--", *caller("ping")
            )
        ).code == 0
    assert server.only.head.line == "POST /mcp?tenant=a HTTP/1.1"
    ended = await run("replay", path, "--port", 0, "--", *caller("ping"))
    assert ended.err == "played 1 of 1 interactions, no misses\n"
    assert ended.code == 0


# --- Logs for programs, TLS ---


@looped
async def test_the_log_can_be_json(tmp_path: Path) -> None:
    """With `--log-format json` what passes is told as JSON events, without any value of it."""
    path = tmp_path / "c.json"
    options = ("--port", 0, "--log-format", "json")
    async with (
        upstream(asking) as server,
        command("record", *options, "--output", path, "--upstream", server.url) as process,
    ):
        await conversation(await process.listening())
        told = (await process.stopped()).err
    events = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    passed = ["started", "asked", *["answered", "ended"] * 2]
    assert [one["event"] for one in events] == [*passed, "concluded"]
    assert events[1]["request_state_sha256"] == events[2]["request_state_sha256"]
    assert not any(word in told for word in (STATE, "accept", "decline"))
    async with command("replay", path, *options) as process:
        url = await process.listening()
        await conversation(url)
        await post(url, tool("unknown"))
        ended = await process.stopped()
    events = [json.loads(line) for line in ended.err.splitlines() if line.startswith("{")]
    assert [one["event"] for one in events] == ["played"] * 3 + ["missed", "concluded"]
    assert ended.code == 1


@looped
async def test_a_json_log_is_json_to_the_last_line(tmp_path: Path) -> None:
    """A program that reads a JSON log finds nothing else in it, the summary included."""
    path = await pinged(tmp_path / "c.json")
    ended = await run("replay", path, "--port", 0, "--log-format", "json", "--", *caller("ping"))
    assert ended.err
    for line in ended.err.splitlines():
        json.loads(line)


@looped
async def test_certificates_that_are_none_are_2(tmp_path: Path) -> None:
    """A `--ca-file` that is missing or holds no certificate is a usage error that names it."""
    garbage = tmp_path / "ca.pem"
    garbage.write_text("nothing")
    for file in (garbage, tmp_path / "none.pem"):
        ended = await run("record", "--port", 0, *UPSTREAM, "--ca-file", file, cwd=tmp_path)
        assert (ended.code, ended.out) == (2, "")
        assert str(file) in ended.err


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
@looped
async def test_a_tls_upstream_is_verified(tmp_path: Path) -> None:
    """A TLS upstream is refused unless its certificate is known, or the user waives that."""
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    making = await asyncio.create_subprocess_exec(
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
        "-keyout", key, "-out", certificate, "-subj", "/CN=localhost",
        "-addext", "subjectAltName=DNS:localhost", stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert await making.wait() == 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    for name, options, status in (
        ("refused", (), 502),
        ("known", ("--ca-file", certificate), 200),
        ("waived", ("--insecure",), 200),
    ):
        async with (
            upstream(answering(response(b"x")), tls=context) as server,
            command(
                "record",
                "--port",
                0,
                "--output",
                tmp_path / name,
                "--upstream",
                server.url,
                *options,
            ) as process,
        ):
            answer = await http("GET", await process.listening())
            ended = await process.stopped()
        assert (name, answer.status) == (name, status)
        assert ("certificate" in ended.err) == (name == "refused")
        assert ("WARNING" in ended.err) == (name == "waived")


# --- Damaged cassettes ---


def edited(change: Callable[[JsonObject], object]) -> Callable[[bytes], bytes]:
    """Change a cassette as JSON."""

    def edit(data: bytes) -> bytes:
        tree = json.loads(data)
        change(tree)
        return compact(tree)

    return edit


def final(tree: JsonObject) -> JsonObject:
    """Return the response of the first interaction."""
    found: JsonObject = tree["interactions"][0]["response"]
    return found


DAMAGES: dict[str, tuple[Callable[[bytes], bytes], tuple[str, ...]]] = {
    "empty": (lambda _: b"", ("the file is empty", "record it again")),
    "blank": (lambda _: b" \n\n", ("the file is empty", "record it again")),
    "truncated": (lambda data: data[: len(data) // 2], ("not JSON", "line ", "restore it or")),
    "one byte short": (lambda data: data.rstrip()[:-1], ("not JSON", "line ", "restore it or")),
    "binary": (lambda _: bytes(range(256)), ("not JSON", "restore it or")),
    "nested": (lambda _: b"[" * 100_000, ("not JSON", "restore it or")),
    "other JSON": (lambda _: b'{"log":{"version":"1.2"}}', ("no mrtr-cassette file",)),
    "array": (lambda _: b"[]", ("no mrtr-cassette file",)),
    "newer": (edited(lambda t: t.update(version=2)), ("version 2", "reads version 1", "update")),
    "edited": (
        edited(lambda t: final(t)["body"].update(id=99)),
        ("interaction 1, turn 1: the sha256 of the exchange is", "--fix"),
    ),
    "two bodies": (edited(lambda t: final(t).update(text="x")), ("at /interactions/0/response: both",)),
    "wrong type": (
        edited(lambda t: final(t).update(status="200")),
        ("at /interactions/0/response/status: ", "integer", "found '200'"),
    ),
    "wrong list": (edited(lambda t: t.update(interactions={})), ("at /interactions: ", "list")),
    "unknown member": (
        edited(lambda t: t["interactions"][0].update(surprise=1)),
        ("at /interactions/0/surprise: ",),
    ),
    "missing member": (
        edited(lambda t: t["interactions"][0].pop("request")),
        ("at /interactions/0/request: field required",),
    ),
    "branch of nothing": (
        edited(lambda t: t["interactions"][1].update(branch={"of": 5, "turn": 1})),
        ("at /interactions/1/branch/of: 5 is no earlier interaction",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
@looped
async def test_a_damaged_cassette_is_3_and_explained(tmp_path: Path, name: str) -> None:
    """Reading a damaged file is an error that names file, place, reason and a way out."""
    damage, fragments = DAMAGES[name]
    path = await recorded(tmp_path / "c.json")
    path.write_bytes(damage(path.read_bytes()))
    ended = await run("inspect", path)
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.startswith(f"error: {path}: ")
    assert ended.err.count("\n") == 1
    for fragment in fragments:
        assert fragment in ended.err
    _, semicolon, way_out = ended.err.rpartition("; ")
    assert (semicolon, bool(way_out.strip())) == ("; ", True)
    with pytest.raises(CassetteError) as caught:
        async with playing(path):
            pass
    assert ended.err == f"error: {caught.value}\n"


@looped
async def test_a_header_that_breaks_http_is_damage(tmp_path: Path) -> None:
    """A cassette whose header has a line's end is refused; no request meets it as a crash."""
    path = await recorded(tmp_path / "c.json")
    path.write_bytes(edited(lambda t: final(t)["headers"].update(X="a\r\nY: b"))(path.read_bytes()))
    ended = await run("replay", path, "--port", 0, "--", *caller("ping"))
    assert ended.code == 3


@pytest.mark.parametrize("name", ["replay", "inspect", "recover"])
@looped
async def test_a_missing_cassette_is_3(tmp_path: Path, name: str) -> None:
    """What doesn't exist is named, with 3."""
    path = tmp_path / "none.json"
    ended = await run(name, path)
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.startswith(f"error: {path}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["replay", "inspect"])
@looped
async def test_a_directory_is_no_cassette(tmp_path: Path, name: str) -> None:
    """A directory in the place of a cassette is 3."""
    assert await run(name, tmp_path) == Outcome(3, "", f"error: {tmp_path}: is a directory\n")


# --- Recorders that were killed ---


async def killed(path: Path, *options: object) -> None:
    """Kill a recorder after three whole exchanges and one that is under way."""
    came = asyncio.Event()

    async def script(visit: Visit) -> None:
        if visit.request.head.line.startswith("GET"):
            came.set()
            await visit.left()
        else:
            await asking(visit)

    async with (
        upstream(script) as server,
        command(
            "record", "--port", 0, "--output", path, "--upstream", server.url, *options
        ) as process,
    ):
        url = await process.listening()
        await conversation(url)
        pending = asyncio.create_task(http("GET", url))
        await came.wait()
        process.kill(signal.SIGKILL)
        assert (await process.ended()).code == -signal.SIGKILL
        await asyncio.gather(pending, return_exceptions=True)


@looped
async def test_a_killed_recording_is_recovered(tmp_path: Path) -> None:
    """After `kill -9` every command says `recover`, which gives all that was complete; it plays."""
    path = tmp_path / "c.json"
    await killed(path)
    assert [one.name for one in tmp_path.iterdir()] == ["c.json.journal"]
    for arguments in (
        ("record", "--port", 0, *UPSTREAM, "--output", path),
        ("replay", path),
        ("inspect", path),
    ):
        ended = await run(*arguments)
        assert (ended.code, ended.out) == (3, "")
        assert f"mrtr-cassette recover {path}" in ended.err
    assert not path.exists()
    ended = await run("recover", path)
    assert ended == Outcome(0, "", f"wrote {path}: 2 interactions\n")
    assert [one.name for one in tmp_path.iterdir()] == ["c.json"]
    async with command("replay", path, "--port", 0) as process:
        assert len(await conversation(await process.listening())) == 3
        assert (await process.stopped()).err == "played 2 of 2 interactions, no misses\n"
    again = await run("recover", path)
    assert (again.code, again.out) == (3, "")
    assert "there is no journal to recover from" in again.err


@pytest.mark.parametrize(("option", "count"), [("--append", 3), ("--force", 2)])
@looped
async def test_a_killed_recording_is_recovered_as_it_was_meant(
    tmp_path: Path, option: str, count: int
) -> None:
    """What was killed with `--append` is added by `recover`, with `--force` it replaces."""
    path = await pinged(tmp_path / "c.json")
    before = path.read_bytes()
    await killed(path, option)
    assert path.read_bytes() == before
    ended = await run("recover", path)
    assert ended == Outcome(0, "", f"wrote {path}: {count} interactions\n")
    assert len(read(path)["interactions"]) == count


@pytest.mark.parametrize("option", ["--append", "--force"])
@looped
async def test_what_was_killed_beside_a_cassette_is_told(tmp_path: Path, option: str) -> None:
    """The earlier cassette plays and shows as it is, with a note that names `recover`."""
    path = await pinged(tmp_path / "c.json")
    await killed(path, option)
    note = f"mrtr-cassette recover {path} (or delete the journal)"
    shown = await run("inspect", path)
    assert (shown.code, shown.err.count(note)) == (0, 1)
    assert shown.err.startswith(f"note: {path}.journal stands beside it")
    played = await run("replay", path, "--port", 0, "--", *caller("ping"))
    assert (played.code, played.err.count(note)) == (0, 1)
    told = await run("replay", path, "--port", 0, "--log-format", "json", "--", *caller("ping"))
    assert next(json.loads(line)["event"] for line in told.err.splitlines()) == "unpublished"
    await run("recover", path)
    assert (await run("inspect", path)).err == ""


@looped
async def test_a_living_recorder_is_no_note(tmp_path: Path) -> None:
    """While a recorder is at work its journal is as it should be."""
    path = await pinged(tmp_path / "c.json")
    arguments = ("record", "--port", 0, "--output", path, *UPSTREAM, "--append")
    async with command(*arguments) as process:
        await process.listening()
        assert (await run("inspect", path)).err == ""
        assert (await process.stopped()).code == 0


@looped
async def test_a_torn_line_costs_itself_only(tmp_path: Path) -> None:
    """A journal whose last line is torn gives the others, and says which one is lost."""
    path = tmp_path / "c.json"
    journal = tmp_path / "c.json.journal"
    await killed(path)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines)[:-20])
    ended = await run("recover", path)
    assert ended.code == 0
    size = len(lines[-1]) - 20
    assert ended.err.splitlines() == [
        f"{journal}: line {len(lines)} is not whole ({size:,} bytes); it is left out",
        f"wrote {path}: 1 interaction",
    ]
    assert len(read(path)["interactions"]) == 1


@looped
async def test_a_journal_that_is_torn_at_its_head_says_so(tmp_path: Path) -> None:
    """A journal of a recorder that was killed at once has nothing to recover, and that is said."""
    journal = tmp_path / "c.json.journal"
    journal.write_bytes(b'{"upstream":"http')
    ended = await run("recover", tmp_path / "c.json")
    assert (ended.code, ended.out) == (3, "")
    assert ended.err.startswith(f"error: {journal}: its first line is not that of a journal")


@looped
async def test_recovering_leaves_a_living_recorder_alone(tmp_path: Path) -> None:
    """`recover` and a second recorder are refused while the first one lives, which goes on."""
    path = tmp_path / "c.json"
    async with (
        upstream(asking) as server,
        command("record", "--port", 0, "--output", path, "--upstream", server.url) as process,
    ):
        url = await process.listening()
        second = await run("record", "--port", 0, "--output", path, *UPSTREAM)
        assert (second.code, second.out) == (3, "")
        assert "another recorder is writing" in second.err
        recover = await run("recover", path)
        assert (recover.code, recover.out) == (3, "")
        assert "its recorder is still at work; stop that one first" in recover.err
        await conversation(url)
        assert (await process.stopped()).code == 0
    assert len(read(path)["interactions"]) == 2


@looped
async def test_recover_says_how_to_go_on_where_a_cassette_is_in_the_way(tmp_path: Path) -> None:
    """`recover` leaves a cassette that appeared meanwhile alone, and works when that is away."""
    path = tmp_path / "c.json"
    await killed(path)
    path.write_text("precious")
    ended = await run("recover", path)
    assert ended.code == 3
    assert path.read_text() == "precious"
    path.unlink()
    assert (await run("recover", path)).code == 0


@looped
async def test_the_way_out_of_recover_exists(tmp_path: Path) -> None:
    """`recover` with a cassette in the way doesn't name options that it doesn't have."""
    path = tmp_path / "c.json"
    await killed(path)
    path.write_text("precious")
    ended = await run("recover", path)
    help_text = (await run("recover", "--help")).out
    assert all(option in help_text for option in ("--force", "--append") if option in ended.err)


# --- check ---


@looped
async def test_an_edit_is_refused_until_it_is_accepted(tmp_path: Path) -> None:
    """The command that the error names makes an edited cassette one that is read again."""
    path = await recorded(tmp_path / "c.json")
    assert (await run("check", path)).err == f"{path}: 2 interactions, all as recorded\n"
    data = edited(lambda t: final(t)["body"].update(id=99))(path.read_bytes())
    path.write_bytes(data)
    refused = await run("check", path)
    assert refused.code == 3
    assert refused.err.endswith(f"accept the edit with: mrtr-cassette check {path} --fix\n")
    assert path.read_bytes() == data
    accepted = await run("check", path, "--fix")
    assert accepted.code == 0
    assert accepted.err == (
        f"{path}: 1 exchange edited, 0 moved, 0 removed; accepted\n"
        f"{path}: 2 interactions, all as recorded\n"
    )
    assert (await run("inspect", path)).code == 0


# --- inspect and schema ---


async def rich(path: Path) -> Path:
    """Record an ask with two branches, an abandoned ask, an orphan, a stream and other traffic."""

    async def script(visit: Visit) -> None:
        if visit.request.head.line.startswith("GET"):
            await visit.send(response(b"x"))
        elif visit.request.json["params"]["name"] == "deploy":
            await asking(visit)
        elif visit.request.json["params"]["name"] == "orphan":
            error = {"code": -32602, "message": "bad state"}
            await visit.send(
                json_response({"jsonrpc": "2.0", "id": 6, "error": error}, status="400 Bad Request")
            )
        elif visit.request.json["params"]["name"] == "abandoned":
            await visit.send(json_response(asks(STATE + "2", id=5)))
        else:
            await visit.send(event_stream(message("notifications/n", id=None), result({}, id=7)))

    async with taping(path, script) as tape:
        await conversation(tape.url)
        await post(tape.url, tool("abandoned", id=5, arguments={"a": 1}))
        await post(tape.url, tool("orphan", id=6, requestState="unknown", inputResponses={}))
        await post(tape.url, tool("stream", id=7))
        await http("GET", tape.url, target="/.well-known/x?y")
    return path


@looped
async def test_inspect_shows_the_conversation(tmp_path: Path) -> None:
    """`inspect` shows calls, turns, kinds, answers, branch, orphan, abandoned ask and endings."""
    path = await rich(tmp_path / "c.json")
    ended = await run("inspect", path)
    assert (ended.code, ended.err) == (0, "")
    text = ended.out
    assert text.startswith(f"{path}: 6 interactions, recorded from http://127.0.0.1:")
    blocks = text.split("\n\n")[1:]
    assert [block.split("\n")[0] for block in blocks] == [
        '#1 tools/call "deploy"',
        '#2 tools/call "deploy"',
        '#3 tools/call "abandoned" {"a":1}',
        '#4 tools/call "orphan"',
        '#5 tools/call "stream"',
        "#6 GET /.well-known/x?y",
    ]
    assert "asked    confirm (form) 'confirm?'" in blocks[0]
    assert 'answered confirm = {"action":"decline"}' in blocks[0]
    assert 'answered confirm = {"action":"accept","content":{"confirm":true}}' in blocks[1]
    assert "branch: shares the ask of turn 1 with #1" in blocks[1]
    assert "turn 1, with request state:\n      asked for a retry only" in blocks[2]
    assert "not answered" in blocks[2]
    assert "ended: abandoned" in blocks[2]
    assert "orphan: continues a request state that no recorded ask issued" in blocks[3]
    assert 'ended: HTTP 400, error -32602 "bad state"' in blocks[3]
    assert "stream of 2 events" in blocks[4]
    assert "ended: HTTP 200" in blocks[5]


@looped
async def test_inspect_gives_json_to_programs(tmp_path: Path) -> None:
    """`inspect --json` has the same facts as JSON."""
    path = await rich(tmp_path / "c.json")
    ended = await run("inspect", path, "--json")
    assert (ended.code, ended.err) == (0, "")
    tree = json.loads(ended.out)
    assert (tree["cassette"], tree["version"], tree["request_state"]) == (str(path), 1, "sealed")
    first, second, third, fourth, *_ = tree["interactions"]
    assert [one["number"] for one in tree["interactions"]] == list(range(1, 7))
    assert first["turns"][0]["asked"] == [{"key": "confirm", "kind": "form", "message": "confirm?"}]
    assert first["turns"][0]["answered"] == {"confirm": '{"action":"decline"}'}
    assert (first["orphan"], second["branch"]) == (False, {"of": 1, "turn": 1})
    assert (third["turns"][0]["asked"], third["turns"][0]["answered"]) == ([], None)
    assert fourth["orphan"] is True


@looped
async def test_the_schema_is_one_and_holds(tmp_path: Path) -> None:
    """`schema` prints a valid JSON Schema, to which a recorded cassette conforms."""
    ended = await run("schema")
    assert (ended.code, ended.err) == (0, "")
    schema = json.loads(ended.out)
    validator = jsonschema.validators.validator_for(schema)
    assert validator is jsonschema.Draft202012Validator
    validator.check_schema(schema)
    tree = read(await rich(tmp_path / "c.json"))
    validator(schema).validate(tree)
    for wrong in ({**tree, "version": "1"}, {**tree, "more": 1}, {**tree, "interactions": {}}):
        assert not validator(schema).is_valid(wrong)


# --- Peers that misbehave ---


async def confused(cassette: Path, mode: str, data: bytes) -> Outcome:
    """Send a proxy what is no request, and return how it ended when it was told to."""
    options: tuple[object, ...] = (*UPSTREAM, "--output", cassette.with_name("new.json"))
    if mode == "replay":
        options = (await pinged(cassette),)
    async with command(mode, *options, "--port", 0) as process:
        async with connected(await process.listening()) as client:
            await client.write(data)
            while await client.raw():
                pass
        return await process.stopped()


@pytest.mark.parametrize(
    ("mode", "data"),
    [("record", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"), ("replay", b"GET\r\n\r\n")],
)
@looped
async def test_a_client_that_speaks_no_http_is_no_trouble(
    tmp_path: Path, mode: str, data: bytes
) -> None:
    """What is no HTTP, such as `https://` by mistake, ends its connection and nothing else."""
    assert (await confused(tmp_path / "c.json", mode, data)).code == 0


@pytest.mark.parametrize(
    ("mode", "line"),
    [
        ("record", b"GET / HTTP/1.1\r\nHost: b"),
        ("record", b"GET /caf\xe9 HTTP/1.1"),
        ("replay", b"GET / HTTP/1.1\r\nX: a\x01"),
    ],
)
@looped
async def test_a_bad_request_leaves_no_traceback(tmp_path: Path, mode: str, line: bytes) -> None:
    """A request that the HTTP parser refuses is no traceback on the terminal."""
    data = line + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    ended = await confused(tmp_path / "c.json", mode, data)
    assert (ended.code, "Error handling request" in ended.err) == (0, False)


@looped
async def test_a_broken_stream_stays_broken_between_processes(tmp_path: Path) -> None:
    """On whatever event loop the program runs, a stream that breaks off has no clean end."""
    path = tmp_path / "c.json"
    gate = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.send(stream_head(), chunk(b"data: 1\n\n"))
        await gate.wait()
        visit.reset()

    async with (
        upstream(script) as server,
        command("record", "--port", 0, "--output", path, "--upstream", server.url) as process,
        connected(await process.listening()) as client,
    ):
        _, body = await client.ask("POST", "/mcp", JSON, body=compact(message("ping")))
        assert await body.some() == b"data: 1\n\n"
        gate.set()
        assert (await body.rest(), body.is_whole) == (b"", False)
        assert (await process.stopped()).code == 0
    async with command("replay", path, "--port", 0) as process:
        answer = await post(await process.listening(), message("ping"))
        assert (answer.body, answer.is_whole) == (b"data: 1\n\n", False)
        assert (await process.stopped()).code == 0


@looped
async def test_a_terminal_that_is_gone_breaks_no_call(tmp_path: Path) -> None:
    """With stderr closed at its other end, as after `2>&1 | head`, calls and cassette are whole."""
    path = tmp_path / "c.json"
    reading, writing = os.pipe()
    async with (
        upstream(answering(event_stream(result({})))) as server,
        command(
            "record", "--port", 0, "--output", path, "--upstream", server.url, stderr=writing
        ) as process,
    ):
        os.close(writing)
        os.close(reading)
        answer = await post(await process.listening(), message("ping"))
        assert (answer.body, answer.is_whole) == (event(result({})), True)
        process.kill(signal.SIGINT)
        await process.process.wait()
    assert len(read(path)["interactions"]) == 1


# --- Size ---

LARGE = 50_000_000
SANE_KB = 1_000_000
"""Kilobytes that a recorder of 50 MB bodies may have in memory at most."""


@looped
async def test_fifty_megabytes_pass_in_both_directions(tmp_path: Path) -> None:
    """50 MB pass through a recorder each way and are kept, within 1 GB of memory."""
    path = tmp_path / "c.json"
    text = b"x" * LARGE
    asked = compact(tool("x", arguments={"a": "@"})).replace(b"@", text)
    answered = compact(result({"a": "@"})).replace(b"@", text)
    async with upstream(answering(response(answered, JSON))) as server:
        async with command(
            "record", "--port", 0, "--output", path, "--upstream", server.url
        ) as process:
            answer = await post(await process.listening(), asked)
            ended = await process.stopped()
        assert server.only.body == asked
    assert answer.body == answered
    assert ended.code == 0
    assert path.stat().st_size > 2 * LARGE
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < SANE_KB
