"""The calls of a session on a common axis of time, and which of them overlapped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mrtr_cassette.core.cassette.recorded import RecordedInteraction
from mrtr_cassette.core.report.details import Interaction


class CallSpan(NamedTuple):
    """The place of a call on the axis of its session, in percent of its length.

    Attributes:
        left: where it begins.
        per_ms: how much of the axis a millisecond is.
        beside: the numbers of the calls that it overlapped.
    """

    left: float
    per_ms: float
    beside: tuple[int, ...] = ()


def spans_of(
    recorded: Sequence[RecordedInteraction], sessions: Mapping[str, Sequence[Interaction]]
) -> dict[int, CallSpan]:
    """Place each call on its axis; time in which no call was under way is left out."""
    spans: dict[int, CallSpan] = {}
    for calls in sessions.values():
        # A stream that only listens counts only if there is nothing else.
        timed = [call for call in calls if not call.listens] or calls
        spans |= _spans_on_axis(recorded, timed)
        per_ms = spans[timed[0].number].per_ms
        for call in calls:
            spans.setdefault(call.number, CallSpan(0.0, per_ms))
    return spans


def _spans_on_axis(
    recorded: Sequence[RecordedInteraction], calls: Iterable[Interaction]
) -> dict[int, CallSpan]:
    lefts: dict[int, float] = {}
    beside: dict[int, list[int]] = {}
    under_way: dict[int, int] = {}
    origin = 0.0
    end = 0.0
    for call in sorted(calls, key=lambda call: recorded[call.number - 1].own[0].number or 0):
        exchanges = recorded[call.number - 1].own
        first = exchanges[0]
        arrived = first.number or 0
        # Order is a count, which is exact where times are rounded.
        under_way = {before: until for before, until in under_way.items() if until >= arrived}
        if not under_way:
            origin = first.started_ms - end
        left = first.started_ms - origin
        lefts[call.number] = left
        beside[call.number] = [*under_way]
        for before in under_way:
            beside[before].append(call.number)
        under_way[call.number] = max(exchange.ended_after or -1 for exchange in exchanges)
        end = max(end, left + call.duration_ms + call.person_ms)
    per_ms = 100 / max(end, 1.0)
    spans = {}
    for number, left in lefts.items():
        spans[number] = CallSpan(left * per_ms, per_ms, tuple(beside[number]))
    return spans
