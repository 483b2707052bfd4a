"""Facts about what was recorded: exchanges, what servers push, sessions and streams."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import (
    JSON_HEADERS,
    STREAM_HEADERS,
    Answer,
    answer,
    cassette_of,
    exchange,
    loaded,
    response_of,
    tool,
)
from counting import steps
from hypothesis import given
from hypothesis import strategies as st
from messages import NO, YES, text
from pushing import PushingSession, asked_once, branched, elicit, roots, sample
from tasking import get, state

from mrtr_cassette.core.cassette.recorded import (
    TaskStep,
    posted_answer_value,
    task_turns,
)
from mrtr_cassette.core.cassette.sessions import EndpointPassing, opened_session
from mrtr_cassette.core.cassette.texts import combine_cassettes
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.protocol.origins import ServerOrigin
from mrtr_cassette.errors import CassetteError

CALL = tool("deploy", env="prod")


def test_turns_of_a_task_are_told_by_one_look_at_each_state() -> None:
    """A task may be polled for hours, and its turns are asked for again and again."""
    poll = exchange(get("t-1"), state("t-1", "input_required", "k"))
    polls = [TaskStep(poll)] * 50
    once = steps(lambda: [step.state for step in polls])

    assert len(task_turns(polls)) == 1
    assert steps(lambda: task_turns(polls)) < 1.6 * once


def test_places_count_the_turns_of_both_kinds() -> None:
    """A turn's number counts the asks before it, however they were made."""
    _, first, branch = branched().interactions

    assert (first.shared_count, branch.shared_count) == (0, 1)
    assert [
        (exchange.number, place.turn, place.answer)
        for exchange, place in first.placed_exchanges
    ] == [
        (2, 0, None),
        (5, 3, None),
        (3, 1, 0),
        (4, 1, 1),
    ]

    assert [
        (exchange.number, place.turn, place.answer)
        for exchange, place in branch.placed_exchanges
    ] == [
        (6, 3, None),
        (7, 4, 0),
    ]
    assert (
        first.asking_turn(0),
        [*first.numbered_turns],
        [*branch.numbered_turns],
    ) == (
        3,
        [1, 2],
        [1, 2, 4],
    )


# Several cassettes


def test_combined_cassettes_count_on_behind_an_empty_one() -> None:
    """No two exchanges have the same number, whichever of the cassettes has none."""
    empty = loaded(cassette_of(), "empty.json")
    both = combine_cassettes([branched(), empty, branched()])
    numbers = [exchange.number or 0 for exchange in both.exchanges]

    assert sorted(numbers) == [*range(1, 15)]


def test_interactions_of_combined_cassettes_name_each_other() -> None:
    """The stream on which a server asks, and the origin of a branch, are of the same cassette."""
    both = combine_cassettes([branched(), branched()])
    _, _, _, stream, asked, branch = both.interactions

    assert (stream.number, asked.asking_interactions) == (4, (4,))
    assert branch.branch is not None
    assert branch.branch.of == asked.number


def test_cassettes_by_other_rules_are_not_combined() -> None:
    """The message names the rule in words."""
    sealed = replace(branched(), seals_answers=True)
    with pytest.raises(CassetteError, match="with another sealing of answers than"):
        combine_cassettes([branched(), sealed])


# What servers push


def test_pushed_requests_are_read_as_those_of_an_ask() -> None:
    """A pushed request has the kind and the message of a request of the same method in an ask."""
    pushes = [elicit(), elicit("push-4", "Log in", mode="url"), sample(), roots()]
    session = PushingSession()
    call = session.open(CALL)
    session.say(call, *pushes)
    session.end(call, answer(CALL, text("done")))
    keys = ["elicitation-1", "elicitation-2", "sampling-1", "roots-1"]
    turn = session.turn({key: (call, piece) for piece, key in enumerate(keys)})

    assert turn.requests == {
        "elicitation-1": InputRequest("form", "Deploy?"),
        "elicitation-2": InputRequest("url", "Log in"),
        "sampling-1": InputRequest("sampling", ""),
        "roots-1": InputRequest("roots", ""),
    }

    assert [push.message.raw for push in turn.pushed_requests] == pushes
    assert turn.given_answers is None


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (YES, YES),
        (NO, NO),
        (None, None),
        (ValueError("no model"), {"error": {"code": -1, "message": "no model"}}),
    ],
)
def test_posted_answer_is_a_result_or_an_error(value: object, read: object) -> None:
    """An answer is the result that was posted, or an object with the error."""
    cassette = asked_once(elicit(), value, CALL, text("done"))
    (turn,) = cassette.interactions[0].pushed_turns

    assert turn.given_answers == {"elicitation-1": read}
    assert posted_answer_value(None) == {"error": None}


# Sessions and streams

ENDPOINT = b"event: endpoint\ndata: /messages?session_id=mrtr-session%3A7\n\n"


def test_session_is_opened_by_a_header_or_by_the_url_to_post_to() -> None:
    """Streamable HTTP names the session in a header, HTTP+SSE in its first event."""
    headers = (*JSON_HEADERS, ("Mcp-Session-Id", "mrtr-session:3"))

    assert opened_session(response_of(Answer((b"{}",), headers))) == "mrtr-session:3"
    assert (
        opened_session(response_of(Answer((ENDPOINT,), STREAM_HEADERS)))
        == "mrtr-session:7"
    )

    assert opened_session(response_of(Answer((b": hello\n\n",), STREAM_HEADERS))) == ""
    assert opened_session(response_of(Answer((b"{}",)))) == ""
    assert opened_session(None) == ""


PLAIN = b"event: endpoint\ndata: /messages?id=1\n\n"
REST = b"data: http://server:80/x\n\n"


def passed(*chunks: bytes) -> bytes:
    """Return what a client gets of a stream that comes in these chunks."""
    passing = EndpointPassing(ServerOrigin("http://server"))
    return b"".join(map(passing.feed, chunks)) + passing.release_held_bytes()


LEADING_BACK = {
    b"event: endpoint\ndata: http://server:80/messages?id=1\n\n": PLAIN,
    b"event: endpoint\ndata: https://SERVER:80/messages?id=1\n\n": PLAIN,
    b"event:endpoint\r\ndata:http://server:80/m\r\n\r\n": b"event:endpoint\r\ndata:/m\r\n\r\n",
    PLAIN: PLAIN,
    b": ping\n\nevent: endpoint\ndata: http://server:80/messages?id=1\n\n": b": ping\n\n"
    + PLAIN,
}
OTHERS = (
    b"event: endpoint\ndata: http://elsewhere:80/messages?id=1\n\n",
    b"event: endpoint\ndata: http://server:8000/messages\n\n",
    b"event: message\ndata: http://server:80/messages\n\n",
    b"data: {}\n\nevent: endpoint\ndata: http://server:80/messages\n\n",
)


@pytest.mark.parametrize("event", [*LEADING_BACK, *OTHERS])
@given(data=st.data())
def test_url_at_the_server_leads_back(event: bytes, data: st.DataObject) -> None:
    """The URL loses the server's host, however it is cut; all other bytes stay."""
    expected = LEADING_BACK.get(event, event)
    raw = event + REST
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=4)))
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]

    assert passed(*chunks) == expected + REST


def test_nothing_waits_but_the_beginning_of_the_event() -> None:
    """What is no such event passes as it comes."""
    passing = EndpointPassing(ServerOrigin("http://server"))

    assert passing.feed(b"event: mess") == b""
    assert passing.feed(b'age\ndata: {"') == b'event: message\ndata: {"'
    assert passing.is_over
    assert passing.feed(b"event: endpoint") == b"event: endpoint"
