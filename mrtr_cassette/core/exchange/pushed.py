"""What a server asks by requests that it pushes, and what a client posts in return.

Source: MCP 2025-11-25, "Elicitation", "Sampling", "Roots".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from mrtr_cassette.core.exchange.recorded import (
    PushedRequest,
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
)
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.dialect import InputRequest, input_request
from mrtr_cassette.core.protocol.jsonrpc import Message
from mrtr_cassette.core.protocol.messages import completed_by


class PushedAsk(NamedTuple):
    """A pushed request in the response that it stands in.

    Attributes:
        interaction: number of the interaction that it belongs to.
        turn: number of its turn there.
        call: the request during which the server asked.
        request: the pushed request.
    """

    interaction: int
    turn: int
    call: Call
    request: PushedRequest


def pushed_asks(
    interactions: Iterable[RecordedInteraction],
) -> dict[RecordedExchange, list[PushedAsk]]:
    """Return what servers pushed, by the exchange in whose response it stands."""
    asks: dict[RecordedExchange, list[PushedAsk]] = {}
    for each in interactions:
        for turn, number in zip(each.pushed_turns, each.pushed_numbers, strict=True):
            call = each.exchanges[turn.position].call
            for request in turn.asked if turn.position >= each.shared else ():
                ask = PushedAsk(each.number, number, call, request)
                asks.setdefault(request.exchange, []).append(ask)
    return asks


def message_of(pushed: PushedRequest) -> Message:
    """Return the message of a pushed request."""
    response = pushed.exchange.response
    message = None if response is None else completed_by(response, pushed.piece)
    if message is None:
        raise AssertionError("unreachable because a pushed request is a message of a response")
    return message


def pushed_request(pushed: PushedRequest) -> InputRequest:
    """Return what a pushed request asks."""
    message = message_of(pushed)
    return input_request(message.method, message.params)


def pushed_requests(turn: PushedTurn) -> dict[str, InputRequest]:
    """Return what a server asked in a turn, by key."""
    return {pushed.key: pushed_request(pushed) for pushed in turn.asked}


def posted_answers(turn: PushedTurn) -> dict[str, Any] | None:
    """Return what a client answered in a turn, by key; None where it never answered."""
    return {each.key: posted_answer(each.exchange.call.message) for each in turn.answers} or None


def posted_answer(response: Message | None) -> Any:
    """Return what a posted response says: its result, or an object with its error."""
    tree: Mapping[str, Any] = {} if response is None else response.tree
    return tree["result"] if "result" in tree else {"error": tree.get("error")}
