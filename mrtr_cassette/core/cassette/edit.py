"""Edited cassettes: an edit by hand that is accepted, and responses that take others' places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from mrtr_cassette.core.cassette.codec import exchange_sha256
from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.load import decode_cassette, load, loaded
from mrtr_cassette.core.cassette.model import CassetteModel, ExchangeFactsModel
from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange, RecordedInteraction
from mrtr_cassette.core.wire.http import Piece, Response

_NO_ANSWER = -1


class _FactsPlace(NamedTuple):
    """Where in a file an exchange stands; places have an order."""

    interaction: int
    turn: int
    answer: int


class AcceptedEdit(NamedTuple):
    """A cassette whose edits were accepted.

    Attributes:
        data: the file.
        edited: exchanges whose digest was another one, or none.
        moved: exchanges that stand in another place.
        removed: exchanges that are not there any more.
    """

    data: bytes
    edited: int
    moved: int
    removed: int


def accept_edit(data: bytes, path: str) -> AcceptedEdit:
    """Return a cassette with the digests of what stands in it.

    Raises:
        CassetteError: it can't be loaded for another reason than its digests.
    """
    file = decode_cassette(data, path)
    facts = file.recording.exchanges
    digests = {
        _FactsPlace(
            each.number, place.turn, _NO_ANSWER if place.answer is None else place.answer
        ): (exchange_sha256(exchange.request, exchange.response))
        for each in loaded(_with_facts(file, []), path).interactions
        for exchange, place in zip(each.own, each.places, strict=True)
    }
    places = _new_places(facts, digests)
    kept = [(each, place) for each, place in zip(facts, places, strict=True) if place is not None]
    accepted = _with_facts(file, [_placed(each, place, digests[place]) for each, place in kept])
    return AcceptedEdit(
        dump(loaded(accepted, path)),
        edited=sum(each.sha256 != digests[place] for each, place in kept),
        moved=sum(_place_of(each) != place for each, place in kept),
        removed=len(facts) - len(kept),
    )


def _with_facts(file: CassetteModel, facts: Sequence[ExchangeFactsModel]) -> CassetteModel:
    recording = file.recording.model_copy(update={"exchanges": facts})
    return file.model_copy(update={"recording": recording})


def _place_of(facts: ExchangeFactsModel) -> _FactsPlace:
    return _FactsPlace(
        facts.interaction, facts.turn, _NO_ANSWER if facts.answer is None else facts.answer
    )


def _placed(facts: ExchangeFactsModel, place: _FactsPlace, sha256: str) -> ExchangeFactsModel:
    answer = None if place.answer == _NO_ANSWER else place.answer
    return facts.model_copy(update={**place._asdict(), "answer": answer, "sha256": sha256})


def _new_places(
    facts: Sequence[ExchangeFactsModel], digests: Mapping[_FactsPlace, str]
) -> list[_FactsPlace | None]:
    """Return the present place of each exchange; None for one that was removed.

    An exchange that has its digest in its old place has not moved. Otherwise its place is that of
    an exchange with its digest, or, if there is none, that of an edited exchange which moved
    together with those before it.
    """
    free = dict(digests)
    places: list[_FactsPlace | None] = [None] * len(facts)
    for index, each in enumerate(facts):
        place = _place_of(each)
        if free.get(place, "") == each.sha256:
            places[index] = place
            del free[place]
    by_digest: dict[str | None, list[_FactsPlace]] = {}
    for place in sorted(free, reverse=True):
        by_digest.setdefault(free[place], []).append(place)
    for index, each in enumerate(facts):
        same = by_digest.get(each.sha256)
        if places[index] is None and same:
            places[index] = same.pop()
    taken = set(places)
    moved = {
        each.interaction: place.interaction
        for each, place in zip(facts, places, strict=True)
        if place is not None
    }
    shift = 0
    for index in sorted(range(len(facts)), key=lambda index: _place_of(facts[index])):
        before = _place_of(facts[index])
        shift = moved.get(before.interaction, before.interaction + shift) - before.interaction
        place = before._replace(interaction=before.interaction + shift)
        if places[index] is None and place in digests and place not in taken:
            places[index] = place
            taken.add(place)
    return places


def with_responses(cassette: Cassette, responses: Mapping[RecordedExchange, Response]) -> bytes:
    """Return the file of a cassette in which other responses stand.

    Where the new response ends a conversation in which the recorded one asks, the turns from that
    ask on go.

    Raises:
        CassetteError: no cassette can have such a response.
    """
    new = {
        exchange: replace(exchange, response=_in_time_of(exchange, response))
        for exchange, response in responses.items()
    }
    cut = [_without_turns_after_the_end(each, new) for each in cassette.interactions]
    data = dump(replace(cassette, interactions=tuple(cut)).with_exchanges(new))
    load(data, cassette.path)
    return data


def _in_time_of(exchange: RecordedExchange, response: Response) -> Response:
    """Return a response whose pieces come as the recorded ones, and further ones with the last."""
    if not response.is_framed:
        return replace(response, pieces=(Piece(response.body, 0, 0),))
    old = () if exchange.response is None else exchange.response.pieces
    end = Piece(b"", exchange.ended_ms, exchange.ended_after or exchange.number or 0)
    known = [piece for piece in old if piece.after] or [end]
    times = known + known[-1:] * len(response.pieces)
    pieces = [
        time._replace(raw=piece.raw) for piece, time in zip(response.pieces, times, strict=False)
    ]
    return replace(response, pieces=tuple(pieces))


def _without_turns_after_the_end(
    interaction: RecordedInteraction, new: Mapping[RecordedExchange, RecordedExchange]
) -> RecordedInteraction:
    """Return an interaction up to the first response that asks no more."""
    for position, exchange in enumerate(interaction.exchanges):
        if exchange in new and exchange.ask is not None and new[exchange].ask is None:
            turns = [turn for turn in interaction.pushed_turns if turn.position <= position]
            exchanges = interaction.exchanges[: position + 1]
            return replace(interaction, exchanges=exchanges, pushed_turns=tuple(turns))
    return interaction
