"""Facts about which call a pushed request belongs to, and what a posted response answers."""

from __future__ import annotations

from typing import Any

import pytest
from builders import answer, get, notification, post, rpc, tool, with_id
from messages import YES, text
from pushing import SESSION, PushingSession, elicit, posted, roots, sample

from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.record.open_pushes import OpenPush

CALL = tool("deploy")
OTHER = with_id(tool("other"), 2)


def pushed_to(session: PushingSession, stream: int) -> list[tuple[int, str]]:
    """Return what was pushed on a stream since this was asked last: to which exchange, as what."""
    return [(each.exchange, each.key) for each in session.talk.observation(stream).take_pushed()]


def answered(session: PushingSession, number: int) -> OpenPush | None:
    """Return what a request answers."""
    return session.talk.observation(number).answered


def test_push_in_a_calls_own_stream_belongs_to_the_call() -> None:
    """Whatever else is pending, a call is asked on its own stream."""
    session = PushingSession()
    first, second = session.open(CALL), session.open(OTHER)
    session.say(second, elicit(1))
    session.say(first, elicit(2))

    assert pushed_to(session, first) == [(first, "elicitation-1")]
    assert pushed_to(session, second) == [(second, "elicitation-1")]
    assert pushed_to(session, second) == []


@pytest.mark.parametrize(("calls", "asked"), [((), 1), ((CALL,), 2), ((CALL, OTHER), 1)])
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
    assert (push.exchange, push.key, push.request.kind) == (stream, "elicitation-1", "form")
    assert answered(session, again) is None


def test_what_answers_an_open_push_is_known_before_it_is_received() -> None:
    """Only a response with the id of a push that waits, in the same session, answers it."""
    session = PushingSession()
    recorder = session.talk.recorder
    session.say(session.open(CALL), elicit())
    right = posted(elicit(), YES)
    wrong = (post(right.body), posted(roots(), YES), post(CALL, SESSION), post(b"opaque", SESSION))

    assert recorder.has_asked(read_call(right))
    assert not any(recorder.has_asked(read_call(each)) for each in wrong)
    session.post(right)
    assert not recorder.has_asked(read_call(right))


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


def test_request_that_is_no_calls_is_a_turn_of_its_own() -> None:
    """Where several calls share a stream, nothing tells whether they asked together."""
    session = PushingSession()
    stream = session.listen()
    session.post(CALL)
    session.post(OTHER)
    session.say(stream, elicit(1), elicit(2))

    assert pushed_to(session, stream) == [(stream, "elicitation-1"), (stream, "elicitation-1")]
    push = answered(session, session.post(posted(elicit(1), YES)))
    assert push is not None


def test_answer_after_the_end_of_the_call_still_answers() -> None:
    """A server may end a call before it has all the answers."""
    session = PushingSession()
    call = session.open(CALL)
    session.say(call, elicit())
    session.end(call, answer(CALL, text("done")))

    assert answered(session, session.post(posted(elicit(), YES))) is not None


@pytest.mark.parametrize("url", ["/messages?session=5", "http://localhost:8000/messages?session=5"])
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
    posts = session.post(post(posted(elicit(), YES).body, target="/messages?session=5"))
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


def test_body_that_is_no_message_is_no_answer() -> None:
    """Nothing opaque answers a pushed request."""
    session = PushingSession()
    call = session.open(CALL)
    session.say(call, elicit())
    bodies: list[Any] = [b"opaque", notification("n")]

    assert [answered(session, session.post(body)) for body in bodies] == [None, None]
