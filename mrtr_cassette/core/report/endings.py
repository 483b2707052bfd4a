"""How a recorded call ended, in a few words.

Source: MCP 2025-11-25, "Resumability and Redelivery"; MCP 2024-11-05, "HTTP with SSE".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from mrtr_cassette.core.exchange.recorded import RecordedExchange, RecordedInteraction
from mrtr_cassette.core.exchange.sessions import opened_session, session_of
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message
from mrtr_cassette.core.protocol.messages import messages_in
from mrtr_cassette.core.wire.http import End, Response
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.errors import counted, shorten


class _Streamed(NamedTuple):
    """A response on a listening stream.

    Attributes:
        message: the response.
        interaction: number of the stream's interaction.
        after: how many requests had arrived by then.
    """

    message: Message
    interaction: int
    after: int


class Endings:
    """How the calls of one cassette ended."""

    def __init__(self, interactions: Iterable[RecordedInteraction]) -> None:
        self._streamed: dict[tuple[str, str | None], list[_Streamed]] = {}
        for interaction in interactions:
            for exchange in interaction.own:
                # Only these carry responses to other requests.
                if exchange.request.method == "GET" and exchange.response is not None:
                    self._add(interaction.number, exchange, exchange.response)

    def _add(self, interaction: int, exchange: RecordedExchange, response: Response) -> None:
        session = session_of(exchange.request) or opened_session(response)
        for located in messages_in(response):
            if located.message.kind is Kind.RESPONSE:
                after = response.pieces[located.piece].after
                streamed = _Streamed(located.message, interaction, after)
                self._streamed.setdefault((session, located.message.id), []).append(streamed)

    def ending(self, exchange: RecordedExchange) -> str:
        """Say how the call ended whose last exchange this is."""
        response = exchange.response
        text = "no response" if response is None else _status_text(response)
        own, streamed = self._responses(exchange)
        if own is not None:
            text += f", {_outcome(own)}"
        elif streamed is not None:
            text += f", {_outcome(streamed.message)} on the stream of #{streamed.interaction}"
        if response is None:
            return text
        if response.is_lines:
            text += f", {counted(len(response.pieces), 'line')}"
        elif response.is_event_stream:
            text += f", stream of {counted(len(response.pieces), 'event')}"
        if response.end is End.OPEN:
            text += ", still open when the recording ended"
        if response.end is End.BROKEN:
            text += ", broken off by the upstream"
        return text.removeprefix(", ")

    def final_message(self, exchange: RecordedExchange) -> Message | None:
        """Return the response to the call whose last exchange this is, wherever it came."""
        own, streamed = self._responses(exchange)
        return own if streamed is None else streamed.message

    def _responses(self, exchange: RecordedExchange) -> tuple[Message | None, _Streamed | None]:
        """Return the response to a call in its own HTTP response, else on a listening stream."""
        call, response = exchange.call, exchange.response
        own = None if response is None or call.message is None else _last_response(response)
        return own, None if own is not None else self._streamed_to(call, exchange)

    def _streamed_to(self, call: Call, exchange: RecordedExchange) -> _Streamed | None:
        """Return the response to a call that came on a listening stream of its session."""
        message = call.message
        if not self._streamed or message is None or message.kind is not Kind.REQUEST:
            return None
        # A client may use an id again, so what came before the call is none of its responses.
        responses = self._streamed.get((session_of(call.request), message.id), ())
        return next((each for each in responses if each.after >= (exchange.number or 0)), None)


def _status_text(response: Response) -> str:
    return "" if response.is_lines else f"HTTP {response.status}"


def _last_response(response: Response) -> Message | None:
    messages = (located.message for located in reversed(messages_in(response)))
    return next((message for message in messages if message.kind is Kind.RESPONSE), None)


def _outcome(message: Message) -> str:
    error, result = message.tree.get("error"), message.tree.get("result")
    if isinstance(error, dict):
        code, text = canonical(error.get("code")), canonical(error.get("message"))
        return f"error {code} {shorten(text)}"
    if isinstance(result, dict) and result.get("isError") is True:
        return "result with isError"
    return "result"
