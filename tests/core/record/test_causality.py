"""The order of what several recorders saw: causes first, then clocks."""

from __future__ import annotations

import pytest
from builders import Answer, Conversation, answer, exchange, get, post, retry, rpc, tool
from messages import asks, text

from mrtr_cassette.core.record.causality import (
    SESSION,
    STATE,
    Chain,
    Happening,
    Order,
    clock_corrections,
    givers_of,
    happenings_of,
    in_own_order,
)
from mrtr_cassette.core.secrets.surrogates import sha256_of

HOUR_MS = 3_600_000.0
X, Y = ("state", "x"), ("state", "y")


def request(number: int, at_ms: float, *needs: tuple[str, ...]) -> Happening:
    """Return a request."""
    return Happening(number, False, at_ms, number, needs)


def response(number: int, at_ms: float, *gives: tuple[str, ...], after: int = 0) -> Happening:
    """Return what its response is the cause of."""
    return Happening(after or number, True, at_ms, number, (), gives)


def ordered(*chains: Chain) -> Order:
    """Return one order of what recorders saw."""
    givers = givers_of(chains)
    return Order(chains, clock_corrections(chains, givers), givers)


def test_clocks_decide_where_nothing_is_a_cause() -> None:
    """Each recorder counts its time from its own beginning."""
    one = Chain(1000, [request(1, 0), request(2, 200)])
    two = Chain(1100, [request(1, 0), request(2, 200)])

    order = ordered(one, two)

    assert order.requests == [(0, 1), (1, 1), (0, 2), (1, 2)]
    assert order.began_ms == 1000
    assert [order.offset_ms(index) for index in (0, 1)] == [0, 100]


@pytest.mark.parametrize("skew_ms", [-HOUR_MS, -10, 0, 10, HOUR_MS])
def test_causes_come_before_what_they_caused(skew_ms: float) -> None:
    """Whatever the clocks say; and clocks that contradict them are put forward together."""
    one = Chain(1000, [request(1, 0), response(1, 5, X), request(2, 20, Y)])
    two = Chain(1000 + skew_ms, [request(1, 10, X), response(1, 15, Y)])

    order = ordered(one, two)

    assert order.requests == [(0, 1), (1, 1), (0, 2)]
    assert order.after(0, 1, 5) == 1
    assert order.after(1, 1, 15) == 2


def test_corrections_are_as_small_as_they_can_be() -> None:
    """A clock that contradicts nothing stays, and one that is put forward pushes the next."""
    chains = [
        Chain(1000, [request(1, 0), response(1, 5, X)]),
        Chain(900, [request(1, 10, X), response(1, 20, Y)]),
        Chain(910, [request(1, 9, Y)]),
        Chain(0, [request(1, 0)]),
    ]

    assert clock_corrections(chains, givers_of(chains)) == [0, 95, 96, 0]


def test_state_that_came_twice_proves_nothing() -> None:
    """Either may be the cause, so no clock is wrong, and the first one is enough."""
    one = Chain(1000, [request(1, 0), response(1, 5, X)])
    two = Chain(1000, [request(1, 100), response(1, 105, X)])
    three = Chain(1000, [request(1, 3, X)])

    order = ordered(one, two, three)

    assert [order.offset_ms(index) for index in range(3)] == [0, 0, 0]
    assert order.requests == [(0, 1), (2, 1), (1, 1)]


def test_cause_that_comes_too_late_at_all_holds_nobody_up() -> None:
    """Where each waits for the other, the earliest goes on."""
    one = Chain(1000, [request(1, 5, Y), response(1, 6, X)])
    two = Chain(1000, [request(1, 0, X), response(1, 1, Y)])
    # What a recorder saw itself is in its order already.
    three = Chain(1000, [request(1, 9, ("state", "z")), response(1, 10, ("state", "z"))])

    assert sorted(ordered(one, two, three).requests) == [(0, 1), (1, 1), (2, 1)]


def test_pieces_stay_between_the_requests_of_their_recorder() -> None:
    """By time among those of the others, wherever it is a cause or not."""
    one = Chain(0, [request(1, 0), request(2, 100)])
    two = Chain(0, [request(1, 50), request(2, 150)])

    order = ordered(one, two)

    assert [order.after(0, 1, at_ms) for at_ms in (10, 50, 60, 500)] == [1, 1, 2, 2]
    assert [order.after(0, 2, at_ms) for at_ms in (10, 120, 500)] == [3, 3, 4]
    assert order.after(1, 0, 0) == 0


def test_asks_sessions_and_pushed_questions_are_causes() -> None:
    """What an exchange gives and needs, with the hashes that a journal has."""
    session = ("Mcp-Session-Id", "s" * 32)
    opening = post(rpc("initialize"))
    opened = exchange(
        opening,
        Answer((answer(opening.body, {}),), (("Content-Type", "application/json"), session)),
    )
    _, opens = happenings_of(1, opened)
    ((kind, identity),) = opens.gives
    assert kind == SESSION

    asked = exchange(tool("x"), asks("ok", state="S"))
    first, whole = happenings_of(1, asked)
    assert (first.needs, whole.gives) == ((), ((STATE, sha256_of("S")),))
    answered = exchange(retry(tool("x"), {"ok": {}}, state="S"), text("done"), number=2)
    (again,) = happenings_of(2, answered)
    assert again.needs == ((STATE, sha256_of("S")),)

    _, stateless = happenings_of(1, exchange(tool("x"), asks("ok")))
    (plain,) = happenings_of(2, exchange(retry(tool("x"), {"ok": {}}), text("done"), number=2))
    assert plain.needs == stateless.gives

    talk = Conversation()
    stream = talk.stream(get("/mcp", ("Accept", "text/event-stream"), session))
    talk.event(stream, rpc("roots/list", number="p1"))
    talk.event(stream, answer(tool("x"), text("late")))
    talk.end(stream)
    listening, pushed, late = in_own_order(list(happenings_of(1, talk.exchanges[0])))
    assert listening.needs == ((SESSION, identity),)
    posted = exchange(
        post(answer(rpc("roots/list", number="p1"), {}), session), Answer((), (), 202)
    )
    assert next(happenings_of(1, posted)).needs[1:] == pushed.gives
    call = exchange(post(tool("x"), session), Answer((), (), 202))
    assert next(happenings_of(1, call)).gives == late.needs


def test_state_in_what_is_no_ask_is_a_cause_too() -> None:
    """An ask that broke off may have issued one."""
    body = b'{"result":{"resultType":"input_required","requestState":"a long enough state"}'
    broken = exchange(tool("x"), Answer((body,)))
    assert broken.issued_sha256 is not None

    _, end = happenings_of(1, broken)

    assert end.gives == ((STATE, broken.issued_sha256),)
    assert end.at_ms == broken.ended_ms
