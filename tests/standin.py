"""A stand-in for the upstream: HTTP/1.1 on sockets, byte for byte, as a script says.

Rule: nothing here waits for time. A script waits for a gate that the test opens, or for the other
end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from messages import JsonObject, compact, result

Pairs = tuple[tuple[str, str], ...]

STREAM_LIMIT = 2**27
"""Bytes that a stream holds while it looks for a line's end."""


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

    def __init__(
        self, reader: asyncio.StreamReader, head: Head, *, is_empty: bool
    ) -> None:
        self._reader = reader
        self._is_chunked = head.values("transfer-encoding") == ["chunked"]
        lengths = head.values("content-length")
        self._left = (
            0 if is_empty or (self._is_chunked is False and not lengths) else None
        )
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
            return await (
                self._some_of_length() if self._left is not None else self._chunk()
            )
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
    port: int = 0,
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

    async def connected(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
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

    listener = await asyncio.start_server(
        connected, host, port, limit=STREAM_LIMIT, backlog=1024, ssl=tls
    )
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
    """Answer each request with the next of these, and close the connection, as it says."""
    left = iter(replies)

    async def script(visit: Visit) -> None:
        # On a connection that it may keep, a client's next request could be lost.
        await visit.send(_closing(next(left)))
        visit.close()

    return script


def _closing(reply: bytes) -> bytes:
    """Return a response that announces the close of its connection."""
    line, end, rest = reply.partition(b"\r\n")
    if not line.startswith(b"HTTP/1.1 "):
        return reply
    return b"".join((line, end, b"Connection: close", end, rest))


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
    return response(
        compact(value), "Content-Type: application/json", *headers, status=status
    )


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


class PushingServer:
    """A server of the 2025 era that asks a question during each call, and ends it when answered.

    Attributes:
        posted: the answers that came.
        ended: the sessions that clients have ended.
    """

    def __init__(
        self,
        question: JsonObject,
        done: Callable[[JsonObject], Any],
        *,
        session: str = "session-1",
        on_session: bool = False,
        greeting: JsonObject | None = None,
        tools: Sequence[Any] = (),
    ) -> None:
        """Prepare it.

        Args:
            done: returns the result of a call, by the answer.
            on_session: it asks on the stream of the session, and not on the call's.
            greeting: what it pushes as soon as a client listens.
        """
        self.posted: list[Any] = []
        self.ended: list[str] = []
        self._question = question
        self._done = done
        self._session = session
        self._on_session = on_session
        self._greeting = greeting
        self._tools = tools
        self._answers: asyncio.Queue[JsonObject] = asyncio.Queue()
        self._listener: Visit | None = None

    async def __call__(self, visit: Visit) -> None:
        """Answer one request."""
        method = visit.request.head.line.partition(" ")[0]
        if method == "DELETE":
            self.ended += visit.request.head.values("mcp-session-id")
            await visit.send(response(b"", status="204 Gone"))
        elif method == "GET":
            self._listener = visit
            greeting = () if self._greeting is None else (chunk(event(self._greeting)),)
            await visit.send(stream_head(), *greeting)
            await visit.left()
        else:
            await self._post(visit, visit.request.json)

    async def _post(self, visit: Visit, body: JsonObject) -> None:
        match body.get("method"):
            case "server/discover":
                await visit.send(
                    json_response({"error": "no session"}, status="400 Bad Request")
                )
            case "initialize":
                opened = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "serverInfo": {},
                }

                session = f"Mcp-Session-Id: {self._session}"
                await visit.send(json_response(result(opened, id=body["id"]), session))
            case "tools/list":
                await visit.send(
                    json_response(result({"tools": self._tools}, id=body["id"]))
                )
            case "tools/call":
                asking = self._listener if self._on_session else visit
                assert asking is not None
                await visit.send(stream_head())
                await asking.send(chunk(event(self._question)))
                while (answer := await self._answers.get())["id"] != self._question[
                    "id"
                ]:
                    pass

                greeted = {"id": None} if self._greeting is None else self._greeting
                while greeted["id"] not in {
                    None,
                    *(message["id"] for message in self.posted),
                }:
                    await self._answers.get()

                done = result(self._done(answer), id=body["id"])
                await visit.send(chunk(event(done)), chunk(b""))
            case _:
                if "method" not in body:
                    self.posted.append(body)
                    self._answers.put_nowait(body)

                await visit.send(response(b"", status="202 Accepted"))
