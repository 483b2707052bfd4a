"""Measures how much of each core module its own tests cover, and how much all cover of the rest.

    python tests/coverage_of_modules.py [MODULE ...]    each core module by its own test file alone
    python tests/coverage_of_modules.py --rest          the data of `coverage run -m pytest`
    ... --raise                                         and write down what is higher than before

Owns: the floors in `coverage_floors.json`, in percent of lines and branches.
Rule: a floor rises or stays. Nothing here writes a lower one, nor one for a run that failed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import coverage
import hypothesis  # noqa: F401  most tests of the core need it
import pytest

TESTS: Final = Path(__file__).resolve().parent
ROOT: Final = TESTS.parent
CORE: Final = ROOT / "mrtr_cassette" / "core"
FLOORS: Final = TESTS / "coverage_floors.json"
REST: Final = "all but the core"
_OPTIONS: Final = (
    "-q",
    "-p",
    "no:cacheprovider",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",  # hypothesis was imported before pytest began
)


class Measured(NamedTuple):
    """What was measured for one name of the floors.

    Attributes:
        percent: lines and branches covered, rounded down to a tenth.
        missing: lines that are not covered.
        problem: why nothing was measured.
    """

    name: str
    percent: float = 0.0
    missing: Sequence[int] = ()
    problem: str | None = None


def modules() -> list[str]:
    """Return the modules of the core as `folder/module`."""
    paths = (path for path in CORE.rglob("*.py") if path.stem != "__init__")
    return sorted(str(path.relative_to(CORE).with_suffix("")) for path in paths)


def test_file(module: str) -> Path | None:
    """Return the test file of a module; with its folder in the name where another has the name."""
    folder, _, name = module.rpartition("/")
    tests = TESTS / "core" / folder
    paths = (tests / f"test_{name}.py", tests / f"test_{folder}_{name}.py")
    return next((path for path in paths if path.is_file()), None)


def of_rest() -> Measured:
    """Read what all tests cover of what is not the core."""
    covered = coverage.Coverage()
    covered.load()
    return measured(REST, covered)


def of_module(module: str) -> Measured:
    """Run a module's own tests, and measure that module alone; only in a process of its own.

    The process has no module of the package before, so that all lines of this one are seen to run.
    """
    path = test_file(module)
    if path is None:
        return Measured(module, problem="has no test file of its own")
    covered = coverage.Coverage(
        data_file=None, config_file=False, branch=True, include=[f"{CORE / module}.py"]
    )
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        covered.start()
        code = pytest.main([*_OPTIONS, str(path)])
        covered.stop()
    if code:
        return Measured(module, problem=f"its tests fail:\n{said.getvalue()}")
    return measured(module, covered)


def measured(name: str, covered: coverage.Coverage) -> Measured:
    """Return what a measurement says of the files in it."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        try:
            covered.json_report(outfile=file.name)
        except coverage.CoverageException as error:
            return Measured(name, problem=str(error))
        tree = json.load(file)
    percent = int(tree["totals"]["percent_covered"] * 10) / 10
    missing = [line for each in tree["files"].values() for line in each["missing_lines"]]
    return Measured(name, percent, missing)


def verdict(measured: Measured, floors: Mapping[str, float]) -> str | None:
    """Return what is wrong with a measurement."""
    floor = floors.get(measured.name)
    if measured.problem is not None:
        return measured.problem
    if floor is None:
        return f"{measured.percent} %, and no floor is written down; --raise writes it"
    if measured.percent < floor:
        lines = ", ".join(map(str, measured.missing[:20]))
        return f"{measured.percent} %, below its floor of {floor} %; not covered: lines {lines}"
    return None


def raised(results: Sequence[Measured], floors: Mapping[str, float]) -> dict[str, float]:
    """Return the floors with what is higher now, and without modules that are gone."""
    names = {REST, *modules()}
    percents = {one.name: one.percent for one in results if one.problem is None}
    return {
        name: max(floors.get(name, 0.0), percents.get(name, 0.0))
        for name in sorted(names)
        if name in percents or name in floors
    }


def main() -> int:
    """Measure, compare with the floors, and say what is below."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("modules", nargs="*", help="modules as folder/module; all by default")
    parser.add_argument("--rest", action="store_true", help="read the data of the whole suite")
    parser.add_argument("--raise", action="store_true", dest="raises", help="write higher floors")
    options = parser.parse_args()
    floors: dict[str, float] = json.loads(FLOORS.read_text()) if FLOORS.exists() else {}
    if options.rest:
        results = [of_rest()]
    else:
        # What each child needs is imported once, and forked.
        forking = multiprocessing.get_context("fork")
        with forking.Pool(maxtasksperchild=1) as pool:
            results = pool.map(of_module, options.modules or modules(), chunksize=1)
    if options.raises:
        floors = raised(results, floors)
        FLOORS.write_text(json.dumps(floors, indent=2) + "\n")
    problems = [f"{one.name}: {wrong}" for one in results if (wrong := verdict(one, floors))]
    for one in results:
        sys.stdout.write(f"{one.percent:6.1f} %  {one.name}\n")
    for problem in problems:
        sys.stdout.write(f"{problem}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
