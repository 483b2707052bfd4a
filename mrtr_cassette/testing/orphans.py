"""Cassettes that no test uses any more.

Owns: which cassettes of a run's folders are no test's, and what becomes of them.
Does not own: which cassettes a test has (`names`), which were opened by name (`uses`).
Rule: a file is removed only if the whole suite has run and passed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mrtr_cassette.shell.cassette_file import is_cassette
from mrtr_cassette.testing.names import cassette_folder, paths_of
from mrtr_cassette.testing.uses import uses_of

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
        self._objection = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note what the tests use, also those that will be deselected."""
        self._folders |= {str(cassette_folder(item)) for item in items}
        self._used |= {str(path) for path in paths_of(items)}

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker of pytest-xdist found."""
        used, folders = getattr(node, "workeroutput", {}).get(_FOUND, ((), ()))
        self._used |= set(used)
        self._folders |= set(folders)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Add what was opened by name while the tests ran, and do what is asked for."""
        uses = uses_of(session.config)
        if uses is not None:
            self._used |= {str(path) for path in uses.opened}
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_FOUND] = (sorted(self._used), sorted(self._folders))
            return
        self._orphans = sorted(
            path
            for folder in self._folders
            for path in Path(folder).rglob("*.json")
            if path.is_file() and str(path) not in self._used and is_cassette(path)
        )
        if self._action == "fail" and self._orphans and not exitstatus:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self._action == "delete":
            self._delete(exitstatus)

    def _delete(self, exitstatus: int) -> None:
        if exitstatus:
            self._objection = "not all tests passed"
        elif self._config.args_source is pytest.Config.ArgsSource.ARGS:
            self._objection = "only the tests under the given paths were collected"
        else:
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
        elif self._objection:
            terminalreporter.line(f"nothing was deleted: {self._objection}")
