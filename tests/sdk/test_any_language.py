"""The suite of another language under `record -- COMMAND` and `replay -- COMMAND`.

The suite is the one that the guide shows: node:test with the TypeScript SDK's client.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from processes import PEERS, Run, StartServer, record_command, replay_command, run

SUITE = Path(__file__).parents[2] / "docs" / "examples" / "deploy.test.mjs"
NODE_TEST = ("--", "node", "--test")


def test_suite_is_recorded_and_replayed_without_the_server(
    start_server: StartServer, tmp_path: Path
) -> None:
    """One line records it, another replays it; the suite passes both times, and all is played."""
    cassette = tmp_path / "cassette.json"
    report = tmp_path / "report.json"
    shutil.copy(SUITE, tmp_path)
    (tmp_path / "node_modules").symlink_to(PEERS / "node_modules")

    def run_here(command: tuple[str, ...]) -> Run:
        return run(command, cwd=tmp_path)

    with start_server("typescript", 0) as server:
        recorded = run_here(record_command(server.url, cassette, *NODE_TEST))

    replayed = run_here(replay_command(cassette, "--report", str(report), *NODE_TEST))

    for ended in (recorded, replayed):
        assert ended.code == 0, ended
        assert "pass 2" in ended.stdout

    interactions = json.loads(cassette.read_bytes())["interactions"]

    assert (
        len(
            [
                interaction
                for interaction in interactions
                if interaction["elicitation_turns"]
            ]
        )
        == 2
    )
    assert "no misses" in replayed.stderr

    outcomes = [
        interaction["outcome"]
        for interaction in json.loads(report.read_bytes())["interactions"]
    ]

    assert set(outcomes) == {"played"}
