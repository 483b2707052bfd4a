"""Facts about when exchanges are over, and in which order a cassette has interactions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.record.assembly import in_order
from mrtr_cassette.core.record.history import (
    ExchangeFacts,
    Moment,
    Rank,
    ended_with_session,
    ends_of,
)
from mrtr_cassette.core.record.linking import LinkedInteraction


class Log:
    """Exchanges, each an interaction, with when they began and ended."""

    def __init__(self) -> None:
        self.facts: dict[int, ExchangeFacts] = {}
        self.interactions: list[LinkedInteraction] = []

    def add(
        self, text: str, end: int, session: str = "", rank: Rank = Rank.CALL, identity: str = "1"
    ) -> Log:
        """Add an exchange that was over when `end` requests had arrived."""
        number = len(self.facts) + 1
        ended = Moment(end, float(end))
        self.facts[number] = ExchangeFacts(session, text, rank, identity, ended=ended)
        self.interactions.append(LinkedInteraction([number]))
        return self

    def order(self) -> list[int]:
        """Return the first exchanges in the order of the file."""
        ends = ends_of(self.facts)
        ordered = in_order(self.interactions, self.facts, ends, lambda number: f"{9 - number}")
        return [each.own[0] for each in ordered]

    def texts(self) -> list[str]:
        """Return their calls in the order of the file."""
        return [self.facts[number].text for number in self.order()]


@pytest.mark.parametrize(
    ("calls", "texts"),
    [
        pytest.param(["c1", "b2", "a3"], "cba", id="what was over stands first"),
        pytest.param(["c3", "a3", "b3", "04"], "abc0", id="content decides of what overlaps"),
        pytest.param(["m9", "z2", "b3", "y4"], "mzby", id="a long call turns nothing around"),
        pytest.param(["x9", "c2", "b3"], "cbx", id="and stands where it may"),
    ],
)
def test_calls_stand_by_time_and_content(calls: list[str], texts: str) -> None:
    """Each call has one letter, and is over when so many requests had arrived."""
    log = Log()
    for text, end in calls:
        log.add(text, int(end))

    assert "".join(log.texts()) == texts


def test_equal_calls_stand_by_the_rest_of_their_content() -> None:
    """Of equal calls the ids decide, the shorter first, then what the exchanges hold."""
    log = Log().add("a", 4, identity="10").add("a", 4, identity="9")

    assert log.add("a", 4, identity="9").add("a", 4, identity="9").order() == [4, 3, 2, 1]


def test_listening_streams_stand_after_the_handshake() -> None:
    """A client opens its GET stream whenever it gets to it."""
    log = Log().add("initialize", 1, "s", Rank.INITIALIZE).add("ready", 2, "s", Rank.INITIALIZED)
    log.add("call", 3, "s").add("GET", 9, "s", Rank.LISTENING).add("call 2", 5, "s")

    assert log.texts() == ["initialize", "ready", "GET", "call", "call 2"]


def test_sessions_stand_together() -> None:
    """Sessions that overlap are told apart by what was done in them, others by their time."""
    log = Log().add("first", 1, "x")
    for session, text in (("b", "beta"), ("a", "alpha"), ("b", "one"), ("a", "one")):
        log.add(text, 5, session)

    assert log.add("last", 6, "c").texts() == ["first", "alpha", "one", "beta", "one", "last"]


def test_branches_follow_what_they_part_from() -> None:
    """An interaction and its branches stay together; those of an earlier recording come first."""
    log = Log().add("b", 1).add("a", 2).add("b", 3).add("e", 4)
    whole, other, branch, added = log.interactions
    branch.numbers, branch.branch_of, branch.shared = [1, 3], whole, 1
    earlier = LinkedInteraction([-1])
    added.numbers, added.branch_of, added.shared = [-1, 4], earlier, 1
    log.interactions = [added, whole, branch, other]

    assert log.order() == [4, 1, 3, 2]


calls = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.integers(0, 6),
        st.sampled_from(["", "s", "t"]),
        st.sampled_from([*Rank][1:]),
    ),
    max_size=14,
)


@given(calls)
def test_order_respects_what_was_over(script: list[tuple[str, int, str, Rank]]) -> None:
    """Within a session, and among calls without one, nothing stands before what it followed."""
    log = Log()
    for number, (text, length, session, rank) in enumerate(script, start=1):
        log.add(text, number + length, session, rank)
    order = log.order()

    assert sorted(order) == list(log.facts)
    place = {number: at for at, number in enumerate(order)}
    for before, one in log.facts.items():
        for after, other in log.facts.items():
            listens = Rank.LISTENING in {one.rank, other.rank}
            if one.session == other.session and one.ended.after < after and not listens:
                assert place[before] < place[after]


@given(st.permutations(range(6)), st.lists(st.sampled_from("ab"), min_size=6, max_size=6))
def test_order_of_what_overlaps_does_not_depend_on_arrival(
    arrival: list[int], texts: list[str]
) -> None:
    """However calls of the same moment arrive, the cassette has them in one order."""
    log = Log()
    for each in arrival:
        log.add(texts[each], 6, identity=str(each))

    assert [log.facts[number].request_id for number in log.order()] == sorted(
        map(str, range(6)), key=lambda identity: (texts[int(identity)], identity)
    )


def facts(session: str = "s", ended: int = 1, **known: Any) -> ExchangeFacts:
    """Return what is to know of a call, unless something else is said."""
    ended_at = Moment(ended, float(ended))
    return ExchangeFacts(session, ended=ended_at, **{"request_id": "1", **known})


def test_call_without_a_response_of_its_own_is_over_with_that_on_a_stream() -> None:
    """The first response with its id counts that came after it, in its session."""
    came = (("1", Moment(1, 1.0)), ("1", Moment(3, 2.0)), ("1", Moment(5, 3.0)))
    stream = facts(rank=Rank.LISTENING, request_id=None, responses=came, ended=9)
    waiting = facts(is_answered=False, ended=2)

    assert ends_of({1: stream, 2: waiting, 3: facts(), 4: waiting, 5: waiting}) == {
        1: Moment(9, 9.0),
        2: Moment(3, 2.0),
        3: Moment(1, 1.0),
        4: Moment(5, 3.0),
        5: Moment(2, 2.0),
    }
    assert ends_of({1: stream, 2: facts("other", is_answered=False)})[2] == Moment(1, 1.0)


def test_stream_ends_with_its_session() -> None:
    """A stream that its client left before the DELETE alone, or that the server ended after it."""
    left = facts(rank=Rank.LISTENING, ended=2)
    stayed = facts(rank=Rank.LISTENING, ended=3, is_left=True)
    let_go = facts(rank=Rank.LISTENING, ended=3)
    later = facts(rank=Rank.LISTENING, ended=5)
    delete = facts(request_id=None, ends_session=True)
    elsewhere = facts("other", rank=Rank.LISTENING, ended=9)

    told = {1: left, 2: stayed, 3: facts(), 4: delete, 5: delete, 6: later, 7: elsewhere, 8: let_go}
    assert ended_with_session(told) == {2: 4, 6: 4}
    assert ended_with_session({1: facts("", rank=Rank.LISTENING), 2: facts("")}) == {}
