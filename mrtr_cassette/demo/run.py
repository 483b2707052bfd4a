"""The main job, shown: record a server, stop it, replay it, and compare byte for byte."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import orjson

from mrtr_cassette.core.protocol.dialect import InputRequired, recognise
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
        *("two rounds, with a state", "wipe-cache", {}),
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
    """A response as the client saw it, and what it asks for."""

    status: int
    body: bytes
    message: dict[str, Any]
    ask: InputRequired | None


class DemoClient:
    """A client without an SDK that sees every byte."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        """Talk to a URL; ids are counted from 1."""
        self._http = http
        self._url = url
        self._id = 0

    async def converse(self, call: DemoCall) -> list[Received]:
        """Make a call and answer whatever it asks, until it ends."""
        responses = [await self._send(call, {})]
        while (ask := responses[-1].ask) is not None:
            retry: dict[str, Any] = {}
            if ask.input_requests:
                retry["inputResponses"] = {key: call.answers[key] for key in ask.input_requests}
            if ask.request_state is not None:
                retry["requestState"] = ask.request_state + ("x" if call.tampers else "")
            responses.append(await self._send(call, retry))
        return responses

    async def _send(self, call: DemoCall, retry: Mapping[str, Any]) -> Received:
        self._id += 1
        params: dict[str, Any] = {
            method_of(call.method).named_by: call.name,
            "arguments": call.arguments,
            **retry,
            "_meta": {**_META, "progressToken": self._id},
        }
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
            answer = orjson.loads(body.rpartition(b"data: ")[2] if is_stream else body)
            return Received(got.status, body, answer, recognise(answer.get("result")))


async def run_demo(say: Say) -> int:
    """Record the calls and replay them; any difference but a sealed state is a `DemoError`."""
    with tempfile.TemporaryDirectory(prefix="mrtr-cassette-demo-") as folder:
        cassette = Path(folder, "demo.json")
        async with aiohttp.ClientSession() as http:
            async with serving_application(create_app()) as upstream:
                say(f"1. record: a server at {upstream}, a client, and the proxy in between")
                async with recording(upstream, cassette) as recorder:
                    client = DemoClient(http, recorder.url)
                    live = [await client.converse(call) for call in CALLS]
            count = recorder.exchanges
            say(f"   {len(live)} calls in {count} exchanges")
            say("2. the server is stopped; replay the cassette to the same client, and compare")
            async with replaying(cassette) as replay:
                client = DemoClient(http, replay.url)
                replayed = [await client.converse(call) for call in CALLS]
    total = sealed = 0
    for call, before, after in zip(CALLS, live, replayed, strict=True):
        say(f"\n   {call.method} {call.name}: {call.title}")
        # Conversations that are the same so far end together.
        for number, (recorded, again) in enumerate(zip(before, after, strict=False), start=1):
            sealed += check_same(call, recorded, again)
            say(f"     {number}. {len(again.body):>5} bytes, the same  {_describe(recorded)}")
            total += len(again.body)
    say(
        f"\n{count} responses, {total:,} bytes: all replayed byte for byte; "
        f"{sealed} request states were sealed and are surrogates now"
    )
    return 0


def check_same(call: DemoCall, recorded: Received, replayed: Received) -> bool:
    """Compare one exchange but for the sealed state; return whether there is one."""
    expected = recorded.body
    states = [each.ask.request_state for each in (recorded, replayed) if each.ask is not None]
    has_state = len(states) == 2 and None not in states
    if has_state:
        old, new = (str(state).encode() for state in states)
        expected = expected.replace(old, new)
    if (recorded.status, expected) != (replayed.status, replayed.body):
        raise DemoError(
            f"{call.name}: the replay differs\n  recorded: {recorded.status} {expected!r}\n"
            f"  replayed: {replayed.status} {replayed.body!r}"
        )
    return has_state


def _describe(received: Received) -> str:
    ask = received.ask
    if ask is not None:
        asked = ", ".join(f"{key} ({each.kind})" for key, each in ask.input_requests.items())
        state = "" if ask.request_state is None else ", with state"
        return f"asks {asked or 'to be called again'}{state}"
    if "error" in received.message:
        return f"error {received.message['error']['code']}: {received.message['error']['message']}"
    result = received.message["result"]
    items = result.get("content") or result.get("contents") or [result["messages"][0]["content"]]
    return f"result: {items[0]['text']}"
