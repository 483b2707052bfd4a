"""A client's connection over HTTP/1: the requests on it, one after the other.

Owns: cutting what a client sends into requests, their order, refusing what is no HTTP, and when
the connection ends.
Does not own: a request's body and its response (`http_downstream`), and who may connect
(`http_accepting`).
Rule: one request is handled at a time; what a client sends before its response waits unread.
Source: RFC 9112.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from mrtr_cassette.errors import internal_error
from mrtr_cassette.shell.http_downstream import HttpDownstream
from mrtr_cassette.shell.http_message import MOST_HEADERS, render_head, write_together
from mrtr_cassette.shell.transport import TEXT_HEADERS

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


Answer = Callable[[HttpDownstream], Awaitable[None]]


class Meter(Protocol):
    """Told of each request by the task that handles it."""

    def request_began(self, client: HttpDownstream) -> None:
        """Take note of a request whose head has come."""
        ...

    def request_ended(self, client: HttpDownstream) -> None:
        """Take note of the end of its response."""
        ...


@dataclass(slots=True)
class Service:
    """What the connections of one server have in common.

    Attributes:
        answer: answers a request.
        complain: takes a line about what could not be handled.
        meter: told of each request; None where nobody counts.
        idle_s: seconds a connection may wait for a whole request head, from its start or the last
            response.
        most: connections that may be open at once.
        connections: those that are open.
        is_ending: no request is begun any more.
    """

    answer: Answer
    complain: Callable[[str], None]
    meter: Meter | None
    idle_s: float
    most: int
    connections: set[Connection] = field(default_factory=set)
    is_ending: bool = False
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
    """One connection of a client, and the request that is handled on it.

    Attributes:
        transport: where bytes are written.
        task: handles the request under way; None between requests.
        gone: is done when the connection is closed.
    """

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
        write_together(self.transport, first, rest)
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
            with suppress(ConnectionResetError):
                await client.fail("the request could not be handled; the proxy's log says why")
        finally:
            if meter is not None:
                meter.request_ended(client)
        self._current = self.task = None
        if self.transport.is_closing():
            return
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
