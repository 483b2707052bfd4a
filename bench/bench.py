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
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from harness import (
    CASSETTE_COMMAND,
    Listening,
    ProcessError,
    free_port,
    is_refused,
    listening,
    record_command,
    replay_command,
)
from load import Plan, Stint, Subject, measure
from results import Rates, Results, ratio_of
from traffic import BARE, LARGE, PATH, PAUSED, PLAIN, ROUNDS, STREAM, UPLOAD, Kind

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.format.journal import JournalHeader, encode_line
from mrtr_cassette.core.wire.http import End, Piece, Request, Response
from mrtr_cassette.shell.files import Journal, journal_path
from mrtr_cassette.shell.running import run

HERE = Path(__file__).resolve().parent
MEGABYTE = 1e6
PATIENCE_S = 60.0
SECTIONS = ("replay", "record", "growth", "sizes", "idle")
LOADS = (PLAIN, ROUNDS, STREAM, LARGE, UPLOAD)
LOOPS = {
    "uvloop": {},
    # Found before the installed one, and can't be imported: the program takes asyncio's loop.
    "asyncio": {"PYTHONPATH": str(HERE / "without_uvloop")},
}
WEIGHTY = 32
"""How many exchanges of 1 MB a stint has at most, unless each connection needs one; a recording
keeps them on the disk."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured.

    Attributes:
        usual: the number of connections at which targets are compared.
        conversations: distinct conversations of each kind in the cassette that is replayed.
        interactions: sizes of the cassettes that are loaded.
        growth: numbers of exchanges between which a recording's memory is compared.
        repeats: how often a start is measured.
        weighty: as `conversations`, where a body has 1 MB.
    """

    sections: tuple[str, ...] = SECTIONS
    kinds: tuple[Kind, ...] = LOADS
    connections: tuple[int, ...] = (1, 8, 32, 128)
    usual: int = 32
    loops: tuple[str, ...] = tuple(LOOPS if importlib.util.find_spec("uvloop") else ["asyncio"])
    rounds: int = 5
    seconds: float = 0.5
    warm_up_s: float = 0.2
    conversations: int = 500
    weighty: int = 8
    interactions: tuple[int, ...] = (10, 1000, 10_000, 100_000)
    growth: tuple[int, int] = (10_000, 100_000)
    repeats: int = 5


FULL = Size()
QUICK = Size(
    connections=(2,),
    usual=2,
    loops=FULL.loops[:1],
    rounds=1,
    seconds=0.05,
    warm_up_s=0.0,
    conversations=3,
    weighty=1,
    interactions=(2, 20),
    growth=(5, 20),
    repeats=1,
)


@dataclass(frozen=True, slots=True)
class Peer:
    """Another program's recorder or replay server, as a command to fill in."""

    name: str
    command: str

    @property
    def records(self) -> bool:
        """Whether it is a recorder."""
        return "{upstream}" in self.command

    @contextmanager
    def listening(self, folder: Path, upstream: str = "") -> Iterator[str]:
        """Run it until the block ends; give its URL.

        Raises:
            ProcessError: it ends, or does not listen in time.
        """
        port = free_port()
        values = {"port": port, "upstream": upstream, "cassette": folder / f"{self.name}.cassette"}
        command = [word.format_map(values) for word in shlex.split(self.command)]
        url = f"http://127.0.0.1:{port}{PATH}"
        with tempfile.TemporaryFile("w+") as log:
            try:
                process = subprocess.Popen(command, stdout=log, stderr=log)
            except OSError as error:
                raise ProcessError(f"the peer {self.name} can't be run: {error}") from None
            try:
                end = time.monotonic() + PATIENCE_S
                while is_refused(url):
                    if process.poll() is not None or time.monotonic() > end:
                        log.seek(0)
                        raise ProcessError(f"the peer {self.name} does not listen:\n{log.read()}")
                    time.sleep(0.05)
                yield url
            finally:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(PATIENCE_S)
                except subprocess.TimeoutExpired:
                    process.kill()


@dataclass(frozen=True, slots=True)
class Bench:
    """One run."""

    size: Size
    results: Results
    folder: Path
    peers: Sequence[Peer]

    # --- What is run ---

    def load(
        self, kind: Kind, connections: int, *subjects: Subject, **plan: Any
    ) -> dict[str, list[Stint]]:
        """Put a load on subjects in turns; return what their stints came to, by their names."""
        defaults = {
            "rounds": self.size.rounds,
            "seconds": self.size.seconds,
            "warm_up_s": self.size.warm_up_s,
        }
        if kind.padding or kind.upload:
            defaults["conversations"] = max(WEIGHTY, connections)
        stints = run(measure(Plan(kind, connections, subjects, **(defaults | plan))))
        for name, taken in stints.items():
            problem = next((stint.problem for stint in taken if stint.problem), None)
            if problem is not None:
                self.results.problems.append(f"{name}, {kind.title}: {problem}")
                stints[name] = []
        return stints

    def rates(
        self, mode: str, kind: Kind, connections: int, loop: str, base: str, *subjects: Subject
    ) -> Rates:
        """Measure requests per second of servers in turns."""
        stints = self.load(kind, connections, *subjects)
        per_round = {name: _per_second(taken) for name, taken in stints.items()}
        cpu_us = {
            name: median(spent)
            for name, taken in stints.items()
            if (spent := [stint.cpu_us for stint in taken if stint.cpu_us is not None])
        }
        measured = Rates(mode, kind.title, connections, loop, base, per_round, cpu_us)
        self.results.rates.append(measured)
        return measured

    def recording(
        self, upstream: str, name: str, loop: str, stop: signal.Signals
    ) -> AbstractContextManager[Listening]:
        """Record an upstream until the block ends."""
        return listening(record_command(upstream, self.folder / name), stop, LOOPS[loop])

    def replaying(self, path: Path, loop: str) -> AbstractContextManager[Listening]:
        """Replay a cassette until the block ends."""
        return listening(replay_command(path, "--repeat", "always"), environment=LOOPS[loop])

    def distinct(self, kind: Kind) -> int:
        """Return how many distinct conversations of one kind are recorded to be replayed."""
        return self.size.weighty if kind.padding or kind.upload else self.size.conversations

    def converse(self, kind: Kind, url: str, count: int) -> None:
        """Hold distinct conversations of one kind once, so that they can be replayed."""
        self.load(
            kind,
            1,
            Subject("recorded to be replayed", url, distinct=count),
            rounds=1,
            warm_up_s=0.0,
            seconds=PATIENCE_S,
            conversations=count,
            first_id=1_000_000,
        )

    # --- Replay ---

    def replay(self) -> None:
        """Replay beside servers that return fixed bytes and that restamp."""
        path = self.folder / "replayed.json"
        with (
            server("upstream") as upstream,
            listening(record_command(upstream.url, path)) as recorder,
        ):
            for kind in self.size.kinds:
                self.converse(kind, recorder.url, self.distinct(kind))
        for loop in self.size.loops:
            with (
                server("fixed", LOOPS[loop]) as fixed,
                server("restamp", LOOPS[loop]) as restamp,
                self.replaying(path, loop) as ours,
            ):
                for kind in self.size.kinds:
                    subjects = [
                        Subject("restamp", restamp.url, checks="id", pid=restamp.pid),
                        Subject("replay", ours.url, distinct=self.distinct(kind), pid=ours.pid),
                    ]
                    if kind is PLAIN:
                        subjects.insert(
                            0, Subject("fixed", fixed.url, checks="status", pid=fixed.pid)
                        )
                    for connections in self.size.connections:
                        self._replay_kind(kind, connections, loop, subjects)

    def _replay_kind(
        self, kind: Kind, connections: int, loop: str, subjects: Sequence[Subject]
    ) -> None:
        is_compared = connections == self.size.usual
        with ExitStack() as stack:
            peers = self._replaying_peers(stack) if kind is PLAIN and is_compared else []
            rates = self.rates("replay", kind, connections, loop, "restamp", *subjects, *peers)
        if not is_compared:
            return
        what = f"replay of {kind.title}, {connections} connections, against restamp, {loop}"
        if kind is PLAIN:
            self.results.at_least(what, rates.ratio(), 0.85)
            self._against_peers(rates, 1.5)
        elif kind is ROUNDS:
            self.results.at_least(what, rates.ratio(), 0.75)

    def _replaying_peers(self, stack: ExitStack) -> list[Subject]:
        """Start the peers that replay, after recording what they are to replay."""
        replaying = [peer for peer in self.peers if not peer.records]
        names = {peer.name for peer in replaying}
        count = (self.size.rounds + 1) * self.size.conversations
        for peer in self.peers:
            if peer.records and peer.name in names:
                with (
                    server("upstream") as upstream,
                    peer.listening(self.folder, upstream.url) as url,
                ):
                    self.converse(PLAIN, url, count)
        return [
            Subject(
                peer.name,
                stack.enter_context(peer.listening(self.folder)),
                checks="id",
                distinct=count,
                plays_once=True,
            )
            for peer in replaying
        ]

    def _against_peers(self, rates: Rates, limit: float) -> None:
        measured = [rates.ratio(peer.name) for peer in self.peers if peer.name in rates.per_round]
        known = [ratio for ratio in measured if ratio is not None]
        what = f"{rates.mode} of {rates.load} against the fastest peer given, {rates.loop}"
        self.results.at_least(what, min(known) if known else None, limit)

    # --- Recording ---

    def record(self) -> None:
        """Record beside a pass-through that records nothing."""
        for loop in self.size.loops:
            name = f"rates-{loop}.json"
            with (
                server("upstream") as upstream,
                server("pass-through", LOOPS[loop], upstream.url) as base,
                # Killed, because publishing is measured by itself.
                self.recording(upstream.url, name, loop, signal.SIGKILL) as ours,
            ):
                subjects = (
                    Subject("pass-through", base.url, pid=base.pid),
                    Subject("record", ours.url, pid=ours.pid),
                )
                for kind in self.size.kinds:
                    for connections in self.size.connections:
                        self._record_kind(kind, connections, loop, upstream.url, subjects)
                        # So many bodies of 1 MB would fill a disk.
                        os.truncate(journal_path(self.folder / name), 0)
                self._first_event(loop, Subject("direct", upstream.url), *subjects)

    def _record_kind(
        self, kind: Kind, connections: int, loop: str, upstream: str, subjects: Sequence[Subject]
    ) -> None:
        is_compared = kind is PLAIN and connections == self.size.usual
        with ExitStack() as stack:
            peers = [
                Subject(peer.name, stack.enter_context(peer.listening(self.folder, upstream)))
                for peer in self.peers
                if peer.records and is_compared
            ]
            rates = self.rates("record", kind, connections, loop, "pass-through", *subjects, *peers)
        if is_compared:
            what = f"record of {kind.title}, {connections} connections, against pass-through"
            self.results.at_least(f"{what}, {loop}", rates.ratio(), 0.85)
            self._against_peers(rates, 2.0)

    def _first_event(self, loop: str, *subjects: Subject) -> None:
        """Compare the time until the first event of a stream is whole."""
        stints = self.load(PAUSED, 1, *subjects)
        samples = {
            name: [median(stint.first_events) for stint in taken] for name, taken in stints.items()
        }
        for name, times in samples.items():
            if times:
                self.results.fact(f"time to the first event, {name}, {loop}", "ms", *times)
        ratio = ratio_of(samples["record"], samples["pass-through"])
        what = f"record, time to the first event, against pass-through, {loop}"
        self.results.at_most(what, ratio, 1.1)

    def growth(self) -> None:
        """Measure what a recording's memory grows by, and how long its end takes."""
        peaks = []
        done = 0
        late = self.size.growth[-1]
        with server("upstream") as upstream:
            with self.recording(
                upstream.url, "growth.json", self.size.loops[0], signal.SIGTERM
            ) as ours:
                for count in self.size.growth:
                    self.load(
                        PLAIN,
                        self.size.usual,
                        Subject("record", ours.url, distinct=count, first=done),
                        rounds=1,
                        warm_up_s=0.0,
                        seconds=3600.0,
                        conversations=count - done,
                    )
                    done = count
                    peaks.append(_peak_mb(ours.pid))
                    what = "peak memory of a recording under way"
                    self.results.fact(what, "MB", peaks[-1], size=count)
                ended = time.perf_counter()
            took = time.perf_counter() - ended
        if f" {late} exchanges recorded" not in ours.stderr:
            self.results.problems.append(f"a recording of {late:,} ended with: {ours.stderr}")
        self.results.fact("end of a recording, publishing included", "s", took, size=late)
        what = f"memory growth of a recording from {self.size.growth[0]:,} to {late:,} exchanges"
        self.results.at_most(what, peaks[1] - peaks[0], 20.0, "MB")

    # --- Size of the cassette ---

    def sizes(self) -> None:
        """Publish, inspect and load cassettes of several sizes, and replay them in turns."""
        loop = self.size.loops[0]
        with ExitStack() as stack:
            subjects = []
            for count in self.size.interactions:
                path = self.folder / f"{count}.json"
                self._published(count, path)
                self._inspected(count, path)
                self._started(count, path)
                ours = stack.enter_context(self.replaying(path, loop))
                subjects.append(Subject(f"{count}", ours.url, distinct=count))
            stints = self.load(BARE, self.size.usual, *subjects)
        rates = {int(name): _per_second(taken) for name, taken in stints.items()}
        for count, samples in rates.items():
            if samples:
                self.results.fact("replay of calls", "requests/s", *samples, size=count)
        smallest, largest = min(rates), max(rates)
        ratio = ratio_of(rates[largest], rates[smallest])
        what = f"replay throughput with {largest:,} interactions against {smallest:,}"
        self.results.at_least(what, ratio, 0.95)

    def _published(self, count: int, path: Path) -> None:
        """Write the journal of a recording that was killed, and publish it."""
        _write_journal(path, count)
        journal = journal_path(path).stat().st_size / MEGABYTE
        took, memory, _ = _run_timed([*CASSETTE_COMMAND, "recover", str(path)])
        cassette = path.stat().st_size / MEGABYTE
        self.results.fact("size of the journal", "MB", journal, size=count)
        self.results.fact("size of the cassette", "MB", cassette, size=count)
        self.results.fact("publishing (`recover`)", "s", took, size=count)
        self.results.fact("publishing, peak memory", "MB", memory, size=count)

    def _inspected(self, count: int, path: Path) -> None:
        took, memory, output = _run_timed([*CASSETTE_COMMAND, "inspect", str(path)])
        shown = len(output.encode()) / MEGABYTE
        self.results.fact("`inspect`", "s", took, size=count)
        self.results.fact("`inspect`, peak memory", "MB", memory, size=count)
        self.results.fact("`inspect`, size of what it prints", "MB", shown, size=count)

    def _started(self, count: int, path: Path) -> None:
        ready, peaks, parsed = [], [], []
        for _ in range(self.size.repeats):
            _, _, output = _run_timed([sys.executable, "-c", _LOADS, str(path)])
            parsed.append(float(output))
            started = time.perf_counter()
            with self.replaying(path, self.size.loops[0]) as ours:
                ready.append(time.perf_counter() - started)
                peaks.append(_peak_mb(ours.pid))
        loads = self.results.fact("`orjson.loads` of the file", "s", *parsed, size=count)
        start = self.results.fact("replay is ready after", "s", *ready, size=count)
        peak = self.results.fact("replay is ready, peak memory", "MB", *peaks, size=count)
        if count == max(self.size.interactions):
            what = f"ready to serve with {count:,} interactions, less 0.3 s, against `orjson.loads`"
            self.results.at_most(what, (start.median - 0.3) / loads.median, 2.5)
            what = f"peak memory with {count:,} interactions against the file"
            self.results.at_most(what, peak.median * MEGABYTE / path.stat().st_size, 5.0)

    # --- Idle ---

    def idle(self) -> None:
        """Measure what the program costs where it is not used."""
        commands = {
            "interpreter's own start": [sys.executable, "-c", "pass"],
            "`mrtr-cassette --help`": [*CASSETTE_COMMAND, "--help"],
        }
        samples: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(2 * self.size.repeats):
            for name, command in commands.items():
                samples[name].append(_run_timed(command)[0] * 1000)
        bare, shown = (self.results.fact(name, "ms", *times) for name, times in samples.items())
        difference = shown.median - bare.median
        self.results.at_most("`--help` more than the interpreter's start", difference, 150.0, "ms")
        command = [sys.executable, "-c", _IMPORTS_PLUGIN]
        imports = [float(_run_timed(command)[2]) for _ in range(2 * self.size.repeats)]
        cost = self.results.fact("importing the pytest plugin", "ms", *imports)
        self.results.at_most("importing the pytest plugin", cost.median, 5.0, "ms")


_LOADS = """
import sys, time, orjson
from pathlib import Path
data = Path(sys.argv[1]).read_bytes()
started = time.perf_counter()
tree = orjson.loads(data)
print(time.perf_counter() - started)
"""
_IMPORTS_PLUGIN = """
import time, pytest
started = time.perf_counter()
import mrtr_cassette.pytest_plugin
print((time.perf_counter() - started) * 1000)
"""


def server(
    role: str, environment: Mapping[str, str] = MappingProxyType({}), *arguments: str
) -> AbstractContextManager[Listening]:
    """Run one of the benchmark's own servers until the block ends."""
    command = [sys.executable, str(HERE / "servers.py"), role, *arguments]
    return listening(command, environment=environment)


def _per_second(stints: Sequence[Stint]) -> list[float]:
    return [stint.answered / stint.seconds for stint in stints]


def _run_timed(command: Sequence[str]) -> tuple[float, float, str]:
    """Run a command to its end; return its seconds, its peak memory in MB, and its output."""
    with tempfile.TemporaryFile("w+") as output:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        took = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
        output.seek(0)
        return took, usage.ru_maxrss * 1024 / MEGABYTE, output.read()


def _peak_mb(pid: int) -> float:
    """Return the most memory that a process has had so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / MEGABYTE


def _write_journal(cassette: Path, count: int) -> None:
    """Write what a killed recording of calls would have left."""
    header = JournalHeader(
        upstream=f"http://127.0.0.1{PATH}",
        request_state="sealed",
        recorded_at="2026-01-01T00:00:00+00:00",
        existing="keep",
        redaction={"patterns": [], "keys": [], "disabled": []},
    )
    asking = (
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
        ("mcp-method", "tools/call"),
        ("mcp-name", BARE.name),
        ("mcp-protocol-version", "2026-07-28"),
    )
    journal = Journal(journal_path(cassette), header)
    for number in range(1, count + 1):
        identity = 1_000_000 + number
        request = Request("POST", PATH, asking, BARE.request(identity, number - 1, b""))
        (answer,) = BARE.answer(b"%d" % identity, b"%d" % (number - 1), 0)
        piece = Piece(answer, float(number), number)
        response = Response(200, (("content-type", BARE.content_type),), (piece,), End.COMPLETE)
        times = float(number), number + 0.5
        journal.append(encode_line(RecordedExchange(number, request, response, *times, None, None)))
    journal.close()


def _machine() -> dict[str, str]:
    model = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        names = [line for line in information.read_text().splitlines() if "model name" in line]
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


def _narrowed(size: Size, only: Sequence[str]) -> Size:
    """Return what of a size these words name: in each respect those that are named, or all."""
    return replace(
        size,
        sections=tuple(name for name in size.sections if name in only) or size.sections,
        kinds=tuple(kind for kind in size.kinds if kind.name in only) or size.kinds,
        connections=tuple(n for n in size.connections if str(n) in only) or size.connections,
        loops=tuple(name for name in size.loops if name in only) or size.loops,
        interactions=tuple(n for n in size.interactions if str(n) in only) or size.interactions,
    )


def main() -> int:
    """Measure, print the tables, and write the figures; 1 where an answer was wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    words = (*SECTIONS, *(kind.name for kind in LOADS), *LOOPS)
    numbers = map(str, (*FULL.connections, *FULL.interactions))
    parser.add_argument("--quick", action="store_true", help="show that it works, in seconds")
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
    size = _narrowed(QUICK if options.quick else FULL, options.only)
    results = Results(_machine())
    with tempfile.TemporaryDirectory(prefix="mrtr-cassette-bench-") as folder:
        bench = Bench(size, results, Path(folder), options.peers)
        for name in size.sections:
            print(f"measuring: {name}", file=sys.stderr)
            try:
                getattr(bench, name)()
            except ProcessError as error:
                parser.exit(1, f"error: {error}\n")
    options.json.write_bytes(
        orjson.dumps(results.as_json(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    )
    print(results.as_markdown(), end="")
    return 1 if results.problems else 0


if __name__ == "__main__":
    sys.exit(main())
