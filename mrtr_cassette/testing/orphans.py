"""Cassettes that no test uses any more.

Rule: a file is removed only if the whole suite has run and passed.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from fnmatch import fnmatch
from pathlib import Path
from tempfile import mkstemp
from typing import Any

import pytest

from mrtr_cassette.shell.files.cassettes import OPENED_VARIABLE, is_cassette
from mrtr_cassette.testing.names import cassette_folder, paths_of

_FOUND = "mrtr_cassette_found"


class Orphans:
    """Finds cassettes that no collected test uses; a plugin where that is asked for."""

    def __init__(self, config: pytest.Config, action: str) -> None:
        """Begin with none.

        Args:
            action: `list`, `delete` or `fail`.
        """
        self._config = config
        self._action = action
        self._used: set[str] = set()
        self._folders: set[str] = set()
        self._orphans: list[Path] = []
        self._objection = narrowed_by(config)
        if OPENED_VARIABLE not in os.environ:
            # Workers of pytest-xdist, and all that tests start, have the variable too.
            file, os.environ[OPENED_VARIABLE] = mkstemp(prefix="mrtr-cassette-")
            os.close(file)

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        """Note what the tests use, also those that will be deselected."""
        self._folders |= {str(cassette_folder(item)) for item in items}
        self._used |= {str(path.resolve()) for path in paths_of(items)}
        yield

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Note that a test is left out."""
        if items:
            self._object(f"{items[0].nodeid} was deselected")

    @pytest.hookimpl(wrapper=True)
    def pytest_ignore_collect(
        self, collection_path: Path, config: pytest.Config
    ) -> Generator[None, bool | None, bool | None]:
        """Note that tests may be left out."""
        is_ignored = yield
        if is_ignored and left_out_at(collection_path, config):
            self._object(f"{collection_path} was ignored")
        return is_ignored

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note that a whole file is left out."""
        if report.skipped:
            self._object(f"{report.nodeid} was skipped at its collection")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note that a test did not open what it opens when it runs."""
        if report.skipped and (report.when == "setup" or not hasattr(report, "wasxfail")):
            self._object(f"{report.nodeid} was skipped")

    def _object(self, reason: str) -> None:
        self._objection = self._objection or reason

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker of pytest-xdist found."""
        output = getattr(node, "workeroutput", {})
        used, folders, objection = output.get(_FOUND, ((), (), "a worker did not end"))
        self._used |= set(used)
        self._folders |= set(folders)
        self._objection = self._objection or objection

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Add what was opened while the tests ran, and do what is asked for."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_FOUND] = (sorted(self._used), sorted(self._folders), self._objection)
            return
        opened = Path(os.environ.pop(OPENED_VARIABLE))
        self._used |= set(opened.read_text(encoding="utf-8").splitlines())
        opened.unlink()
        self._orphans = sorted(
            path
            for folder in self._folders
            for path in Path(folder).rglob("*.json")
            if path.is_file() and str(path.resolve()) not in self._used and is_cassette(path)
        )
        if self._action == "fail" and self._orphans and not exitstatus:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self._action == "delete":
            self._delete(exitstatus)

    def _delete(self, exitstatus: int) -> None:
        if exitstatus:
            self._objection = "not all tests passed"
        if self._objection is None:
            for path in self._orphans:
                path.unlink()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """List the orphans."""
        terminalreporter.section("mrtr-cassette: cassettes that no collected test uses")
        root = self._config.rootpath
        for path in self._orphans:
            shown = path.relative_to(root) if path.is_relative_to(root) else path
            is_gone = self._action == "delete" and not self._objection
            terminalreporter.line(f"{shown} (deleted)" if is_gone else str(shown))
        if not self._orphans:
            terminalreporter.line("none")
        elif self._action == "delete" and self._objection:
            terminalreporter.line(f"nothing was deleted: {self._objection}")


_NARROWING = ("deselect", "ignore", "ignore_glob", "lf", "stepwise", "collectonly")
"""The options that leave tests out, beside `-k` and `-m`, as pytest keeps them."""


def narrowed_by(config: pytest.Config) -> str | None:
    """Return what on the command line leaves tests out, or None."""
    options = {name: f"--{name.replace('_', '-')}" for name in _NARROWING}
    for name, option in {"keyword": "-k", "markexpr": "-m", **options}.items():
        if config.getoption(name, None):
            return f"{option} leaves tests out"
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        return "only the tests under the given paths were collected"
    return None


def left_out_at(path: Path, config: pytest.Config) -> bool:
    """Tell whether tests may be left out where pytest ignores a path, as `collect_ignore` says."""
    if path.is_file():
        return any(fnmatch(path.name, pattern) for pattern in config.getini("python_files"))
    patterns = ("__pycache__", *config.getini("norecursedirs"))
    is_passed_over = any(fnmatch(path.name, pattern) for pattern in patterns)
    return not is_passed_over and not (path / "pyvenv.cfg").exists()
