"""What every section of the benchmark stands on: its extent, its processes, and its results.

Owns: how much is measured, what runs as a process, and the load that is put on several in turns.
Does not own: what is compared (`speed`, `cost`), how results are shown (`results`).
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from load import Plan, Stint, Subject, measure
from processes import (
    Listening,
    ProcessError,
    free_port,
    is_refused,
    listening,
    record_command,
    replay_command,
)
from results import Rates, Results
from stall import FULL_BYTES
from traffic import LARGE, PATH, PLAIN, ROUNDS, STREAM, UPLOAD, Kind

from mrtr_cassette.shell.runs.running import run

HERE = Path(__file__).resolve().parent
MEGABYTE = 1e6
PATIENCE_S = 60.0
SECTIONS = (
    "replay",
    "record",
    "pipes",
    "growth",
    "sizes",
    "idle",
    "fixture",
    "plays",
    "trials",
    "suites",
    "stall",
)
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
        stall_bytes: size of the bodies that may hold up the recorder's event loop.
    """

    sections: tuple[str, ...] = SECTIONS
    kinds: tuple[Kind, ...] = LOADS
    connections: tuple[int, ...] = (1, 8, 32, 128)
    usual: int = 32
    loops: tuple[str, ...] = tuple(
        LOOPS if importlib.util.find_spec("uvloop") else ["asyncio"]
    )
    rounds: int = 5
    seconds: float = 0.5
    warm_up_s: float = 0.2
    conversations: int = 500
    weighty: int = 8
    interactions: tuple[int, ...] = (10, 1000, 10_000, 100_000)
    growth: tuple[int, int] = (10_000, 100_000)
    repeats: int = 5
    stall_bytes: int = FULL_BYTES


FULL = Size()
QUICK = Size(
    # Suites of vitest have their own tests, and take more than seconds.
    sections=tuple(name for name in SECTIONS if name != "suites"),
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
    stall_bytes=2**16,
)


def narrowed(size: Size, only: Sequence[str]) -> Size:
    """Return what of a size these words name: in each respect those that are named, or all."""
    return replace(
        size,
        sections=tuple(name for name in size.sections if name in only) or size.sections,
        kinds=tuple(kind for kind in size.kinds if kind.name in only) or size.kinds,
        connections=tuple(n for n in size.connections if str(n) in only)
        or size.connections,
        loops=tuple(name for name in size.loops if name in only) or size.loops,
        interactions=tuple(n for n in size.interactions if str(n) in only)
        or size.interactions,
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
        values = {
            "port": port,
            "upstream": upstream,
            "cassette": folder / f"{self.name}.cassette",
        }
        command = [word.format_map(values) for word in shlex.split(self.command)]
        url = f"http://127.0.0.1:{port}{PATH}"
        with tempfile.TemporaryFile("w+") as log:
            try:
                process = subprocess.Popen(command, stdout=log, stderr=log)
            except OSError as error:
                raise ProcessError(
                    f"the peer {self.name} can't be run: {error}"
                ) from None
            try:
                end = time.monotonic() + PATIENCE_S
                while is_refused(url):
                    if process.poll() is not None or time.monotonic() > end:
                        log.seek(0)
                        raise ProcessError(
                            f"the peer {self.name} does not listen:\n{log.read()}"
                        )
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
    """One run: what its sections have in common."""

    size: Size
    results: Results
    folder: Path
    peers: Sequence[Peer]

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
        self,
        mode: str,
        kind: Kind,
        connections: int,
        loop: str,
        base: str,
        *subjects: Subject,
    ) -> Rates:
        """Measure requests per second of servers in turns."""
        stints = self.load(kind, connections, *subjects)
        per_round = {name: per_second(taken) for name, taken in stints.items()}
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
        return listening(
            record_command(upstream, self.folder / name), stop, LOOPS[loop]
        )

    def replaying(
        self, path: Path, loop: str, *options: str
    ) -> AbstractContextManager[Listening]:
        """Replay a cassette until the block ends."""
        command = replay_command(path, "--repeat", "always", *options)
        return listening(command, environment=LOOPS[loop])

    def distinct(self, kind: Kind) -> int:
        """Return how many distinct conversations of one kind are recorded to be replayed."""
        return (
            self.size.weighty
            if kind.padding or kind.upload
            else self.size.conversations
        )

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


def server(
    role: str, environment: Mapping[str, str] = MappingProxyType({}), *arguments: str
) -> AbstractContextManager[Listening]:
    """Run one of the benchmark's own servers until the block ends."""
    command = [sys.executable, str(HERE / "servers.py"), role, *arguments]
    return listening(command, environment=environment)


def per_second(stints: Sequence[Stint]) -> list[float]:
    """Return the rate of each stint."""
    return [stint.answered / stint.seconds for stint in stints]


def run_timed(command: Sequence[str]) -> tuple[float, float, str]:
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


def peak_mb(pid: int) -> float:
    """Return the most memory that a process has had so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / MEGABYTE
