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
PROBE_UNASKED = """
[[expect]]
probe = "answers-unasked"
tool = "provision"
reason = "it only makes a database that can be removed"
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
    """Nothing is found; the number of requests is said before."""
    run, outcome = probed(tmp_path)

    assert (outcome["is_good"], outcome["unmet"]) == (True, [])
    assert f"at most {outcome['requests']} requests to " in run.err
    assert outcome["counts"].keys().isdisjoint({"acted", "crashed"})
    assert "0 findings in " in run.out

    # Without a terminal there is a line for each question.
    count = len(outcome["probes"])
    lines = [line for line in run.err.splitlines() if " probes made; next: #" in line]

    assert lines[0].startswith(f"0 of {count} probes made; next: #7 tools/call")
    assert len(lines) == len(set(lines))

    (signin,) = [
        made for made in outcome["probes"] if made["probe"] == "url-accepted-at-once"
    ]

    # Its result tells what was answered, and nothing that a visit would be needed for.
    assert signin["verdict"] == "undecidable"


def test_an_expected_finding_does_not_count(tmp_path):
    """The report says why it was expected."""
    expected = tmp_path / "expected.toml"
    expected.write_text(PROBE_UNASKED)
    words = ["--only", "provision", "--fail-on", "unprotected"]
    _, outcome = probed(tmp_path, *words, "--expect", str(expected))
    (found,) = [made for made in outcome["probes"] if made["expected"]]

    assert (found["probe"], found["verdict"]) == ("answers-unasked", "unprotected")


def test_what_is_information_can_be_made_a_finding(tmp_path):
    """The server keeps no state for this tool; the run is recorded all the same."""
    words = ["--only", "provision", "--fail-on", "unprotected"]
    output = tmp_path / "branches.json"
    run, outcome = probed(tmp_path, *words, "--record", str(output), code=1)
    found = [probe["probe"] for probe in outcome["probes"] if probe["is_finding"]]

    assert found == ["answers-unasked"]
    assert f"wrote {output}: " in run.err
    assert run_here("check", output).code == 0

    again = run_here("probe", DEMO, "--record", output, "--", *SERVER)

    assert again.code == 3
    assert "use --force to replace it or --append to add to it" in again.err

    alone = run_here("probe", DEMO, "--force", "--", *SERVER)

    assert "--force and --append are about a cassette of branches" in alone.err


def test_an_expected_finding_that_is_not_found_is_an_error(tmp_path):
    """So a file can't outlive what it explains."""
    expected = tmp_path / "expected.toml"
    expected.write_text(SIGNIN)
    words = ["--only", "provision", "--expect", str(expected)]
    run, outcome = probed(tmp_path, *words, code=2)

    assert "not found: url-accepted-at-once of everything, question signin" in run.err
    assert outcome["unmet"][0]["probe"] == "url-accepted-at-once"
