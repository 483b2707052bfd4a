"""Facts about the replay proxy: the recording is the server, and what it has not is a miss."""

import asyncio
import itertools
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import Answer, Conversation, loaded, notification, stream, tool, without_digests
from builders import post as posted
from harness import (
    call,
    demo_server,
    http,
    looped,
    playing,
    post,
    read,
    taped,
    taping,
)
from messages import JsonObject, compact, input_required, message, result, tool_call, yes
from shown import ROOT
from standin import (
    answering,
    event,
    event_stream,
    json_response,
)

from mrtr_cassette.cli.common import TERMS
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import Headers
from mrtr_cassette.errors import CassetteError
from mrtr_cassette.options import ReplayOptions
from mrtr_cassette.shell.announcing import Announcer
from mrtr_cassette.shell.clock import Clock
from mrtr_cassette.shell.recording import recording
from mrtr_cassette.shell.replaying import ReplayServer, replaying

MISS_CODE = -32010


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
    assert lines == [f"reading {path}: 2 of 3 interactions, 1 s left"]
    assert events == [{"event": "reading", "interactions": 2, "of": 3, "left_s": 0.6}]


@looped
async def test_a_miss_is_an_error_with_the_callers_id(tmp_path: Path) -> None:
    """A call that was not recorded gets HTTP 200 and a JSON-RPC error that explains; the log has it."""
    await taped(
        tmp_path / "c.json", (tool_call("x", arguments={"a": 1}), json_response(result({})))
    )
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
    """A notification that is not harmless is a miss too, though it has no id to answer."""
    await taped(tmp_path / "c.json", (message("ping"), json_response(result({}))))
    async with playing(tmp_path / "c.json", strict=True) as replay:
        answer = await post(replay.url, message("notifications/x", id=None))
        assert answer.json["id"] is None
        assert [miss.reason.value for miss in replay.player.misses] == ["unknown-method"]


@looped
async def test_harmless_requests_get_what_any_server_answers(tmp_path: Path) -> None:
    """They need no recording, are logged as events, and are no miss."""
    await taped(tmp_path / "c.json", (message("initialize"), json_response(result({}))))
    events: list[JsonObject] = []
    async with replaying(tmp_path / "c.json", on_event=events.append) as replay:
        ping = await post(replay.url, message("ping", id="p"))
        notified = await post(replay.url, message("notifications/x", id=None))
        probe = await post(replay.url, message("server/discover"))
        metadata = await http("GET", replay.url, target="/.well-known/x")
        assert replay.player.misses == []

    assert ping.json == {"jsonrpc": "2.0", "id": "p", "result": {}}
    assert probe.json["error"]["code"] == -32601
    assert [(each.status, each.body) for each in (notified, metadata)] == [(202, b""), (404, b"")]
    assert [event["event"] for event in events] == ["harmless"] * 4


@pytest.mark.parametrize(
    ("method", "body"), [("GET", None), ("POST", b"a=1"), ("DELETE", None), ("POST", b"")]
)
@looped
async def test_other_traffic_that_was_not_recorded_is_a_404(
    tmp_path: Path, method: str, body: bytes | None
) -> None:
    """What is no JSON-RPC and was not recorded gets a 404 whose text is the miss."""
    await taped(tmp_path / "c.json", (message("ping"), json_response(result({}))))
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
    await taped(path, (message("ping"), json_response(result({"a": 1}))))
    path.write_text(path.read_text().replace('"a": 1', '"a": 2'))
    with pytest.raises(CassetteError, match=r"c\.json: interaction 1: the sha256 of"):
        async with replaying(path):
            pass


@looped
async def test_repeats_and_ignored_members_are_the_users_choice(tmp_path: Path) -> None:
    """`repeat` and `ignore` decide what may be played again and what need not be equal."""
    path = tmp_path / "c.json"
    call_at = [tool_call("x", arguments={"at": at}) for at in (1, 2)]
    await taped(
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
async def test_without_memory_replicas_are_alike_and_what_tells_requests_apart_is_told(
    tmp_path: Path,
) -> None:
    """Each answers as often as it is asked; the start says what the answer depends on."""
    path = tmp_path / "c.json"
    quiet, told = tool_call("x"), tool_call("x", _meta={"progressToken": 1})
    await taped(path, (quiet, json_response(result("a"))), (told, json_response(result("b"))))
    lines: list[str] = []
    events: list[dict[str, Any]] = []
    for _ in range(2):
        async with playing(
            path, stateless=True, log=lines.append, on_event=events.append
        ) as replay:
            for _ in range(2):
                assert (await post(replay.url, quiet)).json == result("a")
                assert (await post(replay.url, told)).json == result("b")
    note = '  #1, #2: tools/call "x", told apart by a progress token'
    assert lines == [f"note: recorded with several answers:\n{note}"] * 2
    assert events[0] == {
        "event": "told_apart",
        "requests": [
            {
                "call": 'tools/call "x"',
                "interactions": (1, 2),
                "told_apart_by": ("a progress token",),
            }
        ],
    }


@looped
async def test_without_memory_a_counter_is_refused(tmp_path: Path) -> None:
    """Nothing listens where the same request has two answers."""
    path = tmp_path / "c.json"
    call = tool_call("count")
    await taped(path, (call, json_response(result(1))), (call, json_response(result(2))))
    with pytest.raises(CassetteError, match=r'\n  #1, #2: tools/call "count"$') as caught:
        async with playing(path, stateless=True):
            pass
    assert caught.value.exit_code == 3
    line = caught.value.in_terms(TERMS).partition("\n")[0].replace(str(path), "poll.json")
    assert f"error: {line}\n" in (ROOT / "docs" / "fleet.md").read_text()


@looped
async def test_replay_connects_to_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While hits, streams, misses and other traffic are served no connection goes out."""
    path = tmp_path / "c.json"
    await taped(
        path,
        (tool_call("x"), event_stream(input_required(state="S" * 30))),
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
        await post(replay.url, tool_call("x"))
        await post(replay.url, message("ping"))
        assert (await post(replay.url, message("unknown"))).json["error"]["code"] == MISS_CODE
        assert (await http("GET", replay.url, target="/other")).status == 404
        monkeypatch.undo()
    assert called == [("127.0.0.1", port)] * 4


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
    await taped(path, (message("ping"), event_stream(*notes, result({}))))
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


@looped
async def test_an_upstream_that_is_no_url_is_damage(tmp_path: Path) -> None:
    """A replay listens under the path of the upstream; where that can't be told, it says so."""
    path = tmp_path / "c.json"
    await taped(path, (message("ping"), json_response(result({}))))
    path.write_bytes(compact(without_digests({**read(path), "upstream": "http://["})))
    with pytest.raises(CassetteError, match="at /upstream: no URL: "):
        async with playing(path):
            pass


class Downstream:
    """A client that keeps the bytes that it gets."""

    def __init__(self) -> None:
        self.got = b""

    def begin(self, status: int, headers: Headers, reason: str | None = None) -> None:
        """Do nothing: only the body counts here."""

    async def send(self, chunk: bytes = b"", *, is_last: bool = False) -> None:
        self.got += chunk

    async def send_whole(self, status: int, headers: Headers, body: bytes) -> None:
        self.got += body

    def break_off(self) -> None:
        raise AssertionError("unreachable because nothing is broken off")


@looped
async def test_call_whose_client_never_sends_a_notification_ends_after_some_silence() -> None:
    """Its client may do nothing else before it has the result, so nobody would ever go on."""
    session = ("Mcp-Session-Id", "s" * 32)
    call = posted(tool("work"), session)
    talk = Conversation()
    calling = talk.stream(call)
    told = talk.request(posted(notification("notifications/roots/list_changed"), session))
    talk.response(told, Answer((), (), 202))
    talk.response(calling, stream(compact(result({"done": 1}))))
    player = Player(loaded(talk.cassette()))
    server = ReplayServer(player, Announcer(), paced=False, silence_s=0.0)
    downstream = Downstream()

    await server.handle(call, downstream)

    assert b'"done":1' in downstream.got
    assert not player.misses
