"""Look for inputs that break a law, guided by coverage, for a bounded time.

    python tests/fuzz/run.py --seconds 180
    python tests/fuzz/run.py --seconds 60 --target player --target test_reading_is_total

The laws are those of `targets`, and those of `seams/test_laws.py` that hypothesis makes input for.

Needs atheris (`pip install atheris`). It begins with the inputs of `corpus/TARGET/`, and puts the
input that breaks a law there, as `broken-…`; `test_corpus.py` runs them all.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
LONGEST = 2048
"""Bytes of an input; longer ones break nothing that shorter ones don't, and nobody reads them."""

SLOWEST_S = 10

sys.path.insert(0, str(HERE.parent))


def laws() -> dict[str, Callable[[bytes], object]]:
    """Return what takes the fuzzer's bytes, by name."""
    from fuzz.targets import TARGETS_BY_NAME
    from seams import test_laws

    made_up = {
        name: getattr(law, "hypothesis", None) for name, law in vars(test_laws).items()
    }
    return TARGETS_BY_NAME | {
        name: handle.fuzz_one_input
        for name, handle in made_up.items()
        if handle is not None
    }


def fuzz(target: str, seconds: int) -> None:
    """Fuzz a target in this process, which ends with the time or with a law that is broken."""
    import atheris

    with atheris.instrument_imports(include=["mrtr_cassette"]):
        law = laws()[target]

    corpus = HERE / "corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    options = {
        "max_total_time": seconds,
        "max_len": LONGEST,
        "timeout": SLOWEST_S,
        "rss_limit_mb": 4096,
        "print_final_stats": 1,
        "artifact_prefix": f"{corpus}/broken-",
    }
    with tempfile.TemporaryDirectory(prefix="mrtr-fuzz-") as found:
        flags = [f"-{key}={value}" for key, value in options.items()]
        atheris.Setup([sys.argv[0], *flags, found, str(corpus)], law)
        atheris.Fuzz()


def main() -> int:
    """Fuzz each target, in a process of its own, for its share of the time."""
    parser = argparse.ArgumentParser(description="Fuzz the core, guided by coverage.")
    parser.add_argument(
        "--seconds", type=int, default=180, help="time for all targets together"
    )
    parser.add_argument(
        "--target", action="append", choices=sorted(laws()), help="may be repeated"
    )
    options = parser.parse_args()
    if importlib.util.find_spec("atheris") is None:
        sys.exit("the fuzzer needs atheris: pip install atheris")

    targets = options.target or list(laws())
    seconds = str(max(1, options.seconds // len(targets)))
    commands = [
        [sys.executable, __file__, "--child", target, seconds] for target in targets
    ]

    return max(subprocess.run(command, check=False).returncode for command in commands)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        fuzz(sys.argv[2], int(sys.argv[3]))

    sys.exit(main())
