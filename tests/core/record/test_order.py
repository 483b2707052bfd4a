from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.record.history import Moment, Rank, SessionFacts, ends_of
from mrtr_cassette.core.record.linking import LinkedInteraction
from mrtr_cassette.core.record.order import in_order


class Log:
    """Exchanges, each an interaction, with when they began and ended."""

    def __init__(self) -> None:
        self.facts: dict[int, SessionFacts] = {}
        self.interactions: list[LinkedInteraction] = []

    def add(
        self, text: str, end: int, session: str = "", rank: Rank = Rank.CALL, identity: str = "1"
    ) -> Log:
        """Add an exchange that was over when `end` requests had arrived."""
        number = len(self.facts) + 1
        ended = Moment(end, float(end))
        self.facts[number] = SessionFacts(
            session, text, rank, identity, None, (), (), ended, is_answered=True
        )
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


def test_calls_that_follow_one_another_stay_as_they_arrived() -> None:
    """What was over before something else began stands before it."""
    assert Log().add("c", 1).add("b", 2).add("a", 3).texts() == ["c", "b", "a"]


def test_calls_that_overlap_stand_by_content() -> None:
    """The order in which calls of the same moment arrive is chance."""
    for texts in (["c", "a", "b"], ["b", "c", "a"]):
        log = Log()
        for text in texts:
            log.add(text, 3)

        assert log.add("0", 4).texts() == ["a", "b", "c", "0"]


def test_long_call_stands_where_it_may_among_those_beside_it() -> None:
    """A call that takes long doesn't turn those around that follow one another meanwhile."""
    log = Log().add("m", 9).add("z", 2).add("b", 3).add("y", 4)

    assert log.texts() == ["m", "z", "b", "y"]
    assert Log().add("x", 9).add("c", 2).add("b", 3).texts() == ["c", "b", "x"]


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
