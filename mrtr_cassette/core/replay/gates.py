"""What of a response waits for which other request.

Owns: which requests can have caused what a response says, and which of its pieces wait for them.
Does not own: whether they have come (`player`), waiting (the shell).
Rule: a stream that listens tells what other requests caused, so its events wait for the calls that
had arrived by then. A response in whose stream the server pushed a request waits for the client's
answer to that. Nothing else waits, because parallel calls owe each other nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.protocol.calls import is_read_only
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.messages import messages_in
from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.wire.http import Response

Gates = tuple[frozenset[int], ...]
"""For each piece of a response, the numbers of the exchanges whose requests it waits for."""


def gates_of(playables: Sequence[Playable]) -> dict[RecordedExchange, Gates]:
    """Return the gates of the responses that have any."""
    numbered = [
        (playable, playable.exchange.number)
        for playable in playables
        if playable.exchange.number is not None
    ]
    causing = sorted(number for playable, number in numbered if _can_cause_events(playable))
    answering: dict[str | None, list[int]] = {}
    for playable, number in numbered:
        if playable.kind is Kind.RESPONSE:
            message = playable.call.message
            answering.setdefault(message.id if message else None, []).append(number)
    gates = {}
    for playable, number in numbered:
        response = playable.exchange.response
        if response is None:
            continue
        if _listens(playable):
            gates[playable.exchange] = tuple(
                frozenset(cause for cause in causing if number < cause <= piece.after)
                for piece in response.pieces
            )
        elif answering and response.is_framed:
            gates[playable.exchange] = _gates_of_pushed(number, response, answering)
    return gates


def _listens(playable: Playable) -> bool:
    if playable.kind is None:
        return playable.request.method == "GET"
    return playable.key.method == "subscriptions/listen"


def _can_cause_events(playable: Playable) -> bool:
    return playable.kind is Kind.REQUEST and not is_read_only(playable.key.method)


def _gates_of_pushed(
    number: int, response: Response, answering: dict[str | None, list[int]]
) -> Gates:
    """Return the gates of a response in whose stream the server may have pushed requests."""
    answers_to = {
        located.piece: min(
            (answer for answer in answering.get(located.message.id, ()) if answer > number),
            default=0,
        )
        for located in messages_in(response)
        if located.message.kind is Kind.REQUEST
    }
    gates = []
    pushed: set[int] = set()
    for index, piece in enumerate(response.pieces):
        gates.append(frozenset(answer for answer in pushed if 0 < answer <= piece.after))
        pushed.add(answers_to.get(index, 0))
    return tuple(gates)
