"""A server on pipes, called over HTTP."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from pipes import LINES_SERVER
from typing import Any

import aiohttp
import pytest
from builders import notification, rpc
from harness import looped

from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.files.cassettes import load_cassette
from mrtr_cassette.shell.pipes.processes import shown_command
from mrtr_cassette.shell.runs.recording import recording

ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


async def post(url: str, body: bytes) -> tuple[int, str, bytes]:
    """Return status, content type and body of the response to a POST."""
    async with (
        aiohttp.ClientSession() as client,
        client.post(url, data=body, headers=ACCEPT) as response,
    ):
        return response.status, response.content_type, await response.read()


def call(number: int, **params: Any) -> bytes:
    """Return a request."""
    return rpc("tools/call", params, number)


@looped
async def test_response_is_json_or_a_stream(tmp_path: Path) -> None:
    """A response alone is a JSON body; what comes before it makes both a stream of events."""
    output = tmp_path / "c.json"
    said = '{"jsonrpc":"2.0","method":"notifications/message"}'
    async with recording(LINES_SERVER, output) as session:
        alone = await post(session.url, call(1))
        both = await post(session.url, call(2, say=f"noise\n{said}\n"))

    assert alone[:2] == (200, "application/json")
    assert json.loads(alone[2])["id"] == 1
    assert both[:2] == (200, "text/event-stream")
    first, second = both[2].split(b"\n\n")[:2]
    assert first == f"event: message\ndata: {said}".encode()
    assert json.loads(second.partition(b"data: ")[2])["id"] == 2
    cassette = load_cassette(output)
    assert (cassette.transport, cassette.upstream) == ("http", "http://localhost/mcp")
    assert len(cassette.interactions) == 2


@looped
async def test_same_id_of_two_clients_is_told_apart(tmp_path: Path) -> None:
    """Each client gets the answer to its own request, with its own id as it spelled it."""
    code = (
        "import json, sys\n"
        "one, two = (json.loads(sys.stdin.readline()) for _ in 'ab')\n"
        "for each in (two, one):\n"
        "    answer = {'jsonrpc': '2.0', 'id': each['id'], 'result': each['params']}\n"
        "    print(json.dumps(answer), flush=True)\n"
        "sys.stdin.read()"
    )
    async with recording((sys.executable, "-c", code), tmp_path / "c.json") as session:
        first, second = await asyncio.gather(
            post(session.url, call(1, mine="first")), post(session.url, call(1, mine="second"))
        )

    for (_, _, body), mine in ((first, "first"), (second, "second")):
        message = json.loads(body)
        assert (message["id"], message["result"]["mine"]) == (1, mine)


@looped
async def test_what_the_server_says_by_itself_comes_on_a_listening_stream(tmp_path: Path) -> None:
    """A client that listens has what belongs to no call; a second one is told that it can't."""
    ready = '{"jsonrpc":"2.0","method":"notifications/message"}'
    code = f"import sys; sys.stdin.readline(); print({ready!r}, flush=True); sys.stdin.read()"
    headers = {"Accept": "text/event-stream"}
    async with recording((sys.executable, "-c", code), tmp_path / "c.json") as session:
        assert (await post(session.url, notification("notifications/x")))[0] == 202
        async with (
            aiohttp.ClientSession() as client,
            client.get(session.url, headers=headers) as stream,
            client.get(session.url, headers=headers) as second,
        ):
            event = await stream.content.readuntil(b"\n\n")
            assert event == f"event: message\ndata: {ready}\n\n".encode()
            assert second.status == 405


def test_command_is_shown_without_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands in a committed cassette doesn't name the user, and is the same for the next one."""
    command = [
        "/usr/bin/node",
        "/home/ann/a b/server.mjs",
        "--log=/home/ann/log",
        "/mnt/home/ann/x",
    ]
    monkeypatch.setenv("HOME", "/home/ann")
    shown = "node '~/a b/server.mjs' --log=~/log /mnt/home/ann/x"
    assert shown_command(command) == shown
    monkeypatch.setenv("HOME", "/")
    assert shown_command(["/usr/bin/node", "/srv/x.mjs"]) == "node /srv/x.mjs"


@looped
async def test_server_that_has_ended_is_no_upstream(tmp_path: Path) -> None:
    """A call during which the server ends gets an error, and so do those after it."""
    options = RecordOptions(publish_anyway=True)
    async with recording(LINES_SERVER, tmp_path / "c.json", options) as session:
        during = await post(session.url, call(1, exit=3))
        after = await post(session.url, call(2))

    for status, _, body in (during, after):
        assert status == 502
        assert "the server has ended" in json.loads(body)["error"]["message"].lower()
    assert session.unreachable == 2
