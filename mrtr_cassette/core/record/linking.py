"""Join retries to the asks that they answer: which exchanges are one interaction.

A retry is joined by request state; without one, by call and keys; otherwise it begins an
interaction of its own. Arrival order never outranks a state, so parallel identical calls don't mix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """What linking needs to know of one exchange."""

    call: str
    """Hash of the call key."""
    caller: str = ""
    """Session and client, as far as a request tells."""
    client: str = ""
    """Which program asks: it answers nothing that another program was asked."""
    answered_keys: frozenset[str] | None = None
    """The keys of a retry's `inputResponses`; None where the request is no retry."""
    echoed: str | None = None
    """Hash of the request state that it echoes."""
    asked_keys: frozenset[str] | None = None
    """The keys of an ask's `inputRequests`; None where the response is no ask."""
    issued: tuple[str, ...] = ()
    """Hashes by which a retry may echo the state that the ask issued, if it issued one.

    An earlier cassette issues another state on replay than the server did.
    """
    asked_after: int = 0
    """How many requests had arrived when the ask was whole: only later ones can answer it."""


@dataclass(slots=True, eq=False)
class LinkedInteraction:
    """The exchanges of one interaction, by number, from the first request to the last response."""

    numbers: list[int]
    branch_of: LinkedInteraction | None = None
    """The interaction whose first exchanges these are too."""
    shared: int = 0
    """How many exchanges are shared with that interaction."""
    is_orphan: bool = False
    """It begins with a retry that answers no recorded ask."""

    @property
    def own(self) -> list[int]:
        """The exchanges that no other interaction had before."""
        return self.numbers[self.shared :]


@dataclass(slots=True, eq=False)
class _PlacedAsk:
    """An ask in its interaction; `position` counts the exchanges up to and with it."""

    facts: LinkFacts
    interaction: LinkedInteraction
    position: int


@dataclass(slots=True, eq=False)
class _SameAsks:
    """Asks that the same retries can answer: all open ones, and the last one that was answered."""

    keys: frozenset[str]
    waiting: list[_PlacedAsk] = field(default_factory=list)
    answered: _PlacedAsk | None = None

    def candidate(self, number: int, caller: str) -> _PlacedAsk | None:
        """Return the ask that an exchange answers: an open one before one that has an answer.

        Equal asks come from servers that keep no state, or the same one for all. Of these the
        caller's own comes first, then the oldest.
        """
        whole = [ask for ask in self.waiting if ask.facts.asked_after < number]
        own = (ask for ask in whole if ask.facts.caller == caller)
        return next(own, whole[0] if whole else self.answered)


class _Asks:
    """All asks so far, by what a retry knows of the one that it answers."""

    def __init__(self) -> None:
        self._alike: dict[tuple[str, str], dict[frozenset[str], _SameAsks]] = {}

    def add(self, ask: _PlacedAsk, *, is_answered: bool = False) -> None:
        """Add the newest ask."""
        facts = ask.facts
        keys = facts.asked_keys or frozenset()
        places = [((facts.call, f"state {state}"), frozenset[str]()) for state in facts.issued]
        for place, kept in places or [((facts.call, f"client {facts.client}"), keys)]:
            asks = self._alike.setdefault(place, {}).setdefault(kept, _SameAsks(kept))
            if is_answered:
                asks.answered = ask
            else:
                asks.waiting.append(ask)

    def joined(self, number: int, facts: LinkFacts) -> LinkedInteraction | None:
        """Put a retry where it belongs; return the interaction that it ends, None for an orphan."""
        candidates = [
            (ask is alike.answered, ask.facts.asked_after, alike, ask)
            for alike in self._answered_by(facts)
            if (ask := alike.candidate(number, facts.caller)) is not None
        ]
        if not candidates:
            return None
        # Of several, an open one before an answered one, then the one that was asked first.
        _, _, alike, ask = min(candidates, key=lambda candidate: candidate[:2])
        if ask is not alike.answered:
            alike.waiting.remove(ask)
            alike.answered = ask
        interaction = ask.interaction
        if ask.position == len(interaction.numbers):
            interaction.numbers.append(number)
            return interaction
        numbers = [*interaction.numbers[: ask.position], number]
        return LinkedInteraction(numbers, interaction, ask.position, interaction.is_orphan)

    def _answered_by(self, facts: LinkFacts) -> list[_SameAsks]:
        """Return where the ask may stand that a retry answers."""
        if facts.echoed is not None:
            return [*self._alike.get((facts.call, f"state {facts.echoed}"), {}).values()]
        of_call = self._alike.get((facts.call, f"client {facts.client}"), {})
        return [asks for asks in of_call.values() if (facts.answered_keys or set()) <= asks.keys]


def link(
    exchanges: Mapping[int, LinkFacts],
    earlier: Sequence[LinkedInteraction] = (),
    earlier_facts: Mapping[int, LinkFacts] | None = None,
) -> list[LinkedInteraction]:
    """Return the interactions that begin here, in the order of their first requests.

    An interaction of an earlier recording whose last ask is answered here grows.
    """
    asks = _asks_of(earlier, earlier_facts or {})
    interactions: list[LinkedInteraction] = []
    for number, facts in exchanges.items():
        is_retry = facts.answered_keys is not None
        interaction = asks.joined(number, facts) if is_retry else None
        if interaction is None:
            interaction = LinkedInteraction([number], is_orphan=is_retry)
        if interaction.own == [number]:
            interactions.append(interaction)
        if facts.asked_keys is not None:
            asks.add(_PlacedAsk(facts, interaction, len(interaction.numbers)))
    interactions.sort(key=lambda interaction: (interaction.numbers[0], interaction.own[0]))
    return interactions


def _asks_of(earlier: Iterable[LinkedInteraction], facts: Mapping[int, LinkFacts]) -> _Asks:
    """Return the asks of an earlier recording, oldest first."""
    places: dict[int, tuple[LinkedInteraction, int]] = {}
    answered: set[int] = set()
    for interaction in earlier:
        answered.update(interaction.numbers[:-1])
        for position, number in enumerate(interaction.own, start=interaction.shared + 1):
            places[number] = interaction, position
    asks = _Asks()
    for number, exchange in facts.items():
        if exchange.asked_keys is not None:
            asks.add(_PlacedAsk(exchange, *places[number]), is_answered=number in answered)
    return asks
