"""Put interactions in the order that every recording of an unchanged server shares.

What was over before something else began stands before it. Of what overlapped, content decides:
arrival means nothing there. Listening streams stand after their session's handshake.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Any

from mrtr_cassette.core.protocol.calls import NO_SESSION
from mrtr_cassette.core.record.history import NEVER, Moment, Rank, SessionFacts
from mrtr_cassette.core.record.linking import LinkedInteraction

Content = Callable[[int], str]
"""Returns what stands for the content of an exchange, without what every recording has anew."""


@dataclass(frozen=True, slots=True, eq=False)
class _Unit:
    """Interactions that stand together: one and its branches, or those of a session."""

    interactions: tuple[LinkedInteraction, ...]
    start: int
    """Number of the first request."""
    end: int
    """How many requests had arrived when it was over."""
    rank: Rank
    key: tuple[tuple[Any, ...], ...]
    """By what overlapping ones are ordered: what is to know of each first request."""


def in_order(
    interactions: Sequence[LinkedInteraction],
    facts: Mapping[int, SessionFacts],
    ends: Mapping[int, Moment],
    content: Content,
    places: Mapping[int, int] | None = None,
) -> list[LinkedInteraction]:
    """Return the interactions in the order of a cassette.

    `places` comes before the order in which requests arrived, `content` where calls are the same.
    """
    # What parts from an interaction of an earlier recording has no place of its own.
    first = [each for each in interactions if each.numbers[0] < 0]
    sessions: dict[str, list[_Unit]] = {}
    units: list[_Unit] = []
    for unit in _families(interactions[len(first) :], facts, ends):
        session = facts[unit.start].session
        if session == NO_SESSION:
            units.append(unit)
        else:
            sessions.setdefault(session, []).append(unit)
    units += [_session(own, content) for own in sessions.values()]
    by_place: dict[int, list[_Unit]] = {}
    for unit in units:
        by_place.setdefault((places or {}).get(unit.start, 0), []).append(unit)
    ordered = [unit for place in sorted(by_place) for unit in _ordered(by_place[place], content)]
    return [*first, *(each for unit in ordered for each in unit.interactions)]


def _families(
    interactions: Iterable[LinkedInteraction],
    facts: Mapping[int, SessionFacts],
    ends: Mapping[int, Moment],
) -> Iterator[_Unit]:
    """Yield each interaction with its branches, as they arrived."""
    families: dict[int, list[LinkedInteraction]] = {}
    for interaction in interactions:
        families.setdefault(interaction.numbers[0], []).append(interaction)
    resumed: Counter[int] = Counter()
    for number, family in families.items():
        each = facts[number]
        # A listening stream ends when nobody wants it any more, which says nothing of what it is.
        end = number if each.listens else ends[number].after
        identity = each.request_id or ""
        key: tuple[Any, ...] = each.rank, each.text, len(identity), identity
        if each.resumes is not None:
            call = facts[each.resumes]
            resumed[each.resumes] += 1
            identity = call.request_id or ""
            key = call.rank, call.text, len(identity), identity, resumed[each.resumes]
        yield _Unit(tuple(family), number, end, each.rank, (key,))


def _session(units: Sequence[_Unit], content: Content) -> _Unit:
    """Return the interactions of a session as one unit."""
    streams = [unit for unit in units if unit.rank is Rank.LISTENING]
    ordered = _ordered([unit for unit in units if unit.rank is not Rank.LISTENING], content)
    handshake = [at for at, unit in enumerate(ordered, start=1) if unit.rank < Rank.LISTENING]
    after = handshake[-1] if handshake else 0
    ordered[after:after] = _sorted(streams, content)
    ends = [unit.end for unit in ordered if unit.end < NEVER.after]
    return _Unit(
        tuple(chain.from_iterable(unit.interactions for unit in ordered)),
        min(unit.start for unit in units),
        max(ends, default=NEVER.after),
        ordered[0].rank,
        tuple(chain.from_iterable(unit.key for unit in ordered)),
    )


def _ordered(units: Iterable[_Unit], content: Content) -> list[_Unit]:
    """Return units so that each stands after those that were over before it began."""
    ordered: list[_Unit] = []
    overlapping: list[_Unit] = []
    end = 0
    for unit in sorted(units, key=lambda unit: unit.start):
        if unit.start > end:
            ordered += _by_content(overlapping, content)
            overlapping = []
        overlapping.append(unit)
        end = max(end, unit.end)
    return ordered + _by_content(overlapping, content)


def _by_content(units: Sequence[_Unit], content: Content) -> list[_Unit]:
    """Return units, which stand as they began, ordered by content as far as they may be."""
    if len(units) < 2:
        return list(units)
    places = {unit: at for at, unit in enumerate(_sorted(units, content))}
    ends = [(unit.end, places[unit]) for unit in units]
    heapify(ends)
    placed: set[int] = set()
    ordered: list[_Unit] = []
    free: list[tuple[int, _Unit]] = []
    begun = 0
    while len(ordered) < len(units):
        while ends[0][1] in placed:
            heappop(ends)
        # Whatever began after the first of these was over has to wait for it.
        while begun < len(units) and units[begun].start <= ends[0][0]:
            heappush(free, (places[units[begun]], units[begun]))
            begun += 1
        place, unit = heappop(free)
        placed.add(place)
        ordered.append(unit)
    return ordered


def _sorted(units: Sequence[_Unit], content: Content) -> list[_Unit]:
    """Return units by their content alone."""
    alike: dict[tuple[Any, ...], list[_Unit]] = {}
    for unit in units:
        alike.setdefault(unit.key, []).append(unit)
    ordered: list[_Unit] = []
    for key in sorted(alike):
        same = alike[key]
        if len(same) > 1:
            same.sort(key=lambda unit: (_content_of(unit, content), unit.start))
        ordered += same
    return ordered


def _content_of(unit: _Unit, content: Content) -> str:
    return "\n".join(content(number) for each in unit.interactions for number in each.own)
