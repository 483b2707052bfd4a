"""Assign each line of a pipe to its exchange.

The server's response to a request belongs to it, and so does what names the request by its progress
token or its subscription, and what is said while it alone is pending. Everything else the server
says of its own accord: that is the response to the channel's beginning.
Source: docs/cassette-format.md, "Over pipes"; MCP 2026-07-28, basic, "Transports", stdio.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from mrtr_cassette.core.cassette.sessions import listens
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.jsonrpc import SUBSCRIPTION_ID, Kind, Message, classify
from mrtr_cassette.core.protocol.methods import CANCELLED
from mrtr_cassette.core.wire.http import End, Request, channel_request, line_request
from mrtr_cassette.core.wire.jsonbytes import canonical

E = TypeVar("E")


class Channel(Generic[E]):
    """One run of a server on a pipe.

    `begin` begins an exchange with its request. `session` is empty for the server's first start.
    """

    def __init__(self, begin: Callable[[Request], E], session: str = "") -> None:
        self._begin, self._session = begin, session
        self._listening = begin(channel_request(session))
        self._has_spoken = False
        self._pending: dict[str, list[E]] = {}
        """Requests without their responses, by canonical texts of their ids."""
        self._by_token: dict[str, E] = {}
        self._calling: set[E] = set()

    def client_line(self, line: bytes) -> tuple[E, bool]:
        """Begin the exchange of a client's line; return also whether nothing follows in it."""
        request = line_request(line, self._session)
        call = read_call(request)
        exchange = self._begin(request)
        message = call.message
        if message is None or message.kind is not Kind.REQUEST or message.id is None:
            if message is not None and message.method == CANCELLED:
                # No response is expected any more; one that comes is still the request's own.
                cancelled = canonical(message.params.get("requestId"))
                self._calling -= {*self._pending.get(cancelled, ())}
            return exchange, True
        self._pending.setdefault(message.id, []).append(exchange)
        if message.progress_token is not None:
            self._by_token[message.progress_token] = exchange
        if not listens(call, None):
            self._calling.add(exchange)
        return exchange, False

    def server_line(self, line: bytes) -> tuple[E, bool]:
        """Return which exchange a line of the server belongs to, and whether it is the last one."""
        message = classify(line)
        if message is not None and message.kind is Kind.RESPONSE and message.id in self._pending:
            same = self._pending[message.id]
            exchange = same.pop(0)
            if not same:
                del self._pending[message.id]
            self._by_token = {key: it for key, it in self._by_token.items() if it != exchange}
            self._calling.discard(exchange)
            return exchange, True
        named = None if message is None else self._named_by(message)
        if named is None and len(self._calling) == 1:
            (named,) = self._calling
        if named is not None:
            return named, False
        self._has_spoken = True
        return self._listening, False

    def is_pending(self, identity: str) -> bool:
        """Tell whether a request with an id, as canonical text, waits for its response."""
        return identity in self._pending

    def _named_by(self, message: Message) -> E | None:
        token = message.params.get("progressToken")
        if token is not None:
            return self._by_token.get(canonical(token))
        subscription = message.meta.get(SUBSCRIPTION_ID)
        if subscription is None:
            return None
        same = self._pending.get(canonical(subscription)) or self._pending.get(str(subscription))
        return same[0] if same else None

    def ended(self, *, by_server: bool) -> list[tuple[E, End | None]]:
        """Return what the end of the channel ends; by the server, or by the client that left.

        Each exchange is returned with its end; None where there is nothing to keep of it.
        """
        listening_end = End.COMPLETE if by_server else End.OPEN
        kept = listening_end if self._has_spoken or by_server else None
        end = End.BROKEN if by_server else End.OPEN
        pending = [(each, end) for same in self._pending.values() for each in same]
        return [(self._listening, kept), *pending]
