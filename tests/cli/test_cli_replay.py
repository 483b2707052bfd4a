"""Facts about `replay`, its log and TLS, each of a real process."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import ssl
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from builders import without_digests
from commands import (
    STATE,
    UPSTREAM,
    asking,
    caller,
    conversation,
    pinged,
    recorded,
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
    taping,
)
from messages import compact, message, result, tool_call
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

# --- replay ---


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
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
        answer = await post(await process.listening(), tool_call("undeploy"))
        ended = await process.stopped()
    assert answer.reason == "unknown-name"
    assert (ended.code, ended.out) == (1, "")
    assert answer.json["error"]["message"] in ended.err
    assert ended.err.splitlines()[-3:] == [
        "played 0 of 2 interactions, 1 miss (unknown-name 1)",
        '  never played: #1 tools/call "deploy"',
        '  never played: #2 tools/call "deploy"',
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


@pytest.mark.parametrize("code", [0, 7])
@looped
async def test_a_command_that_asked_nothing_is_no_success(tmp_path: Path, code: int) -> None:
    """`replay -- COMMAND` says so where no request came, and ends with 1 or the command's code."""
    path = await pinged(tmp_path / "c.json")
    ended = await run("replay", path, "--port", 0, "--", *caller(code=code))
    assert ended.code == (code or 1)
    assert ended.err.splitlines()[-1] == (
        f"error: no client came; does {sys.executable!r} read MRTR_CASSETTE_URL?"
    )
    ended = await run("replay", path, "--port", 0, "--log-format", "json", "--", *caller())
    assert json.loads(ended.err.splitlines()[-1]) == {
        "event": "no_client",
        "command": sys.executable,
    }


@pytest.mark.parametrize(("flag", "code"), [((), 0), (("--fail-on-unplayed",), 1)])
@looped
async def test_what_was_not_played_fails_where_that_is_asked_for(
    tmp_path: Path, flag: tuple[str, ...], code: int
) -> None:
    """With `--fail-on-unplayed` a replay of a part of the cassette ends with 1."""
    path = tmp_path / "c.json"
    async with taping(path, answering(*[json_response(result({}))] * 2)) as tape:
        await post(tape.url, message("ping"))
        await post(tape.url, message("pong"))
    ended = await run("replay", path, "--port", 0, *flag, "--", *caller("ping"))
    assert ended.code == code
    assert ended.err.splitlines()[0] == "played 1 of 2 interactions, no misses"
    assert (await run("replay", path, "--port", 0, *flag, "--", *caller("ping", "pong"))).code == 0


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
    report.touch()
    for _ in range(2):
        async with command("replay", path, "--port", 0, "--report", report) as process:
            await process.listening()
            assert (await process.stopped()).code == 0
        assert [one.get("message") for one in ET.parse(report).iter("skipped")] == ["unplayed"]


@looped
async def test_a_report_takes_the_place_of_a_report_only(tmp_path: Path) -> None:
    """The cassette itself and any other file are refused before anything is played or written."""
    path, link = await pinged(tmp_path / "c.json"), tmp_path / "link.xml"
    link.symlink_to(path)
    foreign = {
        "notes.md": "# mine",
        "package.json": '{"name": "mine"}',
        "tests.xml": "<testsuites/>",
        "other.json": '{"cassette": "mine"}',
    }
    for name, text in foreign.items():
        (tmp_path / name).write_text(text)
    for report in (path, link, *(tmp_path / name for name in foreign)):
        before = report.read_bytes()
        ended = await run("replay", path, "--port", 0, "--report", report, "--", "true")
        assert (ended.code, ended.out) == (2, "")
        assert f"{report} exists and is no report of this program; name another" in ended.err
        assert report.read_bytes() == before
    own = tmp_path / "own.json"
    program = (sys.executable, "-c", f"open({str(own)!r}, 'w').write('mine')")
    ended = await run("replay", path, "--port", 0, "--report", own, "--", *program)
    assert (ended.code, own.read_text()) == (2, "mine")


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


@pytest.mark.parametrize("log_format", ["text", "json"])
@looped
async def test_a_hostile_cassette_steers_neither_terminal_nor_runner(
    tmp_path: Path, log_format: str
) -> None:
    """Whatever stands in a cassette, what is printed and reported of it is obeyed by nobody."""
    path = await pinged(tmp_path / "c.json")
    tree = without_digests(read(path))
    tree["upstream"] = f"http://h/{HOSTILE}?{HOSTILE}"
    tree["recording"] |= {"recorded_at": HOSTILE, "tool": HOSTILE}
    tree["interactions"][0]["request"]["body"] = tool_call(HOSTILE, a=HOSTILE, **{HOSTILE: HOSTILE})
    tree["interactions"][0]["request"]["http"]["path"] = f"/{HOSTILE}"
    path.write_bytes(compact(tree))
    reports = [tmp_path / "r.json", tmp_path / "r.xml"]
    runs = [await run("inspect", path), await run("inspect", path, "--json")]
    for report in reports:
        replay = ("replay", path, "--port", 0, "--log-format", log_format, "--report", report)
        runs.append(await run(*replay, "--", *caller("tools/call", HOSTILE)))
    runs.append(await run("check", path))
    tree["interactions"][0][HOSTILE] = HOSTILE
    path.write_bytes(compact(tree))
    runs.append(await run("inspect", path))
    assert [each.code for each in runs] == [0, 0, 1, 1, 0, 3]
    assert json.loads(runs[1].out)["upstream"] == tree["upstream"]
    for text in (*(each.out + each.err for each in runs), *(each.read_text() for each in reports)):
        assert_harmless(text)


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
async def test_what_was_ignored_in_vain_is_told(tmp_path: Path) -> None:
    """A pointer to a member that neither a recorded request nor a client's has is a mistake."""
    path = tmp_path / "c.json"
    async with taping(path, answering(json_response(result({})))) as tape:
        await post(tape.url, message("tools/list", {"at": 1}))
    pointers = ("/at", "/now", "/att", "/inputResponses/a~1b")
    ignored = [word for pointer in pointers for word in ("--ignore", pointer)]
    async with command("replay", path, "--port", 0, *ignored) as process:
        await post(await process.listening(), message("tools/list", {"at": 2, "now": 3}))
        ended = await process.stopped()
    assert ended.code == 0
    assert ended.err.splitlines()[-2:] == [
        f"note: --ignore {pointer} matched nothing" for pointer in pointers[2:]
    ]


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
        await post(url, tool_call("unknown"))
        ended = await process.stopped()
    events = [json.loads(line) for line in ended.err.splitlines() if line.startswith("{")]
    played = ["played", "asked", *["played", "answered"] * 2]
    assert [one["event"] for one in events] == [*played, "missed", "concluded"]
    assert not any(word in ended.err for word in (STATE, '"accept"', '"decline"'))
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
