"""Assign each line of a pipe to its exchange.

The server's response to a request belongs to it, and so does what names the request by its progress
token or its subscription, and what is said while it alone is pending. Everything else the server
says of its own accord: that is the response to the channel's beginning.
Source: docs/cassette-format.md, "Over pipes"; MCP 2026-07-28, basic, "Transports", stdio.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from mrtr_cassette.core.cassette.sessions import listens
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.jsonrpc import SUBSCRIPTION_ID, Kind, Message, classify
from mrtr_cassette.core.protocol.methods import CANCELLED
from mrtr_cassette.core.wire.http import End, Request, channel_request, line_request
from mrtr_cassette.core.wire.jsonbytes import canonical

E = TypeVar("E")


class Placed(NamedTuple, Generic[E]):
    """The exchange of a line, and whether nothing follows in it."""

    exchange: E
    is_over: bool


class Ended(NamedTuple, Generic[E]):
    """How the end of the channel ends an exchange; None where there is nothing to keep of it."""

    exchange: E
    end: End | None


@dataclass(slots=True, eq=False)
class _Unanswered(Generic[E]):
    """A request without its response, with canonical texts of its id and progress token."""

    exchange: E
    id: str
    token: str | None


class Channel(Generic[E]):
    """One run of a server on a pipe.

    `begin` begins an exchange with its request. `session` is empty for the server's first start.
    """

    def __init__(self, begin: Callable[[Request], E], session: str = "") -> None:
        self._begin, self._session = begin, session
        self._listening = begin(channel_request(session))
        self._has_spoken = False
        self._pending: dict[str, list[_Unanswered[E]]] = {}
        self._by_token: dict[str, _Unanswered[E]] = {}
        self._calling: dict[_Unanswered[E], None] = {}

    def client_line(self, line: bytes) -> Placed[E]:
        """Begin the exchange of a client's line."""
        request = line_request(line, self._session)
        call = read_call(request)
        exchange = self._begin(request)
        message = call.message
        if message is None or message.kind is not Kind.REQUEST or message.id is None:
            if message is not None and message.method == CANCELLED:
                self._cancelled(message)
            return Placed(exchange, is_over=True)
        pending = _Unanswered(exchange, message.id, message.progress_token)
        self._pending.setdefault(pending.id, []).append(pending)
        if pending.token is not None:
            self._by_token[pending.token] = pending
        if not listens(call, None):
            self._calling[pending] = None
        return Placed(exchange, is_over=False)

    def server_line(self, line: bytes) -> Placed[E]:
        """Return which exchange a line of the server belongs to."""
        message = classify(line)
        if message is not None and message.kind is Kind.RESPONSE and message.id in self._pending:
            return Placed(self._answered(message.id), is_over=True)
        pending = None if message is None else self._named_by(message)
        if pending is None and len(self._calling) == 1:
            (pending,) = self._calling
        if pending is not None:
            return Placed(pending.exchange, is_over=False)
        self._has_spoken = True
        return Placed(self._listening, is_over=False)

    def is_pending(self, identity: str) -> bool:
        """Tell whether a request with an id, as canonical text, waits for its response."""
        return identity in self._pending

    def _answered(self, identity: str) -> E:
        same = self._pending[identity]
        pending = same.pop(0)
        if not same:
            del self._pending[identity]
        if pending.token is not None and self._by_token.get(pending.token) is pending:
            del self._by_token[pending.token]
        self._calling.pop(pending, None)
        return pending.exchange

    def _cancelled(self, message: Message) -> None:
        """Expect no response to a request any more; one that comes is still its own."""
        for pending in self._pending.get(canonical(message.params.get("requestId")), ()):
            self._calling.pop(pending, None)

    def _named_by(self, message: Message) -> _Unanswered[E] | None:
        token = message.params.get("progressToken")
        if token is not None:
            return self._by_token.get(canonical(token))
        subscription = message.meta.get(SUBSCRIPTION_ID)
        if subscription is None:
            return None
        same = self._pending.get(canonical(subscription)) or self._pending.get(str(subscription))
        return same[0] if same else None

    def ended(self, *, by_server: bool) -> list[Ended[E]]:
        """Return what the end of the channel ends; by the server, or by the client that left."""
        listening_end = End.COMPLETE if by_server else End.OPEN
        kept = listening_end if self._has_spoken or by_server else None
        end = End.BROKEN if by_server else End.OPEN
        pending = [each for same in self._pending.values() for each in same]
        return [Ended(self._listening, kept), *(Ended(each.exchange, end) for each in pending)]
