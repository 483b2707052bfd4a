"""Places in JSON values (RFC 6901): where two of them differ, and leaving places out."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from mrtr_cassette.core.wire.jsonbytes import MemberPath, canonical


class Difference(NamedTuple):
    """One place where two values differ; None stands for an absent member."""

    pointer: str
    recorded: str | None
    received: str | None


def differences(
    recorded: Any, received: Any, pointer: str = "", *, without_null: bool = False
) -> list[Difference]:
    """Return the innermost places, by JSON Pointer (RFC 6901), where two values differ."""
    if isinstance(recorded, dict) and isinstance(received, dict):
        if without_null:
            recorded = {key: value for key, value in recorded.items() if value is not None}
            received = {key: value for key, value in received.items() if value is not None}
        differing: list[Difference] = []
        for key in sorted(recorded.keys() | received.keys()):
            step = f"{pointer}/{escape_pointer(key)}"
            if key not in received:
                differing.append(Difference(step, canonical(recorded[key]), None))
            elif key not in recorded:
                differing.append(Difference(step, None, canonical(received[key])))
            else:
                differing += differences(
                    recorded[key], received[key], step, without_null=without_null
                )
        return differing
    if isinstance(recorded, list) and isinstance(received, list) and len(recorded) == len(received):
        return [
            difference
            for index, pair in enumerate(zip(recorded, received, strict=True))
            for difference in differences(*pair, f"{pointer}/{index}", without_null=without_null)
        ]
    old = canonical(recorded, without_null=without_null)
    new = canonical(received, without_null=without_null)
    return [] if old == new else [Difference(pointer, old, new)]


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
    return tuple(
        step.replace("~1", "/").replace("~0", "~") for step in pointer.removeprefix("/").split("/")
    )


def value_at(value: Any, path: MemberPath) -> Any:
    """Return what stands at a path; None where nothing does."""
    for step in path:
        if isinstance(value, list):
            value = value[int(step)] if step.isdigit() and int(step) < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def without_paths(value: Any, paths: Collection[MemberPath]) -> Any:
    """Return a value without the members at some paths; the key of an array item is its index."""
    if not paths or not isinstance(value, dict | list):
        return value
    below: dict[str, list[MemberPath]] = {}
    for path in paths:
        below.setdefault(path[0], []).append(path[1:])
    if isinstance(value, list):
        return [
            without_paths(item, below[str(index)]) if str(index) in below else item
            for index, item in enumerate(value)
            if () not in below.get(str(index), ())
        ]
    return {
        key: without_paths(item, below[key]) if key in below else item
        for key, item in value.items()
        if () not in below.get(key, ())
    }
