"""Link answers to asks: retries to input-required results, posted answers to pushed requests.

A retry is joined by request state; without one, by call and keys; otherwise it begins an
interaction of its own. Arrival order never outranks a state, so parallel identical calls don't mix.
A push in a call's own stream belongs to that call. One on a listening stream belongs to the call
that is pending in its session; where there is none or more than one, to the stream itself.
Source: MCP 2025-11-25, "Elicitation", "Sampling", "Roots"; docs/matching.md, "Linking".
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Generic, NamedTuple, TypeVar

from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.protocol.jsonrpc import Message
from mrtr_cassette.core.protocol.methods import method_of
from mrtr_cassette.core.record.history import ExchangeFacts, Moment

P = TypeVar("P")

# Retries and asks


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

    facts: ExchangeFacts
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
        whole = [ask for ask in self.waiting if ask.facts.asked.after < number]
        own = (ask for ask in whole if ask.facts.caller == caller)
        return next(own, whole[0] if whole else self.answered)


class _Asks:
    """All asks so far, by what a retry knows of the one that it answers."""

    def __init__(self) -> None:
        self._alike: dict[tuple[str, str], dict[frozenset[str], _SameAsks]] = {}

    def add(self, ask: _PlacedAsk, *, is_answered: bool = False) -> None:
        facts = ask.facts
        places = [((facts.call, f"state {state}"), frozenset[str]()) for state in facts.issued]
        of_client = (facts.call, f"client {facts.client}"), facts.asked_keys or frozenset()
        for place, keys in places or [of_client]:
            asks = self._alike.setdefault(place, {}).setdefault(keys, _SameAsks())
            if is_answered:
                asks.answered = ask
            else:
                asks.waiting.append(ask)

    def joined(self, number: int, facts: ExchangeFacts) -> LinkedInteraction | None:
        """Put a retry where it belongs; return the interaction that it ends, None for an orphan."""
        candidates = [
            (ask is alike.answered, ask.facts.asked.after, alike, ask)
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

    def _answered_by(self, facts: ExchangeFacts) -> Iterable[_SameAsks]:
        if facts.echoed is not None:
            return self._alike.get((facts.call, f"state {facts.echoed}"), {}).values()
        of_call = self._alike.get((facts.call, f"client {facts.client}"), {})
        answered = facts.answered_keys or frozenset()
        return [asks for keys, asks in of_call.items() if answered <= keys]


def link(
    exchanges: Mapping[int, ExchangeFacts],
    earlier: Sequence[LinkedInteraction] = (),
    earlier_facts: Mapping[int, ExchangeFacts] | None = None,
) -> list[LinkedInteraction]:
    """Return the interactions that begin here, by their first requests; earlier ones may grow."""
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


def _asks_of(earlier: Iterable[LinkedInteraction], facts: Mapping[int, ExchangeFacts]) -> _Asks:
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


# Pushed requests and posted answers

_PLAIN_NAME = re.compile("[A-Za-z0-9_-]{1,64}")


@dataclass(slots=True, eq=False)
class PushTurn(Generic[P]):
    """Pushed requests that were open together, and the answers to them."""

    owner: int
    """Number of the exchange in whose interaction they are asked."""
    asked: list[P] = field(default_factory=list)
    answers: list[tuple[int, int]] = field(default_factory=list)
    """Of each answer, the place of the request in `asked`, and the exchange that posted it."""
    _counts: Counter[str] = field(default_factory=Counter)

    def key_for(self, method: str) -> str:
        """Return the key of one more request."""
        kind = method_of(method).asks_for
        if not kind:
            name = method.rpartition("/")[2]
            kind = name if _PLAIN_NAME.fullmatch(name) else "request"
        self._counts[kind] += 1
        return f"{kind}-{self._counts[kind]}"


class PushTurns(Generic[P]):
    """The turns of pushed requests, fed with calls, pushes, answers and ends in their order.

    A turn begins with the first push after all pushes before it were answered. Sessions never touch
    each other, whatever ids they share. It is fed while a recording runs, and again when its
    journal is published. Identities are canonical texts of ids.
    """

    def __init__(self) -> None:
        self._pending: dict[str, dict[int, tuple[str | None, Call | None]]] = {}
        self._turns: dict[int, PushTurn[P]] = {}
        self._open: dict[tuple[str, str | None], deque[tuple[PushTurn[P], int]]] = {}

    def begun(
        self, session: str, number: int, identity: str | None, call: Call | None = None
    ) -> None:
        """Take a call."""
        self._pending.setdefault(session, {})[number] = identity, call

    def pushed(
        self, session: str, number: int, identity: str | None, *, shared: bool
    ) -> tuple[PushTurn[P], Call | None]:
        """Take a request that the server pushed; the caller appends to what the turn asked.

        It stands in the response to `number`, or in one that resumes it, which is `shared` where it
        tells what other requests caused. Returns also the pending call that it belongs to, where
        that is another one.
        """
        pending = self._pending.get(session)
        call: Call | None = None
        if shared and pending and len(pending) == 1:
            ((number, (_, call)),) = pending.items()
            shared = False
        turn = self._turns.get(number)
        # On a stream that calls share, whether requests overlap is chance.
        if turn is None or shared or len(turn.answers) == len(turn.asked):
            turn = self._turns[number] = PushTurn(number)
        self._open.setdefault((session, identity), deque()).append((turn, len(turn.asked)))
        return turn, call

    def is_open(self, session: str, identity: str | None) -> bool:
        """Tell whether a pushed request waits for its answer."""
        return (session, identity) in self._open

    def answered(self, session: str, identity: str | None, number: int) -> P | None:
        """Take a response that the client posted; return the oldest request with its id."""
        waiting = self._open.get((session, identity))
        if waiting is None:
            return None
        turn, place = waiting.popleft()
        if not waiting:
            del self._open[session, identity]
        turn.answers.append((place, number))
        return turn.asked[place]

    def responded(self, session: str, identity: str | None) -> None:
        """Take the response to a call, on whatever stream it came."""
        pending = self._pending.get(session, {})
        for number, (own, _) in pending.items():
            if own == identity:
                del pending[number]
                return

    def ended(self, session: str, number: int, *, goes_on: bool = False) -> None:
        """Take the end of a response; where it was accepted only, the call goes on."""
        if self._turns:
            self._turns.pop(number, None)
        if not goes_on and (pending := self._pending.get(session)):
            pending.pop(number, None)


class OpenPush(NamedTuple):
    """A pushed request that waits for its answer."""

    exchange: int
    """Number of the exchange in whose interaction it is asked."""
    call: Call
    key: str
    """Our name for it within its turn."""
    request: InputRequest
    message: Message


class LinkedPush(NamedTuple):
    """A pushed request of a journal: our name for it, its exchange and the piece that ends it."""

    key: str
    number: int
    piece: int


LinkedTurn = PushTurn[LinkedPush]

# What happens in a session; of several things at one moment, the smaller one comes first.
_REQUEST, _PUSH, _END = range(3)


def link_pushes(
    facts: Mapping[int, ExchangeFacts], ends: Mapping[int, Moment]
) -> dict[int, list[LinkedTurn]]:
    """Return the turns of a recording in order, by the exchange that was pending meanwhile."""
    pushing = {each.session for each in facts.values() if each.pushes}
    events: list[tuple[int, bool, float, int, int, int]] = []
    for number, each in facts.items():
        if each.session in pushing:
            # Whatever came after this request has a later time.
            events.append((number, False, 0.0, _REQUEST, number, 0))
            events.append((ends[number].after, True, ends[number].at_ms, _END, number, 0))
            for at, push in enumerate(() if each.posted_id is not None else each.pushes):
                events.append((push.moment.after, True, push.moment.at_ms, _PUSH, number, at))
    machine = PushTurns[LinkedPush]()
    turns: dict[int, list[LinkedTurn]] = {}
    for _, _, _, what, number, at in sorted(events):
        exchange = facts[number]
        session = exchange.session
        if what == _PUSH:
            push = exchange.pushes[at]
            owner = number if exchange.resumes is None else exchange.resumes
            turn, _ = machine.pushed(session, owner, push.id, shared=exchange.listens)
            if not turn.asked:
                turns.setdefault(turn.owner, []).append(turn)
            turn.asked.append(LinkedPush(turn.key_for(push.method), number, push.piece))
        elif what == _END:
            machine.ended(session, number)
        elif exchange.posted_id is not None:
            machine.answered(session, exchange.posted_id, number)
        elif exchange.request_id is not None and not exchange.listens:
            machine.begun(session, number, exchange.request_id)
    for turn in chain.from_iterable(turns.values()):
        # In which order they were posted means nothing.
        turn.answers.sort()
    return turns
