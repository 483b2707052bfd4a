"""Facts about what is told of a run aside."""

from __future__ import annotations

import json
from threading import Event

import pytest
from patience import HANGS_S

from mrtr_cassette.cli.common import Log
from mrtr_cassette.shell.files.log import BackgroundCaller


def test_all_is_told_in_order_by_the_end() -> None:
    """What gathers while the first values are taken is taken at once, at the end at the latest."""
    told: list[tuple[int, ...]] = []
    is_taken = Event()
    has_gathered = Event()

    def take(*numbers: int) -> None:
        is_taken.set()
        has_gathered.wait(HANGS_S)
        told.append(numbers)

    aside = BackgroundCaller(take)
    aside(0)
    is_taken.wait(HANGS_S)
    for number in range(1, 100):
        aside(number)

    has_gathered.set()
    aside.finish(HANGS_S)

    assert told == [(0,), tuple(range(1, 100))]

    BackgroundCaller(take).finish(HANGS_S)

    assert len(told) == 2


def test_an_event_with_bytes_that_are_no_text_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A client may send any target, and what comes after it is told, too."""
    aside = BackgroundCaller(Log("json").write_event)
    for name in ("GET /\udcff", "tools/list"):
        aside({"call": name})

    aside.finish(HANGS_S)
    told = [json.loads(line) for line in capsys.readouterr().err.splitlines()]

    assert told == [{"call": "GET /\udcff"}, {"call": "tools/list"}]


def test_whoever_does_not_listen_holds_up_nobody() -> None:
    """What can't be taken in time is left out, and the end waits for no more than was said."""
    listens = Event()
    aside = BackgroundCaller(lambda *_: listens.wait(HANGS_S))
    for number in range(20_000):
        aside(number)

    aside.finish(0.01)
    listens.set()
