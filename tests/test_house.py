"""Limits of size hold by construction, so that what a reader must take in at once stays small."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "mrtr_cassette"
MODULES = sorted(PACKAGE.rglob("*.py"))
DOCS = sorted([*PACKAGE.parent.glob("*.md"), *PACKAGE.parent.glob("docs/*.md")])
README = PACKAGE.parent / "README.md"
TESTS = [
    path
    for path in PACKAGE.parent.glob("tests/**/*.py")
    if not {"node_modules", ".venv"} & {*path.parts}
]
LONGEST_MODULE = 800
LONGEST_FUNCTION = 50


BUDGET = {
    "lines of the package": 29_327,
    "modules of the package": 112,
    "lines of tests": 39_665,
    "words of README and docs": 20_000,
    "lines of README": 150,
}
"""What there may be at most: a feature that needs more says so here."""


def name_of(path: Path) -> str:
    """Return a module's path inside the package."""
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_module_and_no_function_is_long(path: Path) -> None:
    """A module has at most 800 lines, and a function 50 besides its docstring."""
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= LONGEST_MODULE
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            lines -= (ast.get_docstring(node, clean=False) or "").count("\n")
            assert lines <= LONGEST_FUNCTION, f"{node.name} in {name_of(path)} has {lines} lines"


def lines_of(paths: Iterable[Path]) -> int:
    """Count all lines of some files."""
    return sum(path.read_bytes().count(b"\n") for path in paths)


def test_the_budget_is_kept() -> None:
    """Package, tests and docs grow only where somebody decides that they do."""
    pages = [README, *PACKAGE.parent.glob("docs/*.md")]
    words = sum(len(page.read_text(encoding="utf-8").split()) for page in pages)
    sizes = (lines_of(MODULES), len(MODULES), lines_of(TESTS), words, lines_of([README]))
    found = dict(zip(BUDGET, sizes, strict=True))
    assert {what: count for what, count in found.items() if count > BUDGET[what]} == {}


def test_one_name_means_one_class() -> None:
    """No two classes of the package have the same name."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name_of(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_no_document_has_the_marks_of_a_merge(path: Path) -> None:
    """Both sides of a conflict were read, and one text was made of them."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if line.startswith(("<<<<<<< ", ">>>>>>> "))]
