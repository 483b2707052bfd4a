"""Facts about `record` and `recover`, each of a real process."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import (
    STATE,
    UPSTREAM,
    asking,
    caller,
    conversation,
    pinged,
    recorded,
)
from harness import (
    Outcome,
    command,
    connected,
    http,
    looped,
    post,
    read,
    run,
    taping,
    unmeasured,
)
from messages import message, result, tool_call
from standin import (
    EVENTS,
    Visit,
    answering,
    chunk,
    event,
    json_response,
    response,
    stream_head,
    upstream,
)

# --- record ---


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@looped
async def test_a_signal_ends_a_recording_in_good_order(
    tmp_path: Path, number: signal.Signals
) -> None:
    """A signal publishes the cassette; stdout has one line, stderr the rest, the code is 0."""
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
    """`-- COMMAND` finds the URL, its end ends the recording, and its code is ours.

    The upstream's URL may stand without its option.
    """
    for code, options in ((0, ("--upstream",)), (7, ("--publish-anyway",))):
        path = tmp_path / f"{code}.json"
        async with upstream(answering(json_response(result({}, id=0)))) as server:
            ended = await run(
                "record", "--port", 0, "--output", path, *options, server.url, "--",
                *caller("ping", code=code),
            )  # fmt: skip
        assert ended.code == code
        assert ended.out.splitlines()[1:] == ['{"jsonrpc":"2.0","id":0,"result":{}}']
        assert len(read(path)["interactions"]) == 1


@looped
async def test_a_command_that_failed_leaves_no_cassette(tmp_path: Path) -> None:
    """What it recorded stays in the journal, which `recover` publishes; the code is the command's."""
    path = tmp_path / "c.json"
    async with upstream(answering(json_response(result({}, id=0)))) as server:
        ended = await run(
            "record", "--port", 0, "--output", path, "--upstream", server.url, "--",
            *caller("ping", code=7),
        )  # fmt: skip
    assert ended.code == 7
    assert ended.err.endswith(
        f"{path} was not written: {sys.executable!r} ended with 7\n"
        "what was recorded is in the journal beside it; publish it with: "
        f"mrtr-cassette recover {path} (or delete the journal)\n"
    )
    assert [each.name for each in tmp_path.iterdir()] == ["c.json.journal"]
    assert (await run("recover", path)).code == 0
    assert len(read(path)["interactions"]) == 1


@pytest.mark.parametrize(
    ("reply", "what"),
    [
        (response(b"no", status="404 Not Found"), "404; is the path /mcp right?"),
        (
            response(b"no", status="401 Unauthorized"),
            "401; does the server want credentials, such as --header 'Name: value'?",
        ),
        (response(b"no", status="502 Bad Gateway"), "502; does the server run?"),
        (
            response(b"<html></html>", "Content-Type: text/html"),
            "HTML; is the upstream an MCP server?",
        ),
    ],
)
@looped
async def test_errors_of_the_transport_are_no_recording(
    tmp_path: Path, reply: bytes, what: str
) -> None:
    """Where every request got an error that is not MCP's, no cassette is written, and the code is 4."""
    path = tmp_path / "c.json"
    arguments = ("record", "--port", 0, "--output", path)
    async with upstream(answering(reply, reply, reply)) as server:
        async with command(*arguments, "--upstream", server.url) as process:
            url = await process.listening()
            await post(url, message("ping"))
            await post(url, message("ping"))
            ended = await process.stopped()
        assert ended.code == 4
        assert ended.err.splitlines()[-2] == f"{path} was not written: all 2 requests got {what}"
        assert [each.name for each in tmp_path.iterdir()] == ["c.json.journal"]
        (tmp_path / "c.json.journal").unlink()

        more = ("--publish-anyway", "--log-format", "json")
        async with command(*arguments, *more, "--upstream", server.url) as process:
            await post(await process.listening(), message("ping"))
            ended = await process.stopped()
    assert ended.code == 0
    assert "unpublished" not in json.loads(ended.err.splitlines()[-1])
    assert len(read(path)["interactions"]) == 1


@looped
async def test_a_command_that_asked_nothing_is_no_recording(tmp_path: Path) -> None:
    """`record -- COMMAND` says so where no request came, and ends with 1."""
    path = tmp_path / "c.json"
    async with upstream(asking) as server:
        ended = await run(
            "record", "--port", 0, "--output", path, "--upstream", server.url, "--", *caller()
        )
    assert ended.code == 1
    assert ended.err.splitlines() == [
        "nothing was recorded, no cassette was written",
        f"error: no client came; does {sys.executable!r} read MRTR_CASSETTE_URL?",
    ]
    assert list(tmp_path.iterdir()) == []


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


@pytest.mark.parametrize(
    "numbers", [(signal.SIGINT, signal.SIGTERM), (signal.SIGTERM,), (signal.SIGHUP,)]
)
@looped
async def test_a_signal_ends_the_command_and_the_recording(
    tmp_path: Path, numbers: tuple[signal.Signals, ...]
) -> None:
    """A signal to us ends the command too, and what it did until then is published.

    After SIGINT a second one does: a terminal would have sent the first to the command as well.
    """
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
        for number in numbers:
            process.kill(number)
        ended = await process.ended()
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
            await post(announced, tool_call("x"))
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
        await post(tape.url, tool_call("deploy", id=1))
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
    async with command(*arguments, "--ignore", "/at", "--ignore", "/att") as process:
        await post(await process.listening(), message("tools/list", {"at": 2}))
        ended = await process.stopped()
    assert ended.code == 0
    assert ended.err.splitlines()[-1] == "note: --ignore /att matched nothing"
    assert "--ignore /at " not in ended.err
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


@looped
async def test_what_a_client_had_of_a_stream_is_recovered(tmp_path: Path) -> None:
    """After `kill -9` a listening stream has each event that its client has."""
    path = tmp_path / "c.json"
    events = [event(message("notifications/x", {"n": number}, id=None)) for number in range(3)]
    had = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.send(stream_head(EVENTS), chunk(events[0] + events[1]))
        await had.wait()
        await visit.send(chunk(events[2] + events[0][:9]))
        await visit.left()

    async with (
        upstream(script) as server,
        command("record", "--port", 0, "--output", path, "--upstream", server.url) as process,
        connected(await process.listening()) as client,
    ):
        _, body = await client.ask("GET", "/mcp", "Accept: text/event-stream")
        got = await body.until(events[1])
        had.set()
        got += await body.until(events[2])
        process.kill(signal.SIGKILL)
        await process.ended()
    assert got.startswith(b"".join(events))
    ended = await run("recover", path)
    assert ended == Outcome(0, "", f"wrote {path}: 1 interaction\n")
    (only,) = read(path)["interactions"]
    assert [each["data"]["params"]["n"] for each in only["response"]["events"]] == [0, 1, 2]
    assert only["response"]["end"] == "open"


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


@pytest.mark.parametrize("option", [None, "--append", "--force"])
@looped
async def test_recovering_again_changes_nothing(tmp_path: Path, option: str | None) -> None:
    """A recorder that is killed between publishing and the journal's end has published all."""
    path = tmp_path / "c.json"
    journal = tmp_path / "c.json.journal"
    if option is not None:
        await pinged(path)
    await killed(path, *([] if option is None else [option]))
    kept = journal.read_bytes()
    assert (await run("recover", path)).code == 0
    published = path.read_bytes()
    for _ in range(2):
        journal.write_bytes(kept)
        ended = await run("recover", path)
        assert (ended.code, ended.out) == (0, "")
        assert ended.err.startswith(f"{path} has all that was recorded; ")
        assert [each.name for each in tmp_path.iterdir()] == ["c.json"]
        assert path.read_bytes() == published


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
