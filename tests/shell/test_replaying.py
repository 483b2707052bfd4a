"""Facts about the replay proxy: the recording is the server, and what it has not is a miss."""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from builders import (
    ACCEPTED,
    INITIALIZE,
    INITIALIZED,
    Answer,
    Conversation,
    answer,
    as_request,
    cassette_of,
    conversation,
    encode_cassette,
    loaded,
    missed,
    notification,
    player_of,
    progress,
    rpc,
    session_steps,
    stream,
    tool,
    with_token,
    within,
    without_digests,
)
from builders import post as posted
from counting import steps
from harness import (
    ACCEPT,
    connected,
    http,
    looped,
    playing,
    post,
    read,
    taped,
    taping,
    until_stopped,
)
from messages import JsonObject, compact, message, result, text, tool_call, yes
from standin import (
    EVENTS,
    JSON,
    Visit,
    chunk,
    event,
    event_stream,
    json_response,
    stream_head,
)
from tasking import created, state

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.transports import cassette_over_http
from mrtr_cassette.core.replay.deliveries import Play
from mrtr_cassette.core.replay.diagnosis import Reason
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.secrets.names import session_surrogate
from mrtr_cassette.core.wire.http import End, Headers, Request
from mrtr_cassette.options import ReplayOptions
from mrtr_cassette.shell.files.disk import CLOCK, Clock
from mrtr_cassette.shell.files.log import Announcer
from mrtr_cassette.shell.files.stores import Location, keep_fetched, location_of
from mrtr_cassette.shell.runs.proxy_runs import ReplayRun
from mrtr_cassette.shell.runs.replaying import LoadedReplays, ReplayServer, replaying


@looped
async def test_a_miss_is_an_error_with_the_callers_id(tmp_path: Path) -> None:
    """A call that was not recorded gets HTTP 200 and a JSON-RPC error that explains; the log has it."""
    await taped(
        tmp_path / "c.json",
        (tool_call("x", arguments={"a": 1}), json_response(result({}))),
    )

    log: list[str] = []
    async with playing(tmp_path / "c.json", log=log.append) as replay:
        body = b'{"method":"tools/call","id":"\\u0041","params":{"name":"x","arguments":{"a":2}},"jsonrpc":"2.0"}'
        answer = await post(replay.url, body)
        (miss,) = replay.player.tally.misses

    assert (answer.status, answer.head.values("content-type")) == (
        200,
        ["application/json"],
    )

    assert answer.body.startswith(
        b'{"jsonrpc":"2.0","id":"\\u0041","error":{"code":-32010,'
    )

    error = answer.json["error"]

    assert miss.reason.value == "arguments-differ"
    assert error["data"]["reason"] == "arguments-differ"
    assert error["data"]["differences"] == [
        {"pointer": "/arguments/a", "recorded": "1", "received": "2"}
    ]
    assert log == [error["message"]]
    assert "/arguments/a: recorded 1, received 2" in error["message"]


def test_a_miss_is_put_into_words_once(tmp_path: Path) -> None:
    """Who asks what a replay came to after each of many misses doesn't wait for all of them."""
    player = player_of((tool("get", k=1), result({})))
    replay_run = ReplayRun("", "", tmp_path, player.recording, player)
    missed(player, tool("get", k=2))
    (first,) = replay_run.outcome.misses
    missed(player, tool("get", k=3))

    assert replay_run.outcome.misses[0] is first
    assert len(replay_run.outcome.misses) == 2


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

        assert replay.player.tally.misses == []

    assert ping.json == {"jsonrpc": "2.0", "id": "p", "result": {}}
    assert probe.json["error"]["code"] == -32601
    assert (notified.status, notified.body) == (202, b"")
    assert (metadata.status, metadata.body) == (404, b"")
    assert [event["event"] for event in events] == ["harmless"] * 4


@looped
async def test_framing_that_a_cassette_names_is_not_sent(tmp_path: Path) -> None:
    """Whatever a stranger's cassette says of a body's length, the client gets the whole body."""
    path = tmp_path / "c.json"
    await taped(path, (tool_call("x"), json_response(result({"a": 1}))))
    tree = without_digests(read(path))
    recorded = tree["interactions"][0]["response"]
    recorded["headers"] |= {
        "Content-Length": "3",
        "transfer-encoding": "gzip",
        "Trailer": "a",
    }

    path.write_text(json.dumps(tree))

    async with playing(path) as replay:
        answer = await post(replay.url, tool_call("x"))

    assert (answer.is_whole, answer.json["result"]) == (True, {"a": 1})
    assert answer.head.values("content-length") == [str(len(answer.body))]
    assert not answer.head.values("transfer-encoding") + answer.head.values("trailer")


@pytest.mark.parametrize(
    ("pace", "expected"), [("recorded", [0.5, 1.0, 2.5]), ("none", [])]
)
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


class Downstream:
    """A client that keeps the bytes that it gets."""

    def __init__(self) -> None:
        self.got = b""

    def begin_response(
        self, status: int, headers: Headers, reason: str | None = None
    ) -> None:
        """Do nothing: only the body counts here."""

    async def send_chunk(self, chunk: bytes = b"", *, is_last: bool = False) -> None:
        self.got += chunk

    async def send_response(self, status: int, headers: Headers, body: bytes) -> None:
        self.got += body

    def break_off(self) -> None:
        raise AssertionError("unreachable because nothing is broken off")


class Hearing(Downstream):
    """A client that waits for the first bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = asyncio.Event()

    async def send_chunk(self, chunk: bytes = b"", *, is_last: bool = False) -> None:
        await super().send_chunk(chunk, is_last=is_last)
        if chunk:
            self.heard.set()


@looped
async def test_task_follows_the_clock_of_the_replay(tmp_path: Path) -> None:
    """It is created when its call is played, and polled as often as the user says; events tell."""
    path = tmp_path / "c.json"
    events = list[JsonObject]()
    names = {"taskId": "t1"}
    asked = message("tasks/get", names)
    update = message("tasks/update", {**names, "inputResponses": yes("a")})
    script = (
        (tool_call("x"), created("t1")),
        (asked, state("t1", "input_required", "a")),
        (update, {}),
    )

    talk = Conversation(seals=False)
    for request, reply in script:
        talk.exchange(compact(request), reply)

    path.write_bytes(encode_cassette(talk.cassette()))
    requests = [*(request for request, _ in script), asked]
    options = {"poll_interval": 7, "clock": replace(CLOCK, wall=lambda: 60.0)}
    async with playing(path, on_event=events.append, **options) as replay:
        told = [
            (await post(replay.url, request)).json["result"] for request in requests
        ]

        assert replay.player.played_part.unplayed_numbers == []

    for task in (told[0], told[1], told[3]):
        assert task["createdAt"] == "1970-01-01T00:01:00Z"
        assert task["pollIntervalMs"] == 7

    place = {"call": 'tools/call "x"', "interaction": 1, "turn": 1, "via": "task"}

    assert [event for event in events if event["event"] != "played"] == [
        {"event": "asked", **place, "keys": {"a": "form"}},
        {"event": "answered", **place, "keys": ["a"]},
    ]


@looped
async def test_call_without_a_response_is_no_miss_of_a_run_that_has_ended(
    tmp_path: Path,
) -> None:
    """A call that was accepted is waited for, and the run may end meanwhile."""
    path = tmp_path / "c.json"
    path.write_bytes(encode_cassette(cassette_of((tool("send"), ACCEPTED))))
    is_over = asyncio.Event()

    async def sleep(_delay: float) -> None:
        await is_over.wait()

    events: list[JsonObject] = []
    clock = Clock(lambda: 0.0, sleep)
    async with playing(path, clock=clock, on_event=events.append) as replay:
        accepted = await post(replay.url, tool("send"))

    is_over.set()
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})

    assert accepted.status == 202
    assert [event["event"] for event in events] == ["played"]
    assert not replay.player.tally.misses


@looped
async def test_call_whose_client_never_sends_a_notification_ends_after_some_silence() -> (
    None
):
    """Its client may do nothing else before it has the result, so nobody would ever go on."""
    session = ("Mcp-Session-Id", "s" * 32)
    call = posted(tool("work"), session)
    talk = Conversation()
    calling = talk.stream(call)
    told = talk.request(
        posted(notification("notifications/roots/list_changed"), session)
    )
    talk.response(told, Answer((), (), 202))
    talk.response(calling, stream(compact(result({"done": 1}))))
    player = Player(loaded(talk.cassette()))
    server = ReplayServer(player, Announcer(), paced=False, silence_s=0.0)
    downstream = Downstream()

    await server.answer_request(call, downstream)

    assert b'"done":1' in downstream.got
    assert not player.tally.misses


def steps_beside_listening_sessions(count: int) -> int:
    """Return the steps of a call in one of some sessions whose streams wait for a later call."""
    talk = Conversation()
    for recorded in range(1, count + 1):
        name = f"session-{recorded:04}-abcdef"
        for request, response in session_steps(name):
            talk.exchange(request, response)

        listening = talk.stream(within(name, Request("GET", "/mcp", (), b"")))
        for number in (1, 2):
            talk.exchange(within(name, tool("work", k=number)), {})

        talk.event(listening, notification("notifications/resources/list_changed"))
        talk.end(listening)

    server = ReplayServer(Player(loaded(talk.cassette())), Announcer(), paced=False)

    async def listen_in_all() -> list[asyncio.Task[None]]:
        listening = []
        for recorded in range(1, count + 1):
            name = session_surrogate(recorded)
            await server.answer_request(as_request(INITIALIZE), Downstream())
            await server.answer_request(within(name, INITIALIZED), Downstream())
            request = within(name, Request("GET", "/mcp", (), b""))
            listening.append(
                asyncio.create_task(server.answer_request(request, Downstream()))
            )

        await asyncio.sleep(0)
        return listening

    async def call_in_one(number: int) -> None:
        call = within(session_surrogate(1), tool("work", k=number))
        await server.answer_request(call, Downstream())
        # Whatever was woken goes on before this.
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    with asyncio.Runner() as runner:
        listening = runner.run(listen_in_all())
        counted = steps(lambda: runner.run(call_in_one(1)))

        assert not any(task.done() for task in listening)

        runner.run(call_in_one(2))

        assert [task.done() for task in listening].count(True) == 1

    return counted


def test_call_wakes_the_responses_of_its_own_session_only() -> None:
    """It may be what the streams of its own client wait for, and nobody else's."""
    few, many = map(steps_beside_listening_sessions, (2, 12))

    assert many < 1.5 * few


@looped
async def test_call_whose_client_does_not_hear_the_question_is_a_miss() -> None:
    """The server asked on the listening stream, which this client never opens."""
    session = ("Mcp-Session-Id", "s" * 32)
    question = rpc("elicitation/create", {"message": "Sure?"}, number="q")
    talk = Conversation()
    listening = talk.stream(Request("GET", "/mcp", (session,), b""))
    call = posted(tool("work"), session)
    calling = talk.request(call)
    talk.event(listening, question)
    talk.exchange(
        posted(answer(question, {"action": "decline"}), session), Answer((), (), 202)
    )
    talk.response(calling, {"done": 1})
    talk.end(listening, End.OPEN)
    player = Player(loaded(talk.cassette()))
    server = ReplayServer(player, Announcer(), paced=False, silence_s=0.0)
    downstream = Downstream()

    await server.answer_request(call, downstream)

    assert [miss.reason for miss in player.tally.misses] == [Reason.NOT_LISTENING]
    assert b"not-listening" in downstream.got


@looped
async def test_question_does_not_wait_for_ever_for_a_call_that_is_left_out() -> None:
    """Another call came while this one was under way; its client may not make it."""
    session = ("Mcp-Session-Id", "s" * 32)
    question = rpc("elicitation/create", {"message": "Sure?"}, number="q")
    listen = Request("GET", "/mcp", (session,), b"")
    call = posted(tool("work"), session)
    talk = Conversation()
    listening = talk.stream(listen)
    calling = talk.request(call)
    talk.exchange(posted(tool("other"), session), text("other"))
    talk.event(listening, question)
    talk.exchange(
        posted(answer(question, {"action": "decline"}), session), Answer((), (), 202)
    )
    talk.response(calling, {"done": 1})
    talk.end(listening, End.OPEN)
    player = Player(loaded(talk.cassette()))
    server = ReplayServer(player, Announcer(), paced=False, silence_s=0.0)
    hearing = Hearing()
    async with asyncio.TaskGroup() as clients:
        handled = [
            clients.create_task(server.answer_request(listen, hearing)),
            clients.create_task(server.answer_request(call, Downstream())),
        ]
        await hearing.heard.wait()
        for task in handled:
            task.cancel()

    assert question in hearing.got


LISTEN = message(
    "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id=1
)


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
    spell: Callable[[Any], bytes] = (
        event if is_stream else lambda value: compact(value) + b"\n"
    )
    acknowledged = spell(message("notifications/subscriptions/acknowledged", id=None))
    changed = spell(CHANGED)
    caused = asyncio.Event()

    async def script(visit: Visit) -> None:
        method = visit.request.json["method"]
        if method == "subscriptions/listen":
            await visit.send(
                stream_head(EVENTS if is_stream else JSON), chunk(acknowledged)
            )
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
        head, body = await client.ask(
            "POST", "/mcp", JSON, ACCEPT, body=compact(LISTEN)
        )

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
async def test_response_waits_for_the_events_on_the_listening_stream_of_its_session() -> (
    None
):
    """Progress that came there before the response is sent before it, unless its client has left."""
    session = ("Mcp-Session-Id", "s" * 32)
    listen = Request("GET", "/mcp", (("Accept", "text/event-stream"), session), b"")
    call = posted(with_token(tool("work"), 1), session)
    talk = Conversation()
    listening = talk.stream(listen)
    calling = talk.request(call)
    for done in (1, 2):
        talk.event(listening, progress(1, done))

    talk.response(calling, {"done": 1})
    talk.end(listening, End.OPEN)

    for leaves in (False, True):
        player = Player(loaded(talk.cassette()))
        pauses: list[float] = []

        async def sleep(seconds: float, pauses: list[float] = pauses) -> None:
            pauses.append(seconds)

        server = ReplayServer(
            player, Announcer(), paced=False, clock=Clock(lambda: 0.0, sleep)
        )
        order: list[str] = []
        stream = Ordered("event", order)
        client = Ordered("response", order)
        hearing = asyncio.ensure_future(server.answer_request(listen, stream))
        await stream.begun.wait()
        if leaves:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

        await server.answer_request(call, client)

        assert order == (["response"] if leaves else ["event", "event", "response"])
        assert bool(pauses) is not leaves

        hearing.cancel()


class Ordered(Downstream):
    """A client that notes in a list of several ones when it gets something."""

    def __init__(self, name: str, order: list[str]) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self._name = name
        self._order = order

    def begin_response(
        self, status: int, headers: Headers, reason: str | None = None
    ) -> None:
        self.begun.set()

    async def send_chunk(self, chunk: bytes = b"", *, is_last: bool = False) -> None:
        if chunk:
            self._order.append(self._name)

    async def send_response(self, status: int, headers: Headers, body: bytes) -> None:
        self._order.append(self._name)


@looped
async def test_response_waits_some_time_only_for_a_stream_that_nobody_reads() -> None:
    """A client may open a stream and never read it: its calls are not stuck."""
    session = ("Mcp-Session-Id", "s" * 32)
    listen = Request("GET", "/mcp", (("Accept", "text/event-stream"), session), b"")
    call = posted(with_token(tool("work"), 1), session)
    talk = Conversation()
    listening = talk.stream(listen)
    calling = talk.request(call)
    talk.event(listening, progress(1))
    talk.response(calling, {"done": 1})
    talk.end(listening, End.OPEN)
    player = Player(loaded(talk.cassette()))
    server = ReplayServer(player, Announcer(), paced=False, silence_s=0.0)
    # Nothing is sent of what it has.
    assert isinstance(player.request_received(listen), Play)
    downstream = Downstream()

    await server.answer_request(call, downstream)

    assert b'"done":1' in downstream.got


def test_cassette_that_is_played_again_and_again_stays_loaded(tmp_path: Path) -> None:
    """Others push each other out, and a cassette that is in no file pushes out none."""
    raw = encode_cassette(cassette_of((tool("x"), result({}))))
    paths = [tmp_path / f"{number}.json" for number in range(40)]
    for path in paths:
        path.write_bytes(raw)

    store_file = location_of(keep_fetched("https://a.example/loaded-again.json", raw))
    loaded_replays = LoadedReplays()

    def load(place: Location) -> Cassette:
        return loaded_replays.load_or_reuse(place, cassette_over_http, ReplayOptions())[
            0
        ]

    first = load(paths[0])
    for path in paths[1:]:
        load(path)

        assert load(paths[0]) is first

    for _ in paths:
        load(store_file)

    assert load(paths[-1]) is load(paths[-1])
    assert load(paths[0]) is first


def test_plays_that_begin_at_once_load_their_cassette_once(tmp_path: Path) -> None:
    """Threads share what is loaded, and each gets a player of its own."""
    recorded = conversation((tool("x"), result({}))).cassette()
    path = tmp_path / "c.json"
    path.write_bytes(encode_cassette(recorded))
    loaded_replays = LoadedReplays()
    all_there = Barrier(16)

    def load(_: int) -> tuple[Cassette, Player]:
        all_there.wait()
        return loaded_replays.load_or_reuse(path, cassette_over_http, ReplayOptions())

    with ThreadPoolExecutor(16) as threads:
        found = [*threads.map(load, range(16))]

    assert len({id(cassette) for cassette, _ in found}) == 1
    assert len({id(player) for _, player in found}) == 16
