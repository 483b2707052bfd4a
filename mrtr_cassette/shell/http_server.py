"""The HTTP server side that record and replay share.

Owns: taking requests as values, sending responses without headers of aiohttp's own, refusing
whoever talks to us under a foreign name, binding and stopping.
Does not own: what is answered.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import resource
import socket
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from aiohttp import HttpVersion11, StreamReader, hdrs, web
from multidict import CIMultiDict

from mrtr_cassette.core.wire.http import (
    FORBIDDEN_IN_HEADER,
    HOP_BY_HOP,
    LARGEST_BODY,
    Headers,
    Request,
)
from mrtr_cassette.errors import UsageError, printable
from mrtr_cassette.options import Options

LONGEST_HEADER: Final = 256 * 1024
"""Bytes of one header line; aiohttp's own limit of 8 KiB is less than some tokens."""
SLOWEST_BODY_S: Final = 60.0
"""Seconds in which a request's body has to come; one that is only half sent holds memory."""

MOST_HEADERS: Final = 1000
"""Headers of one message; aiohttp's own limit is 128."""
LONGEST_IDLE_S: Final = 75.0
"""Seconds a connection may wait for a whole request head, from its start or the last response."""
_LAST_CHUNK = b"0\r\n\r\n"
_WORTH_A_COPY = 64 * 1024
"""Bytes up to which one write of two parts costs less than two writes."""
_LARGEST_BURST = 1024
_SPARE_FILES = 16
"""Descriptors that are left for the journal, the cassette and whoever else is in the process."""
_WITHOUT_BODY = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_KNOWN_STATUS = frozenset(HTTPStatus)

Handler = Callable[[web.BaseRequest, Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Access:
    """Where the proxy listens, who may talk to it, and how much at once.

    Attributes:
        host: address to listen on.
        port: port to listen on; 0 takes a free one.
        allowed_hosts: further names under which clients may call it.
        allowed_origins: further origins whose pages may call it, such as `https://app.example`.
        max_body: bytes of the largest body that is taken.
    """

    host: str = "127.0.0.1"
    port: int = 0
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    max_body: int = LARGEST_BODY

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host.lower() == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def is_named(self, name: str) -> bool:
        """Tell whether a host name is one under which clients call the proxy."""
        allowed = (self.host, *self.allowed_hosts)
        return name in _LOOPBACK_NAMES or name in {host.lower() for host in allowed}

    def refusal(self, host: str, origin: str | None) -> str | None:
        """Return why a request is refused; DNS rebinding shows in `Host` or `Origin`.

        Args:
            host: the request's `Host`.
            origin: the request's `Origin`, or None.
        """
        if not self._is_ours(host):
            return f"refused: the Host {host!r} is not this proxy's; see --allow-host"
        if origin is not None and origin not in self.allowed_origins and not self._is_ours(origin):
            return f"refused: the Origin {origin!r} is not this machine's; see --allow-origin"
        return None

    def _is_ours(self, value: str) -> bool:
        try:
            name = urlsplit(value if "//" in value else f"//{value}").hostname
        except ValueError:
            return False
        if name is None:
            return False
        if self.is_named(name):
            return True
        if self.is_loopback:
            return False
        # No name leads to an address literal, so rebinding can't be behind it.
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def access_of(options: Options) -> Access:
    """Return what options say of where to listen, and for whom."""
    return Access(
        options.host,
        options.port,
        tuple(options.allow_hosts),
        tuple(options.allow_origins),
        options.max_body,
    )


LOOPBACK: Final = Access()
"""A free port that only this machine can reach."""

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Address:
    """Where the proxy listens."""

    host: str
    port: int

    def url(self, path: str) -> str:
        """Return the URL of a path here."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}{path}"


async def read_request(request: web.BaseRequest, largest: int) -> Request:
    """Return a request as a value, with its body.

    Args:
        request: the request, of which the head has come.
        largest: bytes of the largest body that is taken.

    Raises:
        web.HTTPRequestEntityTooLarge: the body is larger than that.
        web.HTTPRequestTimeout: the body does not come.
    """
    target = request.raw_path
    if not target.startswith("/"):
        target = request.rel_url.raw_path_qs or "/"
    headers = _header_texts(request.raw_headers)
    content = request.content
    if content.is_eof():
        body = content.read_nowait()
    elif (announced := request.content_length or 0) > largest:
        raise web.HTTPRequestEntityTooLarge(largest, announced)
    else:
        try:
            async with asyncio.timeout(SLOWEST_BODY_S):
                body = await _read_body(content, largest)
        except TimeoutError:
            raise web.HTTPRequestTimeout(
                text=f"the request's body did not come within {SLOWEST_BODY_S:.0f} s\n"
            ) from None
    if len(body) > largest:
        raise web.HTTPRequestEntityTooLarge(largest, len(body))
    return Request(request.method, target, headers, body)


async def _read_body(content: StreamReader, largest: int) -> bytes:
    """Return all of a body, or more than `largest` bytes of it."""
    chunks = []
    size = 0
    while size <= largest and (chunk := await content.readany()):
        chunks.append(chunk)
        size += len(chunk)
    return b"".join(chunks)


@lru_cache(maxsize=1024)
def _header_texts(raw: tuple[tuple[bytes, bytes], ...]) -> Headers:
    # A client sends the same headers with call after call.
    return tuple((header_text(name), header_text(value)) for name, value in raw)


def header_text(raw: bytes) -> str:
    """Decode a header as what it says, or as Latin-1 (RFC 9110, section 5.5)."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def write_together(transport: asyncio.WriteTransport, first: bytes, rest: bytes) -> None:
    """Send two parts, in one write where that costs less."""
    if len(rest) < _WORTH_A_COPY:
        transport.write(first + rest)
    else:
        transport.write(first)
        transport.write(rest)


def end_to_end(headers: Iterable[tuple[str, str]]) -> Headers:
    """Return headers less those of one connection."""
    listed = tuple(headers)
    named = {
        name.strip().lower()
        for key, value in listed
        if key.lower() == "connection"
        for name in value.split(",")
    }
    return tuple(
        (name, value)
        for name, value in listed
        if name.lower() not in HOP_BY_HOP and name.lower() not in named
    )


@dataclass(frozen=True, slots=True)
class Head:
    """The status and the headers of a response, as bytes, less the framing of its body.

    Attributes:
        status: the HTTP status.
        raw: the status line after the version, and each header, with line ends.
        has_length: a `Content-Length` is among the headers.
    """

    status: int
    raw: bytes
    has_length: bool


@lru_cache(maxsize=1024)
def render_head(status: int, headers: Headers, *, reason: str | None = None) -> Head:
    """Return a head with these headers and no others.

    Raises:
        ValueError: a header has what HTTP forbids.
    """
    if reason is None:
        reason = HTTPStatus(status).phrase if status in _KNOWN_STATUS else ""
    lines = [f" {status} {reason}\r\n"]
    has_length = False
    for name, value in headers:
        if FORBIDDEN_IN_HEADER.search(name) or FORBIDDEN_IN_HEADER.search(value):
            raise ValueError(f"the header {printable(name)} has a control character")
        is_length = name.lower() == "content-length"
        if is_length and status == HTTPStatus.NO_CONTENT:
            continue
        has_length = has_length or is_length
        lines.append(f"{name}: {value}\r\n")
    return Head(status, "".join(lines).encode("utf-8", "surrogateescape"), has_length)


class Response(web.StreamResponse):
    """A response that has been sent: its head as given, and nothing else but the framing.

    It goes to the transport as it is. aiohttp's own responses have a date, a server and a content
    type that nobody sent.
    """

    def __init__(self, request: web.BaseRequest, head: Head) -> None:
        """Begin the response to a request; nothing is sent yet."""
        # What is sent is kept here; the base class, whose part is to be one, stays empty.
        self._request = request
        self._head = head
        self._has_body = request.method != hdrs.METH_HEAD and head.status not in _WITHOUT_BODY
        self._is_started = False
        self._is_chunked = False
        self._lasts = request.keep_alive

    @property
    def keep_alive(self) -> bool:
        """Whether the connection goes on after this response."""
        return self._lasts

    async def send_whole(self, body: bytes) -> None:
        """Send a head that announces no length, and all of the body, in one write."""
        framing = b""
        if body or self._head.status not in _WITHOUT_BODY:
            framing = b"Content-Length: %d\r\n" % len(body)
        await self._write(self._whole_head(framing), body if self._has_body else b"")

    async def send(self, chunk: bytes = b"", *, is_last: bool = False) -> None:
        """Send the head, if it has not been sent, and the next bytes of the body.

        Args:
            chunk: the bytes; they may be none.
            is_last: the body ends with them.
        """
        head = b"" if self._is_started else self._begin()
        framed = self._framed(chunk, is_last=is_last)
        if head or framed:
            await self._write(head, framed)

    def _begin(self) -> bytes:
        """Return the head, with how the body will be framed."""
        self._is_started = True
        framing = b""
        if self._has_body and not self._head.has_length:
            # Without either, an older client knows the end by the close.
            self._is_chunked = self._request.version >= HttpVersion11
            self._lasts = self._lasts and self._is_chunked
            framing = b"Transfer-Encoding: chunked\r\n" if self._is_chunked else b""
        return self._whole_head(framing)

    async def prepare(self, request: web.BaseRequest) -> None:
        """Do nothing: what a handler returns has been sent."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: what a handler returns has been sent."""

    def _whole_head(self, framing: bytes) -> bytes:
        is_old = self._request.version < HttpVersion11
        # Each version says only what is not its habit.
        connection = b""
        if is_old == self._lasts:
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


class _OneLine(logging.Handler):
    """Tells of what aiohttp's server logs in one line, without a traceback."""

    def __init__(self, log: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = f"a request could not be handled: {error!r}" if error else record.getMessage()
        with suppress(OSError):
            self._log(printable(text))


def _server_log(log: Callable[[str], None] | None) -> logging.Logger:
    # One of its own for each server, as each has a log of its own; none is looked up by name.
    logger = logging.Logger("mrtr_cassette.server")  # noqa: LOG001
    logger.addHandler(logging.NullHandler() if log is None else _OneLine(log))
    return logger


class _Server(web.Server):
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
    free = limit - sum(1 for _ in Path("/dev/fd").iterdir()) - _SPARE_FILES
    # An event loop accepts a whole burst before it can refuse the first.
    burst = max(1, min(_LARGEST_BURST, free // 4))
    return max(1, (free - burst) // files_each), burst


@asynccontextmanager
async def serving(
    handler: Handler, access: Access, log: Callable[[str], None] | None, *, files_each: int = 1
) -> AsyncIterator[Address]:
    """Serve `handler` for every method and path until the block ends.

    Requests under way when it ends are cancelled, and awaited.

    Args:
        handler: answers a request.
        access: where to listen, and for whom.
        log: takes a line for each request that could not be handled.
        files_each: how many descriptors a client's connection needs.

    Raises:
        UsageError: the address can't be bound.
    """
    running: set[asyncio.Task[object]] = set()
    is_ending = False

    @lru_cache(maxsize=1024)
    def refusal_of(raw_headers: tuple[tuple[bytes, bytes], ...]) -> str | None:
        headers = CIMultiDict(_header_texts(raw_headers))
        return access.refusal(headers.get(hdrs.HOST, ""), headers.get(hdrs.ORIGIN))

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        # The connection's, which waits for the handler's.
        task = request.task
        running.add(task)
        try:
            if is_ending:
                # It came while the others were being cancelled.
                raise asyncio.CancelledError
            refusal = refusal_of(request.raw_headers)
            if refusal is not None:
                return web.Response(status=403, text=f"{refusal}\n")
            transport = None if request.content.is_eof() else request.transport
            if transport and request.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
                transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return await handler(request, await read_request(request, access.max_body))
        except web.HTTPRequestEntityTooLarge:
            text = f"the body has more than {access.max_body:,} bytes; see --max-body\n"
            return web.Response(status=413, text=text)
        except ConnectionResetError:
            # Nobody is there any more for whom there could be a response.
            raise asyncio.CancelledError from None
        finally:
            running.discard(task)

    most, burst = _most_connections(files_each)
    server = _Server(
        handle,
        most,
        access_log=None,
        logger=_server_log(log),
        auto_decompress=False,
        handler_cancellation=True,
        keepalive_timeout=LONGEST_IDLE_S,
        max_field_size=LONGEST_HEADER,
        max_headers=MOST_HEADERS,
        max_line_size=LONGEST_HEADER,
    )
    runner = web.ServerRunner(server, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, access.host, access.port, backlog=burst)
        try:
            await site.start()
        except OSError as error:
            raise UsageError(_bind_problem(access, error), hint="choose another --port") from None
        bound = runner.addresses[0]
        yield Address(access.host, bound[1])
        is_ending = True
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    finally:
        await runner.cleanup()


def break_off(request: web.BaseRequest) -> None:
    """End a response so that the client sees that it is not whole."""
    if request.transport is None:
        return
    if request.version < HttpVersion11:
        # Where the close is the end of the body, only a reset tells that it came too soon.
        request.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        request.transport.abort()
    else:
        # What was sent still arrives; the last chunk, or the rest of the length, does not.
        request.transport.close()


def _bind_problem(access: Access, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {access.port} on {access.host} is in use"
    reason = (error.strerror or str(error)).lower()
    return f"can't listen on {access.host} port {access.port}: {reason}"
