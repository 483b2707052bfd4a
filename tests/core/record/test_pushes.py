"""Facts about pushed requests: to which call and turn they belong, and what answers them."""

from __future__ import annotations

from typing import Any

import pytest
import tasking
from builders import answer, get, loaded, notification, post, rpc, tool, with_id
from hypothesis import given, settings
from messages import YES, text
from pushing import (
    SCRIPTS,
    SESSION,
    PushingSession,
    elicit,
    made_up,
    posted,
    pushed_to,
    roots,
    sample,
)

from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.record.pushes import OpenPush

CALL = tool("deploy")
OTHER = with_id(tool("other"), 2)


def answered(session: PushingSession, number: int) -> OpenPush | None:
    """Return what a request answers."""
    return session.talk.observation(number).answered_push


@pytest.mark.parametrize(
    ("calls", "asked"), [((), 1), ((CALL,), 2), ((CALL, OTHER), 1)]
)
def test_push_on_a_listening_stream_belongs_to_the_only_pending_call(
    calls: tuple[bytes, ...], asked: int
) -> None:
    """Where none or more than one is pending, it belongs to the stream itself."""
    session = PushingSession()
    stream = session.listen()
    for call in calls:
        session.open(call)

    session.say(stream, roots())

    assert pushed_to(session, stream) == [(asked, "roots-1")]


def test_push_while_a_task_is_polled_belongs_to_the_stream() -> None:
    """A poll is a step of a task; the answer to the question is in the cassette."""
    session = PushingSession()
    stream = session.listen()
    session.post(tasking.CALL, tasking.created("task-0123456789"))
    poll = tasking.get("task-0123456789").body
    number = session.open(poll)
    session.say(stream, elicit())
    session.post(posted(elicit(), YES))
    session.end(number, answer(poll, tasking.state("task-0123456789", "completed")))
    session.end(stream)
    cassette = loaded(session.talk.cassette())

    assert pushed_to(session, stream) == [(stream, "elicitation-1")]
    assert {exchange.number for exchange in cassette.exchanges} == {1, 2, 3, 4}

    (turn,) = cassette.interactions[0].turns

    assert turn.given_answers == {"elicitation-1": YES}


def test_call_is_pending_until_it_has_its_response() -> None:
    """A response on its own or on the listening stream ends a call; 202 doesn't, other ends do."""
    session = PushingSession()
    stream = session.listen()
    first = session.open(CALL)
    accepted = session.post(OTHER)
    session.post(with_id(CALL, 3), text("at once"))
    session.say(first, answer(CALL, text("done")))
    session.say(stream, elicit(1))

    assert pushed_to(session, stream) == [(accepted, "elicitation-1")]

    session.say(stream, answer(OTHER, text("done")))
    session.say(stream, roots(2))

    assert pushed_to(session, stream) == [(stream, "roots-1")]

    broken = session.open(with_id(CALL, 4))
    session.end(broken)
    session.say(stream, roots(3))

    assert pushed_to(session, stream) == [(stream, "roots-1")]


def test_calls_of_another_session_are_not_asked() -> None:
    """Sessions share neither calls nor the ids of what is pushed."""
    session = PushingSession()
    stream = session.listen()
    session.post(post(CALL, ("Mcp-Session-Id", "another")))
    session.say(stream, elicit())
    elsewhere = posted(elicit(), YES)
    stray = session.post(post(elsewhere.body, ("Mcp-Session-Id", "another")))
    right = session.post(elsewhere)
    again = session.post(elsewhere)

    assert pushed_to(session, stream) == [(stream, "elicitation-1")]
    assert answered(session, stray) is None

    push = answered(session, right)

    assert push is not None
    assert (push.exchange_number, push.key, push.request.kind) == (
        stream,
        "elicitation-1",
        "form",
    )
    assert answered(session, again) is None


def test_what_answers_an_open_push_is_known_before_it_is_received() -> None:
    """Only a response with the id of a push that waits, in the same session, answers it."""
    session = PushingSession()
    recorder = session.talk.recorder
    session.say(session.open(CALL), elicit())
    right = posted(elicit(), YES)
    wrong = (
        post(right.body),
        posted(roots(), YES),
        post(CALL, SESSION),
        post(b"opaque", SESSION),
    )

    assert recorder.answers_open_push(read_call(right))
    assert not any(recorder.answers_open_push(read_call(request)) for request in wrong)

    session.post(right)

    assert not recorder.answers_open_push(read_call(right))


@pytest.mark.parametrize("number", [7, "7", "seven"])
def test_answer_to_a_ping_is_known_whatever_its_id_is(number: int | str) -> None:
    """A ping under `"7"` waits as one under `7` does, until it is answered."""
    session = PushingSession()
    recorder = session.talk.recorder
    ping = rpc("ping", number=number)
    session.say(session.listen(), ping)
    pong = posted(ping, {})

    assert recorder.answers_open_push(read_call(pong))

    session.post(pong)

    assert not recorder.answers_open_push(read_call(pong))


def test_turn_begins_when_all_before_it_is_answered() -> None:
    """Requests that are open together are one turn, in which each kind is counted."""
    session = PushingSession()
    call = session.open(CALL)
    session.say(call, elicit(1), elicit(2), sample(3), rpc("x/askUser", number=4))

    assert [key for _, key in pushed_to(session, call)] == [
        "elicitation-1",
        "elicitation-2",
        "sampling-1",
        "askUser-1",
    ]

    for number in (1, 2, 3):
        session.post(posted(elicit(number), YES))

    session.say(call, elicit(5))

    assert [key for _, key in pushed_to(session, call)] == ["elicitation-3"]

    for number in (4, 5):
        session.post(posted(elicit(number), YES))

    session.say(call, elicit(6))

    assert [key for _, key in pushed_to(session, call)] == ["elicitation-1"]


@pytest.mark.parametrize(
    "url", ["/messages?session=5", "http://localhost:8000/messages?session=5"]
)
def test_session_of_http_with_sse_is_the_url_that_its_stream_names(url: str) -> None:
    """The first event names the URL to post to, and what is posted there belongs to the stream."""
    session = PushingSession()
    stream = session.open(get("/sse"))
    first = b"event: endpoint\ndata: " + url.encode() + b"\n\n"
    session.talk.observation(stream).response_bytes(first, 1)
    call = session.post(post(CALL, target="/messages?session=5"))
    session.post(post(OTHER, target="/messages?session=6"))
    session.say(stream, elicit())

    assert pushed_to(session, stream) == [(call, "elicitation-1")]

    accepting = posted(elicit(), YES).body
    posts = session.post(post(accepting, target="/messages?session=5"))

    assert answered(session, posts) is not None


@pytest.mark.parametrize(
    "said",
    [
        notification("notifications/message", id=5),
        b'{"id":5}',
        answer(with_id(CALL, 9), text("no call of this")),
    ],
)
def test_what_is_no_request_asks_nothing(said: bytes) -> None:
    """Notifications, other JSON and responses to nobody are no asks."""
    session = PushingSession()
    call = session.open(CALL)
    session.say(call, said)

    assert pushed_to(session, call) == []


def test_subscription_is_no_call_that_is_asked() -> None:
    """What is pushed on the stream of `subscriptions/listen` belongs to the call that is pending."""
    session = PushingSession()
    stream = session.open(with_id(rpc("subscriptions/listen", {}), 8))
    call = session.open(CALL)
    session.say(stream, elicit())

    assert pushed_to(session, stream) == [(call, "elicitation-1")]


def test_answers_stand_in_the_order_of_their_requests() -> None:
    """Clients that ask several people at once post the answers as they get them."""
    session = PushingSession()
    call = session.open(CALL)
    session.say(call, elicit(1), sample(2))
    session.post(posted(sample(2), YES))
    session.post(posted(elicit(1), YES))
    session.end(call, answer(CALL, text("done")))
    (turn,) = loaded(session.talk.cassette()).interactions[0].pushed_turns

    assert [answer.key for answer in turn.answers] == ["elicitation-1", "sampling-1"]


@pytest.mark.parametrize("answered_first", [True, False])
def test_requests_on_a_stream_that_calls_share_are_turns_of_their_own(
    answered_first: bool,  # noqa: FBT001
) -> None:
    """Whether a client answers one call's question before the other's comes is chance."""
    session = PushingSession()
    stream = session.listen()
    session.open(CALL)
    session.open(OTHER)
    session.say(stream, elicit(1))
    if answered_first:
        session.post(posted(elicit(1), YES))

    session.say(stream, roots(2))
    session.post(posted(roots(2), YES))
    if not answered_first:
        session.post(posted(elicit(1), YES))

    session.end(stream)
    keys = []
    for interaction in loaded(session.talk.cassette()).interactions:
        for turn in interaction.pushed_turns:
            keys.append([answer.key for answer in turn.answers])

    assert keys == [["elicitation-1"], ["roots-1"]]


@settings(max_examples=60)
@given(SCRIPTS)
def test_turns_of_a_cassette_are_those_that_were_told_live(script: Any) -> None:
    """Every push is in one turn of its own session, as what it was told to be when it passed."""
    cassette, live = made_up(script)
    published = []
    for interaction in cassette.interactions:
        for turn in interaction.pushed_turns:
            number = interaction.exchanges[turn.position].number
            keys = [push.key for push in turn.pushed_requests]
            published += [(number, key) for key in keys]

            assert len(set(keys)) == len(keys)
            assert {answer.key for answer in turn.answers} <= set(keys)

    assert sorted(published) == sorted(live)
