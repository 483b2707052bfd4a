"""What is done with the cassettes of a whole suite: verified, published, found unused."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import mkstemp
from typing import Any, Final

import pytest

from mrtr_cassette.core.report.comparison import Verification
from mrtr_cassette.errors import CassetteError
from mrtr_cassette.shell.files.cassettes import OPENED_VARIABLE, is_cassette
from mrtr_cassette.shell.runs.plays import Run, Settings, upstream_of
from mrtr_cassette.shell.runs.running import result_in_thread
from mrtr_cassette.shell.runs.shared_plays import Published, TestOutcome, publish_shared
from mrtr_cassette.shell.runs.upstreams import is_on_pipes, start_upstream
from mrtr_cassette.shell.runs.verifying import verify_cassette
from mrtr_cassette.testing.settings import FIXTURES, TERMS, cassette_folder, cassette_path, paths_of

VERIFIED: Final = {name: f"_{name}_verified" for name in FIXTURES}
"""The fixtures that verify, by those that they stand for, which a suite may wrap in its own."""
_UNVERIFIED: Final = "mrtr_cassette_unverified"
_FOUND: Final = "mrtr_cassette_found"


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
                item.runtest = lambda: None  # type: ignore[method-assign]
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
        for name, reason in sorted(self._unverified.items()):
            path, root = Path(name), config.rootpath
            shown = path.relative_to(root) if path.is_relative_to(root) else path
            terminalreporter.line(f"{shown}: {reason}")
        terminalreporter.line(
            "mode verify runs no test; verify these with: mrtr-cassette verify CASSETTE UPSTREAM"
        )


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


def verify_use(
    run: Run, path: Path, settings: Settings, ask_upstream: Callable[[], Any]
) -> Verification:
    """Hold an upstream to the cassette of a test."""
    if not path.exists():
        raise CassetteError(
            path, "there is no such cassette to verify", hint="record it with --mrtr-mode=once"
        )
    upstream = upstream_of(settings, ask_upstream, f"hold to {path}")
    with ExitStack() as running:
        command: tuple[str, ...] = ()
        if not is_on_pipes(upstream):
            started = start_upstream(upstream, run.applications, run.cwd, running)
            upstream, command = started.url, tuple(started.arguments or ())
        return result_in_thread(verify_cassette(path, upstream, settings.verify, command))


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
