"""Recorders behind a load balancer, each of which sees a part of every conversation.

They stand behind nginx here, which leaves the names of headers as the client spells them.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from fleet.balancers import Fleet, balancing
from fleet.clients import converse
from fleet.runs import CONFIG, UPSTREAM, record_from
from processes import PROGRAM, lasting_part, listening, run

CONVERSATIONS = 12


def test_recordings_of_a_fleet_merge_to_that_of_one_recorder(tmp_path: Path) -> None:
    """Outside the recording block every byte is the same, though the rounds were spread."""
    merged, alone = tmp_path / "merged.json", tmp_path / "alone.json"
    paths = {name: tmp_path / f"{name}.json" for name in "abc"}
    with listening(UPSTREAM) as server, Fleet() as fleet:
        for name, path in paths.items():
            command = (*PROGRAM, "record", "--upstream", server.url, "--output", str(path))
            fleet.start(name, *command)
        for replica in fleet.replicas.values():
            replica.await_listening()
        with balancing("nginx", CONFIG["nginx"], fleet, tmp_path) as balancer:
            tally = asyncio.run(converse(balancer.url, lambda _: iter(range(CONVERSATIONS)), 1))
        told = [replica.stop(signal.SIGINT) for replica in fleet.replicas.values()]
        record_from(server.url, alone, CONVERSATIONS)
    assert (tally.finished, tally.moved) == (CONVERSATIONS, CONVERSATIONS), told
    done = run((*PROGRAM, "merge", *map(str, paths.values()), "-o", str(merged)))
    assert done.code == 0, done.stderr
    assert lasting_part(merged) == lasting_part(alone)
