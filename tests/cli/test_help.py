"""Help texts are read by people: docs/commands.md has them all, and shows a change of their words."""

from __future__ import annotations

from commands import walk
from goldens import expect_file
from harness import run_here
from shown import ROOT

from mrtr_cassette.cli import main

PAGE = ROOT / "docs" / "commands.md"
HEAD = """# Commands

The help of every command. `pytest tests/cli/test_help.py --update-goldens` writes this page.
"""


def test_help_texts_are_as_reviewed(monkeypatch, updates_goldens):
    """The help of every command is in docs/commands.md; `pytest --update-goldens` writes it."""
    monkeypatch.setenv("COLUMNS", "80")
    sections = [HEAD]
    for path, _ in walk(main):
        shown = run_here(*path, "--help")

        assert shown.code == 0

        title = " ".join(path) or "mrtr-cassette"
        sections.append(f"## {title}\n\n```text\n{shown.out}```\n")

    expect_file(PAGE, "\n".join(sections), updates=updates_goldens)
