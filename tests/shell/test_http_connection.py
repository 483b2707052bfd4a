"""Facts about one connection of a client: which requests come of its bytes, and what it gets.

Most need no socket: the connection is handed bytes, and a transport that keeps what is written.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import pytest
from harness import looped
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.options import ReplayOptions
from mrtr_cassette.shell.http.server import Service
from mrtr_cassette.shell.http.transport import Downstream, Handler

MOST_BODY = 1000


@dataclass
class Kept:
    """A transport that keeps what is written; only what a connection uses of one."""

    written: bytearray = field(default_factory=bytearray)
    is_reading: bool = True
    has_ended: bool = False
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_closed(self) -> bool:
        return self.closed.is_set()

    def write(self, data: bytes) -> None:
        assert not self.has_ended
        self.written += data

    def writelines(self, parts: Iterable[bytes]) -> None:
        self.write(b"".join(parts))

    def write_eof(self) -> None:
        self.has_ended = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.closed.set()

    abort = close

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True


@dataclass
class Server:
    """A service whose requests are kept, and which answers with their targets."""

    requests: list[tuple[str, str, Any, bytes]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Wait for nothing, unless told otherwise."""
        self.go_on.set()

    async def answer(self, request: Request, client: Downstream) -> None:
        """Keep a request, and answer it."""
        self.requests.append(
            (request.method, request.target, request.headers, request.body)
        )
        await self.go_on.wait()
        await client.send_response(200, (), request.target.encode())


def connected(handler: Handler, log: list[str]) -> tuple[asyncio.Protocol, Kept]:
    """Return a connection that every host may open, and its transport."""
    service = Service(handler, ReplayOptions(max_body=MOST_BODY), log.append)
    service.refusal_of = lambda _headers: None
    connection = service.new_connection()
    transport = Kept()
    connection.connection_made(cast("asyncio.Transport", transport))

    return connection, transport


async def settled() -> None:
    """Let every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def handled(answer: Handler, log: list[str], *pieces: bytes) -> Kept:
    """Have bytes that come in these pieces handled, until the client leaves."""
    connection, transport = connected(answer, log)
    for piece in pieces:
        connection.data_received(piece)
        await settled()

    connection.connection_lost(None)
    return transport


async def seen(*pieces: bytes) -> tuple[Server, Kept]:
    """Return what comes of bytes that come in these pieces."""
    server = Server()
    return server, await handled(server.answer, server.log, *pieces)


def body_of(written: bytes | bytearray) -> bytes:
    """Return the body of the last response."""
    return bytes(written).rpartition(b"\r\n\r\n")[2]


PLAIN = (
    b"POST /a%2Fb?c=1 HTTP/1.1\r\nHost: h\r\nX-One:  caf\xe9 \r\nContent-Length: 2\r\n\r\nok"
    b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
    b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n3;e=1\r\nbcd\r\n0\r\nX-T: 1\r\n\r\n"
    b"POST /up HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAMA\r\nContent-Length: 3\r\n\r\nyes"
    b"POST /up HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nyes\r\n0\r\n\r\n"
    b"GET /last HTTP/1.1\r\nHost: h\r\n\r\n"
)


@given(cuts=st.sets(st.integers(min_value=1, max_value=len(PLAIN) - 1), max_size=8))
def test_requests_are_the_same_however_their_bytes_come(cuts: set[int]) -> None:
    """Bodies with a length, in chunks, and after an offer to speak another protocol are read."""
    borders = [0, *sorted(cuts), len(PLAIN)]
    pieces = [PLAIN[a:b] for a, b in pairwise(borders)]
    server, transport = asyncio.run(seen(*pieces))

    assert [(method, target, body) for method, target, _, body in server.requests] == [
        ("POST", "/a%2Fb?c=1", b"ok"),
        ("GET", "/", b""),
        ("POST", "/x", b"abcd"),
        ("POST", "/up", b"yes"),
        ("POST", "/up", b"yes"),
        ("GET", "/last", b""),
    ]

    assert server.requests[0][2] == (
        ("Host", "h"),
        ("X-One", "caf\xe9"),
        ("Content-Length", "2"),
    )

    assert transport.written.count(b"HTTP/1.1 200 OK\r\n") == 6
    assert server.log == []


@looped
async def test_what_comes_before_its_turn_waits() -> None:
    """While a request is handled, no more is read than the first bytes of the next one."""
    server = Server()
    server.go_on.clear()
    connection, transport = connected(server.answer, server.log)
    connection.data_received(b"GET /1 HTTP/1.1\r\n\r\n")
    await settled()

    assert transport.is_reading

    connection.data_received(b"POST /2 HTTP/1.1\r\nContent-Length: 4\r\n\r\nab")
    await settled()

    assert not transport.is_reading
    assert [target for _, target, _, _ in server.requests] == ["/1"]

    server.go_on.set()
    await settled()

    assert transport.is_reading

    connection.data_received(b"cd")
    await settled()

    assert server.requests[1][3] == b"abcd"

    connection.connection_lost(None)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (
            b"GET / HTTP/1.1\r\nsecret\x01: 1\r\n\r\n",
            "not readable HTTP (invalid header",
        ),
        (
            b"\x16\x03\x01\x02\x00\x01secret",
            "it speaks TLS, and this address is http://",
        ),
        (
            b"CONNECT secret:443 HTTP/1.1\r\nHost: secret\r\n\r\n",
            "it asks for a tunnel",
        ),
    ],
    ids=["name", "tls", "tunnel"],
)
@looped
async def test_what_is_no_request_is_refused_with_the_reason(
    raw: bytes, reason: str
) -> None:
    """The client gets a 400 and the log a line, which repeat nothing of what came."""
    server, transport = await seen(raw)

    assert server.requests == []
    assert bytes(transport.written).startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"\r\nConnection: close\r\n" in transport.written
    assert transport.has_ended

    (line,) = server.log

    assert reason in line
    assert body_of(transport.written) == f"the {line[2:]}\n".encode()
    assert b"secret" not in transport.written
    assert "secret" not in line


@looped
async def test_what_came_before_is_answered_before_the_refusal() -> None:
    """A request that was whole is handled; then the client is told, and nothing more is taken."""
    server, transport = await seen(
        b"GET /1 HTTP/1.1\r\n\r\nBREW / HTTP/1.1\r\n\r\n", b"more"
    )

    assert [target for _, target, _, _ in server.requests] == ["/1"]
    assert transport.written.startswith(b"HTTP/1.1 200 OK\r\n")
    assert transport.written.count(b"HTTP/1.1 400 ") == 1


CHUNKED = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
GZIPPED = b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\nxx"


@pytest.mark.parametrize(
    "pieces", [(CHUNKED, b"ZZ\r\n"), (CHUNKED + b"ZZ\r\n",), (GZIPPED,)], ids=str
)
@looped
async def test_body_that_breaks_is_refused(pieces: tuple[bytes, ...]) -> None:
    """No handler gets a part of a body for a whole one."""
    server, transport = await seen(*pieces)

    assert server.requests == []
    assert transport.written.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert transport.has_ended


@pytest.mark.parametrize(
    "pieces",
    [
        (b"POST / HTTP/1.1\r\nContent-Length: 9999\r\n\r\n", b"x" * 5000),
        (b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 9999\r\n\r\n",),
    ],
    ids=["sends", "asks"],
)
@looped
async def test_client_that_still_sends_can_read_that_it_is_refused(
    pieces: tuple[bytes, ...],
) -> None:
    """The response says that the connection ends, which it does when the client has read it."""
    _, transport = await seen(*pieces, b"x" * 4999)

    assert transport.written.startswith(b"HTTP/1.1 413 ")
    assert b"\r\nConnection: close\r\n" in transport.written
    assert (transport.has_ended, transport.is_closed, transport.is_reading) == (
        True,
        False,
        True,
    )


@looped
async def test_client_is_told_to_go_on_when_its_body_is_wanted() -> None:
    """`Expect: 100-continue` is answered as soon as the body is read, and once."""
    head = b"POST / HTTP/1.1\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n"
    _, transport = await seen(head, b"o", b"k")

    assert transport.written.startswith(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"
    )


@pytest.mark.parametrize(
    ("head", "closes"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", False),
        (b"GET / HTTP/1.1\r\nConnection: close\r\n\r\nGET /2 HTTP/1.1\r\n\r\n", True),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", True),
    ],
)
@looped
async def test_client_decides_on_its_connection(head: bytes, closes: bool) -> None:  # noqa: FBT001
    """A connection goes on, unless a header or an old version of HTTP says that it doesn't."""
    server, transport = await seen(head)

    assert len(server.requests) == 1
    assert transport.is_closed is closes
    assert (b"\r\nConnection: close\r\n" in transport.written) is closes
    assert server.log == []


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"*", "*"),
        (b"http://h:1/a%2Fb?c=http://x/", "/a%2Fb?c=http://x/"),
        (b"http://h?c", "/?c"),
        (b"/a?b=http://h/c", "/a?b=http://h/c"),
    ],
)
@looped
async def test_target_is_path_and_query(target: bytes, expected: str) -> None:
    """Of a whole URL path and query count, as they came."""
    server, _ = await seen(b"OPTIONS %b HTTP/1.1\r\n\r\n" % target)

    assert [target for _, target, _, _ in server.requests] == [expected]


@looped
async def test_fault_of_a_handler_is_a_500_and_a_line_of_the_log() -> None:
    """The line names the error and its place; the next request is handled."""

    async def answer(request: Request, client: Downstream) -> None:
        if request.target == "/bad":
            raise ZeroDivisionError("secret")

        await client.send_response(200, (), b"ok")

    log: list[str] = []
    both = b"GET /bad HTTP/1.1\r\n\r\nGET /good HTTP/1.1\r\n\r\n"
    transport = await handled(answer, log, both)

    assert transport.written.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    assert transport.written.endswith(b"\r\n\r\nok")

    (line,) = log

    assert "ZeroDivisionError at line" in line
    assert "secret" not in line


@looped
async def test_fault_in_a_response_that_has_begun_breaks_it_off() -> None:
    """A client does not take the beginning of a response for all of it."""

    async def answer(_: Request, client: Downstream) -> None:
        client.begin_response(200, ())
        await client.send_chunk(b"half")
        raise ZeroDivisionError

    transport = await handled(answer, [], b"GET / HTTP/1.1\r\n\r\n")

    assert transport.written.endswith(b"4\r\nhalf\r\n")
    assert transport.is_closed


@looped
async def test_response_waits_while_the_client_does_not_read() -> None:
    """A chunk is sent when the client has taken enough of those before."""
    sent: list[bytes] = []

    async def answer(_: Request, client: Downstream) -> None:
        client.begin_response(200, ())
        for chunk in (b"1", b"2"):
            await client.send_chunk(chunk)
            sent.append(chunk)

        await client.send_chunk(is_last=True)

    connection, transport = connected(answer, [])
    connection.pause_writing()
    connection.data_received(b"GET / HTTP/1.1\r\n\r\n")
    await settled()

    assert sent == []

    connection.resume_writing()
    await settled()

    assert sent == [b"1", b"2"]
    assert transport.written.endswith(b"1\r\n1\r\n1\r\n2\r\n0\r\n\r\n")

    connection.connection_lost(None)
