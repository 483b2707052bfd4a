"""Facts about the events and lines of logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
from builders import (
    Answer,
    Step,
    conversation,
    get,
    hit,
    missed,
    player_of,
    post,
    retry,
    rpc,
    sent_now,
    state_in,
    tool,
)
from goldens import DATA, read_case
from messages import NO, YES, asks, text
from pushing import SESSION, PushingSession, asked_once, elicit, in_sealed_session, posted

from mrtr_cassette.core.cassette.recorded import pushed_asks
from mrtr_cassette.core.record.recorder import Recorder, Unread
from mrtr_cassette.core.replay.diagnosis import Harmless
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.events import (
    Event,
    Said,
    asked_by_push_event,
    caught_up_said,
    failed_said,
    harmless_event,
    missed_event,
    played_events,
    pushed_said,
    request_event,
    response_said,
    unreachable_said,
    unread_said,
)
from mrtr_cassette.core.report.runs import report_of_miss
from mrtr_cassette.core.wire.http import End

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
BRANCHED: tuple[Step, ...] = (
    (CALL, asks("a", state=STATE)),
    (retry(CALL, {"a": NO}, state=STATE), text("left")),
    (retry(CALL, {"a": YES}, state=STATE), text("done")),
)
Told = Iterator[Event | Said]


def observed(request: Any, response: Any) -> Any:
    """Return what is seen of an exchange that has ended."""
    talk = conversation()
    number = talk.request(request)
    talk.response(number, response)
    return talk.observation(number)


def ended(observation: Any, at_ms: float) -> Said:
    """Say the end of an exchange as it is recorded."""
    return response_said(observation, observation.seal(End.COMPLETE, at_ms), End.COMPLETE, at_ms)


def exchanges() -> Told:
    """Tell the beginning and the end of exchanges: only lines for people have what was said."""
    for request, response in (
        (CALL, text("x")),
        (CALL, asks("a", state=STATE)),
        (CALL, asks(state=STATE)),
        (retry(CALL, {"a": 2}, state=STATE), asks("b")),
        (get("/x"), Answer((), status=0, end=End.OPEN)),
    ):
        observation = observed(request, response)
        yield request_event(observation)
        yield ended(observation, observation.started_ms + 3.04)


def pushes_of_a_recording() -> Told:
    """Tell a pushed request as an ask of the call that is pending, and the response as an answer."""
    session = PushingSession()
    stream = session.listen()
    session.post(CALL)
    session.say(stream, elicit(words=STATE))
    listening = session.talk.observation(stream)
    (push,) = listening.take_pushed()
    answering = session.talk.observation(session.post(posted(elicit(), YES)))
    yield pushed_said(listening, push)
    yield request_event(answering)
    yield ended(answering, answering.started_ms + 1)


def replay() -> Told:
    """Tell the place of a hit, and reason and pointers of a miss."""
    player = player_of(*BRANCHED)
    harmless = player.request_received(post(rpc("ping")))
    assert isinstance(harmless, Harmless)
    asking = hit(player, CALL)
    yield from played_events(asking)
    answer = retry(CALL, {"a": NO}, state=state_in(sent_now(asking)))
    yield from played_events(hit(player, answer))
    yield missed_event(missed(player, tool("deploy", env="secret")))
    yield missed_event(missed(player, tool("x")))
    yield harmless_event(harmless)


def pushes_of_a_replay() -> Told:
    """Tell what is pushed, and what is posted in return, like other asks and answers."""
    cassette = asked_once(elicit(), YES, CALL, text("done"))
    ((ask,),) = pushed_asks(cassette.interactions).values()
    yield asked_by_push_event(ask)
    player = Player(cassette)
    hit(player, in_sealed_session(post(CALL, SESSION)))
    yield from played_events(hit(player, in_sealed_session(posted(elicit(), YES))))


def unread_bodies() -> Told:
    """Tell the exchange, the reason and the way out; a terminal obeys nothing."""
    observation = Recorder(seals=True).request_received(post(CALL), 0)
    for side, reason in (
        ("response", "its content coding \x1b[1m can't be decoded here"),
        ("request", "it is no text"),
    ):
        yield unread_said(observation, Unread(side, reason), {"accept_gzip": "GZIP"})


def run() -> Told:
    """Tell what goes on in a run."""
    asker, _ = player_of(*BRANCHED).interactions[0]
    yield unreachable_said("POST /mcp", "refused")
    yield failed_said("disk full")
    yield caught_up_said(asker)


TELLERS: tuple[Callable[[], Told], ...] = (
    exchanges,
    pushes_of_a_recording,
    replay,
    pushes_of_a_replay,
    unread_bodies,
    run,
)


@pytest.mark.parametrize("teller", TELLERS)
def test_event_and_its_line(teller: Callable[[], Told], *, updates_goldens: bool) -> None:
    """Programs get facts, and people the line below them."""
    lines = []
    for told in teller():
        event, *line = told if isinstance(told, tuple) else (told,)
        lines += [orjson.dumps(event).decode(), *line]
    case = read_case(DATA / "reports" / "events.case")
    case.expect(teller.__name__, "\n".join([*lines, ""]), updates=updates_goldens)


@pytest.mark.parametrize("name", [rb"\ud800", rb"a\u0000b", rb"\u001b[31m"])
def test_lines_for_programs_are_json_whatever_was_asked(name: bytes) -> None:
    """Every event can be written as JSON, and the text of a miss as UTF-8."""
    request = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s"}}' % name
    observation = observed(request, text("x"))
    player = player_of((request, text("x")))
    decision = hit(player, request)
    miss = missed(player, request)

    for event in (
        request_event(observation),
        ended(observation, 1.0)[0],
        *played_events(decision),
        missed_event(miss),
    ):
        assert orjson.loads(orjson.dumps(event)) == event
    assert report_of_miss(miss, "f").text.encode()
