"""Facts about `call` and `answers` on the command line: words, output, exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
from builders import cassette_of, encode_cassette, tool
from click.testing import CliRunner, Result
from forked import start_piped
from harness import command, looped
from messages import message, result, text
from processes import CASSETTES, PROGRAM, listening
from standin import PushingServer, Visit, json_response, upstream
from tasking import created, state

from mrtr_cassette import replay
from mrtr_cassette.cli import main


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Give a server that asks."""
    with listening(
        (sys.executable, "-m", "mrtr_cassette.demo.server", "--port", "0")
    ) as server:
        yield server.url


def run(*words: str) -> Result:
    """Run the program, without a terminal."""
    return CliRunner().invoke(main, words)


def test_whole_conversation_is_printed_as_json(url: str, tmp_path: Path) -> None:
    """And each round is an event, without the answer."""
    options = ("--answer", "confirm=yes", "--answer", "spare=1", "--log-format", "json")
    record = ("--record", str(tmp_path / "c.json"))
    ended = run("call", url, "deploy", "env=production", "--json", *options, *record)

    assert ended.exit_code == 0

    data = json.loads(ended.stdout)

    assert data["result"]["content"][0]["text"] == "Deployed to production"
    assert data["turns"][0]["answered_by"] == {"confirm": "call"}

    events = [
        json.loads(line) for line in ended.stderr.splitlines() if line.startswith("{")
    ]

    assert [event["event"] for event in events] == ["answered", "ended", "concluded"]
    assert "warning: nothing asked for the answer 'spare'" in ended.stderr

    shown = run("inspect", str(tmp_path / "c.json")).stdout

    assert (
        "\n    Deploy to production? → confirm: yes → Deployed to production\n" in shown
    )

    size = len(json.dumps(data["result"], separators=(",", ":")))

    assert size < int(re.findall(r"[(]([0-9]+) bytes", shown)[-1]) < size + 99

    again = run("call", url, "add", "a=1", "b=2", *record)

    assert again.exit_code == 3
    assert "--append" in again.stderr


def test_nobody_is_asked_without_a_terminal(url: str) -> None:
    """What nobody answers is printed, with an exit code of its own."""
    ended = run("call", url, "deploy", "env=production")

    assert ended.exit_code == 5
    assert '"turn":1' in ended.stdout
    assert "nothing answers it" in ended.stderr


def test_unknown_tool_is_one_line(url: str, tmp_path: Path) -> None:
    """On a live server, on a cassette that has its tools or not, and where nothing listens."""
    assert (
        run("call", url, "add", "a=1", "b=2", "-o", str(tmp_path / "c.json")).exit_code
        == 0
    )

    untold = cassette_of((tool("add"), text("3")))
    (tmp_path / "untold.json").write_bytes(encode_cassette(untold))
    no_tool = "error: the server has no tool 'nosuch'; it has add, deploy"
    with replay(tmp_path / "c.json") as played:
        known = run("call", played.url, "nosuch")

    with replay(tmp_path / "untold.json", on_miss="report") as played:
        unknown = run("call", played.url, "nosuch")

    away = run("call", "http://127.0.0.1:9/mcp", "nosuch")
    for ended, said in (
        (run("call", url, "nosuch"), no_tool),
        (known, no_tool),
        (unknown, " opens no session: HTTP 200, error -32010: miss: unknown-method"),
        (
            away,
            "error: the upstream http://127.0.0.1:9 gave no response: connection refused",
        ),
    ):
        (line,) = ended.stderr.splitlines()

        assert said in line
        assert ended.exit_code in (2, 4)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["call"], "the server is missing"),
        (["call", "deploy", "--"], "the command after -- is missing"),
        (
            ["call", "http://localhost:9/mcp", "a", "--", "b"],
            "call takes a single server",
        ),
        (["call", "a", "--upstream", "server"], "is not an HTTP URL"),
        (["call", "http://localhost:9/mcp"], "there is nothing to call"),
        (
            ["call", "http://localhost:9/mcp", "deploy", "env"],
            "'env' has no name and value",
        ),
        (
            ["call", "http://localhost:9/mcp", "a", "--answer", "b"],
            "'b' has no name and value",
        ),
        (
            ["call", "http://localhost:9/mcp", "a", "--answers", "none.toml"],
            "can't read none.toml",
        ),
        (
            ["call", "http://localhost:9/mcp", "a", "--append"],
            "--append need --output CASSETTE",
        ),
        (["call", "http://localhost:9/mcp", "a", "--timeout", "0"], "invalid value"),
        (
            ["record", "--port", "abc"],
            "invalid value for '--port': 'abc' is not a valid whole number",
        ),
        (
            ["record", "http://localhost:9/mcp", "--ignore-from", "i"],
            "--ignore-from needs --force;",
        ),
        (["record", "--append", "--ignore-from", "i"], "--ignore-from needs --force;"),
        (
            ["record", "--stdio", "--answers", "a", "--", "x"],
            "--answers and --stdio don't go",
        ),
        (
            ["replay", "c.json", "--stdio", "--stateless"],
            "--stateless and --stdio don't go",
        ),
    ],
)
def test_wrong_words_are_usage_errors(words: list[str], reason: str) -> None:
    """Nothing is called."""
    ended = run(*words)

    assert (ended.exit_code, ended.stdout) == (2, "")
    assert reason in ended.stderr


def test_no_server_is_told(tmp_path: Path) -> None:
    """By the exit code of upstreams, and no endpoint is asked before its URL is read."""
    assert run("call", "http://127.0.0.1:9/mcp", "deploy").exit_code == 4

    file = tmp_path / "a.toml"
    file.write_text('[rest]\nurl = "nowhere"\n')
    ended = run("call", "http://127.0.0.1:9/mcp", "deploy", "--answers", str(file))

    assert ended.exit_code == 2
    assert "rest.url of the answers file is not an HTTP URL" in ended.stderr


def test_answers_file_of_a_recording_gives_its_answers(
    url: str, tmp_path: Path
) -> None:
    """`answers from` writes rules by which the same call ends as it did."""
    cassette = str(tmp_path / "c.json")
    file = tmp_path / "a.toml"
    call = ("call", url, "deploy", "env=production")
    done = run(*call, "--answer", "confirm=yes", "--record", cassette)
    file.write_text(run("answers", "from", cassette).stdout)
    again = run(*call, "--answers", str(file))

    assert (again.exit_code, again.stdout) == (0, done.stdout)
    assert "answered by rule 1" in again.stderr


@looped
async def test_call_without_a_text_prints_what_came_instead() -> None:
    """An empty text is shown as JSON, and a result that is no object is a problem."""
    cases: list[tuple[Any, int, str, str]] = [
        ({"content": [{"type": "text", "text": ""}]}, 0, '"text": ""', ""),
        ({"content": ["a"]}, 0, '"a"', ""),
        (None, 4, "", "error: the result is not an object: null\n"),
        ([], 4, "", "error: the result is not an object: []\n"),
    ]
    for value, code, out, err in cases:

        async def server(visit: Visit, value: Any = value) -> None:
            body = visit.request.json
            given = {"supportedVersions": ["2026-07-28"], "tools": [{"name": "t"}]}
            if body["method"] == "tools/call":
                given = value

            await visit.send(json_response(result(given, id=body["id"])))

        async with upstream(server) as live, command("call", live.url, "t") as process:
            ended = await process.ended()

        assert (ended.code, ended.err) == (code, err)
        assert out in ended.out
        assert bool(out) is bool(ended.out)


@looped
async def test_signal_cancels_the_task_of_a_call() -> None:
    """Its server hears that nobody waits any more; what it got done so far was told."""
    replies: dict[str, Any] = {
        "server/discover": {"supportedVersions": ["2026-07-28"]},
        "tools/list": {"tools": [{"name": "build"}]},
        "tools/call": created("the-task", statusMessage="Half way"),
        "tasks/get": state("the-task", statusMessage="Half way"),
    }

    seen: list[str] = []

    async def server(visit: Visit) -> None:
        body = visit.request.json
        seen.append(body["method"])
        await visit.send(
            json_response(result(replies.get(body["method"], {}), id=body["id"]))
        )

    async with upstream(server) as live, command("call", live.url, "build") as process:
        await process.said("task working: Half way\n")
        ended = await process.stopped(signal.SIGINT)

    assert (ended.code, seen[-1]) == (130, "tasks/cancel")


@looped
async def test_signal_ends_a_call_with_one_line(tmp_path: Path) -> None:
    """Whatever is under way beside it, such as the stream of its session, recorded or not."""
    recorded = ("--record", str(tmp_path / "c.json"))
    cases: list[tuple[signal.Signals, tuple[str, ...]]] = [
        (signal.SIGINT, ()),
        (signal.SIGTERM, ()),
        (signal.SIGTERM, recorded),
    ]
    for number, options in cases:
        called = asyncio.Event()
        pushing = PushingServer(
            message("ping", id=1), lambda _: {}, tools=[{"name": "build"}]
        )

        async def server(
            visit: Visit,
            pushing: PushingServer = pushing,
            called: asyncio.Event = called,
        ) -> None:
            if b'"tools/call"' in visit.request.body:
                called.set()
                await visit.left()
            else:
                await pushing(visit)

        async with (
            upstream(server) as live,
            command("call", live.url, "build", *options) as process,
        ):
            await called.wait()
            ended = await process.stopped(number)

        assert (ended.code, ended.err) == (
            128 + number,
            f"error: stopped by {number.name}\n",
        )


STUBBORN = """
import os, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.stdin.buffer.readline()
print(os.getpid(), file=open(sys.argv[1], "w"), flush=True)
sys.stdin.buffer.read()
print("closed", file=open(sys.argv[1], "w"), flush=True)
while True:
    signal.pause()
"""
"""A server that answers nothing, and ends at no signal; it tells when it is called and left."""


def test_further_signals_leave_no_server_behind(tmp_path: Path) -> None:
    """Whoever starts a server ends it after the first signal, whichever come meanwhile."""
    cassette = CASSETTES / "demo-server.json"
    cases: list[tuple[list[str], signal.Signals, signal.Signals]] = [
        (["call", "deploy"], signal.SIGTERM, signal.SIGTERM),
        (["call", "deploy", "-o", f"{tmp_path}/o"], signal.SIGINT, signal.SIGTERM),
        (["verify", f"{cassette}", "--only", "deploy"], signal.SIGINT, signal.SIGINT),
        (["probe", f"{cassette}", "--only", "deploy"], signal.SIGTERM, signal.SIGINT),
        (
            ["record", "--stdio", "-o", f"{tmp_path}/r"],
            signal.SIGTERM,
            signal.SIGINT,
        ),
    ]

    with ExitStack() as stack:
        errors = [stack.enter_context(TemporaryFile()) for _ in cases]
        started = []
        for number, (words, _, _) in enumerate(cases):
            gate = tmp_path / f"gate-{number}"
            os.mkfifo(gate)
            server = (sys.executable, "-c", STUBBORN, str(gate))
            process = stack.enter_context(
                start_piped([*PROGRAM, *words, "--", *server], errors[number])
            )

            assert process.stdin is not None

            process.stdin.write(b"{}\n")
            started.append((process, gate))

        servers = []
        for (process, gate), (_, first, _) in zip(started, cases, strict=True):
            servers.append(int(gate.read_text()))
            process.send_signal(first)

        for (process, gate), (words, _, second) in zip(started, cases, strict=True):
            if words[0] != "record":
                assert gate.read_text() == "closed\n"

            process.send_signal(second)

        codes = [process.wait() for process, _ in started]
        said = []
        for file in errors:
            file.seek(0)
            said.append(file.read().decode())

    stopped = [128 + first for _, first, _ in cases[:-1]]

    assert codes == [*stopped, 128 + signal.SIGKILL], said

    names = [first.name for _, first, _ in cases[:-1]]

    assert [text.splitlines()[-1] for text in said[:-1]] == [
        f"error: stopped by {name}" for name in names
    ]
    assert not any("Traceback" in text for text in said)

    for server in servers:
        with pytest.raises(ProcessLookupError):
            os.kill(server, 0)
