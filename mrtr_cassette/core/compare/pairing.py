"""Which items of two sequences belong together.

Rule: no item has two partners, partners never cross, and the work is n log n.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple


class Pair(NamedTuple):
    """Indices of two items that belong together; None where an item has no partner."""

    old: int | None
    new: int | None


def paired(old: Sequence[Sequence[Hashable]], new: Sequence[Sequence[Hashable]]) -> list[Pair]:
    """Pair the items of two sequences, in order.

    Args:
        old: for each item its keys, the strictest first: items with equal first keys are paired
            first, and between these the ones with equal second keys, and so on.
        new: the same for the other sequence; all items have equally many keys.
    """
    levels = len(old[0]) if old else 0
    return list(_paired(old, new, range(len(old)), range(len(new)), levels))


def _paired(
    old: Sequence[Sequence[Hashable]],
    new: Sequence[Sequence[Hashable]],
    old_range: range,
    new_range: range,
    levels: int,
) -> Iterator[Pair]:
    if not (old_range and new_range and levels):
        yield from (Pair(index, None) for index in old_range)
        yield from (Pair(None, index) for index in new_range)
        return
    level = len(old[0]) - levels
    by_key = matches(
        [old[index][level] for index in old_range], [new[index][level] for index in new_range]
    )
    at_old, at_new = old_range.start, new_range.start
    for old_index, new_index in in_order(by_key):
        old_stop, new_stop = old_range.start + old_index, new_range.start + new_index
        yield from _paired(old, new, range(at_old, old_stop), range(at_new, new_stop), levels - 1)
        yield Pair(old_stop, new_stop)
        at_old, at_new = old_stop + 1, new_stop + 1
    yield from _paired(
        old, new, range(at_old, old_range.stop), range(at_new, new_range.stop), levels - 1
    )


def matches(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the indices of equal items, the first with the first and so on."""
    waiting: dict[Hashable, deque[int]] = defaultdict(deque)
    for index, key in enumerate(new):
        waiting[key].append(index)
    return [(index, waiting[key].popleft()) for index, key in enumerate(old) if waiting.get(key)]


def in_order(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return most of these pairs, so that the second indices rise as the first ones do."""
    lowest: list[int] = []
    ends: list[int] = []
    before: list[int | None] = []
    for position, (_, value) in enumerate(pairs):
        at = bisect_left(lowest, value)
        before.append(ends[at - 1] if at else None)
        if at == len(lowest):
            lowest.append(value)
            ends.append(position)
        else:
            lowest[at], ends[at] = value, position
    chosen: list[tuple[int, int]] = []
    position_or_none = ends[-1] if ends else None
    while position_or_none is not None:
        chosen.append(pairs[position_or_none])
        position_or_none = before[position_or_none]
    return chosen[::-1]
