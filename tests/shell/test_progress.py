"""Facts about what is told of work that takes long."""

from __future__ import annotations

import asyncio

from mrtr_cassette.shell.clock import Clock
from mrtr_cassette.shell.progress import Progress


def told(seconds_each: float, total: int, step: int = 1) -> list[tuple[int, int, float]]:
    """Return what is told of work whose items take so long."""
    now = 0.0
    standings: list[tuple[int, int, float]] = []
    clock = Clock(lambda: now, asyncio.sleep)
    progress = Progress(lambda *standing: standings.append(standing), clock, told_after=1)
    for done in range(step, total + 1, step):
        now = done * seconds_each
        progress(done, total)
    return standings


def test_work_is_told_of_every_second() -> None:
    """What is left is told by how long the work took so far."""
    assert told(0.5, 6) == [(2, 6, 2.0), (4, 6, 1.0), (6, 6, 0.0)]


def test_steps_of_many_items_are_told_of_too() -> None:
    """No item need be counted alone."""
    assert told(0.5, 12, step=4) == [
        (4, 12, 4.0),
        (8, 12, 2.0),
        (12, 12, 0),
    ]


def test_short_work_is_not_told_of() -> None:
    """Nobody needs to know what takes less than a second."""
    assert told(0.01, 90) == []


def test_more_than_was_guessed_is_all() -> None:
    """A total that was a guess is never less than what is done."""
    standings: list[tuple[int, int, float]] = []
    times = iter((0.0, 2.0))
    clock = Clock(lambda: next(times), asyncio.sleep)
    Progress(lambda *standing: standings.append(standing), clock, told_after=1)(5, 1)
    assert standings == [(5, 5, 0.0)]
