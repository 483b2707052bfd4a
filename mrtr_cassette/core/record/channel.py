"""Lines of a pipe, assigned to their exchanges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from mrtr_cassette.core.cassette.sessions import is_listening_stream
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.jsonrpc import (
    SUBSCRIPTION_ID,
    Kind,
    Message,
    meant_id_or_token,
    server_message,
)
from mrtr_cassette.core.protocol.methods import CANCELLED
from mrtr_cassette.core.wire.http import End, Request, channel_request, line_request
from mrtr_cassette.core.wire.jsonbytes import canonical

E = TypeVar("E")


class Channel(Generic[E]):
    """One run of a server on a pipe: assigns each line to its exchange.

    The server's response to a request belongs to it, and so does what names the request by its
    progress token or its subscription, and what is said while it alone is pending, except that a
    question of an earlier call is cancelled. Everything else the server says of its own accord:
    that is the response to the channel's beginning.
    Source: docs/cassette-format.md, "Over pipes"; MCP 2026-07-28, basic, "Transports", stdio.

    `begin` begins an exchange with its request. `session` is empty for the server's first start.
    """

    def __init__(self, begin: Callable[[Request], E], session: str = "") -> None:
        self._begin = begin
        self._session = session
        self._listening_exchange = begin(channel_request(session))
        self._has_spoken = False
        self._pending_requests: dict[str, list[E]] = {}
        """Requests without their responses, by canonical texts of their ids."""
        self._exchange_by_question: dict[str, E] = {}
        """Where the server has asked what is not answered, by canonical texts of ids."""
        self._exchange_by_token: dict[str, E] = {}
        self._token_by_exchange: dict[E, str] = {}
        self._pending_calls: dict[E, None] = {}
        """The calls that wait for their responses, the latest last."""

    def take_client_line(self, line: bytes) -> tuple[E, bool]:
        """Begin the exchange of a client's line; return also whether nothing follows in it."""
        request = line_request(line, self._session)
        call = read_call(request)
        exchange = self._begin(request)
        message = call.message
        if message is None or message.kind is not Kind.REQUEST or message.id is None:
            if message is not None:
                self._take_message_without_response(message)

            return exchange, True

        self._pending_requests.setdefault(message.id, []).append(exchange)
        if message.progress_token is not None:
            self._exchange_by_token[message.progress_token] = exchange
            self._token_by_exchange[exchange] = message.progress_token

        if not is_listening_stream(call, None):
            self._pending_calls[exchange] = None

        return exchange, False

    def _take_message_without_response(self, message: Message) -> None:
        """Take a client's answer, or its notice that it does not wait for a response any more."""
        if message.kind is Kind.RESPONSE:
            question_id = meant_id_or_token(self._exchange_by_question, message.id)
            if question_id is not None:
                self._exchange_by_question.pop(question_id, None)
        elif message.cancelled_id is not None:
            # No response is expected any more; one that comes is still the request's own.
            for exchange in self._pending_requests.get(message.cancelled_id, ()):
                self.stop_waiting_for(exchange)

    def take_server_line(self, line: bytes) -> tuple[E, bool]:
        """Return which exchange a line of the server belongs to, and whether it is the last one."""
        message = server_message(line)
        request_id = None
        if message is not None and message.kind is Kind.RESPONSE:
            request_id = meant_id_or_token(self._pending_requests, message.id)

        if request_id is not None:
            exchanges = self._pending_requests[request_id]
            exchange = exchanges.pop(0)
            if not exchanges:
                del self._pending_requests[request_id]

            token = self._token_by_exchange.pop(exchange, "")
            if self._exchange_by_token.get(token) == exchange:
                del self._exchange_by_token[token]

            self.stop_waiting_for(exchange)
            return exchange, True

        exchange = self._exchange_without_response(message)
        if exchange == self._listening_exchange:
            self._has_spoken = True

        is_question = message is not None and message.kind is Kind.REQUEST
        if message is not None and is_question and message.id is not None:
            self._exchange_by_question[message.id] = exchange

        return exchange, False

    def _exchange_without_response(self, message: Message | None) -> E:
        """Return the exchange of a line that is no response to a pending request."""
        if message is not None:
            named_exchange = self._exchange_named_by(message)
            if named_exchange is not None:
                return named_exchange

        if len(self._pending_calls) == 1:
            (pending_call,) = self._pending_calls
            return pending_call

        return self._listening_exchange

    def stop_waiting_for(self, exchange: E) -> None:
        """Take note that nobody waits for the response of a call any more."""
        self._pending_calls.pop(exchange, None)

    @property
    def latest_call(self) -> E | None:
        """The latest call that waits for its response."""
        return next(reversed(self._pending_calls), None)

    def is_pending(self, request_id: str) -> bool:
        """Tell whether a request with an id, as canonical text, waits for its response."""
        return meant_id_or_token(self._pending_requests, request_id) is not None

    def is_token_in_use(self, token: str | None) -> bool:
        """Tell whether a pending request has a progress token, as canonical text."""
        return meant_id_or_token(self._exchange_by_token, token) is not None

    def _exchange_named_by(self, message: Message) -> E | None:
        """Return the exchange that a message of the server names, or None."""
        token = message.params.get("progressToken")
        if token is not None:
            pending_token = meant_id_or_token(self._exchange_by_token, canonical(token))
            return (
                None
                if pending_token is None
                else self._exchange_by_token[pending_token]
            )

        if message.method == CANCELLED:
            return self._exchange_of_cancellation(message.cancelled_id)

        subscription = message.meta.get(SUBSCRIPTION_ID)
        if subscription is None:
            return None
        return self._pending_exchange(canonical(subscription))

    def _exchange_of_cancellation(self, cancelled_id: str | None) -> E | None:
        """Return the exchange of what the server cancels: what listens, or what it has asked."""
        pending_exchange = self._pending_exchange(cancelled_id)
        if pending_exchange is not None and pending_exchange not in self._pending_calls:
            return pending_exchange

        question = meant_id_or_token(self._exchange_by_question, cancelled_id)
        if question is None:
            return None

        asking_exchange = self._exchange_by_question.pop(question)
        # That of a call that is over belongs to no other call.
        is_pending = asking_exchange in self._pending_calls
        return asking_exchange if is_pending else self._listening_exchange

    def _pending_exchange(self, request_id: str | None) -> E | None:
        """Return the oldest request with an id, which a server may repeat in another type.

        Args:
            identity: canonical text of the id, or None.
        """
        if request_id is None:
            return None

        pending_id = meant_id_or_token(self._pending_requests, request_id)
        return None if pending_id is None else self._pending_requests[pending_id][0]

    def ended_exchanges(self, *, by_server: bool) -> list[tuple[E, End | None]]:
        """Return what the end of the channel ends; by the server, or by the client that left.

        Each exchange is returned with its end; None if there is nothing to keep of it.
        """
        end_of_listening: End | None = None
        end_of_pending = End.OPEN
        if by_server:
            end_of_listening = End.COMPLETE
            end_of_pending = End.BROKEN
        elif self._has_spoken:
            end_of_listening = End.OPEN

        exchanges_with_ends = [(self._listening_exchange, end_of_listening)]
        for exchanges in self._pending_requests.values():
            for exchange in exchanges:
                exchanges_with_ends.append((exchange, end_of_pending))

        return exchanges_with_ends
