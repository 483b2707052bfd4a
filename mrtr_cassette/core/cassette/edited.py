"""Write the files of cassettes that were edited, and the times of messages that took new places."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mrtr_cassette.core.cassette.dump import dump, exchange_sha256
from mrtr_cassette.core.cassette.load import decode_cassette
from mrtr_cassette.core.cassette.loader import ExchangePlace, cassette_of, place_of
from mrtr_cassette.core.cassette.model import CassetteModel, ExchangeFactsModel
from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.protocol.jsonrpc import messages_in
from mrtr_cassette.core.wire.http import Piece, Response


def accept_edit(data: bytes, path: str) -> tuple[bytes, int]:
    """Return a cassette with the digests of its present content, and how many exchanges changed.

    The facts of an exchange are found by its digest, or else by the place that it had.

    Raises:
        CassetteError: it can't be loaded for another reason than its digests.
    """
    file = decode_cassette(data, path)
    digests = _digests_by_place(file, path)
    recorded = {place_of(facts): facts for facts in file.recording.exchanges}
    unchanged: dict[ExchangePlace, ExchangeFactsModel] = {}
    for place, facts in recorded.items():
        if digests.get(place, "") == facts.sha256:
            unchanged[place] = facts
    changed = {
        place: facts for place, facts in recorded.items() if place not in unchanged
    }
    kept = unchanged | _moved_facts(digests, unchanged, changed)
    accepted: list[ExchangeFactsModel] = []
    for place, facts in kept.items():
        members = {**place._asdict(), "sha256": digests[place]}
        accepted.append(facts.model_copy(update=members))
    count = len(file.recording.exchanges) - len(unchanged)
    return dump(cassette_of(file, path, accepted)), count


def _digests_by_place(file: CassetteModel, path: str) -> dict[ExchangePlace, str]:
    digests: dict[ExchangePlace, str] = {}
    for interaction in cassette_of(file, path, ()).interactions:
        for exchange, place in interaction.placed:
            digest = exchange_sha256(exchange.request, exchange.response)
            digests[ExchangePlace(interaction.number, *place)] = digest
    return digests


def _moved_facts(
    digests: Mapping[ExchangePlace, str],
    unchanged: Mapping[ExchangePlace, ExchangeFactsModel],
    changed: Mapping[ExchangePlace, ExchangeFactsModel],
) -> dict[ExchangePlace, ExchangeFactsModel]:
    """Return the facts of exchanges that are not at their recorded place, or not as recorded."""
    left = dict(changed)
    found: dict[ExchangePlace, ExchangeFactsModel] = {}
    place_by_digest = {facts.sha256: place for place, facts in changed.items()}
    for place, digest in digests.items():
        if place not in unchanged and digest in place_by_digest:
            found[place] = left.pop(place_by_digest.pop(digest))
    recorded_interaction: dict[int, int] = {}
    for place, facts in [*unchanged.items(), *found.items()]:
        recorded_interaction[place.interaction] = facts.interaction
    for place in digests:
        interaction = recorded_interaction.get(place.interaction, place.interaction)
        recorded_place = place._replace(interaction=interaction)
        is_without_facts = place not in unchanged and place not in found
        if is_without_facts and recorded_place in left:
            found[place] = left.pop(recorded_place)
    return found


def with_recorded_times(exchange: RecordedExchange, response: Response) -> Response:
    """Return a response whose messages came when those of the exchange's response did."""
    recorded = () if exchange.response is None else exchange.response.pieces
    pieces = response.pieces
    if not response.is_framed and len(pieces) != len(recorded):
        return replace(response, pieces=(Piece(response.body, 0, 0),))
    end = Piece(b"", exchange.ended_ms, exchange.ended_after or exchange.number or 0)
    times: Sequence[Piece] = [piece for piece in recorded if piece.after] or [end]
    all_known = len(times) == len(recorded)
    if exchange.response is not None and all_known and len(recorded) != len(pieces):
        times = _times_by_message(exchange.response, response)
    timed: list[Piece] = []
    for index, piece in enumerate(pieces):
        time = times[min(index, len(times) - 1)]
        timed.append(time._replace(raw=piece.raw))
    return replace(response, pieces=tuple(timed))


def _times_by_message(recorded: Response, response: Response) -> Sequence[Piece]:
    """Return for each piece of a response when the message came that is there in the recorded one.

    What is between two messages, such as a comment, came with the later one.
    """
    came = [recorded.pieces[located.piece] for located in messages_in(recorded)]
    came.append(recorded.pieces[-1])
    ends = [located.piece for located in messages_in(response)]
    times: list[Piece] = []
    for index in range(len(response.pieces)):
        message = bisect_left(ends, index)
        times.append(came[min(message, len(came) - 1)])
    return times
