"""The soak in its short form; `python tests/soak/soak.py` is the long one."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

from soak.soak import soak, table

COUNTS = {"SIGKILL": 6, "SIGTERM": 1, "publishing": 1}


def test_no_exchange_is_lost_however_a_recorder_ends(tmp_path: Path) -> None:
    """What a client had whole is in the cassette with its bytes, once, under load, after any end."""
    outcome = asyncio.run(soak(COUNTS, seed=1, seconds=math.inf, folder=tmp_path))
    assert not outcome.problems, "\n\n".join([table(outcome), *outcome.problems])
    assert all(tally["seen"] > 0 for tally in outcome.tallies.values())
