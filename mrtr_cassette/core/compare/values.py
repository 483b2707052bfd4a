"""Where two JSON values differ, and whether in text or in shape.

Rule: no spelling is a difference: numbers compare by value, objects without order, and a text that
is JSON as that JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.compare.changes import TEXT_STEP, Change, Verdict
from mrtr_cassette.core.compare.pairing import Pair, paired
from mrtr_cassette.core.wire.jsonbytes import MemberPath, canonical, parse
from mrtr_cassette.core.wire.numbers import Number
from mrtr_cassette.core.wire.pointers import escape_pointer
from mrtr_cassette.errors import NotJsonError

ANY: Final = "*"
"""In a path, every member or item."""

ABSENT: Final = object()
"""What stands for a value that is not there."""

_PINNED: Final = "..."


class _Place(NamedTuple):
    """One place in two values, with what each of them has there."""

    pointer: str
    recorded: Any
    received: Any


PairItems = Callable[[list[Any], list[Any]], list[Pair]]
"""Says which items of two arrays are compared with one another."""


def by_place(recorded: list[Any], received: list[Any]) -> list[Pair]:
    """Pair items by their index; in arrays of different lengths equal ones first."""
    if len(recorded) == len(received):
        return [Pair(index, index) for index in range(len(recorded))]
    return paired(
        *([(canonical(item), _type_of(item)) for item in items] for items in (recorded, received))
    )


def value_changes(
    recorded: Any, received: Any, pointer: str = "", pair_items: PairItems = by_place
) -> list[Change]:
    """Return the innermost places where two values differ, in order; JSON in a text is entered.

    Args:
        recorded: a value as `parse` returns it, or `ABSENT`.
        pair_items: says which items of two arrays are compared.
    """
    changes: list[Change] = []
    # A list and no recursion, as JSON in a text may be as deep as the JSON around it.
    uncompared = [_Place(pointer, recorded, received)]
    while uncompared:
        place = uncompared.pop()
        inner = _places_in(place, pair_items)
        if inner is not None:
            uncompared += reversed(inner)
        elif (change := _change_at(place)) is not None:
            changes.append(change)
    return changes


def _change_at(place: _Place) -> Change | None:
    has_same_type = _type_of(place.recorded) == _type_of(place.received)
    change = change_of("text-changed" if has_same_type else "shape-changed", *place)
    return None if change.recorded == change.received else change


def change_of(verdict: Verdict, pointer: str, recorded: Any, received: Any) -> Change:
    """Return a change from one value to another; either may be `ABSENT`."""
    return Change(
        verdict,
        pointer,
        None if recorded is ABSENT else canonical(recorded),
        None if received is ABSENT else canonical(received),
    )


def _places_in(place: _Place, pair_items: PairItems) -> list[_Place] | None:
    """Return the places within two values that are both objects, arrays or such texts."""
    pointer, recorded, received = place
    if isinstance(recorded, dict) and isinstance(received, dict):
        return [
            _Place(
                f"{pointer}/{escape_pointer(key)}",
                recorded.get(key, ABSENT),
                received.get(key, ABSENT),
            )
            for key in sorted(recorded.keys() | received.keys())
        ]
    if isinstance(recorded, list) and isinstance(received, list):
        return [
            _Place(
                f"{pointer}/{new if old is None else old}",
                ABSENT if old is None else recorded[old],
                ABSENT if new is None else received[new],
            )
            for old, new in pair_items(recorded, received)
        ]
    if isinstance(recorded, str) and isinstance(received, str) and recorded != received:
        old, new = json_in(recorded), json_in(received)
        if old is not None and new is not None:
            return [_Place(f"{pointer}{TEXT_STEP}", old, new)]
    return None


def json_in(text: str) -> Any:
    """Return the object or array that a text is; None for any other text."""
    if not text.lstrip(" \t\r\n").startswith(("{", "[")):
        return None
    try:
        return parse(text.encode())
    except (NotJsonError, UnicodeEncodeError):
        return None


def _type_of(value: Any) -> type:
    return Number if type(value) is int else type(value)


def pinned(value: Any, places: Collection[MemberPath]) -> Any:
    """Return a value in which what stands at some places is the same wherever it is there at all.

    Args:
        places: paths, in which `ANY` stands for every member and item.
    """
    if () in places:
        return _PINNED
    if not places or not isinstance(value, dict | list):
        return value

    def below(key: str) -> set[MemberPath]:
        return {place[1:] for place in places if place[0] in (key, ANY)}

    if isinstance(value, list):
        return [pinned(item, below(str(index))) for index, item in enumerate(value)]
    return {key: pinned(item, below(key)) for key, item in value.items()}
