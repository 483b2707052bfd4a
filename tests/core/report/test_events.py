"""Facts about the events and lines of logs."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from builders import (
    Answer,
    Step,
    answer,
    conversation,
    get,
    missed,
    player_of,
    post,
    retry,
    rpc,
    tool,
)
from messages import NO, YES, asks, text
from pushing import PushingSession, asked_once, elicit, posted

from mrtr_cassette.core.drive.unrecorded import Unrecorded
from mrtr_cassette.core.exchange.pushed import pushed_asks
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.record.recorder import Recorder
from mrtr_cassette.core.record.sealing import Unread
from mrtr_cassette.core.replay.harmless import Harmless
from mrtr_cassette.core.replay.player import Play, Player
from mrtr_cassette.core.replay.stateless import SeveralAnswers
from mrtr_cassette.core.report.events import (
    admin_said,
    answered_event,
    asked_by_push_event,
    asked_event,
    caught_up_said,
    failed_said,
    harmless_event,
    missed_event,
    played_event,
    progress_said,
    pushed_said,
    request_event,
    response_said,
    told_apart_said,
    unreachable_said,
    unread_said,
    unrecorded_event,
)
from mrtr_cassette.core.report.misses import report_of_miss
from mrtr_cassette.core.secrets.surrogates import sha256_of
from mrtr_cassette.core.wire.http import End

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
BRANCHED: tuple[Step, ...] = (
    (CALL, asks("a", state=STATE)),
    (retry(CALL, {"a": NO}, state=STATE), text("left")),
    (retry(CALL, {"a": YES}, state=STATE), text("done")),
)


def observed(request: Any, response: Any, *, before: tuple[Step, ...] = ()) -> Any:
    """Return what is seen of an exchange that has ended."""
    talk = conversation(*before)
    number = talk.request(request)
    talk.response(number, response)
    return talk.observation(number)


@pytest.mark.parametrize(
    ("request_", "response", "line"),
    [
        (CALL, text("x"), '   1  tools/call "deploy" -> HTTP 200 (3 ms)'),
        (
            CALL,
            asks("a", state=STATE),
            '   1  tools/call "deploy" -> HTTP 200, asks a (form), with request state (3 ms)',
        ),
        (
            CALL,
            asks(state=STATE),
            '   1  tools/call "deploy" -> HTTP 200, asks for a retry only, with request state (3 ms)',
        ),
        (
            retry(CALL, {"b": 1, "a": 2}),
            asks("a", "b"),
            '   1  tools/call "deploy", answering a, b -> HTTP 200, asks a (form), b (form) (3 ms)',
        ),
        (get("/x"), Answer((), status=0, end=End.OPEN), "   1  GET /x -> no response (3 ms)"),
    ],
)
def test_exchange_is_one_line_in_the_log(request_: Any, response: Any, line: str) -> None:
    """A recorded exchange is named with what was asked, and without any value."""
    observation = observed(request_, response)

    assert response_said(observation, End.COMPLETE, observation.started_ms + 3)[1] == line


def test_events_of_a_recording_tell_the_turns() -> None:
    """A log for programs has keys, kinds and hashes, and no value that anybody sent."""
    asked = observed(CALL, asks("a", state=STATE))
    assert request_event(asked) == {
        "event": "started",
        "exchange": 1,
        "call": 'tools/call "deploy"',
    }
    assert response_said(asked, End.COMPLETE, asked.started_ms + 2.04)[0] == {
        "event": "asked",
        "exchange": 1,
        "call": 'tools/call "deploy"',
        "status": 200,
        "end": "complete",
        "bytes": len(answer(CALL, asks("a", state=STATE))),
        "duration_ms": 2.0,
        "via": "result",
        "keys": {"a": "form"},
        "request_state_sha256": sha256_of(STATE),
    }

    answered = observed(retry(CALL, {"b": NO, "a": YES}, state=STATE), text("done"))
    assert request_event(answered) == {
        "event": "answered",
        "exchange": 1,
        "call": 'tools/call "deploy"',
        "via": "result",
        "keys": ["a", "b"],
        "request_state_sha256": sha256_of(STATE),
    }
    assert response_said(answered, End.OPEN, answered.started_ms)[0]["event"] == "ended"
    assert (
        request_event(observed(retry(CALL, {"a": YES}), text("x")))["request_state_sha256"] is None
    )


def test_events_of_a_recording_tell_what_was_pushed() -> None:
    """A pushed request is an ask of the call that is pending, and the response to it an answer."""
    session = PushingSession()
    stream = session.listen()
    session.post(CALL)
    session.say(stream, elicit(words=STATE))
    listening = session.talk.observation(stream)
    (push,) = listening.take_pushed()
    answering = session.talk.observation(session.post(posted(elicit(), YES)))

    event, line = pushed_said(listening, push)
    assert event == {
        "event": "asked",
        "exchange": 2,
        "call": 'tools/call "deploy"',
        "via": "push",
        "keys": {"elicitation-1": "form"},
        "request_state_sha256": None,
    }
    assert line == '   2  tools/call "deploy" asks elicitation-1 (form)'
    assert request_event(answering) == {
        "event": "answered",
        "exchange": 3,
        "call": 'tools/call "deploy"',
        "via": "push",
        "keys": ["elicitation-1"],
        "request_state_sha256": None,
    }
    assert response_said(answering, End.COMPLETE, answering.started_ms + 1)[1] == (
        "   3  POST /mcp, answering elicitation-1 -> HTTP 202 (1 ms)"
    )


def test_where_the_admin_port_is() -> None:
    """Programs that start a run on a free port read it here."""
    event = {"event": "admin", "url": "http://h:1"}
    assert admin_said("http://h:1") == (event, "admin port on http://h:1")


def test_events_of_a_replay_tell_hits_and_misses() -> None:
    """A log for programs has the place of a hit, and reason and pointers of a miss."""
    player = player_of(*BRANCHED)
    decision = player.request_received(post(CALL))
    assert isinstance(decision, Play)
    assert played_event(decision) == {
        "event": "played",
        "call": 'tools/call "deploy"',
        "interaction": 1,
        "turn": 0,
        "times": 1,
    }
    assert missed_event(missed(player, tool("deploy", env="secret"))) == {
        "event": "missed",
        "call": 'tools/call "deploy"',
        "reason": "arguments-differ",
        "nearest": [1, 0],
        "pointers": ["/arguments/env"],
    }
    assert missed_event(missed(player, tool("x")))["nearest"] is None
    harmless = player.request_received(post(rpc("ping")))
    assert isinstance(harmless, Harmless)
    assert harmless_event(harmless) == {"event": "harmless", "call": "ping", "answer": "{}"}


def test_events_of_a_replay_tell_turns_of_results() -> None:
    """What a response asks and what a retry answers is told with the number of the turn."""
    player = player_of(*BRANCHED)
    first, second = (player.interactions[at] for at in (0, 1))
    asker, answering = first

    assert asked_event(asker) == {
        "event": "asked",
        "call": 'tools/call "deploy"',
        "interaction": 1,
        "turn": 1,
        "via": "result",
        "keys": {"a": "form"},
    }
    assert answered_event(answering) == {
        "event": "answered",
        "call": 'tools/call "deploy"',
        "interaction": 1,
        "turn": 1,
        "via": "result",
        "keys": ["a"],
    }
    assert answered_event(second[0])["interaction"] == 2


def test_events_of_a_replay_tell_turns_of_pushes() -> None:
    """What is pushed and what is posted in return is told like other asks and answers."""
    cassette = asked_once(elicit(), YES, CALL, text("done"))
    _, answering = Player(cassette).interactions[0]
    ((ask,),) = pushed_asks(cassette.interactions).values()

    assert asked_by_push_event(ask) == {
        "event": "asked",
        "call": 'tools/call "deploy"',
        "interaction": 1,
        "turn": 1,
        "via": "push",
        "keys": {"elicitation-1": "form"},
    }
    assert answered_event(answering) == {
        "event": "answered",
        "call": 'tools/call "deploy"',
        "interaction": 1,
        "turn": 1,
        "via": "push",
        "keys": ["elicitation-1"],
    }


@pytest.mark.parametrize("name", [rb"\ud800", rb"a\u0000b", rb"\u001b[31m"])
def test_lines_for_programs_are_json_whatever_was_asked(name: bytes) -> None:
    """Every event can be written as JSON, and the text of a miss as UTF-8."""
    request = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s"}}' % name
    observation = observed(request, text("x"))
    player = player_of((request, text("x")))
    decision = player.request_received(post(request))
    assert isinstance(decision, Play)
    miss = missed(player, request)

    for event in (
        request_event(observation),
        response_said(observation, End.COMPLETE, 1.0)[0],
        played_event(decision),
        missed_event(miss),
    ):
        assert orjson.loads(orjson.dumps(event)) == event
    assert report_of_miss(miss, "f").text.encode()


def test_retry_that_is_not_recorded_is_an_event_without_values() -> None:
    """The event of a request that could not be recorded names the call and no ask, if none is."""
    failure = Unrecorded(read_call(post(tool("deploy", env="secret"))), "its session is unknown")

    assert unrecorded_event(failure) == {
        "event": "unrecorded",
        "call": 'tools/call "deploy"',
        "recorded": None,
        "pointers": [],
    }


UNSEARCHED = (
    'warning: the {} of exchange 1, tools/call "deploy", can\'t be searched for asks, states'
)


@pytest.mark.parametrize(
    ("unread", "rest"),
    [
        (
            Unread("response", "its content coding \x1b[1m can't be decoded here"),
            (
                " and secrets, as its content coding \\x1b[1m can't be decoded here; it is recorded as "
                "it is: have it readable with GZIP"
            ),
        ),
        (
            Unread("request", "it is no text"),
            " and secrets, as it is no text; it is recorded as it is",
        ),
    ],
)
def test_body_that_cannot_be_read_is_told(unread: Unread, rest: str) -> None:
    """The warning names the exchange, the reason and the way out, and a terminal obeys nothing."""
    observation = Recorder(seals=True).request_received(post(CALL), 0)
    event, line = unread_said(observation, unread, {"accept_gzip": "GZIP"})

    assert line == UNSEARCHED.format(unread.side) + rest
    assert (event["event"], event["exchange"], event["body"]) == ("unread", 1, unread.side)
    assert event["reason"].isprintable()


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            unreachable_said("POST /mcp", "refused"),
            ("unreachable", "POST /mcp: refused; not recorded"),
        ),
        (
            failed_said("disk full"),
            ("failed", "RECORDING FAILED: disk full; the traffic goes on"),
        ),
        (
            progress_said("reading", "c.json", 1500, 60_000, 11.4),
            ("reading", "reading c.json: 1,500 of 60,000 interactions, 12 s left"),
        ),
    ],
)
def test_what_goes_on_in_a_run_is_an_event_and_a_line(
    said: tuple[dict[str, Any], str], shown: tuple[str, str]
) -> None:
    """Each has a name for programs and a sentence for people."""
    event, line = said
    assert (event["event"], line) == shown


def test_conversation_that_was_repeated_is_told_up_to_its_ask() -> None:
    """The event and the line name the recorded ask at which the live server stands now."""
    ((asker, _), *_) = player_of(*BRANCHED).interactions

    event, line = caught_up_said(asker)
    assert event == {
        "event": "caught-up",
        "call": 'tools/call "deploy"',
        "interaction": 1,
        "turn": 1,
    }
    assert line.strip() == (
        'repeated the conversation up to #1 (tools/call "deploy", ask of turn 1), '
        "for an answer that is not recorded"
    )


def test_requests_with_several_answers_are_told() -> None:
    """The log has a record for each, and people read a line for each under one note."""
    groups = [
        SeveralAnswers('tools/call "who"', (1, 2), ("the client",)),
        SeveralAnswers('tools/call "slow"', (3, 4), ("a progress token", "the session")),
    ]

    event, text_ = told_apart_said(groups)
    assert event["event"] == "told_apart"
    assert orjson.loads(orjson.dumps(event["requests"])) == [
        {"call": 'tools/call "who"', "interactions": [1, 2], "told_apart_by": ["the client"]},
        {
            "call": 'tools/call "slow"',
            "interactions": [3, 4],
            "told_apart_by": ["a progress token", "the session"],
        },
    ]
    assert text_.splitlines() == [
        "note: recorded with several answers:",
        '  #1, #2: tools/call "who", told apart by the client',
        '  #3, #4: tools/call "slow", told apart by a progress token, the session',
    ]
