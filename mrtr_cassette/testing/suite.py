"""What is done with the cassettes of a whole suite: published, found unused."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from pathlib import Path
from tempfile import mkstemp
from typing import Any, Final

import pytest

from mrtr_cassette.shell.files.cassettes import OPENED_VARIABLE, is_cassette
from mrtr_cassette.shell.runs.shared_plays import Published, TestOutcome, publish_shared
from mrtr_cassette.testing.settings import TERMS, cassette_folder, paths_of

_FOUND: Final = "mrtr_cassette_found"

_NARROWING = ("deselect", "ignore", "ignore_glob", "lf", "stepwise", "collectonly")
"""The options that leave tests out, beside `-k` and `-m`, as pytest keeps them."""


def publish_suite(
    config: pytest.Config, folder: Path, outcomes: Mapping[str, TestOutcome]
) -> list[Published]:
    """Publish what the tests of a run recorded for cassettes that they share."""
    return publish_shared(folder, outcomes, _narrowed_by(config), TERMS)


def _narrowed_by(config: pytest.Config) -> str | None:
    """Return what on the command line leaves tests out, or None."""
    options = {name: f"--{name.replace('_', '-')}" for name in _NARROWING}
    for name, option in {"keyword": "-k", "markexpr": "-m", **options}.items():
        if config.getoption(name, None):
            return f"{option} leaves tests out"
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        return "only the tests under the given paths were collected"
    return None


class Orphans:
    """Finds cassettes that no collected test uses; a plugin where that is asked for."""

    def __init__(self, config: pytest.Config, *, fails: bool) -> None:
        """Begin with none; with `fails` an orphan makes the run fail."""
        self._config = config
        self._fails = fails
        self._used: set[str] = set()
        self._folders: set[str] = set()
        self._orphans: list[Path] = []
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

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker of pytest-xdist found."""
        used, folders = getattr(node, "workeroutput", {}).get(_FOUND, ((), ()))
        self._used |= set(used)
        self._folders |= set(folders)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Add what was opened while the tests ran, and look for the others."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_FOUND] = (sorted(self._used), sorted(self._folders))
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
        if self._fails and self._orphans and not exitstatus:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """List the orphans."""
        terminalreporter.section("mrtr-cassette: cassettes that no collected test uses")
        root = self._config.rootpath
        for path in self._orphans:
            shown = path.relative_to(root) if path.is_relative_to(root) else path
            terminalreporter.line(str(shown))
        if not self._orphans:
            terminalreporter.line("none")
