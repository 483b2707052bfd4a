"""Facts about the events and lines of logs."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from builders import (
    Answer,
    Step,
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

from mrtr_cassette.core.cassette.recorded import pushed_asks
from mrtr_cassette.core.drive.appending import Unrecorded
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.record.recorder import Recorder
from mrtr_cassette.core.record.sealing import Unread
from mrtr_cassette.core.replay.diagnosis import Harmless
from mrtr_cassette.core.replay.player import Play, Player
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
    pushed_said,
    request_event,
    response_said,
    unreachable_said,
    unread_said,
    unrecorded_event,
)
from mrtr_cassette.core.report.misses import report_of_miss
from mrtr_cassette.core.secrets.sealed import sha256_of
from mrtr_cassette.core.wire.http import End

CALL = tool("deploy", env="prod")
DEPLOY = 'tools/call "deploy"'
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
HASH = sha256_of(STATE)
BRANCHED: tuple[Step, ...] = (
    (CALL, asks("a", state=STATE)),
    (retry(CALL, {"a": NO}, state=STATE), text("left")),
    (retry(CALL, {"a": YES}, state=STATE), text("done")),
)
CAUGHT_UP = (
    f"      repeated the conversation up to #1 ({DEPLOY}, ask of turn 1), "
    "for an answer that is not recorded"
)
FIRST = {"call": DEPLOY, "interaction": 1, "turn": 1}


def observed(request: Any, response: Any) -> Any:
    """Return what is seen of an exchange that has ended."""
    talk = conversation()
    number = talk.request(request)
    talk.response(number, response)
    return talk.observation(number)


@pytest.mark.parametrize(
    ("request_", "response", "began", "ended", "line"),
    [
        (
            CALL,
            text("x"),
            {"event": "started", "call": DEPLOY},
            {"event": "ended", "call": DEPLOY, "status": 200},
            f"{DEPLOY} -> HTTP 200 (3 ms)",
        ),
        (
            CALL,
            asks("a", state=STATE),
            {"event": "started", "call": DEPLOY},
            {
                "event": "asked",
                "via": "result",
                "keys": {"a": "form"},
                "request_state_sha256": HASH,
            },
            f"{DEPLOY} -> HTTP 200, asks a (form), with request state (3 ms)",
        ),
        (
            CALL,
            asks(state=STATE),
            {"event": "started"},
            {"event": "asked", "keys": {}, "request_state_sha256": HASH},
            f"{DEPLOY} -> HTTP 200, asks for a retry only, with request state (3 ms)",
        ),
        (
            retry(CALL, {"a": 2}, state=STATE),
            asks("b"),
            {
                "event": "answered",
                "via": "result",
                "keys": ["a"],
                "request_state_sha256": HASH,
            },
            {"event": "asked", "keys": {"b": "form"}, "request_state_sha256": None},
            f"{DEPLOY}, answering a, echoing a request state -> HTTP 200, asks b (form) (3 ms)",
        ),
        (
            get("/x"),
            Answer((), status=0, end=End.OPEN),
            {"event": "started", "call": "GET /x"},
            {"event": "ended", "status": 0, "bytes": 0},
            "GET /x -> no response (3 ms)",
        ),
    ],
)
def test_exchange_is_two_events_and_a_line(
    request_: Any, response: Any, began: Any, ended: Any, line: str
) -> None:
    """An exchange is named with what was asked and answered, and without any value."""
    observation = observed(request_, response)
    event, shown = response_said(observation, End.COMPLETE, observation.started_ms + 3.04)

    assert request_event(observation).items() >= {**began, "exchange": 1}.items()
    timed = {"exchange": 1, "end": "complete", "duration_ms": 3.0}
    assert event.items() >= {**ended, **timed}.items()
    assert shown == f"   1  {line}"


def test_events_of_a_recording_tell_what_was_pushed() -> None:
    """A pushed request is an ask of the call that is pending, and the response to it an answer."""
    session = PushingSession()
    stream = session.listen()
    session.post(CALL)
    session.say(stream, elicit(words=STATE))
    listening = session.talk.observation(stream)
    (push,) = listening.take_pushed()
    answering = session.talk.observation(session.post(posted(elicit(), YES)))
    via_push = {"call": DEPLOY, "via": "push", "request_state_sha256": None}

    event, line = pushed_said(listening, push)
    keys: Any = {"elicitation-1": "form"}
    assert event == {"event": "asked", "exchange": 2, "keys": keys, **via_push}
    assert line == f"   2  {DEPLOY} asks elicitation-1 (form)"
    keys = ["elicitation-1"]
    assert request_event(answering) == {
        "event": "answered",
        "exchange": 3,
        "keys": keys,
        **via_push,
    }
    assert response_said(answering, End.COMPLETE, answering.started_ms + 1)[1] == (
        "   3  POST /mcp, answering elicitation-1 -> HTTP 202 (1 ms)"
    )


def test_events_of_a_replay_tell_hits_turns_and_misses() -> None:
    """A log for programs has the place of a hit, and reason and pointers of a miss."""
    player = player_of(*BRANCHED)
    played, harmless = (player.request_received(post(body)) for body in (CALL, rpc("ping")))
    assert isinstance(played, Play)
    assert isinstance(harmless, Harmless)
    asker, answering = player.interactions[0]

    assert [
        played_event(played),
        asked_event(asker),
        answered_event(answering),
        missed_event(missed(player, tool("deploy", env="secret"))),
        harmless_event(harmless),
    ] == [
        {"event": "played", "call": DEPLOY, "interaction": 1, "turn": 0, "times": 1},
        {"event": "asked", **FIRST, "via": "result", "keys": {"a": "form"}},
        {"event": "answered", **FIRST, "via": "result", "keys": ["a"]},
        {
            "event": "missed",
            "call": DEPLOY,
            "reason": "arguments-differ",
            "nearest": [1, 0],
            "pointers": ["/arguments/env"],
        },
        {"event": "harmless", "call": "ping", "answer": "{}"},
    ]
    assert missed_event(missed(player, tool("x")))["nearest"] is None


def test_events_of_a_replay_tell_turns_of_pushes() -> None:
    """What is pushed and what is posted in return is told like other asks and answers."""
    cassette = asked_once(elicit(), YES, CALL, text("done"))
    _, answering = Player(cassette).interactions[0]
    ((ask,),) = pushed_asks(cassette.interactions).values()

    assert [asked_by_push_event(ask), answered_event(answering)] == [
        {"event": "asked", **FIRST, "via": "push", "keys": {"elicitation-1": "form"}},
        {"event": "answered", **FIRST, "via": "push", "keys": ["elicitation-1"]},
    ]


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


@pytest.mark.parametrize(
    ("unread", "rest"),
    [
        (
            Unread("response", "its content coding \x1b[1m can't be decoded here"),
            (
                "its content coding \\x1b[1m can't be decoded here; it is recorded as it is: "
                "have it readable with GZIP"
            ),
        ),
        (Unread("request", "it is no text"), "it is no text; it is recorded as it is"),
    ],
)
def test_body_that_cannot_be_read_is_told(unread: Unread, rest: str) -> None:
    """The warning names the exchange, the reason and the way out, and a terminal obeys nothing."""
    observation = Recorder(seals=True).request_received(post(CALL), 0)
    event, line = unread_said(observation, unread, {"accept_gzip": "GZIP"})

    assert line == (
        f"warning: the {unread.side} of exchange 1, {DEPLOY}, can't be searched for asks, "
        f"states and secrets, as {rest}"
    )
    assert (event["event"], event["exchange"], event["body"]) == ("unread", 1, unread.side)
    assert event["reason"].isprintable()


def test_what_goes_on_in_a_run_is_an_event_and_a_line() -> None:
    """Each has facts for programs and a sentence for people."""
    asker, _ = player_of(*BRANCHED).interactions[0]

    assert [
        admin_said("http://h:1"),
        unreachable_said("POST /mcp", "refused"),
        failed_said("disk full"),
        caught_up_said(asker),
    ] == [
        ({"event": "admin", "url": "http://h:1"}, "admin port on http://h:1"),
        ({"event": "unreachable", "problem": "refused"}, "POST /mcp: refused; not recorded"),
        (
            {"event": "failed", "problem": "disk full"},
            "RECORDING FAILED: disk full; the traffic goes on",
        ),
        (
            {"event": "caught-up", **FIRST},
            CAUGHT_UP,
        ),
    ]
    failure = Unrecorded(read_call(post(tool("deploy", env="secret"))), "its session is unknown")
    unrecorded = {"event": "unrecorded", "call": DEPLOY, "recorded": None, "pointers": []}
    assert unrecorded_event(failure) == unrecorded
