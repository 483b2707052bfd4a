"""Facts about what is known of each call on a cassette."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import (
    STREAM_HEADERS,
    Answer,
    Conversation,
    Step,
    answer,
    cassette_of,
    get,
    loaded,
    post,
    progress,
    refusal,
    retry,
    rpc,
    sse,
    tool,
)
from messages import NO, YES, asks, text
from pushing import ACCEPTED, SESSION, PushingSession, asked_once, branched, cassette_with, elicit

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.report.details import FinalResponse, Interaction, details_of
from mrtr_cassette.core.wire.http import NO_STATUS, End, Piece, Request, Response

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
NOTHING = FinalResponse("nothing", None)


def interactions_of(*script: Step, **options: Any) -> tuple[Interaction, ...]:
    """Return the calls of a script's cassette."""
    return details_of(loaded(cassette_of(*script, **options))).interactions


def test_parameters_are_those_of_the_first_request() -> None:
    """Where a method names nothing, all params count, but `_meta`; other traffic has none."""
    hello = rpc("initialize", {"clientInfo": {"title": "Agent", "name": "a"}, "_meta": {"x": 1}})
    first, *others = interactions_of(
        (hello, {"serverInfo": {}}),
        (tool("x"), {}),
        (get("/x"), Answer((b"x",))),
        (b'{"arguments":1}', b"x"),
    )

    assert first.parameters == {"clientInfo": {"title": "Agent", "name": "a"}}
    assert first.client == "Agent"
    assert [(each.method, each.parameters, each.arguments, each.client) for each in others] == [
        ("tools/call", None, None, ""),
        ("GET /x", None, None, ""),
        ("POST /mcp", None, None, ""),
    ]


def test_end_of_a_call_on_a_pipe() -> None:
    """A pipe has no status; its response is told by its lines."""
    response = Response(NO_STATUS, (), (Piece(answer(CALL, text("done")) + b"\n", 2, 1),), End.OPEN)
    exchange = RecordedExchange(1, post(CALL), response, 1, 2, None, None)
    (call,) = details_of(cassette_with(([exchange], ()))).interactions

    assert call.ended == "result, 1 line, still open when the recording ended"


# Responses on listening streams


def calls_of(session: PushingSession, **changes: Any) -> list[Interaction]:
    """Return each exchange as a call of its own, in arrival order."""
    exchanges = sorted(session.talk.exchanges, key=lambda each: each.number or 0)
    changed = [replace(each, **changes) for each in exchanges]
    return list(details_of(cassette_with(*(([each], ()) for each in changed))).interactions)


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
def test_response_is_found_on_the_stream_of_http_with_sse(response: bytes, ended: str) -> None:
    """In HTTP+SSE the POST is accepted only; the response comes on the stream that was opened."""
    messages = "/messages?session_id=sha256:" + "0123456789abcdef" * 4
    session = PushingSession()
    opened = session.open(get("/sse"))
    first = b"event: endpoint\ndata: " + messages.encode() + b"\n\n"
    session.talk.observation(opened).response_bytes(first, 1)
    session.post(Request("POST", messages, (), CALL))
    session.say(opened, response)
    session.end(opened)

    assert calls_of(session)[1].ended == ended


def test_response_of_another_session_is_none_of_this_one() -> None:
    """Two sessions may use the same ids for their calls."""
    session = PushingSession()
    opened = session.open(get("/mcp", ("Mcp-Session-Id", "another")))
    session.post(CALL)
    session.say(opened, answer(CALL, text("done")))
    session.end(opened)

    assert (calls_of(session)[1].ended, calls_of(session)[1].final) == ("HTTP 202", NOTHING)


def test_response_that_came_before_its_request_is_none() -> None:
    """A client may use an id again, so only what came after a call can be its response."""
    session = PushingSession()
    opened = session.listen()
    session.post(CALL)
    session.say(opened, answer(CALL, text("done")))
    session.post(CALL)
    session.say(opened, refusal(CALL, -1, "used"))
    session.post(CALL)
    session.end(opened)

    assert [(each.ended, each.final.kind) for each in calls_of(session)[1:]] == [
        ("HTTP 202, result on the stream of #1", "result"),
        ('HTTP 202, error -1 "used" on the stream of #1', "error"),
        ("HTTP 202", "nothing"),
    ]
    # A cassette that was written by hand doesn't say when its requests arrived.
    assert {each.ended for each in calls_of(session, number=None)[1:]} == {
        "HTTP 202, result on the stream of #1"
    }


def test_response_on_a_resumed_stream_is_found() -> None:
    """A stream that broke off goes on where the client asks for what came after an event."""
    session = PushingSession()
    broken = session.talk.request(post(CALL, SESSION))
    session.talk.response(broken, Answer((sse(progress(1)),), STREAM_HEADERS, end=End.BROKEN))
    resumed = session.open(get("/mcp", SESSION, ("Last-Event-ID", "7")))
    session.end(resumed, answer(CALL, text("done")))

    assert [each.ended for each in calls_of(session)] == [
        "HTTP 200, result on the stream of #2, stream of 1 event, broken off by the upstream",
        "HTTP 200, stream of 1 event",
    ]


def test_response_in_place_is_not_looked_for_elsewhere() -> None:
    """A call ends with its own response, and a request without one is no HTTP response either."""
    session = PushingSession()
    opened = session.listen()
    session.post(CALL, asks("a"))
    session.post(CALL, Answer((), status=0, end=End.OPEN))
    session.post(Request("POST", "/mcp", (), b"no message"), ACCEPTED)
    session.say(opened, answer(CALL, text("done")))
    session.end(opened)

    assert [each.ended for each in calls_of(session)[1:]] == [
        "abandoned: the last ask has no answer",
        "no response, result on the stream of #1",
        "HTTP 202",
    ]


def test_values_are_given_as_python_has_them_and_kept_as_they_were_recorded() -> None:
    """Arguments and answers are JSON for Python; their text keeps what Python has no number for."""
    exact = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":%s}}'
    (call,) = interactions_of((exact % b'{"n":123456789012345678901234567890}', text("x")))

    assert call.arguments == {"n": 1.2345678901234568e29}
    assert call.arguments_json == '{"n":12345678901234567890123456789e1}'


# Time


@pytest.mark.parametrize(
    ("script", "times", "answered_after_ms"),
    [
        (
            [(CALL, asks("a", "b")), (retry(CALL, {"a": YES, "b": NO}), text("x"))],
            [(6, 1)],
            [[1]],
        ),
        ([(CALL, asks("a"))], [(3, 0)], [[None]]),
        ([(CALL, asks(state="s")), (retry(CALL, state="s"), text("x"))], [(6, 0)], [[1]]),
        (
            [(CALL, asks("a")), (retry(CALL, {"a": YES}), {}), (retry(CALL, {"a": NO}), {})],
            [(6, 1), (3, 0)],
            [[1], [5]],
        ),
    ],
    ids=["answered", "never answered", "nothing asked", "a branch has its own time only"],
)
def test_time_is_the_servers_or_the_persons(
    script: list[Step], times: list[tuple[int, int]], answered_after_ms: list[list[float | None]]
) -> None:
    """Between a question and its answer a person's time passes, else the server's."""
    calls = interactions_of(*script)

    assert [(call.duration_ms, call.person_ms) for call in calls] == times
    assert [[turn.answered_after_ms for turn in call.turns] for call in calls] == answered_after_ms


def test_answers_sent_early_take_no_time() -> None:
    """An answer that is sent before the response that asks has ended never takes less than none."""
    cassette = loaded(cassette_of((CALL, asks("a")), (retry(CALL, {"a": YES}), text("x"))))
    (interaction,) = cassette.interactions
    asking, answered = interaction.exchanges
    early = replace(interaction, exchanges=(replace(asking, ended_ms=9.0), answered))
    (call,) = details_of(replace(cassette, interactions=(early,))).interactions

    assert (call.turns[0].answered_after_ms, call.person_ms) == (0, 0)


def test_pushed_question_waits_within_the_call() -> None:
    """The time from a pushed request to its posted answer is a person's, though the call goes on."""
    cassette = asked_once(elicit(), YES, CALL, text("done"))
    (call,) = details_of(cassette).interactions
    exchange = cassette.interactions[0].exchanges[0]

    assert call.turns[0].answered_after_ms == call.person_ms > 0
    assert call.duration_ms + call.person_ms == exchange.ended_ms - exchange.started_ms
    assert call.session == SESSION[1] or call.session.startswith("sha256:")


def test_listening_stream_is_one_and_each_turn_has_its_own_time() -> None:
    """A stream that tells what other calls caused is marked; pushed turns have their own times."""
    head, whole, branch = details_of(branched()).interactions

    assert head.listens
    assert [each.method for each in head.notifications] == ["notifications/x"]
    assert [turn.answered_after_ms is None for turn in whole.turns] == [False, True, False]
    assert len(branch.turns) == 4


def test_size_and_time_are_those_of_the_own_exchanges() -> None:
    """Calls that overlap are measured each for itself."""
    talk = Conversation()
    one, two = talk.request(CALL), talk.request(tool("other"))
    talk.response(two, Answer((b"data: 1\n\ndata: 2\n\n",), STREAM_HEADERS))
    talk.response(one, text("x"))
    first, second = details_of(loaded(talk.cassette())).interactions
    assert second.ended == "HTTP 200, stream of 2 events"
    assert (first.duration_ms, second.duration_ms) == (7, 3)
