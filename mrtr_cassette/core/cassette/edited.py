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
    facts_left = {place_of(facts): facts for facts in file.recording.exchanges}
    kept_facts: _FactsByPlace = {}
    for place, digest in digests.items():
        if place in facts_left and facts_left[place].sha256 == digest:
            kept_facts[place] = facts_left.pop(place)

    changed_count = len(file.recording.exchanges) - len(kept_facts)
    _keep_moved_facts(digests, facts_left, kept_facts)
    updated_facts = []
    for place, facts in kept_facts.items():
        members = {**place._asdict(), "sha256": digests[place]}
        updated_facts.append(facts.model_copy(update=members))

    return dump(_loaded_cassette(file, path, updated_facts)), changed_count


def _loaded_cassette(
    file: CassetteModel, path: str, facts: Iterable[ExchangeFactsModel]
) -> Cassette:
    """Return the recording in a file, with these facts about its exchanges."""
    interactions = file.interactions
    numbers = range(1, len(interactions) + 1)
    return cassette_of(file, path, facts, interactions, branched_numbers=numbers)


def _digests_by_place(file: CassetteModel, path: str) -> dict[ExchangePlace, str]:
    """Return the digests of the exchanges as they are in the file now."""
    digests: dict[ExchangePlace, str] = {}
    cassette = _loaded_cassette(file, path, ())
    for interaction in cassette.interactions:
        for exchange, place in interaction.placed_exchanges:
            digests[place] = exchange_sha256(exchange.request, exchange.response)

    return digests


def _keep_moved_facts(
    digests: Mapping[ExchangePlace, str],
    facts_left: _FactsByPlace,
    kept_facts: _FactsByPlace,
) -> None:
    """Keep the facts of exchanges that are not at their recorded place, or not as recorded."""
    place_by_digest = {facts.sha256: place for place, facts in facts_left.items()}
    for place, digest in digests.items():
        if place not in kept_facts and digest in place_by_digest:
            kept_facts[place] = facts_left.pop(place_by_digest.pop(digest))

    recorded_interaction = {}
    for place, facts in kept_facts.items():
        recorded_interaction[place.interaction] = facts.interaction

    for place in digests:
        interaction = recorded_interaction.get(place.interaction, place.interaction)
        recorded_place = place._replace(interaction=interaction)
        if place not in kept_facts and recorded_place in facts_left:
            kept_facts[place] = facts_left.pop(recorded_place)


def with_times_of(exchange: RecordedExchange, response: Response) -> Response:
    """Return a response whose messages came when those of the exchange's response did."""
    recorded_pieces: tuple[Piece, ...] = ()
    if exchange.response is not None:
        recorded_pieces = exchange.response.pieces

    if not response.is_message_stream and len(response.pieces) != len(recorded_pieces):
        return replace(response, pieces=(Piece(response.body, 0, 0),))

    pieces_with_times = _known_times(exchange, response)
    timed_pieces = []
    for index, piece in enumerate(response.pieces):
        piece_with_time = pieces_with_times[min(index, len(pieces_with_times) - 1)]
        timed_pieces.append(piece_with_time._replace(raw=piece.raw))

    return replace(response, pieces=tuple(timed_pieces))


def _known_times(exchange: RecordedExchange, response: Response) -> Sequence[Piece]:
    """Return pieces with the times for those of a response; further ones have the last time."""
    end_of_response = Piece(
        b"", exchange.ended_ms, exchange.ended_after or exchange.number or 0
    )
    recorded_response = exchange.response
    if recorded_response is None:
        return [end_of_response]

    pieces_with_times = [
        piece for piece in recorded_response.pieces if piece.arrived_count
    ] or [end_of_response]
    all_known = len(pieces_with_times) == len(recorded_response.pieces)
    if all_known and len(pieces_with_times) != len(response.pieces):
        return _times_by_message(recorded_response, response)

    return pieces_with_times


def _times_by_message(
    recorded_response: Response, response: Response
) -> Sequence[Piece]:
    """Return for each piece of a response when the message came that is there in the recorded one.

    What is between two messages, such as a comment, came with the later one.
    """
    message_pieces = [
        recorded_response.pieces[located.piece]
        for located in messages_in(recorded_response)
    ]
    message_pieces.append(recorded_response.pieces[-1])
    last_index = len(message_pieces) - 1
    message_indexes = [located.piece for located in messages_in(response)]
    pieces_with_times = []
    for index in range(len(response.pieces)):
        message_index = bisect_left(message_indexes, index)
        pieces_with_times.append(message_pieces[min(message_index, last_index)])

    return pieces_with_times
