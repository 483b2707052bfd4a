"""Saying what happens while a proxy runs, as lines for people and as facts for programs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from mrtr_cassette.errors import LIBRARY_TERMS, Terms, printable_lines

_MOST_WAITING = 10_000
_GATHERED_S = 0.02
"""Seconds in which values gather after one was handed on: to wake a thread for each of them costs
as much as everything else that is done for a call."""
Log = Callable[[str], None]
OnEvent = Callable[[dict[str, Any]], None]
Event = partial[dict[str, Any]]
"""A function of `core.report` that makes the facts of an event, with its arguments."""


T = TypeVar("T")


class Aside(Generic[T]):
    """Hands values to a function in a thread of its own, so that this one never waits for it.

    What the function can't take in time is left out.
    """

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


@dataclass(frozen=True, slots=True)
class Announcer:
    """Says what happens to whoever wants to know.

    Attributes:
        log: takes lines; None where nobody wants them.
        on_event: takes facts; None where nobody wants them.
        terms: how texts spell the options.
    """

    log: Log | None = None
    on_event: OnEvent | None = None
    terms: Terms = field(default_factory=lambda: LIBRARY_TERMS)

    def say(self, event: Event, line: Callable[[], str] | None) -> None:
        """Say one thing in either form; each is made only if somebody wants it.

        A log that nobody reads any more must not break what passes.
        """
        if self.on_event is None and (self.log is None or line is None):
            return
        try:
            if self.on_event is not None:
                self.on_event(event())
            if self.log is not None and line is not None:
                self.log(printable_lines(line()))
        except OSError:  # `suppress` takes a microsecond of each exchange.
            pass
