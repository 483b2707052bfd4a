"""How far work has come that takes longer than a second."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mrtr_cassette.core.report.events import Work, progress_said
from mrtr_cassette.shell.announcing import Announcer
from mrtr_cassette.shell.clock import CLOCK, Clock
from mrtr_cassette.shell.stores import Location

TOLD_AFTER: Final = 500
"""Interactions after which to look whether a second has passed."""

_EVERY_S: Final = 1.0

Tell = Callable[[int, int, float], None]
"""Takes how many items are done, of how many, and how many seconds the rest will take."""


class Progress:
    """Tells every second how far work has come; work that takes less is told nothing of."""

    def __init__(self, tell: Tell, clock: Clock = CLOCK, told_after: int = TOLD_AFTER) -> None:
        self._tell = tell
        self._clock = clock
        self._told_after = told_after
        self._looked_at = 0
        self._begun_at = self._told_at = clock.now()

    def __call__(self, done: int, total: int) -> None:
        """Take that so many items of so many are done."""
        if done < self._looked_at + self._told_after:
            return
        self._looked_at = done
        now = self._clock.now()
        if now - self._told_at >= _EVERY_S:
            self._told_at = now
            rest = max(total - done, 0)
            self._tell(done, max(total, done), (now - self._begun_at) * rest / done)


def told_by(
    announcer: Announcer,
    work: Work,
    path: Location,
    clock: Clock = CLOCK,
    told_after: int = TOLD_AFTER,
) -> Progress:
    """Return what tells the log of a run how far the work on a cassette has come."""

    def tell(done: int, total: int, left_s: float) -> None:
        announcer.say(progress_said, work, str(path), done, total, left_s)

    return Progress(tell, clock, told_after)
