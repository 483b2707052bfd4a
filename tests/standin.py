"""Stand-ins for what surrounds the proxy: an upstream, a client and a terminal, byte for byte.

Owns: raw HTTP on sockets, so that a test can state every byte that either end sees, and the
command line as a process.
Rule: nothing here waits for time. A script waits for a gate that the test opens, or for the other
end; `looped` bounds the whole, against hangs only.
"""

# ruff: noqa: A002  JSON-RPC calls it `id`

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar
from urllib.parse import urlsplit

from aiohttp import web
from patience import HANGS_S

from mrtr_cassette.core.format.journal import CHECKSUM_LENGTH
from mrtr_cassette.core.replay.player import Repeat
from mrtr_cassette.demo.server import create_app
from mrtr_cassette.shell.record_session import RecordSession
from mrtr_cassette.shell.recording import recording
from mrtr_cassette.shell.replaying import ReplaySession, replaying

JsonObject = dict[str, Any]
Pairs = tuple[tuple[str, str], ...]
P = ParamSpec("P")
T = TypeVar("T")

_LIMIT = 2**27
"""Bytes that a stream holds while it looks for a line's end."""


def looped(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a plain test of a coroutine: it runs on a loop of its own."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(HANGS_S):
                await test(*args, **kwargs)

        asyncio.run(bounded())

    return run


# --- HTTP as bytes ---


class Head(NamedTuple):
    """The first line of a request or a response, and its headers, as they were spelled."""

    line: str
    headers: Pairs

    def values(self, name: str) -> list[str]:
        """Return the values of a header, in order."""
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def without(self, *names: str) -> Pairs:
        """Return the headers less those of these names."""
        left_out = {name.lower() for name in names}
        return tuple(pair for pair in self.headers if pair[0].lower() not in left_out)


async def read_head(reader: asyncio.StreamReader) -> Head:
    """Read a head; raise `IncompleteReadError` where the connection ends before."""
    raw = await reader.readuntil(b"\r\n\r\n")
    line, *lines = raw[:-4].decode("latin-1").split("\r\n")
    pairs = (text.partition(":") for text in lines)
    return Head(line, tuple((name, value.strip()) for name, _, value in pairs))


class BrokenOffError(Exception):
    """The connection ended before the body did."""


class Body:
    """The body of one message on a connection, read as it comes."""

    def __init__(self, reader: asyncio.StreamReader, head: Head, *, is_empty: bool) -> None:
        self._reader = reader
        self._is_chunked = head.values("transfer-encoding") == ["chunked"]
        lengths = head.values("content-length")
        self._left = 0 if is_empty or (self._is_chunked is False and not lengths) else None
        if lengths and not self._is_chunked and not is_empty:
            self._left = int(lengths[0])
        self.is_whole = self._left == 0

    async def some(self) -> bytes:
        """Return the next bytes; none at the announced end.

        Raises:
            BrokenOffError: the connection ended before.
        """
        if self.is_whole:
            return b""
        try:
            return await (self._some_of_length() if self._left is not None else self._chunk())
        except (asyncio.IncompleteReadError, ConnectionError):
            raise BrokenOffError from None

    async def _some_of_length(self) -> bytes:
        left = self._left or 0
        data = await self._reader.read(min(left, 2**20))
        if not data:
            raise BrokenOffError
        self._left = left - len(data)
        self.is_whole = self._left == 0
        return data

    async def _chunk(self) -> bytes:
        size = int((await self._reader.readuntil(b"\r\n")).partition(b";")[0], 16)
        data = (await self._reader.readexactly(size + 2))[:-2]
        self.is_whole = not size
        return data

    async def until(self, text: bytes) -> bytes:
        """Return the next bytes up to those that complete `text`."""
        seen = b""
        while text not in seen:
            data = await self.some()
            if not data:
                raise BrokenOffError
            seen += data
        return seen

    async def rest(self) -> bytes:
        """Return all other bytes; `is_whole` says whether the end was the announced one."""
        seen = bytearray()
        with contextlib.suppress(BrokenOffError):
            while data := await self.some():
                seen += data
        return bytes(seen)


# --- The upstream ---


class Received(NamedTuple):
    """One request as the upstream saw it."""

    head: Head
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Visit:
    """One request at the upstream: what came, and the means to answer it."""

    number: int
    request: Received
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    async def send(self, *parts: bytes) -> None:
        """Send bytes at once."""
        self._writer.write(b"".join(parts))
        await self._writer.drain()

    async def left(self) -> None:
        """Wait until the other end has closed the connection."""
        with contextlib.suppress(ConnectionError):
            assert await self._reader.read() == b""

    def close(self) -> None:
        """Close the connection, as a server does that ends."""
        self._writer.close()

    def reset(self) -> None:
        """Break the connection off, as a server does that is killed."""
        self._writer.transport.abort()


Script = Callable[[Visit], Awaitable[None]]


@dataclass
class Upstream:
    """A server that does what a script says, one visit after the other on each connection.

    Attributes:
        received: the requests, in the order in which they were whole.
        connections: how many connections were made.
    """

    url: str = ""
    received: list[Received] = field(default_factory=list)
    connections: int = 0

    @property
    def only(self) -> Received:
        """The request, where there was exactly one."""
        (received,) = self.received
        return received

    @property
    def authority(self) -> str:
        """What its `Host` header says."""
        return urlsplit(self.url).netloc


@asynccontextmanager
async def upstream(
    script: Script,
    *,
    host: str = "127.0.0.1",
    path: str = "/mcp",
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Upstream]:
    """Serve a script; what fails in it fails the test."""
    server = Upstream()
    tasks: set[asyncio.Task[Any]] = set()
    failures: list[Exception] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            try:
                head = await read_head(reader)
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            body = Body(reader, head, is_empty=False)
            received = Received(head, await body.rest())
            server.received.append(received)
            visit = Visit(len(server.received), received, reader, writer)
            with contextlib.suppress(ConnectionError):
                await script(visit)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        server.connections += 1
        try:
            await serve(reader, writer)
        except Exception as failure:  # noqa: BLE001  it is raised at the end of the block
            failures.append(failure)
        finally:
            writer.close()

    listener = await asyncio.start_server(connected, host, 0, limit=_LIMIT, backlog=1024, ssl=tls)
    name = "localhost" if tls else f"[{host}]" if ":" in host else host
    scheme = "https" if tls else "http"
    server.url = f"{scheme}://{name}:{listener.sockets[0].getsockname()[1]}{path}"
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await listener.wait_closed()
    if failures:
        raise failures[0]


def answering(*replies: bytes) -> Script:
    """Answer each request with the next of these, and close the connection."""
    left = iter(replies)

    async def script(visit: Visit) -> None:
        await visit.send(next(left))
        visit.close()

    return script


def response(
    body: bytes = b"", *headers: str, status: str = "200 OK", length: bool = True
) -> bytes:
    """Spell a response; `length` announces the body's."""
    lines = [f"HTTP/1.1 {status}", *headers]
    if length:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def json_response(value: Any, *headers: str, status: str = "200 OK") -> bytes:
    """Spell a response whose body is JSON."""
    return response(compact(value), "Content-Type: application/json", *headers, status=status)


JSON = "Content-Type: application/json"
EVENTS = "Content-Type: text/event-stream"
CHUNKED = "Transfer-Encoding: chunked"


def stream_head(*headers: str, status: str = "200 OK") -> bytes:
    """Spell the head of a response that comes in chunks; an event stream unless told otherwise."""
    return response(b"", *(headers or (EVENTS,)), CHUNKED, status=status, length=False)


def chunk(data: bytes) -> bytes:
    """Spell one chunk; an empty one ends the body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(value: Any, end: bytes = b"\n") -> bytes:
    """Spell one event of a stream."""
    return b"event: message" + end + b"data: " + compact(value) + end + end


def event_stream(*values: Any) -> bytes:
    """Spell a whole response that is a stream of these messages."""
    chunks = (chunk(event(value)) for value in values)
    return stream_head() + b"".join(chunks) + chunk(b"")


# --- The client ---


def compact(value: Any) -> bytes:
    """Spell JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def message(method: str, params: Any = None, *, id: Any = 1) -> JsonObject:
    """Make a JSON-RPC request; one without an id is a notification."""
    made: JsonObject = {"jsonrpc": "2.0"}
    if id is not None:
        made["id"] = id
    made["method"] = method
    if params is not None:
        made["params"] = params
    return made


def tool(name: str, *, id: Any = 1, **params: Any) -> JsonObject:
    """Make a call of a tool without arguments; `params` are others of the request's params."""
    return message("tools/call", {"name": name, **params}, id=id)


def result(value: Any, *, id: Any = 1) -> JsonObject:
    """Make a JSON-RPC response."""
    return {"jsonrpc": "2.0", "id": id, "result": value}


def asks(state: str | None = None, *keys: str, id: Any = 1, **more: Any) -> JsonObject:
    """Make a response that requires input."""
    asked: JsonObject = {"resultType": "input_required"}
    if keys:
        asked["inputRequests"] = {
            key: {"method": "elicitation/create", "params": {"message": f"{key}?"}} for key in keys
        }
    if state is not None:
        asked["requestState"] = state
    return result(asked | more, id=id)


def yes(*keys: str) -> JsonObject:
    """Make answers that accept."""
    return {key: {"action": "accept", "content": {key: True}} for key in keys}


NO_ANSWER = {"action": "decline"}


class Answer(NamedTuple):
    """One response as the client saw it."""

    head: Head
    body: bytes
    is_whole: bool

    @property
    def status(self) -> int:
        return int(self.head.line.split()[1])

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def reason(self) -> str:
        """Why the replay missed."""
        return str(self.json["error"]["data"]["reason"])


@dataclass
class Connection:
    """One connection of a client."""

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    _host: str

    async def write(self, *parts: bytes) -> None:
        """Send bytes at once."""
        self._writer.write(b"".join(parts))
        await self._writer.drain()

    async def ask(
        self, method: str, target: str, *headers: str, body: bytes | None = None
    ) -> tuple[Head, Body]:
        """Send a request and return the head of its response, and the body to read."""
        await self.write(request(method, target, *headers, body=body, host=self._host))
        return await self.answer(is_empty=method == "HEAD")

    async def answer(self, *, is_empty: bool = False) -> tuple[Head, Body]:
        """Return the head of the next response, and the body to read."""
        head = await read_head(self._reader)
        status = int(head.line.split()[1])
        return head, Body(self._reader, head, is_empty=is_empty or status in {204, 304})

    async def raw(self) -> bytes:
        """Return the next bytes, framing and all; none where the other end has closed."""
        return await self._reader.read(2**16)

    async def closed(self) -> None:
        """Wait until the other end has closed the connection, with nothing more to say."""
        with contextlib.suppress(ConnectionError):
            assert await self._reader.read() == b""


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    """Connect to the server of a URL; the client leaves when the block ends."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=_LIMIT)
    try:
        yield Connection(reader, writer, parts.netloc)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def request(
    method: str,
    target: str,
    *headers: str,
    body: bytes | None = None,
    host: str = "127.0.0.1",
) -> bytes:
    """Spell a request; a body announces its length, unless a header says how long it is."""
    lines = [f"{method} {target} HTTP/1.1"]
    if not any(header.lower().startswith("host:") for header in headers):
        lines.append(f"Host: {host}")
    lines += headers
    if body is not None and CHUNKED not in headers:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


async def http(
    method: str, url: str, *headers: str, body: bytes | None = None, target: str | None = None
) -> Answer:
    """Do one exchange on a connection of its own."""
    async with connected(url) as connection:
        parts = urlsplit(url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        head, content = await connection.ask(method, target or path, *headers, body=body)
        seen = await content.rest()
        return Answer(head, seen, content.is_whole)


ACCEPT = "Accept: application/json, text/event-stream"


async def post(url: str, value: Any, *headers: str) -> Answer:
    """Send one message, an object or the bytes of one, as an MCP client does."""
    body = value if isinstance(value, bytes) else compact(value)
    return await http("POST", url, JSON, ACCEPT, *headers, body=body)


META = "io.modelcontextprotocol/"
CAPABLE: JsonObject = {
    META + "protocolVersion": "2026-07-28",
    META + "clientCapabilities": {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {},
        "roots": {},
    },
}


async def call(
    url: str,
    name: str,
    arguments: JsonObject,
    *,
    id: Any = 1,
    **params: Any,
) -> Answer:
    """Call a tool of the demo server; `meta` adds to the request's `_meta`."""
    meta = CAPABLE | params.pop("meta", {})
    return await post(url, tool(name, id=id, arguments=arguments, **params, _meta=meta))


# --- What is recorded and what plays ---


@asynccontextmanager
async def demo_server(port: int = 0) -> AsyncIterator[str]:
    """Serve the demo server, with a key of its own, and give its URL."""
    runner = web.AppRunner(create_app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()


@dataclass
class Tape:
    """One recording under way: the client's URL, the real server, the files."""

    session: RecordSession
    server: Upstream
    log: list[str]

    @property
    def url(self) -> str:
        return self.session.url

    @property
    def journal(self) -> list[JsonObject]:
        """The exchanges that are in the journal now; of each, what was written last."""
        path = self.session.path.with_name(self.session.path.name + ".journal")
        lines = [
            json.loads(line[: 1 - CHECKSUM_LENGTH]) for line in path.read_bytes().splitlines()[1:]
        ]
        return list({line["number"]: line for line in lines}.values())


@asynccontextmanager
async def taping(
    cassette: Path, script: Script, *, path: str = "/mcp", **options: Any
) -> AsyncIterator[Tape]:
    """Record a stand-in that does what a script says; the cassette is there after the block."""
    log: list[str] = []
    async with (
        upstream(script, path=path) as server,
        recording(server.url, cassette, log=log.append, **options) as session,
    ):
        yield Tape(session, server, log)


@asynccontextmanager
async def until_stopped(
    block: AbstractAsyncContextManager[T],
) -> AsyncIterator[tuple[T, Callable[[], Awaitable[None]]]]:
    """Enter a block that the test can end from within, while a client still has a connection."""
    is_ended = False

    async def stop() -> None:
        nonlocal is_ended
        is_ended = True
        await block.__aexit__(None, None, None)

    yield await block.__aenter__(), stop
    if not is_ended:
        await stop()


@asynccontextmanager
async def playing(cassette: Path, **options: Any) -> AsyncIterator[ReplaySession]:
    """Replay a cassette; what is never played or missed is for the test to ask."""
    options.setdefault("repeat", Repeat.AUTO)
    async with replaying(cassette, **options) as session:
        yield session


def read(cassette: Path) -> JsonObject:
    """Return a cassette as JSON."""
    tree: JsonObject = json.loads(cassette.read_bytes())
    return tree


def raw_body(body: JsonObject) -> bytes:
    """Return the bytes that a body in a cassette stands for, where it is text or JSON."""
    if "events" in body:
        return b"".join(
            one["text"].encode()
            if "text" in one
            else one["before"].encode() + compact(one["data"]) + one["after"].encode()
            for one in body["events"]
        )
    text = body.get("text")
    return compact(body["body"]) if text is None else text.encode()


# --- The command line ---


class Outcome(NamedTuple):
    """How a process ended, and what it printed after its first line."""

    code: int
    out: str
    err: str


@dataclass
class Process:
    """`mrtr-cassette` as a process; leaving its block kills it if it still runs."""

    process: asyncio.subprocess.Process
    first_line: str = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    async def listening(self) -> str:
        """Return the URL that it announces, and nothing else, as its first line."""
        assert self.process.stdout is not None
        self.first_line = (await self.process.stdout.readline()).decode()
        word, _, url = self.first_line.partition("listening on ")
        assert not word, self.first_line
        assert url.endswith("\n"), await self.ended()
        return url.strip()

    async def said(self, text: str) -> str:
        """Wait for a line on stderr that has `text`, and return what stood there up to it."""
        assert self.process.stderr is not None
        seen = ""
        while text not in seen:
            line = await self.process.stderr.readline()
            assert line, seen
            seen += line.decode()
        return seen

    def kill(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    async def ended(self) -> Outcome:
        """Wait for its end; no process may end with a traceback."""
        out, err = await self.process.communicate()
        ended = Outcome(self.process.returncode or 0, (out or b"").decode(), (err or b"").decode())
        assert "Traceback" not in ended.err, ended.err
        return ended

    async def stopped(self, number: signal.Signals = signal.SIGINT) -> Outcome:
        """Tell it to end, and wait for that."""
        self.kill(number)
        return await self.ended()


PROGRAM = (sys.executable, "-m", "mrtr_cassette")


def unmeasured() -> dict[str, str]:
    """Return the environment of a process whose files have a limit: coverage writes one at its end."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}


@asynccontextmanager
async def command(
    *arguments: object, program: Sequence[str] = PROGRAM, **options: Any
) -> AsyncIterator[Process]:
    """Start `mrtr-cassette` with these arguments."""
    pipe = asyncio.subprocess.PIPE
    made = await asyncio.create_subprocess_exec(
        *program,
        *(one if isinstance(one, bytes) else str(one) for one in arguments),
        **{"stdin": asyncio.subprocess.DEVNULL, "stdout": pipe, "stderr": pipe, "limit": _LIMIT}
        | options,
    )
    try:
        yield Process(made)
    finally:
        if made.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                made.kill()
            await made.communicate()


async def run(*arguments: object, **options: Any) -> Outcome:
    """Run `mrtr-cassette` to its end."""
    async with command(*arguments, **options) as process:
        return await process.ended()
