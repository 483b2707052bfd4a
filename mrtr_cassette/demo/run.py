"""The main job, shown: record a server, stop it, replay it, and compare byte for byte.

Owns: a scripted client with its answers, and the comparison of what it got live and on replay.
Does not own: the server (`demo_server`), recording and replay (`shell`).
Rule: any difference but a sealed request state ends the demo with an error.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from aiohttp import web

from mrtr_cassette.core.protocol.dialect import recognise
from mrtr_cassette.demo.server import create_app
from mrtr_cassette.errors import MrtrCassetteError
from mrtr_cassette.shell.recording import recording
from mrtr_cassette.shell.replaying import replaying

Say = Callable[[str], None]

_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "mrtr-cassette-demo", "version": "1.0.0"},
    "io.modelcontextprotocol/clientCapabilities": {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {},
        "roots": {},
    },
}
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


def _accept(**content: Any) -> dict[str, Any]:
    return {"action": "accept", "content": content}


@dataclass(frozen=True, slots=True)
class Flow:
    """One call that the scripted client makes.

    Attributes:
        title: what the flow shows.
        method: JSON-RPC method.
        name: the tool or prompt, or the resource's URI.
        arguments: what the call is given.
        answers: what the client answers, by key.
        tampers: the client changes the request state before it echoes it.
    """

    title: str
    method: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    answers: Mapping[str, Any] = field(default_factory=dict)
    tampers: bool = False


FLOWS = (
    Flow("a plain call", "tools/call", "add", {"a": 1, "b": 2}),
    Flow(
        "one question, accepted",
        "tools/call",
        "deploy",
        {"env": "production"},
        {"confirm": _accept(confirm=True)},
    ),
    Flow(
        "one question, declined",
        "tools/call",
        "tag-release",
        {"tag": "v2.1.0"},
        {"confirm": {"action": "decline"}},
    ),
    Flow(
        "two questions in one round",
        "tools/call",
        "provision",
        answers={"name": _accept(name="analytics"), "region": _accept(region="eu-west-1")},
    ),
    Flow(
        "two rounds, with a signed state that expires",
        "tools/call",
        "wipe-cache",
        answers={"confirm": _accept(confirm=True), "scope": _accept(scope="sessions")},
    ),
    Flow(
        "three rounds",
        "tools/call",
        "release-train",
        {"version": "2.1"},
        {
            "approve": _accept(approve=True),
            "window": _accept(window="tonight"),
            "notes": _accept(notes="none"),
        },
    ),
    Flow(
        "all four kinds of input at once",
        "tools/call",
        "everything",
        answers={
            "confirm": _accept(confirm=True),
            "signin": {"action": "accept"},
            "summary": {
                "role": "assistant",
                "content": {"type": "text", "text": "All quiet."},
                "model": "demo-model",
                "stopReason": "endTurn",
            },
            "roots": {"roots": [{"uri": "file:///srv/app", "name": "app"}]},
        },
    ),
    Flow("a state and no question", "tools/call", "build", {"target": "docs"}),
    Flow("a stream with progress", "tools/call", "count", {"to": 3}),
    Flow(
        "a question at the end of a stream",
        "tools/call",
        "ask-late",
        {"steps": 2},
        {"confirm": _accept(confirm=True)},
    ),
    Flow(
        "a prompt that asks",
        "prompts/get",
        "release-notes",
        {"version": "2.1"},
        {"audience": _accept(audience="operators")},
    ),
    Flow(
        "a resource that asks",
        "resources/read",
        "config://deployment",
        answers={"confirm": _accept(confirm=True)},
    ),
    Flow(
        "a tampered state, refused",
        "tools/call",
        "wipe-cache",
        answers={"confirm": _accept(confirm=True)},
        tampers=True,
    ),
)


class DemoError(MrtrCassetteError):
    """The replay is not what was recorded."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What the client saw of one exchange: status, all bytes, and the state that they issue."""

    status: int
    body: bytes
    message: dict[str, Any]
    state: str | None
    asked: str


class Client:
    """A client without an SDK that sees every byte."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        """Connect to a URL; ids are counted from 1."""
        self._http = http
        self._url = url
        self._id = 0

    async def converse(self, flow: Flow) -> list[Turn]:
        """Make a call and answer whatever it asks, until it ends."""
        turn = await self._send(flow, {})
        turns = [turn]
        while (ask := recognise(turn.message.get("result"))) is not None:
            retry: dict[str, Any] = {}
            if ask.input_requests:
                retry["inputResponses"] = {key: flow.answers[key] for key in ask.input_requests}
            if ask.request_state is not None:
                retry["requestState"] = ask.request_state + ("x" if flow.tampers else "")
            turn = await self._send(flow, retry)
            turns.append(turn)
        return turns

    async def _send(self, flow: Flow, retry: Mapping[str, Any]) -> Turn:
        self._id += 1
        params: dict[str, Any] = {_NAMED_BY[flow.method]: flow.name}
        if flow.arguments:
            params["arguments"] = flow.arguments
        params |= retry
        params["_meta"] = {**_META, "progressToken": self._id}
        message = {"jsonrpc": "2.0", "id": self._id, "method": flow.method, "params": params}
        headers = {
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": flow.method,
            "Mcp-Name": flow.name,
        }
        async with self._http.post(self._url, data=orjson.dumps(message), headers=headers) as got:
            body = await got.read()
            is_stream = got.content_type == "text/event-stream"
            answer = orjson.loads(_last_event(body) if is_stream else body)
            ask = recognise(answer.get("result"))
            return Turn(
                got.status,
                body,
                answer,
                ask.request_state if ask is not None else None,
                ", ".join(f"{k} ({r.kind})" for k, r in ask.input_requests.items()) if ask else "",
            )


def _last_event(body: bytes) -> bytes:
    return body.strip().rpartition(b"data: ")[2]


@asynccontextmanager
async def _demo_server() -> AsyncIterator[str]:
    runner = web.AppRunner(create_app(), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()


async def run_demo(say: Say) -> int:
    """Run the demo.

    Args:
        say: takes each line to print.

    Returns:
        the exit code.

    Raises:
        DemoError: the replayed bytes are not the recorded ones, or the server still answers.
    """
    with tempfile.TemporaryDirectory(prefix="mrtr-cassette-demo-") as folder:
        cassette = Path(folder, "demo.json")
        async with aiohttp.ClientSession() as http:
            async with _demo_server() as upstream:
                say(f"1. record: a server at {upstream}, a client, and the proxy in between")
                async with recording(upstream, cassette) as recorder:
                    live = await _all_flows(Client(http, recorder.url))
            count = recorder.exchanges
            say(f"   {len(live)} calls in {count} exchanges")
            say("2. stop the server")
            await _check_gone(http, upstream)
            say("   connection refused: it is gone")
            say("3. replay the cassette to the same client, and compare")
            async with replaying(cassette) as replay:
                replayed = await _all_flows(Client(http, replay.url))
            _check_no_miss(replay.player.misses, replay.player.unplayed)
    total = sealed = 0
    for flow, before, after in zip(FLOWS, live, replayed, strict=True):
        say("")
        say(f"   {flow.method} {flow.name}: {flow.title}")
        for number, (was, now) in enumerate(_paired(flow, before, after), start=1):
            say(f"     {number}. {_compared(flow, was, now)}  {_describe(was)}")
            total += len(now.body)
            sealed += was.state is not None
    say("")
    say(
        f"{count} responses, {total:,} bytes: all replayed byte for byte; "
        f"{sealed} request states were sealed and are surrogates now"
    )
    return 0


async def _all_flows(client: Client) -> list[list[Turn]]:
    return [await client.converse(flow) for flow in FLOWS]


async def _check_gone(http: aiohttp.ClientSession, upstream: str) -> None:
    try:
        async with http.get(upstream):
            raise DemoError(f"the server at {upstream} still answers")
    except aiohttp.ClientConnectorError:
        return


def _check_no_miss(misses: list[Any], unplayed: list[int]) -> None:
    if misses:
        raise DemoError(f"{len(misses)} requests of the same client were not found in the cassette")
    if unplayed:
        raise DemoError(f"interactions {unplayed} of the cassette were not played")


def _paired(flow: Flow, before: list[Turn], after: list[Turn]) -> list[tuple[Turn, Turn]]:
    if len(before) != len(after):
        raise DemoError(
            f"{flow.name}: {len(before)} exchanges were recorded, {len(after)} replayed"
        )
    return list(zip(before, after, strict=True))


def _compared(flow: Flow, was: Turn, now: Turn) -> str:
    """Compare one exchange, letting nothing differ but the sealed state."""
    expected = was.body
    if was.state is not None and now.state is not None:
        expected = expected.replace(was.state.encode(), now.state.encode())
    if (was.status, expected) != (now.status, now.body):
        raise DemoError(
            f"{flow.name}: the replay differs\n  recorded: {was.status} {expected!r}\n"
            f"  replayed: {now.status} {now.body!r}"
        )
    return f"{len(now.body):>5} bytes, the same"


def _describe(turn: Turn) -> str:
    if turn.state is not None or turn.asked:
        asked = f"asks {turn.asked}" if turn.asked else "asks to be called again"
        return f"{asked}{', with state' if turn.state is not None else ''}"
    if "error" in turn.message:
        return f"error {turn.message['error']['code']}: {turn.message['error']['message']}"
    result = turn.message["result"]
    items = result.get("content") or result.get("contents")
    if items is None:
        items = [message["content"] for message in result["messages"]]
    return f"result: {items[0]['text']}"
