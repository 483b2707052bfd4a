"""Link retries to the asks that they answer, and steps of a task to the call that created it.

A retry is joined by request state; without one, by call and keys; otherwise it begins an
interaction of its own. Arrival order never outranks a state, so parallel identical calls don't mix.
Source: docs/matching.md, "Linking".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.cassette.sessions import ends_session
from mrtr_cassette.core.protocol.calls import NO_SESSION
from mrtr_cassette.core.record.facts import NO_TASK, ExchangeFacts, Moment
from mrtr_cassette.core.wire.http import Response

# The ends of sessions


def streams_of_closing(
    exchanges: Mapping[int, RecordedExchange], facts: Mapping[int, ExchangeFacts]
) -> list[int]:
    """Return the streams that clients tried to open or to resume while they ended their session.

    It is chance whether a client comes back before its DELETE, after it, or not at all.
    """
    ended: set[str] = set()
    for number, exchange in exchanges.items():
        if ends_session(exchange.request, exchange.response):
            ended.add(facts[number].session)
    ended.discard(NO_SESSION)
    last_of_session: dict[str, int] = {}
    sought: set[str] = set()
    reopened: list[int] = []
    for number, exchange_facts in facts.items():
        session = exchange_facts.session
        method = exchanges[number].request.method
        if session not in ended or method == "DELETE":
            continue
        is_again = False
        if method == "GET":
            is_again = _is_sought_again(exchange_facts, facts, sought)
        if is_again and _says_nothing(exchanges[number].response):
            reopened.append(number)
        else:
            last_of_session[session] = number
    return [
        number for number in reopened if number > last_of_session[facts[number].session]
    ]


def _is_sought_again(
    seeking: ExchangeFacts, facts: Mapping[int, ExchangeFacts], sought: set[str]
) -> bool:
    """Tell whether a GET seeks a stream that is over; `sought` are the sessions with a stream."""
    if seeking.resumes is not None:
        return facts[seeking.resumes].is_answered
    is_again = seeking.session in sought
    sought.add(seeking.session)
    return is_again


def _says_nothing(response: Response | None) -> bool:
    if response is None:
        return True
    if response.is_event_stream:
        return b"jsonrpc" not in response.body
    return response.status >= 400


# Retries and asks


@dataclass(slots=True, eq=False)
class LinkedInteraction:
    """The exchanges of one interaction, by number, from the first request to the last response."""

    numbers: list[int]
    branch_of: LinkedInteraction | None = None
    """The interaction that has the first exchanges too."""
    shared: int = 0
    """How many exchanges are shared with that interaction."""
    is_orphan: bool = False
    """It begins with a retry that answers no recorded ask."""
    steps: dict[int, int] = field(default_factory=dict)
    """Steps of the task that the last response creates, and how many polls got the same."""

    @property
    def own(self) -> list[int]:
        """The exchanges that no other interaction had before."""
        return self.numbers[self.shared :]


class _Ask(NamedTuple):
    """An ask in its interaction; `position` counts the exchanges up to and with it."""

    facts: ExchangeFacts
    interaction: LinkedInteraction
    position: int

    @property
    def is_answered(self) -> bool:
        """Whether its interaction goes on."""
        return self.position < len(self.interaction.numbers)


class _Asks:
    """All asks so far, by call, and by the state that a retry echoes or else the client."""

    def __init__(self) -> None:
        self._by_place: dict[tuple[str, str], list[_Ask]] = {}

    def add(self, ask: _Ask) -> None:
        """Take an ask."""
        facts = ask.facts
        places = [f"state {state}" for state in facts.issued]
        if not places:
            places = [f"client {facts.client}"]
        for place in places:
            self._by_place.setdefault((facts.call, place), []).append(ask)

    def answered_by(self, number: int, facts: ExchangeFacts) -> _Ask | None:
        """Return the ask that a retry answers.

        Equal asks come from servers that keep no state, or the same one for all. Of these the open
        ones come first, the caller's before those of others, then the oldest; then the last of
        those that have an answer.
        """
        if facts.echoed is None:
            place = (facts.call, f"client {facts.client}")
            keys = facts.answered_keys or frozenset()
        else:
            place = (facts.call, f"state {facts.echoed}")
            keys = frozenset()
        known = self._by_place.get(place, [])
        candidates: list[_Ask] = []
        for ask in known:
            has_keys = keys <= (ask.facts.asked_keys or frozenset())
            if has_keys and ask.facts.asked.after < number:
                candidates.append(ask)
        if not candidates:
            return None
        chosen = _oldest_open(candidates, facts.caller) or candidates[-1]
        self._by_place[place] = _moved_to_end(known, chosen)
        return chosen


def _oldest_open(asks: Iterable[_Ask], caller: str) -> _Ask | None:
    """Return the oldest ask without an answer, one of this caller if there is any."""

    def by_caller_and_age(ask: _Ask) -> tuple[bool, int]:
        return (ask.facts.caller != caller, ask.facts.asked.after)

    unanswered = [ask for ask in asks if not ask.is_answered]
    return min(unanswered, key=by_caller_and_age, default=None)


def _moved_to_end(known: Iterable[_Ask], chosen: _Ask) -> list[_Ask]:
    """Return asks with the chosen one last, without those that would never be chosen any more.

    These have an answer, and the same keys as the chosen one.
    """
    kept: list[_Ask] = []
    for ask in known:
        is_outranked = (
            ask.is_answered and ask.facts.asked_keys == chosen.facts.asked_keys
        )
        if ask is not chosen and not is_outranked:
            kept.append(ask)
    kept.append(chosen)
    return kept


def link(
    exchanges: Mapping[int, ExchangeFacts],
    earlier: Sequence[LinkedInteraction] = (),
    earlier_facts: Mapping[int, ExchangeFacts] | None = None,
) -> list[LinkedInteraction]:
    """Return the interactions that begin here, by their first requests; earlier ones may grow.

    Polls of a task that got nothing new are in none of them.
    """
    links = _Linking(earlier_facts or {})
    for interaction in earlier:
        links.add_earlier(interaction)
    for number, facts in exchanges.items():
        links.add(number, facts)
    return links.finished()


class _Linking:
    """The interactions of a recording while its exchanges are taken in their order."""

    def __init__(self, facts: Mapping[int, ExchangeFacts]) -> None:
        self._facts = dict(facts)
        self._asks = _Asks()
        self._task_owners: dict[str, LinkedInteraction] = {}
        self._steps: dict[LinkedInteraction, list[int]] = {}
        self._interactions: list[LinkedInteraction] = []

    def add_earlier(self, interaction: LinkedInteraction) -> None:
        """Take an interaction of an earlier recording."""
        first = interaction.shared + 1
        for position, number in enumerate(interaction.own, start=first):
            facts = self._facts[number]
            if facts.asked_keys is not None:
                self._asks.add(_Ask(facts, interaction, position))
        last = self._facts[interaction.numbers[-1]]
        if last.creates_task:
            self._own_tasks(last, interaction)

    def add(self, number: int, facts: ExchangeFacts) -> None:
        """Take the next exchange."""
        self._facts[number] = facts
        task_owner = self._task_owners.get(facts.task.sha256)
        if task_owner is not None:
            self._steps.setdefault(task_owner, []).append(number)
            return
        interaction = _interaction_with(number, facts, self._asks)
        begins_here = len(interaction.own) == 1
        if begins_here:
            self._interactions.append(interaction)
        if facts.asked_keys is not None:
            self._asks.add(_Ask(facts, interaction, len(interaction.numbers)))
        if facts.creates_task:
            self._own_tasks(facts, interaction)

    def _own_tasks(self, facts: ExchangeFacts, interaction: LinkedInteraction) -> None:
        for sha256 in facts.issued:
            self._task_owners[sha256] = interaction

    def finished(self) -> list[LinkedInteraction]:
        """Return the interactions that begin here, by their first requests."""
        for interaction, numbers in self._steps.items():
            _add_steps(interaction, numbers, self._facts)
        return sorted(
            self._interactions,
            key=lambda interaction: (interaction.numbers[0], interaction.own[0]),
        )


def _interaction_with(
    number: int, facts: ExchangeFacts, asks: _Asks
) -> LinkedInteraction:
    """Return the interaction that an exchange goes on with, or a new one that it begins."""
    if facts.answered_keys is None:
        return LinkedInteraction([number])
    ask = asks.answered_by(number, facts)
    if ask is None:
        return LinkedInteraction([number], is_orphan=True)
    parent = ask.interaction
    if not ask.is_answered:
        parent.numbers.append(number)
        return parent
    numbers = [*parent.numbers[: ask.position], number]
    return LinkedInteraction(numbers, parent, ask.position, parent.is_orphan)


def _add_steps(
    interaction: LinkedInteraction,
    numbers: Iterable[int],
    facts: Mapping[int, ExchangeFacts],
) -> None:
    """Add to a task what clients did to it, in the order in which they did it and saw states."""

    def moment(number: int) -> Moment:
        is_poll = facts[number].task.is_poll
        return facts[number].ended if is_poll else Moment(number, -1.0)

    steps = interaction.steps
    polled = [number for number in steps if facts[number].task.is_poll]
    for number in sorted(numbers, key=moment):
        task = facts[number].task
        last = facts[polled[-1]].task if polled else NO_TASK
        if not task.is_poll:
            steps[number] = 1
        elif task.got and task.got == last.got:
            steps[polled[-1]] += 1
        elif task.got and not last.is_over:
            steps[number] = 1
            polled.append(number)
