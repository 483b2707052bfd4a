"""Facts about what a replay sends: the recorded bytes, and in them the caller's own values."""

import re
from pathlib import Path

import pytest
from harness import (
    ACCEPT,
    connected,
    looped,
    playing,
    post,
    request,
    taped,
    taping,
)
from messages import compact, input_required, message, result, tool_call
from standin import (
    EVENTS,
    JSON,
    answering,
    chunk,
    event,
    event_stream,
    response,
    stream_head,
)

IDS = [
    b"1",
    b'"server-discover-probe-1"',
    b"0",
    b'"1"',
    b"123456789012345678901234567890",
    b"-1.50E+3",
    b'"a\\"b\\u00e9\xc3\xa9\\/"',
    b'""',
]


@pytest.mark.parametrize("at", range(len(IDS)))
@pytest.mark.parametrize("asks_last", [False, True])
@pytest.mark.parametrize("answers_last", [False, True])
@pytest.mark.parametrize("is_stream", [False, True])
@looped
async def test_the_id_is_the_callers_in_its_spelling(
    tmp_path: Path,
    at: int,
    *,
    asks_last: bool,
    answers_last: bool,
    is_stream: bool,
) -> None:
    """Wherever the id stands and however it is spelled, replay changes it and no other byte."""

    def asked(identity: bytes) -> bytes:
        rest = b'"jsonrpc":"2.0","method":"tools/call","params":{"name":"x","arguments":{"id":%b}}'
        spelled = b'{%b,"id":%b}' if asks_last else b'{"id": %b ,%b}'
        parts = (rest % IDS[0], identity)
        return spelled % (parts if asks_last else parts[::-1])

    def answered(identity: bytes) -> bytes:
        rest = (
            b'"jsonrpc":"2.0",  "result":{"id":%b,"n":1E2,"n":1.0,"s":"\\u00e9\\ud800"}' % IDS[at]
        )
        spelled = b'{%b,"id" : %b}' if answers_last else b'{"id":%b,%b}'
        parts = (rest, identity)
        body = spelled % (parts if answers_last else parts[::-1])
        return b"id: 7\r\ndata: %b\r\nretry: 1\r\n\r\n" % body if is_stream else body

    reply = response(answered(IDS[at]), EVENTS if is_stream else JSON)
    await taped(tmp_path / "c.json", (asked(IDS[at]), reply))
    async with playing(tmp_path / "c.json", repeat="always") as replay:
        for identity in IDS:
            played = answered(identity).replace(b"id: 7", b"id: mrtr-event:0:1")
            assert (await post(replay.url, asked(identity))).body == played


@looped
async def test_an_id_that_the_server_spells_otherwise_is_the_callers(tmp_path: Path) -> None:
    """A server that spells a number or an escape in another way still answers that id."""
    asked = b'{"jsonrpc":"2.0","id":%b,"method":"ping"}'
    answered = b'{"jsonrpc":"2.0","id":%b,"result":{}}'
    for one, other in ((b"1.0", b"1"), (b'"\\u0041"', b'"A"')):
        path = tmp_path / f"{len(one)}.json"
        await taped(path, (asked % one, response(answered % other, JSON)))
        async with playing(path) as replay:
            assert (await post(replay.url, asked % b"9")).body == answered % b"9"


@pytest.mark.parametrize(("one", "other"), [(b"1", b'"t"'), (b'"\\u0041"', b"2"), (b"1E2", b"1E2")])
@looped
async def test_the_progress_token_is_the_callers(tmp_path: Path, one: bytes, other: bytes) -> None:
    """A progress token that echoes the request's becomes the caller's; another one stays."""

    def asked(token: bytes) -> bytes:
        meta = b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":%b}}}'
        return meta % token

    def streamed(token: bytes) -> bytes:
        note = b'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%b,"progress":1}}\n\n'
        return note % token + note % b'"foreign"' + event(result({"progressToken": 1}, id=5))

    await taped(tmp_path / "c.json", (asked(one), response(streamed(one), EVENTS)))
    async with playing(tmp_path / "c.json") as replay:
        assert (await post(replay.url, asked(other))).body == streamed(other)


@looped
async def test_the_subscription_id_is_the_callers(tmp_path: Path) -> None:
    """A subscription id that echoes the request's id becomes the caller's."""

    def streamed(identity: bytes) -> bytes:
        note = b'data:{"jsonrpc":"2.0","method":"notifications/x","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%b}}}\n\n'
        done = b'data:{"jsonrpc":"2.0","id":%b,"result":{"_meta":{"io.modelcontextprotocol/subscriptionId":%b}}}\n\n'
        return note % identity + done % (identity, identity)

    asked = b'{"jsonrpc":"2.0","id":%b,"method":"subscriptions/listen","params":{}}'
    await taped(tmp_path / "c.json", (asked % b"3", response(streamed(b"3"), EVENTS)))
    async with playing(tmp_path / "c.json") as replay:
        assert (await post(replay.url, asked % b'"l"')).body == streamed(b'"l"')


SSE_SPELLINGS = {
    "CRLF": b"id: 1\r\nevent: message\r\ndata: %b\r\nretry: 500\r\n\r\n",
    "no space": b"data:%b\n\n",
    "priming event and comment": b"id: abc\ndata: \n\n: ping\n\nretry: 10\n\nevent:message\ndata:  %b \n\n",
    "byte order mark": b"\xef\xbb\xbfdata: %b\n\n",
    "odd bytes": b": \xff\xfe\nfoo: bar\ndata: %b\n\n",
}


@pytest.mark.parametrize("name", SSE_SPELLINGS)
@looped
async def test_streams_keep_every_byte(tmp_path: Path, name: str) -> None:
    """Field order, line ends, comments, priming events and odd bytes come back; only ids change."""

    def streamed(identity: int) -> bytes:
        return SSE_SPELLINGS[name] % compact(result({"a": "é"}, id=identity))

    reply = response(streamed(1), "content-type: text/event-stream; charset=utf-8")
    await taped(tmp_path / "c.json", (message("ping"), reply))
    async with playing(tmp_path / "c.json") as replay:
        answer = await post(replay.url, message("ping", id=22))
    played = re.sub(rb"\Aid: [^\r\n]+", b"id: mrtr-event:0:1", streamed(22))
    assert answer.body == played
    assert answer.head.values("content-type") == ["text/event-stream; charset=utf-8"]


@pytest.mark.parametrize("tail", [b"data: {", b": bye", b"\r", b"id: 1\n"])
@pytest.mark.parametrize("framing", ["length", "chunks"])
@looped
async def test_what_follows_the_last_whole_event_is_kept(
    tmp_path: Path, tail: bytes, framing: str
) -> None:
    """Bytes behind the response event that are no whole event are recorded and played."""
    body = event(result({}))[:-1] + tail if tail == b"\r" else event(result({})) + tail
    if framing == "length":
        reply = response(body, EVENTS)
    else:
        reply = stream_head() + chunk(body) + chunk(b"")
    async with taping(tmp_path / "c.json", answering(reply)) as tape:
        assert (await post(tape.url, message("ping"))).body == body
    async with playing(tmp_path / "c.json") as replay:
        played = body.replace(b"id: 1\n", b"id: mrtr-event:0:1\n")
        assert (await post(replay.url, message("ping"))).body == played


@looped
async def test_every_replay_is_the_same(tmp_path: Path) -> None:
    """Two replays of a cassette give the same bytes, heads included."""
    await taped(
        tmp_path / "c.json", (tool_call("x"), event_stream(input_required("a", state="S" * 30)))
    )
    seen = []
    for _ in range(2):
        async with playing(tmp_path / "c.json") as replay, connected(replay.url) as client:
            await client.write(
                request(
                    "POST", "/mcp", JSON, ACCEPT, "Connection: close", body=compact(tool_call("x"))
                )
            )
            seen.append(b"")
            while part := await client.raw():
                seen[-1] += part
    assert seen[0] == seen[1]
    assert b"\r\nDate:" not in seen[0]
