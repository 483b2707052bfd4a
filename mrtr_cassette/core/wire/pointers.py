"""Places in JSON values (RFC 6901): where two of them differ, and leaving places out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.wire.jsonbytes import MemberPath, canonical
from mrtr_cassette.errors import SHOWN_CHARS, shorten

ANY: Final = "*"
"""In a path, every member or item."""

ABSENT: Final = object()
"""Stands for a value that is not there."""

_SHOWN_BEFORE_DIFFERENCE: Final = 40
"""Characters that are shown before the first one in which two long texts differ."""


class ValuesAt(NamedTuple):
    """One place in two values, with what each of them has there, which may be `ABSENT`."""

    pointer: str
    recorded: Any
    received: Any


class Difference(NamedTuple):
    """One place where two values differ; None stands for an absent member."""

    pointer: str
    recorded: str | None
    received: str | None


def differences(
    recorded: Any,
    received: Any,
    pointer: str = "",
    inner_places_of: Callable[[ValuesAt], list[ValuesAt] | None] | None = None,
) -> list[Difference]:
    """Return the innermost places, by JSON Pointer (RFC 6901), where two values differ.

    `inner_places_of` returns the places in two values, or None for what is compared as a whole.
    """
    innermost = []
    # A list and no recursion, as JSON in a text may be as deep as the JSON around it.
    uncompared_places = [ValuesAt(pointer, recorded, received)]
    while uncompared_places:
        place = uncompared_places.pop()
        inner_places = (inner_places_of or differing_places_within)(place)
        if inner_places is not None:
            uncompared_places += reversed(inner_places)
            continue

        difference = Difference(
            place.pointer,
            canonical_or_none(place.recorded),
            canonical_or_none(place.received),
        )
        if difference.recorded != difference.received:
            innermost.append(difference)

    return innermost


def canonical_or_none(value: Any) -> str | None:
    """Return the canonical text of a value; None if there is no value."""
    return None if value is ABSENT else canonical(value)


def differing_excerpts(recorded: str, received: str) -> tuple[str, str]:
    """Return what people are shown of two texts: of long ones the part where they differ."""
    if max(len(recorded), len(received)) <= SHOWN_CHARS:
        return recorded, received

    start_of_excerpt = (
        _common_start_length(recorded, received) - _SHOWN_BEFORE_DIFFERENCE
    )
    if start_of_excerpt <= 0:
        return shorten(recorded), shorten(received)

    return (
        f"… {shorten(recorded[start_of_excerpt:])}",
        f"… {shorten(received[start_of_excerpt:])}",
    )


def _common_start_length(recorded: str, received: str) -> int:
    """Return how many characters two texts begin with alike."""
    length = 0
    end = min(len(recorded), len(received))
    while length < end:
        middle = (length + end + 1) // 2
        if recorded[length:middle] == received[length:middle]:
            length = middle
        else:
            end = middle - 1

    return length


def differing_places_within(place: ValuesAt) -> list[ValuesAt] | None:
    """Return the places within two objects, or two arrays of one length, that may differ."""
    pointer, recorded_value, received_value = place
    differing_places = []
    if isinstance(recorded_value, dict) and isinstance(received_value, dict):
        for key in sorted(recorded_value.keys() | received_value.keys()):
            recorded = recorded_value.get(key, ABSENT)
            received = received_value.get(key, ABSENT)
            if not _are_same_plainly(recorded, received):
                inner_pointer = f"{pointer}/{escape_pointer(key)}"
                differing_places.append(ValuesAt(inner_pointer, recorded, received))

        return differing_places

    if not isinstance(recorded_value, list) or not isinstance(received_value, list):
        return None
    if len(recorded_value) != len(received_value):
        return None

    for index, recorded in enumerate(recorded_value):
        received = received_value[index]
        if not _are_same_plainly(recorded, received):
            differing_places.append(ValuesAt(f"{pointer}/{index}", recorded, received))

    return differing_places


def _are_same_plainly(recorded: Any, received: Any) -> bool:
    """Tell, quickly, whether two values are one text or one integer; others may be the same too."""
    kind = type(recorded)
    if kind is not str and kind is not int:
        return False
    return type(received) is kind and bool(recorded == received)


def escape_pointer(key: str) -> str:
    """Spell a key as one step of a JSON Pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def pointer_path(pointer: str) -> MemberPath:
    """Return the keys of a JSON Pointer.

    Raises:
        ValueError: it doesn't begin with a slash.
    """
    if not pointer.startswith("/"):
        raise ValueError(pointer)

    keys = []
    for step in pointer.removeprefix("/").split("/"):
        keys.append(step.replace("~1", "/").replace("~0", "~"))

    return tuple(keys)


def pointer_to(path: MemberPath) -> str:
    """Return the JSON Pointer that has these keys."""
    return "".join([f"/{escape_pointer(key)}" for key in path])


def without_side(pointer: str, *sides: str) -> str:
    """Return a pointer without its first step, if that is the side it is about."""
    side, slash, inner_pointer = pointer.removeprefix("/").partition("/")
    if not slash or side not in sides:
        return pointer
    return f"/{inner_pointer}"


def members_of(value: Any) -> dict[str, Any]:
    """Return the members of a JSON object; none for any other value."""
    return value if isinstance(value, dict) else {}


def without_null_members(value: Any) -> Any:
    """Return a value without its members that are null, at any depth; items stay."""
    if isinstance(value, list):
        return [without_null_members(item) for item in value]

    if isinstance(value, dict):
        members = {}
        for name, member in value.items():
            if member is not None:
                members[name] = without_null_members(member)

        return members

    return value


def value_at(value: Any, path: MemberPath) -> Any:
    """Return what stands at a path; None where nothing does."""
    for step in path:
        if isinstance(value, list):
            is_item = step.isdecimal() and int(step) < len(value)
            value = value[int(step)] if is_item else None
        else:
            value = members_of(value).get(step)

    return value


def without_paths(value: Any, paths: Collection[MemberPath]) -> Any:
    """Return a value without the members at some paths; the key of an array item is its index."""
    if not paths or not isinstance(value, dict | list):
        return value

    paths_by_key: dict[str, list[MemberPath]] = {}
    for path in paths:
        paths_by_key.setdefault(path[0], []).append(path[1:])

    if isinstance(value, list):
        indexed_items = [(str(index), item) for index, item in enumerate(value)]
        return [item for _, item in _kept_members(indexed_items, paths_by_key)]

    return dict(_kept_members(value.items(), paths_by_key))


def _kept_members(
    parts: Iterable[tuple[str, Any]], paths_by_key: Mapping[str, Collection[MemberPath]]
) -> Iterator[tuple[str, Any]]:
    """Yield the members or items that stay; `paths_by_key` has the paths that are left out."""
    for name, part in parts:
        paths_within_part = paths_by_key.get(name, ())
        is_left_out = () in paths_within_part
        if not is_left_out:
            yield name, without_paths(part, paths_within_part)


def texts_in(value: Any, path: MemberPath = ()) -> Iterator[tuple[MemberPath, str]]:
    """Yield the texts in a value of JSON, with where they stand."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, member in value.items():
            yield from texts_in(member, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from texts_in(item, (*path, str(index)))
