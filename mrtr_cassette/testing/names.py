"""Where the cassettes of tests stand, under names that every file system tells apart."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from mrtr_cassette.errors import MrtrCassetteError
from mrtr_cassette.shell.runs.shared_plays import Sharers
from mrtr_cassette.testing.settings import Place, place_of_call

MARKER: Final = "mrtr_cassette"
"""The marker that says of a test what its cassette is."""

FIXTURES: Final[dict[str, Any]] = {
    "mrtr_cassette": pytest.Function,
    "mrtr_cassette_class": pytest.Class,
    "mrtr_cassette_module": pytest.Module,
}
"""The fixtures that give a test its cassette, and what each one's cassette belongs to."""

_LONGEST_NAME = 120
"""Characters of a file name's readable part; file systems take 255 bytes."""


def marked(node: pytest.Item | pytest.Collector) -> list[Place]:
    """Return what the markers of a test, class or module set, from the farthest to the nearest."""
    marks = reversed(list(node.iter_markers(MARKER)))
    return [place_of_call(f"the marker {MARKER}", mark.args, mark.kwargs) for mark in marks]


def paths_of(items: Iterable[pytest.Item]) -> set[Path]:
    """Return the cassettes that tests have by their fixtures; not those that they open by name."""
    return {path for item in items for path in _paths(item)}


def _paths(item: pytest.Item) -> Iterator[Path]:
    for fixture, kind in FIXTURES.items():
        if fixture not in getattr(item, "fixturenames", ()):
            continue
        # Outside of a class its fixture belongs to the test.
        node: Any = item.getparent(kind) or item
        try:
            given = [place.values.get("name") for place in marked(node)]
        except MrtrCassetteError:
            continue  # the test itself will say so
        named = [name for name in given if name is not None]
        yield cassette_path(node, named[-1] if named else None)


def sharers_of(
    collected: Iterable[pytest.Item], selected: Iterable[pytest.Item]
) -> dict[Path, Sharers]:
    """Return which tests have which cassette by their fixtures.

    Args:
        collected: all tests, in their order.
        selected: those that run.
    """
    runs = {item.nodeid for item in selected}
    tests: dict[Path, list[str]] = {}
    for item in collected:
        for path in _paths(item):
            tests.setdefault(path, []).append(item.nodeid)
    return {
        path: Sharers(
            tuple(test for test in each if test in runs),
            tuple(test for test in each if test not in runs),
        )
        for path, each in tests.items()
    }


def hint_at_rename(path: Path, items: Iterable[pytest.Item]) -> str:
    """Return a line about a cassette that may be that of a test which was renamed, or nothing."""
    used = paths_of(items)
    unused = {_own_name(each): each for each in path.parent.glob("*.json") if each not in used}
    for name in difflib.get_close_matches(_own_name(path), unused, n=1):
        old = unused[name]
        return f"\nno test uses {old}; if this one was renamed: mv {old} {path}"
    return ""


def _own_name(path: Path) -> str:
    """Return what tells a test's cassette from others."""
    return path.stem.removeprefix("test_")


def cassette_path(node: Any, name: str | os.PathLike[str] | None) -> Path:
    """Return the file of a test's, a class's or a module's cassette."""
    folder = cassette_folder(node)
    if name is not None:
        path = folder / name
        return path if path.suffix == ".json" else path.with_name(f"{path.name}.json")
    module = _module(node)
    if isinstance(node, pytest.Module):
        return folder / f"{module}.json"
    names = [part.name for part in node.listchain() if isinstance(part, pytest.Class)]
    if not isinstance(node, pytest.Class):
        names.append(node.name)
    return folder / module / f"{file_name('.'.join(names))}.json"


def cassette_folder(node: Any) -> Path:
    """Return where the cassettes of a test file stand."""
    one_for_all = node.config.getini("mrtr_cassette_dir")
    if one_for_all:
        return Path(node.config.rootpath / one_for_all)
    return Path(node.path).parent / "cassettes"


def _module(node: Any) -> Path:
    """Return a test file as a part of its cassettes' path: two of one name are told apart."""
    path, root = Path(node.path).with_suffix(""), node.config.rootpath
    if node.config.getini("mrtr_cassette_dir") and path.is_relative_to(root):
        return path.relative_to(root)
    return Path(path.name)


def file_name(name: str) -> str:
    """Return the name of a test's own cassette, without `.json`.

    `test_deploy[prod]` becomes `test_deploy-prod`. A hash follows where the readable part does not
    tell tests apart on every file system: other characters than ASCII letters, digits, `_`, `-`
    and `.`, capitals in a parameter, or a long name.

    Args:
        name: the test's name with its classes and parameters.
    """
    function, bracket, parameters = name.partition("[")
    plain = f"{function}-{parameters.removesuffix(']')}" if bracket else function
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "-", plain)[:_LONGEST_NAME]
    if safe == plain and parameters == parameters.lower():
        return plain
    return f"{safe}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"
