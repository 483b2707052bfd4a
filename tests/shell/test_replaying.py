"""Facts about the replay proxy: the recording is the server, and each trap of the wire plays."""

import asyncio
import itertools
import json
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import without_digests
from harness import (
    ACCEPT,
    Answer,
    call,
    connected,
    demo_server,
    http,
    looped,
    playing,
    post,
    read,
    request,
    taping,
    until_stopped,
)
from messages import NO_ANSWER, JsonObject, asks, compact, message, result, tool, yes
from standin import (
    EVENTS,
    JSON,
    Visit,
    answering,
    chunk,
    event,
    event_stream,
    json_response,
    response,
    stream_head,
)

from mrtr_cassette.errors import CassetteError
from mrtr_cassette.options import ReplayOptions
from mrtr_cassette.shell.clock import Clock
from mrtr_cassette.shell.recording import recording
from mrtr_cassette.shell.replaying import replaying

MISS_CODE = -32010


async def recorded(cassette: Path, *exchanges: tuple[Any, bytes], **options: Any) -> None:
    """Record these messages and the responses that they get."""
    async with taping(cassette, answering(*(reply for _, reply in exchanges)), **options) as tape:
        for asked, _ in exchanges:
            await post(tape.url, asked)


@looped
async def test_a_long_load_tells_how_far_it_is(tmp_path: Path) -> None:
    """Whoever waits for a large cassette is told each second how much of it has been read."""
    path = tmp_path / "c.json"
    async with taping(path, answering(*[json_response(result({}))] * 3)) as tape:
        for _ in range(3):
            await post(tape.url, message("ping"))
    ticks = itertools.count(step=0.6)
    clock = Clock(lambda: next(ticks), asyncio.sleep)
    lines, events = [], []
    async with replaying(
        path,
        ReplayOptions(log=lines.append),
        on_event=events.append,
        clock=clock,
        told_after=1,
    ):
        pass
    assert lines == [f"reading {path}: 2 interactions so far"]
    assert events == [{"event": "reading", "interactions": 2}]


@looped
async def test_an_upstream_that_is_no_url_is_damage(tmp_path: Path) -> None:
    """A replay listens under the path of the upstream; where that can't be told, it says so."""
    path = tmp_path / "c.json"
    await recorded(path, (message("ping"), json_response(result({}))))
    path.write_bytes(compact(without_digests({**read(path), "upstream": "http://["})))
    with pytest.raises(CassetteError, match="at /upstream: no URL: "):
        async with playing(path):
            pass


# --- What is the caller's own ---

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
    await recorded(tmp_path / "c.json", (asked(IDS[at]), reply))
    async with playing(tmp_path / "c.json", repeat="always") as replay:
        for identity in IDS:
            assert (await post(replay.url, asked(identity))).body == answered(identity)


@looped
async def test_an_id_that_the_server_spells_otherwise_is_the_callers(tmp_path: Path) -> None:
    """A server that spells a number or an escape in another way still answers that id."""
    asked = b'{"jsonrpc":"2.0","id":%b,"method":"ping"}'
    answered = b'{"jsonrpc":"2.0","id":%b,"result":{}}'
    for one, other in ((b"1.0", b"1"), (b'"\\u0041"', b'"A"')):
        path = tmp_path / f"{len(one)}.json"
        await recorded(path, (asked % one, response(answered % other, JSON)))
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

    await recorded(tmp_path / "c.json", (asked(one), response(streamed(one), EVENTS)))
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
    await recorded(tmp_path / "c.json", (asked % b"3", response(streamed(b"3"), EVENTS)))
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
    """Field order, line ends, comments, priming events and odd bytes come back; only the id changes."""

    def streamed(identity: int) -> bytes:
        return SSE_SPELLINGS[name] % compact(result({"a": "é"}, id=identity))

    reply = response(streamed(1), "content-type: text/event-stream; charset=utf-8")
    await recorded(tmp_path / "c.json", (message("ping"), reply))
    async with playing(tmp_path / "c.json") as replay:
        answer = await post(replay.url, message("ping", id=22))
    assert answer.body == streamed(22)
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
        assert (await post(replay.url, message("ping"))).body == body


@looped
async def test_every_replay_is_the_same(tmp_path: Path) -> None:
    """Two replays of a cassette give the same bytes, heads included."""
    await recorded(tmp_path / "c.json", (tool("x"), event_stream(asks("S" * 30, "a"))))
    seen = []
    for _ in range(2):
        async with playing(tmp_path / "c.json") as replay, connected(replay.url) as client:
            await client.write(
                request("POST", "/mcp", JSON, ACCEPT, "Connection: close", body=compact(tool("x")))
            )
            seen.append(b"")
            while part := await client.raw():
                seen[-1] += part
    assert seen[0] == seen[1]
    assert b"\r\nDate:" not in seen[0]


# --- Misses ---


@looped
async def test_a_miss_is_an_error_with_the_callers_id(tmp_path: Path) -> None:
    """A call that was not recorded gets HTTP 200 and a JSON-RPC error that explains; the log has it."""
    await recorded(tmp_path / "c.json", (tool("x", arguments={"a": 1}), json_response(result({}))))
    log: list[str] = []
    async with playing(tmp_path / "c.json", log=log.append) as replay:
        body = b'{"method":"tools/call","id":"\\u0041","params":{"name":"x","arguments":{"a":2}},"jsonrpc":"2.0"}'
        answer = await post(replay.url, body)
        (miss,) = replay.player.misses
    assert (answer.status, answer.head.values("content-type")) == (200, ["application/json"])
    assert answer.body.startswith(b'{"jsonrpc":"2.0","id":"\\u0041","error":{"code":-32010,')
    error = answer.json["error"]
    assert miss.reason.value == "arguments-differ"
    assert error["data"]["reason"] == "arguments-differ"
    assert error["data"]["differences"] == [
        {"pointer": "/arguments/a", "recorded": "1", "received": "2"}
    ]
    assert log == [error["message"]]
    assert "/arguments/a: recorded 1, received 2" in error["message"]


@looped
async def test_a_miss_of_a_notification_is_counted(tmp_path: Path) -> None:
    """A notification that was not recorded is a miss too, though it has no id to answer."""
    await recorded(tmp_path / "c.json", (message("ping"), json_response(result({}))))
    async with playing(tmp_path / "c.json") as replay:
        answer = await post(replay.url, message("notifications/x", id=None))
        assert answer.json["id"] is None
        assert [miss.reason.value for miss in replay.player.misses] == ["unknown-method"]


@pytest.mark.parametrize(
    ("method", "body"), [("GET", None), ("POST", b"a=1"), ("DELETE", None), ("POST", b"")]
)
@looped
async def test_other_traffic_that_was_not_recorded_is_a_404(
    tmp_path: Path, method: str, body: bytes | None
) -> None:
    """What is no JSON-RPC and was not recorded gets a 404 whose text is the miss."""
    await recorded(tmp_path / "c.json", (message("ping"), json_response(result({}))))
    log: list[str] = []
    async with playing(tmp_path / "c.json", log=log.append) as replay:
        answer = await http(method, replay.url, target="/elsewhere?a=1", body=body)
        assert len(replay.player.misses) == 1
    assert answer.status == 404
    assert answer.head.values("content-type") == ["text/plain; charset=utf-8"]
    assert answer.body.decode() == log[0] + "\n"
    assert f"{method} /elsewhere?a=1" in log[0]


@looped
async def test_a_cassette_that_is_missing_or_damaged_serves_nothing(tmp_path: Path) -> None:
    """A replay without a readable cassette doesn't begin."""
    path = tmp_path / "c.json"
    with pytest.raises(CassetteError, match="there is no such cassette; record one"):
        async with replaying(path):
            pass
    await recorded(path, (message("ping"), json_response(result({"a": 1}))))
    path.write_text(path.read_text().replace('"a": 1', '"a": 2'))
    with pytest.raises(CassetteError, match=r"c\.json: interaction 1: the sha256 of"):
        async with replaying(path):
            pass


@looped
async def test_repeats_and_ignored_members_are_the_users_choice(tmp_path: Path) -> None:
    """`repeat` and `ignore` decide what may be played again and what need not be equal."""
    path = tmp_path / "c.json"
    call_at = [tool("x", arguments={"at": at}) for at in (1, 2)]
    await recorded(
        path, (call_at[0], json_response(result({}))), (message("ping"), json_response(result({})))
    )
    async with playing(path, ignore=["/arguments/at"]) as replay:
        assert (await post(replay.url, call_at[1])).json == result({})
        assert (await post(replay.url, call_at[1])).reason == "already-played"
        for _ in range(2):
            assert (await post(replay.url, message("ping"))).json == result({})
    async with playing(path, repeat="never") as replay:
        assert (await post(replay.url, message("ping"))).json == result({})
        assert (await post(replay.url, message("ping"))).reason == "already-played"
    async with playing(path, repeat="always") as replay:
        for _ in range(3):
            assert (await post(replay.url, call_at[0])).json == result({})


@looped
async def test_replay_connects_to_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While hits, streams, misses and other traffic are served no connection goes out."""
    path = tmp_path / "c.json"
    await recorded(
        path,
        (tool("x"), event_stream(asks("S" * 30))),
        (message("ping"), json_response(result({}))),
    )
    called: list[object] = []
    connect = socket.socket.connect

    async with playing(path) as replay:
        port = int(replay.url.split(":")[2].partition("/")[0])

        def guarded(one: socket.socket, address: Any) -> None:
            called.append(address)
            if address != ("127.0.0.1", port):
                raise AssertionError(address)
            connect(one, address)

        monkeypatch.setattr(socket.socket, "connect", guarded)
        monkeypatch.setattr(socket.socket, "connect_ex", guarded)
        await post(replay.url, tool("x"))
        await post(replay.url, message("ping"))
        assert (await post(replay.url, message("unknown"))).json["error"]["code"] == MISS_CODE
        assert (await http("GET", replay.url, target="/other")).status == 404
        monkeypatch.undo()
    assert called == [("127.0.0.1", port)] * 4


# --- The recorded rhythm ---


@pytest.mark.parametrize(("pace", "expected"), [("recorded", [0.5, 1.0, 2.5]), ("none", [])])
@looped
async def test_pace_asks_for_the_recorded_delays(
    tmp_path: Path,
    *,
    pace: str,
    expected: list[float],
) -> None:
    """With `--pace recorded` each event waits for its recorded time; else nothing waits."""
    path = tmp_path / "c.json"
    notes = [message("notifications/n", {"n": n}, id=None) for n in range(2)]
    await recorded(path, (message("ping"), event_stream(*notes, result({}))))
    tree = without_digests(read(path))
    for piece, at_ms in zip(
        tree["recording"]["exchanges"][0]["pieces"], (500, 1500, 4000), strict=True
    ):
        piece["at_ms"] = at_ms
    path.write_bytes(compact(tree))
    now = 100.0
    asked: list[float] = []

    async def sleep(delay: float) -> None:
        nonlocal now
        now += delay
        if delay:
            asked.append(delay)

    async with playing(path, pace=pace, clock=Clock(lambda: now, sleep)) as replay:
        answer = await post(replay.url, message("ping", id=2))
    assert answer.body == b"".join(map(event, (*notes, result({}, id=2))))
    assert asked == expected


# --- The traps of design §4 ---


@looped
async def test_an_ask_at_the_end_of_a_stream_is_a_turn(tmp_path: Path) -> None:
    """An `input_required` that comes last in a stream, after notifications, is asked and answered."""
    path = tmp_path / "c.json"
    note = message("notifications/progress", {"progressToken": 1, "progress": 1}, id=None)
    first = tool("x", _meta={"progressToken": 1})
    retry = tool("x", id=2, inputResponses=yes("ok"), requestState="R" * 40)
    await recorded(
        path,
        (first, event_stream(note, asks("R" * 40, "ok"))),
        (retry, event_stream(note, result({"done": 1}, id=2))),
    )
    (interaction,) = read(path)["interactions"]
    (turn,) = interaction["elicitation_turns"]
    state = turn["ask"]["events"][1]["data"]["result"]["requestState"]
    assert state.startswith("mrtr-state:")
    async with playing(path) as replay:
        asked = tool("x", id="a", _meta={"progressToken": "t"})
        answer = await post(replay.url, asked)
        note["params"]["progressToken"] = "t"
        assert answer.body == event(note) + event(asks(state, "ok", id="a"))
        wrong = tool("x", id="b", inputResponses={"ok": NO_ANSWER}, requestState=state)
        assert (await post(replay.url, wrong)).reason == "answers-differ"
        altered = tool("x", id="c", inputResponses=yes("ok"), requestState=state + "0")
        assert (await post(replay.url, altered)).reason == "state-unknown"
        right = tool("x", id="d", inputResponses=yes("ok"), requestState=state)
        note["params"]["progressToken"] = 1
        assert (await post(replay.url, right)).body == event(note) + event(
            result({"done": 1}, id="d")
        )


LISTEN = message("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id=1)
CHANGED = message("notifications/tools/list_changed", id=None)


@pytest.mark.parametrize("is_stream", [False, True])
@looped
async def test_a_subscription_plays_what_calls_cause(
    tmp_path: Path,
    *,
    is_stream: bool,
) -> None:
    """Each line of a never-ending body passes at once; on replay it waits for the call that caused it."""
    path = tmp_path / "c.json"
    spell: Callable[[Any], bytes] = event if is_stream else lambda value: compact(value) + b"\n"
    acknowledged = spell(message("notifications/subscriptions/acknowledged", id=None))
    changed = spell(CHANGED)
    caused = asyncio.Event()

    async def script(visit: Visit) -> None:
        method = visit.request.json["method"]
        if method == "subscriptions/listen":
            await visit.send(stream_head(EVENTS if is_stream else JSON), chunk(acknowledged))
            await caused.wait()
            await visit.send(chunk(changed))
            await visit.left()
        else:
            await visit.send(json_response(result({}, id=visit.request.json["id"])))

    async with taping(path, script) as tape, connected(tape.url) as client:
        _, body = await client.ask("POST", "/mcp", JSON, ACCEPT, body=compact(LISTEN))
        assert await body.some() == acknowledged
        await post(tape.url, message("tools/list", id=2))
        await post(tape.url, tool("add", id=3))
        caused.set()
        assert await body.some() == changed
    assert read(path)["interactions"][0]["response"]["end"] == "open"

    async with (
        until_stopped(replaying(path)) as (replay, stop),
        connected(replay.url) as client,
    ):
        head, body = await client.ask("POST", "/mcp", JSON, ACCEPT, body=compact(LISTEN))
        assert head.values("content-type") == [
            "text/event-stream" if is_stream else "application/json"
        ]
        assert await body.some() == acknowledged
        more = asyncio.create_task(body.some())
        await post(replay.url, message("tools/list", id=12))
        assert not more.done()
        await post(replay.url, tool("add", id=13))
        assert await more == changed
        await stop()
        assert await body.rest() == b""
        assert not body.is_whole


@looped
async def test_a_plain_get_waits_for_nobody(tmp_path: Path) -> None:
    """A GET that is no event stream plays at once, whatever else was under way when it was recorded."""
    path = tmp_path / "c.json"
    came, gate = asyncio.Event(), asyncio.Event()

    async def script(visit: Visit) -> None:
        if visit.request.head.line.startswith("POST"):
            await visit.send(json_response(result({})))
            return
        came.set()
        await gate.wait()
        await visit.send(response(b"{}", JSON))

    async with taping(path, script) as tape:
        slow = asyncio.create_task(http("GET", tape.url, target="/.well-known/x"))
        await came.wait()
        await post(tape.url, tool("x"))
        gate.set()
        assert (await slow).body == b"{}"
    async with playing(path) as replay, connected(replay.url) as client:
        await client.write(request("GET", "/.well-known/x"))
        for _ in range(3):
            await post(replay.url, message("unrelated"))
        reply = asyncio.create_task(client.raw())
        await post(replay.url, message("unrelated"))
        assert reply.done()


@looped
async def test_a_held_stream_ends_when_its_client_leaves(tmp_path: Path) -> None:
    """A client that leaves a stream without an end is no trouble: others go on, the replay ends."""
    path = tmp_path / "c.json"

    async def script(visit: Visit) -> None:
        await visit.send(stream_head(), chunk(b": open\n\n"))
        await visit.left()

    async with taping(path, script) as tape, connected(tape.url) as client:
        _, body = await client.ask("GET", "/mcp")
        assert await body.some() == b": open\n\n"
    async with playing(path) as replay:
        for _ in range(3):
            async with connected(replay.url) as client:
                _, body = await client.ask("GET", "/mcp")
                assert await body.some() == b": open\n\n"
        assert replay.player.plays == 3
        assert not replay.player.misses


VARIANTS = [
    ("Mcp-Method: tools/call", json_response(result({"was": "right"}))),
    ("Mcp-Method: tools/list", json_response({"jsonrpc": "2.0", "id": 1, "error": {"code": -32020, "message": "mismatch"}}, status="400 Bad Request")),
    ("Mcp-Name: y", json_response({"jsonrpc": "2.0", "id": 1, "error": {"code": -32020, "message": "name"}}, status="400 Bad Request")),
    ("Mcp-Param-Region: eu", json_response(result({"was": "eu"}))),
    ("Mcp-Param-Region: us", json_response(result({"was": "us"}))),
    ("MCP-Protocol-Version: 2025-11-25", json_response(result({"was": "old"}))),
    ("MCP-Protocol-Version: 1900-01-01", json_response({"jsonrpc": "2.0", "id": 1, "error": {"code": -32022, "message": "version"}}, status="400 Bad Request")),
    ("Accept: application/json", json_response(result({"was": "JSON"}))),
    ("Accept: text/event-stream", event_stream(result({"was": "stream"}))),
]  # fmt: skip


@looped
async def test_headers_tell_equal_bodies_apart(tmp_path: Path) -> None:
    """The same body gets, by its headers, each variant's own answer, in any order."""
    path = tmp_path / "c.json"

    async def ask(url: str, header: str) -> Answer:
        return await http("POST", url, JSON, header, body=compact(tool("x")))

    seen = {}
    async with taping(path, answering(*(reply for _, reply in VARIANTS))) as tape:
        for header, _ in VARIANTS:
            seen[header] = await ask(tape.url, header)
    async with playing(path) as replay:
        for header, _ in reversed(VARIANTS):
            answer = await ask(replay.url, header)
            assert (answer.status, answer.body) == (seen[header].status, seen[header].body)
        assert (await ask(replay.url, VARIANTS[0][0])).reason == "already-played"


@looped
async def test_a_pushed_request_keeps_its_id_and_the_rest_waits(tmp_path: Path) -> None:
    """A request that the server pushes under the call's own id keeps it; what follows waits for the answer."""
    path = tmp_path / "c.json"
    pushed = message("elicitation/create", {"message": "Sure?"}, id=1)
    posted = result({"action": "accept"}, id=1)
    answered = asyncio.Event()

    async def script(visit: Visit) -> None:
        if "method" in visit.request.json:
            await visit.send(stream_head(), chunk(event(pushed)))
            await answered.wait()
            await visit.send(chunk(event(result({"done": 1}))), chunk(b""))
        else:
            await visit.send(response(status="202 Accepted"))
            answered.set()

    async with taping(path, script) as tape, connected(tape.url) as client:
        _, body = await client.ask("POST", "/mcp", JSON, body=compact(tool("x")))
        assert await body.some() == event(pushed)
        assert (await post(tape.url, posted)).status == 202
        assert await body.rest() == event(result({"done": 1}))
    async with playing(path) as replay, connected(replay.url) as client:
        _, body = await client.ask("POST", "/mcp", JSON, body=compact(tool("x", id="mine")))
        assert await body.some() == event(pushed)
        rest = asyncio.create_task(body.rest())
        declined = await post(replay.url, result({"action": "decline"}, id=1))
        assert declined.status == 404 or "error" in declined.json
        assert not rest.done()
        assert (await post(replay.url, posted)).status == 202
        assert await rest == event(result({"done": 1}, id="mine"))


STATES = {
    "token": "v1.eyJhIjoxfQ==./+_-~token-that-is-long-enough",
    "JSON": '{"turn":1,"who":"a \\"b\\" c","path":"/x","é":"\U0001f600"}',
    "short": "s1",
    "a word": "confirmed",
    "escapes": 'tab\t newline\n quote" backslash\\ del\x7f nul\x00 end-of-the-state',
    "long": "x" * 100_000,
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("request_state", ["sealed", "verbatim"])
@looped
async def test_any_state_is_echoed_through_both_modes(
    tmp_path: Path, state: str, request_state: str
) -> None:
    """Whatever text a state is, it reaches the upstream as it was, and its stand-in plays."""
    path = tmp_path / "c.json"
    raw = STATES[state]
    retry = tool("x", id=2, inputResponses=yes("ok"), requestState=raw)
    script = answering(json_response(asks(raw, "ok")), json_response(result({"done": 1}, id=2)))
    async with taping(path, script, request_state=request_state) as tape:
        got = (await post(tape.url, tool("x"))).json["result"]["requestState"]
        assert got == raw
        await post(tape.url, retry)
        assert tape.server.received[1].json["params"]["requestState"] == raw
    assert len(read(path)["interactions"]) == 1
    async with playing(path) as replay:
        issued = (await post(replay.url, tool("x"))).json["result"]["requestState"]
        assert (issued == raw) == (request_state == "verbatim")
        for bad in (issued + " ", issued[:-1], issued.swapcase() + "x"):
            missed = await post(replay.url, tool("x", requestState=bad, inputResponses=yes("ok")))
            assert missed.reason == "state-unknown"
        played = await post(
            replay.url, retry | tool("x", id=3, inputResponses=yes("ok"), requestState=issued)
        )
        assert played.json == result({"done": 1}, id=3)


@looped
async def test_a_retry_that_comes_in_pieces_is_one_retry(tmp_path: Path) -> None:
    """A state that is cut in two on the socket is read whole, when recording and on replay."""
    path = tmp_path / "c.json"
    retry = tool("x", id=2, inputResponses=yes("ok"), requestState=STATES["token"])

    async def in_pieces(url: str, value: JsonObject) -> bytes:
        whole = request("POST", "/mcp", JSON, body=compact(value))
        cut = whole.index(b"requestState") + 20
        async with connected(url) as client:
            await client.write(whole[:cut])
            # Another exchange in between shows that the first half has been read.
            await http("GET", url, target="/between")
            await client.write(whole[cut:])
            return await (await client.answer())[1].rest()

    async def script(visit: Visit) -> None:
        if visit.request.head.line.startswith("GET"):
            await visit.send(response(b"between"))
        elif visit.request.json["id"] == 1:
            await visit.send(json_response(asks(STATES["token"], "ok")))
        else:
            await visit.send(json_response(result({"done": 1}, id=visit.request.json["id"])))

    async with taping(path, script) as tape:
        await post(tape.url, tool("x"))
        assert json.loads(await in_pieces(tape.url, retry)) == result({"done": 1}, id=2)
    assert len(read(path)["interactions"][0]["elicitation_turns"]) == 1
    assert STATES["token"] not in path.read_text()
    async with playing(path) as replay:
        retry["params"]["requestState"] = (await post(replay.url, tool("x"))).json["result"][
            "requestState"
        ]
        assert json.loads(await in_pieces(replay.url, retry)) == result({"done": 1}, id=2)


DIALECTS: dict[str, tuple[JsonObject, Any]] = {
    "array": (
        {"inputRequests": [{"id": "ok", "kind": "confirm", "description": "Sure?"}], "requestState": STATES["token"]},
        [{"id": "ok", "value": True}],
    ),
    "incomplete": (
        {"resultType": "incomplete", "inputRequests": {"ok": {"method": "elicitation/create", "params": {"message": "Sure?"}}}, "requestState": STATES["token"]},
        yes("ok"),
    ),
    "state only": ({"resultType": "input_required", "requestState": STATES["token"]}, None),
}  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
@looped
async def test_each_dialect_is_asked_and_answered(tmp_path: Path, dialect: str) -> None:
    """An ask in each dialect is sealed, is one turn with its answer, and plays only to that answer."""
    path = tmp_path / "c.json"
    ask, answers = DIALECTS[dialect]

    def retry(state: str, values: Any) -> JsonObject:
        given = {} if values is None else {"inputResponses": values}
        return tool("x", id=2, requestState=state, **given)

    await recorded(
        path,
        (tool("x"), json_response(result(ask))),
        (retry(STATES["token"], answers), json_response(result({"done": 1}, id=2))),
    )
    (interaction,) = read(path)["interactions"]
    assert len(interaction["elicitation_turns"]) == 1
    assert STATES["token"] not in path.read_text()
    async with playing(path) as replay:
        played = (await post(replay.url, tool("x"))).json["result"]
        state = played.pop("requestState")
        assert played == {key: value for key, value in ask.items() if key != "requestState"}
        if answers is not None:
            others = [{"id": "ok", "value": False}] if dialect == "array" else {"ok": NO_ANSWER}
            assert (await post(replay.url, retry(state, others))).reason == "answers-differ"
        assert (await post(replay.url, retry(state, answers))).json == result({"done": 1}, id=2)


@looped
async def test_a_session_of_the_2025_era_plays_under_a_surrogate(tmp_path: Path) -> None:
    """`initialize`, GET stream, calls and DELETE play with a session id that stands for the real one."""
    path = tmp_path / "c.json"
    real = "6f1ed2a4-4b4f-4f5e-9d4c-3f6f0e0f3a11"

    async def script(visit: Visit) -> None:
        sessions = visit.request.head.values("mcp-session-id")
        if (
            visit.request.head.line.startswith("POST")
            and visit.request.json["method"] == "initialize"
        ):
            assert sessions == []
            await visit.send(json_response(result({"v": 1}), f"Mcp-Session-Id: {real}"))
            return
        assert sessions == [real]
        if visit.request.head.line.startswith("GET"):
            await visit.send(stream_head(), chunk(b"id: 1\ndata: \n\n"))
            await visit.left()
        elif visit.request.head.line.startswith("DELETE"):
            await visit.send(response(status="204 No Content", length=False))
        elif "id" in visit.request.json:
            await visit.send(json_response(result({"tools": []}, id=visit.request.json["id"])))
        else:
            await visit.send(response(status="202 Accepted"))

    async def converse(url: str) -> str:
        opened = await post(url, message("initialize", {"protocolVersion": "2025-11-25"}))
        (session,) = opened.head.values("mcp-session-id")
        header = f"Mcp-Session-Id: {session}"
        assert (
            await post(url, message("notifications/initialized", id=None), header)
        ).status == 202
        async with connected(url) as client:
            _, body = await client.ask("GET", "/mcp", "Accept: text/event-stream", header)
            assert await body.some() == b"id: 1\ndata: \n\n"
            listed = await post(url, message("tools/list", id=2), header)
            assert listed.json == result({"tools": []}, id=2)
        assert (await http("DELETE", url, header)).status == 204
        return session

    async with taping(path, script) as tape:
        assert await converse(tape.url) == real
    assert real not in path.read_text()
    async with playing(path) as replay:
        assert await converse(replay.url) == "mrtr-session:1"
        assert not replay.player.misses
        assert replay.player.unplayed == []


@looped
async def test_branches_play_to_their_answers(tmp_path: Path) -> None:
    """An ask that was answered twice plays each answer's own outcome, in either order."""
    path = tmp_path / "c.json"
    state = STATES["token"]
    no = tool("x", id=2, inputResponses={"ok": NO_ANSWER}, requestState=state)
    sure = tool("x", id=3, inputResponses=yes("ok"), requestState=state)
    await recorded(
        path,
        (tool("x"), json_response(asks(state, "ok"))),
        (no, json_response(result({"was": "no"}, id=2))),
        (sure, json_response(result({"was": "yes"}, id=3))),
    )
    assert [one.get("branch") for one in read(path)["interactions"]] == [None, {"of": 1, "turn": 1}]
    async with playing(path) as replay:
        issued = (await post(replay.url, tool("x"))).json["result"]["requestState"]
        for retry, outcome in ((sure, "yes"), (no, "no")):
            retry["params"]["requestState"] = issued
            assert (await post(replay.url, retry)).json["result"] == {"was": outcome}


# --- Many at once ---

CLIENTS = 200
VERSION: JsonObject = {"version": "2.0"}


def text_answer(key: str, value: str) -> JsonObject:
    """Accept a form with one text field."""
    return {key: {"action": "accept", "content": {key: value}}}


async def ride(url: str, number: int, meta: JsonObject, answers_to: Callable[[str], int]) -> int:
    """Have one conversation of three rounds; return whose answers its result has.

    `answers_to` tells, by the state of the first ask, whose answers this client gives.
    """

    async def step(turn: int, **params: Any) -> JsonObject:
        identity = f"{number}-{turn}"
        answer = await call(url, "release-train", VERSION, id=identity, meta=meta, **params)
        assert answer.json["id"] == identity
        assert "result" in answer.json, answer.body
        found: JsonObject = answer.json["result"]
        return found

    ask = await step(0)
    whose = answers_to(ask["requestState"])
    rounds = (yes("approve"), text_answer("window", f"w{whose}"), text_answer("notes", f"n{whose}"))
    for turn, answers in enumerate(rounds, start=1):
        ask = await step(turn, inputResponses=answers, requestState=ask["requestState"])
    text = ask["content"][0]["text"]
    assert text == f"Train 2.0: w{whose}, n{whose}"
    return whose


def client_info(name: str) -> JsonObject:
    """Return the `_meta` of a client with a name."""
    return {"io.modelcontextprotocol/clientInfo": {"name": name, "version": "1"}}


def window_of(interaction: JsonObject) -> int:
    """Return whose answers an interaction has."""
    whose = []
    for turn, key in zip(interaction["elicitation_turns"][1:], ("window", "notes"), strict=True):
        answer = turn["answer"]["body"]["params"]["inputResponses"][key]["content"][key]
        whose.append(int(answer[1:]))
    text = interaction["response"]["body"]["result"]["content"][0]["text"]
    assert text == f"Train 2.0: w{whose[0]}, n{whose[0]}"
    assert whose[0] == whose[1]
    return whose[0]


@looped
async def test_parallel_equal_calls_never_mix(tmp_path: Path) -> None:
    """200 clients that make the same call at once are recorded as 200 conversations, and play so."""
    path = tmp_path / "c.json"

    async def all_at_once(
        url: str, names: Callable[[int], str], whose: Callable[[str], int] | None, seed: int
    ) -> list[int]:
        def own(number: int) -> Callable[[str], int]:
            return lambda _: number

        order = random.Random(seed).sample(range(CLIENTS), CLIENTS)
        return await asyncio.gather(
            *(ride(url, n, client_info(names(n)), whose or own(n)) for n in order)
        )

    async with demo_server() as upstream, recording(upstream, path) as session:
        await all_at_once(session.url, str, None, 1)
        assert session.exchanges == 4 * CLIENTS
    interactions = read(path)["interactions"]
    assert sorted(map(window_of, interactions)) == list(range(CLIENTS))
    by_state = {
        one["elicitation_turns"][0]["ask"]["body"]["result"]["requestState"]: window_of(one)
        for one in interactions
    }
    assert len(by_state) == CLIENTS

    # A client that names itself gets the conversation that it had.
    async with playing(path) as replay:
        assert sorted(await all_at_once(replay.url, str, None, 2)) == list(range(CLIENTS))
        assert (len(replay.player.misses), replay.player.plays) == (0, 4 * CLIENTS)

    # Among clients that can't be told apart, each conversation is played once, from end to end.
    async with playing(path) as replay:
        seen = await all_at_once(replay.url, lambda _: "anybody", by_state.__getitem__, 3)
        assert sorted(seen) == list(range(CLIENTS))
        assert (len(replay.player.misses), replay.player.unplayed) == (0, [])
        one_more = await call(replay.url, "release-train", VERSION, meta=client_info("anybody"))
        assert one_more.reason == "already-played"
