"""An HTTP/1 server: what clients send as requests, what handlers send as responses (RFC 9112)."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import struct
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from mrtr_cassette.core.wire.http import Headers, Request
from mrtr_cassette.errors import in_terms, internal_error, printable, printable_lines
from mrtr_cassette.options import ProxyOptions
from mrtr_cassette.shell.http.access import Listener, refusal_of
from mrtr_cassette.shell.http.transport import (
    MOST_HEADERS,
    TEXT_HEADERS,
    Handler,
    Head,
    RawHeaders,
    header_texts,
    render_head,
)

_MOST_UNREAD = 256 * 1024
"""Bytes of a body that come before it is asked for."""
_LAST_CHUNK = b"0\r\n\r\n"
_WITHOUT_BODY = frozenset({204, 304})
_NO_HEAD = Head(b"", has_length=False)
_LONGEST_HEADER = 256 * 1024
"""Bytes of a header's value, and of a target."""
_LARGEST_HEAD = 1024 * 1024
"""Bytes of a head, and of a body's framing beyond what it needs."""
_FRAMING_EACH = 8
"""Bytes of framing that one byte of a body may have: a chunk of one byte has five."""
_LINGER_S = 10.0
"""Seconds in which a client that still sends can take in that it is refused."""
_TLS_HANDSHAKE = b"\x16\x03"
"""How a client begins that speaks TLS (RFC 8446, section 5.1)."""
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
_SHUTDOWN_S = 1.0
"""Seconds in which a client can take what was sent; its request has been cancelled before."""
_LARGEST_BURST = 1024
_SPARE_FILES = 16
"""Descriptors that are left for the journal, the cassette and whoever else is in the process."""
_TURNS: Final = 5
"""Turns of the event loop from accepting a connection to reading its request, and some more."""


@dataclass(frozen=True, slots=True)
class RequestTimeouts:
    """How many seconds clients may take."""

    body_s: float = 60.0
    """For a request's body; one that is half sent holds memory."""
    idle_s: float = 75.0
    """Until a whole request head has come, from the connection's start or the last response."""
    drain_s: float = 0.0
    """For requests under way when serving ends; then they are cancelled."""


REQUEST_TIMEOUTS: Final = RequestTimeouts()


class HttpDownstream:
    """A client that has sent the head of a request.

    A response has the headers that it is given, and those that its framing needs: no date, no
    server and no content type that nobody sent.
    """

    def __init__(
        self,
        connection: Connection,
        method: str,
        target: str,
        raw_headers: RawHeaders,
        *,
        is_old: bool,
        keep_alive: bool,
    ) -> None:
        """Begin with the head of the request; `is_old` is HTTP/1.0."""
        self._connection = connection
        self._is_old = is_old
        self.method = method
        self.target = target
        self.raw_headers = raw_headers
        self.keep_alive = keep_alive
        self._parts: list[bytes] = []
        self._largest = 0
        self._whole: asyncio.Future[None] | None = None
        self.received = 0
        """Bytes of the request's body so far."""
        self.has_come = False
        """The whole body of the request has come."""
        self._is_broken = False
        self._head = _NO_HEAD
        self._has_body = False
        self.is_started = False
        """The head of the response has been sent."""
        self._is_chunked = False
        self.sent = 0
        """Bytes of the response's body so far."""
        self.called = ""
        self.began = 0.0
        """When the request had come, where that is measured."""

    # The request

    @property
    def announced_size(self) -> int:
        """Bytes that the body has, as far as the head tells."""
        return int(self._value(b"content-length") or 0)

    async def body(self, largest: int, seconds: float) -> bytes:
        """Wait for the body; return it, or more than `largest` bytes of it.

        Raises:
            TimeoutError: it takes more than so many seconds.
            ConnectionResetError: it is broken.
        """
        if not self.has_come:
            if not self._parts and self._value(b"expect").lower() == b"100-continue":
                self._connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._largest = largest
            self._whole = asyncio.get_running_loop().create_future()
            self._connection.go_on()
            if self.received <= largest and not self._is_broken:
                async with asyncio.timeout(seconds):
                    await self._whole
        if self._is_broken:
            raise ConnectionResetError("the body is broken")
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def add(self, raw: bytes) -> bool:
        """Take bytes of the body; return whether no more should come yet."""
        if self._whole is not None and self._whole.done():
            return False
        self.received += len(raw)
        self._parts.append(raw)
        if self._whole is None:
            return self.received > _MOST_UNREAD
        if self.received > self._largest:
            self._wake()
        return False

    def body_ended(self) -> None:
        """Take the end of the body."""
        self.has_come = True
        self._wake()

    def body_broke(self) -> None:
        """Take note that the rest of the body will not come."""
        self._is_broken = True
        self._wake()

    def _wake(self) -> None:
        if self._whole is not None and not self._whole.done():
            self._whole.set_result(None)

    def _value(self, wanted: bytes) -> bytes:
        return next((value for name, value in self.raw_headers if name.lower() == wanted), b"")

    # The response

    def begin(self, status: int, headers: Headers, reason: str | None = None) -> None:
        """Begin a response that comes in chunks; the head is sent with the first of them."""
        self._head = render_head(status, headers, reason)
        self._has_body = self.method != "HEAD" and status not in _WITHOUT_BODY

    async def send_whole(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole response in one write; its headers announce no length."""
        self.begin(status, headers)
        self.is_started = True
        self.sent += len(body)
        framing = b""
        if body or status not in _WITHOUT_BODY:
            framing = b"Content-Length: %d\r\n" % len(body)
        await self._connection.write(self._whole_head(framing), body if self._has_body else b"")

    async def send(self, chunk: bytes = b"", *, is_last: bool = False) -> None:
        """Send the head, if it has not been sent, and the next bytes of the body."""
        head = b"" if self.is_started else self._started()
        self.sent += len(chunk)
        framed = self._framed(chunk, is_last=is_last)
        if head or framed:
            await self._connection.write(head, framed)

    def break_off(self) -> None:
        """End the response so that the client sees that it is not whole."""
        transport = self._connection.transport
        if self._is_old and not transport.is_closing():
            # Where the close is the end of the body, only a reset tells that it came too soon.
            transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            transport.abort()
        else:
            # What was sent still arrives; the last chunk, or the rest of the length, does not.
            transport.close()

    def _started(self) -> bytes:
        """Return the head, with how the body will be framed."""
        self.is_started = True
        framing = b""
        if self._has_body and not self._head.has_length:
            # Without either, an older client knows the end by the close.
            self._is_chunked = not self._is_old
            self.keep_alive = self.keep_alive and self._is_chunked
            framing = b"Transfer-Encoding: chunked\r\n" if self._is_chunked else b""
        return self._whole_head(framing)

    def _whole_head(self, framing: bytes) -> bytes:
        # What comes of a body that is refused would have to be read before the next request.
        self.keep_alive = self.keep_alive and self.has_come
        # Each version says only what is not its habit.
        connection = b""
        if self._is_old == self.keep_alive:
            connection = b"Connection: keep-alive\r\n" if self._is_old else b"Connection: close\r\n"
        version = b"HTTP/1.0" if self._is_old else b"HTTP/1.1"
        return b"".join((version, self._head.raw, framing, connection, b"\r\n"))

    def _framed(self, chunk: bytes, *, is_last: bool) -> bytes:
        if not self._has_body:
            return b""
        if not self._is_chunked:
            return chunk
        end = _LAST_CHUNK if is_last else b""
        return b"%x\r\n%b\r\n%b" % (len(chunk), chunk, end) if chunk else end


Answer = Callable[[HttpDownstream], Awaitable[None]]


class Meter(Protocol):
    """Told of each request by the task that handles it."""

    def request_began(self, client: HttpDownstream) -> None:
        """Take note of a request whose head has come."""

    def request_ended(self, client: HttpDownstream) -> None:
        """Take note of the end of its response."""


@dataclass(slots=True)
class Service:
    """What the connections of one server have in common."""

    answer: Answer
    complain: Callable[[str], None]
    """Takes a line about what could not be handled."""
    meter: Meter | None
    idle_s: float
    most: int
    """Connections that may be open at once."""
    connections: set[Connection] = field(default_factory=set)
    is_ending: bool = False
    """No request is begun any more."""
    _has_warned: bool = False

    @property
    def tasks(self) -> tuple[asyncio.Task[None], ...]:
        """The requests that are being handled."""
        return tuple(each.task for each in self.connections if each.task is not None)

    def opened(self, connection: Connection) -> None:
        """Take note of a connection, or refuse it where there are too many."""
        self.connections.add(connection)
        if len(self.connections) <= self.most:
            return
        text = (
            f"{self.most} connections are open, and the limit of open files allows no more; "
            "raise it with: ulimit -n"
        )
        if not self._has_warned:
            self._has_warned = True
            self.complain(text)
        connection.refuse(503, text)
        # It has a descriptor as long as it is open.
        connection.transport.close()


class Connection(asyncio.Protocol):
    """One connection of a client, and the request that is handled on it."""

    transport: asyncio.Transport

    def __init__(self, service: Service) -> None:
        self.task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self._service = service
        self._parser = HttpRequestParser(self)
        self._current: HttpDownstream | None = None
        self._next: deque[HttpDownstream] = deque()
        # The request that is being read.
        self._coming: HttpDownstream | None = None
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._is_upgrade = False
        self._framing_size = 0
        self._problem = ""
        self._takes_no_more = False
        self._is_paused = False
        self._room: asyncio.Future[None] | None = None
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    # What handlers of requests use

    async def write(self, first: bytes, rest: bytes = b"") -> None:
        """Write two parts, and wait until the client has taken enough of what was written.

        Raises:
            ConnectionResetError: nobody is there any more.
        """
        if self.transport.is_closing():
            raise ConnectionResetError("the client is gone")
        self.transport.write(first + rest)
        if self._room is not None:
            await self._room

    def go_on(self) -> None:
        """Let more of the request come."""
        if self._is_paused:
            self._is_paused = False
            self.transport.resume_reading()

    # What the server uses

    def refuse(self, status: int, text: str) -> None:
        """Answer, whatever comes, and end the connection when the client has read it."""
        if self.transport.is_closing():
            return
        body = f"{text}\n".encode()
        framing = (("Connection", "close"), ("Content-Length", str(len(body))))
        head = render_head(status, (*TEXT_HEADERS, *framing)).raw
        self.transport.write(b"HTTP/1.1%b\r\n%b" % (head, body))
        self._linger()

    def let_go(self) -> None:
        """End the connection after the response under way, or now."""
        if self._current is None:
            self.transport.close()
        else:
            self._current.keep_alive = False

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection, or refuse it where there are too many."""
        self.transport = cast("asyncio.Transport", transport)
        self._since = self._loop.time()
        self._timer = self._loop.call_later(self._service.idle_s, self._end_if_idle)
        self._service.opened(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes that the client sent."""
        if self._takes_no_more:
            return
        self._framing_size += len(data)
        try:
            self._parse(data)
        except (HttpParserError, _NoRequestError) as error:
            # After a last request the parser takes nothing.
            if not self._takes_no_more:
                self._give_up(_reason(error, data))
        if self._current is None:
            self._begin_next()

    def pause_writing(self) -> None:
        """Let who writes wait: the client does not read."""
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        """Let who writes go on."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's own
        """Cancel the request under way: nobody is there any more."""
        self._service.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self.resume_writing()
        if self.task is not None:
            self.task.cancel()
        self.gone.set_result(None)

    # What the parser calls

    def on_message_begin(self) -> None:
        """Begin to read a request; what comes after its first bytes waits for its turn."""
        if self._is_upgrade:
            return
        self._framing_size = 0
        if self._current is not None or self._next:
            self._pause()

    def on_url(self, raw: bytes) -> None:
        """Take a part of the target."""
        if self._coming is None:
            self._url += raw
            if len(self._url) > _LONGEST_HEADER:
                raise _NoRequestError(f"its target has more than {_LONGEST_HEADER:,} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        # What comes after a body, or once more after an upgrade, is left out.
        if self._coming is not None:
            return
        if len(value) > _LONGEST_HEADER or len(self._headers) == MOST_HEADERS:
            limits = f"{MOST_HEADERS:,} headers, or one of more than {_LONGEST_HEADER:,} bytes"
            raise _NoRequestError(f"its head has more than {limits}")
        self._headers.append((name, value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        """Take the end of a head: there is a request."""
        parser = self._parser
        if self._is_upgrade:
            self._is_upgrade = False
            return
        method = parser.get_method().decode()
        if method == "CONNECT":
            raise _NoRequestError("it asks for a tunnel, and this is the proxy of one server")
        self._is_upgrade = parser.should_upgrade()
        headers, self._headers = tuple(self._headers), []
        url, self._url = self._url, b""
        self._coming = HttpDownstream(
            self,
            method,
            _target(url),
            headers,
            is_old=parser.get_http_version() < "1.1",
            keep_alive=parser.should_keep_alive(),
        )
        self._next.append(self._coming)

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._framing_size = max(0, self._framing_size - len(body) * (1 + _FRAMING_EACH))
        if self._coming is not None and self._coming.add(body):
            self._pause()

    def on_message_complete(self) -> None:
        """Take the end of the body."""
        coming = self._coming
        if coming is None or self._is_upgrade:
            return
        coming.body_ended()
        self._coming = None
        self._takes_no_more = not coming.keep_alive

    # One request after the other

    def _parse(self, data: bytes) -> None:
        while data:
            try:
                self._parser.feed_data(data)
            except HttpParserUpgrade as upgrade:
                # The offer of another protocol is not taken, and the request is one of this.
                data = self._framing_again() + data[upgrade.args[0] :]
                self._parser = HttpRequestParser(self)
            else:
                break
        if self._framing_size > _LARGEST_HEAD:
            raise _NoRequestError(
                f"its head, or what frames its body, has more than {_LARGEST_HEAD:,} bytes"
            )

    def _framing_again(self) -> bytes:
        """Return a head that a new parser reads, so that it reads the body of the same request."""
        headers = self._coming.raw_headers if self._coming is not None else ()
        framing = [b"%b: %b\r\n" % pair for pair in headers if pair[0].lower() in _FRAMING]
        return b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(framing)

    def _begin_next(self) -> None:
        """Handle the next request, if one has come."""
        if self._next and self._service.is_ending:
            self.transport.close()
        elif self._next:
            self._current = self._next.popleft()
            self.task = self._loop.create_task(self._handle(self._current))
        elif self._problem:
            self.refuse(400, f"the request could not be handled: {self._problem}")

    async def _handle(self, client: HttpDownstream) -> None:
        meter = self._service.meter
        if meter is not None:
            meter.request_began(client)
        try:
            await self._service.answer(client)
        except (asyncio.CancelledError, ConnectionResetError):
            # Nobody takes a response any more, or nobody gives one.
            if not self._problem or client.is_started:
                client.break_off()
        except Exception as error:  # noqa: BLE001  a fault of one request ends no other
            self._complain(internal_error(error))
            if client.is_started:
                client.break_off()
            else:
                text = b"the request could not be handled; the proxy's log says why\n"
                with suppress(ConnectionResetError):
                    await client.send_whole(500, TEXT_HEADERS, text)
        finally:
            if meter is not None:
                meter.request_ended(client)
        self._current = self.task = None
        if not self.transport.is_closing():
            self._handled(client)

    def _handled(self, client: HttpDownstream) -> None:
        if client.keep_alive or (self._problem and not client.is_started):
            self._since = self._loop.time()
            if not self._next:
                self.go_on()
            self._begin_next()
        elif client.has_come:
            self.transport.close()
        else:
            self._linger()

    def _give_up(self, problem: str) -> None:
        """Take nothing more of a client that sends no HTTP; what it sent before is answered."""
        self._problem = problem
        self._takes_no_more = True
        self._complain(problem)
        coming = self._coming
        if coming is None:
            return
        if coming is self._current:
            coming.body_broke()
        else:
            self._next.pop()

    def _complain(self, problem: str) -> None:
        self._service.complain(f"a request could not be handled: {problem}")

    def _linger(self) -> None:
        """End the connection in our direction, and let what still comes be lost."""
        self._takes_no_more = True
        self.go_on()
        self.transport.write_eof()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(_LINGER_S, self.transport.abort)

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()

    def _end_if_idle(self) -> None:
        wait = self._service.idle_s
        if self._current is None:
            wait -= self._loop.time() - self._since
            if wait <= 0:
                self.transport.close()
                return
        self._timer = self._loop.call_later(wait, self._end_if_idle)


class _NoRequestError(Exception):
    """What came is no request that is taken; the text says why, in words of our own."""


def _reason(error: Exception, data: bytes) -> str:
    """Say why bytes are no request, without repeating any of them."""
    # An error of a function that the parser called stands behind the parser's own.
    cause = error.__context__ or error
    if isinstance(cause, _NoRequestError):
        return str(cause)
    if not isinstance(cause, HttpParserError):
        return internal_error(cause)
    if data.startswith(_TLS_HANDSHAKE):
        return "it speaks TLS, and this address is http://"
    return f"it is no HTTP that can be read ({str(cause).lower()})"


def _target(url: bytes) -> str:
    """Return path and query; a client that takes us for its proxy names a whole URL."""
    target = url.decode("utf-8", "surrogateescape")
    if target.startswith("/") or "://" not in target:
        return target
    authority_and_path = target.partition("://")[2]
    start = next((at for at, char in enumerate(authority_and_path) if char in "/?"), None)
    path = "" if start is None else authority_and_path[start:]
    return path if path.startswith("/") else f"/{path}"


@asynccontextmanager
async def serving(
    handler: Handler,
    listener: Listener,
    options: ProxyOptions,
    log: Callable[[str], None] | None,
    *,
    timeouts: RequestTimeouts = REQUEST_TIMEOUTS,
    meter: Meter | None = None,
) -> AsyncIterator[None]:
    """Serve `handler` for every method and path until the block ends.

    `log` takes a line for each request that could not be handled. Requests under way when the block
    ends are cancelled, once they had the time to end, and awaited.
    """

    def complain(text: str) -> None:
        if log is not None:
            with suppress(OSError):
                log(printable_lines(printable(text)))

    most, burst = _most_connections()
    answer = _answering(handler, options, timeouts.body_s)
    service = Service(answer, complain, meter, timeouts.idle_s, most)
    loop = asyncio.get_running_loop()
    listeners = [
        await loop.create_server(lambda: Connection(service), sock=bound, backlog=burst)
        for bound in listener.sockets
    ]
    try:
        yield
        if timeouts.drain_s:
            await _drain(service, listeners, timeouts.drain_s)
    finally:
        for each in listeners:
            each.close()
        await _end(service)


def _most_connections() -> tuple[int, int]:
    """Return how many connections the limit of open files allows at once, and in one burst."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize, _LARGEST_BURST
    free = limit - len(os.listdir("/dev/fd")) - _SPARE_FILES  # noqa: PTH208  names will do
    # An event loop accepts a whole burst before it can refuse the first.
    burst = max(1, min(_LARGEST_BURST, free // 4))
    # Each may need another one to the upstream.
    return max(1, (free - burst) // 2), burst


def _answering(handler: Handler, options: ProxyOptions, body_s: float) -> Answer:
    """Return what checks a request, waits for its body, and hands it to the handler."""
    too_large = f"the body has more than {options.max_body:,} bytes; see <<max_body>>"

    # A client sends the same headers with call after call.
    @lru_cache(maxsize=1024)
    def checked(raw_headers: RawHeaders) -> tuple[Headers, str | None]:
        headers = header_texts(raw_headers)
        return headers, refusal_of(headers, options)

    async def refuse(client: HttpDownstream, status: int, text: str) -> None:
        body = f"{in_terms(text, options.terms)}\n".encode()
        await client.send_whole(status, TEXT_HEADERS, body)

    async def answer(client: HttpDownstream) -> None:
        headers, refusal = checked(client.raw_headers)
        if refusal is not None:
            await refuse(client, 403, refusal)
            return
        if not client.has_come and client.announced_size > options.max_body:
            await refuse(client, 413, too_large)
            return
        try:
            body = await client.body(options.max_body, body_s)
        except TimeoutError:
            await refuse(client, 408, f"the request's body did not come within {body_s:.0f} s")
            return
        if len(body) > options.max_body:
            await refuse(client, 413, too_large)
            return
        await handler(Request(client.method, client.target, headers, body), client)

    return answer


async def _drain(service: Service, listeners: Sequence[asyncio.Server], seconds: float) -> None:
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
    for connection in tuple(service.connections):
        connection.let_go()
    if service.tasks:
        await asyncio.wait(service.tasks, timeout=seconds)


async def _end(service: Service) -> None:
    """Cancel all requests, await their ends, and close the connections."""
    service.is_ending = True
    tasks = service.tasks
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    connections = tuple(service.connections)
    for connection in connections:
        connection.transport.close()
    if connections:
        await asyncio.wait([each.gone for each in connections], timeout=_SHUTDOWN_S)
    for connection in tuple(service.connections):
        connection.transport.abort()
