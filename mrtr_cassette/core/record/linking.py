"""Which exchanges are one interaction.

Rule: a retry is joined to the ask that it answers by request state; without one, by call and keys;
otherwise it begins an interaction of its own. Arrival order never outranks a state, so parallel
identical calls don't mix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class AskFacts:
    """What linking needs to know of an ask.

    Attributes:
        keys: the keys of its `inputRequests`.
        state_sha256s: hashes by which a retry may echo the state that it issued; empty where it
            issued none. An earlier cassette issues another state on replay than the server did.
        after: how many requests had arrived when it was complete: only later ones can answer it.
    """

    keys: frozenset[str]
    state_sha256s: tuple[str, ...]
    after: int


@dataclass(frozen=True, slots=True)
class RetryFacts:
    """What linking needs to know of a retry.

    Attributes:
        keys: the keys of its `inputResponses`.
        state_sha256: hash of the request state that it echoes, or None.
    """

    keys: frozenset[str]
    state_sha256: str | None


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """What linking needs to know of one exchange.

    Attributes:
        call: hash of the call key.
        caller: who asks: session and client, as far as a request tells.
        retry: what its request answers, or None.
        ask: what its response asks, or None.
        client: which program asks: it answers nothing that another program was asked.
    """

    call: str
    caller: str
    retry: RetryFacts | None
    ask: AskFacts | None
    client: str = ""


@dataclass(slots=True, eq=False)
class LinkedInteraction:
    """The exchanges of one interaction, by number.

    Attributes:
        numbers: the exchanges, from the first request to the last response.
        branch_of: the interaction whose first exchanges these are too, or None.
        shared: how many exchanges are shared with that interaction.
        is_orphan: it begins with a retry that answers no recorded ask.
    """

    numbers: list[int]
    branch_of: LinkedInteraction | None = None
    shared: int = 0
    is_orphan: bool = False

    @property
    def own(self) -> list[int]:
        """The exchanges that no other interaction had before."""
        return self.numbers[self.shared :]


@dataclass(slots=True, eq=False)
class _PlacedAsk:
    """An ask in its interaction; `position` counts the exchanges up to and with it."""

    facts: AskFacts
    caller: str
    interaction: LinkedInteraction
    position: int


@dataclass(slots=True, eq=False)
class _SameAsks:
    """Asks that the same retries can answer: all open ones, and the last one that was answered."""

    waiting: list[_PlacedAsk] = field(default_factory=list)
    answered: _PlacedAsk | None = None

    def candidate(self, number: int, caller: str) -> _PlacedAsk | None:
        """Return the ask that an exchange answers: an open one before one that has an answer.

        Equal asks come from servers that keep no state, or the same one for all. Of these the
        caller's own comes first, then the oldest.
        """
        whole = [ask for ask in self.waiting if ask.facts.after < number]
        for ask in whole:
            if ask.caller == caller:
                return ask
        return whole[0] if whole else self.answered


class _Asks:
    """All asks so far, by what a retry knows of the one that it answers."""

    def __init__(self) -> None:
        self._by_state: dict[tuple[str, str], _SameAsks] = {}
        self._stateless: dict[tuple[str, str], dict[frozenset[str], _SameAsks]] = {}

    def add(self, exchange: LinkFacts, ask: _PlacedAsk, *, is_answered: bool = False) -> None:
        """Add the newest ask, and what is known of its exchange."""
        facts = ask.facts
        call = exchange.call, exchange.client
        alike = [
            self._by_state.setdefault((exchange.call, state), _SameAsks())
            for state in facts.state_sha256s
        ] or [self._stateless.setdefault(call, {}).setdefault(facts.keys, _SameAsks())]
        for asks in alike:
            if is_answered:
                asks.answered = ask
            else:
                asks.waiting.append(ask)

    def answered_by(self, exchange: LinkFacts, retry: RetryFacts) -> list[_SameAsks]:
        """Return where the ask may stand that a retry answers."""
        if retry.state_sha256 is not None:
            asks = self._by_state.get((exchange.call, retry.state_sha256))
            return [] if asks is None else [asks]
        of_call = self._stateless.get((exchange.call, exchange.client), {})
        return [asks for keys, asks in of_call.items() if retry.keys <= keys]


def link(
    exchanges: Mapping[int, LinkFacts],
    earlier: Sequence[LinkedInteraction] = (),
    earlier_facts: Mapping[int, LinkFacts] | None = None,
) -> list[LinkedInteraction]:
    """Return the interactions that begin here, in the order in which their first requests arrived.

    Args:
        exchanges: by number, in arrival order.
        earlier: interactions of an earlier recording; one whose last ask is answered here grows.
        earlier_facts: their exchanges by number, in arrival order.
    """
    asks = _asks_of(earlier, earlier_facts or {})
    interactions: list[LinkedInteraction] = []
    for number, facts in exchanges.items():
        interaction = _joined(asks, number, facts)
        if interaction is None:
            interaction = LinkedInteraction([number], is_orphan=facts.retry is not None)
        if interaction.own == [number]:
            interactions.append(interaction)
        if facts.ask is not None:
            position = len(interaction.numbers)
            asks.add(facts, _PlacedAsk(facts.ask, facts.caller, interaction, position))
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
        if exchange.ask is not None:
            ask = _PlacedAsk(exchange.ask, exchange.caller, *places[number])
            asks.add(exchange, ask, is_answered=number in answered)
    return asks


def _joined(asks: _Asks, number: int, facts: LinkFacts) -> LinkedInteraction | None:
    """Put a retry where it belongs, and return the interaction that it ends; None for an orphan."""
    if facts.retry is None:
        return None
    candidates = [
        (alike, ask)
        for alike in asks.answered_by(facts, facts.retry)
        if (ask := alike.candidate(number, facts.caller)) is not None
    ]
    if not candidates:
        return None
    # Of several, an open one before an answered one, then the one that was asked first.
    alike, ask = min(
        candidates, key=lambda pair: (pair[1] is pair[0].answered, pair[1].facts.after)
    )
    if ask is not alike.answered:
        alike.waiting.remove(ask)
        alike.answered = ask
    interaction = ask.interaction
    if ask.position == len(interaction.numbers):
        interaction.numbers.append(number)
        return interaction
    return LinkedInteraction(
        [*interaction.numbers[: ask.position], number],
        branch_of=interaction,
        shared=ask.position,
        is_orphan=interaction.is_orphan,
    )
