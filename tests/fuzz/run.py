"""Look for inputs that break a law, guided by coverage, for a bounded time.

    python tests/fuzz/run.py --seconds 180
    python tests/fuzz/run.py --seconds 60 --target player --target test_reading_is_total

The laws are those of `targets`, and those of `seams/test_laws.py` that hypothesis makes input for.

Needs atheris (`pip install atheris`). It begins with the inputs of `corpus/TARGET/`, and puts one
input there for each way to break a law, as `broken-…`; `test_corpus.py` runs them all.
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
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
CORPUS = HERE / "corpus"
LONGEST = 2048
"""Bytes of an input; longer ones break nothing that shorter ones don't, and nobody reads them."""
SLOWEST_S = 10

sys.path.insert(0, str(HERE.parent))


class Result(NamedTuple):
    """What fuzzing a target came to."""

    target: str
    executions: int
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


def laws() -> dict[str, Callable[[bytes], object]]:
    """Return what takes the fuzzer's bytes, by name."""
    from fuzz.targets import TARGETS_BY_NAME
    from seams import test_laws

    made_up = {name: getattr(law, "hypothesis", None) for name, law in vars(test_laws).items()}
    return TARGETS_BY_NAME | {
        name: handle.fuzz_one_input for name, handle in made_up.items() if handle is not None
    }


# --- The process that fuzzes ---


def fuzz(target: str, seconds: int, work: Path) -> None:
    """Fuzz a target; does not return. What breaks a law is noted, and the fuzzing goes on."""
    import atheris

    with atheris.instrument_imports(include=["mrtr_cassette"]):
        law = laws()[target]
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
    """Fuzz a target in a process of its own, and keep the inputs that break a law."""
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
        for path in (work / "broken").iterdir():
            if path.suffix != ".txt":
                name = path.name.removeprefix("artifact-")[:20]
                shutil.copy(path, CORPUS / target / f"broken-{name}")
        return Result(target, int(stats[1]), broken)


# --- The command line ---


def main() -> int:
    """Fuzz each target for its share of the time."""
    parser = argparse.ArgumentParser(description="Fuzz the core, guided by coverage.")
    parser.add_argument("--seconds", type=int, default=180, help="time for all targets together")
    parser.add_argument("--target", action="append", choices=sorted(laws()), help="may be repeated")
    options = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        sys.exit("the fuzzer needs atheris: pip install atheris")
    targets = options.target or list(laws())
    say = print
    results = []
    for target in targets:
        results.append(fuzzed(target, max(1, options.seconds // len(targets))))
        result = results[-1]
        say(f"{target:<10} {result.executions:>12,} executions")
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
