"""Facts about conversations on replay: each trap of the wire plays."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import (
    ACCEPT,
    Answer,
    connected,
    http,
    looped,
    playing,
    post,
    read,
    request,
    taped,
    taping,
    until_stopped,
)
from messages import NO, JsonObject, compact, input_required, message, result, tool_call, yes
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

from mrtr_cassette.shell.replaying import replaying


@looped
async def test_an_ask_at_the_end_of_a_stream_is_a_turn(tmp_path: Path) -> None:
    """An `input_required` that comes last in a stream, after notifications, is asked and answered."""
    path = tmp_path / "c.json"
    note = message("notifications/progress", {"progressToken": 1, "progress": 1}, id=None)
    first = tool_call("x", _meta={"progressToken": 1})
    retry = tool_call("x", id=2, inputResponses=yes("ok"), requestState="R" * 40)
    await taped(
        path,
        (first, event_stream(note, input_required("ok", state="R" * 40))),
        (retry, event_stream(note, result({"done": 1}, id=2))),
    )
    (interaction,) = read(path)["interactions"]
    (turn,) = interaction["elicitation_turns"]
    state = turn["ask"]["events"][1]["data"]["result"]["requestState"]
    assert state.startswith("mrtr-state:")
    async with playing(path) as replay:
        asked = tool_call("x", id="a", _meta={"progressToken": "t"})
        answer = await post(replay.url, asked)
        note["params"]["progressToken"] = "t"
        assert answer.body == event(note) + event(input_required("ok", state=state, id="a"))
        wrong = tool_call("x", id="b", inputResponses={"ok": NO}, requestState=state)
        assert (await post(replay.url, wrong)).reason == "answers-differ"
        altered = tool_call("x", id="c", inputResponses=yes("ok"), requestState=state + "0")
        assert (await post(replay.url, altered)).reason == "state-unknown"
        right = tool_call("x", id="d", inputResponses=yes("ok"), requestState=state)
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
        await post(tape.url, tool_call("add", id=3))
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
        await post(replay.url, tool_call("add", id=13))
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
        await post(tape.url, tool_call("x"))
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
        return await http("POST", url, JSON, header, body=compact(tool_call("x")))

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
        _, body = await client.ask("POST", "/mcp", JSON, body=compact(tool_call("x")))
        assert await body.some() == event(pushed)
        assert (await post(tape.url, posted)).status == 202
        assert await body.rest() == event(result({"done": 1}))
    async with playing(path) as replay, connected(replay.url) as client:
        _, body = await client.ask("POST", "/mcp", JSON, body=compact(tool_call("x", id="mine")))
        assert await body.some() == event(pushed)
        rest = asyncio.create_task(body.rest())
        assert (await post(replay.url, posted)).status == 202
        assert await rest == event(result({"done": 1}, id="mine"))
    async with playing(path) as replay, connected(replay.url) as client:
        _, body = await client.ask("POST", "/mcp", JSON, body=compact(tool_call("x", id="mine")))
        assert await body.some() == event(pushed)
        rest = asyncio.create_task(body.rest())
        assert (await post(replay.url, result({"action": "decline"}, id=1))).status == 202
        error = json.loads((await rest).removeprefix(b"event: message\ndata: "))
        assert error["id"] == "mine"
        assert error["error"]["data"]["reason"] == "answers-differ"


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
    retry = tool_call("x", id=2, inputResponses=yes("ok"), requestState=raw)
    script = answering(
        json_response(input_required("ok", state=raw)), json_response(result({"done": 1}, id=2))
    )
    async with taping(path, script, request_state=request_state) as tape:
        got = (await post(tape.url, tool_call("x"))).json["result"]["requestState"]
        assert got == raw
        await post(tape.url, retry)
        assert tape.server.received[1].json["params"]["requestState"] == raw
    assert len(read(path)["interactions"]) == 1
    async with playing(path) as replay:
        issued = (await post(replay.url, tool_call("x"))).json["result"]["requestState"]
        assert (issued == raw) == (request_state == "verbatim")
        for bad in (issued + " ", issued[:-1], issued.swapcase() + "x"):
            missed = await post(
                replay.url, tool_call("x", requestState=bad, inputResponses=yes("ok"))
            )
            assert missed.reason == "state-unknown"
        played = await post(
            replay.url, retry | tool_call("x", id=3, inputResponses=yes("ok"), requestState=issued)
        )
        assert played.json == result({"done": 1}, id=3)


@looped
async def test_a_retry_that_comes_in_pieces_is_one_retry(tmp_path: Path) -> None:
    """A state that is cut in two on the socket is read whole, when recording and on replay."""
    path = tmp_path / "c.json"
    retry = tool_call("x", id=2, inputResponses=yes("ok"), requestState=STATES["token"])

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
            await visit.send(json_response(input_required("ok", state=STATES["token"])))
        else:
            await visit.send(json_response(result({"done": 1}, id=visit.request.json["id"])))

    async with taping(path, script) as tape:
        await post(tape.url, tool_call("x"))
        assert json.loads(await in_pieces(tape.url, retry)) == result({"done": 1}, id=2)
    assert len(read(path)["interactions"][0]["elicitation_turns"]) == 1
    assert STATES["token"] not in path.read_text()
    async with playing(path) as replay:
        retry["params"]["requestState"] = (await post(replay.url, tool_call("x"))).json["result"][
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
        return tool_call("x", id=2, requestState=state, **given)

    await taped(
        path,
        (tool_call("x"), json_response(result(ask))),
        (retry(STATES["token"], answers), json_response(result({"done": 1}, id=2))),
    )
    (interaction,) = read(path)["interactions"]
    assert len(interaction["elicitation_turns"]) == 1
    assert STATES["token"] not in path.read_text()
    async with playing(path) as replay:
        played = (await post(replay.url, tool_call("x"))).json["result"]
        state = played.pop("requestState")
        assert played == {key: value for key, value in ask.items() if key != "requestState"}
        if answers is not None:
            others = [{"id": "ok", "value": False}] if dialect == "array" else {"ok": NO}
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

    async def converse(url: str, event_id: bytes) -> str:
        opened = await post(url, message("initialize", {"protocolVersion": "2025-11-25"}))
        (session,) = opened.head.values("mcp-session-id")
        header = f"Mcp-Session-Id: {session}"
        assert (
            await post(url, message("notifications/initialized", id=None), header)
        ).status == 202
        async with connected(url) as client:
            _, body = await client.ask("GET", "/mcp", "Accept: text/event-stream", header)
            assert await body.some() == b"id: %b\ndata: \n\n" % event_id
            listed = await post(url, message("tools/list", id=2), header)
            assert listed.json == result({"tools": []}, id=2)
        assert (await http("DELETE", url, header)).status == 204
        return session

    async with taping(path, script) as tape:
        assert await converse(tape.url, b"1") == real
    assert real not in path.read_text()
    async with playing(path) as replay:
        assert await converse(replay.url, b"mrtr-event:1:1") == "mrtr-session:1"
        assert not replay.player.misses
        assert replay.player.unplayed == []


@looped
async def test_branches_play_to_their_answers(tmp_path: Path) -> None:
    """An ask that was answered twice plays each answer's own outcome, in either order."""
    path = tmp_path / "c.json"
    state = STATES["token"]
    no = tool_call("x", id=2, inputResponses={"ok": NO}, requestState=state)
    sure = tool_call("x", id=3, inputResponses=yes("ok"), requestState=state)
    await taped(
        path,
        (tool_call("x"), json_response(input_required("ok", state=state))),
        (no, json_response(result({"was": "no"}, id=2))),
        (sure, json_response(result({"was": "yes"}, id=3))),
    )
    assert [one.get("branch") for one in read(path)["interactions"]] == [None, {"of": 1, "turn": 1}]
    async with playing(path) as replay:
        issued = (await post(replay.url, tool_call("x"))).json["result"]["requestState"]
        for retry, outcome in ((sure, "yes"), (no, "no")):
            retry["params"]["requestState"] = issued
            assert (await post(replay.url, retry)).json["result"] == {"was": outcome}
