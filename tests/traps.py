"""Four stand-ins for servers whose answers are easy to get wrong, byte by byte, and their callers.

Each trap is a server that sends scripted bytes, and a conversation with it that checks every byte.
A conversation is held with the real stand-in while recording and, with other ids and tokens, with
its replay; the bytes that it expects differ in these alone.

    python tests/traps.py late-ask --port 0
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import hdrs
from standin import Script, Visit, chunk, response, stream_head, upstream

JSON = "application/json"
EVENTS = "text/event-stream"
ACCEPT = f"{JSON}, {EVENTS}"
WHOLE = f"Content-Type: {JSON}"
STREAM = f"Content-Type: {EVENTS}"
Headers = Mapping[str, str]


# --- The caller. ---


@dataclass(frozen=True, slots=True)
class Received:
    """A whole response, as the caller received it."""

    status: int
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True)
class Caller:
    """Speaks to one URL with no headers but the given ones."""

    http: aiohttp.ClientSession
    url: str

    @asynccontextmanager
    async def stream(
        self, body: bytes, method: str = "POST", **headers: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request, and leave when the block ends."""
        given = {"Accept": ACCEPT} | ({"Content-Type": JSON} if body else {})
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.http.request(
            method, self.url, data=body or None, headers=given
        ) as response:
            yield response

    async def send(self, body: bytes, method: str = "POST", **headers: str) -> Received:
        """Send a request and read the whole response."""
        async with self.stream(body, method, **headers) as response:
            return Received(response.status, response.headers, await response.read())


@asynccontextmanager
async def calling(url: str) -> AsyncIterator[Caller]:
    """Give a caller without habits of its own."""
    async with aiohttp.ClientSession(
        skip_auto_headers=(hdrs.ACCEPT_ENCODING, hdrs.USER_AGENT), auto_decompress=False
    ) as http:
        yield Caller(http, url)


_END = 20
"""Bytes by which the end of an event is known."""
_EVENT_ID = re.compile(rb"^id: [^\r\n]+", re.MULTILINE)


def expect(received: object, expected: object) -> None:
    """Compare what came with what should have come, but for the ids of events.

    Raises:
        AssertionError: they differ.
    """
    if _without_event_ids(received) != _without_event_ids(expected):
        raise AssertionError(f"received {received!r}\nexpected {expected!r}")


def _without_event_ids(value: object) -> object:
    """Return a body in which all ids of events are one; a cassette has other names for them."""
    return _EVENT_ID.sub(b"id", value) if isinstance(value, bytes) else value


async def send_events(visit: Visit, *events: bytes) -> None:
    """Send an event stream, each event in a chunk of its own, and its end."""
    await visit.send(stream_head(STREAM, "Cache-Control: no-cache"))
    for event in (*events, b""):
        await visit.send(chunk(event))


# --- late-ask: the ask is the last event of a stream, after notifications. ---


def late_ask_call(identity: bytes, token: bytes, rest: bytes = b"") -> bytes:
    """Return the request; `rest` makes it a retry."""
    return (
        b'{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"migrate",'
        b'"arguments":{"table":"users"}%s,"_meta":{"progressToken":%s}}}' % (identity, rest, token)
    )


def late_ask_retry(identity: bytes, token: bytes, state: bytes) -> bytes:
    """Return the retry; `state` is a JSON string."""
    answers = b'{"confirm":{"action":"accept","content":{"confirm":true}}}'
    rest = b',"inputResponses":%s,"requestState":%s' % (answers, state)
    return late_ask_call(identity, token, rest)


def late_ask_question(identity: bytes, token: bytes, state: bytes) -> tuple[bytes, ...]:
    """Return the events of the ask: CRLF, `id` before `data` before `retry`, odd numbers."""
    return (
        b"id: 0\r\ndata: \r\nretry: 3000\r\n\r\n",
        b": the server is thinking\r\n\r\n",
        b'id: 1\r\ndata: {"jsonrpc":"2.0","method":"notifications/progress",'
        b'"params":{"progressToken":%s,"progress":1.50,"total":2}}\r\n\r\n' % token,
        b'id: 2\r\ndata: {"params":{"progress":2,"total":2,"progressToken":%s},'
        b'"method":"notifications/progress","jsonrpc":"2.0"}\r\n\r\n' % token,
        b'id: 3\r\nevent: message\r\ndata: {"jsonrpc":"2.0","result":{"resultType":'
        b'"input_required","inputRequests":{"confirm":{"method":"elicitation/create","params":'
        b'{"mode":"form","message":"Migrate 1,000 rows?","requestedSchema":{"type":"object",'
        b'"properties":{"confirm":{"type":"boolean"}},"required":["confirm"]}}}},'
        b'"requestState":%s},"id":%s}\r\n\r\n' % (state, identity),
    )


def late_ask_result(identity: bytes, token: bytes) -> tuple[bytes, ...]:
    """Return the events of the final response: data on two lines."""
    return (
        b'id: 4\r\ndata: {"jsonrpc":"2.0","method":"notifications/progress",'
        b'"params":{"progressToken":%s,"progress":2E0}}\r\n\r\n' % token,
        b'id: 5\r\ndata: {"jsonrpc":"2.0","id":%s,\r\ndata: "result":{"content":'
        b'[{"type":"text","text":"Migrated \\u0031,000 rows"}],"resultType":"complete"}}\r\n\r\n'
        % identity,
    )


def late_ask() -> Script:
    """Make the server; its state is JSON text of a random length."""
    issued: set[bytes] = set()

    async def script(visit: Visit) -> None:
        message = visit.request.json
        params, identity = message["params"], json.dumps(message["id"]).encode()
        token = json.dumps(params["_meta"]["progressToken"]).encode()
        if "requestState" not in params:
            nonce = secrets.token_hex(secrets.choice(range(16, 64)))
            state = json.dumps(json.dumps({"table": "users", "nonce": nonce})).encode()
            issued.add(state)
            await send_events(visit, *late_ask_question(identity, token, state))
        elif json.dumps(params["requestState"]).encode() in issued:
            await send_events(visit, *late_ask_result(identity, token))
        else:
            refused = b"the state is not the one that was issued"
            await visit.send(response(refused, status="400 Bad Request"))

    return script


IdAndToken = tuple[bytes, bytes]


async def hold_late_ask(
    url: str, call: IdAndToken = (b"1", b"1"), retry: IdAndToken = (b"2", b"2")
) -> bytes:
    """Hold the conversation and return the request state, a JSON string."""
    async with calling(url) as caller:
        asked = await caller.send(late_ask_call(*call))
        state = asked.body.partition(b'"requestState":')[2].rpartition(b'},"id":')[0]
        json.loads(state)
        expect(asked.body, b"".join(late_ask_question(*call, state)))
        done = await caller.send(late_ask_retry(*retry, state))
        expect(done.body, b"".join(late_ask_result(*retry)))
        return state


# --- endless-json: newline-delimited JSON under application/json that never ends. ---

_SUBSCRIPTION = b'"io.modelcontextprotocol/subscriptionId":'
ENDLESS_LISTEN = (
    b'{"jsonrpc":"2.0","id":%s,"method":"subscriptions/listen","params":'
    b'{"notifications":{"resourceSubscriptions":["config://plain"]}}}'
)
ENDLESS_ACKNOWLEDGED = (
    b'{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{'
    + _SUBSCRIPTION
    + b'%s},"notifications":{"resourceSubscriptions":["config://plain"]}}}\n'
)
_UPDATED = (
    b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":'
    b'{"uri":"config://plain","_meta":{' + _SUBSCRIPTION + b"%s}}}\n"
)
_DISCOVER = b'{"jsonrpc":"2.0","id":%s,"method":"server/discover","params":{}}'
_TOUCH = b'{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"touch","arguments":{}}}'
_COMPLETE = b'{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete"}}'


def endless_json() -> Script:
    """Make the server: each call of `touch` makes a line for everybody who listens."""
    listeners: list[tuple[bytes, Visit]] = []

    async def script(visit: Visit) -> None:
        message = visit.request.json
        identity = json.dumps(message["id"]).encode()
        if message["method"] == "subscriptions/listen":
            await visit.send(stream_head(WHOLE), chunk(ENDLESS_ACKNOWLEDGED % identity))
            listeners.append((identity, visit))
            await visit.left()
            listeners.remove((identity, visit))
            return
        if message["method"] == "tools/call":
            for listener, stream in listeners:
                await stream.send(chunk(_UPDATED % listener))
        await visit.send(response(_COMPLETE % identity, WHOLE))

    return script


async def hold_endless_json(url: str, first: int = 1) -> None:
    """Hold the conversation, with ids counted from `first`; leave what never ends."""
    listen, discover, *touches = (str(first + n).encode() for n in range(4))
    async with calling(url) as caller, caller.stream(ENDLESS_LISTEN % listen) as response:
        expect(response.headers["Content-Type"], JSON)
        expect(await response.content.readline(), ENDLESS_ACKNOWLEDGED % listen)
        found = await caller.send(_DISCOVER % discover)
        expect(found.body, _COMPLETE % discover)
        for touch in touches:
            # A line that didn't wait for its cause would be here already.
            expect(response.content.read_nowait(), b"")
            touched = await caller.send(_TOUCH % touch)
            expect(touched.body, _COMPLETE % touch)
            expect(await response.content.readline(), _UPDATED % listen)
        expect(response.content.read_nowait(), b"")


# --- by-header: the same body is answered differently by its headers. ---


@dataclass(frozen=True, slots=True)
class ByHeader:
    """What one set of headers leads to; `%s` in the body is the request's id."""

    headers: Headers
    body: bytes
    status: str = "200 OK"
    content_type: str = JSON


_PRICE = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "price"}
_RESULT = b'{"jsonrpc":"2.0","id":%%s,"result":{"content":[{"type":"text","text":"%s"}]}}'
_ERROR = b'{"jsonrpc":"2.0","id":%%s,"error":{"code":%d,"message":"%s"}}'

_MISMATCH = _ERROR % (-32020, b"Header mismatch")
_BAD = "400 Bad Request"

BY_HEADER = (
    ByHeader(_PRICE, _RESULT % b"EUR 10"),
    ByHeader(
        _PRICE | {"Accept": EVENTS},
        b"event: message\ndata: " + _RESULT % b"EUR 10" + b"\n\n",
        content_type=EVENTS,
    ),
    ByHeader(_PRICE | {"Mcp-Param-Region": "us"}, _RESULT % b"USD 11"),
    ByHeader(_PRICE | {"Mcp-Name": "=?base64?cHJpY2U=?="}, _RESULT % b"EUR 10.00"),
    ByHeader(_PRICE | {"Mcp-Name": "cost"}, _MISMATCH, _BAD),
    ByHeader(_PRICE | {"Mcp-Method": "tools/list"}, _MISMATCH.replace(b"%s", b"null"), _BAD),
    ByHeader(
        _PRICE | {"MCP-Protocol-Version": "2099-01-01"},
        _ERROR % (-32022, b"Unsupported protocol version"),
        _BAD,
    ),
)
_TOLD_APART_BY = ("accept", "mcp-method", "mcp-name", "mcp-param-region", "mcp-protocol-version")


_BY_HEADER_CALL = (
    b'{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"price","arguments":{}}}'
)


def by_header() -> Script:
    """Make the server."""

    async def script(visit: Visit) -> None:
        head = visit.request.head
        identity = json.dumps(visit.request.json["id"]).encode()
        for row in BY_HEADER:
            wanted = {"accept": ACCEPT} | {k.lower(): v for k, v in row.headers.items()}
            if all(", ".join(head.values(name)) == wanted.get(name, "") for name in _TOLD_APART_BY):
                body = row.body.replace(b"%s", identity)
                kind = f"Content-Type: {row.content_type}"
                await visit.send(response(body, kind, status=row.status))
                return
        await visit.send(response(status="404 Not Found"))

    return script


async def hold_by_header(
    url: str, identity: bytes = b"1", rows: tuple[ByHeader, ...] = BY_HEADER
) -> None:
    """Send the one body with each set of headers."""
    async with calling(url) as caller:
        for row in rows:
            received = await caller.send(_BY_HEADER_CALL % identity, **row.headers)
            expect(received.status, int(row.status[:3]))
            expect(received.headers["Content-Type"], row.content_type)
            expect(received.body, row.body.replace(b"%s", identity))


# --- pushed-request: in 2025's manner, and with the pending call's id. ---

PUSHED_ID = b"2"


_INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    b'"capabilities":{"elicitation":{}},"clientInfo":{"name":"raw","version":"1.0.0"}}}'
)
_INITIALIZED = (
    b'{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":'
    b'{"tools":{}},"serverInfo":{"name":"pushing","version":"1.0.0"}}}'
)
_DEPLOY = (
    b'{"jsonrpc":"2.0","id":%s,"method":"tools/call",'
    b'"params":{"name":"deploy","arguments":{"env":"production"}}}'
)
_QUESTION = (
    b'id: 2\nretry: 500\ndata: {"jsonrpc":"2.0","id":%s,"method":"elicitation/create","params":'
    b'{"message":"Deploy to production?","requestedSchema":{"type":"object","properties":'
    b'{"confirm":{"type":"boolean"}}}}}\n\n' % PUSHED_ID
)
"""The event with the pushed request: LF, `id` before `retry` before `data`."""
_PRIMING = b"id: 1\nretry: 500\ndata: \n\n"
_ANSWER = (
    b'{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"confirm":true}}}' % PUSHED_ID
)
_DEPLOYED = (
    b'id: 3\ndata: {"jsonrpc":"2.0","id":%s,"result":'
    b'{"content":[{"type":"text","text":"Deployed"}]}}\n\n'
)


@dataclass(slots=True)
class _PushingServer:
    """The server: one session, one call at a time."""

    session: str = field(default_factory=lambda: secrets.token_hex(16))
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    async def script(self, visit: Visit) -> None:
        method = visit.request.head.line.partition(" ")[0]
        message = visit.request.json if visit.request.body else {}
        identity = json.dumps(message.get("id")).encode()
        if method == "GET":
            await visit.send(response(b"", "Allow: POST, DELETE", status="405 Method Not Allowed"))
        elif message.get("method") == "initialize":
            session = f"Mcp-Session-Id: {self.session}"
            await visit.send(response(_INITIALIZED % identity, WHOLE, session))
        elif visit.request.head.values("mcp-session-id") != [self.session]:
            await visit.send(response(status="404 Not Found"))
        elif method == "DELETE":
            await visit.send(response(status="204 No Content"))
        elif "method" not in message or "id" not in message:
            if visit.request.body == _ANSWER:
                self.answered.set()
            await visit.send(response(status="202 Accepted"))
        elif message["method"] == "ping":
            body = b'{"jsonrpc":"2.0","id":%s,"result":{}}' % identity
            await visit.send(response(body, WHOLE))
        else:
            self.answered.clear()
            await visit.send(stream_head(STREAM), chunk(_PRIMING))
            await visit.send(chunk(_QUESTION))
            await self.answered.wait()
            await visit.send(chunk(_DEPLOYED % identity), chunk(b""))


def pushed_request() -> Script:
    """Make the server."""
    return _PushingServer().script


async def hold_pushed_request(url: str, call: bytes = PUSHED_ID) -> str:
    """Hold the conversation, giving the call this id, and return the session id."""
    async with calling(url) as caller:
        begun = await caller.send(_INITIALIZE)
        expect(begun.body, _INITIALIZED % b"1")
        session = begun.headers["Mcp-Session-Id"]
        ours = {"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"}
        ready = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
        expect((await caller.send(ready, **ours)).status, 202)
        no_stream = await caller.send(b"", "GET", **(ours | {"Accept": EVENTS}))
        expect((no_stream.status, no_stream.headers["Allow"]), (405, "POST, DELETE"))
        async with caller.stream(_DEPLOY % call, **ours) as response:
            question = _PRIMING + _QUESTION
            asked = await response.content.readuntil(question[-_END:])
            expect(asked, question)
            pong = await caller.send(b'{"jsonrpc":"2.0","id":3,"method":"ping"}', **ours)
            expect(pong.body, b'{"jsonrpc":"2.0","id":3,"result":{}}')
            # A result that didn't wait for the answer would be here already.
            expect(response.content.read_nowait(), b"")
            accepted = await caller.send(_ANSWER, **ours)
            expect((accepted.status, accepted.body), (202, b""))
            expect(await response.read(), _DEPLOYED % call)
        expect((await caller.send(b"", "DELETE", **ours)).status, 204)
        return session


# --- The table, and the program. ---


@dataclass(frozen=True, slots=True)
class Trap:
    """A stand-in, and the conversation with it that is recorded."""

    serve: Callable[[], Script]
    hold: Callable[[str], Coroutine[Any, Any, object]]


TRAPS = {
    "late-ask": Trap(late_ask, hold_late_ask),
    "endless-json": Trap(endless_json, hold_endless_json),
    "by-header": Trap(by_header, hold_by_header),
    "pushed-request": Trap(pushed_request, hold_pushed_request),
}


async def serve(trap: Trap, port: int) -> None:
    """Serve a trap until the process is ended."""
    async with upstream(trap.serve(), port=port) as server:
        print(f"listening on {server.url}", flush=True)  # noqa: T201  what it is for
        await asyncio.Event().wait()


def main() -> None:
    """Serve the trap of the command line until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trap", choices=TRAPS)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    asyncio.run(serve(TRAPS[options.trap], options.port))


if __name__ == "__main__":
    main()
