"""The cassettes that a test run uses, and which test fails for what.

Rule: a cassette is concluded when all tests that use it are over, teardown included.
"""

from __future__ import annotations

import sys
import unittest
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pytest
from _pytest._code.code import ExceptionChainRepr, ReprEntryNative

from mrtr_cassette.core.report.runs import unused_text
from mrtr_cassette.shell.runs.plays import CassetteUse, Mode, Run
from mrtr_cassette.testing.cassette import MrtrCassette

if TYPE_CHECKING:
    from mrtr_cassette.testing.failure_pages import FailurePages

_USES: Final = pytest.StashKey["Uses"]()
_NO_FAILURES: Final = (pytest.skip.Exception, pytest.xfail.Exception, unittest.SkipTest)


class MrtrCassetteWarning(pytest.PytestWarning):
    """A test recorded nothing, replays what is old, or has answers that nothing asked for."""


def uses_of(config: pytest.Config) -> Uses | None:
    """Return the cassettes that a run has used so far; None where it has used none."""
    return config.stash.get(_USES, None)


def _tell(config: pytest.Config, text: str) -> None:
    """Say something at once, past what captures output."""
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    with nullcontext() if capture is None else capture.global_and_fixture_disabled():
        print(f"mrtr-cassette: {text}", file=sys.stderr, flush=True)  # noqa: T201  not a log


class Uses:
    """Follows which cassettes a run uses; a plugin from the first one on.

    Attributes:
        run: what the cassettes share.
    """

    def __init__(
        self,
        config: pytest.Config,
        mode: Mode,
        folder: Callable[[], Path],
        counts: Counter[str],
    ) -> None:
        """Begin with none.

        Args:
            config: that of the run, which has this plugin from now on.
            folder: makes the folder in which the run keeps what is recorded for shared cassettes.
            counts: takes what became of each cassette.
        """
        self.run = Run(mode, config.rootpath, partial(_tell, config), folder)
        self._uses: dict[CassetteUse, tuple[MrtrCassette, Any, str | None]] = {}
        self._counts = counts
        self._plays_all: bool = config.getoption("mrtr_fail_on_unplayed")
        self._pages: FailurePages | None = None
        if config.getoption("mrtr_view"):
            # A run that wants no pages has no use for all that they are made by.
            from mrtr_cassette.testing.failure_pages import FailurePages

            self._pages = FailurePages(config.rootpath)
        config.stash[_USES] = self
        config.pluginmanager.register(self, "mrtr-cassette-uses")

    def add(self, use: CassetteUse, shown: MrtrCassette, node: Any, fixture: str | None) -> None:
        """Take a use that has begun, with the test, class or module and the fixture that has it."""
        self._uses[use] = (shown, node, fixture)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note which cassettes a test has that did not pass, and show its misses with it."""
        report = yield
        if report.passed:
            return report
        uses = self._used_by(item)
        is_skipped = call.excinfo is not None and isinstance(
            call.excinfo.value, pytest.skip.Exception
        )
        if self._pages is not None and not is_skipped:
            self._pages.write(item.nodeid, uses)
            self._pages.tell(report)
        if not report.failed:
            self._give_up(item, "xfailed" if hasattr(report, "wasxfail") else "skipped")
        for use in uses:
            use.failed = use.failed or report.failed
            if is_skipped:
                continue
            output = use.upstream_output
            if output is not None:
                report.sections.append(("mrtr-cassette: output of the upstream", output))
            misses = use.unreported_misses()
            if misses is not None:
                _with_misses_first(report, misses)
        return report

    def _used_by(self, item: pytest.Item) -> list[CassetteUse]:
        chain = item.listchain()
        names = getattr(item, "fixturenames", ())
        return [
            use
            for use, (_, node, fixture) in self._uses.items()
            if node is item or (node in chain and fixture in names)
        ]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        """Publish what a test recorded, and fail it for requests without a recorded answer.

        By now the fixtures are torn down: the client has closed.
        """
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:  # noqa: BLE001  it is raised again
            error = raised
        misses = [use.unreported_misses() for use in self._uses]
        problems = [text for text in misses if text is not None]
        if problems and self._pages is not None:
            self._pages.write(item.nodeid, self._used_by(item))
        if isinstance(error, _NO_FAILURES):
            self._give_up(
                item, "xfailed" if isinstance(error, pytest.xfail.Exception) else "skipped"
            )
        is_failed = error is not None and not isinstance(error, _NO_FAILURES)
        objections, warnings = self._conclude(item, passed=not is_failed and not problems)
        problems += objections
        for warning in [] if problems else warnings:
            item.warn(MrtrCassetteWarning(warning))
        if problems and (error is None or isinstance(error, _NO_FAILURES)):
            pytest.fail("\n\n".join(problems), pytrace=False)
        if error is not None:
            for problem in problems:
                error.add_note(problem)
            raise error

    def _give_up(self, item: pytest.Item, outcome: Literal["skipped", "xfailed"]) -> None:
        for use in self._used_by(item):
            use.given_up = outcome

    def _conclude(self, item: pytest.Item, *, passed: bool) -> tuple[list[str], list[str]]:
        """Conclude the uses that are stopped; return what is wrong, and what to warn of."""
        problems: list[str] = []
        warnings: list[str] = []
        for use in self._uses:
            use.test_ended(item.nodeid)
        for use in [use for use in self._uses if use.is_stopped]:
            shown, node, _ = self._uses.pop(use)
            # What tests share, the end of the run decides on: some may be run again.
            passes = node is not item or (passed and not use.failed)
            objections = use.conclude(passed=passes, plays_all=self._plays_all)
            problems += objections
            self._count(use)
            if passes and not objections:
                warnings += use.warnings
                if shown.unused_answers and use.given_up is None:
                    warnings.append(unused_text(shown.unused_answers))
        return problems, warnings

    def _count(self, use: CassetteUse) -> None:
        if use.outcome is not None:
            self._counts[use.outcome] += 1

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self) -> Generator[None, None, None]:
        """Conclude what an interrupted run left, and stop the applications."""
        try:
            yield
        finally:
            while self._uses:
                use, _ = self._uses.popitem()
                use.stop()
                use.conclude(passed=False)
                self._count(use)
            self.run.applications.close()


def _with_misses_first(report: pytest.TestReport, text: str) -> None:
    """Show misses before the traceback of a failed test, and their headline in the short summary.

    What the client made of its error comes below, as the traceback of a library is long.

    Args:
        text: what was missed; its first line is the headline.
    """
    shown = report.longrepr
    if not isinstance(shown, ExceptionChainRepr):
        report.sections.append(("mrtr-cassette: misses", text))
        return
    first = shown.chain[0][0]
    first.reprentries = [ReprEntryNative([f"{text}\n\n"]), *first.reprentries]
    if shown.reprcrash is not None:
        shown.reprcrash.message = text.partition("\n")[0]
