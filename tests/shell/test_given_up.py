"""Facts about calls that their recorded client gave up: whoever waits longer is told in the end."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from builders import (
    ACCEPTED,
    Answer,
    Conversation,
    answer,
    get,
    loaded,
    notification,
    post,
    progress,
    rpc,
    sse,
    stream,
    tool,
    with_id,
    with_token,
    within,
)
from harness import looped
from messages import text

from mrtr_cassette.core.cassette.transports import FIRST_SESSION, cassette_over_pipes
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.runs import report_of_replay, summary_data, summary_text
from mrtr_cassette.core.wire.http import End, Headers, Request, line_request
from mrtr_cassette.shell.files.disk import Clock
from mrtr_cassette.shell.files.log import Announcer
from mrtr_cassette.shell.files.reports import saved_report
from mrtr_cassette.shell.runs.replaying import ReplayServer

ONE = "mrtr-session:1"
SLOW = with_token(tool("slow"), 1)
NEWS = sse(progress(1))
ENDPOINT = b"event: endpoint\ndata: /messages?sid=q7\n\n"
NEVER = Answer((), (), status=0, end=End.OPEN)
"""No response: not even its head has come."""


@dataclass
class Downstream:
    """A client that keeps what it gets."""

    got: bytes = b""
    is_over: bool = False
    heard: asyncio.Event = field(default_factory=asyncio.Event)

    def begin_response(
        self, status: int, headers: Headers, reason: str | None = None
    ) -> None:
        """Do nothing: only the body counts here."""

    async def send_chunk(self, chunk: bytes = b"", *, is_last: bool = False) -> None:
        self.got += chunk
        self.is_over = is_last
        if chunk:
            self.heard.set()

    async def send_response(self, _status: int, _headers: Headers, body: bytes) -> None:
        self.got += body
        self.is_over = True

    def break_off(self) -> None:
        self.is_over = True


@dataclass
class Silence:
    """A clock on which time passes as soon as it is told to."""

    slept: list[float] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    passes: asyncio.Event = field(default_factory=asyncio.Event)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.asked.set()
        await self.passes.wait()


def given_up(
    request: bytes | Request, response: Answer, *, on_pipes: bool = False
) -> Player:
    """Return a replay of a request that its client left after two seconds."""
    talk = Conversation()
    number = talk.request(request)
    talk.tick = lambda: 2_001.0  # type: ignore[method-assign]
    talk.response(number, response)
    cassette = loaded(talk.cassette())

    return Player(cassette_over_pipes(cassette) if on_pipes else cassette)


@pytest.mark.parametrize("response", [NEVER, stream(progress(1), end=End.OPEN)])
@pytest.mark.parametrize("on_pipes", [False, True])
@looped
async def test_patient_client_is_told_that_no_response_was_recorded(
    response: Answer, *, on_pipes: bool
) -> None:
    """It gets what was recorded, and ten seconds after the recorded time a miss under its id."""
    mine = with_id(SLOW, "mine")
    player = given_up(SLOW, response, on_pipes=on_pipes)
    silence = Silence()
    client = Downstream()
    server = ReplayServer(
        player, Announcer(), paced=False, clock=Clock(lambda: 0.0, silence.sleep)
    )
    handling = asyncio.ensure_future(
        server.answer_request(
            line_request(mine, FIRST_SESSION) if on_pipes else post(mine), client
        )
    )

    await silence.asked.wait()
    told = client.got
    silence.passes.set()
    await handling

    assert silence.slept == [12.0]
    assert (b'"progress"' in told) is bool(response.chunks)

    error = json.loads(client.got.removeprefix(told).split(b"data: ")[-1])

    assert (error["id"], error["error"]["code"], client.is_over) == (
        "mine",
        -32010,
        True,
    )

    assert error["error"]["message"].startswith(
        "miss: no-response: its response was not recorded\n"
    )
    assert [miss.reason.value for miss in player.tally.misses] == ["no-response"]

    report = report_of_replay(player)
    told_at_last = '  no response was recorded: #1 tools/call "slow"'

    assert told_at_last in summary_text(report).splitlines()

    saved = saved_report(json.dumps(summary_data(report)).encode())

    assert saved.without_response == (1,)


@looped
async def test_patient_client_of_http_sse_is_told_on_its_stream() -> None:
    """Its call was accepted at once; the miss comes where the response would have come."""
    talk = Conversation()
    listening = talk.stream(get("/sse"))
    talk.observation(listening).response_bytes(ENDPOINT, talk.tick())
    talk.exchange(post(SLOW, target="/messages?sid=q7"), ACCEPTED)
    talk.tick = lambda: 3_000.0  # type: ignore[method-assign]
    talk.end(listening, End.OPEN)
    player = Player(loaded(talk.cassette()))
    silence = Silence()
    stream = Downstream()
    client = Downstream()
    server = ReplayServer(
        player, Announcer(), paced=False, clock=Clock(lambda: 0.0, silence.sleep)
    )
    reading = asyncio.ensure_future(server.answer_request(get("/sse"), stream))
    await stream.heard.wait()
    url = stream.got.decode().split("data: ")[1].strip()

    await server.answer_request(post(with_id(SLOW, "mine"), target=url), client)

    assert client.is_over

    await silence.asked.wait()
    told = stream.got
    stream.heard.clear()
    silence.passes.set()
    await stream.heard.wait()

    error = json.loads(stream.got.removeprefix(told).split(b"data: ")[-1])

    assert (error["id"], error["error"]["code"]) == ("mine", -32010)
    assert [miss.reason.value for miss in player.tally.misses] == ["no-response"]
    assert player.played_part.numbers_without_response

    reading.cancel()
    with suppress(asyncio.CancelledError):
        await reading


@pytest.mark.parametrize("on_pipes", [False, True])
@looped
async def test_response_after_a_cancellation_never_comes_without_one(
    *, on_pipes: bool
) -> None:
    """The miss comes ten seconds after the time at which the recorded client cancelled."""

    def in_session(request: bytes) -> Request:
        return within(ONE, request)

    talk = Conversation()
    number = talk.stream(in_session(SLOW))
    talk.event(number, progress(1))
    talk.tick = lambda: 2_001.0  # type: ignore[method-assign]
    talk.exchange(
        in_session(notification("notifications/cancelled", requestId=1)), ACCEPTED
    )
    talk.event(number, answer(SLOW, text("stopped")))
    talk.end(number)
    cassette = loaded(talk.cassette())
    player = Player(cassette_over_pipes(cassette) if on_pipes else cassette)
    silence = Silence()
    client = Downstream()
    server = ReplayServer(
        player, Announcer(), paced=False, clock=Clock(lambda: 0.0, silence.sleep)
    )
    mine = with_id(SLOW, "mine")
    request = line_request(mine, FIRST_SESSION) if on_pipes else in_session(mine)
    handling = asyncio.ensure_future(server.answer_request(request, client))
    await silence.asked.wait()

    assert silence.slept == [12.0]

    silence.passes.set()
    await handling

    assert [miss.reason.value for miss in player.tally.misses] == ["no-response"]
    assert b"stopped" not in client.got
    assert b"recorded after its cancellation" in client.got
    assert client.is_over


CANCELLED = notification("notifications/cancelled", requestId="mine")


@pytest.mark.parametrize(
    ("recorded", "received"),
    [
        (get("/mcp", ("Accept", "text/event-stream")), None),
        (rpc("subscriptions/listen", {}), None),
        (rpc("events/stream", {"name": "pushed"}), None),
        (notification("notifications/x"), None),
        (SLOW, CANCELLED),
    ],
)
@looped
async def test_what_expects_no_response_stays_open(
    recorded: bytes | Request, received: bytes | None
) -> None:
    """A listening stream is no call, and nobody waits for the response to one that it cancels."""
    player = given_up(recorded, stream(progress(1), end=End.OPEN))
    silence = Silence()
    client = Downstream()
    server = ReplayServer(
        player, Announcer(), paced=False, clock=Clock(lambda: 0.0, silence.sleep)
    )
    request = recorded if isinstance(recorded, Request) else post(recorded)
    if received is not None:
        request = post(with_id(SLOW, "mine"))

    handling = asyncio.ensure_future(server.answer_request(request, client))
    if received is not None:
        await silence.asked.wait()
        await server.answer_request(post(received), Downstream())

    silence.passes.set()
    # Nothing is left to do but to wait.
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert not handling.done()
    assert (player.tally.misses, client.got) == ([], NEWS)
    assert silence.slept == [12.0] * (received is not None)

    handling.cancel()
    with suppress(asyncio.CancelledError):
        await handling
