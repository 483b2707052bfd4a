"""This machine's clocks, and an event loop that waits by the one that tests don't freeze."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final


def monotonic() -> float:
    """Return the seconds of a clock that only goes forward.

    A test that freezes the time replaces `time.monotonic`, by which nothing would ever be waited
    for again; no library for that replaces this clock.
    """
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class UnfrozenLoop(asyncio.SelectorEventLoop):
    """An event loop whose timers run while a test has frozen the time."""

    def time(self) -> float:
        """Return the loop's time in seconds."""
        return monotonic()


@dataclass(frozen=True, slots=True)
class Clock:
    """A monotonic clock in seconds, a way to wait, and the seconds since 1970."""

    now: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    wall: Callable[[], float] = time.time


CLOCK: Final = Clock(monotonic, asyncio.sleep)
"""This machine's."""
