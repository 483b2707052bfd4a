"""aiohttp's low-level server, and all that this program relies on in its inner workings.

Owns: a client's request as aiohttp gives it, sending bytes past aiohttp's own responses, and a
bound on the connections that are open at once.
Does not own: who may send a request, and what it gets (`http_server`).
Rule: tests/shell/test_aiohttp_server.py names each thing relied on, and pyproject.toml pins aiohttp
to the minor version for which it holds. No other module reaches into aiohttp's server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any, Final, Protocol, cast

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong

from mrtr_cassette.core.wire.http import Headers
from mrtr_cassette.errors import internal_error, printable, printable_lines
from mrtr_cassette.shell.http_message import MOST_HEADERS, Head, render_head, write_together
from mrtr_cassette.shell.transport import RawHeaders

LONGEST_HEADER: Final = 256 * 1024
"""Bytes of one header line; aiohttp's own limit of 8 KiB is less than some tokens."""
_SHUTDOWN_S = 1.0
"""Seconds that a connection has to end; its request has been cancelled before."""
_LAST_CHUNK = b"0\r\n\r\n"
_LARGEST_BURST = 1024
_SPARE_FILES = 16
"""Descriptors that are left for the journal, the cassette and whoever else is in the process."""
_TURNS: Final = 5
"""Turns of the event loop from accepting a connection to reading its request, and some more."""
_WITHOUT_BODY = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_NO_HEAD = Head(0, b"", has_length=False)


class HttpDownstream:
    """A client that has sent the head of a request over HTTP/1.

    Its response goes to the connection as it is: aiohttp's own responses have a date, a server and
    a content type that nobody sent. To aiohttp this is a response that has been sent already.
    """

    __slots__ = (
        *("_has_body", "_head", "_is_chunked", "_is_started", "_request"),
        *("began", "called", "keep_alive", "received", "sent"),
    )

    def __init__(self, request: web.BaseRequest) -> None:
        """Begin with the head of the request."""
        self._request = request
        self._head = _NO_HEAD
        self._has_body = False
        self._is_started = False
        self._is_chunked = False
        self.keep_alive: bool = request.keep_alive
        """Whether the connection goes on after the response; aiohttp asks for it."""
        self.began = 0.0
        """When it had come, where that is measured."""
        self.called = ""
        """The JSON-RPC method, as the handler tells."""
        self.received = 0
        """Bytes of the request's body."""
        self.sent = 0
        """Bytes of the response's body so far."""

    # The request

    @property
    def method(self) -> str:
        """The HTTP method."""
        return self._request.method

    @property
    def target(self) -> str:
        """Path with query, as they came; a client that takes us for its proxy names a whole URL."""
        target = self._request.raw_path
        return target if target.startswith("/") else self._request.rel_url.raw_path_qs or "/"

    @property
    def raw_headers(self) -> RawHeaders:
        """Names and values, as they came."""
        return self._request.raw_headers

    @property
    def announced_size(self) -> int:
        """Bytes that the body has, as far as the head tells."""
        return self._request.content_length or 0

    @property
    def has_come(self) -> bool:
        """Whether the whole body has come."""
        return self._request.content.is_eof()

    def body_now(self) -> bytes:
        """Return the body, where it has come."""
        body = self._request.content.read_nowait()
        self.received = len(body)
        return body

    async def body(self, largest: int) -> bytes:
        """Wait for the body; return it, or more than `largest` bytes of it."""
        request = self._request
        if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue" and request.transport:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        chunks = []
        size = 0
        while size <= largest and (chunk := await request.content.readany()):
            chunks.append(chunk)
            size += len(chunk)
        self.received = size
        return b"".join(chunks)

    # The response, as `transport.Downstream` has it

    def send_early_hints(self, headers: Headers) -> None:
        """Pass on what the response's headers will be; older clients and bad hints get nothing."""
        transport = self._request.transport
        if self._request.version < HttpVersion11 or transport is None or transport.is_closing():
            return
        hints = tuple(pair for pair in headers if pair[0].lower() != "content-length")
        with suppress(ValueError):
            head = render_head(HTTPStatus.EARLY_HINTS, hints)
            transport.write(b"HTTP/1.1%b\r\n" % head.raw)

    def begin(self, status: int, headers: Headers, reason: str | None = None) -> None:
        """Begin a response that comes in chunks; the head is sent with the first of them.

        Raises:
            ValueError: a header has what HTTP forbids.
        """
        self._head = render_head(status, headers, reason)
        self._has_body = self._request.method != hdrs.METH_HEAD and status not in _WITHOUT_BODY

    async def send_whole(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole response in one write; its headers announce no length.

        Raises:
            ValueError: a header has what HTTP forbids.
            ConnectionResetError: nobody is there any more.
        """
        self.begin(status, headers)
        self._is_started = True
        self.sent += len(body)
        framing = b""
        if body or status not in _WITHOUT_BODY:
            framing = b"Content-Length: %d\r\n" % len(body)
        await self._write(self._whole_head(framing), body if self._has_body else b"")

    async def send(self, chunk: bytes = b"", *, is_last: bool = False) -> None:
        """Send the head, if it has not been sent, and the next bytes of the body.

        Args:
            chunk: the bytes; they may be none.
            is_last: the body ends with them.

        Raises:
            ConnectionResetError: nobody is there any more.
        """
        head = b"" if self._is_started else self._started()
        self.sent += len(chunk)
        framed = self._framed(chunk, is_last=is_last)
        if head or framed:
            await self._write(head, framed)

    def break_off(self) -> None:
        """End the response so that the client sees that it is not whole."""
        transport = self._request.transport
        if transport is None:
            return
        if self._request.version < HttpVersion11:
            # Where the close is the end of the body, only a reset tells that it came too soon.
            transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            transport.abort()
        else:
            # What was sent still arrives; the last chunk, or the rest of the length, does not.
            transport.close()

    def let_go(self) -> web.RequestHandler:
        """Close the connection after the response; return it."""
        self.keep_alive = False
        return self._request.protocol

    def _started(self) -> bytes:
        """Return the head, with how the body will be framed."""
        self._is_started = True
        framing = b""
        if self._has_body and not self._head.has_length:
            # Without either, an older client knows the end by the close.
            self._is_chunked = self._request.version >= HttpVersion11
            self.keep_alive = self.keep_alive and self._is_chunked
            framing = b"Transfer-Encoding: chunked\r\n" if self._is_chunked else b""
        return self._whole_head(framing)

    def _whole_head(self, framing: bytes) -> bytes:
        is_old = self._request.version < HttpVersion11
        # Each version says only what is not its habit.
        connection = b""
        if is_old == self.keep_alive:
            connection = b"Connection: keep-alive\r\n" if is_old else b"Connection: close\r\n"
        version = b"HTTP/1.0" if is_old else b"HTTP/1.1"
        return b"".join((version, self._head.raw, framing, connection, b"\r\n"))

    def _framed(self, chunk: bytes, *, is_last: bool) -> bytes:
        if not self._has_body:
            return b""
        if not self._is_chunked:
            return chunk
        end = _LAST_CHUNK if is_last else b""
        return b"%x\r\n%b\r\n%b" % (len(chunk), chunk, end) if chunk else end

    async def _write(self, first: bytes, rest: bytes = b"") -> None:
        transport = self._request.transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        write_together(transport, first, rest)
        await self._request.writer.drain()

    # What aiohttp asks of a response

    async def prepare(self, request: web.BaseRequest) -> None:
        """Do nothing: the response has been sent."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: the response has been sent."""


Answer = Callable[[HttpDownstream], Awaitable[None]]


class Meter(Protocol):
    """Told of each request by the task that handles it."""

    def request_began(self, client: HttpDownstream) -> None:
        """Take note of a request whose head has come."""
        ...

    def request_ended(self, client: HttpDownstream) -> None:
        """Take note of the end of its response."""
        ...


class _OneLine(logging.Handler):
    """Passes on what aiohttp's server logs, as one line without a traceback."""

    def __init__(self, log: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = f"a request could not be handled: {_reason(error)}" if error else record.getMessage()
        with suppress(OSError):
            self._log(printable_lines(printable(text)))


def _reason(error: BaseException) -> str:
    """Say why a request could not be handled: aiohttp's own words repeat what the client sent."""
    if isinstance(error, LineTooLong):
        return f"a line of its head has more than {LONGEST_HEADER // 1024} KiB"
    if isinstance(error, BadHttpMessage):
        return f"it is no HTTP that can be read ({type(error).__name__})"
    return internal_error(error)


def _server_log(log: Callable[[str], None] | None) -> logging.Logger:
    # Each server has a logger of its own, because each has a log of its own.
    logger = logging.Logger("mrtr_cassette.server")  # noqa: LOG001
    logger.addHandler(logging.NullHandler() if log is None else _OneLine(log))
    return logger


class _BoundedServer(web.Server):
    """aiohttp's server, with a bound on the connections that are open at once."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        most: int,
        **options: Any,
    ) -> None:
        super().__init__(handler, **options)
        self._most = most
        self._open = 0
        self._has_warned = False

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._open += 1
        if self._open > self._most:
            text = (
                f"{self._most} connections are open, and the limit of open files allows no more; "
                "raise it with: ulimit -n"
            )
            if not self._has_warned:
                self._has_warned = True
                handler.logger.error(text)
            body = f"{text}\n".encode()
            transport.write(
                b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n"
                b"Content-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            )
            transport.close()

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        super().connection_lost(handler, exc)
        self._open -= 1


def _most_connections(files_each: int) -> tuple[int, int]:
    """Return how many connections the limit of open files allows at once, and in one burst.

    Args:
        files_each: how many descriptors each connection needs.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize, _LARGEST_BURST
    free = limit - len(os.listdir("/dev/fd")) - _SPARE_FILES  # noqa: PTH208  names will do
    # An event loop accepts a whole burst before it can refuse the first.
    burst = max(1, min(_LARGEST_BURST, free // 4))
    return max(1, (free - burst) // files_each), burst


class _Requests:
    """The requests that are being handled."""

    def __init__(self, answer: Answer, meter: Meter | None) -> None:
        self._answer = answer
        self._meter = meter
        self._running: dict[asyncio.Task[object], HttpDownstream] = {}
        self._is_ending = False

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        # The connection's task, which waits for the handler's.
        task = request.task
        self._running[task] = downstream = HttpDownstream(request)
        meter = self._meter
        if meter is not None:
            meter.request_began(downstream)
        try:
            if self._is_ending:
                # It came while the others were being cancelled.
                raise asyncio.CancelledError
            await self._answer(downstream)
            return cast("web.StreamResponse", downstream)
        except ConnectionResetError:
            # The client has left, so nobody is there to take a response.
            raise asyncio.CancelledError from None
        finally:
            self._running.pop(task)
            if meter is not None:
                meter.request_ended(downstream)

    async def drain(
        self, server: web.Server, listeners: Sequence[asyncio.Server], seconds: float
    ) -> None:
        """Take no new connections, close idle ones, and the others after the response under way."""
        loop = asyncio.get_running_loop()
        for bound in (bound for listener in listeners for bound in listener.sockets):
            loop.remove_reader(bound.fileno())
        # What was accepted is forgotten, and never closed, by a listener that is closed before it
        # has a transport; and requests that have come begin to be handled.
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        for listener in listeners:
            listener.close()
        busy = {downstream.let_go() for downstream in self._running.values()}
        for connection in set(server.connections) - busy:
            connection.force_close()
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)

    async def end(self) -> None:
        """Cancel all, and wait for their ends."""
        self._is_ending = True
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


_SETTINGS: Final[Mapping[str, Any]] = {
    "access_log": None,
    "auto_decompress": False,
    "handler_cancellation": True,
    "max_field_size": LONGEST_HEADER,
    "max_headers": MOST_HEADERS,
    "max_line_size": LONGEST_HEADER,
}


@asynccontextmanager
async def accepting(
    sockets: Iterable[socket.socket],
    answer: Answer,
    log: Callable[[str], None] | None,
    *,
    idle_s: float,
    drain_s: float,
    files_each: int,
    meter: Meter | None = None,
) -> AsyncIterator[None]:
    """Accept connections on bound sockets, and have each request answered, until the block ends.

    Requests under way then have some time to end; after it they are cancelled, and awaited.

    Args:
        sockets: are closed with the block.
        answer: answers a request.
        log: takes a line for each request that could not be handled.
        idle_s: seconds a connection may wait for a whole request head, from its start or the last
            response.
        drain_s: seconds that requests under way have to end when the block does.
        files_each: how many descriptors a client's connection needs.
        meter: told of each request; None where nobody counts.
    """
    requests = _Requests(answer, meter)
    most, burst = _most_connections(files_each)
    server = _BoundedServer(
        requests.handle, most, logger=_server_log(log), keepalive_timeout=idle_s, **_SETTINGS
    )
    loop = asyncio.get_running_loop()
    listeners = [await loop.create_server(server, sock=bound, backlog=burst) for bound in sockets]
    try:
        yield
        if drain_s:
            await requests.drain(server, listeners, drain_s)
        await requests.end()
    finally:
        for listener in listeners:
            listener.close()
        # Requests that have come begin to be handled before idle connections are closed.
        await asyncio.sleep(0)
        server.pre_shutdown()
        await server.shutdown(_SHUTDOWN_S)
