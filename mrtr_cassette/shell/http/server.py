"""An HTTP/1 server (RFC 9112): parses requests, calls a handler, and frames the responses."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from mrtr_cassette.core.wire.http import Headers, Request
from mrtr_cassette.errors import in_terms, internal_error, printable, printable_lines
from mrtr_cassette.options import ProxyOptions
from mrtr_cassette.shell.http.access import Listener, refusal_of
from mrtr_cassette.shell.http.transport import (
    TEXT_HEADERS,
    Head,
    RawHeaders,
    header_texts,
    render_head,
)

_LAST_CHUNK = b"0\r\n\r\n"
_WITHOUT_BODY = frozenset({204, 304})
_NO_HEAD = Head(b"", has_length=False)
_LINGER_S = 10.0
"""Seconds for a client that is still sending to read why it is refused."""
_TLS_HANDSHAKE = b"\x16\x03"
"""How a client begins that speaks TLS (RFC 8446, section 5.1)."""
_SHUTDOWN_S = 1.0
"""Seconds in which a client can take what was sent; its request has been cancelled before."""
_BACKLOG = 1024
"""Connections that may wait to be accepted."""
_TURNS: Final = 5
"""Turns of the event loop from accepting a connection to reading its request, and some more."""


class HttpDownstream:
    """A client and its request.

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
        self.body = bytearray()
        """The body of the request, as far as it has come."""
        self.sent = 0
        """Bytes of the response's body."""
        self.is_started = False
        self.translated: Callable[[Headers], Headers] | None = None
        """Changes the headers of the response before they are sent."""
        self._head = _NO_HEAD
        self._has_body = False
        self._is_chunked = False

    def begin(self, status: int, headers: Headers, reason: str | None = None) -> None:
        """Begin a response that comes in chunks; the head is sent with the first of them."""
        if self.translated is not None:
            headers = self.translated(headers)
        self._head = render_head(status, headers, reason)
        self._has_body = self.method != "HEAD" and status not in _WITHOUT_BODY

    async def send_whole(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole response in one write; its headers announce no length."""
        self.begin(status, headers)
        self.sent += len(body)
        framing = b""
        if body or status not in _WITHOUT_BODY:
            framing = b"Content-Length: %d\r\n" % len(body)
        await self._connection.write([self._started(framing), body if self._has_body else b""])

    async def send(self, chunk: bytes = b"", *, is_last: bool = False) -> None:
        """Send the head, if it has not been sent, and the next bytes of the body."""
        self.sent += len(chunk)
        parts = []
        if not self.is_started:
            framing = b""
            if self._has_body and not self._head.has_length:
                # Without either, an older client knows the end by the close.
                self._is_chunked = not self._is_old
                self.keep_alive = self.keep_alive and self._is_chunked
                framing = b"Transfer-Encoding: chunked\r\n" if self._is_chunked else b""
            parts.append(self._started(framing))
        if chunk and self._has_body:
            parts += [b"%x\r\n" % len(chunk), chunk, b"\r\n"] if self._is_chunked else [chunk]
        if is_last and self._is_chunked:
            parts.append(_LAST_CHUNK)
        if parts:
            await self._connection.write(parts)

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

    def _started(self, framing: bytes) -> bytes:
        self.is_started = True
        # Each version says only what is not its habit.
        connection = b""
        if self._is_old == self.keep_alive:
            connection = b"Connection: keep-alive\r\n" if self._is_old else b"Connection: close\r\n"
        version = b"HTTP/1.0" if self._is_old else b"HTTP/1.1"
        return b"".join((version, self._head.raw, framing, connection, b"\r\n"))


HttpHandler = Callable[[Request, HttpDownstream], Awaitable[None]]
"""A `transport.Handler` that may ask more of a client."""


@dataclass(slots=True)
class Service:
    """What the connections of one server have in common."""

    handler: HttpHandler
    options: ProxyOptions
    complain: Callable[[str], None]
    """Takes a line about what could not be handled."""
    connections: set[Connection] = field(default_factory=set)
    is_ending: bool = False
    """No request is begun any more."""
    checked: Callable[[RawHeaders], tuple[Headers, str | None]] = field(init=False)
    """Reads headers, and says why a request with them is refused."""

    def __post_init__(self) -> None:
        """Work out once what the headers mean that a client sends with call after call."""
        self.checked = lru_cache(maxsize=1024)(self._check)

    def _check(self, raw_headers: RawHeaders) -> tuple[Headers, str | None]:
        headers = header_texts(raw_headers)
        return headers, refusal_of(headers, self.options)


class _RefusedError(Exception):
    """A request is refused, with this status and text."""

    def __init__(self, status: int, text: str) -> None:
        self.status, self.text = status, text


def _no_request(problem: str) -> _RefusedError:
    return _RefusedError(400, f"the request could not be handled: {problem}")


class Connection(asyncio.Protocol):
    """One connection of a client: its requests are read whole, and handled one after the other."""

    transport: asyncio.Transport

    def __init__(self, service: Service) -> None:
        self.task: asyncio.Task[None] | None = None
        """Handles the request under way; None between requests."""
        self._loop = asyncio.get_running_loop()
        self.gone: asyncio.Future[None] = self._loop.create_future()
        """Is done when the connection is closed."""
        self._service = service
        self._parser = HttpRequestParser(self)
        self._current: HttpDownstream | None = None
        self._next: deque[HttpDownstream] = deque()
        # The request of which the head has come, and not all of the body.
        self._coming: HttpDownstream | None = None
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._refusal: _RefusedError | None = None
        self._takes_no_more = False
        self._room: asyncio.Future[None] | None = None

    async def write(self, parts: Sequence[bytes]) -> None:
        """Write, and wait until the client has taken enough of what was written.

        Raises:
            ConnectionResetError: nobody is there any more.
        """
        if self.transport.is_closing():
            raise ConnectionResetError("the client is gone")
        self.transport.writelines(parts)
        if self._room is not None:
            await self._room

    def let_go(self) -> None:
        """Close the connection after the request that is being handled or received."""
        under_way = self._current or self._coming
        if under_way is None:
            self.transport.close()
        else:
            under_way.keep_alive = False

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection."""
        self.transport = cast("asyncio.Transport", transport)
        self._service.connections.add(self)

    def data_received(self, data: bytes) -> None:
        """Take bytes that the client sent."""
        if self._takes_no_more:
            return
        try:
            while data:
                try:
                    self._parser.feed_data(data)
                    break
                except HttpParserUpgrade as upgrade:
                    # The offer of another protocol is not taken: the request is one of this.
                    data = self._head_without_offer() + data[upgrade.args[0] :]
                    self._parser = HttpRequestParser(self)
        except (HttpParserError, _RefusedError) as error:
            # After a last request the parser takes nothing.
            if not self._takes_no_more:
                self._give_up(_refusal(error, data))
        self._begin_next()

    def pause_writing(self) -> None:
        """Make writers wait: the client does not read."""
        self._room = self._loop.create_future()

    def resume_writing(self) -> None:
        """Let writers go on."""
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's own
        """Cancel the request under way: nobody is there any more."""
        self._service.connections.discard(self)
        self.resume_writing()
        if self.task is not None:
            self.task.cancel()
        self.gone.set_result(None)

    # What the parser calls

    def on_message_begin(self) -> None:
        """Begin to read a request; what comes after its first bytes waits for its turn."""
        if self._current is not None or self._next:
            self.transport.pause_reading()

    def on_url(self, raw: bytes) -> None:
        """Take a part of the target."""
        self._url += raw

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, but not what comes after a body."""
        if self._coming is None:
            self._headers.append((name, value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        """Take the end of a head; who waits with the body is told to send it."""
        parser = self._parser
        method = parser.get_method().decode()
        if method == "CONNECT":
            raise _no_request("it asks for a tunnel, and this is the proxy of one server")
        self._coming = HttpDownstream(
            self,
            method,
            _target(self._url),
            tuple(self._headers),
            is_old=parser.get_http_version() < "1.1",
            keep_alive=parser.should_keep_alive(),
        )
        headers = {name.lower(): value for name, value in self._headers}
        self._headers, self._url = [], b""
        if int(headers.get(b"content-length") or 0) > self._service.options.max_body:
            raise self._too_large()
        waits = headers.get(b"expect", b"").lower() == b"100-continue"
        if waits and not parser.should_upgrade():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        if self._coming is not None:
            self._coming.body += body
            if len(self._coming.body) > self._service.options.max_body:
                raise self._too_large()

    def on_message_complete(self) -> None:
        """Take the end of the body: there is a request."""
        if self._coming is None or self._parser.should_upgrade():
            return
        self._next.append(self._coming)
        self._takes_no_more = not self._coming.keep_alive
        self._coming = None

    # Requests whose body is still to come

    def _head_without_offer(self) -> bytes:
        """Return the head of the coming request again, for a parser that reads its body."""
        coming, self._coming = cast("HttpDownstream", self._coming), None
        target = coming.target.encode("utf-8", "surrogateescape")
        headers = [pair for pair in coming.raw_headers if pair[0].lower() != b"upgrade"]
        lines = [b"%b: %b\r\n" % pair for pair in headers]
        return b"%b %b HTTP/1.1\r\n%b\r\n" % (coming.method.encode(), target, b"".join(lines))

    def _too_large(self) -> _RefusedError:
        text = f"the body has more than {self._service.options.max_body:,} bytes"
        return _RefusedError(413, f"{text}; see <<max_body>>")

    # One request after the other

    def _begin_next(self) -> None:
        if self._current is not None or self.transport.is_closing():
            return
        if self._next and self._service.is_ending:
            self.transport.close()
        elif self._next:
            self._current = self._next.popleft()
            self.task = self._loop.create_task(self._handle(self._current))
        else:
            self.transport.resume_reading()
            if self._refusal is not None:
                self._refuse(self._refusal)

    async def _handle(self, client: HttpDownstream) -> None:
        service = self._service
        try:
            headers, refusal = service.checked(client.raw_headers)
            if refusal is None:
                body = bytes(client.body)
                client.body.clear()
                await service.handler(Request(client.method, client.target, headers, body), client)
            else:
                text = in_terms(refusal, service.options.terms)
                await client.send_whole(403, TEXT_HEADERS, f"{text}\n".encode())
        except (asyncio.CancelledError, ConnectionResetError):
            # Nobody takes a response any more, or nobody gives one.
            client.break_off()
        except Exception as error:  # noqa: BLE001  a fault of one request ends no other
            await self._fail(client, error)
        self._current = self.task = None
        if not client.keep_alive:
            self.transport.close()
        self._begin_next()

    async def _fail(self, client: HttpDownstream, error: Exception) -> None:
        self._service.complain(f"a request could not be handled: {internal_error(error)}")
        if client.is_started:
            client.break_off()
            return
        text = "the request could not be handled; the proxy's log says why\n"
        with suppress(ConnectionResetError):
            await client.send_whole(500, TEXT_HEADERS, text.encode())

    def _give_up(self, refusal: _RefusedError) -> None:
        """Read no more from the client, and refuse it once its earlier requests are answered."""
        self._refusal = refusal
        self._takes_no_more = True
        if refusal.status == 400:
            self._service.complain(f"a {refusal.text.removeprefix('the ')}")

    def _refuse(self, refusal: _RefusedError) -> None:
        """Send a refusal, and close the connection when the client has read it."""
        body = f"{in_terms(refusal.text, self._service.options.terms)}\n".encode()
        framing = (("Connection", "close"), ("Content-Length", str(len(body))))
        head = render_head(refusal.status, (*TEXT_HEADERS, *framing)).raw
        self.transport.write(b"HTTP/1.1%b\r\n%b" % (head, body))
        # What still comes is read, and lost.
        self.transport.write_eof()
        self._loop.call_later(_LINGER_S, self.transport.abort)


def _refusal(error: Exception, data: bytes) -> _RefusedError:
    """Say why bytes are no request, without repeating any of them."""
    # An error of a function that the parser called stands behind the parser's own.
    cause = error.__context__ or error
    if isinstance(cause, _RefusedError):
        return cause
    problem = f"it is no HTTP that can be read ({str(cause).lower()})"
    if not isinstance(cause, HttpParserError):
        problem = internal_error(cause)
    elif data.startswith(_TLS_HANDSHAKE):
        problem = "it speaks TLS, and this address is http://"
    return _no_request(problem)


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
    handler: HttpHandler,
    listener: Listener,
    options: ProxyOptions,
    log: Callable[[str], None] | None,
    *,
    drain_s: float = 0.0,
) -> AsyncIterator[None]:
    """Serve `handler` for every method and path until the block ends.

    `log` takes a line for each request that could not be handled. Requests under way when the block
    ends have `drain_s` seconds to end; then they are cancelled.
    """

    def complain(text: str) -> None:
        if log is not None:
            with suppress(OSError):
                log(printable_lines(printable(text)))

    service = Service(handler, options, complain)
    loop = asyncio.get_running_loop()
    listeners = [
        await loop.create_server(lambda: Connection(service), sock=bound, backlog=_BACKLOG)
        for bound in listener.sockets
    ]
    try:
        yield
        if drain_s:
            await _drain(service, listeners, drain_s)
    finally:
        for each in listeners:
            each.close()
        await _end(service)


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
    connections = tuple(service.connections)
    for connection in connections:
        connection.let_go()
    if connections:
        await asyncio.wait([each.gone for each in connections], timeout=seconds)


async def _end(service: Service) -> None:
    """Cancel all requests, await their ends, and close the connections."""
    service.is_ending = True
    tasks = [each.task for each in service.connections if each.task is not None]
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
