"""The pytest plugin: fixtures that are an MCP server's recording.

Rule: every pytest run imports this module, so of the package it imports nothing but the options,
nor anything large, before a test uses a cassette.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, cast

import pytest

from mrtr_cassette.options import RecordOptions, options_of

if TYPE_CHECKING:
    from pathlib import Path

    from mrtr_cassette.errors import MrtrCassetteError
    from mrtr_cassette.shell.runs.plays import CassetteUse, Mode, Settings
    from mrtr_cassette.shell.runs.shared_plays import Sharers, TestOutcome
    from mrtr_cassette.testing.cassette import MrtrCassette
    from mrtr_cassette.testing.settings import Place
    from mrtr_cassette.testing.uses import Uses

MODE_VARIABLE = "MRTR_CASSETTE_MODE"
_INI = "mrtr_cassette_"
_INI_OPTIONS = ("ignore", "redact", "redact_keys", "no_redact", "seal_answers")
"""The options that an ini file can set: what holds for a whole suite, whatever its tests are."""
_MODES = ("none", "once", "append", "all", "verify")
_FOLDER = "mrtr_cassette_folder"
_COUNTS = "mrtr_cassette_counts"
_COUNTS_KEY = pytest.StashKey[Counter[str]]()
_OUTCOMES_KEY = pytest.StashKey["_Outcomes"]()
_FOLDER_KEY = pytest.StashKey["Path"]()
_COLLECTED_KEY = pytest.StashKey["tuple[pytest.Item, ...]"]()
_SHARERS_KEY = pytest.StashKey["dict[Path, Sharers]"]()
_PROBLEMS_KEY = pytest.StashKey[list[str]]()
_MODE_KEY = pytest.StashKey["Mode"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and the ini values."""
    group = parser.getgroup("mrtr-cassette", "MCP servers, recorded and replayed")
    group.addoption(
        "--mrtr-mode",
        choices=_MODES,
        help="none: replay only; once: replay what has a cassette, record what has none; append: "
        "replay, and record what is missing; all: record anew; verify: run no test, and hold the "
        "upstreams of the selected ones to their cassettes. Default: none under CI, else once.",
    )
    group.addoption(
        "--mrtr-fail-on-unplayed",
        action="store_true",
        help="Fail a test that does not play all of its cassette.",
    )
    group.addoption(
        "--mrtr-orphans",
        choices=("list", "delete", "fail"),
        help="What becomes of cassettes that no collected test uses: they are listed, deleted if "
        "the whole suite ran and passed, or make the run fail.",
    )
    group.addoption(
        "--mrtr-view",
        choices=("failed",),
        help="Write the cassettes of failed tests as pages for a browser, to the folder mrtr-view.",
    )
    parser.addini("mrtr_cassette_mode", "The mode where neither option nor environment has one.")
    parser.addini(
        "mrtr_cassette_dir",
        "One folder for all cassettes, from the root directory; else each test file has a folder "
        "`cassettes` beside it.",
    )
    options = options_of(RecordOptions)
    for name in _INI_OPTIONS:
        kind: Any = "bool" if options[name].kind == "switch" else "linelist"
        parser.addini(_INI + name, f"{options[name].help}.", type=kind, default=None)


def pytest_configure(config: pytest.Config) -> None:
    """Say what the marker takes, and settle the mode."""
    config.addinivalue_line(
        "markers",
        "mrtr_cassette(name, upstream=..., ignore=[...], redact=[...], ...): the cassette of a "
        "test; every argument is optional, and every option of recording and replaying is one.",
    )
    config.stash[_MODE_KEY] = mode = _mode(config)
    if mode == "verify":
        from mrtr_cassette.testing.verifying import Verifying

        config.pluginmanager.register(Verifying(), "mrtr-cassette-verifying")
    config.stash[_COUNTS_KEY] = Counter()
    config.stash[_PROBLEMS_KEY] = []
    config.stash[_OUTCOMES_KEY] = _Outcomes()
    config.pluginmanager.register(config.stash[_OUTCOMES_KEY], "mrtr-cassette-outcomes")
    orphans = config.getoption("mrtr_orphans")
    if orphans:
        from mrtr_cassette.testing.orphans import Orphans

        config.pluginmanager.register(Orphans(config, orphans), "mrtr-cassette-orphans")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """Note the order of all tests."""
    config.stash[_COLLECTED_KEY] = tuple(items)
    yield


def pytest_report_header(config: pytest.Config) -> str:
    """Say in which mode the cassettes are used, and where they stand."""
    folder = config.getini("mrtr_cassette_dir") or "a folder `cassettes` beside each test file"
    return f"mrtr-cassette: mode {config.stash[_MODE_KEY]}, cassettes in {folder}"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what became of the cassettes."""
    if config.getoption("mrtr_view") and not hasattr(config, "workerinput"):
        from mrtr_cassette.testing.failure_pages import summarise

        summarise(_reports(terminalreporter), os.environ)
    for problem in config.stash[_PROBLEMS_KEY]:
        terminalreporter.section("mrtr-cassette: cassettes that could not be written", red=True)
        terminalreporter.line(problem)
    counts = config.stash[_COUNTS_KEY]
    if counts and config.get_verbosity() >= 0:
        told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
        terminalreporter.write_line(f"mrtr-cassette: {told}")


def _reports(reporter: pytest.TerminalReporter) -> list[pytest.TestReport]:
    """Return the reports of what failed, in setup and teardown too."""
    return [*reporter.stats.get("failed", ()), *reporter.stats.get("error", ())]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add up what a worker of pytest-xdist counted."""
    config: pytest.Config = node.config
    counted: dict[str, int] = getattr(node, "workeroutput", {}).get(_COUNTS, {})
    counts = config.stash[_COUNTS_KEY]
    counts.update(counted)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Publish what tests share; a worker of pytest-xdist hands on what it counted."""
    output = getattr(session.config, "workeroutput", None)
    counts = session.config.stash[_COUNTS_KEY]
    if output is not None:
        output[_COUNTS] = dict(counts)
    elif _FOLDER_KEY in session.config.stash:
        folder = session.config.stash[_FOLDER_KEY]
        if any(folder.iterdir()):
            _publish_shared(session)
        else:
            folder.rmdir()


def _publish_shared(session: pytest.Session) -> None:
    from mrtr_cassette.shell.runs.shared_plays import publish_shared
    from mrtr_cassette.testing.orphans import narrowed_by
    from mrtr_cassette.testing.settings import TERMS
    from mrtr_cassette.testing.uses import MrtrCassetteWarning

    config = session.config
    problems = config.stash[_PROBLEMS_KEY]
    counts: Counter[str] = config.stash[_COUNTS_KEY]
    outcomes = config.stash[_OUTCOMES_KEY].by_test
    for each in publish_shared(config.stash[_FOLDER_KEY], outcomes, narrowed_by(config), TERMS):
        counts[each.outcome] += 1
        if each.problem is not None:
            problems.append(each.problem)
        if each.warning is not None and not session.testsfailed:
            try:
                warnings.warn(MrtrCassetteWarning(each.warning), stacklevel=1)
            except MrtrCassetteWarning as warning:
                problems.append(str(warning))
    if problems and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


class _Outcomes:
    """What each test has come to, also where workers of pytest-xdist run them.

    Attributes:
        by_test: by the test's id.
    """

    def __init__(self) -> None:
        self.by_test: dict[str, TestOutcome] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a report; one of a test that is run again is none of its last attempt."""
        if report.failed:
            self.by_test[report.nodeid] = "failed"
        elif report.skipped:
            outcome: TestOutcome = "xfailed" if hasattr(report, "wasxfail") else "skipped"
            self.by_test.setdefault(report.nodeid, outcome)
        elif report.passed and report.when != "setup":
            self.by_test.setdefault(report.nodeid, "passed")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist where the run keeps what is recorded for shared cassettes."""
    node.workerinput[_FOLDER] = str(_folder(node.config))


def _folder(config: pytest.Config) -> Path:
    """Return where the run keeps what is recorded for shared cassettes."""
    if _FOLDER_KEY not in config.stash:
        from pathlib import Path
        from tempfile import mkdtemp

        given = getattr(config, "workerinput", {}).get(_FOLDER)
        config.stash[_FOLDER_KEY] = Path(given or mkdtemp(prefix="mrtr-cassette-"))
    return config.stash[_FOLDER_KEY]


def _sharers(request: pytest.FixtureRequest, path: Path) -> Sharers:
    """Return the tests that have a cassette by their fixtures."""
    stash = request.config.stash
    if _SHARERS_KEY not in stash:
        from mrtr_cassette.testing.names import sharers_of

        collected = stash[_COLLECTED_KEY]
        stash[_SHARERS_KEY] = sharers_of(collected, request.session.items)
    from mrtr_cassette.shell.runs.shared_plays import Sharers

    return stash[_SHARERS_KEY].get(path, Sharers())


def _mode(config: pytest.Config) -> Mode:
    sources: tuple[tuple[str, Any], ...] = (
        ("--mrtr-mode", config.getoption("mrtr_mode")),
        (f"the environment variable {MODE_VARIABLE}", os.environ.get(MODE_VARIABLE)),
        ("the ini value mrtr_cassette_mode", config.getini("mrtr_cassette_mode")),
    )
    for source, mode in sources:
        if mode and mode not in _MODES:
            raise pytest.UsageError(f"{source} is {mode!r}, and not one of {', '.join(_MODES)}")
        if mode:
            return cast("Mode", mode)
    is_ci = os.environ.get("CI", "").lower() not in {"", "0", "false"}
    return "none" if is_ci else "once"


@pytest.fixture
def mrtr_cassette(request: pytest.FixtureRequest) -> Iterator[MrtrCassette]:
    """The recording of an MCP server, for this test: `.url` is what the client connects to."""
    yield from _of_scope(request)


@pytest.fixture(scope="class")
def mrtr_cassette_class(request: pytest.FixtureRequest) -> Iterator[MrtrCassette]:
    """The recording of an MCP server that all tests of the class talk to."""
    yield from _of_scope(request)


@pytest.fixture(scope="module")
def mrtr_cassette_module(request: pytest.FixtureRequest) -> Iterator[MrtrCassette]:
    """The recording of an MCP server that all tests of the module talk to."""
    yield from _of_scope(request)


@pytest.fixture
def mrtr_cassettes(request: pytest.FixtureRequest) -> Iterator[Callable[..., MrtrCassette]]:
    """Further recordings for a test: call it with a name and the marker's other arguments."""
    uses: list[CassetteUse] = []

    def opened(*name: Any, **options: Any) -> MrtrCassette:
        from mrtr_cassette.errors import MrtrCassetteError, UsageError
        from mrtr_cassette.testing.settings import place_of_call

        try:
            if not name:
                raise UsageError("mrtr_cassettes needs the name of a file")
            settings = _settings(request, [place_of_call("mrtr_cassettes", name, options)])
        except MrtrCassetteError as error:
            _fail(error)
        use, shown = _begin(request, settings)
        uses.append(use)
        return shown

    yield opened
    for use in reversed(uses):
        use.stop()


@pytest.fixture(scope="session")
def mrtr_upstream() -> Any:
    """What is recorded where no marker says so; override it. It is asked only when recording."""
    return None


@pytest.fixture(scope="session")
def mrtr_cassette_config() -> dict[str, Any]:
    """Options for all cassettes of a suite, by the names of the marker's; override it."""
    return {}


def _of_scope(request: pytest.FixtureRequest) -> Iterator[MrtrCassette]:
    use, shown = _begin(request, _marked_settings(request))
    yield shown
    use.stop()


@pytest.fixture(name="_mrtr_cassette_verified")
def _verified(request: pytest.FixtureRequest) -> None:
    _verify(request)


@pytest.fixture(name="_mrtr_cassette_class_verified", scope="class")
def _verified_class(request: pytest.FixtureRequest) -> None:
    _verify(request)


@pytest.fixture(name="_mrtr_cassette_module_verified", scope="module")
def _verified_module(request: pytest.FixtureRequest) -> None:
    _verify(request)


def _marked_settings(request: pytest.FixtureRequest) -> Settings:
    from mrtr_cassette.errors import MrtrCassetteError

    try:
        from mrtr_cassette.testing.names import marked

        return _settings(request, marked(request.node))
    except MrtrCassetteError as error:
        _fail(error)


def _verify(request: pytest.FixtureRequest) -> None:
    """Hold the upstream of a test to its cassette; the test fails where it differs."""
    from mrtr_cassette.core.report.comparison import verification_text
    from mrtr_cassette.errors import MrtrCassetteError
    from mrtr_cassette.testing.names import cassette_path
    from mrtr_cassette.testing.verifying import verify_use

    settings = _marked_settings(request)
    path = cassette_path(request.node, settings.name)
    uses = _uses(request.config)
    try:
        verification = verify_use(
            uses.run, path, settings, lambda: request.getfixturevalue("mrtr_upstream")
        )
    except MrtrCassetteError as error:
        _fail(error)
    is_good = verification.is_good
    request.config.stash[_COUNTS_KEY]["the same" if is_good else "different"] += 1
    if not is_good:
        pytest.fail(verification_text(verification), pytrace=False)


def _uses(config: pytest.Config) -> Uses:
    """Return what follows the cassettes of the run."""
    from mrtr_cassette.testing.uses import Uses, uses_of

    return uses_of(config) or Uses(
        config, config.stash[_MODE_KEY], lambda: _folder(config), config.stash[_COUNTS_KEY]
    )


def _settings(request: pytest.FixtureRequest, places: list[Place]) -> Settings:
    """Return what the ini file, the suite's own fixture and nearer places say together."""
    from mrtr_cassette.errors import UsageError
    from mrtr_cassette.testing.settings import Place, settings_of

    values = request.getfixturevalue("mrtr_cassette_config")
    if not isinstance(values, dict):
        raise UsageError(f"the fixture mrtr_cassette_config returns {values!r}, and not a dict")
    suite = Place("the fixture mrtr_cassette_config", values)
    written = {name: request.config.getini(_INI + name) for name in _INI_OPTIONS}
    ini = Place("the ini file", {key: each for key, each in written.items() if each is not None})
    return settings_of([ini, suite, *places])


def _begin(request: pytest.FixtureRequest, settings: Settings) -> tuple[CassetteUse, MrtrCassette]:
    """Begin the use of a cassette by the tests of the request's scope."""
    from mrtr_cassette.errors import MrtrCassetteError
    from mrtr_cassette.shell.runs.plays import CassetteUse
    from mrtr_cassette.testing.cassette import MrtrCassette
    from mrtr_cassette.testing.names import cassette_path, hint_at_rename

    uses = _uses(request.config)
    path = cassette_path(request.node, settings.name)
    is_of_one = request.scope == "function"

    def fail(error: MrtrCassetteError) -> NoReturn:
        _fail(error, "" if path.exists() else hint_at_rename(path, request.session.items))

    try:
        use = CassetteUse(
            uses.run,
            path,
            settings,
            lambda: request.getfixturevalue("mrtr_upstream"),
            fail,
            sharers=None if is_of_one and settings.name is None else _sharers(request, path),
            test=request.node.nodeid if is_of_one else None,
        )
    except MrtrCassetteError as error:
        fail(error)
    shown = MrtrCassette(use.shown, uses.run.mode, path, settings.answers)
    uses.add(use, shown, request.node, request.fixturename)
    return use, shown


def _fail(error: MrtrCassetteError, hint: str = "") -> NoReturn:
    from mrtr_cassette.testing.settings import TERMS

    # What the user can do about it is in the text; where we found out tells nothing.
    raise pytest.fail.Exception(error.in_terms(TERMS) + hint, pytrace=False) from None
