"""Facts about `replay`, its log and TLS, each of a real process."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import ssl
import sys
from pathlib import Path

import pytest
from builders import without_digests
from commands import (
    STATE,
    asking,
    caller,
    conversation,
    pinged,
    recorded,
    repeated,
    words_to_record,
)
from harmless import HOSTILE, assert_harmless
from harness import (
    Outcome,
    command,
    connected,
    http,
    looped,
    post,
    read,
    request,
    run,
    run_here,
    taped,
    taping,
)
from messages import compact, message, result, tool_call
from standin import JSON, answering, json_response, response, upstream

# --- replay ---


@looped
async def test_a_replay_without_misses_is_0(tmp_path: Path) -> None:
    """A replay in which everything was played says so and ends with 0."""
    path = await recorded(tmp_path / "c.json")
    before = path.read_bytes()
    async with command("replay", path, "--port", 0) as process:
        url = await process.listening()

        assert [response["result"] for response in (await conversation(url))[1:]] == [
            {"was": "decline"},
            {"was": "accept"},
        ]

        ended = await process.stopped()

    assert process.first_line == f"listening on {url}\n"
    assert ended == Outcome(0, "", "played 2 of 2 interactions, no misses\n")
    assert path.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["c.json"]


@pytest.fixture
def pinged_path(tmp_path: Path) -> Path:
    """Return a cassette of one `ping`."""
    return asyncio.run(pinged(tmp_path / "c.json"))


@pytest.mark.parametrize(
    ("options", "methods", "code", "expected"),
    [
        ((), ("ping",), 0, 0),
        ((), ("ping", "unknown"), 0, 1),
        ((), ("unknown",), 7, 7),
        ((), (), 0, 1),
        (("--repeat", "never"), ("ping", "ping"), 0, 1),
        (("--repeat", "always"), ("ping", "ping"), 0, 0),
    ],
)
def test_a_command_is_served_and_its_code_passed_on(
    pinged_path: Path,
    options: tuple[str, ...],
    methods: tuple[str, ...],
    code: int,
    expected: int,
) -> None:
    """`replay -- CLIENT` ends with the command's code, else with 1 on a miss or without a client.

    `--report` has what was played and missed, and a JSON log is JSON to its last line.
    """
    report = pinged_path.with_name("report.json")
    words = (
        "replay",
        pinged_path.parent,
        *options,
        "--report",
        report,
        "--report",
        report.with_suffix(".xml"),
        "--log-format",
        "json",
    )

    ended = run_here(*words, "--", *caller(*methods, code=code))

    assert ended.code == expected
    # The usual port is for clients that are told it.
    assert "listening on" in ended.out
    assert ":8722" not in ended.out

    events = [json.loads(line) for line in ended.err.splitlines()]
    is_silent = {"event": "no_client", "command": sys.executable} in events

    assert is_silent == (not methods)

    tree = json.loads(report.read_bytes())

    assert tree["interactions"][0]["outcome"] == (
        "played" if "ping" in methods else "never played"
    )

    missed = [miss["reason"] for miss in tree["misses"]]

    assert missed == [
        *["unknown-method"] * (len(set(methods) - {"ping"})),
        *["already-played"] * ("never" in options),
    ]


def test_what_was_not_played_fails_where_that_is_asked_for(tmp_path: Path) -> None:
    """With `--fail-on-unplayed` a replay of a part of the cassette ends with 1."""
    path = tmp_path / "c.json"
    replies = [json_response(result({}))] * 2
    asyncio.run(taped(path, *zip(map(message, ("ping", "pong")), replies, strict=True)))
    words = ("replay", path, "--port", 0)
    for flags, methods, code in (
        ((), ("ping",), 0),
        (("--fail-on-unplayed",), ("ping",), 1),
        (("--fail-on-unplayed",), ("ping", "pong"), 0),
    ):
        ended = run_here(*words, *flags, "--", *caller(*methods))

        assert ended.code == code
        assert f"played {len(methods)} of 2 interactions, no misses" in ended.err


@looped
async def test_a_miss_is_1_and_explained(tmp_path: Path) -> None:
    """A miss is told on stderr as to the client; the summary counts it; the code is 1."""
    path = await recorded(tmp_path / "c.json")
    async with command("replay", path, "--port", 0) as process:
        answer = await post(await process.listening(), tool_call("undeploy"))
        ended = await process.stopped()

    assert answer.reason == "unknown-name"
    assert (ended.code, ended.out) == (1, "")
    assert answer.json["error"]["message"] in ended.err
    assert (
        f"record this call too with mrtr-cassette record --append --output {path} "
        in ended.err
    )
    assert ended.err.splitlines()[-2:] == [
        "played 0 of 2 interactions, 1 miss (unknown-name 1)",
        "  2 interactions not fully played; --report FILE lists them",
    ]


@looped
async def test_a_stateless_replica_finishes_what_has_begun(tmp_path: Path) -> None:
    """On SIGTERM idle connections are closed, nobody connects, and what has begun is answered."""
    path = await pinged(tmp_path / "c.json")
    ping = request("POST", "/mcp", JSON, body=compact(message("ping")))
    async with command("replay", path, "--port", 0, "--stateless") as process:
        url = await process.listening()
        async with connected(url) as idle, connected(url) as busy:
            await idle.write(ping)
            _, body = await idle.answer()
            await body.rest()
            await busy.write(ping[:-1])
            # It knows of the request that has begun when it has answered another.
            await post(url, message("ping"))
            process.kill(signal.SIGTERM)
            await idle.closed()
            with pytest.raises(ConnectionRefusedError):
                await post(url, message("ping"))

            await busy.write(ping[-1:])
            head, body = await busy.answer()

            assert json.loads(await body.rest())["result"] == {}
            assert head.values("connection") == ["close"]

            await busy.closed()

        ended = await process.ended()

    assert (ended.code, ended.err) == (0, "played 1 of 1 interactions, no misses\n")


def test_misses_are_annotations_in_github_actions(
    pinged_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There standard output has a workflow command for each miss."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    ended = run_here("replay", pinged_path, "--", *caller("tools/list"))
    (line,) = [line for line in ended.out.splitlines() if line.startswith("::")]

    assert line.startswith(
        f"::error file={pinged_path},title=miss%3A unknown-method::miss: unkn"
    )
    assert "%0A  fix:" in line


@looped
async def test_a_hostile_cassette_steers_neither_terminal_nor_runner(
    tmp_path: Path,
) -> None:
    """Whatever stands in a cassette, what is printed and reported of it is obeyed by nobody."""
    path = await pinged(tmp_path / "c.json")
    tree = without_digests(read(path))
    tree["upstream"] = f"http://h/{HOSTILE}?{HOSTILE}"
    tree["recording"] |= {"recorded_at": HOSTILE, "tool": HOSTILE}
    tree["interactions"][0]["request"]["body"] = tool_call(
        HOSTILE, a=HOSTILE, **{HOSTILE: HOSTILE}
    )
    tree["interactions"][0]["request"]["http"]["path"] = f"/{HOSTILE}"
    path.write_bytes(compact(tree))
    reports = {"text": tmp_path / "r.xml", "json": tmp_path / "r.json"}
    runs = [await run("inspect", path), await run("inspect", path, "--json")]
    for log_format, report in reports.items():
        replay = (
            "replay",
            path,
            "--port",
            0,
            "--log-format",
            log_format,
            "--report",
            report,
        )
        runs.append(await run(*replay, "--", *caller("tools/call", HOSTILE)))

    runs.append(await run("check", path))
    tree["interactions"][0][HOSTILE] = HOSTILE
    path.write_bytes(compact(tree))
    runs.append(await run("inspect", path))

    assert [ended.code for ended in runs] == [0, 0, 1, 1, 0, 3]
    assert json.loads(runs[1].out)["upstream"] == tree["upstream"]

    written = [path.read_text() for path in reports.values()]
    for text in (*(ended.out + ended.err for ended in runs), *written):
        assert_harmless(text)


@looped
async def test_options_that_match_nothing_are_told(tmp_path: Path) -> None:
    """A pointer to a member that no request has is a mistake, and so is the name of no call."""
    path = tmp_path / "c.json"
    async with taping(path, answering(json_response(result({})))) as tape:
        await post(tape.url, message("tools/list", {"at": 1}))

    pointers = ("/at", "/now", "/att", "/inputResponses/a~1b")
    ignored = repeated("--ignore", pointers)
    reads = ("--reads", "tools/list", "--reads", "tpyo")
    async with command("replay", path, "--port", 0, *ignored, *reads) as process:
        await post(
            await process.listening(), message("tools/list", {"at": 2, "now": 3})
        )
        ended = await process.stopped()

    assert ended.code == 0
    assert ended.err.splitlines()[-3:] == [
        "note: --reads tpyo matched nothing",
        *(f"note: --ignore {pointer} matched nothing" for pointer in pointers[2:]),
    ]


# --- Logs for programs, TLS ---


@looped
async def test_the_log_can_be_json(tmp_path: Path) -> None:
    """With `--log-format json` what passes is told as JSON events, without any value of it."""
    path = tmp_path / "c.json"
    options = ("--port", 0, "--log-format", "json")
    async with (
        upstream(asking) as server,
        command(
            "record", *options, "--output", path, "--upstream", server.url
        ) as process,
    ):
        await conversation(await process.listening())
        told = (await process.stopped()).err

    events = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    passed = ["started", "asked", *["answered", "ended"] * 2]

    assert [event["event"] for event in events] == [*passed, "concluded"]
    assert events[1]["request_state_sha256"] == events[2]["request_state_sha256"]
    assert not any(word in told for word in (STATE, "accept", "decline"))


@pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl makes the certificate"
)
@looped
async def test_a_tls_upstream_is_verified(tmp_path: Path) -> None:
    """A TLS upstream is refused unless its certificate is known, or the user waives that."""
    key = tmp_path / "key.pem"
    certificate = tmp_path / "cert.pem"
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
            command(*words_to_record(tmp_path / name, server.url), *options) as process,
        ):
            answer = await http("GET", await process.listening())
            ended = await process.stopped()

        assert (name, answer.status) == (name, status)
        assert ("certificate" in ended.err) == (name == "refused")
        assert ("WARNING" in ended.err) == (name == "waived")
