"""Calls of real servers that are cut out: played, verified and compared by themselves."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import harness
import pytest
from harness import looped, run_here
from mcp import Client
from mcp_types import TextContent
from processes import PEERS, PROGRAM, PYTHON, listening, record_command, run, run_at

from mrtr_cassette import record, replay, verify
from mrtr_cassette.core.report.comparison import exit_code_of

SERVER = PEERS / "server_both_eras.py"
CLIENT = PEERS / "client_both_eras.py"
COMMAND = (sys.executable, str(SERVER), "--stdio")


FAILING = """
from mcp.server import MCPServer

server = MCPServer("files", version="3.1")


@server.tool()
def read(path: str, mail: str) -> str:
    from mcp.server.mcpserver.exceptions import ToolError

    raise ToolError(f"{mail} can't read {path} of 10.20.30.40")


server.run("stdio")
"""


def called(era: str, *server: object) -> list[Any]:
    """Have a client call both tools of a server, by its URL or command; return what they said."""
    done = run((*PYTHON, str(CLIENT), era, *map(str, server)))

    assert done.code == 0, done.stderr

    said: list[Any] = json.loads(done.stdout)
    return said


def cut(cassette: Path, *selected: str) -> Path:
    """Cut calls out of a cassette; return the new one, in a folder of its own."""
    folder = cassette.parent / "elsewhere"
    folder.mkdir(exist_ok=True)
    part = folder / cassette.name
    done = run_here("cut", cassette, *selected, "--force", "--output", part)
    assert done.code == 0, done.stderr
    assert run_here("check", part).code == 0
    assert run_here("diff", part, part).code == 0

    return part


@pytest.mark.parametrize("era", ["auto", "legacy"])
def test_questions_of_both_eras_play_and_verify(tmp_path: Path, era: str) -> None:
    """A call that asks three times, over HTTP and on pipes, pushed and not."""
    http = tmp_path / "http.json"
    pipe = tmp_path / "pipe.json"
    with listening((sys.executable, str(SERVER))) as server:
        with record(server.url, http, log=None) as recording:
            said = called(era, recording.url)

        part = cut(http, "--only", "tool=plan")

        assert len(part.read_bytes()) < len(http.read_bytes())

        with replay(part, log=None, on_miss="report") as played:
            assert called(era, played.url)[0] == said[0]

        assert [miss.reason for miss in played.misses] == ["unknown-name"]

        verified = verify(part, server.url)

        assert exit_code_of([verified]) == 0, verified

    ours = (*PROGRAM, "record", "--stdio", "--output", pipe, "--", *COMMAND)

    assert called(era, *ours) == said

    part = cut(pipe, "--last")

    assert called(era, *PROGRAM, "replay", "--stdio", part) == said

    held = run((*PROGRAM, "verify", str(part), "--", *COMMAND))

    assert held.code == 0, held


def test_a_task_plays_and_verifies(tmp_path: Path) -> None:
    """A task that asks, with its states and its answers."""
    server = (*PYTHON, str(PEERS / "server_tasks.py"))
    cassette = tmp_path / "tasks.json"
    with listening(server) as live:
        client = (*PYTHON, str(PEERS / "client_tasks.py"))
        done = run_at(record_command(live.url, cassette), client)

        assert done.code == 0, done.stderr

        part = cut(cassette, "--only", "tool=book", "--alone")

        assert '"via": "task"' in part.read_text()

        verified = run((*PROGRAM, "verify", str(part), live.url))

    assert verified.code == 0, verified


async def read(url: str, revision: str, who: str) -> tuple[Any, str]:
    """Read a file as somebody; return whether that failed, and the text."""
    # Without a probe for the newer era, whose time may be up where the server starts slowly.
    async with Client(url, mode=revision) as client:
        if revision != "legacy":
            await client.session.send_discover(revision)

        arguments = {"path": f"/home/{who}/b.txt", "mail": f"{who}@corp.example"}
        result = await client.call_tool("read", arguments)

    assert isinstance(result.content[0], TextContent)
    return result.is_error, result.content[0].text


@pytest.mark.parametrize("revision", ["2026-07-28", "legacy"])
@looped
async def test_stranger_replays_a_failing_call_by_two_commands(
    tmp_path: Path, revision: str
) -> None:
    """Another user's client plays it in an empty folder, and a server is held to it."""
    (tmp_path / "server.py").write_text(FAILING)
    server = (sys.executable, str(tmp_path / "server.py"))
    session = tmp_path / "session.json"
    async with record(server, session, log=None) as recording:
        failed, _ = await read(recording.url, revision, "alice")

    assert failed

    bug = cut(session, "--last", "--share")
    for private in ("alice", "10.20.30.40", str(tmp_path)):
        assert private not in bug.read_text()

    async with replay(bug, log=None) as played:
        failed, told = await read(played.url, revision, "bob")

    assert failed
    assert told.endswith(
        "<shared-email:1> can't read /home/<shared-user:1>/b.txt of <shared-ip:1>"
    )

    verified = await asyncio.to_thread(verify, bug, server)

    assert exit_code_of([verified]) == 0, verified
    assert {found.verdict for found in verified.interactions} == {"same"}

    issue = run_here("report", session, "--last").out
    (line,) = [
        line for line in issue.splitlines() if line.startswith("$ mrtr-cassette")
    ]
    bug.rename(bug.parent / "bug.json")
    _, options, words = [
        part.split() for part in shlex.join(shlex.split(line)).split("mrtr-cassette")
    ]
    done = await harness.run(*options, *PROGRAM, *words, cwd=bug.parent)

    assert done.code == 1
    assert told in done.out
