"""What a cassette for each test costs a suite of vitest.

Owns: the two suites, and the target of the section.
"""

from __future__ import annotations

import shutil
import time

from ground import HERE, Bench
from npm_projects import Project, install_package, typescript_server, used_by
from results import ratio_of

_FILES = 4
_TESTS = 100
_BARE = "bare.config.ts"


def suites(bench: Bench) -> None:
    """Compare a suite that replays with one whose tests have a server in their own process."""
    folder = bench.folder / "vitest"
    install_package(folder)
    project = used_by(folder, bench.folder)
    for name in ("played", "fake"):
        (folder / name).mkdir()
        for number in range(_FILES):
            source = HERE / "vitest" / f"{name}.test.ts"
            shutil.copy(source, folder / name / f"{number}.test.ts")
    (folder / _BARE).write_text("export default {};\n")
    count = _TESTS if bench.size.repeats > 1 else _FILES
    tests = {"TESTS": str(count // _FILES)}
    with typescript_server() as server:
        _timed_s(project, "played", environment={**server, **tests})

    played: list[float] = []
    faked: list[float] = []
    for _ in range(bench.size.repeats):
        played.append(_timed_s(project, "played", environment={**tests, "CI": "1"}))
        faked.append(_timed_s(project, "fake", "--config", _BARE, environment=tests))
    results = bench.results
    results.fact(f"vitest, {count} tests with a cassette each", "s", *played)
    results.fact("the same against a server in the tests' own process", "s", *faked)
    results.at_most(
        f"vitest, {count} tests with a cassette each, against a server in their own process",
        ratio_of(played, faked),
        2.0,
    )


def _timed_s(project: Project, *words: str, environment: dict[str, str]) -> float:
    started = time.perf_counter()
    ended = project.run(
        "node_modules/.bin/vitest", "run", *words, environment=environment
    )
    if ended.returncode:
        raise AssertionError(ended.stdout + ended.stderr)
    return time.perf_counter() - started
