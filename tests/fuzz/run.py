"""Look for inputs that break the laws of `targets`, guided by coverage, for a bounded time.

    python tests/fuzz/run.py --seconds 180
    python tests/fuzz/run.py --seconds 60 --target recorder --target player

Needs atheris (`pip install atheris`). Of what the fuzzer finds, the smallest inputs that together
go through all that was gone through stay in `corpus/TARGET/`; so does one input for each way to
break a law, as `broken-…`. `test_corpus.py` runs them all. Inputs with other names were written by
hand and stay as they are.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
PACKAGE = str(HERE.parent.parent / "mrtr_cassette")
LONGEST = 2048
"""Bytes of an input; longer ones break nothing that shorter ones don't, and nobody reads them."""
MOST = 30
"""Inputs that are kept for a target, those that were written by hand not counted."""
SLOWEST_S = 10
FOUND = re.compile(r"[0-9a-f]{12}")
BROKEN = "broken-"

sys.path.insert(0, str(HERE.parent))


class Result(NamedTuple):
    """What fuzzing a target came to."""

    target: str
    executions: int
    kept: int
    broken: list[str]


def name_of(data: bytes) -> str:
    """Return the name of an input that was found."""
    return hashlib.sha256(data).hexdigest()[:12]


def place_of(error: BaseException) -> str:
    """Return where an input fails: two with the same place are one finding."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "mrtr_cassette" in frame.filename] or frames
    frame, caught = own[-1], frames[-1]
    return (
        f"{type(error).__name__} in {Path(frame.filename).name}:{frame.name}, "
        f"seen by {Path(caught.filename).name}:{caught.lineno}"
    )


# --- The process that fuzzes ---


def fuzz(target: str, seconds: int, work: Path) -> None:
    """Fuzz a target; does not return. What breaks a law is noted, and the fuzzing goes on."""
    import atheris

    with atheris.instrument_imports(include=["mrtr_cassette"]):
        from fuzz.targets import TARGETS_BY_NAME
    law = TARGETS_BY_NAME[target]
    seen: set[str] = set()

    def one_input(data: bytes) -> None:
        try:
            law(data)
        except Exception as error:  # noqa: BLE001  whatever it is, it is what we look for
            place = place_of(error)
            if place not in seen:
                seen.add(place)
                path = work / "broken" / name_of(data)
                path.write_bytes(data)
                path.with_suffix(".txt").write_text(f"{place}\n{traceback.format_exc()}")

    options = {
        "max_total_time": seconds,
        "max_len": LONGEST,
        "timeout": SLOWEST_S,
        "rss_limit_mb": 4096,
        "print_final_stats": 1,
        "artifact_prefix": f"{work}/broken/artifact-",
    }
    flags = [f"-{key}={value}" for key, value in options.items()]
    atheris.Setup([sys.argv[0], *flags, str(work / "found"), str(CORPUS / target)], one_input)
    atheris.Fuzz()


def fuzzed(target: str, seconds: int) -> Result:
    """Fuzz a target in a process of its own, and keep what is worth it."""
    with tempfile.TemporaryDirectory(prefix="mrtr-fuzz-") as folder:
        work = Path(folder)
        for name in ("found", "broken"):
            (work / name).mkdir()
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        command = [sys.executable, __file__, "--seconds", str(seconds), "--child", target, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        stats = re.search(r"number_of_executed_units:\s*(\d+)", done.stderr)
        if stats is None:
            sys.exit(f"{target}: the fuzzer ended with {done.returncode}:\n{done.stderr[-4000:]}")
        broken = [path.read_text() for path in sorted((work / "broken").glob("*.txt"))]
        broken += [str(path.name) for path in (work / "broken").glob("artifact-*")]
        minimise(target, [path.read_bytes() for path in (work / "found").iterdir()])
        for path in (work / "broken").iterdir():
            if path.suffix != ".txt":
                name = path.name.removeprefix("artifact-")[:20]
                shutil.copy(path, CORPUS / target / f"{BROKEN}{name}")
        kept = len(list((CORPUS / target).iterdir()))
        return Result(target, int(stats[1]), kept, broken)


# --- What is kept ---

Arcs = frozenset[tuple[str, int, int]]


def arcs_of(law: Any, data: bytes) -> Arcs:
    """Return the steps from line to line that the package makes for an input."""
    steps: set[tuple[str, int, int]] = set()
    last: dict[FrameType, int] = {}

    def step(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            steps.add((frame.f_code.co_filename, last.get(frame, 0), frame.f_lineno))
            last[frame] = frame.f_lineno
        return step

    def called(frame: FrameType, _event: str, _: Any) -> Any:
        return step if frame.f_code.co_filename.startswith(PACKAGE) else None

    sys.settrace(called)
    try:
        law(data)
    except Exception:  # noqa: BLE001  what it breaks is told elsewhere
        return frozenset()
    finally:
        sys.settrace(None)
    return frozenset(steps)


def minimise(target: str, found: list[bytes]) -> None:
    """Keep, of what was found now and before, what goes where nothing smaller goes."""
    from fuzz.targets import TARGETS_BY_NAME

    law = TARGETS_BY_NAME[target]
    folder = CORPUS / target
    before = [path for path in folder.iterdir() if FOUND.fullmatch(path.name)]
    given = [path for path in folder.iterdir() if path not in before]
    candidates = sorted({*found, *(path.read_bytes() for path in before)}, key=_small_first)
    reached = {arc for path in given for arc in arcs_of(law, path.read_bytes())}
    chosen: dict[bytes, Arcs] = {}
    for data in candidates:
        arcs = arcs_of(law, data) - reached
        if arcs - {arc for one in chosen.values() for arc in one}:
            chosen[data] = arcs
    for path in before:
        path.unlink()
    for data in list(_fewest(chosen))[:MOST]:
        (folder / name_of(data)).write_bytes(data)


def _small_first(data: bytes) -> tuple[int, bytes]:
    return len(data), data


def _fewest(chosen: dict[bytes, Arcs]) -> Iterator[bytes]:
    """Yield inputs, those that reach most first, until all is reached that any of them reaches."""
    reached: set[tuple[str, int, int]] = set()
    while chosen:
        best = max(chosen, key=lambda data: (len(chosen[data] - reached), -len(data)))
        more = chosen.pop(best) - reached
        if not more:
            return
        reached |= more
        yield best


# --- The command line ---


def main() -> int:
    """Fuzz each target for its share of the time."""
    from fuzz.targets import TARGETS_BY_NAME

    parser = argparse.ArgumentParser(description="Fuzz the core, guided by coverage.")
    parser.add_argument("--seconds", type=int, default=180, help="time for all targets together")
    parser.add_argument(
        "--target", action="append", choices=sorted(TARGETS_BY_NAME), help="may be repeated"
    )
    options = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        sys.exit("the fuzzer needs atheris: pip install atheris")
    targets = options.target or list(TARGETS_BY_NAME)
    say = print
    results = []
    for target in targets:
        results.append(fuzzed(target, max(1, options.seconds // len(targets))))
        result = results[-1]
        say(f"{target:<10} {result.executions:>12,} executions, {result.kept:>3} inputs kept")
        for one in result.broken:
            say(one)
    places = Counter(one.partition("\n")[0] for result in results for one in result.broken)
    say(f"{sum(result.executions for result in results):,} executions, {len(places)} findings")
    return 1 if places else 0


if __name__ == "__main__":
    if "--child" in sys.argv:
        _, _, _seconds, _, _target, _work = sys.argv
        fuzz(_target, int(_seconds), Path(_work))
    else:
        sys.exit(main())
