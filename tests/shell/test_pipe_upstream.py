"""A server on pipes, called over HTTP."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path
from pipes import LINES_SERVER
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from builders import notification, rpc
from harness import Connection, connected, http, looped
from messages import JsonObject, compact, result
from standin import Body

from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.files.cassettes import load_cassette
from mrtr_cassette.shell.pipes.commands import shown_command
from mrtr_cassette.shell.pipes.upstream import PipeUpstream
from mrtr_cassette.shell.runs.recording import recording

HEADERS = (
    "Accept: application/json, text/event-stream",
    "Content-Type: application/json",
)
ACCEPT = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
}


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
    async with recording(LINES_SERVER, output) as recording_run:
        alone = await post(recording_run.url, call(1))
        both = await post(recording_run.url, call(2, say=f"noise\n{said}\n"))

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

    async with recording(
        (sys.executable, "-c", code), tmp_path / "c.json"
    ) as recording_run:
        first, second = await asyncio.gather(
            post(recording_run.url, call(1, mine="first")),
            post(recording_run.url, call(1, mine="second")),
        )

    for (_, _, body), mine in ((first, "first"), (second, "second")):
        message = json.loads(body)

        assert (message["id"], message["result"]["mine"]) == (1, mine)


@looped
async def test_what_the_server_says_by_itself_comes_on_a_listening_stream(
    tmp_path: Path,
) -> None:
    """A client that listens has what belongs to no call; a second one is told that it can't."""
    ready = '{"jsonrpc":"2.0","method":"notifications/message"}'
    code = f"import sys; sys.stdin.readline(); print({ready!r}, flush=True); sys.stdin.read()"
    headers = {"Accept": "text/event-stream"}
    async with recording(
        (sys.executable, "-c", code), tmp_path / "c.json"
    ) as recording_run:
        assert (await post(recording_run.url, notification("notifications/x")))[
            0
        ] == 202

        async with (
            aiohttp.ClientSession() as client,
            client.get(recording_run.url, headers=headers) as stream,
            client.get(recording_run.url, headers=headers) as second,
        ):
            event = await stream.content.readuntil(b"\n\n")

            assert event == f"event: message\ndata: {ready}\n\n".encode()
            assert second.status == 405


class TalkativeServer:
    """Says many things of its own accord, and then nothing more."""

    def __init__(self, lines: list[bytes]) -> None:
        self.writer = SimpleNamespace(write=lambda _: None, wait_for_room=self._wait)
        self.has_said_all = asyncio.Event()
        self._lines = lines

    async def _wait(self) -> None:
        """There is room."""

    async def stdout_reads(self, _longest: int) -> AsyncIterator[Any]:
        yield SimpleNamespace(lines=[SimpleNamespace(raw=raw) for raw in self._lines])
        self.has_said_all.set()
        await asyncio.Event().wait()

    async def close_stdin(self) -> None:
        """Nothing is sent any more."""

    async def wait_until_ended(self, *_awaited: Any) -> None:
        """It has ended."""

    exit_code = 0


@looped
async def test_the_latest_of_what_nobody_hears_is_kept() -> None:
    """A client that listens later gets it; however much a server says, memory does not grow."""
    said = [
        notification("notifications/message", data=number) + b"\n"
        for number in range(3_000)
    ]

    noise = [b"starting\n"] * 3_000
    server: Any = TalkativeServer([*said, *noise])
    upstream = PipeUpstream(lambda: nullcontext(server), 1_000, str)
    told = Request("POST", "/mcp", (), notification("notifications/x"))
    listening = Request("GET", "/mcp", (("Accept", "text/event-stream"),), b"")
    try:
        await upstream.send_request(told)
        await server.has_said_all.wait()
        stream = await upstream.send_request(listening)
        events = stream.read_now().split(b"\n\n")[:-1]
    finally:
        await upstream.close(asyncio.Event())

    assert 0 < len(events) < len(said)
    assert [event.partition(b"data: ")[2] + b"\n" for event in events] == said[
        -len(events) :
    ]


def test_command_is_shown_without_the_home_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    async with recording(LINES_SERVER, tmp_path / "c.json", options) as recording_run:
        during = await post(recording_run.url, call(1, exit=3))
        after = await post(recording_run.url, call(2))

    for status, _, body in (during, after):
        assert status == 502
        assert "the server has ended" in json.loads(body)["error"]["message"].lower()

    assert recording_run.unreachable_count == 2


def answer_to(question: str, value: JsonObject) -> bytes:
    """Return what a client posts."""
    return compact(result(value, id=question))


ASKING = """
import json, sys
waiting = {}

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

for line in sys.stdin:
    said = json.loads(line)
    method, number = said.get("method"), said.get("id")
    if method == "initialize":
        say(id=number, result={})
    elif method == "notifications/initialized":
        say(id="roots-1", method="roots/list")
    elif method == "tools/call" and said["params"]["name"] == "wait":
        say(method="notifications/message", params={"data": f"wait-{number}"})
    elif method == "tools/call" and said["params"]["name"] == "ask":
        waiting[f"ask-{number}"] = number
        say(id=f"ask-{number}", method="elicitation/create", params={"message": "Which?"})
    elif method is None and number in waiting:
        say(id=waiting.pop(number), result=said["result"])
"""
SERVER = (sys.executable, "-c", ASKING)


async def opened(connection: Connection) -> str:
    """Open a session, and return its header."""
    head, body = await connection.ask(
        "POST", "/mcp", *HEADERS, body=rpc("initialize", {}, 1)
    )
    await body.rest()
    (session,) = head.values("mcp-session-id")

    return f"Mcp-Session-Id: {session}"


@looped
async def test_clients_get_sessions_in_which_pushed_requests_arrive(
    tmp_path: Path,
) -> None:
    """What the server asks outside of calls comes on a session's stream, for each client anew."""
    output = tmp_path / "c.json"
    async with recording(SERVER, output) as recording_run:
        sessions = []
        for _ in range(2):
            async with (
                connected(recording_run.url) as client,
                connected(recording_run.url) as listener,
            ):
                sessions.append(await opened(client))
                head, stream = await listener.ask("GET", "/mcp", *HEADERS, sessions[-1])

                assert head.line.split()[1] == "200"

                initialized = notification("notifications/initialized")
                _, body = await client.ask(
                    "POST", "/mcp", *HEADERS, sessions[-1], body=initialized
                )
                await body.rest()

                assert b'"roots/list"' in await stream.until(b"\n\n")

                _, body = await client.ask(
                    "POST",
                    "/mcp",
                    *HEADERS,
                    sessions[-1],
                    body=answer_to("roots-1", {"roots": []}),
                )

                await body.rest()
                # The end of another session is none of this one.
                await client.ask("DELETE", "/mcp", await opened(client))

                assert (await client.ask("GET", "/mcp", *HEADERS))[0].line.split()[
                    1
                ] == "405"

                head, body = await client.ask("DELETE", "/mcp", sessions[-1])

                assert head.line.split()[1] == "204"
                assert await stream.rest() == b""

        async with connected(recording_run.url) as client:
            head, body = await client.ask(
                "POST", "/mcp", *HEADERS, sessions[0], body=call(2)
            )

            assert head.line.split()[1] == "404"

    assert len(set(sessions)) == 2

    kept = output.read_text()

    assert not [header for header in sessions if header.partition(": ")[2] in kept]


TELLING = """
import json, sys
waiting = []

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

for line in sys.stdin:
    said = json.loads(line)
    if said["method"] == "initialize":
        say(id=said["id"], result={})
    elif said["method"] == "tools/call":
        waiting.append(said)
        for call in waiting:
            token = call["params"]["_meta"]["progressToken"]
            of = {"progressToken": token, "message": call["params"]["name"]}
            say(method="notifications/progress", params=of)
    elif said["method"] == "notifications/cancelled":
        for call in waiting:
            is_cancelled = call["id"] == said["params"]["requestId"]
            say(id=call["id"], result={"cancelled": is_cancelled})
        waiting.clear()
"""
"""Tells all pending calls how they get on at each call, and answers them when one is cancelled."""


@looped
async def test_equal_progress_tokens_and_cancelled_ids_of_two_clients_are_told_apart(
    tmp_path: Path,
) -> None:
    """Clients of the official SDKs begin with the same ids, which are their tokens too."""
    server = (sys.executable, "-c", TELLING)
    async with (
        recording(server, tmp_path / "c.json") as recording_run,
        connected(recording_run.url) as first,
        connected(recording_run.url) as second,
        connected(recording_run.url) as canceller,
    ):
        streams = []
        for client, name in ((first, "first"), (second, "second")):
            header = await opened(client)
            body = call(2, name=name, _meta={"progressToken": 2})
            _, stream = await client.ask("POST", "/mcp", *HEADERS, header, body=body)
            streams.append(stream)

        cancelling = notification("notifications/cancelled", requestId=2)
        for cancelled_in in (await opened(canceller), header):
            await canceller.ask("POST", "/mcp", *HEADERS, cancelled_in, body=cancelling)

        first_text, second_text = [await stream.rest() for stream in streams]

    def events(text: bytes) -> list[JsonObject]:
        parts = text.split(b"\n\n")[:-1]
        return [json.loads(part.partition(b"data: ")[2]) for part in parts]

    told = {"jsonrpc": "2.0", "method": "notifications/progress"}
    first_told = {**told, "params": {"progressToken": 2, "message": "first"}}
    second_told = {**told, "params": {"progressToken": 2, "message": "second"}}
    ended = {"jsonrpc": "2.0", "id": 2}

    assert events(first_text) == [
        first_told,
        first_told,
        {**ended, "result": {"cancelled": False}},
    ]
    assert events(second_text) == [
        second_told,
        {**ended, "result": {"cancelled": True}},
    ]


@looped
async def test_question_comes_in_the_stream_of_a_call_that_waits_for_it(
    tmp_path: Path,
) -> None:
    """Also while others wait; and a call that its client has left waits no more."""
    has_left = asyncio.Event()

    def log(line: str) -> None:
        if "tools/call" in line:
            has_left.set()

    options = RecordOptions(log=log)
    async with (
        recording(SERVER, tmp_path / "c.json", options) as recording_run,
        AsyncExitStack() as stack,
    ):

        async def begun(number: int, name: str) -> tuple[Connection, Body]:
            """Make a call, and wait for what the server says first."""
            connection = await stack.enter_async_context(connected(recording_run.url))
            body = rpc("tools/call", {"name": name}, number)
            _, stream = await connection.ask("POST", "/mcp", *HEADERS, body=body)

            assert b"%s-%d" % (name.encode(), number) in await stream.until(b"\n\n")

            return connection, stream

        leaving, _ = await begun(8, "wait")
        leaving.close()
        await has_left.wait()
        await begun(9, "wait")
        streams = {number: (await begun(number, "ask"))[1] for number in (1, 2)}
        for number in (2, 1):
            given = answer_to(f"ask-{number}", {"of": number})

            assert (
                await http("POST", recording_run.url, *HEADERS, body=given)
            ).status == 202
            assert b'{"of": %d}' % number in await streams[number].rest()
