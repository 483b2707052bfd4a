"""Facts about what servers push and clients post."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import answer, tool
from messages import NO, YES, asks, text
from pushing import PushingSession, asked_once, cassette_with, elicit, roots, sample

from mrtr_cassette.core.exchange.pushed import (
    message_of,
    posted_answer,
    posted_answers,
    pushed_asks,
    pushed_requests,
)
from mrtr_cassette.core.exchange.recorded import Branch
from mrtr_cassette.core.protocol.dialect import InputRequest

CALL = tool("deploy", env="prod")


def test_pushed_requests_are_read_as_those_of_an_ask() -> None:
    """A pushed request has the kind and the message of a request of the same method in an ask."""
    pushes = [elicit(), elicit("push-4", "Log in", mode="url"), sample(), roots()]
    session = PushingSession()
    call = session.open(CALL)
    session.say(call, *pushes)
    session.end(call, answer(CALL, text("done")))
    keys = ["elicitation-1", "elicitation-2", "sampling-1", "roots-1"]
    turn = session.turn({key: (call, piece) for piece, key in enumerate(keys)})

    assert pushed_requests(turn) == {
        "elicitation-1": InputRequest("form", "Deploy?"),
        "elicitation-2": InputRequest("url", "Log in"),
        "sampling-1": InputRequest("sampling", ""),
        "roots-1": InputRequest("roots", ""),
    }
    assert [message_of(each).raw for each in turn.asked] == pushes
    assert posted_answers(turn) is None


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

    assert posted_answers(turn) == {"elicitation-1": read}
    assert posted_answer(None) == {"error": None}


def test_pushed_asks_are_told_by_the_response_that_they_stand_in() -> None:
    """A push on a listening stream stands there, and belongs to the call that was pending."""
    session = PushingSession()
    stream = session.listen()
    call = session.open(CALL)
    session.say(call, elicit())
    session.say(stream, roots())
    session.end(call, answer(CALL, asks("a")))
    session.end(stream)
    listening, calling = session.exchange(stream), session.exchange(call)
    turns = [
        session.turn({"elicitation-1": (call, 0), "roots-1": (stream, 0)}),
        session.turn({"elicitation-1": (call, 0)}),
    ]
    interactions = cassette_with(([listening], ()), ([calling], turns)).interactions
    branch = replace(interactions[1], number=3, branch=Branch(2, 3))

    asked = pushed_asks([*interactions, branch])

    assert [(each.interaction, each.turn, each.request.key) for each in asked[calling]] == [
        (2, 1, "elicitation-1"),
        (2, 2, "elicitation-1"),
    ]
    assert [(each.turn, each.call.name) for each in asked[listening]] == [(1, "deploy")]
