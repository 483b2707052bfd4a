"""Measure the program beside what its own HTTP library can do at best, in one run.

    python bench/bench.py [--quick] [--only WORD ...] [--json FILE] [--peer 'NAME=COMMAND' ...]

What is compared has a stint in each round, one after the other, so ratios hold on a busy
machine too; absolute figures are of this machine only. It needs Linux, whose /proc tells the peak
memory of a process. `record` and `replay` run as users run
them, the baselines are in `servers.py`, and the load comes from this process (`load.py`).

Replay plays a cassette of distinct conversations with `--repeat always`, so that a stint may be
longer than the cassette. What a play costs that nobody has asked for before shows in the largest
cassette of the section `sizes`, in which nothing comes twice.

A peer is another program's command. With `{upstream}` in it, it is a recorder, is measured
recording, and leaves `{cassette}`; without, it replays the `{cassette}` of the recorder of the same
name. It has to listen on `{port}`. When it replays, it is asked for nothing twice, and nobody looks
whether the answer is of the same call, because some peers can't do the one or the other:

    --peer 'other=other-tool record --port {port} --to {upstream} --file {cassette}'
    --peer 'other=other-tool replay --port {port} --file {cassette}'
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import sys
import tempfile
from pathlib import Path

import cost
import orjson
import plays
import round_trips
import speed
import stall
import trials
import vitest_suites
from ground import FULL, HERE, LOADS, LOOPS, QUICK, SECTIONS, Bench, Peer, narrowed
from processes import ProcessError
from results import Results

RUNS = {
    "replay": speed.replay,
    "record": speed.record,
    "pipes": round_trips.round_trips,
    "growth": cost.growth,
    "sizes": cost.sizes,
    "idle": cost.idle,
    "fixture": cost.fixture,
    "plays": plays.plays,
    "trials": trials.trials,
    "suites": vitest_suites.suites,
    "stall": stall.longest,
}


def _machine() -> dict[str, str]:
    model = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        names = [
            line
            for line in information.read_text().splitlines()
            if "model name" in line
        ]
        model = names[0].partition(":")[2].strip() if names else model
    versions = {
        name: importlib.metadata.version(name)
        for name in ("aiohttp", "uvloop", "orjson", "pydantic")
        if importlib.util.find_spec(name) is not None
    }
    return {
        "processor": model,
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        **versions,
    }


def _peer(text: str) -> Peer:
    name, found, command = text.partition("=")
    if not found or not name or "{port}" not in command:
        raise argparse.ArgumentTypeError("not of the form NAME=COMMAND with {port}")
    return Peer(name, command)


def main() -> int:
    """Measure, print the tables, and write the figures; 1 where an answer was wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    words = (*SECTIONS, *(kind.name for kind in LOADS), *LOOPS)
    numbers = map(str, (*FULL.connections, *FULL.interactions))
    parser.add_argument(
        "--quick", action="store_true", help="show that it works, in seconds"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="WORD",
        choices=[*words, *numbers],
        help=f"measure a part, such as: --only replay plain 32; words: {', '.join(words)}, "
        "and numbers of connections and interactions",
    )
    parser.add_argument(
        "--json", type=Path, default=HERE / "results.json", help="where the figures go"
    )
    parser.add_argument(
        "--peer",
        dest="peers",
        action="append",
        default=[],
        type=_peer,
        metavar="NAME=COMMAND",
        help="another program, with {port}, {cassette} and for a recorder {upstream}",
    )
    options = parser.parse_args()
    # What is installed has its bytecode; without it each start would be that of the compiler.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    size = narrowed(QUICK if options.quick else FULL, options.only)
    results = Results(_machine())
    with tempfile.TemporaryDirectory(prefix="mrtr-cassette-bench-") as folder:
        bench = Bench(size, results, Path(folder), options.peers)
        for name in size.sections:
            print(f"measuring: {name}", file=sys.stderr)
            try:
                RUNS[name](bench)
            except ProcessError as error:
                parser.exit(1, f"error: {error}\n")
    options.json.write_bytes(
        orjson.dumps(
            results.as_json(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
        )
    )
    print(results.as_markdown(), end="")
    return 1 if results.problems else 0


if __name__ == "__main__":
    sys.exit(main())
