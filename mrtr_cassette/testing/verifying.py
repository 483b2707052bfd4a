"""Mode verify: the cassettes of the selected tests are held to their upstreams, and no test runs.

Rule: of a test's fixtures only the cassette is made; nothing of it that might need a server runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from mrtr_cassette.api import verify_with
from mrtr_cassette.core.report.comparison import Verification
from mrtr_cassette.errors import CassetteError
from mrtr_cassette.shell.files.cassettes import is_cassette
from mrtr_cassette.shell.runs.plays import Run, Settings, check_spelling, upstream_of
from mrtr_cassette.shell.runs.upstreams import is_on_pipes, start_upstream
from mrtr_cassette.testing.names import (
    FIXTURES,
    cassette_folder,
    cassette_path,
    paths_of,
)

VERIFIED: Final = {name: f"_{name}_verified" for name in FIXTURES}
"""The fixtures that verify, by those that they stand for, which a suite may wrap in its own."""
_UNVERIFIED: Final = "mrtr_cassette_unverified"


class Verifying:
    """Lets the selected tests be their cassettes; a plugin in mode verify."""

    def __init__(self) -> None:
        self._unverified: dict[str, str] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> Any:
        """Deselect the tests without a cassette, and leave the others no fixture but theirs."""
        told = paths_of(items)
        yield
        others: list[pytest.Item] = []
        with_cassette: list[pytest.Item] = []
        for item in items:
            names: list[str] = getattr(item, "fixturenames", [])
            kept = [VERIFIED[name] for name in FIXTURES if name in names]
            (with_cassette if kept else others).append(item)
            if kept:
                item.fixturenames = kept  # type: ignore[attr-defined]
                item.runtest = _nothing  # type: ignore[method-assign]
        self._unverified = _unverified(items, others, told)
        if others:
            config.hook.pytest_deselected(items=others)
            items[:] = with_cassette

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand on what a worker of pytest-xdist has found."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_UNVERIFIED] = self._unverified

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker of pytest-xdist has found."""
        self._unverified |= getattr(node, "workeroutput", {}).get(_UNVERIFIED, {})

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        """List the cassettes that were not verified."""
        if not self._unverified:
            return
        terminalreporter.section("mrtr-cassette: cassettes that were not verified")
        for path, reason in sorted(self._unverified.items()):
            terminalreporter.line(f"{_shown(path, config.rootpath)}: {reason}")
        terminalreporter.line(
            "mode verify runs no test; verify these with: mrtr-cassette verify CASSETTE UPSTREAM"
        )


def _nothing() -> None:
    """Be a test that does not run."""


def _unverified(
    items: Iterable[pytest.Item], others: Iterable[pytest.Item], told: set[Path]
) -> dict[str, str]:
    """Return the cassettes beside the selected tests that no fixture of theirs names, and why.

    Args:
        others: the selected tests that have no cassette by a fixture.
        told: the cassettes of all collected tests; one that is deselected was not wanted.
    """
    askers = {cassette_path(item, None): item.nodeid for item in others}
    folders = {cassette_folder(item) for item in items}
    found = {path for folder in folders for path in folder.rglob("*.json")} - told
    return {
        str(path): f"{askers[path]} asks for it while it runs"
        if path in askers
        else "no test has it by a fixture: one opens it by name while it runs, or none does"
        for path in found
        if path.is_file() and is_cassette(path)
    }


def _shown(path: str, root: Path) -> str:
    return str(Path(path).relative_to(root)) if Path(path).is_relative_to(root) else path


def verify_use(
    run: Run, path: Path, settings: Settings, ask_upstream: Callable[[], Any]
) -> Verification:
    """Hold an upstream to the cassette of a test.

    Args:
        ask_upstream: gives the upstream where the settings have none.
    """
    check_spelling(path)
    if not path.exists():
        raise CassetteError(
            path, "there is no such cassette to verify", hint="record it with --mrtr-mode=once"
        )
    upstream = upstream_of(settings, ask_upstream, f"hold to {path}")
    with ExitStack() as running:
        if is_on_pipes(upstream):
            return verify_with(path, upstream, settings.verify)
        started = start_upstream(upstream, run.applications, run.cwd, running)
        return verify_with(path, started.url, settings.verify, started.arguments or ())
