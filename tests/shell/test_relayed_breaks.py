"""Facts about clients that leave and upstreams that fail: a break is no clean end to anybody."""

import asyncio
from pathlib import Path

import pytest
from harness import (
    connected,
    http,
    looped,
    playing,
    post,
    raw_body,
    read,
    request,
    taping,
    until_stopped,
)
from messages import compact, message, result
from standin import (
    JSON,
    Visit,
    answering,
    chunk,
    json_response,
    response,
    stream_head,
    upstream,
)

from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.recording import recording


@pytest.mark.parametrize("method", ["GET", "POST"])
@looped
async def test_a_client_that_leaves_a_stream_ends_it_upstream(tmp_path: Path, method: str) -> None:
    """When the client leaves an open stream the upstream sees that, and what came is kept as open."""
    left = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.send(stream_head(), chunk(b": hello\n\n"))
        await visit.left()
        left.set()

    async with taping(tmp_path / "c.json", script) as tape:
        async with connected(tape.url) as client:
            _, body = await client.ask(method, "/mcp", "Accept: text/event-stream")
            assert await body.some() == b": hello\n\n"
        await left.wait()
    (kept,) = read(tmp_path / "c.json")["interactions"]
    assert (kept["response"]["end"], raw_body(kept["response"])) == ("open", b": hello\n\n")


@looped
async def test_a_client_that_leaves_before_the_response_ends_the_call_upstream(
    tmp_path: Path,
) -> None:
    """When the client leaves before the head has come the upstream sees that; others go on."""
    came, left = asyncio.Event(), asyncio.Event()

    async def script(visit: Visit) -> None:
        if visit.number > 1:
            await visit.send(response(b"ok"))
            return
        came.set()
        await visit.left()
        left.set()

    async with taping(tmp_path / "c.json", script) as tape:
        async with connected(tape.url) as client:
            await client.write(request("POST", "/mcp", JSON, body=compact(message("ping"))))
            await came.wait()
        await left.wait()
        assert (await http("GET", tape.url)).body == b"ok"
    assert len(tape.server.received) == 2


@looped
async def test_a_call_that_was_left_before_its_response_is_kept(tmp_path: Path) -> None:
    """A request that its client abandoned is in the cassette, without a response."""
    came, left = asyncio.Event(), asyncio.Event()

    async def script(visit: Visit) -> None:
        came.set()
        await visit.left()
        left.set()

    async with taping(tmp_path / "c.json", script) as tape:
        async with connected(tape.url) as client:
            await client.write(request("POST", "/mcp", JSON, body=compact(message("ping"))))
            await came.wait()
        await left.wait()
    (kept,) = read(tmp_path / "c.json")["interactions"]
    assert kept["request"]["body"]["method"] == "ping"
    assert "response" not in kept


@looped
async def test_streams_that_are_open_at_the_end_are_kept(tmp_path: Path) -> None:
    """Stopping a recording ends its open streams and keeps what they had, as open."""
    async with (
        upstream(_open_stream) as server,
        until_stopped(recording(server.url, tmp_path / "c.json")) as (session, stop),
        connected(session.url) as client,
    ):
        _, body = await client.ask("GET", "/mcp", "Accept: text/event-stream")
        assert await body.some() == b": hello\n\n"
        await stop()
        assert await body.rest() == b""
        assert not body.is_whole
    (kept,) = read(tmp_path / "c.json")["interactions"]
    assert (kept["response"]["end"], raw_body(kept["response"])) == ("open", b": hello\n\n")


async def _open_stream(visit: Visit) -> None:
    await visit.send(stream_head(), chunk(b": hello\n\n"))
    await visit.left()


@pytest.mark.parametrize(
    "identity", [b"7", b'"a\\u00e9"', b"1E2", b"123456789012345678901234567890"]
)
@looped
async def test_an_upstream_that_is_away_is_a_502_with_the_callers_id(
    tmp_path: Path, identity: bytes
) -> None:
    """Without an upstream the client gets a JSON-RPC error of its own id, and nothing is recorded."""
    log: list[str] = []
    async with upstream(answering()) as server:
        url = server.url
    async with recording(url, tmp_path / "c.json", RecordOptions(log=log.append)) as session:
        body = b'{"jsonrpc":"2.0","method":"ping","id":%b}' % identity
        answer = await post(session.url, body)
    assert answer.status == 502
    assert answer.head.values("content-type") == ["application/json"]
    assert answer.body.startswith(b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32011,' % identity)
    assert url.removesuffix("/mcp") in answer.json["error"]["message"]
    assert session.published is None
    assert not (tmp_path / "c.json").exists()
    assert (session.exchanges, session.unreachable) == (0, 1)
    assert len(log) == 1


@looped
async def test_recording_goes_on_after_an_upstream_was_away(tmp_path: Path) -> None:
    """What the upstream answers after it was away is recorded, and numbered without regard to it."""

    async def script(visit: Visit) -> None:
        if visit.number == 1:
            visit.reset()
        else:
            await visit.send(json_response(result({}, id=2)))

    async with taping(tmp_path / "c.json", script) as tape:
        assert (await post(tape.url, message("ping", id=1))).status == 502
        assert (await post(tape.url, message("ping", id=2))).json == result({}, id=2)
    (kept,) = read(tmp_path / "c.json")["interactions"]
    assert kept["request"]["body"]["id"] == 2
    assert (tape.session.exchanges, tape.session.unreachable) == (1, 1)


@pytest.mark.parametrize(
    "reply", [b"", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Le", b"what is this?\r\n\r\n"]
)
@pytest.mark.parametrize("is_reset", [False, True])
@looped
async def test_half_a_head_is_no_response(
    tmp_path: Path,
    reply: bytes,
    *,
    is_reset: bool,
) -> None:
    """An upstream that ends or breaks off before its head is whole gives a 502."""

    async def script(visit: Visit) -> None:
        await visit.send(reply)
        if is_reset:
            visit.reset()
        else:
            visit.close()

    async with taping(tmp_path / "c.json", script) as tape:
        answer = await post(tape.url, message("ping", id=3))
    assert (answer.status, answer.json["id"]) == (502, 3)
    assert not (tmp_path / "c.json").exists()
    assert len(tape.server.received) == 1


BREAKS: dict[str, tuple[bytes, bytes]] = {
    "stream": (stream_head() + chunk(b"data: 1\n\n"), b"data: 1\n\n"),
    "chunk": (stream_head() + chunk(b"data: 1\n\n") + b"20\r\ndata: 2", b"data: 1\n\ndata: 2"),
    "chunk's size": (stream_head() + chunk(b"data: 1\n\n") + b"2", b"data: 1\n\n"),
    "length": (response(b"", JSON, "Content-Length: 100", length=False) + b'{"a":', b'{"a":'),
    "chunked JSON": (stream_head(JSON) + chunk(b'{"a":'), b'{"a":'),
    "nothing of it": (stream_head(JSON), b""),
}


@pytest.mark.parametrize("name", BREAKS)
@pytest.mark.parametrize("is_reset", [False, True])
@looped
async def test_a_broken_response_is_no_clean_end(
    tmp_path: Path,
    name: str,
    *,
    is_reset: bool,
) -> None:
    """A response that the upstream breaks off is broken off for the client, and again on replay."""
    sent, expected = BREAKS[name]
    gate = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.send(sent)
        await gate.wait()
        if is_reset:
            visit.reset()
        else:
            visit.close()

    async with taping(tmp_path / "c.json", script) as tape, connected(tape.url) as client:
        _, body = await client.ask("POST", "/mcp", JSON, body=compact(message("ping")))
        seen = await body.until(expected) if expected else b""
        gate.set()
        seen += await body.rest()
        assert (seen, body.is_whole) == (expected, False)
        await client.closed()
    kept = read(tmp_path / "c.json")["interactions"][0]["response"]
    assert kept["end"] == "broken"
    async with playing(tmp_path / "c.json") as replay:
        answer = await post(replay.url, message("ping"))
    assert (answer.body, answer.is_whole) == (expected, False)


@pytest.mark.parametrize("name", BREAKS)
@looped
async def test_what_came_just_before_the_break_is_passed_on(tmp_path: Path, name: str) -> None:
    """Bytes that arrive together with the upstream's end still reach the client and the cassette."""
    sent, expected = BREAKS[name]
    async with taping(tmp_path / "c.json", answering(sent)) as tape:
        answer = await post(tape.url, message("ping"))
    assert (answer.body, answer.is_whole) == (expected, False)
    kept = read(tmp_path / "c.json")["interactions"][0]["response"]
    assert kept["end"] == "broken"
    assert raw_body(kept) == expected if expected else "sha256" not in kept


@looped
async def test_a_break_behind_what_the_client_has_not_read_yet_is_no_clean_end(
    tmp_path: Path,
) -> None:
    """However much is on its way to a slow client, a broken stream never gets its last chunk."""
    gate = asyncio.Event()
    large = b"data: " + b"x" * 2**20 + b"\n\n"

    async def script(visit: Visit) -> None:
        await visit.send(stream_head(), chunk(large))
        await gate.wait()
        visit.reset()

    async with taping(tmp_path / "c.json", script) as tape, connected(tape.url) as client:
        _, body = await client.ask("GET", "/mcp", "Accept: text/event-stream")
        gate.set()
        await body.rest()
        assert not body.is_whole


@looped
async def test_a_body_that_ends_with_its_connection_is_whole(tmp_path: Path) -> None:
    """A response without length or chunks ends where the upstream closes, which is no break."""
    reply = response(compact(result({})), JSON, length=False)
    async with taping(tmp_path / "c.json", answering(reply)) as tape:
        answer = await post(tape.url, message("ping"))
    assert (answer.json, answer.is_whole) == (result({}), True)
    assert "end" not in read(tmp_path / "c.json")["interactions"][0]["response"]
