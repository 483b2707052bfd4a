"""Facts about what is told of a run: aside, and every second."""

from __future__ import annotations

import asyncio
from threading import Event

import pytest
from patience import HANGS_S

from mrtr_cassette.shell.files.log import Aside, Clock, Progress


def test_all_is_told_in_order_by_the_end() -> None:
    """What gathers while the first value is taken, or after it, is taken at the end at the latest."""
    told: list[int] = []
    aside = Aside(told.append)
    for number in range(100):
        aside(number)
    aside.finish(HANGS_S)
    assert told == list(range(100))


def test_whoever_does_not_listen_holds_up_nobody() -> None:
    """What can't be taken in time is left out, and the end waits for no more than was said."""
    listens = Event()
    aside = Aside(lambda _: listens.wait(HANGS_S))
    for number in range(20_000):
        aside(number)
    aside.finish(0.01)
    listens.set()


@pytest.mark.parametrize(
    ("seconds_each", "total", "step", "told"),
    [
        (0.5, 6, 1, [(2, 6, 2.0), (4, 6, 1.0), (6, 6, 0.0)]),
        (0.5, 12, 4, [(4, 12, 4.0), (8, 12, 2.0), (12, 12, 0.0)]),
        (0.01, 90, 1, []),
    ],
    ids=["one by one", "many at once", "less than a second"],
)
def test_work_is_told_of_every_second(
    seconds_each: float, total: int, step: int, told: list[tuple[int, int, float]]
) -> None:
    """What is left is told by how long the work took so far."""
    now = 0.0
    standings: list[tuple[int, int, float]] = []
    clock = Clock(lambda: now, asyncio.sleep)
    progress = Progress(lambda *standing: standings.append(standing), clock)
    for done in range(step, total + 1, step):
        now = done * seconds_each
        progress(done, total)
    assert standings == told


def test_more_than_was_guessed_is_all() -> None:
    """A total that was a guess is never less than what is done."""
    standings: list[tuple[int, int, float]] = []
    times = iter((0.0, 2.0))
    clock = Clock(lambda: next(times), asyncio.sleep)
    Progress(lambda *standing: standings.append(standing), clock)(5, 1)
    assert standings == [(5, 5, 0.0)]
