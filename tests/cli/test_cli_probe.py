"""The command `probe`, from the outside."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from harness import run_here

CASSETTES = Path(__file__).parents[2] / "cassettes"
DEMO = CASSETTES / "demo-server.json"
SERVER = [sys.executable, "-m", "mrtr_cassette.demo.server", "--port", "{port}"]
SIGNIN = """
[[expect]]
probe = "url-accepted-at-once"
tool = "everything"
question = "signin"
reason = "the demonstration has no page to sign in at"
"""


def probed(tmp_path: Path, *words: str, code: int = 0) -> Any:
    """Probe the demo server; return what was printed, and the report."""
    report = tmp_path / "probe.json"
    command = ["probe", str(DEMO), "--report", str(report), *words, "--", *SERVER]
    run = run_here(*command)
    assert run.code == code, run.err
    (outcome,) = json.loads(report.read_text())["cassettes"]
    return run, outcome


def test_the_demo_server_acts_on_no_answer_that_it_did_not_ask_for(tmp_path):
    """Nothing is found but a page that isn't there; the number of requests is said before."""
    expected = tmp_path / "expected.toml"
    expected.write_text(SIGNIN)
    run, outcome = probed(tmp_path, "--expect", str(expected))
    assert (outcome["is_good"], outcome["unmet"]) == (True, [])
    assert f"at most {outcome['requests']} requests to " in run.err
    assert "crashed" not in outcome["counts"]
    (found,) = [probe for probe in outcome["probes"] if probe["expected"]]
    assert (found["probe"], found["verdict"]) == ("url-accepted-at-once", "acted")
    assert "0 findings in " in run.out


def test_what_is_information_can_be_made_a_finding(tmp_path):
    """The server keeps no state for this tool, and its retry can be sent again."""
    words = ["--only", "provision", "--fail-on", "unprotected"]
    _, outcome = probed(tmp_path, *words, code=1)
    found = [probe["probe"] for probe in outcome["probes"] if probe["is_finding"]]
    assert found == ["answers-unasked"]


def test_an_expected_finding_that_is_not_found_is_an_error(tmp_path):
    """So a file can't outlive what it explains."""
    expected = tmp_path / "expected.toml"
    expected.write_text(SIGNIN)
    words = ["--only", "provision", "--expect", str(expected)]
    run, outcome = probed(tmp_path, *words, code=2)
    assert "not found: url-accepted-at-once of everything, question signin" in run.err
    assert outcome["unmet"][0]["probe"] == "url-accepted-at-once"
