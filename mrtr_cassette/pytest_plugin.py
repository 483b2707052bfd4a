"""The pytest plugin: fixtures that are an MCP server's recording."""

# Every run of pytest imports this module: nothing large is imported before a test uses a cassette.

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, Literal

import pytest

from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import (
    MODE_VARIABLE,
    MODES,
    Mode,
    RecordOptions,
    default_mode,
    mode_named,
    options_of,
)

if TYPE_CHECKING:
    from mrtr_cassette.shell.runs.views import MrtrCassette
    from mrtr_cassette.testing.uses import CassetteUses

_INI_PREFIX = "mrtr_cassette_"
_INI_OPTIONS = (
    "ignore",
    "redact",
    "redact_keys",
    "redact_env",
    "no_redact",
    "seal_answers",
)
"""The options that an ini file can set: what holds for a whole suite, whatever its tests are."""

_WORKER_OUTPUT = "mrtr_cassette"
"""Under which a worker of pytest-xdist hands on what it counted and noted."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and the ini values."""
    group = parser.getgroup("mrtr-cassette", "MCP servers, recorded and replayed")
    group.addoption(
        "--mrtr-mode",
        choices=MODES,
        help="none: replay only; once: replay tests with a cassette, and record others; append: "
        "replay, and record missing calls; all: record anew; verify: run the tests against their "
        "upstreams, and fail if anything differs from the cassette. Default: the marker's mode, "
        "else none under CI, else once.",
    )

    group.addoption(
        "--mrtr-fail-on-unplayed",
        action="store_true",
        help="Fail a test that doesn't play all of its cassette.",
    )

    group.addoption(
        "--mrtr-orphans",
        choices=("list", "fail"),
        help="List cassettes that no collected test uses, or fail the run for them.",
    )

    group.addoption(
        "--mrtr-view",
        choices=("failed",),
        help="Write the cassettes of failed tests as pages for a browser, to the folder mrtr-view.",
    )

    parser.addini(
        "mrtr_cassette_mode", "The mode if neither option nor environment sets it."
    )
    parser.addini(
        "mrtr_cassette_dir",
        "A folder for all cassettes, from the root directory; by default a folder `cassettes` "
        "beside every test file.",
    )

    options = options_of(RecordOptions)
    for name in _INI_OPTIONS:
        kind: Any = "bool" if options[name].kind == "switch" else "linelist"
        parser.addini(
            _INI_PREFIX + name, f"{options[name].help}.", type=kind, default=None
        )


def pytest_configure(config: pytest.Config) -> None:
    """Say what the marker takes, and settle the mode."""
    config.addinivalue_line(
        "markers",
        "mrtr_cassette(name, upstream=..., ignore=[...], redact=[...], ...): the cassette of a "
        "test; all arguments are optional, and include all options of recording and replaying.",
    )

    folder = config.getini("mrtr_cassette_dir")
    if not isinstance(folder, str):
        raise pytest.UsageError(
            f"the ini value mrtr_cassette_dir takes the name of a folder, and not {folder!r}"
        )

    suite_run = SuiteRun(config)
    config.stash[_RUN_KEY] = suite_run
    config.pluginmanager.register(suite_run, "mrtr-cassette-run")
    orphans = config.getoption("mrtr_orphans")
    if orphans:
        from mrtr_cassette.testing.names import Orphans

        orphan_finder = Orphans(config, fails=orphans == "fail")
        config.pluginmanager.register(orphan_finder, "mrtr-cassette-orphans")


def _mode_of_run(config: pytest.Config) -> tuple[Mode, bool]:
    """Return the mode, and whether it holds whatever markers say."""
    ini_source = "the ini value mrtr_cassette_mode"
    sources: tuple[tuple[str, Any], ...] = (
        ("--mrtr-mode", config.getoption("mrtr_mode")),
        (f"the environment variable {MODE_VARIABLE}", os.environ.get(MODE_VARIABLE)),
        (ini_source, config.getini("mrtr_cassette_mode")),
    )

    for source, mode in sources:
        if not mode:
            continue

        try:
            return mode_named(mode, source), source != ini_source
        except UsageError as error:
            raise pytest.UsageError(str(error)) from None

    return default_mode(), False


class SuiteRun:
    """The state of one run of pytest, in workers of pytest-xdist too."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.mode, self.is_mode_given = _mode_of_run(config)
        self.outcome_counts: Counter[str] = Counter()
        self._summary_notes: list[str] = []
        self.option_matches: Counter[str] = Counter()
        self._answers_given: list[Any] = []
        self._sharing_problems: list[str] = []
        self._own_uses: CassetteUses | None = None
        self._why_partial: str | None = None
        """What the run leaves out, as a clause; None: it has all tests."""

    def cassette_uses(self) -> CassetteUses:
        """Return what opens and follows the cassettes of the run."""
        if self._own_uses is None:
            from mrtr_cassette.testing.uses import CassetteUses

            ini = {}
            for name in _INI_OPTIONS:
                value = self.config.getini(_INI_PREFIX + name)
                if value is not None:
                    ini[name] = value

            self._own_uses = CassetteUses(
                self.config,
                self.mode,
                self.outcome_counts,
                self.option_matches,
                ini,
                is_mode_given=self.is_mode_given,
            )

        return self._own_uses

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file whose tests are unknown: it was skipped, or can't be imported."""
        if not report.passed:
            self._why_partial = f"{report.nodeid} was not collected"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, items: list[pytest.Item]
    ) -> Generator[None, None, None]:
        """Note a test that is deselected, whoever does it."""
        collected = tuple(items)
        yield
        selected = set(items)
        for item in collected:
            if item not in selected:
                self._why_partial = f"{item.nodeid} was deselected"
                return

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Follow the tests from the first one on, if any of them uses a cassette."""
        for item in session.items:
            for fixture in getattr(item, "fixturenames", ()):
                if fixture.startswith("mrtr_cassette"):
                    self.cassette_uses()
                    return

    def pytest_report_header(self, config: pytest.Config) -> str:
        """Say in which mode the cassettes are used, and where they are."""
        default_folder = "a folder `cassettes` beside each test file"
        folder = config.getini("mrtr_cassette_dir") or default_folder
        return f"mrtr-cassette: mode {self.mode}, cassettes in {folder}"

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add up what a worker of pytest-xdist counted and noted."""
        output = getattr(node, "workeroutput", {}).get(_WORKER_OUTPUT)
        if output is None:
            # It has crashed.
            return

        counts, matches, notes, answers = output
        self.outcome_counts.update(counts)
        self.option_matches.update(matches)
        self._summary_notes += notes
        self._answers_given += answers

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Publish what tests share; a worker of pytest-xdist hands on what it counted."""
        if self._own_uses is not None:
            self._sharing_problems = self._own_uses.publish_shared(
                session.items, self._why_partial
            )
            self._summary_notes += self._own_uses.results.notes
            self._answers_given += map(list, self._own_uses.results.answers)

        if self._sharing_problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

        output = getattr(self.config, "workeroutput", None)
        if output is not None:
            counts = dict(self.outcome_counts)
            matches = dict(self.option_matches)
            notes = self._summary_notes
            output[_WORKER_OUTPUT] = [counts, matches, notes, self._answers_given]

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> None:
        """Say what became of the cassettes."""
        for problem in self._sharing_problems:
            terminalreporter.section(
                "mrtr-cassette: cassettes that could not be written", red=True
            )
            terminalreporter.line(problem)

        for name, times in sorted(self.option_matches.items()):
            if not times:
                line = f"mrtr-cassette: {name} matched nothing in this run"
                terminalreporter.write_line(line)

        if self.outcome_counts and self.config.get_verbosity() >= 0:
            outcome_texts = []
            for outcome, count in sorted(self.outcome_counts.items()):
                outcome_texts.append(f"{count} {outcome}")

            terminalreporter.write_line(f"mrtr-cassette: {', '.join(outcome_texts)}")
            lines = self._summary_notes
            if self._answers_given:
                from mrtr_cassette.core.report.coverage import GivenAnswer, untried_line

                given_answers = [GivenAnswer(*answer) for answer in self._answers_given]
                untried_text = untried_line(given_answers)
                if untried_text is not None:
                    lines = [*lines, untried_text]

            for line in lines:
                terminalreporter.write_line(f"mrtr-cassette: {line}")


_RUN_KEY = pytest.StashKey[SuiteRun]()


def _uses_of_run(request: pytest.FixtureRequest) -> CassetteUses:
    """Return the object that opens the cassettes of the run to which a request belongs."""
    return request.config.stash[_RUN_KEY].cassette_uses()


def _cassette_fixture(
    scope: Literal["function", "class", "module", "session"], users: str
) -> Any:
    """Return a fixture of this scope, whose docstring says for which `users` the recording is."""

    def opened_cassette(request: pytest.FixtureRequest) -> Iterator[MrtrCassette]:
        yield from _uses_of_run(request).opened_cassette(request)

    docstring = (
        f"The recording of an MCP server, for {users}: clients connect to its `url`."
    )
    opened_cassette.__doc__ = docstring
    return pytest.fixture(opened_cassette, scope=scope)


mrtr_cassette = _cassette_fixture("function", "this test")
mrtr_cassette_class = _cassette_fixture("class", "all tests of the class")
mrtr_cassette_module = _cassette_fixture("module", "all tests of the module")
mrtr_cassette_session = _cassette_fixture("session", "all tests of the run")


@pytest.fixture
def mrtr_cassettes(
    request: pytest.FixtureRequest,
) -> Iterator[Callable[..., MrtrCassette]]:
    """Further recordings for a test: call it with a name and the marker's other arguments."""
    yield from _uses_of_run(request).cassette_opener(request)


@pytest.fixture(scope="session")
def mrtr_upstream() -> Any:
    """What is recorded where no marker says so; override it. It is asked only when recording."""
    return None


@pytest.fixture(scope="session")
def mrtr_cassette_config() -> dict[str, Any]:
    """Options for all cassettes of a suite, by the names of the marker's; override it."""
    return {}
