"""Facts about how a call ended whose response came on another stream."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import STREAM_HEADERS, Answer, answer, get, post, progress, refusal, sse, tool
from messages import asks, text
from pushing import ACCEPTED, SESSION, PushingSession, cassette_with

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.report.endings import Endings
from mrtr_cassette.core.report.inspection import inspected
from mrtr_cassette.core.wire.http import NO_STATUS, End, Piece, Request, Response

CALL = tool("deploy", env="prod")
MESSAGES = "/messages?session_id=sha256:" + "0123456789abcdef" * 4


def endings_of(session: PushingSession) -> list[str]:
    """Return how each exchange ended, each an interaction of its own, in arrival order."""
    exchanges = sorted(session.talk.exchanges, key=lambda each: each.number or 0)
    cassette = cassette_with(*(([each], ()) for each in exchanges))
    return [each.ended for each in inspected(cassette).interactions]


@pytest.mark.parametrize(
    ("response", "ended"),
    [
        (answer(CALL, text("done")), "HTTP 202, result on the stream of #1"),
        (answer(CALL, {"isError": True}), "HTTP 202, result with isError on the stream of #1"),
        (refusal(CALL, -1, "bad"), 'HTTP 202, error -1 "bad" on the stream of #1'),
        (answer(CALL, text("x")).replace(b'"id":1', b'"id":2'), "HTTP 202"),
        (progress(1), "HTTP 202"),
    ],
)
def test_response_of_a_call_is_found_on_the_stream_of_http_with_sse(
    response: bytes, ended: str
) -> None:
    """In HTTP+SSE the POST is accepted only; the response comes on the stream that was opened."""
    session = PushingSession()
    stream = session.open(get("/sse"))
    first = b"event: endpoint\ndata: " + MESSAGES.encode() + b"\n\n"
    session.talk.observation(stream).response_bytes(first, 1)
    session.post(Request("POST", MESSAGES, (), CALL))
    session.say(stream, response)
    session.end(stream)

    assert endings_of(session)[1] == ended


def test_response_of_another_session_is_none_of_this_one() -> None:
    """Two sessions may use the same ids for their calls."""
    session = PushingSession()
    stream = session.open(get("/mcp", ("Mcp-Session-Id", "another")))
    session.post(CALL)
    session.say(stream, answer(CALL, text("done")))
    session.end(stream)

    assert endings_of(session)[1] == "HTTP 202"


def test_response_that_came_before_its_request_is_none() -> None:
    """A client may use an id again, so only what came after a call can be its response."""
    session = PushingSession()
    stream = session.listen()
    session.post(CALL)
    session.say(stream, answer(CALL, text("done")))
    session.post(CALL)
    session.say(stream, refusal(CALL, -1, "used"))
    session.post(CALL)
    session.end(stream)

    assert endings_of(session)[1:] == [
        "HTTP 202, result on the stream of #1",
        'HTTP 202, error -1 "used" on the stream of #1',
        "HTTP 202",
    ]


def test_response_on_a_resumed_stream_is_found() -> None:
    """A stream that broke off goes on where the client asks for what came after an event."""
    session = PushingSession()
    broken = session.talk.request(post(CALL, SESSION))
    session.talk.response(broken, Answer((sse(progress(1)),), STREAM_HEADERS, end=End.BROKEN))
    resumed = session.open(get("/mcp", SESSION, ("Last-Event-ID", "7")))
    session.end(resumed, answer(CALL, text("done")))

    assert endings_of(session) == [
        "HTTP 200, result on the stream of #2, stream of 1 event, broken off by the upstream",
        "HTTP 200, stream of 1 event",
    ]


def test_response_in_place_is_not_looked_for_elsewhere() -> None:
    """A call ends with its own response, and a request without one is no HTTP response either."""
    session = PushingSession()
    stream = session.listen()
    session.post(CALL, asks("a"))
    session.post(CALL, Answer((), status=0, end=End.OPEN))
    session.post(Request("POST", "/mcp", (), b"no message"), ACCEPTED)
    session.say(stream, answer(CALL, text("done")))
    session.end(stream)

    assert endings_of(session)[1:] == [
        "abandoned: the last ask has no answer",
        "no response, result on the stream of #1",
        "HTTP 202",
    ]


@pytest.mark.parametrize(
    ("response", "ended"),
    [
        (answer(CALL, text("done")), "HTTP 200, result"),
        (
            Answer((sse(progress(1)),), STREAM_HEADERS, end=End.OPEN),
            "HTTP 200, stream of 1 event, still open when the recording ended",
        ),
    ],
)
def test_end_of_a_call_in_its_own_response(response: object, ended: str) -> None:
    """Where nothing listens, a call ends as its own response says."""
    session = PushingSession()
    number = session.post(CALL, response)

    assert Endings(()).ending(session.exchange(number)) == ended


def test_end_of_a_call_on_a_pipe() -> None:
    """A pipe has no status; its response is told by its lines."""
    response = Response(NO_STATUS, (), (Piece(answer(CALL, text("done")) + b"\n", 2, 1),), End.OPEN)
    exchange = RecordedExchange(1, post(CALL), response, 1, 2, None, None)

    assert Endings(()).ending(exchange) == "result, 1 line, still open when the recording ended"


def test_call_whose_place_in_time_is_unknown_has_the_first_response_with_its_id() -> None:
    """A cassette that was written by hand doesn't say when its requests arrived."""
    session = PushingSession()
    stream = session.listen()
    session.post(CALL)
    session.end(stream, answer(CALL, text("done")))
    by_hand: list[RecordedExchange] = [
        replace(each, number=None)
        for each in sorted(session.talk.exchanges, key=lambda each: each.number or 0)
    ]
    cassette = cassette_with(*(([each], ()) for each in by_hand))

    ending = Endings(cassette.interactions).ending(by_hand[1])

    assert ending == "HTTP 202, result on the stream of #1"


def test_final_message_is_found_wherever_it_came() -> None:
    """The response to a call is taken from its own stream, or from a listening one."""
    session = PushingSession()
    stream = session.listen()
    call = session.post(CALL)
    session.end(stream, answer(CALL, text("there")))
    own = session.post(CALL, answer(CALL, text("here")))
    cassette = cassette_with(*(([each], ()) for each in session.talk.exchanges))
    endings = Endings(cassette.interactions)

    there = endings.final_message(session.exchange(call))
    here = endings.final_message(session.exchange(own))
    assert there is not None
    assert here is not None
    assert (there.tree["result"], here.tree["result"]) == (text("there"), text("here"))
    assert Endings(()).final_message(session.exchange(call)) is None
