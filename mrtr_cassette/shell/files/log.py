"""Saying what happens in a run: lines for people, facts for programs, and how far work has come."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar, TypeVarTuple, Unpack

from mrtr_cassette.core.report.events import Work, progress_said
from mrtr_cassette.errors import LIBRARY_TERMS, Terms, printable_lines
from mrtr_cassette.shell.files.stores import Location

_EVERY_S: Final = 1.0
_MOST_WAITING: Final = 10_000
_GATHERED_S: Final = 0.02
"""Seconds in which values gather after one was handed on: to wake a thread for each of them costs
as much as everything else that is done for a call."""
Log = Callable[[str], None]
OnEvent = Callable[[dict[str, Any]], None]
Tell = Callable[[int, int, float], None]
"""Takes how many items are done, of how many, and how many seconds the rest will take."""
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@dataclass(frozen=True, slots=True)
class Clock:
    """Tells the time, in seconds that never go back, and waits so many."""

    now: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]


CLOCK: Final = Clock(time.monotonic, asyncio.sleep)
"""This machine's."""


class Aside(Generic[T]):
    """Hands values to a function in a thread of its own; what it can't take in time is left out."""

    def __init__(self, take: Callable[[T], None]) -> None:
        self._take = take
        self._waiting: SimpleQueue[T | None] = SimpleQueue()
        self._is_finishing = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def __call__(self, value: T) -> None:
        """Hand a value on, unless too many wait already."""
        if self._waiting.qsize() < _MOST_WAITING:
            self._waiting.put(value)

    def finish(self, seconds: float) -> None:
        """Wait, so many seconds at most, until all has been handed on."""
        self._waiting.put(None)
        self._is_finishing.set()
        self._thread.join(seconds)

    def _work(self) -> None:
        while (value := self._waiting.get()) is not None:
            with suppress(OSError):
                self._take(value)
            if self._waiting.empty():
                self._is_finishing.wait(_GATHERED_S)


def heard_by(*listeners: OnEvent | None) -> tuple[OnEvent, ...]:
    """Return those who listen, of some of whom there may be none."""
    return tuple(each for each in listeners if each is not None)


@dataclass(frozen=True, slots=True)
class Announcer:
    """Says what happens: `log` takes lines with options as in `terms`, `listeners` take facts."""

    log: Log | None = None
    listeners: tuple[OnEvent, ...] = ()
    terms: Terms = field(default_factory=lambda: LIBRARY_TERMS)

    def say(self, make: Callable[[Unpack[Ts]], tuple[dict[str, Any], str]], *args: *Ts) -> None:
        """Say one thing in both forms; nothing is made where nobody wants any."""
        if self.listeners or self.log is not None:
            event, line = make(*args)
            self.tell(lambda: event)
            if self.log is not None:
                with suppress(OSError):
                    self.log(printable_lines(line))

    def tell(self, make: Callable[[Unpack[Ts]], dict[str, Any]], *args: *Ts) -> None:
        """Tell programs one thing; it is made only if one of them wants it."""
        if self.listeners:
            event = make(*args)
            for listener in self.listeners:
                # A log that nobody reads any more must not break what passes.
                with suppress(OSError):
                    listener(event)


class Progress:
    """Tells every second how far work has come; work that takes less is told nothing of."""

    def __init__(self, tell: Tell, clock: Clock = CLOCK) -> None:
        self._tell = tell
        self._clock = clock
        self._begun_at = self._told_at = clock.now()

    def __call__(self, done: int, total: int) -> None:
        """Take that so many items of so many are done."""
        now = self._clock.now()
        if now - self._told_at >= _EVERY_S:
            self._told_at = now
            rest = max(total - done, 0)
            self._tell(done, max(total, done), (now - self._begun_at) * rest / done)


def told_by(announcer: Announcer, work: Work, path: Location, clock: Clock = CLOCK) -> Progress:
    """Return what tells the log of a run how far the work on a cassette has come."""

    def tell(done: int, total: int, left_s: float) -> None:
        announcer.say(progress_said, work, str(path), done, total, left_s)

    return Progress(tell, clock)
