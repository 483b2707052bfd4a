"""What the guides show is what happens: their files are written, their commands run, in order.

A `python` block begins with a comment that names its file. Of a `console` block each shown line has
to be in what the command before it prints, in that order; other lines may stand between.
"""

from __future__ import annotations

import re

import pytest
import yaml
from harness import run_here
from shown import ROOT, Reader

GUIDES = [
    "agents",
    "answers",
    "bug-report",
    "diff",
    "matchers",
    "pytest",
    "servers",
    "stdio",
    "tasks",
    "updating",
    "values",
    "verify",
]


@pytest.fixture
def reader(tmp_path):
    """Somebody who does what a guide says."""
    reader = Reader(tmp_path)
    yield reader
    reader.stop()


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_does_what_it_shows(reader, guide):
    """Every file is used and every command run, and prints what is shown."""
    reader.follow((ROOT / "docs" / f"{guide}.md").read_text())


def test_pages_about_ci_and_fleets_show_what_one_machine_does(reader):
    """What the guide for CI records is replayed as it shows, and then without memory."""
    reader.follow((ROOT / "docs" / "ci.md").read_text())
    fleet = (ROOT / "docs" / "fleet.md").read_text()
    replica = fleet.partition("\n## Any replica\n")[2].partition("\n## ")[0]
    reader.follow(replica)


EXAMPLES = ROOT / "docs" / "examples"


def test_the_workflow_runs_commands_that_exist(reader):
    """Options in the workflow are options of the programs."""
    workflow = yaml.load(
        (EXAMPLES / "mcp-tests.yml").read_text(), Loader=yaml.BaseLoader
    )
    lines = []
    for job in workflow["jobs"].values():
        lines += [step.get("run", "") for step in job["steps"]]

    (replay,) = [line for line in lines if line.startswith("mrtr-cassette")]
    (tests,) = [line for line in lines if line.startswith("pytest")]
    shown = run_here("replay", "--help").out

    assert set(re.findall(r"--[a-z-]+(?= )", replay.partition(" -- ")[0])) <= set(
        shown.split()
    )

    (reader.folder / "test_it.py").write_text("def test_it(): pass")
    code, printed = reader.run(f"{tests} -p no:cacheprovider")

    assert code == 0, printed


def test_the_nightly_check_runs_commands_that_exist():
    """Its options are options of the command that it names."""
    workflow = yaml.load(
        (EXAMPLES / "mcp-contract.yml").read_text(), Loader=yaml.BaseLoader
    )
    lines = [step.get("run", "") for step in workflow["jobs"]["verify"]["steps"]]
    (verify,) = [line for line in lines if line.startswith("mrtr-cassette verify")]
    shown = run_here("verify", "--help").out

    assert set(re.findall(r"--[a-z-]+(?= )", verify.partition(" -- ")[0])) <= set(
        shown.split()
    )
    assert "pytest --mrtr-mode=verify" in lines


def test_the_issue_form_names_commands_that_exist():
    """It is a form of GitHub, and its options are options of the commands."""
    form = yaml.load(
        (EXAMPLES / "bug-with-cassette.yml").read_text(), Loader=yaml.BaseLoader
    )

    assert [item["type"] for item in form["body"]] == ["markdown", *["textarea"] * 3]

    lines = re.findall(
        r"uvx mrtr-cassette (\S+)(.*)", form["body"][0]["attributes"]["value"]
    )

    assert [command for command, _ in lines] == ["record", "cut", "report"]

    for command, options in lines:
        shown = run_here(command, "--help").out
        words = re.findall(r"(?<= )--?[a-z-]+", options)

        assert set(words) <= set(re.findall(r"--?[a-z-]+", shown)), command
