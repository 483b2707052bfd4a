"""Where a moment stands on the time axis of a session.

Rule: between two moments in which something is under way, the axis is linear.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mrtr_cassette.core.report.details import InteractionDetails, Stretch

_LONG_IDLE: Final = 0.1
"""Idle time of more than this part of the busy time is cut."""
_CUT: Final = 0.025
"""What a cut is as wide as, as a part of the busy time."""
_LEAST_WIDTH: Final = 0.6
"""In percent of the axis; what is shorter could not be seen."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A time axis from 0 to 100.

    Attributes:
        moments: in milliseconds, in order; between two of them the axis is linear.
        positions: where these stand.
        cuts: where idle time was cut.
        busy_ms: how long something was under way.
    """

    moments: tuple[float, ...]
    positions: tuple[float, ...]
    cuts: tuple[float, ...]
    busy_ms: float

    def position(self, at_ms: float) -> float:
        """Return where a moment stands; one beyond the axis stands at its end."""
        index = bisect_right(self.moments, at_ms)
        if index in {0, len(self.moments)}:
            return 0.0 if index == 0 else 100.0
        start, end = self.moments[index - 1 : index + 1]
        low, high = self.positions[index - 1 : index + 1]
        return low + (high - low) * (at_ms - start) / (end - start)


def axis_of(stretches: Iterable[Stretch]) -> Axis:
    """Return the axis for what was under way."""
    busy: list[list[float]] = []
    for stretch in sorted(stretches, key=lambda each: each.start_ms):
        if busy and stretch.start_ms <= busy[-1][1]:
            busy[-1][1] = max(busy[-1][1], stretch.end_ms)
        else:
            busy.append([stretch.start_ms, stretch.end_ms])
    busy_ms = sum(end - start for start, end in busy)
    moments: list[float] = []
    widths: list[float] = []
    cuts: list[int] = []
    for start, end in busy:
        if moments:
            idle = start - moments[-1]
            is_long = idle > busy_ms * _LONG_IDLE
            cuts += [len(widths)] if is_long else []
            widths.append(busy_ms * _CUT if is_long else idle)
        moments += [start, end]
        widths.append(end - start)
    total = sum(widths) or 1.0
    positions = [0.0]
    for width in widths:
        positions.append(positions[-1] + width * 100 / total)
    middles = [(positions[at] + positions[at + 1]) / 2 for at in cuts]
    return Axis(tuple(moments), tuple(positions[: len(moments)]), tuple(middles), busy_ms)


@dataclass(frozen=True, slots=True)
class SessionTimeline:
    """The calls of one session, and when they were.

    Attributes:
        session: its id, or an empty string.
        client: name and version of its client, or an empty string.
        interactions: its calls, in the order of the file.
        axis: for their time; that of streams which only listen doesn't count.
    """

    session: str
    client: str
    interactions: tuple[InteractionDetails, ...]
    axis: Axis


def timelines(interactions: Sequence[InteractionDetails]) -> tuple[SessionTimeline, ...]:
    """Return the sessions of a cassette, in the order in which they began."""
    by_session: dict[str, list[InteractionDetails]] = {}
    for each in interactions:
        by_session.setdefault(each.session, []).append(each)
    return tuple(
        SessionTimeline(
            session,
            next((each.client for each in calls if each.client), ""),
            tuple(calls),
            axis_of(
                [stretch for each in calls if not each.listens for stretch in each.stretches]
                or [stretch for each in calls for stretch in each.stretches]
            ),
        )
        for session, calls in by_session.items()
    )


def bars(details: InteractionDetails, axis: Axis) -> Iterator[tuple[str, str, str]]:
    """Yield whom a call waited for, where on the axis that begins, and how wide it is."""
    for whose, start_ms, end_ms in details.stretches:
        start = min(axis.position(start_ms), 100 - _LEAST_WIDTH)
        width = max(axis.position(end_ms) - start, _LEAST_WIDTH)
        yield whose, f"{start:.2f}", f"{width:.2f}"


def waiting_in_words(details: InteractionDetails) -> str:
    """Say how long a call waited for the server, and how long for a person."""
    totals = {"server": 0.0}
    for whose, start_ms, end_ms in details.stretches:
        totals[whose] = totals.get(whose, 0.0) + end_ms - start_ms
    return ", ".join(f"{whose} {shown_time(total)}" for whose, total in totals.items())


def shown_time(duration_ms: float) -> str:
    """Return a duration as people say it."""
    if duration_ms < 1:
        return "under 1 ms"
    if duration_ms < 1000:
        return f"{duration_ms:.0f} ms"
    if duration_ms < 60_000:
        return f"{duration_ms / 1000:.1f} s"
    minutes, seconds = divmod(round(duration_ms / 1000), 60)
    return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
