"""Which cassettes pytest's tests have: options by markers, files, and those that no test has."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import shlex
import sys
from collections.abc import Container, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import mkstemp
from typing import Any, Final, Literal

import pytest

from mrtr_cassette.errors import MrtrCassetteError
from mrtr_cassette.shell.files.cassettes import (
    OPENED_VARIABLE,
    is_cassette,
    journal_path,
)
from mrtr_cassette.shell.files.disk import check_file_name
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
    option_source_of_call,
    settings_from,
)
from mrtr_cassette.testing.suite_cassette import Settings, TestOutcome


def settings_of(
    sources: Sequence[OptionSource],
    pytest_argument: str = "",
    *,
    scope: str = "function",
    has_upstream: bool = True,
) -> Settings:
    """Return the settings that several places give a test, from the farthest to the nearest.

    Args:
        pytest_argument: what pytest is given to run the test again.
        scope: that of the fixture, which reads the markers of what it belongs to.
        has_upstream: the suite may name an upstream elsewhere.
    """
    options = combined_options(sources, SUITE_TERMS)
    terms = {**SUITE_TERMS, **TERMS_BY_SCOPE.get(scope, {}), "test": ""}
    if not has_upstream and "upstream" not in options:
        terms = without_upstream(terms)

    if pytest_argument:
        terms["test"] = f" {shlex.quote(pytest_argument)}"

    if "name" in options:
        # Other tests may use it, so only a run of all replaces it.
        for name in RECORDING:
            if name.endswith("_again"):
                terms[name] = terms[name].replace("<<test>>", "")

    if options.get("beside"):
        # Several cassettes are recorded one by one.
        for name in RECORDING:
            terms[name] = SHELL_TERMS[name]

    return settings_from(options, terms)


MARKER: Final = "mrtr_cassette"
"""The marker that says of a test what its cassette is."""

NODE_KINDS_BY_FIXTURE: Final[dict[str, Any]] = {
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
    sources = []
    for mark in marks:
        sources.append(
            option_source_of_call(f"the marker {MARKER}", mark.args, mark.kwargs)
        )

    return sources


def cassettes_of(items: Iterable[pytest.Item]) -> dict[Path, list[str]]:
    """Return the cassettes that tests have by their fixtures, with the tests that may record them.

    A test that plays several as one records none of them.
    """
    tests_by_cassette: dict[Path, list[str]] = {}
    for item in items:
        for fixture, kind in NODE_KINDS_BY_FIXTURE.items():
            if fixture not in getattr(item, "fixturenames", ()):
                continue

            # Outside of a class its fixture belongs to the test.
            node: Any = item.getparent(kind) or item
            try:
                paths = _paths_by_markers(node)
            except MrtrCassetteError:
                continue  # the test itself will say so

            for path in paths:
                tests_by_cassette.setdefault(path, [])

            if len(paths) == 1:
                tests_by_cassette[paths[0]].append(item.nodeid)

    return tests_by_cassette


def names_of_several(items: Iterable[pytest.Item]) -> set[str]:
    """Return the names that tests with other parameters have too: `a-b` and `c`, `a` and `b-c`."""
    parameters_by_name: dict[str, Mapping[str, int]] = {}
    names = set()
    for item in items:
        parameters = getattr(item, "callspec", None)
        if parameters is None:
            continue

        known = parameters_by_name.setdefault(item.nodeid, parameters.indices)
        if known != parameters.indices:
            names.add(item.nodeid)

    return names


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


def hint_at_rename(path: Path, used_paths: Container[Path]) -> str:
    """Return a line about an unused cassette whose test may have been renamed, or nothing."""
    unused_by_short_name = {
        _short_name(file): file
        for file in path.parent.glob("*.json")
        if file not in used_paths
    }

    for name in difflib.get_close_matches(_short_name(path), unused_by_short_name, n=1):
        unused_path = unused_by_short_name[name]
        quoted_unused = shlex.quote(str(unused_path))
        quoted_path = shlex.quote(str(path))
        return (
            f"\nno test uses {unused_path}; if this one was renamed: "
            f"mv {quoted_unused} {quoted_path}"
        )

    return ""


def hint_at_faked_files(node: Any) -> str:
    """Return a line about pyfakefs, where a test uses it, or nothing."""
    has_fixture = "fs" in getattr(node, "fixturenames", ())
    if not has_fixture or "pyfakefs" not in sys.modules:
        return ""

    return (
        "\nthe fixture fs fakes the file system of this test, cassettes too: request "
        "mrtr_cassette before fs to replay it, and record it without fs"
    )


def hint_at_xfail(node: Any, path: Path) -> str:
    """Return a line about a missing cassette of a test that is expected to fail, or nothing."""
    is_own = isinstance(node, pytest.Item) and path == cassette_path(node, None)
    if not is_own or node.get_closest_marker("xfail") is None:
        return ""

    return (
        "\nthis test is expected to fail, and a test's own cassette is written when it passes"
        f"{hint_at_name(path)}"
    )


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

        check_file_name(journal_path(path))
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
    common_folder = node.config.getini("mrtr_cassette_dir")
    if common_folder:
        return Path(node.config.rootpath / common_folder)
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
    plain_name = f"{function}-{parameters.removesuffix(']')}" if bracket else function
    safe_name = re.sub(r"[^A-Za-z0-9_.-]+", "-", plain_name)[:_LONGEST_NAME]
    if safe_name == plain_name and parameters == parameters.lower():
        return plain_name

    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{safe_name}-{digest[:10]}"


def shown_path(path: Path, config: pytest.Config) -> Path:
    """Return a path as the root directory names it, if it is in there."""
    root = config.rootpath
    return path.relative_to(root) if path.is_relative_to(root) else path


# Cassettes that no test has


def opens_by_name(item: pytest.Item) -> bool:
    """Tell whether a test may open cassettes whose names are unknown until then."""
    return "mrtr_cassettes" in getattr(item, "fixturenames", ())


def given_up_outcome(report: pytest.TestReport) -> Literal["skipped", "xfailed"] | None:
    """Return whether a test was skipped or failed as expected; None if neither."""
    if not report.skipped:
        return None
    return "xfailed" if hasattr(report, "wasxfail") else "skipped"


def note_outcome(outcomes: dict[str, TestOutcome], report: pytest.TestReport) -> None:
    """Note a test's outcome; one that is run again has the outcome of its last attempt.

    A test with a failed subtest failed; else its own report counts, which comes last.
    """
    test = report.nodeid
    if report.failed:
        outcomes[test] = "failed"
    if outcomes.get(test) == "failed":
        return

    given_up = given_up_outcome(report)
    if given_up is not None:
        outcomes[test] = given_up
    elif report.passed and report.when == "call":
        outcomes[test] = "passed"


_UNKNOWN_PREFIX = "unknown:"
"""Begins a line about cassettes whose paths are unknown."""

_OPENER_PREFIX = "opener:"
"""Begins a line with a test that opens cassettes whose names are known when it has run."""


class Orphans:
    """Finds cassettes that no collected test uses; a plugin where that is asked for."""

    def __init__(self, config: pytest.Config, *, fails: bool) -> None:
        """Begin with none; with `fails` an orphan makes the run fail."""
        self._config = config
        self._fails_on_orphans = fails
        self._orphaned_cassettes: list[Path] = []
        self._test_outcomes: dict[str, TestOutcome] = {}
        self._why_unused_unknown: str | None = None
        """Why it is unknown which cassettes are used, as a clause."""
        # Workers of pytest-xdist, and all that tests start, have the variable too.
        self._is_first_process = OPENED_VARIABLE not in os.environ
        if self._is_first_process:
            file, os.environ[OPENED_VARIABLE] = mkstemp(prefix="mrtr-cassette-")
            os.close(file)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, items: list[pytest.Item]
    ) -> Generator[None]:
        """Note what the tests use, also those that are deselected, and the folders of it.

        What a test opens by name is known when it has run.
        """
        self._note_lines({f"{cassette_folder(item)}/" for item in items})
        self._note_lines(str(path.resolve()) for path in cassettes_of(items))
        openers = tuple(filter(opens_by_name, items))
        yield
        selected = set(items)
        for item in openers:
            if item in selected:
                self._note_lines([f"{_OPENER_PREFIX}{item.nodeid}"])
            else:
                self._note_lines([f"{_UNKNOWN_PREFIX}{item.nodeid} was deselected"])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note that the cassettes of a file are unknown."""
        if not report.passed:
            self._note_lines([f"{_UNKNOWN_PREFIX}{report.nodeid} was not collected"])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test's outcome: one that has not passed may have left out to open cassettes."""
        note_outcome(self._test_outcomes, report)

    def _note_lines(self, lines: Iterable[str]) -> None:
        """Add lines to the file that all processes of the run share."""
        with Path(os.environ[OPENED_VARIABLE]).open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Look for the cassettes that were neither noted nor opened while the tests ran."""
        if not self._is_first_process:
            return

        opened_file = Path(os.environ.pop(OPENED_VARIABLE))
        used_paths = set(opened_file.read_text(encoding="utf-8").splitlines())
        opened_file.unlink()
        self._why_unused_unknown = self._why_unknown(used_paths)
        if self._why_unused_unknown is not None:
            return

        orphans = set()
        for folder in used_paths:
            if folder.endswith("/"):
                orphans.update(_unused_in(Path(folder), used_paths))

        self._orphaned_cassettes = sorted(orphans)
        if self._fails_on_orphans and self._orphaned_cassettes and not exitstatus:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _why_unknown(self, noted_lines: Iterable[str]) -> str | None:
        """Return why it is unknown which cassettes are used; None if it is known."""
        if self._config.getoption("collectonly"):
            return "no test was run"

        for line in sorted(noted_lines):
            if line.startswith(_UNKNOWN_PREFIX):
                return line.removeprefix(_UNKNOWN_PREFIX)
            if not line.startswith(_OPENER_PREFIX):
                continue

            test = line.removeprefix(_OPENER_PREFIX)
            outcome = self._test_outcomes.get(test, "not run")
            if outcome == "failed":
                return f"{test} failed"
            if outcome != "passed":
                return f"{test} was {outcome}"

        return None

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """List the orphans."""
        terminalreporter.section("mrtr-cassette: cassettes that no collected test uses")
        for path in self._orphaned_cassettes:
            terminalreporter.line(str(shown_path(path, self._config)))

        if self._why_unused_unknown is not None:
            terminalreporter.line(f"unknown: {self._why_unused_unknown}")
        elif not self._orphaned_cassettes:
            terminalreporter.line("none")


def _unused_in(folder: Path, used_paths: Container[str]) -> list[Path]:
    """Return the cassettes in a folder whose paths are not among those used."""
    unused = []
    for path in folder.rglob("*.json"):
        is_used = str(path.resolve()) in used_paths
        if path.is_file() and not is_used and is_cassette(path):
            unused.append(path)

    return unused
