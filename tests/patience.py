"""How long the suite waits before it takes something for hung.

Rule: a limit ends a test that hangs. No assertion rests on how long something took.

`MRTR_TEST_PATIENCE=5 make test` multiplies all limits by five. Without it the factor is the load
on each processor when the suite starts, and at least 1.
"""

from __future__ import annotations

import os
from typing import Final

VARIABLE: Final = "MRTR_TEST_PATIENCE"
_LONGEST_FACTOR = 50.0


def factor() -> float:
    """Return what limits are multiplied by in this run and in the processes that it starts."""
    given = os.environ.get(VARIABLE)
    if given is None:
        load = os.getloadavg()[0] / (os.cpu_count() or 1)
        given = os.environ[VARIABLE] = f"{min(max(load, 1.0), _LONGEST_FACTOR):.1f}"

    return float(given)


def seconds(on_an_idle_machine: float) -> float:
    """Return a limit for this machine, given one that is ample on an idle machine."""
    return on_an_idle_machine * factor()


HANGS_S: Final = seconds(180)
"""Longest wait for one event: a process that ends, a connection that closes, a line that comes."""

TEST_HANGS_S: Final = 3 * HANGS_S
"""Longest that one test may take, all its waits together."""
