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
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from aiohttp import HttpVersion11, hdrs, web
from multidict import CIMultiDict

from mrtr_cassette.core.wire import HOP_BY_HOP, LARGEST_BODY, Headers, Request
from mrtr_cassette.errors import UsageError, printable

LONGEST_HEADER: Final = 256 * 1024
"""Bytes of one header line; aiohttp's own limit of 8 KiB is less than some tokens."""
SLOWEST_BODY_S: Final = 60.0
"""Seconds in which a request's body has to come; one that is only half sent holds memory."""

Handler = Callable[[web.Request, Request], Awaitable[web.StreamResponse]]


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


async def read_request(request: web.Request) -> Request:
    """Return a request as a value, with its body.

    Raises:
        web.HTTPRequestEntityTooLarge: the body is larger than the server takes.
        web.HTTPRequestTimeout: the body does not come.
    """
    target = request.raw_path
    if not target.startswith("/"):
        target = request.rel_url.raw_path_qs or "/"
    headers = tuple((header_text(name), header_text(value)) for name, value in request.raw_headers)
    announced = request.content_length or 0
    if announced > request.client_max_size:
        raise web.HTTPRequestEntityTooLarge(request.client_max_size, announced)
    try:
        async with asyncio.timeout(SLOWEST_BODY_S):
            body = await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout(
            text=f"the request's body did not come within {SLOWEST_BODY_S:.0f} s\n"
        ) from None
    return Request(request.method, target, headers, body)


def header_text(raw: bytes) -> str:
    """Decode a header as what it says, or as Latin-1 (RFC 9110, section 5.5)."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


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


async def _leave_out_own_headers(_: web.BaseRequest, response: web.StreamResponse) -> None:
    """Take back what aiohttp adds and nobody sent: the client sees the server's headers only."""
    given = response.get(GIVEN_HEADERS)
    if given is None:
        return
    for name in (hdrs.SERVER, hdrs.DATE, hdrs.CONTENT_TYPE):
        if name not in given:
            response.headers.popall(name, None)


GIVEN_HEADERS = web.ResponseKey("given_headers", frozenset)
"""Under this key a response has the names of the headers that it really has."""


def respond(status: int, headers: Headers, *, reason: str | None = None) -> web.StreamResponse:
    """Return a response to stream, with these headers and no others."""
    given = CIMultiDict(headers)
    response = web.StreamResponse(status=status, reason=reason, headers=given)
    response[GIVEN_HEADERS] = frozenset(name.title() for name in given)
    return response


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


def _server_log(log: Callable[[str], None]) -> logging.Logger:
    # One of its own for each server, as each has a log of its own; none is looked up by name.
    logger = logging.Logger("mrtr_cassette.server")  # noqa: LOG001
    logger.addHandler(_OneLine(log))
    return logger


@asynccontextmanager
async def serving(
    handler: Handler, access: Access, log: Callable[[str], None]
) -> AsyncIterator[Address]:
    """Serve `handler` for every method and path until the block ends.

    Requests under way when it ends are cancelled, and awaited. `log` takes a line for each
    request that could not be handled.

    Raises:
        UsageError: the address can't be bound.
    """
    running: set[asyncio.Task[object]] = set()

    async def handle(request: web.Request) -> web.StreamResponse:
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("unreachable because aiohttp runs handlers in tasks")
        running.add(task)
        try:
            refusal = access.refusal(
                request.headers.get(hdrs.HOST, ""), request.headers.get(hdrs.ORIGIN)
            )
            if refusal is not None:
                return web.Response(status=403, text=f"{refusal}\n")
            return await handler(request, await read_request(request))
        except web.HTTPRequestEntityTooLarge:
            text = f"the body has more than {access.max_body:,} bytes; see --max-body\n"
            return web.Response(status=413, text=text)
        finally:
            running.discard(task)

    app = web.Application(client_max_size=access.max_body)
    app.router.add_route("*", "/{path:.*}", handle)
    app.on_response_prepare.append(_leave_out_own_headers)
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=_server_log(log),
        auto_decompress=False,
        handle_signals=False,
        handler_cancellation=True,
        max_field_size=LONGEST_HEADER,
        max_line_size=LONGEST_HEADER,
        shutdown_timeout=1.0,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, access.host, access.port, backlog=1024)
        try:
            await site.start()
        except OSError as error:
            raise UsageError(_bind_problem(access, error), hint="choose another --port") from None
        bound = runner.addresses[0]
        yield Address(access.host, bound[1])
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    finally:
        await runner.cleanup()


def break_off(request: web.Request) -> None:
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
