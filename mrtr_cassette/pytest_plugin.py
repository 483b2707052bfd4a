"""The pytest plugin: fixtures that are an MCP server's recording.

Owns: pytest's side: options, the marker, the fixtures' scopes, and which test fails for what.
Does not own: what one cassette goes through (`testing`).
Rule: every pytest run imports this module, so of the package it imports nothing but the options,
nor anything large, before a test uses a cassette.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import pytest

from mrtr_cassette.option_values import Kind, Option
from mrtr_cassette.options import RecordOptions, ReplayOptions, options_of

if TYPE_CHECKING:
    from mrtr_cassette.errors import MrtrCassetteError
    from mrtr_cassette.testing.settings import Mode, Place, Settings
    from mrtr_cassette.testing.use import CassetteUse, MrtrCassette, Run

MARKER = "mrtr_cassette"
MODE_VARIABLE = "MRTR_CASSETTE_MODE"
INI = "mrtr_cassette_"
"""What stands before the name of an option in the ini file."""
_INI_TYPES: dict[Kind, Any] = {"list": "linelist", "headers": "linelist", "switch": "bool"}
_MODES = ("none", "once", "append", "all")
_STARTED = "mrtr_cassette_started_ns"
_STARTED_KEY = pytest.StashKey[int]()
_MODE_KEY = pytest.StashKey["Mode"]()
_CASSETTES_KEY = pytest.StashKey["_Cassettes"]()
_INI_KEY = pytest.StashKey["Place"]()


class MrtrCassetteWarning(pytest.PytestWarning):
    """A test recorded nothing, which is hardly what was meant."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and the ini values."""
    group = parser.getgroup("mrtr-cassette", "MCP servers, recorded and replayed")
    group.addoption(
        "--mrtr-mode",
        choices=_MODES,
        help="none: replay only; once: replay what has a cassette, record what has none; append: "
        "replay, and record what is missing; all: record anew. Default: none under CI, else once.",
    )
    group.addoption(
        "--mrtr-fail-on-unplayed",
        action="store_true",
        help="Fail a test that does not play all of its cassette.",
    )
    group.addoption(
        "--mrtr-orphans", action="store_true", help="List cassettes that no collected test uses."
    )
    parser.addini("mrtr_cassette_mode", "The mode where neither option nor environment has one.")
    parser.addini(
        "mrtr_cassette_dir",
        "One folder for all cassettes, from the root directory; else each test file has a folder "
        "`cassettes` beside it.",
    )
    for name, option in _ini_options().items():
        parser.addini(
            INI + name, f"{option.help}.", type=_INI_TYPES.get(option.kind, "string"), default=None
        )


def _ini_options() -> dict[str, Option]:
    options = options_of(RecordOptions) | options_of(ReplayOptions)
    return {name: option for name, option in options.items() if option.in_ini}


def pytest_configure(config: pytest.Config) -> None:
    """Say what the marker takes, and settle the mode."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(name, upstream=..., ignore=[...], redact=[...], ...): the cassette of a test; "
        "every argument is optional, and every option of recording and replaying is one.",
    )
    config.stash[_MODE_KEY] = _mode(config)
    # Workers of pytest-xdist go by the clock of the run that they belong to.
    given = getattr(config, "workerinput", {})
    config.stash[_STARTED_KEY] = given.get(_STARTED) or time.time_ns()
    if config.getoption("mrtr_orphans"):
        config.pluginmanager.register(_Orphans(config), "mrtr-cassette-orphans")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist when the run began."""
    node.workerinput[_STARTED] = node.config.stash[_STARTED_KEY]


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
        uses.append(_begin(request, settings))
        return uses[-1].cassette

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
    from mrtr_cassette.errors import MrtrCassetteError

    try:
        settings = _settings(request, _marked(request.node))
    except MrtrCassetteError as error:
        _fail(error)
    use = _begin(request, settings)
    yield use.cassette
    use.stop()


def _marked(node: pytest.Item | pytest.Collector) -> list[Place]:
    """Return what the markers set, from the farthest to the nearest."""
    from mrtr_cassette.testing.settings import place_of_call

    marks = reversed(list(node.iter_markers(MARKER)))
    return [place_of_call(f"the marker {MARKER}", mark.args, mark.kwargs) for mark in marks]


def _settings(request: pytest.FixtureRequest, places: list[Place]) -> Settings:
    """Return what the ini file, the suite's own fixture and nearer places say together."""
    from mrtr_cassette.errors import UsageError
    from mrtr_cassette.testing.settings import Place, settings_of

    values = request.getfixturevalue("mrtr_cassette_config")
    if not isinstance(values, dict):
        raise UsageError(f"the fixture mrtr_cassette_config returns {values!r}, and not a dict")
    suite = Place("the fixture mrtr_cassette_config", values)
    return settings_of([_ini_place(request.config), suite, *places])


def _ini_place(config: pytest.Config) -> Place:
    from mrtr_cassette.testing.settings import place_of_ini

    if _INI_KEY not in config.stash:
        values = {name: config.getini(INI + name) for name in _ini_options()}
        written = {name: value for name, value in values.items() if value is not None}
        config.stash[_INI_KEY] = place_of_ini(written, INI, config.rootpath)
    return config.stash[_INI_KEY]


def _begin(request: pytest.FixtureRequest, settings: Settings) -> CassetteUse:
    """Begin the use of a cassette by the tests of the request's scope."""
    from mrtr_cassette.errors import MrtrCassetteError
    from mrtr_cassette.testing.use import CassetteUse

    node, config = request.node, request.config
    cassettes = config.stash.get(_CASSETTES_KEY, None)
    if cassettes is None:
        cassettes = config.stash[_CASSETTES_KEY] = _Cassettes(config)
        config.pluginmanager.register(cassettes, "mrtr-cassette-uses")
    try:
        use = CassetteUse(
            cassettes.run,
            _path(node, settings.name),
            settings,
            lambda: request.getfixturevalue("mrtr_upstream"),
            is_shared=request.scope != "function",
        )
    except MrtrCassetteError as error:
        _fail(error)
    cassettes.uses[use] = (node, request.fixturename)
    cassettes.opened.add(use.path)
    return use


def _fail(error: MrtrCassetteError) -> NoReturn:
    from mrtr_cassette.testing.settings import TERMS

    # What the user can do about it is in the text; where we found out tells nothing.
    raise pytest.fail.Exception(error.in_terms(TERMS), pytrace=False) from None


def _path(node: Any, name: str | os.PathLike[str] | None) -> Path:
    """Return the file of a test's, a class's or a module's cassette.

    Args:
        node: the test, the class or the module.
        name: the file that a marker names, or None.
    """
    from mrtr_cassette.testing.names import file_name

    folder = _folder(node)
    if name is not None:
        return folder / name
    module = _module(node)
    if isinstance(node, pytest.Module):
        return folder / f"{module}.json"
    names = [part.name for part in node.listchain() if isinstance(part, pytest.Class)]
    if not isinstance(node, pytest.Class):
        names.append(node.name)
    return folder / module / f"{file_name('.'.join(names))}.json"


def _folder(node: Any) -> Path:
    """Return where the cassettes of a test file stand."""
    one_for_all = node.config.getini("mrtr_cassette_dir")
    if one_for_all:
        return Path(node.config.rootpath / one_for_all)
    return Path(node.path).parent / "cassettes"


def _module(node: Any) -> Path:
    """Return a test file as a part of its cassettes' path: two of one name are told apart."""
    path, root = Path(node.path).with_suffix(""), node.config.rootpath
    if node.config.getini("mrtr_cassette_dir") and path.is_relative_to(root):
        return path.relative_to(root)
    return Path(path.name)


class _Cassettes:
    """Follows which cassettes a run uses; it is a plugin from the first one on."""

    def __init__(self, config: pytest.Config) -> None:
        from mrtr_cassette.testing.use import Run

        self.run: Run = Run(config.stash[_MODE_KEY], config.stash[_STARTED_KEY], config.rootpath)
        self.uses: dict[CassetteUse, tuple[Any, str | None]] = {}
        self.opened: set[Path] = set()
        self._plays_all: bool = config.getoption("mrtr_fail_on_unplayed")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note which cassettes a test has that did not pass, and show its misses with it."""
        report = yield
        if call.excinfo is None:
            return report
        for use in self._used_by(item):
            use.failed = True
            if isinstance(call.excinfo.value, pytest.skip.Exception):
                continue
            output = use.upstream_output
            if output is not None:
                report.sections.append(("mrtr-cassette: output of the upstream", output))
            misses = use.unreported_misses()
            if misses is not None:
                report.sections.append(("mrtr-cassette: misses", misses))
        return report

    def _used_by(self, item: pytest.Item) -> list[CassetteUse]:
        chain = item.listchain()
        names = getattr(item, "fixturenames", ())
        return [
            use
            for use, (node, fixture) in self.uses.items()
            if node is item or (node in chain and fixture in names)
        ]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        """Publish what a test recorded, and fail it for requests without a recorded answer.

        By now the fixtures are torn down: the client has closed.
        """
        try:
            yield
        except BaseException:
            self._conclude(item, passed=False)
            raise
        misses = [use.unreported_misses() for use in self.uses]
        problems = [text for text in misses if text is not None]
        found, empty = self._conclude(item, passed=not problems)
        problems += found
        if problems:
            pytest.fail("\n\n".join(problems), pytrace=False)
        for path in empty:
            item.warn(
                MrtrCassetteWarning(
                    f"nothing was recorded, and {path} not written: no client sent a request to "
                    "the url of the cassette"
                )
            )

    def _conclude(self, item: pytest.Item, *, passed: bool) -> tuple[list[str], list[Path]]:
        """Conclude the uses that are stopped; return what is wrong, and where nothing was."""
        problems: list[str] = []
        empty: list[Path] = []
        for use in [use for use in self.uses if use.is_stopped]:
            node, _ = self.uses.pop(use)
            # A run that ends early has not recorded all that a class or a module would.
            is_cut = node is not item and bool(item.session.shouldstop or item.session.shouldfail)
            passes = passed and not use.failed and not is_cut
            found = use.conclude(passed=passes, plays_all=self._plays_all)
            problems += found
            if passes and use.is_empty and not found:
                empty.append(use.path)
        return problems, empty

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self) -> Generator[None, None, None]:
        """Conclude what an interrupted run left, and stop the applications."""
        try:
            yield
        finally:
            while self.uses:
                use, _ = self.uses.popitem()
                use.stop()
                use.conclude(passed=False)
            self.run.applications.close()


class _Orphans:
    """Finds cassettes that no collected test uses; a plugin where that is asked for."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._used: set[str] = set()
        self._folders: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note what the tests use, also those that will be deselected."""
        from mrtr_cassette.errors import MrtrCassetteError

        scopes: dict[str, Any] = {
            "mrtr_cassette": pytest.Function,
            "mrtr_cassette_class": pytest.Class,
            "mrtr_cassette_module": pytest.Module,
        }
        for item in items:
            self._folders.add(str(_folder(item)))
            for fixture, kind in scopes.items():
                if fixture not in getattr(item, "fixturenames", ()):
                    continue
                # Outside of a class its fixture belongs to the test.
                node = item.getparent(kind) or item
                try:
                    names = [place.values.get("name") for place in _marked(node)]
                except MrtrCassetteError:
                    continue  # the test itself will say so
                named = [name for name in names if name is not None]
                self._used.add(str(_path(node, named[-1] if named else None)))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Add what was opened by name while the tests ran; a worker hands it on."""
        cassettes = session.config.stash.get(_CASSETTES_KEY, None)
        if cassettes is not None:
            self._used |= {str(path) for path in cassettes.opened}
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["mrtr_cassette_orphans"] = (sorted(self._used), sorted(self._folders))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker of pytest-xdist found."""
        used, folders = getattr(node, "workeroutput", {}).get("mrtr_cassette_orphans", ((), ()))
        self._used |= set(used)
        self._folders |= set(folders)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """List the orphans."""
        orphans = sorted(
            path
            for folder in self._folders
            for path in Path(folder).rglob("*.json")
            if path.is_file() and str(path) not in self._used and _is_cassette(path)
        )
        terminalreporter.section("mrtr-cassette: cassettes that no collected test uses")
        root = self._config.rootpath
        for path in orphans:
            shown = path.relative_to(root) if path.is_relative_to(root) else path
            terminalreporter.line(str(shown))
        if not orphans:
            terminalreporter.line("none")


def _is_cassette(path: Path) -> bool:
    with path.open("rb") as file:
        return b'"urn:mrtr-cassette:cassette:' in file.read(200)
