"""Accepting what was edited in a cassette: its digests, renewed.

Rule: only the recording block changes; everything else stays byte for byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.format.codec import decode_cassette
from mrtr_cassette.core.format.digest import exchange_sha256
from mrtr_cassette.core.format.dump import recording_block
from mrtr_cassette.core.format.load import load
from mrtr_cassette.core.wire.jsonbytes import find_spans, splice

_NO_ANSWER = -1


class _FactsPlace(NamedTuple):
    """Where an exchange stands: in which interaction, and where in it."""

    interaction: int
    turn: int
    answer: int


@dataclass(frozen=True, slots=True)
class AcceptedEdit:
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
    decode_cassette(data, path)
    tree = orjson.loads(data)
    recording = tree["recording"]
    sha256s = _sha256s(load(_without_digests(tree), path))
    recorded: list[dict[str, Any]] = recording["exchanges"]
    places = _new_places(recorded, sha256s)
    facts = [
        _with_sha256(item, place, sha256s[place])
        for item, place in zip(recorded, places, strict=True)
        if place is not None
    ]
    block = recording_block(recording, [orjson.dumps(item) for item in facts])
    span = find_spans(data, [("recording",)])[("recording",)][-1]
    kept = [pair for pair in zip(recorded, places, strict=True) if pair[1] is not None]
    return AcceptedEdit(
        splice(data, [(span, b"".join(block))]),
        edited=sum(item.get("sha256") != sha256s[place] for item, place in kept if place),
        moved=sum(_place_of(item) != place for item, place in kept),
        removed=len(recorded) - len(kept),
    )


def _without_digests(tree: dict[str, Any]) -> bytes:
    """Return the file of a cassette without its digests."""
    recording = {name: value for name, value in tree["recording"].items() if name != "sha256"}
    recording["exchanges"] = [
        {name: value for name, value in item.items() if name != "sha256"}
        for item in recording["exchanges"]
    ]
    return orjson.dumps({**tree, "recording": recording})


def _sha256s(cassette: Cassette) -> dict[_FactsPlace, str]:
    """Return the digest of each exchange by its place."""
    return {
        _FactsPlace(
            interaction.number, place.turn, _NO_ANSWER if place.answer is None else place.answer
        ): exchange_sha256(exchange.request, exchange.response)
        for interaction in cassette.interactions
        for exchange, place in zip(interaction.own, interaction.places, strict=True)
    }


def _place_of(facts: dict[str, Any]) -> _FactsPlace:
    answer = facts.get("answer")
    return _FactsPlace(
        facts["interaction"], facts["turn"], _NO_ANSWER if answer is None else answer
    )


def _with_sha256(facts: dict[str, Any], place: _FactsPlace, sha256: str) -> dict[str, Any]:
    changed = {**facts, "interaction": place.interaction, "turn": place.turn, "sha256": sha256}
    if place.answer == _NO_ANSWER:
        changed.pop("answer", None)
    else:
        changed["answer"] = place.answer
    if "pieces" in changed:
        # They have the most lines, so they stand last.
        changed["pieces"] = changed.pop("pieces")
    return changed


def _new_places(
    facts: list[dict[str, Any]], sha256s: dict[_FactsPlace, str]
) -> list[_FactsPlace | None]:
    """Return the present place of each exchange; None for one that was removed.

    An exchange that has its digest in its old place has not moved. Otherwise its place is that of
    an exchange with its digest, or, if there is none, that of an edited exchange which moved
    together with those before it.
    """
    free = dict(sha256s)
    places: list[_FactsPlace | None] = [None] * len(facts)
    for index, item in enumerate(facts):
        place = _place_of(item)
        if free.get(place, "") == item.get("sha256"):
            places[index] = place
            del free[place]
    by_sha256: dict[str, list[_FactsPlace]] = {}
    for place in sorted(free, reverse=True):
        by_sha256.setdefault(free[place], []).append(place)
    for index, item in enumerate(facts):
        same = by_sha256.get(item.get("sha256", ""))
        if places[index] is None and same:
            places[index] = same.pop()
    taken = set(places)
    moved = {
        _place_of(item)[0]: place[0] for item, place in zip(facts, places, strict=True) if place
    }
    shift = 0
    for index in sorted(range(len(facts)), key=lambda index: _place_of(facts[index])):
        before = _place_of(facts[index])
        shift = moved.get(before.interaction, before.interaction + shift) - before.interaction
        place = before._replace(interaction=before.interaction + shift)
        if places[index] is None and place in sha256s and place not in taken:
            places[index] = place
            taken.add(place)
    return places
