"""Write the files of cassettes that were edited, and the times of messages that took new places."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from mrtr_cassette.core.cassette.dump import dump, exchange_sha256
from mrtr_cassette.core.cassette.load import decode_cassette
from mrtr_cassette.core.cassette.loader import cassette_of, place_of
from mrtr_cassette.core.cassette.model import CassetteModel, ExchangeFactsModel
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    ExchangePlace,
    RecordedExchange,
)
from mrtr_cassette.core.protocol.jsonrpc import messages_in
from mrtr_cassette.core.wire.http import Piece, Response

_FactsByPlace = dict[ExchangePlace, ExchangeFactsModel]


def accept_edit(data: bytes, path: str) -> tuple[bytes, int]:
    """Return a cassette with the digests of its present content, and how many exchanges changed.

    The facts of an exchange are found by its digest, or else by the place that it had.

    Raises:
        CassetteError: it can't be loaded for another reason than its digests.
    """
    file = decode_cassette(data, path)
    digests = _digests_by_place(file, path)
    left = {place_of(facts): facts for facts in file.recording.exchanges}
    kept: _FactsByPlace = {}
    for place, digest in digests.items():
        if place in left and left[place].sha256 == digest:
            kept[place] = left.pop(place)

    changed_count = len(file.recording.exchanges) - len(kept)
    _keep_moved_facts(digests, left, kept)
    accepted = []
    for place, facts in kept.items():
        members = {**place._asdict(), "sha256": digests[place]}
        accepted.append(facts.model_copy(update=members))

    return dump(_loaded(file, path, accepted)), changed_count


def _loaded(
    file: CassetteModel, path: str, facts: Iterable[ExchangeFactsModel]
) -> Cassette:
    """Return the recording in a file, with these facts about its exchanges."""
    interactions = file.interactions
    numbers = range(1, len(interactions) + 1)
    return cassette_of(file, path, facts, interactions, origins=numbers)


def _digests_by_place(file: CassetteModel, path: str) -> dict[ExchangePlace, str]:
    """Return the digests of the exchanges as they are in the file now."""
    digests: dict[ExchangePlace, str] = {}
    cassette = _loaded(file, path, ())
    for interaction in cassette.interactions:
        for exchange, place in interaction.placed_exchanges:
            digests[place] = exchange_sha256(exchange.request, exchange.response)

    return digests


def _keep_moved_facts(
    digests: Mapping[ExchangePlace, str], left: _FactsByPlace, kept: _FactsByPlace
) -> None:
    """Keep the facts of exchanges that are not at their recorded place, or not as recorded."""
    place_by_digest = {facts.sha256: place for place, facts in left.items()}
    for place, digest in digests.items():
        if place not in kept and digest in place_by_digest:
            kept[place] = left.pop(place_by_digest.pop(digest))

    recorded_interaction = {}
    for place, facts in kept.items():
        recorded_interaction[place.interaction] = facts.interaction

    for place in digests:
        interaction = recorded_interaction.get(place.interaction, place.interaction)
        recorded_place = place._replace(interaction=interaction)
        if place not in kept and recorded_place in left:
            kept[place] = left.pop(recorded_place)


def with_times_of(exchange: RecordedExchange, response: Response) -> Response:
    """Return a response whose messages came when those of the exchange's response did."""
    recorded_pieces: tuple[Piece, ...] = ()
    if exchange.response is not None:
        recorded_pieces = exchange.response.pieces

    if not response.is_message_stream and len(response.pieces) != len(recorded_pieces):
        return replace(response, pieces=(Piece(response.body, 0, 0),))

    times = _known_times(exchange, response)
    timed = []
    for index, piece in enumerate(response.pieces):
        time = times[min(index, len(times) - 1)]
        timed.append(time._replace(raw=piece.raw))

    return replace(response, pieces=tuple(timed))


def _known_times(exchange: RecordedExchange, response: Response) -> Sequence[Piece]:
    """Return pieces with the times for those of a response; further ones have the last time."""
    end = Piece(b"", exchange.ended_ms, exchange.ended_after or exchange.number or 0)
    recorded = exchange.response
    if recorded is None:
        return [end]

    times = [piece for piece in recorded.pieces if piece.arrived_count] or [end]
    all_known = len(times) == len(recorded.pieces)
    if all_known and len(times) != len(response.pieces):
        return _times_by_message(recorded, response)

    return times


def _times_by_message(recorded: Response, response: Response) -> Sequence[Piece]:
    """Return for each piece of a response when the message came that is there in the recorded one.

    What is between two messages, such as a comment, came with the later one.
    """
    message_pieces = [
        recorded.pieces[located.piece] for located in messages_in(recorded)
    ]
    message_pieces.append(recorded.pieces[-1])
    last_index = len(message_pieces) - 1
    ends = [located.piece for located in messages_in(response)]
    times = []
    for index in range(len(response.pieces)):
        message = bisect_left(ends, index)
        times.append(message_pieces[min(message, last_index)])

    return times
