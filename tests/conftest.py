"""Settings of the whole suite: examples of the laws, hangs and goldens.

`ci` is the same on every run; `make laws` looks longer and elsewhere.
"""

from __future__ import annotations

import compileall
import fcntl
import gc
import os
import signal
import subprocess
import sys
import venv
from collections.abc import Callable, Generator, Iterator
from importlib import metadata
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from forked import FORKS_ALL, FORKS_HERE, ForkedPopen
from hypothesis import HealthCheck, settings
from packaging.requirements import Requirement
from patience import TEST_HANGS_S

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "mrtr_cassette"
DISTRIBUTION = "mrtr-cassette"

# Assertions of these modules show both values, as those of tests do.
pytest.register_assert_rewrite(
    *(path.stem for path in TESTS.glob("*.py") if path.stem not in sys.modules)
)

_SLOW_IS_FINE = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile(
    "ci",
    derandomize=True,
    max_examples=25,
    deadline=None,
    suppress_health_check=_SLOW_IS_FINE,
)
settings.register_profile(
    "deep", max_examples=2_000, deadline=None, suppress_health_check=_SLOW_IS_FINE
)
_PROFILE = os.environ.get("MRTR_HYPOTHESIS_PROFILE", "ci")
settings.load_profile(_PROFILE)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let expected sections of golden cases be written, which is always somebody's decision."""
    parser.addoption(
        "--update-goldens", action="store_true", help="write the expected sections"
    )


@pytest.fixture
def updates_goldens(request: pytest.FixtureRequest) -> bool:
    """Tell whether the expected sections of golden cases are written; in CI they never are."""
    updates: bool = request.config.getoption("--update-goldens")
    if updates and os.environ.get("CI"):
        pytest.fail("--update-goldens is not for CI", pytrace=False)
    if updates and os.environ.get("PYTEST_XDIST_WORKER"):
        pytest.fail(
            "--update-goldens writes files that tests share: leave -n out",
            pytrace=False,
        )

    return updates


def pip(*arguments: str) -> None:
    """Run pip."""
    command = [sys.executable, "-m", "pip", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def made_once(
    factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]
) -> Path:
    """Return a folder that the first worker which needs it fills, while others wait."""
    folder = factory.getbasetemp() / name
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = factory.getbasetemp().parent / name

    made = folder.with_name(f"{name}-made")
    with folder.with_name(f"{name}-claim").open("w") as claim:
        fcntl.flock(claim, fcntl.LOCK_EX)
        if not made.exists():
            make(folder)
            made.touch()

    return folder


def build_packages(folder: Path) -> None:
    """Build the packages that are published into a folder."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder]
    done = subprocess.run(
        [*command, TESTS.parent], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source package, and the wheel that is built from it."""
    folder = made_once(tmp_path_factory, "packages", build_packages)
    (source,) = folder.glob("*.tar.gz")
    (wheel,) = folder.glob("*.whl")

    return source, wheel


@pytest.fixture(scope="session")
def wheel(packages: tuple[Path, Path]) -> Path:
    """The wheel of this package, as it would be published."""
    return packages[1]


def distributions_needed(*roots: str) -> Iterator[Distribution]:
    """Yield the installed distributions that some need, and these, but the package itself."""
    waiting = [Requirement(root) for root in roots]
    seen = set()
    while waiting:
        needed = waiting.pop()
        if str(needed) in seen:
            continue

        seen.add(str(needed))
        distribution = metadata.distribution(needed.name)
        if needed.name != DISTRIBUTION:
            yield distribution

        extras = needed.extras or {""}
        for requirement in map(Requirement, distribution.requires or ()):
            marker = requirement.marker
            if marker is None or any(
                marker.evaluate({"extra": extra}) for extra in extras
            ):
                waiting.append(requirement)


def borrow(distribution: Distribution, site: Path) -> None:
    """Link the files of an installed distribution into another environment."""
    for name in {file.parts[0] for file in distribution.files or ()}:
        borrowed = site / name
        if name != ".." and not borrowed.exists():
            borrowed.symlink_to(Path(str(distribution.locate_file(name))))


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The programs of a user's environment: the wheel, pytest, the official SDK, and what they need."""

    def install(folder: Path) -> None:
        venv.create(folder, symlinks=True)
        (site,) = (folder / "lib").glob("python*/site-packages")
        for distribution in distributions_needed(DISTRIBUTION, "pytest", "mcp"):
            borrow(distribution, site)

        pip("--python", str(folder / "bin/python"), "install", "--no-deps", str(wheel))

    return made_once(tmp_path_factory, "environment", install) / "bin"


@pytest.fixture
def forks_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the Python programs that the test's own process starts, and what these start."""
    if FORKS_HERE:
        monkeypatch.setattr(subprocess, "Popen", ForkedPopen)
        monkeypatch.setenv(FORKS_ALL, "1")


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Let one worker more run than there are processors: many tests wait for programs they start."""
    processors = yield
    return processors + 1


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Guard each test against hanging, unless the command line says how."""
    # Programs that tests start inherit it, also where the suite itself is to survive a hang-up.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # No proxy of this machine stands before what the tests serve.
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]

    if config.option.timeout is None:
        config.option.timeout = TEST_HANGS_S

    if not hasattr(config, "workerinput"):
        # Where Python is told to write no bytecode, each program would compile the package anew.
        compileall.compile_dir(PACKAGE, quiet=2)


_LONG = (
    "wild",
    "npm",
    "test_bench.py",
    "languages",
    "test_guides.py",
    "test_docs.py",
    "test_api.py",
    "test_house.py",
    "soak",
    "sdk",
    "plugin",
)
"""Files and folders whose tests take seconds each, those with the longest ones first."""


def _place(item: pytest.Item) -> str:
    """Return the file or folder among the tests in which a test stands."""
    return item.path.relative_to(TESTS).parts[0]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave the tests and what they import to no search for garbage: all of it stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long, so that no worker waits for another one in the end.

    A search that was asked for takes its time.
    """
    ranks = {place: rank for rank, place in enumerate(_LONG)}
    items.sort(key=lambda item: ranks.get(_place(item), len(ranks)))
    if _PROFILE != "ci":
        for item in items:
            item.add_marker(pytest.mark.timeout(0))
