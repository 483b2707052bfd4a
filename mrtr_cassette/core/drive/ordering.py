"""Lists whose order means nothing.

Rule: an item that is missing, new or another one is a change all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from mrtr_cassette.core.compare.changes import ORDER, TEXT_STEP, Change
from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.wire.jsonbytes import canonical, parse
from mrtr_cassette.core.wire.pointers import pointer_path, value_at
from mrtr_cassette.errors import NotJsonError


def reordered_in(
    before: RecordedExchange, after: RecordedExchange, pointers: Iterable[str]
) -> list[str]:
    """Return the outermost lists around some places that differ in their order only."""
    lists: list[str] = []
    for pointer in pointers:
        steps = pointer.split("/")
        outer = ["/".join(steps[:end]) for end in range(2, len(steps))]
        reordered = next((each for each in outer if _has_same_items(before, after, each)), None)
        if reordered is not None and reordered not in lists:
            lists.append(reordered)
    return lists


def without_reordered(
    changes: Sequence[Change],
    recorded: RecordedExchange,
    live: RecordedExchange,
    ignored: Collection[str],
) -> list[Change]:
    """Return the changes but those in lists that differ in an order that is left out."""
    lists = [each.removesuffix(ORDER) for each in ignored if each.endswith(ORDER)]
    same = [f"{each}/" for each in lists if _has_same_items(recorded, live, each)]
    return [change for change in changes if not change.pointer.startswith(tuple(same))]


def _has_same_items(before: RecordedExchange, after: RecordedExchange, pointer: str) -> bool:
    old, new = (_at(exchange, pointer) for exchange in (before, after))
    if not (isinstance(old, list) and isinstance(new, list)):
        return False
    return sorted(map(canonical, old)) == sorted(map(canonical, new))


def _at(exchange: RecordedExchange, pointer: str) -> Any:
    """Return what stands at a place in the result of an exchange; None where nothing does."""
    value = exchange.rpc_members.get("result")
    if not pointer.startswith("/") or pointer.startswith("/#"):
        return None
    for number, part in enumerate(pointer.split(TEXT_STEP)):
        if number:
            try:
                value = parse(value.encode()) if isinstance(value, str) else None
            except NotJsonError:
                return None
        value = value_at(value, pointer_path(part)) if part else value
    return value
