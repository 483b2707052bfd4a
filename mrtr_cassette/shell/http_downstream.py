"""A client that sends one request over HTTP/1: the request, and its response as bytes.

Owns: the request's body while it comes, the head of the response and the framing of its body.
Does not own: the connection (`http_connection`), and what the client gets (`http_server`).
Rule: a response has the headers that it is given, and those that its framing needs; no date, no
server and no content type that nobody sent.
Source: RFC 9112, sections 6 and 9.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Protocol

from mrtr_cassette.core.wire.http import Headers
from mrtr_cassette.shell.http_message import Head, render_head
from mrtr_cassette.shell.transport import TEXT_HEADERS, RawHeaders

_MOST_UNREAD = 256 * 1024
"""Bytes of a body that come before it is asked for."""
_LAST_CHUNK = b"0\r\n\r\n"
_WITHOUT_BODY = frozenset({204, 304})
_NO_HEAD = Head(0, b"", has_length=False)


class Wire(Protocol):
    """The connection that a request came on.

    Attributes:
        transport: where bytes are written.
    """

    transport: asyncio.Transport

    async def write(self, first: bytes, rest: bytes = b"") -> None:
        """Write two parts, and wait until the client has taken enough of what was written.

        Raises:
            ConnectionResetError: nobody is there any more.
        """
        ...

    def go_on(self) -> None:
        """Let more of the request come."""
        ...


class HttpDownstream:
    """A client that has sent the head of a request, as `transport.Downstream` has it.

    Attributes:
        method: the HTTP method.
        target: path with query, as they came.
        raw_headers: names and values as bytes, less white space around them.
        keep_alive: whether the connection goes on after the response.
        received: bytes of the request's body so far.
        has_come: whether the whole body has come.
        is_started: the head of the response has been sent.
        sent: bytes of the response's body so far.
        called: the JSON-RPC method, as the handler tells.
        began: when it had come, where that is measured.
    """

    __slots__ = (
        *("_has_body", "_head", "_is_broken", "_is_chunked", "_is_old", "_largest", "_parts"),
        *("_whole", "_wire", "began", "called", "has_come", "is_started", "keep_alive", "method"),
        *("raw_headers", "received", "sent", "target"),
    )

    def __init__(
        self,
        wire: Wire,
        method: str,
        target: str,
        raw_headers: RawHeaders,
        *,
        is_old: bool,
        keep_alive: bool,
    ) -> None:
        """Begin with the head of the request; `is_old` is HTTP/1.0."""
        self._wire = wire
        self._is_old = is_old
        self.method = method
        self.target = target
        self.raw_headers = raw_headers
        self.keep_alive = keep_alive
        self._parts: list[bytes] = []
        self._largest = 0
        self._whole: asyncio.Future[None] | None = None
        self.received = 0
        self.has_come = False
        self._is_broken = False
        self._head = _NO_HEAD
        self._has_body = False
        self.is_started = False
        self._is_chunked = False
        self.sent = 0
        self.called = ""
        self.began = 0.0

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
                self._wire.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._largest = largest
            self._whole = asyncio.get_running_loop().create_future()
            self._wire.go_on()
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

    def send_early_hints(self, headers: Headers) -> None:
        """Pass on what the response's headers will be; older clients and bad hints get nothing."""
        transport = self._wire.transport
        if self._is_old or transport.is_closing():
            return
        hints = tuple(pair for pair in headers if pair[0].lower() != "content-length")
        with suppress(ValueError):
            transport.write(b"HTTP/1.1%b\r\n" % render_head(103, hints).raw)

    def begin(self, status: int, headers: Headers, reason: str | None = None) -> None:
        """Begin a response that comes in chunks; the head is sent with the first of them.

        Raises:
            ValueError: a header has what HTTP forbids.
        """
        self._head = render_head(status, headers, reason)
        self._has_body = self.method != "HEAD" and status not in _WITHOUT_BODY

    async def send_whole(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole response in one write; its headers announce no length.

        Raises:
            ValueError: a header has what HTTP forbids.
            ConnectionResetError: nobody is there any more.
        """
        self.begin(status, headers)
        self.is_started = True
        self.sent += len(body)
        framing = b""
        if body or status not in _WITHOUT_BODY:
            framing = b"Content-Length: %d\r\n" % len(body)
        await self._wire.write(self._whole_head(framing), body if self._has_body else b"")

    async def send(self, chunk: bytes = b"", *, is_last: bool = False) -> None:
        """Send the head, if it has not been sent, and the next bytes of the body.

        Args:
            chunk: the bytes; they may be none.
            is_last: the body ends with them.

        Raises:
            ConnectionResetError: nobody is there any more.
        """
        head = b"" if self.is_started else self._started()
        self.sent += len(chunk)
        framed = self._framed(chunk, is_last=is_last)
        if head or framed:
            await self._wire.write(head, framed)

    async def fail(self, text: str) -> None:
        """Answer with a 500 that says why, or break off what has begun.

        Raises:
            ConnectionResetError: nobody is there any more.
        """
        if self.is_started:
            self.break_off()
        else:
            body = f"{text}\n".encode()
            await self.send_whole(500, TEXT_HEADERS, body)

    def break_off(self) -> None:
        """End the response so that the client sees that it is not whole."""
        transport = self._wire.transport
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
