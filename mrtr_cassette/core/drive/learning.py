"""Which values differ by themselves: two live responses to the same call, compared.

Rule: a pointer is exact, and hides nothing that was the same in both responses.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from mrtr_cassette.core.compare.changes import ORDER, Change, is_below
from mrtr_cassette.core.compare.responses import changes_beside, changes_of_ask, changes_of_result
from mrtr_cassette.core.drive.ordering import reordered_in
from mrtr_cassette.core.drive.verification import Verified
from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.wire.jsonbytes import parse
from mrtr_cassette.errors import NotJsonError


class Learned(NamedTuple):
    """One place that differs by itself.

    Attributes:
        pointer: the place.
        reason: why it is not left out; None where it is.
    """

    pointer: str
    reason: str | None = None


def learned(first: Verified, second: Verified, known: Collection[str] = ()) -> list[Learned]:
    """Return what differs between two live runs of the same conversation.

    Args:
        known: pointers that are left out already, with all that is below them.
    """
    if len(first.live) != len(second.live):
        return [Learned("", "the server asks more questions in one run than in the other")]
    places: dict[str, Learned] = {}
    for before, after in zip(first.live, second.live, strict=True):
        for place in _places(before, after):
            places.setdefault(place.pointer, place)
    return [each for each in places.values() if not _is_known(each.pointer, known)]


def _is_known(pointer: str, known: Collection[str]) -> bool:
    place = pointer.removesuffix(ORDER)
    return pointer in known or any(is_below(place, outer) for outer in known)


def _places(before: RecordedExchange, after: RecordedExchange) -> list[Learned]:
    if (before.ask is None) != (after.ask is None):
        return [Learned("", "the server asks in one run, and not in the other")]
    if before.ask is not None:
        changes = changes_of_ask(before, after) + changes_beside(before, after)
    else:
        changes = changes_of_result(before, after)
    changes = [change for change in changes if not change.is_information]
    lists = reordered_in(before, after, [change.pointer for change in changes])
    rest = [
        change
        for change in changes
        if not any(change.pointer.startswith(f"{pointer}/") for pointer in lists)
    ]
    return [
        *(Learned(f"{pointer}{ORDER}") for pointer in lists),
        *(Learned(change.pointer, _why_not(change)) for change in rest),
    ]


def _why_not(change: Change) -> str | None:
    """Return what leaving a place out would also hide, or None."""
    if change.verdict == "question-changed":
        return "a question that differs is never answered"
    if change.recorded is None or change.received is None:
        return "it is there in one of two responses, and what it is would be hidden"
    if change.verdict != "text-changed":
        return "not only its value differs"
    before, after = (_parsed(text) for text in (change.recorded, change.received))
    if not (isinstance(before, str) and isinstance(after, str)):
        return None
    if stable := _stable_words(before, after):
        return f"the words {' '.join(stable)!r} in it are the same, and would be hidden"
    return None


def _parsed(text: str) -> object:
    try:
        return parse(text.encode())
    except NotJsonError:
        return text


def _stable_words(before: str, after: str) -> Sequence[str]:
    """Return the words that both of two texts have; a single word is a value as a whole."""
    words, others = before.split(), after.split()
    if len(words) == len(others) == 1:
        return ()
    return [word for word in words if word in others and any(map(str.isalnum, word))]
