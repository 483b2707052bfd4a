"""The benchmark works; how fast anything is, no test asks."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from pathlib import Path

from load import Plan, Subject, measure
from processes import PROGRAM, TESTS, listening, run
from traffic import PLAIN

BENCH = TESTS.parent / "bench"
OWN = shlex.join(PROGRAM)
PEERS = (
    f"own={OWN} record --port {{port}} --upstream {{upstream}} --output {{cassette}} --force",
    f"own={OWN} replay --port {{port}} --repeat always {{cassette}}",
)


def test_quick_run_measures_every_target(tmp_path: Path) -> None:
    """A quick run has a value for each target and each load, and counts no wrong answer."""
    path = tmp_path / "results.json"
    peers = (word for peer in PEERS for word in ("--peer", peer))
    ran = run(
        [
            sys.executable,
            str(BENCH / "bench.py"),
            "--quick",
            "--json",
            str(path),
            *peers,
        ]
    )
    assert ran.code == 0, ran.stderr + ran.stdout
    results = json.loads(path.read_bytes())
    assert results["problems"] == []
    assert all(target["measured"] is not None for target in results["targets"])
    assert len(results["rates"]) == 2 * 5
    for rates in results["rates"]:
        assert rates["ratio"] > 0
        assert all(
            rate > 0 for rounds in rates["per_round"].values() for rate in rounds
        )
    for target in results["targets"]:
        assert f"| {target['what']} |" in ran.stdout


def test_fast_wrong_answer_is_no_result() -> None:
    """The load takes a fixed answer for what it is: not the answer to its request."""
    with listening([sys.executable, str(BENCH / "servers.py"), "fixed"]) as fixed:
        plan = Plan(PLAIN, 1, (Subject("fixed", fixed.url),), conversations=1)
        (stint,) = asyncio.run(measure(plan))["fixed"]
    assert stint.problem is not None
    assert '"answer 0.' in stint.problem
