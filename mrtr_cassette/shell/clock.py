"""Time, as what waits or measures takes it: as an argument."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Clock:
    """Tells the time and waits.

    Attributes:
        now: seconds since some moment; they never go back.
        sleep: waits so many seconds.
    """

    now: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]


CLOCK: Final = Clock(time.monotonic, asyncio.sleep)
"""This machine's."""
