"""A recorded exchange as a replay knows it: what it is found by, and how often it was played.

Owns: what is worked out of an exchange for one replay, with that replay's options.
Does not own: what was recorded (`exchange`), which one a request gets (`player`).
"""

from __future__ import annotations

from dataclasses import dataclass

from mrtr_cassette.core.exchange.lookup import LookupKey
from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.protocol.calls import Call, CallKey, Traits, read_call
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.messages import Ask
from mrtr_cassette.core.wire.http import Request


@dataclass(eq=False, slots=True)
class Playable:
    """One recorded exchange in one replay.

    Attributes:
        exchange: what was recorded.
        interaction: number of its interaction, from 1.
        turn: the turn that its request answers, from 1; 0 for a first request.
        request: its request as it is matched, without secrets.
        kind: what the request's message is, or None where its body is none.
        lookup: what it is found by.
        traits: what breaks ties with others of the same lookup key.
        caller: who sent the request.
        ask: where its response asks for input, or None.
        parent: the exchange whose ask it answers; None for a first request and an orphan.
        played: how often it has been played.
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
    played: int = 0

    @property
    def key(self) -> CallKey:
        """Its call key."""
        return self.lookup.call

    @property
    def call(self) -> Call:
        """Its request as it is matched, read."""
        return read_call(self.request)
