"""Facts about responses that pass the relay: they are untouched, and no later than they come."""

import asyncio
import gzip
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import (
    ACCEPT,
    connected,
    http,
    looped,
    playing,
    post,
    read,
    request,
    taping,
)
from messages import compact, message, result
from standin import (
    EVENTS,
    JSON,
    Visit,
    answering,
    chunk,
    event,
    json_response,
    response,
    stream_head,
)


@looped
async def test_response_headers_arrive_with_spelling_and_order(tmp_path: Path) -> None:
    """All end-to-end headers of a response reach the client, repeated ones too, and no others."""
    sent = (
        ("server", "upstream/1"),
        ("Set-Cookie", "a=1; Path=/"),
        ("set-cookie", "b=2"),
        ("WWW-Authenticate", 'Bearer realm="x", scope="y"'),
        ("WWW-Authenticate", "Basic"),
        ("X-Empty", ""),
        ("Content-Type", "application/problem+json"),
        ("ETag", 'W/"1"'),
        ("Content-Length", "2"),
    )
    reply = response(b"{}", *(f"{name}: {value}" for name, value in sent[:-1]))
    async with taping(tmp_path / "c.json", answering(reply)) as tape:
        answer = await http("GET", tape.url)
    assert answer.head.headers == sent


STATUSES = {
    "401": ("401 Unauthorized", 'WWW-Authenticate: Bearer resource_metadata="http://x/y"'),
    "403": ("403 No Way", "WWW-Authenticate: Bearer", "WWW-Authenticate: Basic"),
    "404": ("404 Not Found", "X-A: 1"),
    "405": ("405 Method Not Allowed", "Allow: POST"),
    "429": ("429 Slow Down", "Retry-After: 5"),
    "500": ("500 Oh No!", "Content-Type: text/plain"),
    "503": ("503 ", "Cache-Control: no-store"),
    "299": ("299 Odd", "X-A: 1"),
    "599": ("599 Odder", "X-A: 1"),
    "301": ("301 Moved Permanently", "Location: /elsewhere"),
    "307": ("307 Temporary Redirect", "Location: http://127.0.0.1:1/mcp"),
}


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("method", ["GET", "POST"])
@looped
async def test_statuses_pass_with_their_reason(tmp_path: Path, status: str, method: str) -> None:
    """A status reaches the client with its phrase and headers, no redirect is followed, and plays."""
    line, *headers = STATUSES[status]
    reply = response(b"why", *headers, status=line)
    async with taping(tmp_path / "c.json", answering(reply)) as tape:
        answer = await http(method, tape.url, body=b"a" if method == "POST" else None)
    assert len(tape.server.received) == 1
    assert answer.head.line == f"HTTP/1.1 {line}"
    assert [f"{name}: {value}" for name, value in answer.head.without("content-length")] == headers
    assert answer.body == b"why"
    async with playing(tmp_path / "c.json") as replay:
        played = await http(method, replay.url, body=b"a" if method == "POST" else None)
    assert (played.status, played.body) == (int(status), b"why")


@pytest.mark.parametrize(
    ("method", "reply"),
    [
        ("POST", response(status="202 Accepted")),
        ("POST", response(b"", JSON, status="202 Accepted")),
        ("DELETE", response(status="204 No Content", length=False)),
        ("GET", response(b"", 'ETag: "1"', status="304 Not Modified", length=False)),
        ("HEAD", response(b"", JSON, "Content-Length: 1234", length=False)),
        ("GET", response(b"", "X-A: 1")),
    ],
)
@looped
async def test_empty_answers_pass_as_they_are(tmp_path: Path, method: str, reply: bytes) -> None:
    """An answer without a body reaches the client with its headers alone, and replay has none too."""
    async with taping(tmp_path / "c.json", answering(reply)) as tape, connected(tape.url) as client:
        await client.write(request(method, "/mcp", "Connection: close"))
        seen = b""
        while part := await client.raw():
            seen += part
    assert seen.replace(b"Connection: close\r\n", b"") == reply
    async with playing(tmp_path / "c.json") as replay:
        played = await http(method, replay.url)
    assert (played.status, played.body, played.is_whole) == (int(reply.split()[1]), b"", True)
    assert played.head.values("content-type") == (
        ["application/json"] if JSON.encode() in reply else []
    )


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
@looped
async def test_traffic_that_is_no_rpc_passes_and_plays(tmp_path: Path, method: str) -> None:
    """Other paths and bodies that are no JSON-RPC are relayed, kept and played by path and body."""
    replies = (response(b"one", "Content-Type: text/plain"), response(b"two"))
    body = None if method != "POST" else b"grant_type=x"
    async with taping(tmp_path / "c.json", answering(*replies)) as tape:
        assert (await http(method, tape.url, target="/token?a=1", body=body)).body == b"one"
        assert (await http(method, tape.url, target="/token?a=2", body=body)).body == b"two"
    async with playing(tmp_path / "c.json") as replay:
        assert (await http(method, replay.url, target="/token?a=2", body=body)).body == b"two"
        assert (await http(method, replay.url, target="/token?a=1", body=body)).body == b"one"
        missed = await http(method, replay.url, target="/token?a=3", body=body)
    assert missed.status == 404
    assert missed.body.startswith(b"miss: unknown-method: ")


@looped
async def test_informational_responses_stay_where_they_came_from(tmp_path: Path) -> None:
    """A 102 or a 103 is not taken for the response, and the client gets that alone."""
    hints = b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    path = tmp_path / "c.json"
    script = answering(hints + response(b"final"))
    async with taping(path, script) as tape, connected(tape.url) as connection:
        head, content = await connection.ask("GET", "/mcp")
        assert (head.line, await content.rest()) == ("HTTP/1.1 200 OK", b"final")
    async with playing(path) as replay:
        assert (await http("GET", replay.url)).body == b"final"


PREFLIGHT = ("Origin: http://localhost:3000", "Access-Control-Request-Method: POST")
ALLOWED = (
    "Access-Control-Allow-Origin: http://localhost:3000",
    "Access-Control-Expose-Headers: Mcp-Session-Id",
    "Vary: Origin",
)


@looped
async def test_what_a_page_needs_to_read_comes_back(tmp_path: Path) -> None:
    """A preflight gets the answer for the headers that it names, and responses their permission."""
    wanted = ["Access-Control-Request-Headers: a", "Access-Control-Request-Headers: a, b"]
    replies = [
        response(b"", *ALLOWED, each.replace("Request", "Allow"), status="204 No Content")
        for each in wanted
    ]
    path = tmp_path / "c.json"
    async with taping(path, answering(*replies, json_response(result({}), *ALLOWED))) as tape:
        for each in wanted:
            await http("OPTIONS", tape.url, *PREFLIGHT, each)
        await post(tape.url, message("ping"), PREFLIGHT[0])
    async with playing(path) as replay:
        # A browser remembers an answer, or asks again.
        for each in reversed(wanted * 2):
            preflight = await http("OPTIONS", replay.url, *PREFLIGHT, each)
            allowed = (*ALLOWED, each.replace("Request", "Allow"))
            assert preflight.status == 204
            assert preflight.head.without("connection") == _pairs(*allowed)
        pong = await post(replay.url, message("ping"), PREFLIGHT[0])
        assert set(_pairs(*ALLOWED)) <= set(pong.head.headers)


def _pairs(*headers: str) -> tuple[tuple[str, str], ...]:
    parts = (header.partition(": ") for header in headers)
    return tuple((name, value) for name, _, value in parts)


CODED: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}


@pytest.mark.parametrize("coding", CODED)
@pytest.mark.parametrize("is_stream", [False, True])
@looped
async def test_coded_bodies_are_readable_in_the_cassette(
    tmp_path: Path,
    coding: str,
    *,
    is_stream: bool,
) -> None:
    """The client sees the coded bytes; the cassette and the replay have the plain ones."""
    plain = event(result({"a": 1})) if is_stream else compact(result({"a": 1}))
    coded = CODED[coding](plain)
    kind = EVENTS if is_stream else JSON
    reply = response(coded, kind, f"Content-Encoding: {coding}")
    async with taping(tmp_path / "c.json", answering(reply)) as tape:
        answer = await post(tape.url, message("ping"), "Accept-Encoding: gzip, deflate")
    assert answer.body == coded
    assert answer.head.values("content-encoding") == [coding]
    kept = read(tmp_path / "c.json")["interactions"][0]["response"]
    assert (
        kept["events"][0]["data"] == result({"a": 1})
        if is_stream
        else kept["body"] == result({"a": 1})
    )
    async with playing(tmp_path / "c.json") as replay:
        played = await post(replay.url, message("ping"), "Accept-Encoding: gzip, deflate")
    assert played.head.values("content-encoding") == []
    assert played.body == plain


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip"])
@looped
async def test_undecodable_bodies_stay_opaque(tmp_path: Path, coding: str) -> None:
    """A coding that is unknown, or bytes that are not in it, are kept and played as they came."""
    coded = b"\x8b\x02\x80\xff\x00{}\x03"
    reply = response(coded, JSON, f"Content-Encoding: {coding}")
    async with taping(tmp_path / "c.json", answering(reply)) as tape:
        assert (await post(tape.url, message("ping"))).body == coded
    async with playing(tmp_path / "c.json") as replay:
        played = await post(replay.url, message("ping"))
    assert played.body == coded
    assert played.head.values("content-encoding") == [coding]


@looped
async def test_events_pass_one_by_one(tmp_path: Path) -> None:
    """Each event reaches the client before the upstream sends the next."""
    gates = [asyncio.Event() for _ in range(3)]
    events = [event(message("notifications/n", {"step": step}, id=None)) for step in range(3)]

    async def script(visit: Visit) -> None:
        await visit.send(stream_head())
        for one, gate in zip(events, gates, strict=True):
            await visit.send(chunk(one))
            await gate.wait()
        await visit.send(chunk(event(result({}))), chunk(b""))

    async with taping(tmp_path / "c.json", script) as tape, connected(tape.url) as client:
        _, body = await client.ask("POST", "/mcp", JSON, ACCEPT, body=compact(message("ping")))
        for one, gate in zip(events, gates, strict=True):
            assert await body.until(b"\n\n") == one
            gate.set()
        assert await body.rest() == event(result({}))
        assert body.is_whole


@looped
async def test_a_head_passes_before_its_body(tmp_path: Path) -> None:
    """The head of a stream reaches the client before the upstream has sent any event."""
    gate = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.send(stream_head(EVENTS, "X-A: 1"))
        await gate.wait()
        await visit.send(chunk(event(result({}))), chunk(b""))

    async with taping(tmp_path / "c.json", script) as tape, connected(tape.url) as client:
        head, body = await client.ask("POST", "/mcp", JSON, body=compact(message("ping")))
        assert head.values("x-a") == ["1"]
        gate.set()
        assert await body.rest() == event(result({}))


@looped
async def test_half_an_event_passes_too(tmp_path: Path) -> None:
    """What arrives is passed on even where an event, a line or a character is not whole."""
    whole = event(result({"a": "é"}), b"\r\n")
    gates = [asyncio.Event() for _ in whole]

    async def script(visit: Visit) -> None:
        await visit.send(stream_head())
        for at, gate in enumerate(gates):
            await visit.send(chunk(whole[at : at + 1]))
            await gate.wait()
        await visit.send(chunk(b""))

    async with taping(tmp_path / "c.json", script) as tape, connected(tape.url) as client:
        _, body = await client.ask("POST", "/mcp", JSON, body=compact(message("ping")))
        for at, gate in enumerate(gates):
            assert await body.some() == whole[at : at + 1]
            gate.set()
        assert await body.some() == b""
    assert len(read(tmp_path / "c.json")["interactions"][0]["response"]["events"]) == 1


@looped
async def test_a_large_body_passes_before_it_is_whole(tmp_path: Path) -> None:
    """The first bytes of an announced body reach the client before the last have been sent."""
    gate = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.send(response(b"", JSON, "Content-Length: 6", length=False), b"abc")
        await gate.wait()
        await visit.send(b"def")

    async with taping(tmp_path / "c.json", script) as tape, connected(tape.url) as client:
        _, body = await client.ask("POST", "/mcp", JSON, body=b"{}")
        assert await body.some() == b"abc"
        gate.set()
        assert await body.rest() == b"def"


@pytest.mark.parametrize("is_stream", [False, True])
@looped
async def test_a_response_that_is_too_large_passes_unrecorded(
    tmp_path: Path, *, is_stream: bool
) -> None:
    """A response larger than allowed reaches the client whole, and the recording says that it lacks it."""
    body = b"data: " + b"x" * 2000 + b"\n\n"
    large = stream_head() + chunk(body) + chunk(b"") if is_stream else response(body)
    script = answering(large, response(b"small"))
    async with taping(tmp_path / "c.json", script, max_body=1000) as tape:
        answer = await http("GET", tape.url, target="/large")
        assert (answer.body, answer.is_whole) == (body, True)
        assert (await http("GET", tape.url, target="/small")).body == b"small"
    kept = [one["request"]["http"]["path"] for one in read(tmp_path / "c.json")["interactions"]]
    # Of a listening stream there is what had passed before.
    assert kept == (["/large", "/small"] if is_stream else ["/small"])
    assert tape.session.problem is not None
    assert any(line.startswith("RECORDING FAILED: ") for line in tape.log)


@looped
async def test_a_body_that_would_be_too_large_decoded_stays_coded(tmp_path: Path) -> None:
    """A body that is small on the wire and huge decoded is kept and played as it came."""
    coded = gzip.compress(b"x" * 100_000)
    reply = response(coded, JSON, "Content-Encoding: gzip")
    async with taping(tmp_path / "c.json", answering(reply), max_body=1000) as tape:
        assert (await post(tape.url, message("ping"))).body == coded
    async with playing(tmp_path / "c.json") as replay:
        played = await post(replay.url, message("ping"))
    assert (played.body, played.head.values("content-encoding")) == (coded, ["gzip"])
