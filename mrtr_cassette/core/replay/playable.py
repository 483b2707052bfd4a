"""A recorded exchange in one replay: its lookup key, and how often it has been played.

Owns: what one replay derives from an exchange, with its own options.
Does not own: what was recorded (`exchange`), which one a request gets (`player`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from mrtr_cassette.core.exchange.caller_values import digest_of
from mrtr_cassette.core.exchange.lookup import LookupKey, lookup_key
from mrtr_cassette.core.exchange.recorded import PushedRequest, RecordedExchange
from mrtr_cassette.core.protocol.calls import Call, CallKey, Traits, read_call
from mrtr_cassette.core.protocol.dialect import INPUT_REQUESTS
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.messages import Ask
from mrtr_cassette.core.replay.matching import Secret
from mrtr_cassette.core.secrets.surrogates import sha256_of
from mrtr_cassette.core.secrets.withheld import is_withheld
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.core.wire.jsonbytes import MemberPath, canonical


class Question(NamedTuple):
    """What an ask without state asks: equal questions of a call are the same one.

    Attributes:
        call: the call.
        input_requests: their canonical text.
    """

    call: CallKey
    input_requests: str


class PushedQuestion(NamedTuple):
    """What a posted answer answers.

    Attributes:
        call: the call that was pending when the server asked.
        request: the request that it pushed.
    """

    call: CallKey
    request: PushedRequest


@dataclass(eq=False, slots=True)
class Playable:
    """One recorded exchange in one replay.

    Attributes:
        exchange: what was recorded.
        interaction: number of its interaction, from 1.
        turn: the turn that its request answers, from 1; 0 for a first request.
        request: its request as it is matched, without secrets.
        kind: the kind of the request's message, or None if its body is no message.
        lookup: its lookup key.
        traits: what breaks ties with others of the same lookup key.
        caller: who sent the request.
        ask: where its response asks for input, or None.
        parent: the exchange whose ask it answers; None for a first request and an orphan.
        digest: digest of the request's body without the caller's values, where these can be cut.
        secrets: what stands for secrets in its request.
        question: what its ask asks, where that has no state.
        played: how often it has been played.
        answers: what it answers, if it is a posted answer; else None.
    """

    exchange: RecordedExchange
    interaction: int
    turn: int
    request: Request
    kind: Kind | None
    lookup: LookupKey
    traits: Traits
    caller: str
    ask: Ask | None
    parent: Playable | None
    digest: bytes | None
    secrets: tuple[Secret, ...]
    question: Question | None = field(init=False)
    played: int = 0
    answers: PushedQuestion | None = None

    def __post_init__(self) -> None:
        """Work out what its ask asks."""
        self.question = None
        if self.ask is not None and self.ask.request_state is None:
            requests = self.ask.message.tree["result"].get(INPUT_REQUESTS)
            self.question = Question(self.key, canonical(requests))

    @property
    def key(self) -> CallKey:
        """Its call key."""
        return self.lookup.call

    @property
    def call(self) -> Call:
        """Its request as it is matched, read."""
        return read_call(self.request)

    @property
    def is_withheld(self) -> bool:
        """Whether of its response's body only the size and the digest were kept."""
        response = self.exchange.response
        return response is not None and any(is_withheld(piece.raw) for piece in response.pieces[:1])

    @property
    def issued_sha256(self) -> str | None:
        """Hash of the request state that its ask issues on replay, or None."""
        state = None if self.ask is None else self.ask.request_state
        return None if state is None else sha256_of(state)

    def issued(self, sha256: str) -> bool:
        """Tell whether its ask issued a state with this hash, on replay or while recorded."""
        return self.ask is not None and sha256 in (
            self.issued_sha256,
            self.exchange.issued_sha256,
        )

    @property
    def arrival(self) -> tuple[float, int, int]:
        """Orders exchanges as their requests arrived, or as the file has them."""
        number = self.exchange.number
        return float("inf") if number is None else number, self.interaction, self.turn


def playable(
    exchange: RecordedExchange,
    place: tuple[int, int],
    request: Request,
    parent: Playable | None,
    secrets: tuple[Secret, ...],
    ignored: Collection[MemberPath],
) -> Playable:
    """Return an exchange as a replay knows it.

    Args:
        exchange: what was recorded.
        place: its interaction and its turn.
        request: its request as it is matched.
        parent: the exchange whose ask it answers, or None.
        secrets: what stands for secrets in its request.
        ignored: members of the params that don't count.
    """
    call = read_call(request)
    return Playable(
        exchange=exchange,
        interaction=place[0],
        turn=place[1],
        request=request,
        kind=None if call.message is None else call.message.kind,
        lookup=lookup_key(call, ignored),
        traits=call.traits,
        caller=call.caller,
        ask=exchange.ask,
        parent=parent,
        digest=None if call.message is None else digest_of(call.message),
        secrets=secrets,
    )
