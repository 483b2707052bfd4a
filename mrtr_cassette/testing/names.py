"""The cassettes of pytest's tests: their options by markers, and their files."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import shlex
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from mrtr_cassette.errors import MrtrCassetteError
from mrtr_cassette.shell.files.cassettes import journal_path
from mrtr_cassette.shell.files.disk import check_name
from mrtr_cassette.terms import (
    RECORDING,
    SHELL_TERMS,
    SUITE_TERMS,
    TERMS_BY_SCOPE,
    without_upstream,
)
from mrtr_cassette.testing.settings import (
    OptionSource,
    combined_options,
    settings_from,
    source_of_call,
)
from mrtr_cassette.testing.suite_cassette import Settings


def settings_of(
    sources: Sequence[OptionSource],
    test: str = "",
    *,
    scope: str = "function",
    has_upstream: bool = True,
) -> Settings:
    """Return the settings that several places give a test, from the farthest to the nearest.

    Args:
        test: what pytest is given to run the test again.
        scope: that of the fixture, which reads the markers of what it belongs to.
        has_upstream: the suite may name an upstream elsewhere.
    """
    values = combined_options(sources, SUITE_TERMS)
    terms = {**SUITE_TERMS, **TERMS_BY_SCOPE.get(scope, {}), "test": ""}
    if not has_upstream and "upstream" not in values:
        terms = without_upstream(terms)

    if test:
        terms["test"] = f" {shlex.quote(test)}"

    if "name" in values:
        # Other tests may use it, so only a run of all replaces it.
        for name in RECORDING:
            if name.endswith("_again"):
                terms[name] = terms[name].replace("<<test>>", "")

    if values.get("beside"):
        # Several cassettes are recorded one by one.
        for name in RECORDING:
            terms[name] = SHELL_TERMS[name]

    return settings_from(values, terms)


MARKER: Final = "mrtr_cassette"
"""The marker that says of a test what its cassette is."""

FIXTURES: Final[dict[str, Any]] = {
    "mrtr_cassette": pytest.Function,
    "mrtr_cassette_class": pytest.Class,
    "mrtr_cassette_module": pytest.Module,
    "mrtr_cassette_session": pytest.Session,
}
"""The fixtures that give a test its cassette, and what each one's cassette belongs to."""

_LONGEST_NAME = 120
"""Characters of a file name's readable part."""


def sources_of_markers(node: pytest.Item | pytest.Collector) -> list[OptionSource]:
    """Return what the markers of a test, class or module set, from the farthest to the nearest."""
    marks = reversed(list(node.iter_markers(MARKER)))
    return [
        source_of_call(f"the marker {MARKER}", mark.args, mark.kwargs) for mark in marks
    ]


def cassettes_of(items: Iterable[pytest.Item]) -> dict[Path, list[str]]:
    """Return the cassettes that tests have by their fixtures, with the tests that may record them.

    A test that plays several as one records none of them.
    """
    tests: dict[Path, list[str]] = {}
    for item in items:
        for fixture, kind in FIXTURES.items():
            if fixture not in getattr(item, "fixturenames", ()):
                continue

            # Outside of a class its fixture belongs to the test.
            node: Any = item.getparent(kind) or item
            try:
                paths = _paths_by_markers(node)
            except MrtrCassetteError:
                continue  # the test itself will say so

            for path in paths:
                tests.setdefault(path, [])

            if len(paths) == 1:
                tests[paths[0]].append(item.nodeid)

    return tests


def _paths_by_markers(node: Any) -> list[Path]:
    """Return the cassettes that a test, class or module has by its markers."""
    files: tuple[str | os.PathLike[str] | None, ...] = (None,)
    for source in sources_of_markers(node):
        files = source.files or files

    return [cassette_path(node, file) for file in files]


def hint_at_name(path: Path) -> str:
    """Return a line about what has a cassette written whose test does not pass."""
    return (
        "\na cassette with a name is written all the same: "
        f'@pytest.mark.mrtr_cassette("{path.name}")'
    )


def hint_at_rename(path: Path, used: Container[Path]) -> str:
    """Return a line about an unused cassette whose test may have been renamed, or nothing."""
    unused = {
        _short_name(file): file
        for file in path.parent.glob("*.json")
        if file not in used
    }

    for name in difflib.get_close_matches(_short_name(path), unused, n=1):
        old = unused[name]
        quoted_old = shlex.quote(str(old))
        quoted_path = shlex.quote(str(path))
        return (
            f"\nno test uses {old}; if this one was renamed: "
            f"mv {quoted_old} {quoted_path}"
        )

    return ""


def _short_name(path: Path) -> str:
    """Return a cassette's name without its ending and `test_`, to compare it with others."""
    return path.stem.removeprefix("test_")


def cassette_path(node: Any, name: str | os.PathLike[str] | None) -> Path:
    """Return the file of a test's, a class's, a module's or a whole run's cassette.

    Raises:
        CassetteError: no file may have the name.
    """
    folder = cassette_folder(node)
    if name is not None:
        # By `..` several names lead to one file, also if a folder in them doesn't exist.
        path = Path(os.path.normpath(folder / name))
        if path.suffix != ".json":
            path = path.with_name(f"{path.name}.json")

        check_name(journal_path(path))
        return path

    if isinstance(node, pytest.Session):
        return folder / "session.json"

    module = _module_path(node)
    if isinstance(node, pytest.Module):
        return folder / f"{module}.json"

    classes = [part for part in node.listchain() if isinstance(part, pytest.Class)]
    names = [part.name for part in classes]
    if not isinstance(node, pytest.Class):
        names.append(node.name)

    return folder / module / f"{file_name('.'.join(names))}.json"


def cassette_folder(node: Any) -> Path:
    """Return the folder of the cassettes of a test file, or of a whole run."""
    one_for_all = node.config.getini("mrtr_cassette_dir")
    if one_for_all:
        return Path(node.config.rootpath / one_for_all)
    if isinstance(node, pytest.Session):
        return Path(node.config.rootpath / "cassettes")

    return Path(node.path).parent / "cassettes"


def _module_path(node: Any) -> Path:
    """Return a test file as a part of its cassettes' path: two of one name are told apart."""
    path = Path(node.path).with_suffix("")
    root = node.config.rootpath
    if node.config.getini("mrtr_cassette_dir") and path.is_relative_to(root):
        return path.relative_to(root)

    return Path(path.name)


def file_name(name: str) -> str:
    """Return the name of a test's own cassette, without `.json`.

    `test_deploy[prod]` becomes `test_deploy-prod`. A hash follows where the readable part does not
    tell tests apart on every file system: other characters than ASCII letters, digits, `_`, `-`
    and `.`, capitals in a parameter, or a long name.
    """
    function, bracket, parameters = name.partition("[")
    plain = f"{function}-{parameters.removesuffix(']')}" if bracket else function
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", plain)[:_LONGEST_NAME]
    if safe == plain and parameters == parameters.lower():
        return plain

    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{safe}-{digest[:10]}"
