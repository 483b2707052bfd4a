"""The cassettes of a test run: open them, fail tests for them, write the pages of failed tests."""

from __future__ import annotations

import os
import unittest
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, NoReturn

import pytest
from _pytest._code.code import ExceptionChainRepr, ReprEntryNative

from mrtr_cassette.core.report.coverage import GivenAnswer, given_answers
from mrtr_cassette.core.report.details import Redaction, redaction_lines
from mrtr_cassette.core.report.runs import (
    InteractionOutcome,
    ReplayReport,
    learned_lines,
)
from mrtr_cassette.errors import CassetteError, MrtrCassetteError, UsageError
from mrtr_cassette.options import Mode
from mrtr_cassette.shell.files.reports import write_page
from mrtr_cassette.shell.runs.views import MrtrCassette
from mrtr_cassette.terms import SUITE_TERMS
from mrtr_cassette.testing.names import (
    MARKER,
    cassette_path,
    cassettes_of,
    given_up_outcome,
    hint_at_faked_files,
    hint_at_name,
    hint_at_rename,
    hint_at_xfail,
    names_of_several,
    note_outcome,
    opens_by_name,
    settings_of,
    shown_path,
    sources_of_markers,
)
from mrtr_cassette.testing.settings import OptionSource, option_source_of_call
from mrtr_cassette.testing.suite_cassette import (
    CassetteUse,
    Settings,
    SuiteContext,
    TestOutcome,
    UseRequest,
)
from mrtr_cassette.testing.suite_replay import begin_use

_NOT_A_FAILURE: Final = (
    pytest.skip.Exception,
    pytest.xfail.Exception,
    unittest.SkipTest,
)
_HAS_CASSETTE: Final = ("replayed", "recorded", "added to", "same, kept")
"""The outcomes of a use after which its cassette is there."""

_PAGES_FOLDER: Final = "mrtr-view"
"""The folder of the pages, in the root directory; a job uploads it as an artifact."""

_PAGE_TITLE: Final = "mrtr-cassette: page"


class MrtrCassetteWarning(pytest.PytestWarning):
    """A test recorded nothing, replays what is old, or has answers that nothing asked for."""


class _Fixture(NamedTuple):
    """The fixture that opened a cassette, and the test, class or module that it belongs to."""

    node: Any
    name: str | None


class _TestSettings:
    """What the uses of tests are given by the ini file, the suite and nearer places."""

    def __init__(
        self,
        config: pytest.Config,
        mode: Mode,
        ini: Mapping[str, Any],
        *,
        is_mode_given: bool,
    ) -> None:
        self._config = config
        self._run_mode = mode
        self._is_mode_given = is_mode_given
        self._ini_source = OptionSource("the ini file", ini)

    def mode_of_use(self, settings: Settings) -> Mode:
        """Return the mode that a test's settings say, unless the run is given one."""
        if settings.mode is not None and not self._is_mode_given:
            return settings.mode
        return self._run_mode

    def settings_of_request(
        self,
        request: pytest.FixtureRequest,
        find_sources: Callable[[], list[OptionSource]],
    ) -> Settings:
        """Return the settings from the ini file, the suite's fixture and nearer places."""
        suite_options = request.getfixturevalue("mrtr_cassette_config")
        if not isinstance(suite_options, dict):
            problem = f"the fixture mrtr_cassette_config returns {suite_options!r}, and not a dict"
            raise UsageError(problem)

        suite_source = OptionSource("the fixture mrtr_cassette_config", suite_options)
        pytest_argument = _pytest_argument_of(
            self._config.invocation_params.dir, request.node
        )
        has_upstream = _has_upstream_fixture(request)
        sources_with_texts = []
        for source in [self._ini_source, suite_source, *find_sources()]:
            sources_with_texts.append(_with_fixtures(source, request))

        return settings_of(
            sources_with_texts,
            pytest_argument,
            scope=request.scope,
            has_upstream=has_upstream,
        )


class _Sharers:
    """The tests that have the same cassette, or the same name, of all that were collected."""

    def __init__(self) -> None:
        self._tests_by_cassette: dict[Path, list[str]] = {}
        self._names_of_several: set[str] | None = None

    def sharers_of(
        self, request: pytest.FixtureRequest, path: Path, settings: Settings
    ) -> list[str] | None:
        """Return the tests that share a cassette; None if it is a test's own."""
        is_of_test = request.scope == "function"
        if is_of_test and settings.name is None:
            self._refuse_name_of_several(request)
            return None

        sharers = list(self.tests_of(request.session).get(path, []))
        if is_of_test:
            sharers.append(request.node.nodeid)

        return sharers

    def _refuse_name_of_several(self, request: pytest.FixtureRequest) -> None:
        """Make sure that a test's own cassette is that of no other test.

        Raises:
            UsageError: another test has its name.
        """
        if self._names_of_several is None:
            self._names_of_several = names_of_several(request.session.items)

        name = request.node.nodeid
        if name in self._names_of_several:
            raise UsageError(
                f"two tests are called {name}",
                hint="give one of them another id, or name their cassette in the marker",
            )

    def tests_of(self, session: pytest.Session) -> Mapping[Path, list[str]]:
        """Return the cassettes that the tests of the run have, found once, with these tests."""
        if not self._tests_by_cassette:
            self._tests_by_cassette = cassettes_of(session.items)

        return self._tests_by_cassette


class UseResults:
    """What the cassettes of a run came to, for its summary.

    Attributes:
        notes: what redaction replaced in the cassettes that were written, and what replays of
            others learned, in lines for people.
        answers: what was answered to the questions in the cassettes of the run.
    """

    def __init__(self, config: pytest.Config, counts: Counter[str]) -> None:
        self.notes: list[str] = []
        self.answers: set[GivenAnswer] = set()
        self._config = config
        self._outcome_counts = counts
        self._noted_paths: set[Path] = set()

    def count_outcome(self, outcome: str | None) -> None:
        """Count the outcome of a cassette, unless it is None and the end of the run decides."""
        if outcome is not None:
            self._outcome_counts[outcome] += 1

    def note_use(self, use: CassetteUse) -> None:
        """Note what a use with a good end came to."""
        self._note_answers(use)
        self._note_matches(use)

    def _note_answers(self, use: CassetteUse) -> None:
        """Note which answers a cassette has, once in a run."""
        if use.outcome in _HAS_CASSETTE and use.path not in self._noted_paths:
            self._noted_paths.add(use.path)
            self.answers.update(given_answers(use.view.interactions))

    def _note_matches(self, use: CassetteUse) -> None:
        """Note by what requests matched, and what they taught."""
        results = use.view.results
        for name, times in results.matched.items():
            self._outcome_counts[f"matched by {name}"] += times

        path_text = shown_path(use.path, self._config)
        for line in learned_lines(results.learned):
            self.notes.append(f"{path_text}: {line}")

    def note_redacted(self, path: Path, redacted: tuple[Redaction, ...]) -> None:
        """Note what redaction replaced in a cassette, in lines for people."""
        path_text = shown_path(path, self._config)
        self.notes += [f"{path_text}: {line}" for line in redaction_lines(redacted)]


class CassetteUses:
    """Opens the cassettes of a run and follows them; a plugin from the first one on."""

    def __init__(
        self,
        config: pytest.Config,
        mode: Mode,
        counts: Counter[str],
        option_matches: Counter[str],
        ini: Mapping[str, Any],
        *,
        is_mode_given: bool,
    ) -> None:
        """Begin with none.

        `counts` takes what becomes of each cassette, and how often requests matched that were not
        equal; `option_matches` in how many tests each value of an option matched.
        With `is_mode_given` the mode holds whatever a test's settings say.
        """
        self._config = config
        is_worker = hasattr(config, "workerinput")
        self._suite_run = SuiteContext(config.rootpath, is_worker, option_matches)
        self._test_settings = _TestSettings(
            config, mode, ini, is_mode_given=is_mode_given
        )
        self._sharers = _Sharers()
        self.results = UseResults(config, counts)
        self._fixtures_by_use: dict[CassetteUse, _Fixture] = {}
        self._test_outcomes: dict[str, TestOutcome] = {}
        self._named_by_tests: set[Path] = set()
        """The cassettes of `mrtr_cassettes`: their names are known when tests open them."""
        self._plays_all: bool = config.getoption("mrtr_fail_on_unplayed")
        self._writes_pages: bool = bool(config.getoption("mrtr_view"))
        config.pluginmanager.register(self, "mrtr-cassette-uses")

    # Opening cassettes for fixtures

    def opened_cassette(self, request: pytest.FixtureRequest) -> Iterator[MrtrCassette]:
        """Record or replay the cassette that the marker names, for the tests of a scope."""
        use = self._begin_use(request, lambda: sources_of_markers(request.node))
        yield use.view
        use.stop()

    def cassette_opener(
        self, request: pytest.FixtureRequest
    ) -> Iterator[Callable[..., MrtrCassette]]:
        """Give what opens cassettes by name."""
        exit_stack = ExitStack()

        def open_by_name(*name: Any, **options: Any) -> MrtrCassette:
            """Record or replay the cassette of this name until the fixture is torn down."""

            def source_of_this_call() -> list[OptionSource]:
                if not name:
                    raise UsageError("mrtr_cassettes needs the name of a file")
                return [option_source_of_call("mrtr_cassettes", name, options)]

            use = self._begin_use(request, source_of_this_call)
            exit_stack.callback(use.stop)
            self._named_by_tests.add(use.path)
            return use.view

        # One that can't be stopped keeps none of the others running.
        with exit_stack:
            yield open_by_name

    def _begin_use(
        self,
        request: pytest.FixtureRequest,
        find_sources: Callable[[], list[OptionSource]],
    ) -> CassetteUse:
        """Begin a use with what the ini file, the suite's own fixture and nearer places say."""
        path = Path(request.node.path)

        def fail_test(error: MrtrCassetteError) -> NoReturn:
            """Fail the test, with a hint if its files are faked or it may have been renamed."""
            hint = hint_at_faked_files(request.node)
            if not (hint or path.exists()):
                hint = hint_at_rename(path, self._sharers.tests_of(request.session))
                hint = hint or hint_at_xfail(request.node, path)

            raise pytest.fail.Exception(
                error.in_terms(SUITE_TERMS) + hint, pytrace=False
            ) from None

        try:
            settings = self._test_settings.settings_of_request(request, find_sources)
            path = cassette_path(request.node, settings.name)
            settings = _with_paths_beside(settings, request.node)
            if not (path.exists() or Path(request.node.path).exists()):
                # What is recorded here would be gone with the faked files.
                raise CassetteError(path, "is hidden, and so is the test's own file")

            use_request = UseRequest(
                self._suite_run,
                path,
                settings,
                self._test_settings.mode_of_use(settings),
                ask_upstream=partial(request.getfixturevalue, "mrtr_upstream"),
                fail_test=fail_test,
                sharers=self._sharers.sharers_of(request, path, settings),
            )
            use = begin_use(use_request)
        except MrtrCassetteError as error:
            fail_test(error)

        self._fixtures_by_use[use] = _Fixture(request.node, request.fixturename)
        return use

    # Following the tests

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note which cassettes a test has that did not pass, and show its misses with it."""
        report = yield
        # The test's own report comes after those of its subtests.
        if report.skipped or report.when == "call":
            self._note_given_up(item, given_up_outcome(report))

        if report.passed:
            return report

        raised = call.excinfo
        is_skipped = raised is not None and raised.errisinstance(pytest.skip.Exception)
        for use in self._used_by(item):
            use.failed = use.failed or report.failed
            if not is_skipped:
                self._explain_failure(report, use)

        return report

    def _explain_failure(self, report: pytest.TestReport, use: CassetteUse) -> None:
        """Add to the report of a failed test what its cassette has to do with it."""
        cause = use.unreported_misses() or use.unreported_differences(is_alone=False)
        if cause is not None:
            _show_cause_first(report, cause)

        page = self._write_page_if_wanted(use)
        if page is not None:
            report.sections.append((_PAGE_TITLE, page))

        output = use.upstream_output
        if output:
            report.sections.append(("mrtr-cassette: output of the upstream", output))

    def _used_by(self, item: pytest.Item) -> list[CassetteUse]:
        """Return the uses of a test: its own, and those of wider fixtures that it requests."""
        item_chain = item.listchain()
        names = getattr(item, "fixturenames", ())
        uses = []
        for use, fixture in self._fixtures_by_use.items():
            is_shared = fixture.node in item_chain and fixture.name in names
            if fixture.node is item or is_shared:
                uses.append(use)

        return uses

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """Fail a test for what is wrong by the end of its call: that is one failure of one test."""
        yield
        problems = []
        for use in self._used_by(item):
            problem = use.unreported_misses()
            if problem is None and self._fixtures_by_use[use].node is item:
                problem = use.unreported_differences(
                    is_alone=_is_only_user_of_cassettes(item)
                )

            if problem is not None:
                problems.append(problem)

        if problems:
            pytest.fail("\n\n".join(problems), pytrace=False)

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

        is_failed = error is not None and not isinstance(error, _NOT_A_FAILURE)
        if isinstance(error, pytest.xfail.Exception):
            self._note_given_up(item, "xfailed")
        elif isinstance(error, _NOT_A_FAILURE):
            self._note_given_up(item, "skipped")

        problems = self._problems_at_end(item, is_failed=is_failed)
        if problems and not is_failed:
            pytest.fail("\n\n".join(problems), pytrace=False)

        if error is not None:
            for problem in problems:
                error.add_note(problem)

            raise error

    def _problems_at_end(self, item: pytest.Item, *, is_failed: bool) -> list[str]:
        """Conclude what the test used; return what is wrong, or warn if nothing is."""
        problems = self._misses_in(item)
        passed = not is_failed and not problems
        objections, warnings = self._conclude_stopped_uses(item, passed=passed)
        problems += objections
        if not problems:
            for warning in warnings:
                item.warn(MrtrCassetteWarning(warning))

        return problems

    def _misses_in(self, item: pytest.Item) -> list[str]:
        """Return the misses by the end of a test that were not reported, as texts."""
        problems = []
        for use in self._fixtures_by_use:
            use.note_end_of_test(item.nodeid)
            misses = use.unreported_misses()
            if misses is not None:
                problems.append(misses)
                page = self._write_page_if_wanted(use)
                if page is not None:
                    item.add_report_section("teardown", _PAGE_TITLE, page)

        return problems

    def _note_given_up(
        self, item: pytest.Item, outcome: Literal["skipped", "xfailed"] | None
    ) -> None:
        """Note in the test's own uses whether it was skipped, or failed as expected."""
        for use, fixture in self._fixtures_by_use.items():
            if fixture.node is item:
                use.given_up = outcome

    def _conclude_stopped_uses(
        self, item: pytest.Item, *, passed: bool
    ) -> tuple[list[str], list[str]]:
        """Conclude the uses that are stopped; return what is wrong, and what to warn of."""
        problems: list[str] = []
        warnings: list[str] = []
        for use in tuple(self._fixtures_by_use):
            if not use.is_stopped:
                continue

            is_shared = self._fixtures_by_use.pop(use).node is not item
            # What tests share, the end of the run decides on: some may be run again.
            use_passed = is_shared or (passed and not use.failed)
            objections = use.conclude(passed=use_passed, plays_all=self._plays_all)
            hint = hint_at_faked_files(item)
            problems += [f"{objection}{hint}" for objection in objections]
            self.results.count_outcome(use.outcome)
            self.results.note_redacted(use.path, use.redacted)
            if use_passed and not objections:
                hint = "" if use.given_up is None else hint_at_name(use.path)
                warnings += [f"{warning}{hint}" for warning in use.warnings]
                self.results.note_use(use)

        return problems, warnings

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test's outcome."""
        note_outcome(self._test_outcomes, report)

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self) -> Generator[None, None, None]:
        """Conclude what an interrupted run left, and stop the applications."""
        try:
            yield
        finally:
            with ExitStack() as exit_stack:
                exit_stack.callback(self._suite_run.close)
                for use in self._fixtures_by_use:
                    exit_stack.callback(self._conclude_interrupted, use)

    def _conclude_interrupted(self, use: CassetteUse) -> None:
        """Stop what an interrupted test used, and forget its recording."""
        try:
            use.stop()
        finally:
            use.conclude(passed=False)

        self.results.count_outcome(use.outcome)

    def publish_shared(
        self, items: Iterable[pytest.Item], why_partial: str | None
    ) -> list[str]:
        """Publish what the tests recorded for cassettes that they share; return the problems.

        A run that is partial, for the reason `why_partial`, replaces no cassette by a part.
        """
        problems = []
        why_partial = why_partial or _why_not_all_collected(self._config)
        why_perhaps_partial = why_partial or self._test_that_left_out_calls(items)
        for shared_recording in self._suite_run.shared_recordings.values():
            if not shared_recording.place.exists():
                continue

            try:
                is_named_by_tests = shared_recording.path in self._named_by_tests
                outcome, problem = shared_recording.publish_if_passed(
                    self._test_outcomes,
                    why_perhaps_partial if is_named_by_tests else why_partial,
                )
            except MrtrCassetteError as error:
                outcome = "discarded (not written)"
                problem = error.in_terms(SUITE_TERMS)

            self.results.count_outcome(outcome)
            self.results.note_redacted(shared_recording.path, shared_recording.redacted)
            if problem is not None:
                problems.append(problem)

        return problems

    def _test_that_left_out_calls(self, items: Iterable[pytest.Item]) -> str | None:
        """Return which test may have left out calls to any cassette of `mrtr_cassettes`."""
        for item in items:
            if not opens_by_name(item):
                continue

            outcome = self._test_outcomes.get(item.nodeid, "not run")
            if outcome != "passed":
                return f"{item.nodeid} was {outcome}"

        return None

    def _write_page_if_wanted(self, use: CassetteUse) -> str | None:
        """Write the page of a failed test, if that is asked for; failing changes nothing."""
        if not self._writes_pages:
            return None

        try:
            return _write_page(self._config.rootpath, use)
        except (MrtrCassetteError, OSError) as error:
            return f"could not be written: {error}"


def _with_fixtures(
    source: OptionSource, request: pytest.FixtureRequest
) -> OptionSource:
    """Return what a place sets with the texts of the fixtures that its `values` name."""
    fixture_names = source.values.get("values")
    if not isinstance(fixture_names, list | tuple):
        return source
    if not all(isinstance(name, str) for name in fixture_names):
        return source

    texts = {}
    for name in fixture_names:
        texts[name] = str(request.getfixturevalue(name))

    return source._replace(values={**source.values, "values": texts})


def _with_paths_beside(settings: Settings, node: Any) -> Settings:
    """Return settings with the paths of further cassettes for their names."""
    names = settings.replay.beside
    if not names:
        return settings

    paths = [str(cassette_path(node, name)) for name in names]
    return replace(settings, replay=replace(settings.replay, beside=paths))


def _pytest_argument_of(folder: Path, node: Any) -> str:
    """Return what pytest takes for a test, a class or a module, when it runs in a folder."""
    file, colons, rest = str(node.nodeid).partition("::")
    root: Path = node.config.rootpath
    if file in ("", ".") or folder == root:
        return f"{file}{colons}{rest}".removeprefix(".")

    return f"{os.path.relpath(root / file, folder)}{colons}{rest}"


def _has_upstream_fixture(request: pytest.FixtureRequest) -> bool:
    """Tell whether a suite overrides `mrtr_upstream`, which may start a server when it is asked."""
    fixture_manager = request.session._fixturemanager  # noqa: SLF001  pytest has nothing public for it
    return len(fixture_manager.getfixturedefs("mrtr_upstream", request.node) or ()) > 1


def _is_only_user_of_cassettes(item: pytest.Item) -> bool:
    """Tell whether a test has no other fixture that may speak to a cassette until its teardown."""
    fixture_info = getattr(item, "_fixtureinfo", None)
    fixture_definitions = getattr(fixture_info, "name2fixturedefs", {})
    for name, definitions in fixture_definitions.items():
        if name.startswith(MARKER):
            continue

        for definition in definitions:
            if any(argument.startswith(MARKER) for argument in definition.argnames):
                return False

    return True


def _show_cause_first(report: pytest.TestReport, cause: str) -> None:
    """Show a cause before the traceback of a failed test, and its first line in the summary.

    The client's own traceback comes below it, as that of a library is long.
    """
    traceback = report.longrepr
    if not isinstance(traceback, ExceptionChainRepr):
        report.sections.append(("mrtr-cassette", cause))
        return

    first_traceback = traceback.chain[0][0]
    first_traceback.reprentries = [
        ReprEntryNative([f"{cause}\n\n"]),
        *first_traceback.reprentries,
    ]
    if traceback.reprcrash is not None:
        traceback.reprcrash.message = cause.partition("\n")[0]


def _write_page(root: Path, use: CassetteUse) -> str | None:
    """Write a page and return its path; None where there is nothing to show."""
    recording = use.load_recorded()
    if recording is None:
        return None

    inner_path = Path(use.path.name)
    if use.path.is_relative_to(root):
        inner_path = use.path.relative_to(root)

    page = (root / _PAGES_FOLDER / inner_path).with_suffix(".html")
    write_page(page, recording, _replay_report(use))
    # Nobody commits what every failing run writes.
    (root / _PAGES_FOLDER / ".gitignore").write_text("*\n")

    return str(page.relative_to(root))


def _replay_report(use: CassetteUse) -> ReplayReport | None:
    """Return what a replay has come to so far; None where the test records."""
    view = use.view
    if view.is_recording:
        return None

    unplayed = {details.number for details in view.unplayed}
    outcomes = []
    for details in view.interactions:
        place = details.place
        file = place.file or str(use.path)
        outcome = InteractionOutcome(place.number, details.call, "played", 1, file)
        if details.number in unplayed:
            outcome = replace(outcome, outcome="never played", plays=0)

        outcomes.append(outcome)

    report = ReplayReport(str(use.path), tuple(outcomes), view.misses)
    if report.is_of_several:
        # Only the first has a page.
        report = report.report_of_file(outcomes[0].cassette)

    return report


# The cassettes of a whole suite


def _why_not_all_collected(config: pytest.Config) -> str | None:
    """Return what on the command line keeps pytest from collecting tests, or None."""
    for name in ("ignore", "ignore_glob", "lf"):
        if config.getoption(name, None):
            return f"--{name.replace('_', '-')} leaves tests out"

    if config.args_source is pytest.Config.ArgsSource.ARGS:
        return "only the tests under the given paths were collected"
    return None
