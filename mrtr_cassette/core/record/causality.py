"""The order of what several recorders saw, each by its own clock.

Rule: what one recorder saw stays in its order, and nothing stands before what caused it: the ask
before the retry with its state, the opening of a session before its use, what a server pushed
before the answer to it. Only then the clocks decide.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
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
    """Something that one recorder saw, and that others depend on, or depends on others.

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
    """Yield what an exchange is a cause of, or has as its causes; first its request."""
    call = exchange.call
    key = "\n".join(call.key())
    ask = None if exchange.response is None else ask_in(call.message, exchange.response)
    facts = session_facts(exchange, call, key, asks=ask is not None)
    call_cause: Cause = (_ASK, sha256_of(lasting(key)), call.client)
    yield _request_of(number, exchange, call, facts, call_cause)
    for moment, needs, gives in _responses_of(number, exchange, ask, facts, call_cause):
        after, at_ms = moment
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


def _responses_of(
    number: int, exchange: RecordedExchange, ask: Ask | None, facts: SessionFacts, call_cause: Cause
) -> Iterator[_Seen]:
    pieces = () if exchange.response is None else exchange.response.pieces
    moments = [Moment(piece.after, piece.at_ms) for piece in pieces]
    end = Moment(exchange.ended_after or number, exchange.ended_ms)
    issued = exchange.issued_sha256
    if facts.session != NO_SESSION and session_of(exchange.request) == NO_SESSION:
        yield (*moments, end)[0], (), ((SESSION, facts.session),)
    if issued is not None:
        yield end if ask is None else moments[ask.piece], (), ((STATE, issued),)
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
        happenings: what it saw.
    """

    began_ms: float
    happenings: Sequence[Happening]


def in_own_order(happenings: Sequence[Happening]) -> list[Happening]:
    """Return what one recorder saw in the order in which it did."""
    return sorted(happenings, key=lambda happening: happening[:3])


def givers_of(chains: Sequence[Chain]) -> dict[Cause, list[tuple[int, Happening]]]:
    """Return who gave each cause: the index of the recorder, and what it saw."""
    givers: dict[Cause, list[tuple[int, Happening]]] = {}
    for index, chain in enumerate(chains):
        for happening in chain.happenings:
            for cause in happening.gives:
                givers.setdefault(cause, []).append((index, happening))
    return givers


def clock_corrections(
    chains: Sequence[Chain], givers: Mapping[Cause, Sequence[tuple[int, Happening]]]
) -> list[float]:
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
    """

    def __init__(
        self,
        chains: Sequence[Chain],
        corrections: Sequence[float],
        givers: Mapping[Cause, Sequence[tuple[int, Happening]]],
    ) -> None:
        self.requests: list[tuple[int, int]] = []
        self._times: list[float] = []
        self._began = [
            chain.began_ms + correction
            for chain, correction in zip(chains, corrections, strict=True)
        ]
        self._marks: list[list[tuple[int, bool, float]]] = [[] for _ in chains]
        self._afters: list[list[int]] = [[] for _ in chains]
        for index, happening in self._merged(chains, givers):
            if not happening.is_piece:
                self.requests.append((index, happening.number))
                now = self._began[index] + happening.at_ms
                self._times.append(max(now, self._times[-1]) if self._times else now)
            self._marks[index].append(happening[:3])
            self._afters[index].append(len(self.requests))

    def _merged(
        self, chains: Sequence[Chain], givers: Mapping[Cause, Sequence[tuple[int, Happening]]]
    ) -> Iterator[tuple[int, Happening]]:
        """Yield what recorders saw, the earliest first that has its causes."""
        others = {cause: {index for index, _ in given} for cause, given in givers.items()}
        given: set[Cause] = set()
        at = [0] * len(chains)
        waiting: dict[Cause, list[tuple[float, int]]] = {}
        heads = [
            (self._began[index] + chain.happenings[0].at_ms, index)
            for index, chain in enumerate(chains)
            if chain.happenings
        ]
        heapify(heads)
        while heads or waiting:
            is_stuck = not heads
            if is_stuck:
                # No true cause is missing: a server issued a state, or an id was used, again.
                heads = sorted(head for each in waiting.values() for head in each)
                waiting.clear()
            head = heappop(heads)
            index = head[1]
            happening = chains[index].happenings[at[index]]
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
            at[index] += 1
            if at[index] < len(chains[index].happenings):
                following = chains[index].happenings[at[index]]
                heappush(heads, (self._began[index] + following.at_ms, index))

    @property
    def began_ms(self) -> float:
        """When the first of the recorders began, by the corrected clocks."""
        return min(self._began, default=0.0)

    def offset_ms(self, index: int) -> float:
        """Return how much later than the first one a recorder began."""
        return self._began[index] - self.began_ms

    def after(self, index: int, after: int, at_ms: float) -> int:
        """Return how many of all requests had arrived when a recorder saw a piece of a response.

        Args:
            index: the recorder.
            after: how many of its own requests had arrived.
            at_ms: when, by its clock.
        """
        marks, afters = self._marks[index], self._afters[index]
        mark = after, True, at_ms
        place = bisect_left(marks, mark)
        if place < len(marks) and marks[place] == mark:
            return afters[place]
        least = afters[place - 1] if place else 0
        most = len(self.requests)
        if place < len(marks):
            most = afters[place] - (not marks[place][1])
        # What arrived in the same moment came later: the client may have waited for this.
        by_time = bisect_left(self._times, self._began[index] + at_ms)
        return min(max(by_time, least), most)
