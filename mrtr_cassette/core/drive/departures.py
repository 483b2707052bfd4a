"""How clients left calls before these ended: by cancelling them, or by closing the connection."""
# Source: MCP 2025-11-25 and 2026-07-28, "Cancellation".

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mrtr_cassette.core.cassette.recorded import RecordedExchange, RecordedInteraction
from mrtr_cassette.core.cassette.sessions import listens
from mrtr_cassette.core.protocol.calls import session_of
from mrtr_cassette.core.protocol.jsonrpc import Kind, messages_in
from mrtr_cassette.core.protocol.methods import CANCELLED, PING
from mrtr_cassette.core.record.recorder import Observation
from mrtr_cassette.core.wire.http import End, Response
from mrtr_cassette.core.wire.jsonbytes import canonical


@dataclass(frozen=True, slots=True)
class Departure:
    """How a client left a call.

    Attributes:
        request: which of the call's requests was pending, from 0.
        after: how many messages of its response had come.
        notice: the number of the interaction that cancels it; None if its client just left.
        waits: whether a response came all the same.
    """

    request: int
    after: int
    notice: int | None = None
    waits: bool = False


def departures_in(interactions: Iterable[RecordedInteraction]) -> dict[int, Departure]:
    """Return how clients of a recording left calls early, by the number of the call."""
    found: dict[int, Departure] = {}
    calls: dict[tuple[str, str], RecordedInteraction] = {}
    for interaction in interactions:
        exchange = interaction.exchanges[-1]
        session = session_of(exchange.request)
        message = exchange.call.message
        if message is None:
            continue

        if message.method == CANCELLED:
            named = canonical(message.params.get("requestId"))
            call = calls.get((session, named))
            if call is not None and _is_pending(call.exchanges[-1], exchange):
                found[call.number] = _cancelled(call, interaction)
        elif message.kind is Kind.REQUEST and message.id is not None:
            calls[session, message.id] = interaction
            if _was_closed(exchange):
                found[interaction.number] = _closed(interaction)

    return found


def _is_pending(call: RecordedExchange, cancelling: RecordedExchange) -> bool:
    """Tell whether a call had no response when a notification came that cancels it."""
    if listens(call.call, call.response):
        return False

    response = call.response
    located = call.located_response
    if located is None or response is None:
        return True
    if cancelling.number is None:
        return False

    return response.pieces[located.piece].after >= cancelling.number


def _cancelled(call: RecordedInteraction, notice: RecordedInteraction) -> Departure:
    """Return how a call was left that a notification cancels."""
    exchange = call.exchanges[-1]
    count = messages_so_far(exchange.response, notice.exchanges[0].number)
    is_answered = exchange.rpc_response is not None
    return Departure(len(call.exchanges) - 1, count, notice.number, is_answered)


def _closed(call: RecordedInteraction) -> Departure:
    """Return how a call was left whose client closed the connection."""
    count = messages_so_far(call.exchanges[-1].response)
    return Departure(len(call.exchanges) - 1, count)


def _was_closed(exchange: RecordedExchange) -> bool:
    """Tell whether a client closed the connection before the response came."""
    response = exchange.response
    if response is None or response.is_lines or listens(exchange.call, response):
        return False
    return response.end is End.OPEN and exchange.rpc_response is None


def messages_so_far(response: Response | None, before: int | None = None) -> int:
    """Count the messages of a response, but for pings, that came before a numbered request.

    Over a pipe, only messages that name their request count.
    """
    if response is None:
        return 0

    count = 0
    for located in messages_in(response):
        message = located.message
        is_named = "progressToken" in message.params or message.kind is Kind.REQUEST
        is_early = before is None or response.pieces[located.piece].after < before
        is_about_call = message.method != PING and (is_named or not response.is_lines)
        if is_early and is_about_call and message.kind is not Kind.RESPONSE:
            count += 1

    return count


class Leaving:
    """Leaving a call on the live server, as its recorded client did or because nobody answers."""

    def __init__(self, departure: Departure | None) -> None:
        self.pending: Observation | None = None
        """The request of the call whose response is not complete yet."""
        self.cancelling: Observation | None = None
        """The notification that cancels the call, once sent."""
        self.departure = departure
        self._sent = 0

    def sends(self, pending: Observation | None) -> None:
        """Count the next request; None stands for one about a task, which is never left."""
        self.pending = pending
        self._sent += 1

    def sends_again(self) -> None:
        """Count the last request only once, as it is sent again."""
        self._sent -= 1

    @property
    def may_be_at_once(self) -> bool:
        """Whether the pending request is left before any of its response has come."""
        departure = self.departure
        if departure is None or self.pending is None:
            return False
        return departure.after == 0 and self._is_at(departure)

    def _is_at(self, departure: Departure) -> bool:
        """Tell whether the request sent last is the one that the recorded client left."""
        return departure.request == self._sent - 1

    def is_due(self, observation: Observation) -> bool:
        """Tell whether the call is left now, after this much of a response."""
        departure = self.departure
        if departure is None or observation is not self.pending:
            return False
        if observation.is_answered or self.cancelling is not None:
            return False
        if not self._is_at(departure):
            return False

        so_far = observation.seal(End.OPEN, 0.0)
        return messages_so_far(so_far.response) >= departure.after
