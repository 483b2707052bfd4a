"""The soak in its short form; `python tests/soak/soak.py` is the long one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from soak.soak import soak

COUNTS = {"SIGKILL": 4, "SIGTERM": 1, "publishing": 1}


def test_no_exchange_is_lost_however_a_recorder_ends(tmp_path: Path) -> None:
    """What a client had whole is in the cassette with its bytes, once, under load, after any end."""
    tallies, problems = asyncio.run(soak(COUNTS, seed=1, folder=tmp_path))

    assert not problems, "\n\n".join([str(tallies), *problems])
    assert all(tally["seen"] > 0 for tally in tallies.values())
