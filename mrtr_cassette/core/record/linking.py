"""Which exchanges are one interaction.

Owns: joining each retry to the ask that it answers, in the order of docs/matching.md, "Linking":
by request state; without one, by call and keys; else it begins an interaction of its own.
Rule: arrival order never outranks a state, so parallel identical calls don't mix.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from mrtr_cassette.core.protocol.calls import CallKey


@dataclass(frozen=True, slots=True)
class Asked:
    """What linking needs to know of an ask.

    Attributes:
        keys: the keys of its `inputRequests`.
        state_sha256: hash of the request state that it issued, or None.
        after: how many requests had arrived when it was whole: only later ones can answer it.
    """

    keys: Collection[str]
    state_sha256: str | None
    after: int


@dataclass(frozen=True, slots=True)
class Retried:
    """What linking needs to know of a retry.

    Attributes:
        keys: the keys of its `inputResponses`, or None where it has none.
        state_sha256: hash of the request state that it echoes, or None.
    """

    keys: Collection[str] | None
    state_sha256: str | None


@dataclass(frozen=True, slots=True)
class Facts:
    """What linking needs to know of one exchange.

    Attributes:
        number: place in arrival order, from 1.
        key: the call.
        caller: who asks: session and client, as far as a request tells.
    """

    number: int
    key: CallKey
    caller: str
    retried: Retried | None
    asked: Asked | None


@dataclass(slots=True, eq=False)
class Chain:
    """The exchanges of one interaction.

    Attributes:
        numbers: the exchanges, from the first request to the last response.
        branch: where the first exchanges are another chain's: that chain's own first exchange,
            else None.
        shared: how many exchanges are shared with that chain.
        is_orphan: it begins with a retry that answers no recorded ask.
    """

    numbers: list[int]
    branch: Chain | None = None
    shared: int = 0
    is_orphan: bool = False


@dataclass(slots=True, eq=False)
class PastAsk:
    """An ask of an earlier recording, which the new one may answer.

    Attributes:
        key: the call.
        caller: who asked.
        keys: the keys of its `inputRequests`.
        states: hashes by which a retry may echo its state: of what the cassette issues on replay,
            and of what the server issued; empty where it has no state.
        chain: its interaction.
        position: how many exchanges the chain has up to and with it.
        is_answered: a retry answers it already.
    """

    key: CallKey
    caller: str
    keys: Collection[str]
    states: Collection[str]
    chain: Chain
    position: int
    is_answered: bool


@dataclass(slots=True, eq=False)
class _Ask:
    """An ask in its chain; `position` counts the chain's exchanges up to and with it."""

    asked: Asked
    caller: str
    chain: Chain
    position: int


@dataclass(slots=True, eq=False)
class _Bucket:
    """Asks that the same retries can answer: those still open, oldest first, and the last other."""

    waiting: list[_Ask] = field(default_factory=list)
    answered: _Ask | None = None

    def candidate(self, facts: Facts) -> _Ask | None:
        """Return the ask that an exchange answers: an open one before one that has an answer.

        Equal asks come from servers that keep no state, or the same one for all. Of these the
        caller's own comes first, then the oldest.
        """
        seen = [ask for ask in self.waiting if ask.asked.after < facts.number]
        for ask in seen:
            if ask.caller == facts.caller:
                return ask
        return seen[0] if seen else self.answered


class _Asks:
    """All asks so far, by what a retry knows of the one that it answers."""

    def __init__(self) -> None:
        self._by_state: dict[tuple[CallKey, str], _Bucket] = {}
        self._stateless: dict[CallKey, dict[frozenset[str], _Bucket]] = {}

    def bucket(self, key: CallKey, keys: Collection[str], state: str | None) -> _Bucket:
        """Return where asks of this kind stand."""
        if state is not None:
            return self._by_state.setdefault((key, state), _Bucket())
        return self._stateless.setdefault(key, {}).setdefault(frozenset(keys), _Bucket())

    def answered_by(self, facts: Facts) -> list[_Bucket]:
        """Return where the ask may stand that an exchange answers."""
        retried = facts.retried
        if retried is None:
            return []
        if retried.state_sha256 is not None:
            bucket = self._by_state.get((facts.key, retried.state_sha256))
            return [] if bucket is None else [bucket]
        answered = set(retried.keys or ())
        of_call = self._stateless.get(facts.key, {})
        return [bucket for keys, bucket in of_call.items() if answered <= keys]


def link(exchanges: Iterable[Facts], past: Iterable[PastAsk] = ()) -> list[Chain]:
    """Return the interactions that begin here, in the order in which their first requests arrived.

    Args:
        exchanges: in arrival order.
        past: asks of an earlier recording; the chain of one that is answered here first grows.
    """
    chains: list[Chain] = []
    asks = _Asks()
    for before in past:
        ask = _Ask(Asked(before.keys, None, 0), before.caller, before.chain, before.position)
        for state in before.states or (None,):
            bucket = asks.bucket(before.key, before.keys, state)
            if before.is_answered:
                bucket.answered = ask
            else:
                bucket.waiting.append(ask)
    for facts in exchanges:
        chain = _extend(chains, asks.answered_by(facts), facts)
        asked = facts.asked
        if asked is not None:
            bucket = asks.bucket(facts.key, asked.keys, asked.state_sha256)
            bucket.waiting.append(_Ask(asked, facts.caller, chain, len(chain.numbers)))
    return sorted(chains, key=lambda chain: (chain.numbers[0], chain.numbers[chain.shared]))


def _extend(chains: list[Chain], buckets: Iterable[_Bucket], facts: Facts) -> Chain:
    """Put an exchange where it belongs and return the chain that it ends."""
    candidates = [
        (bucket, ask) for bucket in buckets if (ask := bucket.candidate(facts)) is not None
    ]
    if not candidates:
        chain = Chain([facts.number], is_orphan=facts.retried is not None)
        chains.append(chain)
        return chain
    # Of several, an open one before an answered one, then the one that was asked first.
    bucket, ask = min(
        candidates, key=lambda pair: (pair[1] is pair[0].answered, pair[1].asked.after)
    )
    if ask is not bucket.answered:
        bucket.waiting.remove(ask)
        bucket.answered = ask
    if ask.position == len(ask.chain.numbers):
        ask.chain.numbers.append(facts.number)
        return ask.chain
    chain = Chain(
        [*ask.chain.numbers[: ask.position], facts.number],
        branch=ask.chain,
        shared=ask.position,
        is_orphan=ask.chain.is_orphan,
    )
    chains.append(chain)
    return chain
