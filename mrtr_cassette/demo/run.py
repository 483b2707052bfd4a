"""The main job, shown: record a server, stop it, replay it, and compare byte for byte."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import orjson

from mrtr_cassette.core.protocol.dialect import recognise
from mrtr_cassette.core.protocol.methods import method_of
from mrtr_cassette.demo.server import create_app
from mrtr_cassette.errors import MrtrCassetteError
from mrtr_cassette.shell.runs.recording import recording
from mrtr_cassette.shell.runs.replaying import replaying
from mrtr_cassette.shell.runs.upstreams import serving_application

Say = Callable[[str], None]


class DemoError(MrtrCassetteError):
    """The replay is not what was recorded."""


class DemoCall(NamedTuple):
    """One call of the demo's client: a tool, a prompt or a resource, and its answers by key."""

    title: str
    name: str
    arguments: Mapping[str, Any] = {}
    answers: Mapping[str, Any] = {}
    method: str = "tools/call"
    tampers: bool = False
    """The client changes the request state before it echoes it."""


def _accept(**contents: Any) -> dict[str, Any]:
    """Return answers that accept forms of one field each, which has the form's key as its name."""
    return {k: {"action": "accept", "content": {k: value}} for k, value in contents.items()}


_YES = _accept(confirm=True)
_ALL_KINDS = _YES | {
    "signin": {"action": "accept"},
    "summary": {
        "role": "assistant",
        "content": {"type": "text", "text": "All quiet."},
        "model": "demo-model",
        "stopReason": "endTurn",
    },
    "roots": {"roots": [{"uri": "file:///srv/app", "name": "app"}]},
}
_DATABASE = _accept(name="analytics", region="eu-west-1")
_TRAIN = _accept(approve=True, window="tonight", notes="none")
_DECLINE = {"confirm": {"action": "decline"}}
_PROMPT = "release-notes", {"version": "2.1"}, _accept(audience="operators"), "prompts/get"
CALLS = (
    DemoCall("a plain call", "add", {"a": 1, "b": 2}),
    DemoCall("one question, accepted", "deploy", {"env": "production"}, _YES),
    DemoCall("one question, declined", "tag-release", {"tag": "v2.1.0"}, _DECLINE),
    DemoCall("two questions in one round", "provision", {}, _DATABASE),
    DemoCall(
        *("two rounds, with a signed state that expires", "wipe-cache", {}),
        _accept(confirm=True, scope="sessions"),
    ),
    DemoCall("three rounds", "release-train", {"version": "2.1"}, _TRAIN),
    DemoCall("all four kinds of input at once", "everything", {}, _ALL_KINDS),
    DemoCall("a state and no question", "build", {"target": "docs"}),
    DemoCall("a stream with progress", "count", {"to": 3}),
    DemoCall("a question at the end of a stream", "ask-late", {"steps": 2}, _YES),
    DemoCall("a prompt that asks", *_PROMPT),
    DemoCall("a resource that asks", "config://deployment", {}, _YES, "resources/read"),
    DemoCall("a tampered state, refused", "wipe-cache", {}, _YES, tampers=True),
)

_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "mrtr-cassette-demo", "version": "1.0.0"},
    "io.modelcontextprotocol/clientCapabilities": {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {},
        "roots": {},
    },
}


class Received(NamedTuple):
    """A response as the client saw it, with the state and the inputs that it asks for."""

    status: int
    body: bytes
    message: dict[str, Any]
    state: str | None
    asked: str


class DemoClient:
    """A client without an SDK that sees every byte."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        """Talk to a URL; ids are counted from 1."""
        self._http = http
        self._url = url
        self._id = 0

    async def converse(self, call: DemoCall) -> list[Received]:
        """Make a call and answer whatever it asks, until it ends."""
        received = await self._send(call, {})
        responses = [received]
        while (ask := recognise(received.message.get("result"))) is not None:
            retry: dict[str, Any] = {}
            if ask.input_requests:
                retry["inputResponses"] = {key: call.answers[key] for key in ask.input_requests}
            if ask.request_state is not None:
                retry["requestState"] = ask.request_state + ("x" if call.tampers else "")
            received = await self._send(call, retry)
            responses.append(received)
        return responses

    async def _send(self, call: DemoCall, retry: Mapping[str, Any]) -> Received:
        self._id += 1
        params: dict[str, Any] = {method_of(call.method).named_by: call.name}
        if call.arguments:
            params["arguments"] = call.arguments
        params |= retry
        params["_meta"] = {**_META, "progressToken": self._id}
        message = {"jsonrpc": "2.0", "id": self._id, "method": call.method, "params": params}
        headers = {
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": call.method,
            "Mcp-Name": call.name,
        }
        async with self._http.post(self._url, data=orjson.dumps(message), headers=headers) as got:
            body = await got.read()
            is_stream = got.content_type == "text/event-stream"
            last = body.strip().rpartition(b"data: ")[2] if is_stream else body
            answer = orjson.loads(last)
            ask = recognise(answer.get("result"))
            return Received(
                got.status,
                body,
                answer,
                ask.request_state if ask is not None else None,
                ", ".join(f"{k} ({r.kind})" for k, r in ask.input_requests.items()) if ask else "",
            )


async def run_demo(say: Say, calls_again: Sequence[DemoCall] = CALLS) -> int:
    """Record the calls and replay them; any difference but a sealed state is a `DemoError`."""
    with tempfile.TemporaryDirectory(prefix="mrtr-cassette-demo-") as folder:
        cassette = Path(folder, "demo.json")
        async with aiohttp.ClientSession() as http:
            async with serving_application(create_app()) as upstream:
                say(f"1. record: a server at {upstream}, a client, and the proxy in between")
                async with recording(upstream, cassette) as recorder:
                    live = await _converse(DemoClient(http, recorder.url), CALLS)
            count = recorder.exchanges
            say(f"   {len(live)} calls in {count} exchanges")
            say("2. stop the server")
            with suppress(aiohttp.ClientConnectorError):
                async with http.get(upstream):
                    raise DemoError(f"the server at {upstream} still answers")
            say("   connection refused: it is gone")
            say("3. replay the cassette to the same client, and compare")
            async with replaying(cassette) as replay:
                replayed = await _converse(DemoClient(http, replay.url), calls_again)
            misses, unplayed = len(replay.player.misses), replay.player.unplayed
            if misses:
                raise DemoError(f"{misses} requests were not found in the cassette")
            if unplayed:
                raise DemoError(f"interactions {unplayed} of the cassette were not played")
    total = sealed = 0
    for call, before, after in zip(CALLS, live, replayed, strict=True):
        say("")
        say(f"   {call.method} {call.name}: {call.title}")
        # Conversations that are the same so far end together.
        for number, (recorded, again) in enumerate(zip(before, after, strict=False), start=1):
            check_same(call, recorded, again)
            say(f"     {number}. {len(again.body):>5} bytes, the same  {_describe(recorded)}")
            total += len(again.body)
            sealed += recorded.state is not None
    say("")
    say(
        f"{count} responses, {total:,} bytes: all replayed byte for byte; "
        f"{sealed} request states were sealed and are surrogates now"
    )
    return 0


async def _converse(client: DemoClient, calls: Sequence[DemoCall]) -> list[list[Received]]:
    return [await client.converse(call) for call in calls]


def check_same(call: DemoCall, recorded: Received, replayed: Received) -> None:
    """Compare one exchange, letting nothing differ but the sealed state."""
    expected = recorded.body
    if recorded.state is not None and replayed.state is not None:
        expected = expected.replace(recorded.state.encode(), replayed.state.encode())
    if (recorded.status, expected) != (replayed.status, replayed.body):
        raise DemoError(
            f"{call.name}: the replay differs\n  recorded: {recorded.status} {expected!r}\n"
            f"  replayed: {replayed.status} {replayed.body!r}"
        )


def _describe(received: Received) -> str:
    if received.state is not None or received.asked:
        asked = f"asks {received.asked}" if received.asked else "asks to be called again"
        return f"{asked}{', with state' if received.state is not None else ''}"
    if "error" in received.message:
        return f"error {received.message['error']['code']}: {received.message['error']['message']}"
    result = received.message["result"]
    items = result.get("content") or result.get("contents")
    if items is None:
        items = [message["content"] for message in result["messages"]]
    return f"result: {items[0]['text']}"
