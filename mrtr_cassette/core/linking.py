"""Which exchanges are one interaction.

Owns: joining each retry to the ask that it answers, in the order of docs/matching.md, "Linking":
by request state; without one, by call and keys; else it begins an interaction of its own.
Rule: arrival order never outranks a state, so parallel identical calls don't mix.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from mrtr_cassette.core.calls import CallKey


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


def link(exchanges: Iterable[Facts]) -> list[Chain]:
    """Return the interactions, in the order in which their first requests arrived.

    Args:
        exchanges: in arrival order.
    """
    chains: list[Chain] = []
    by_state: dict[tuple[CallKey, str], _Bucket] = {}
    stateless: dict[CallKey, dict[frozenset[str], _Bucket]] = {}
    for facts in exchanges:
        retried, asked = facts.retried, facts.asked
        buckets: list[_Bucket] = []
        if retried is not None and retried.state_sha256 is not None:
            buckets = [by_state.get((facts.key, retried.state_sha256), _Bucket())]
        elif retried is not None:
            answered = set(retried.keys or ())
            buckets = [
                bucket for keys, bucket in stateless.get(facts.key, {}).items() if answered <= keys
            ]
        chain = _extend(chains, buckets, facts)
        if asked is None:
            continue
        if asked.state_sha256 is None:
            bucket = stateless.setdefault(facts.key, {}).setdefault(
                frozenset(asked.keys), _Bucket()
            )
        else:
            bucket = by_state.setdefault((facts.key, asked.state_sha256), _Bucket())
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
