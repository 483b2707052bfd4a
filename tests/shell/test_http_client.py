"""Facts about the client side: connections are kept where that is safe, and framing is read."""

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ssl import SSLError, create_default_context
from typing import Any

import aiohappyeyeballs
import pytest
from harness import looped
from patience import HANGS_S
from standin import CHUNKED, Script, Upstream, Visit, chunk, response, upstream
from yarl import URL

from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.errors import UsageError
from mrtr_cassette.shell.http.client import (
    Client,
    HttpResponse,
    connected_client,
    read_up_to,
    upstream_url,
)
from mrtr_cassette.shell.http.transport import network_reason


@asynccontextmanager
async def calling(script: Script) -> AsyncIterator[tuple[Client, Upstream]]:
    """Give a client, and the upstream that does what a script says."""
    async with (
        upstream(script) as server,
        connected_client(URL(server.url).origin(), None) as client,
    ):
        yield client, server


async def send(client: Client, body: bytes = b"", method: str = "POST") -> HttpResponse:
    """Send a request without headers of its own."""
    return await client.send_request(Request(method, "/mcp", (), body))


async def whole(response: HttpResponse) -> bytes:
    """Read a body to its end."""
    chunks = []
    while chunk := await response.read():
        chunks.append(chunk)

    assert response.is_read
    return b"".join(chunks)


async def body_of(client: Client, method: str = "POST") -> bytes:
    """Send a request, and read its response's body."""
    return await whole(await send(client, method=method))


def saying(raw: bytes) -> Script:
    """Answer each request with the same bytes, and leave the connection open."""

    async def script(visit: Visit) -> None:
        await visit.send(raw)

    return script


def saying_until_left(left: asyncio.Event, *raw: bytes) -> Script:
    """Answer with these bytes one after the other, and tell when the other end has left."""

    async def script(visit: Visit) -> None:
        for part in raw:
            await visit.send(part)

        await visit.left()
        left.set()

    return script


@pytest.mark.parametrize(
    "raw",
    [
        response(b"ab"),
        response(b"", CHUNKED, length=False) + chunk(b"a") + chunk(b"b") + chunk(b""),
        response(b"", CHUNKED, length=False)
        + b"1 \r\na\r\n1\r\nb\r\n0\r\nLate: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nab",
        response(b"", "Link: </a>", status="103 Early Hints", length=False)
        + response(b"ab"),
        b"HTTP/1.1 100 Continue\r\n\r\n" + response(b"ab"),
    ],
    ids=["length", "chunks", "trailers", "bare line feeds", "hints", "continue"],
)
@looped
async def test_one_connection_serves_one_request_after_the_other(raw: bytes) -> None:
    """A connection whose response has ended is taken again."""
    async with calling(saying(raw)) as (client, server):
        for _ in range(3):
            got = await send(client)

            assert got.status == 200
            assert await whole(got) == b"ab"

    assert server.connections == 1


@pytest.mark.parametrize(
    "raw",
    [
        response(b"ab", "Connection: close"),
        response(b"ab").replace(b"1.1", b"1.0"),
        response(b"ab") + b"H",
    ],
    ids=["close", "older version", "more than was asked for"],
)
@looped
async def test_other_connections_are_not_kept(raw: bytes) -> None:
    """After a response that ends its connection, or is followed by something, comes another."""
    async with calling(saying(raw)) as (client, server):
        for _ in range(2):
            got = await send(client)

            assert (got.read_now() or await got.read()) == b"ab"

    assert server.connections == 2


@looped
async def test_connection_that_says_something_unasked_is_not_used() -> None:
    """What comes while nobody has asked is not taken for the response to the next request."""
    left = asyncio.Event()

    script = saying_until_left(left, response(b"asked"), response(b"unasked"))
    async with calling(script) as (client, server):
        assert await body_of(client) == b"asked"

        await left.wait()

        assert await body_of(client) == b"asked"

    assert server.connections == 2


@looped
async def test_connection_that_nobody_uses_is_closed() -> None:
    """Its timer looks again later if it was used meanwhile."""
    loop: Any = asyncio.get_running_loop()
    real_time = loop.time
    call_later = loop.call_later
    timers: list[tuple[float, Callable[[], None]]] = []
    elapsed_s = 0.0

    def keep_timer(delay: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        timers.append((delay, callback))
        handle: asyncio.TimerHandle = call_later(HANGS_S, callback)
        return handle

    loop.time = lambda: real_time() + elapsed_s
    async with calling(saying(response(b"ab"))) as (client, server):
        loop.call_later = keep_timer
        await body_of(client)
        ((idle_s, look),) = timers
        elapsed_s += 0.6 * idle_s
        await body_of(client)

        assert len(timers) == 1

        elapsed_s += 0.6 * idle_s
        look()

        assert (len(client.idle_connections), server.connections) == (1, 1)

        _, look_again = timers[1]
        elapsed_s += idle_s
        look_again()
        # The loop tells the connection that it is closed.
        await asyncio.sleep(0)
        await body_of(client)

    assert server.connections == 2


@looped
async def test_early_answer_ends_the_connection() -> None:
    """Where a response comes before the request has been sent, the rest is not sent."""
    body = b"a" * 2**26
    raw = response(b"too large", status="413 Content Too Large")

    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        came = 0
        with contextlib.suppress(ConnectionError):
            while part := await reader.read(2**16):
                came += len(part)

        ended.set_result(came)
        writer.close()

    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(early, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with (
        server,
        connected_client(URL(f"http://127.0.0.1:{port}"), None) as client,
    ):
        got = await send(client, body)

        assert (got.status, await whole(got)) == (413, b"too large")
        assert client.idle_connections == []
        assert await ended < len(body)


@looped
async def test_response_to_head_has_no_body() -> None:
    """Whatever its head says, and the next request has its own response."""

    async def script(visit: Visit) -> None:
        is_head = visit.request.head.line.startswith("HEAD")
        await visit.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n" + b"ab" * (not is_head)
        )

    async with calling(script) as (client, _):
        assert await body_of(client, "HEAD") == b""
        assert await body_of(client, "GET") == b"ab"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"SSH-2.0\r\n", "no HTTP response: Expected HTTP/"),
        (
            b"HTTP/1.1 101 Go\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            "another protocol",
        ),
        (
            b"HTTP/1.1 200 OK\r\nX: a\x01b\r\n\r\n",
            "no HTTP response: Invalid header value",
        ),
        (b"HTTP/1.1 200 OK\r\n", "the connection was closed$"),
        (
            b"",
            "the connection was closed; if it speaks TLS, use https:// instead of http://",
        ),
        (
            bytes.fromhex("15030100020246"),
            "it speaks TLS; use https:// instead of http://",
        ),
    ],
    ids=[
        "no HTTP",
        "another protocol",
        "control character",
        "half a head",
        "nothing",
        "TLS",
    ],
)
@looped
async def test_what_is_no_response_is_an_error_with_the_reason(
    raw: bytes, reason: str
) -> None:
    """Nothing is taken for a response that is none."""

    async def script(visit: Visit) -> None:
        await visit.send(raw)
        visit.close()

    async with calling(script) as (client, _):
        with pytest.raises(ConnectionError, match=reason):
            await send(client)


@looped
async def test_server_without_tls_is_told_as_one() -> None:
    """Whoever writes https by mistake learns which scheme the server speaks."""

    async def refuse(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with (
        server,
        connected_client(
            URL(f"https://{host}:{port}"), create_default_context()
        ) as client,
    ):
        with pytest.raises(SSLError) as caught:
            await send(client)

    reason = network_reason(caught.value)

    assert reason == "it speaks plain HTTP; use http:// instead of https://"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://h:99999/mcp", "'http://h:99999/mcp' has a port that is not a number"),
        ("http://me:hunter2/mcp", "'http://…' has a port that is not a number"),
        ("http://[::1]:x/mcp", "'http://…' has a port that is not a number"),
        ("http://::1:80/mcp", "'http://::1:80/mcp' has an IPv6 address without"),
        ("http://me:hunter2@::1/", "'http://…' is not an HTTP URL"),
        ("http://a b/mcp", "'http://a b/mcp' has a space"),
        ("http://me:hunt er2@h/", "'http://…' has a space"),
        ("http://[::1/mcp", "'http://…' is not an HTTP URL"),
        ("http://", "'http://' is not an HTTP URL"),
        ("http://xn--a/mcp", "'http://xn--a/mcp' is not an HTTP URL"),
        ("ftp://h/mcp", "'ftp://h/mcp' is not an HTTP URL"),
        ("python server.py", "'python server.py' is not an HTTP URL"),
    ],
)
def test_what_is_wrong_with_an_unusable_url_is_told(url: str, told: str) -> None:
    """It is told in words, since a text that may have a password is not shown."""
    with pytest.raises(UsageError) as caught:
        upstream_url(url)

    assert str(caught.value).startswith(f"the upstream {told}")


@looped
async def test_the_system_s_limit_for_connecting_is_not_told_as_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be shorter, so no seconds are named that have not passed."""

    async def refuse(*_: object, **__: object) -> None:
        raise TimeoutError(errno.ETIMEDOUT, "Connect call failed ('127.0.0.1', 1)")

    monkeypatch.setattr(aiohappyeyeballs, "start_connection", refuse)
    async with connected_client(URL("http://127.0.0.1:1"), None) as client:
        with pytest.raises(TimeoutError) as caught:
            await send(client)

    assert network_reason(caught.value) == str(caught.value) == "connection timed out"


@looped
async def test_a_body_is_read_up_to_a_limit() -> None:
    """One that is larger is none, and the rest of it isn't read."""

    async def script(visit: Visit) -> None:
        await visit.send(response(b"123"))

    async with calling(script) as (client, _):
        assert await read_up_to(3, await send(client)) == b"123"
        assert await read_up_to(2, await send(client)) is None


@looped
async def test_upstream_waits_for_a_reader_that_does_not_read() -> None:
    """A large body is not held in memory, and comes whole once it is read."""
    size = 2**26
    part = 2**20
    sent = 0

    async def script(visit: Visit) -> None:
        nonlocal sent
        if visit.number > 1:
            await visit.send(response())
            return

        await visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // part):
            await visit.send(b"a" * part)
            sent += part

    async with calling(script) as (client, server):
        got = await send(client)
        for _ in range(500):
            assert await body_of(client) == b""

        assert sent < size / 2
        assert await whole(got) == b"a" * size
        assert await body_of(client) == b""

    assert server.connections == 2
