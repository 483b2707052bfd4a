"""The order of what several recorders saw, each by its own clock.

Rule: what one recorder saw stays in its order, and nothing stands before what caused it: the ask
before the retry with its state, the opening of a session before its use, what a server pushed
before the answer to it. Only then the clocks decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import Final, NamedTuple

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.exchange.sessions import NO_SESSION, session_of
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.messages import Ask, ask_in
from mrtr_cassette.core.record.history import Moment, SessionFacts, lasting, session_facts
from mrtr_cassette.core.secrets.surrogates import sha256_of

STATE: Final = "state"
SESSION: Final = "session"
_ASK = "ask"
_PUSH = "push"
_REQUEST = "request"

Cause = tuple[str, ...]
"""What kind of cause, and what tells it from others of the kind."""


class Happening(NamedTuple):
    """A request, a piece of a response or its end, as one recorder saw it.

    Attributes:
        after: how many of the recorder's requests had arrived, with this one if it is one.
        is_piece: it is no request, but a piece of a response, or the end of one.
        at_ms: when, by the recorder's clock.
        number: the exchange at its recorder.
        needs: what has to be there before.
        gives: what is there from then on.
    """

    after: int
    is_piece: bool
    at_ms: float
    number: int
    needs: tuple[Cause, ...] = ()
    gives: tuple[Cause, ...] = ()


def happenings_of(number: int, exchange: RecordedExchange) -> Iterator[Happening]:
    """Yield what was seen of an exchange, with its causes and what it causes."""
    call = exchange.call
    key = "\n".join(call.key())
    ask = None if exchange.response is None else ask_in(call.message, exchange.response)
    facts = session_facts(exchange, call, key, asks=ask is not None)
    call_cause: Cause = (_ASK, sha256_of(lasting(key)), call.client)
    yield _request_of(number, exchange, call, facts, call_cause)
    pieces = () if exchange.response is None else exchange.response.pieces
    moments = [Moment(piece.after, piece.at_ms) for piece in pieces]
    moments.append(Moment(exchange.ended_after or number, exchange.ended_ms))
    seen: list[_Seen] = [(moment, (), ()) for moment in moments]
    seen += _causes_in(exchange, moments, ask, facts, call_cause)
    for (after, at_ms), needs, gives in seen:
        yield Happening(max(number, after), True, at_ms, number, needs, gives)


def _request_of(
    number: int, exchange: RecordedExchange, call: Call, facts: SessionFacts, call_cause: Cause
) -> Happening:
    needs: list[Cause] = []
    if session_of(exchange.request) != NO_SESSION:
        needs.append((SESSION, facts.session))
    if exchange.echoed_sha256 is not None:
        needs.append((STATE, exchange.echoed_sha256))
    elif call.answers is not None:
        needs.append(call_cause)
    if facts.posted_id is not None:
        needs.append((_PUSH, facts.session, facts.posted_id))
    identity = facts.request_id
    gives = () if identity is None else ((_REQUEST, facts.session, identity),)
    return Happening(number, False, exchange.started_ms, number, tuple(needs), gives)


_Seen = tuple[Moment, tuple[Cause, ...], tuple[Cause, ...]]
"""When something came in a response, what it needs, and what it gives."""


def _causes_in(
    exchange: RecordedExchange,
    moments: Sequence[Moment],
    ask: Ask | None,
    facts: SessionFacts,
    call_cause: Cause,
) -> Iterator[_Seen]:
    issued = exchange.issued_sha256
    if facts.session != NO_SESSION and session_of(exchange.request) == NO_SESSION:
        yield moments[0], (), ((SESSION, facts.session),)
    if issued is not None:
        yield moments[-1 if ask is None else ask.piece], (), ((STATE, issued),)
    elif ask is not None:
        yield moments[ask.piece], (), (call_cause,)
    for push in facts.pushes:
        yield push.moment, (), ((_PUSH, facts.session, push.id),)
    for identity, moment in facts.responses:
        yield moment, ((_REQUEST, facts.session, identity),), ()


class Chain(NamedTuple):
    """What one recorder saw, in its order.

    Attributes:
        began_ms: when the recorder began, by its clock.
        happenings: what it saw, sorted by the first three members.
    """

    began_ms: float
    happenings: Sequence[Happening]


Givers = Mapping[Cause, Sequence[tuple[int, Happening]]]
"""Who gave each cause: the index of the recorder, and what it saw."""

_Head = tuple[float, bool, int, Happening]
"""What comes next of a recorder: when, whether it is a request, whose, and what."""


def givers_of(chains: Sequence[Chain]) -> Givers:
    """Return who gave each cause: the index of the recorder, and what it saw."""
    givers: dict[Cause, list[tuple[int, Happening]]] = {}
    for index, chain in enumerate(chains):
        for happening in chain.happenings:
            for cause in happening.gives:
                givers.setdefault(cause, []).append((index, happening))
    return givers


def clock_corrections(chains: Sequence[Chain], givers: Givers) -> list[float]:
    """Return by how many milliseconds each clock has to be put forward so that causes come first.

    It is no more than what the recordings prove, so clocks that contradict nothing stay.
    """
    bounds: dict[tuple[int, int], float] = {}
    for index, chain in enumerate(chains):
        for happening in chain.happenings:
            for cause in happening.needs:
                given = givers.get(cause, ())
                if len(given) == 1 and given[0][0] != index:
                    other, source = given[0]
                    late = chains[other].began_ms + source.at_ms - chain.began_ms - happening.at_ms
                    bounds[other, index] = max(late, bounds.get((other, index), late))
    corrections = [0.0] * len(chains)
    # A clock that is put forward may push others; more rounds than clocks would go round in
    # circles, where clocks did not run alike.
    for _ in chains:
        for (other, index), late in sorted(bounds.items()):
            corrections[index] = max(corrections[index], corrections[other] + late)
    return corrections


class Order:
    """All requests in one order, and where in it everything else stands.

    Attributes:
        requests: for each request the index of its recorder, and its number there.
        offsets_ms: how much later than the first one each recorder began.
    """

    def __init__(
        self, chains: Sequence[Chain], corrections: Sequence[float], givers: Givers
    ) -> None:
        began = [chain.began_ms + late for chain, late in zip(chains, corrections, strict=True)]
        self.offsets_ms = [each - min(began) for each in began]
        self.requests: list[tuple[int, int]] = []
        self._afters: dict[tuple[int, int, int, float], int] = {}
        for index, happening in self._merged(chains, givers):
            after, is_piece, at_ms, number = happening[:4]
            if is_piece:
                self._afters[index, number, after, at_ms] = len(self.requests)
            else:
                self.requests.append((index, number))

    def after(self, index: int, number: int, after: int, at_ms: float) -> int:
        """Return how many of all requests had arrived when a recorder saw a piece.

        Args:
            index: the recorder.
            number: the exchange, as it counts.
            after: how many of its own requests had arrived.
            at_ms: when, by its clock.
        """
        return self._afters[index, number, max(number, after), at_ms]

    def _merged(self, chains: Sequence[Chain], givers: Givers) -> Iterator[tuple[int, Happening]]:
        """Yield what recorders saw, the earliest first that has its causes."""
        others = {cause: {index for index, _ in given} for cause, given in givers.items()}
        given: set[Cause] = set()
        waiting: dict[Cause, list[_Head]] = {}
        rest = [iter(chain.happenings) for chain in chains]
        heads: list[_Head] = []

        def advance(index: int) -> None:
            for each in islice(rest[index], 1):
                # A request of the same moment comes later: its client may have waited for this.
                at_ms = self.offsets_ms[index] + each.at_ms
                heappush(heads, (at_ms, not each.is_piece, index, each))

        for index in range(len(chains)):
            advance(index)
        while heads or waiting:
            is_stuck = not heads
            if is_stuck:
                # No true cause is missing: a server issued a state, or an id was used, again.
                heads += sorted(head for each in waiting.values() for head in each)
                waiting.clear()
            head = heappop(heads)
            index, happening = head[2:]
            missing = [
                cause
                for cause in happening.needs
                if cause not in given and index not in others.get(cause, {index})
            ]
            if missing and not is_stuck:
                waiting.setdefault(missing[0], []).append(head)
                continue
            yield index, happening
            given.update(happening.gives)
            for cause in happening.gives:
                for each in waiting.pop(cause, ()):
                    heappush(heads, each)
            advance(index)
