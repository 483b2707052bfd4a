"""Limits of size and density hold by construction, so that every statement is understood at first reading."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from words import count_habits

PACKAGE = Path(__file__).resolve().parent.parent / "mrtr_cassette"
MODULES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = sorted({path.parent for path in MODULES})
DOCS = sorted([*PACKAGE.parent.glob("*.md"), *PACKAGE.parent.glob("docs/*.md")])
README = PACKAGE.parent / "README.md"
TESTS = [
    path
    for path in PACKAGE.parent.glob("tests/**/*.py")
    if not {"node_modules", ".venv"} & {*path.parts}
]
LONGEST_FUNCTION = 50
LARGEST_MODULE = 4_500
DENSEST_FOLDER = 5.6
SMALLEST_FOLDER_MEASURED = 100
"""Lines below which a folder's density says nothing."""

SIZES = {
    "tokens of the package": 345_000,
    "modules of the package": 150,
    "functions with more than 10 branches": 13,
    "words of README and docs": 21_900,
    "lines of README": 150,
}
"""Upper limits, a few percent above what is there, so that nobody packs a statement to stay below one."""

DENSITY = {
    "tokens in a line of the package": 5.15,
    "tokens in a line of tests": 6.05,
    "conditional expressions in 1,000 lines": 7.2,
    "comprehensions in 1,000 lines": 10,
    "tuple assignments in 1,000 lines": 0.5,
    "names that name nothing in 1,000 lines": 1,
}
"""Upper limits on how much a line holds; they only go down."""

NAMES_THAT_NAME_NOTHING = {"each", "it", "one", "other", "own", "these", "those", "its"}
NOT_COUNTED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)
BRANCHES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.comprehension,
    ast.match_case,
)
MOST_BRANCHES = 10


def name_of(path: Path) -> str:
    """Return a module's path inside the package."""
    return str(path.relative_to(PACKAGE))


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax of a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def tokens_of(path: Path) -> int:
    """Count the tokens of a module without comments, docstrings and line ends."""
    text = path.read_text(encoding="utf-8")
    count = 0
    statement: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_COUNTED:
            statement.append(token.type)
        elif token.type == tokenize.NEWLINE:
            is_docstring = statement == [tokenize.STRING]
            if not is_docstring:
                count += len(statement)

            statement.clear()

    return count


def branches_of(function: ast.AST) -> int:
    """Count the branches of a function, those within its expressions too."""
    count = 0
    for node in ast.walk(function):
        if isinstance(node, BRANCHES):
            count += 1

        if isinstance(node, ast.BoolOp):
            count += len(node.values) - 1

    return count


def lines_of(path: Path) -> int:
    """Count the lines of a module."""
    return path.read_bytes().count(b"\n")


@cache
def measured(path: Path) -> Counter[str]:
    """Count lines, tokens and what makes a statement hard to read in a module."""
    found = Counter(lines=lines_of(path), tokens=tokens_of(path))
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.IfExp):
            found["conditional expressions"] += 1
        elif isinstance(node, COMPREHENSIONS):
            found["comprehensions"] += 1
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            found["tuple assignments"] += isinstance(node.targets[0], ast.Tuple)
        elif isinstance(node, ast.Name):
            found["names that name nothing"] += node.id in NAMES_THAT_NAME_NOTHING
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found["branchy functions"] += branches_of(node) > MOST_BRANCHES

    return found


def measure(paths: Iterable[Path]) -> Counter[str]:
    """Count the same over some modules."""
    found: Counter[str] = Counter()
    for path in paths:
        found.update(measured(path))

    return found


def length_of(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> int:
    """Return a function's lines; its docstring and the empty ones between its paragraphs are free."""
    written = lines[node.lineno - 1 : node.end_lineno]
    docstring = (ast.get_docstring(node, clean=False) or "").splitlines()

    return count_written(written) - count_written(docstring)


def count_written(lines: list[str]) -> int:
    """Return how many lines are not empty."""
    return sum(bool(line.strip()) for line in lines)


def test_no_module_and_no_function_is_large() -> None:
    """A module is bounded in tokens, and a function in lines."""
    large: list[str] = []
    for path in MODULES:
        tokens = measured(path)["tokens"]
        if tokens > LARGEST_MODULE:
            large.append(f"{name_of(path)} has {tokens} tokens")

        lines = path.read_text(encoding="utf-8").splitlines()
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = length_of(node, lines)
                if length > LONGEST_FUNCTION:
                    large.append(f"{node.name} in {name_of(path)} has {length} lines")

    assert large == []


def test_no_folder_is_dense() -> None:
    """The tokens in a line of each folder are bounded."""
    dense: dict[str, float] = {}
    for folder in FOLDERS:
        found = measure(folder.glob("*.py"))
        if found["lines"] < SMALLEST_FOLDER_MEASURED:
            continue

        density = found["tokens"] / found["lines"]
        if density > DENSEST_FOLDER:
            dense[name_of(folder)] = density

    assert dense == {}


def test_the_package_keeps_its_size_and_density() -> None:
    """Package, tests and docs grow only where somebody decides that they do."""
    package = measure(MODULES)
    tokens_of_tests = sum(map(tokens_of, TESTS))
    lines_of_tests = sum(map(lines_of, TESTS))
    # The page of the commands is their help, which tests/cli/test_help.py writes.
    pages = [
        page
        for page in DOCS
        if page.parent.name == "docs" and page.name != "commands.md"
    ]

    pages.append(README)
    thousand_lines = package["lines"] / 1_000
    found = {
        "tokens of the package": package["tokens"],
        # A folder's own file has nothing but its docstring.
        "modules of the package": sum(path.name != "__init__.py" for path in MODULES),
        "functions with more than 10 branches": package["branchy functions"],
        # Blocks of code are examples, which tests run.
        "words of README and docs": sum(
            count_habits(page.read_text("utf-8"))["words"] for page in pages
        ),
        "lines of README": README.read_bytes().count(b"\n"),
        "tokens in a line of the package": package["tokens"] / package["lines"],
        "tokens in a line of tests": tokens_of_tests / lines_of_tests,
        "conditional expressions in 1,000 lines": package["conditional expressions"]
        / thousand_lines,
        "comprehensions in 1,000 lines": package["comprehensions"] / thousand_lines,
        "tuple assignments in 1,000 lines": package["tuple assignments"]
        / thousand_lines,
        "names that name nothing in 1,000 lines": package["names that name nothing"]
        / thousand_lines,
    }

    limits = SIZES | DENSITY
    excesses = []
    for fact, figure in found.items():
        if figure > limits[fact]:
            excesses.append(f"{fact}: {figure:,} of at most {limits[fact]:,}")

    assert excesses == []
    assert found.keys() == limits.keys()


def test_names_in_templates_name_something() -> None:
    """As those in modules do."""
    for template in PACKAGE.rglob("*.html"):
        names = re.findall(r"{% (?:for|set) ([\w, ]+?) (?:in|=) ", template.read_text())
        names += re.findall(r"{% macro \w+\((.*?)\) %}", template.read_text())
        words = set(re.findall(r"\w+", " ".join(names)))

        assert not words & NAMES_THAT_NAME_NOTHING, template.name


def test_one_name_means_one_class() -> None:
    """No two classes of the package have the same name."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name_of(path))

    assert {name: where for name, where in places.items() if len(where) > 1} == {}


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_no_document_has_the_marks_of_a_merge(path: Path) -> None:
    """Both sides of a conflict were read, and one text was made of them."""
    lines = path.read_text(encoding="utf-8").splitlines()

    assert not [line for line in lines if line.startswith(("<<<<<<< ", ">>>>>>> "))]
