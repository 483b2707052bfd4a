"""What `aiohttp_server` relies on in aiohttp, one thing a test.

When an upgrade of aiohttp breaks one of these, the name of the test says what is to be mended before
the pin in pyproject.toml is raised. The tests use aiohttp alone, so that none of our code hides it.
"""

import asyncio
import logging
import re
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web
from harness import looped

Handle = Callable[[web.BaseRequest], Awaitable[Any]]

REQUEST = b"POST /a%2Fb?c HTTP/1.1\r\nHost: h\r\nX-One: caf\xe9\r\nContent-Length: 2\r\n\r\nok"


class Sent:
    """A response with nothing but what aiohttp is thought to ask for."""

    __slots__ = ("keep_alive",)

    def __init__(self, *, keep_alive: bool = True) -> None:
        self.keep_alive = keep_alive

    async def prepare(self, request: web.BaseRequest) -> None:
        """Do nothing."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing."""


@asynccontextmanager
async def serving(
    handle: Handle, kind: type[web.Server] = web.Server, **options: Any
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, web.Server]]:
    """Serve with aiohttp's low-level server, and give a client's connection to it."""
    server = kind(cast("Any", handle), access_log=None, **options)
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(cast("Any", server), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer, server
    finally:
        writer.close()
        listener.close()
        server.pre_shutdown()
        await server.shutdown(1.0)


async def seen_of(raw: bytes, look: Callable[[web.BaseRequest], Any], **options: Any) -> Any:
    """Return what a look at the request that these bytes are comes to."""
    seen: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def handle(request: web.BaseRequest) -> Sent:
        seen.set_result(look(request))
        return Sent()

    async with serving(handle, **options) as (_, writer, _):
        writer.write(raw)
        return await seen


def test_pin_is_the_installed_minor_version() -> None:
    """The facts below were looked at for the version that pyproject.toml allows."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    (pin,) = (line for line in project["project"]["dependencies"] if line.startswith("aiohttp>"))
    lowest, highest = re.findall(r"\d+\.(\d+)", pin)
    installed = int(aiohttp.__version__.split(".")[1])

    assert int(highest) == int(lowest) + 1
    assert installed == int(lowest)


@looped
async def test_response_needs_prepare_write_eof_and_keep_alive_only() -> None:
    """What a handler returns may be any object with these three; the bytes are the handler's."""

    async def handle(request: web.BaseRequest) -> Sent:
        assert request.transport is not None
        request.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        return Sent()

    async with serving(handle) as (reader, writer, _):
        for _ in range(2):
            writer.write(REQUEST)
            assert await reader.readuntil(b"ok") == (
                b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
            )


@looped
async def test_keep_alive_of_the_response_decides_on_the_connection() -> None:
    """A response that says so ends its connection."""

    async def handle(_: web.BaseRequest) -> Sent:
        return Sent(keep_alive=False)

    async with serving(handle) as (reader, writer, _):
        writer.write(REQUEST)
        assert await reader.read() == b""


@looped
async def test_request_has_its_target_and_headers_as_they_came() -> None:
    """Neither the path nor a header is decoded, in the names that are used."""
    target, headers, method, old = await seen_of(
        REQUEST,
        lambda request: (
            request.raw_path,
            request.raw_headers,
            request.method,
            request.version < aiohttp.HttpVersion11,
        ),
    )

    assert (target, method, old) == ("/a%2Fb?c", "POST", False)
    assert headers[1] == (b"X-One", b"caf\xe9")


@looped
async def test_body_that_has_come_can_be_read_at_once() -> None:
    """`content` is at its end when the handler runs, and gives the body without waiting."""
    size, is_eof, body = await seen_of(
        REQUEST,
        lambda request: (
            request.content_length,
            request.content.is_eof(),
            request.content.read_nowait(),
        ),
    )

    assert (size, is_eof, body) == (2, True, b"ok")


@looped
async def test_body_may_come_later_as_it_came() -> None:
    """`readany` gives what has come, coded as it came, and nothing at the end."""
    parts = [b"\x1f\x8bno", b"gzip"]
    seen: list[bytes] = []
    done = asyncio.Event()

    async def handle(request: web.BaseRequest) -> Sent:
        assert not request.content.is_eof()
        while part := await request.content.readany():
            seen.append(part)
            come.set()
        done.set()
        return Sent()

    come = asyncio.Event()
    async with serving(handle, auto_decompress=False) as (_, writer, _):
        writer.write(
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Encoding: gzip\r\nContent-Length: 8\r\n\r\n"
        )
        writer.write(parts[0])
        await come.wait()
        writer.write(parts[1])
        await done.wait()

    assert b"".join(seen) == b"".join(parts)


@looped
async def test_task_of_a_request_ends_its_handler_too() -> None:
    """Cancelling `request.task` cancels what the handler waits for."""
    started, ended = asyncio.Event(), asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    async def handle(request: web.BaseRequest) -> Sent:
        tasks.append(request.task)
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return Sent()

    async with serving(handle) as (_, writer, _):
        writer.write(REQUEST)
        await started.wait()
        tasks[0].cancel()
        await ended.wait()


@looped
async def test_handler_is_cancelled_when_its_client_leaves() -> None:
    """`handler_cancellation` does so, and the transport is gone or closing then."""
    started, ended = asyncio.Event(), asyncio.Event()

    async def handle(request: web.BaseRequest) -> Sent:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert request.transport is None or request.transport.is_closing()
            ended.set()
        return Sent()

    async with serving(handle, handler_cancellation=True) as (_, writer, _):
        writer.write(REQUEST)
        await started.wait()
        writer.close()
        await ended.wait()


@looped
async def test_drain_waits_while_the_client_does_not_read() -> None:
    """`writer.drain` follows the transport that is written to past it."""
    waiting, drained = asyncio.Event(), asyncio.Event()

    async def handle(request: web.BaseRequest) -> Sent:
        assert request.transport is not None
        request.transport.write(b"x" * 2**24)
        assert request.transport.get_write_buffer_size() > 0
        waiting.set()
        await request.writer.drain()
        drained.set()
        return Sent(keep_alive=False)

    async with serving(handle) as (reader, writer, _):
        writer.write(REQUEST)
        await waiting.wait()
        assert not drained.is_set()
        assert len(await reader.read()) == 2**24
        assert drained.is_set()


@looped
async def test_connections_are_told_to_the_server() -> None:
    """A subclass sees each connection made, with its transport, and each one lost."""
    made: list[Any] = []
    lost = asyncio.Event()

    class Counting(web.Server):
        def connection_made(
            self, handler: web.RequestHandler, transport: asyncio.Transport
        ) -> None:
            super().connection_made(handler, transport)
            made.append((handler.logger, transport.is_closing()))

        def connection_lost(
            self, handler: web.RequestHandler, exc: BaseException | None = None
        ) -> None:
            super().connection_lost(handler, exc)
            lost.set()

    logger = logging.Logger("own")  # noqa: LOG001  none is looked up by name

    async def handle(_: web.BaseRequest) -> Sent:
        return Sent()

    async with serving(handle, Counting, logger=logger) as (_, writer, _):
        writer.write(REQUEST)
        writer.write_eof()
        writer.close()
        await lost.wait()
    assert made == [(logger, False)]


@pytest.mark.parametrize(
    ("limits", "raw"),
    [
        ({"max_headers": 3}, b"GET / HTTP/1.1\r\nHost: h\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n"),
        ({"max_field_size": 9}, b"GET / HTTP/1.1\r\nHost: h\r\nA: 0123456789\r\n\r\n"),
        ({"max_line_size": 9}, b"GET /0123456789 HTTP/1.1\r\nHost: h\r\n\r\n"),
    ],
    ids=["max_headers", "max_field_size", "max_line_size"],
)
@looped
async def test_limits_of_a_head_are_options(limits: dict[str, int], raw: bytes) -> None:
    """A head beyond a limit gets a 400, and no handler sees it."""

    async def handle(_: web.BaseRequest) -> Sent:
        raise AssertionError("unreachable because the head is refused")

    async with serving(handle, **limits, logger=logging.Logger("own")) as (reader, writer, _):  # noqa: LOG001
        writer.write(raw)
        assert (await reader.readline()).split()[1] == b"400"


@looped
async def test_connection_without_a_head_is_closed_in_time() -> None:
    """`keepalive_timeout` holds from the start of a connection, before any request."""

    async def handle(_: web.BaseRequest) -> Sent:
        raise AssertionError("unreachable because no head comes")

    async with serving(handle, keepalive_timeout=0.01) as (reader, writer, _):
        writer.write(b"GET / HTTP/1.1\r\n")
        assert await reader.read() == b""


@looped
async def test_failing_handler_is_logged_with_its_error() -> None:
    """Aiohttp answers with a 500, and the log has the error itself."""
    records: list[logging.LogRecord] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    logger = logging.Logger("own")  # noqa: LOG001  none is looked up by name
    logger.addHandler(Kept())

    async def handle(_: web.BaseRequest) -> Sent:
        raise ZeroDivisionError

    async with serving(handle, logger=logger) as (reader, writer, _):
        writer.write(REQUEST)
        assert (await reader.readline()).split()[1] == b"500"
    assert [record.exc_info[0] for record in records if record.exc_info] == [ZeroDivisionError]


@looped
async def test_shutdown_closes_connections_that_are_idle() -> None:
    """After `pre_shutdown` and `shutdown` a client that waits sees the end."""

    async def handle(request: web.BaseRequest) -> Sent:
        assert request.transport is not None
        request.transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        return Sent()

    async with serving(handle) as (reader, writer, server):
        writer.write(REQUEST)
        await reader.readuntil(b"\r\n\r\n")
        server.pre_shutdown()
        await server.shutdown(1.0)
        assert await reader.read() == b""
