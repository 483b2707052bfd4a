"""The benchmark works; how fast anything is, no test asks."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from pathlib import Path

import pytest
from load import Plan, Subject, measure
from processes import PROGRAM, TESTS, listening
from traffic import PLAIN

import bench

BENCH = TESTS.parent / "bench"
OWN = shlex.join(PROGRAM)
PEERS = (
    f"own={OWN} record --port {{port}} --upstream {{upstream}} --output {{cassette}} --force",
    f"own={OWN} replay --port {{port}} --repeat always {{cassette}}",
)


@pytest.mark.usefixtures("forks_programs")
def test_quick_run_measures_every_target(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A quick run has a value for each target and each load, and counts no wrong answer.

    It runs here, where the programs that it measures are forked.
    """
    path = tmp_path / "results.json"
    words = ["bench.py", "--quick", "--json", str(path)]
    for peer in PEERS:
        words += ["--peer", peer]

    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)

    code = bench.main()

    printed = capsys.readouterr()

    assert code == 0, printed.err + printed.out
    results = json.loads(path.read_bytes())

    assert results["problems"] == []
    assert all(target["measured"] is not None for target in results["targets"])
    assert len(results["rates"]) == 2 * 5
    for rates in results["rates"]:
        assert rates["ratio"] > 0
        for rounds in rates["per_round"].values():
            assert all(rate > 0 for rate in rounds)

    for target in results["targets"]:
        assert f"| {target['what']} |" in printed.out


def test_fast_wrong_answer_is_no_result() -> None:
    """The load takes a fixed answer for what it is: not the answer to its request."""
    with listening([sys.executable, str(BENCH / "servers.py"), "fixed"]) as fixed:
        plan = Plan(PLAIN, 1, (Subject("fixed", fixed.url),), conversations=1)
        (stint,) = asyncio.run(measure(plan))["fixed"]

    assert stint.problem is not None
    assert '"answer 0.' in stint.problem
