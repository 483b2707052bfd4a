"""The page about suites in any language shows programs that run."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest
from languages.peers import HERE, PYTHON, SHELL, Language
from languages.run import problem_of_play

DOCS = HERE.parents[1] / "docs"
EXAMPLE = re.compile(
    r"^\[`[^`]*`\]\(([^)]*)\)[^\n]*\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL
)


def test_the_page_shows_what_the_programs_have() -> None:
    """Each part of an example, up to a line of its own left out, stands in its file."""
    examples = EXAMPLE.findall((DOCS / "any-language.md").read_text())

    assert len(examples) == 1

    for target, shown in examples:
        program = without_indents((DOCS / target).read_text())
        for part in re.split(r"\n{2,}", dedent(shown).strip()):
            assert without_indents(part) in program, (target, part)


def without_indents(text: str) -> str:
    """Leave out what a part inside of a class has more of."""
    return "\n".join(line.strip() for line in text.splitlines())


@pytest.mark.parametrize(
    "language", [PYTHON, SHELL], ids=lambda language: language.name
)
def test_an_example_records_replays_and_refuses(
    language: Language, tmp_path: Path
) -> None:
    """Unittest and a shell: the server is needed once, and a decline fails with the miss."""
    assert problem_of_play(language, tmp_path) == ""
