from __future__ import annotations

from dataclasses import replace

import pytest

from mrtr_cassette.core.record.linking import LinkedInteraction, LinkFacts, link

DEPLOY = "call of deploy"
SELL = "call of sell"


class Log:
    """Exchanges in the making, each with the shortest words for what linking sees of it."""

    def __init__(self) -> None:
        self.facts: dict[int, LinkFacts] = {}

    def add(
        self,
        *,
        key: str = DEPLOY,
        caller: str = "",
        client: str = "",
        answers: str | None = None,
        echoes: str | None = None,
        asks: str | None = None,
        issues: str | None = None,
        after: int | None = None,
    ) -> Log:
        """Add an exchange; each letter of `answers` and `asks` is a key."""
        number = len(self.facts) + 1
        is_retry = answers is not None or echoes is not None
        is_ask = asks is not None or issues is not None
        self.facts[number] = LinkFacts(
            key,
            caller,
            client,
            frozenset(answers or "") if is_retry else None,
            echoes,
            frozenset(asks or "") if is_ask else None,
            () if issues is None else (issues,),
            after or number,
        )
        return self

    def linked(self) -> list[list[int]]:
        """Return the numbers of each interaction."""
        return [interaction.numbers for interaction in link(self.facts)]


def interaction_of(log: Log, index: int) -> LinkedInteraction:
    """Return one interaction."""
    return link(log.facts)[index]


def test_retry_joins_the_ask_that_issued_its_state() -> None:
    """A state outranks arrival order, so parallel identical calls don't mix."""
    log = Log().add(asks="a", issues="S").add(asks="a", issues="T")

    assert log.add(answers="a", echoes="T").add(answers="a", echoes="S").linked() == [
        [1, 4],
        [2, 3],
    ]


def test_retry_without_state_joins_the_oldest_open_ask() -> None:
    """Without a state, call and keys tell; of several asks the oldest open one."""
    log = Log().add(asks="a").add(asks="a").add(answers="a").add(answers="a")

    assert log.linked() == [[1, 3], [2, 4]]


@pytest.mark.parametrize(
    ("answers", "linked"),
    [("a", [[1, 3], [2]]), ("b", [[1], [2, 3]]), ("ab", [[1], [2], [3]]), ("", [[1, 3], [2]])],
)
def test_keys_of_the_ask_cover_those_of_the_answers(answers: str, linked: list[list[int]]) -> None:
    """An ask that lacks one of the answers' keys is not the one that was answered."""
    assert Log().add(asks="a").add(asks="b").add(answers=answers).linked() == linked


@pytest.mark.parametrize(
    "retry",
    [
        {"answers": "a", "echoes": "T"},
        {"answers": "a"},
        {"answers": "a", "echoes": "S", "key": SELL},
    ],
    ids=["other state", "no state", "other call"],
)
def test_retry_of_no_recorded_ask_is_an_orphan(retry: dict[str, str]) -> None:
    """A retry whose state no ask of its call issued begins an interaction, marked as orphan."""
    log = Log().add(asks="a", issues="S").add(**retry)  # type: ignore[arg-type]

    assert log.linked() == [[1], [2]]
    assert [interaction.is_orphan for interaction in link(log.facts)] == [False, True]


def test_state_on_an_ask_without_state_is_an_orphan() -> None:
    """A state where none was issued is no answer to the ask."""
    assert Log().add(asks="a").add(answers="a", echoes="S").linked() == [[1], [2]]


def test_second_answer_to_an_ask_is_a_branch() -> None:
    """An ask that is answered again gives an interaction that shares it."""
    log = Log().add(asks="a", issues="S").add(answers="a", echoes="S").add(answers="a", echoes="S")
    first, second = link(log.facts)

    assert (first.numbers, second.numbers) == ([1, 2], [1, 3])
    assert second.branch_of is first
    assert (second.shared, first.shared, first.branch_of) == (1, 0, None)


def test_branch_of_a_later_turn_shares_all_before() -> None:
    """A branch has everything up to the ask that was answered again, and goes its own way."""
    log = Log().add(asks="a", issues="S").add(answers="a", echoes="S", asks="b", issues="T")
    log.add(answers="b", echoes="T").add(answers="b", echoes="T", asks="c", issues="U")
    log.add(answers="c", echoes="U")
    first, second = link(log.facts)

    assert (first.numbers, second.numbers, second.shared) == ([1, 2, 3], [1, 2, 4, 5], 2)


def test_ask_counts_only_once_it_is_whole() -> None:
    """A retry can't answer an ask whose bytes came after it."""
    log = Log().add(asks="a", after=2).add(asks="a", after=2).add(answers="a")
    assert log.linked() == [[1, 3], [2]]

    log = Log().add(asks="a", after=3).add(asks="a", after=2).add(answers="a").add(answers="a")
    assert log.linked() == [[1, 4], [2, 3]]

    assert Log().add(asks="a", after=2).add(answers="a").linked() == [[1], [2]]


@pytest.mark.parametrize("state", [None, "same for all"])
def test_of_equal_asks_the_callers_own_comes_first(state: str | None) -> None:
    """Where states don't tell, an open ask of the same client comes before an older one."""
    log = Log().add(asks="k", issues=state, caller="a").add(asks="k", issues=state, caller="b")
    log.add(answers="k", echoes=state, caller="b").add(answers="k", echoes=state, caller="c")

    assert log.linked() == [[1, 4], [2, 3]]

    log = Log().add(asks="k", issues=state, caller="a").add(asks="k", issues=state, caller="b")
    log.add(answers="k", echoes=state, caller="c")

    assert log.linked() == [[1, 3], [2]]


def test_nobody_answers_what_another_client_was_asked() -> None:
    """Answers without a state that their client was not asked for are an orphan."""
    log = Log().add(asks="k", client="a").add(answers="k", client="b").add(answers="k", client="a")
    assert log.linked() == [[1, 3], [2]]
    assert [interaction.is_orphan for interaction in link(log.facts)] == [False, True]

    log = Log().add(asks="k", issues="S", client="a").add(answers="k", echoes="S", client="b")
    assert log.linked() == [[1, 2]]


def test_open_ask_comes_before_an_answered_one() -> None:
    """A retry that several asks fit answers one that nobody has answered."""
    log = Log().add(asks="a").add(answers="a").add(asks="ab").add(answers="a")

    assert log.linked() == [[1, 2], [3, 4]]


def test_of_asks_with_other_keys_the_one_asked_first_is_answered() -> None:
    """Of open asks whose keys all cover the answers, the first is taken."""
    assert Log().add(asks="ab").add(asks="a").add(answers="a").linked() == [[1, 3], [2]]
    assert Log().add(asks="a").add(asks="ab").add(answers="a").linked() == [[1, 3], [2]]


def test_interactions_stand_in_the_order_of_their_first_requests() -> None:
    """Order is that of first requests, and a branch follows what it shares them with."""
    log = Log().add(asks="a", issues="S").add(key=SELL).add(answers="a", echoes="S")
    log.add(answers="a", echoes="S")

    assert log.linked() == [[1, 3], [1, 4], [2]]


def after_an_earlier_one(
    earlier: Log, chains: list[LinkedInteraction], log: Log
) -> list[list[int]]:
    """Return the numbers of what begins in a recording that is added; earlier ones are negative."""
    count = len(earlier.facts)
    facts = {
        number - count - 1: replace(each, asked_after=0) for number, each in earlier.facts.items()
    }
    return [interaction.numbers for interaction in link(log.facts, chains, facts)]


def test_retry_continues_an_interaction_of_an_earlier_recording() -> None:
    """One whose last ask had no answer grows, so nothing begins."""
    waiting = LinkedInteraction([-2])
    earlier = Log().add(asks="a", issues="S").add(key=SELL)
    chains = [waiting, LinkedInteraction([-1])]

    assert after_an_earlier_one(earlier, chains, Log().add(answers="a", echoes="S")) == []
    assert waiting.numbers == [-2, 1]


def test_another_answer_to_an_earlier_ask_begins_a_branch() -> None:
    """What had been answered stays as it is, and the new interaction shares the ask."""
    answered = LinkedInteraction([-2, -1])
    earlier = Log().add(asks="a", issues="S").add(answers="a", echoes="S")
    log = Log().add(answers="a", echoes="S").add(answers="a", echoes="unknown")

    assert after_an_earlier_one(earlier, [answered], log) == [[-2, 1], [2]]
    assert answered.numbers == [-2, -1]


def test_of_two_earlier_asks_without_state_the_unanswered_one_comes_first() -> None:
    """Only an ask that nobody answered waits for its answer."""
    answered, waiting = LinkedInteraction([-3, -2]), LinkedInteraction([-1])
    earlier = Log().add(asks="a").add(answers="a").add(asks="a")
    log = Log().add(answers="a").add(answers="a")

    assert after_an_earlier_one(earlier, [answered, waiting], log) == [[-1, 2]]
    assert waiting.numbers == [-1, 1]
