"""The HTTP server side that record and replay share.

Owns: taking requests as values, sending responses without headers of aiohttp's own, refusing
whoever talks to us under a foreign name, binding and stopping.
Does not own: what is answered.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from multidict import CIMultiDict

from mrtr_cassette.core.wire import HOP_BY_HOP, Headers, Request
from mrtr_cassette.errors import UsageError

_NO_LIMIT = 2**62
_LONGEST_HEADER = 256 * 1024
"""Bytes of one header line; aiohttp's own limit of 8 KiB is less than some tokens."""

Handler = Callable[[web.Request, Request], Awaitable[web.StreamResponse]]

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
    """Return a request as a value, with its body."""
    target = request.raw_path
    if not target.startswith("/"):
        target = request.rel_url.raw_path_qs or "/"
    headers = tuple((header_text(name), header_text(value)) for name, value in request.raw_headers)
    return Request(request.method, target, headers, await request.read())


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


def multidict(headers: Headers) -> CIMultiDict[str]:
    """Return headers as aiohttp wants them, order and spelling kept."""
    return CIMultiDict(headers)


def _is_ours(value: str, host: str) -> bool:
    try:
        name = urlsplit(value if "//" in value else f"//{value}").hostname
    except ValueError:
        return False
    return name is not None and (name in _LOOPBACK_NAMES or name == host.lower())


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
    given = multidict(headers)
    response = web.StreamResponse(status=status, reason=reason, headers=given)
    response[GIVEN_HEADERS] = frozenset(name.title() for name in given)
    return response


@asynccontextmanager
async def serving(handler: Handler, host: str, port: int) -> AsyncIterator[Address]:
    """Serve `handler` for every method and path until the block ends.

    Requests under way when it ends are cancelled, and awaited.

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
            refusal = _refusal(request, host)
            if refusal is not None:
                return web.Response(status=403, text=refusal)
            return await handler(request, await read_request(request))
        finally:
            running.discard(task)

    app = web.Application(client_max_size=_NO_LIMIT)
    app.router.add_route("*", "/{path:.*}", handle)
    app.on_response_prepare.append(_leave_out_own_headers)
    runner = web.AppRunner(
        app,
        access_log=None,
        auto_decompress=False,
        handle_signals=False,
        handler_cancellation=True,
        max_field_size=_LONGEST_HEADER,
        max_line_size=_LONGEST_HEADER,
        shutdown_timeout=1.0,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, backlog=1024)
        try:
            await site.start()
        except OSError as error:
            raise UsageError(
                _bind_problem(host, port, error), hint="choose another --port"
            ) from None
        bound = runner.addresses[0]
        yield Address(host, bound[1])
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    finally:
        await runner.cleanup()


def _refusal(request: web.Request, host: str) -> str | None:
    """Return why a request is refused: DNS rebinding shows in `Host` or `Origin`."""
    name = request.headers.get(hdrs.HOST, "")
    if not _is_ours(name, host):
        return f"refused: the Host {name!r} is not this proxy's\n"
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is not None and not _is_ours(origin, host):
        return f"refused: the Origin {origin!r} is not this machine's\n"
    return None


def _bind_problem(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use"
    return f"can't listen on {host} port {port}: {error.strerror or error}".lower()
