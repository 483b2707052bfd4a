"""What a client starts, where this process only hands out the command.

Owns: recordings and replays on pipes that clients start, any number of times, and what these came
to.
Does not own: what such a process does (`pipe_recording`, `pipe_replaying`).
Rule: a start tells what it came to in a file of its own, as nothing else passes between the two;
clients hand on neither their environment nor descriptors.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NoReturn

from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.report.misses import MissReport
from mrtr_cassette.errors import MrtrCassetteError, Terms, UsageError
from mrtr_cassette.options import RecordOptions, ReplayOptions
from mrtr_cassette.shell import cassette_file
from mrtr_cassette.shell.keeping import check_output
from mrtr_cassette.shell.locks import is_locked
from mrtr_cassette.shell.pipe_recording import record_pipe
from mrtr_cassette.shell.pipe_replaying import replay_pipe
from mrtr_cassette.shell.record_session import RecordSession
from mrtr_cassette.shell.replaying import ReplaySession
from mrtr_cassette.shell.running import run, stop_signals

_TASK: Final = "task"
_PROGRAM: Final = "from mrtr_cassette.shell.client_starts import main; main()"
_LAST_S: Final = 5.0
"""Seconds for processes whose clients have closed, which publish what they recorded."""
_LOOK_S: Final = 0.01
"""Seconds between two looks whether they have ended."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a process is started for.

    Attributes:
        cassette: the file.
        options: how it is recorded or replayed.
        server: the command that is recorded; empty where the cassette is replayed.
        cwd: where that runs; None: where the client starts it.
    """

    cassette: Path
    options: RecordOptions | ReplayOptions
    server: tuple[str, ...] = ()
    cwd: Path | None = None


@dataclass(frozen=True, slots=True)
class StartOutcome:
    """What one start came to so far.

    Attributes:
        misses: requests that had not been recorded.
        unplayed: numbers of the interactions of which something was not played.
        exchanges: how many exchanges it has recorded.
        problem: what went wrong, or None.
        objection: why there is no cassette, or None.
    """

    misses: tuple[MissReport, ...] = ()
    unplayed: frozenset[int] | None = None
    exchanges: int = 0
    problem: str | None = None
    objection: str | None = None


@dataclass(frozen=True, slots=True)
class ClientStarts:
    """All starts for one task.

    Attributes:
        folder: where they tell what they came to.
    """

    folder: Path

    @property
    def command(self) -> list[str]:
        """What the client starts as its server."""
        return [sys.executable, "-c", _PROGRAM, str(self.folder)]

    def outcomes(self) -> list[StartOutcome]:
        """Return what each start came to so far, in the order of the starts."""
        files = sorted(self.folder.glob("*.outcome"), key=lambda file: file.stat().st_ctime_ns)
        return [pickle.loads(file.read_bytes()) for file in files]  # noqa: S301  ours alone

    def wait(self, seconds: float = _LAST_S) -> None:
        """Wait, so many seconds at most, until no start is running any more."""
        deadline = time.monotonic() + seconds
        for lock in self.folder.glob("*.lock"):
            while is_locked(lock) and time.monotonic() < deadline:
                time.sleep(_LOOK_S)


@contextmanager
def _starts_of(task: Task) -> Iterator[ClientStarts]:
    with tempfile.TemporaryDirectory(prefix="mrtr-cassette-") as name:
        # A function can't be handed on, and its process has nobody to tell.
        plain = replace(task.options, log=None)
        (Path(name) / _TASK).write_bytes(pickle.dumps(replace(task, options=plain)))
        starts = ClientStarts(Path(name))
        try:
            yield starts
        finally:
            starts.wait()


@contextmanager
def recorded_by_client(
    server: Sequence[str], output: Path, options: RecordOptions, cwd: Path | None = None
) -> Iterator[RecordSession]:
    """Give a recording of a server on pipes, which is begun by whoever starts its command.

    Each start publishes what it recorded when it ends.

    Args:
        server: the server's program and its arguments.
        output: the cassette.
        options: how it is recorded.
        cwd: where the server runs.

    Raises:
        CassetteError: the cassette can't be written, or exists.
        UsageError: a cassette is to be added to.
    """
    _refuse_to_append(options)
    check_output(output, options)
    session = RecordSession("", " ".join(server), output, terms=options.terms)
    with _starts_of(Task(output.absolute(), options, tuple(server), cwd)) as starts:
        session.command = starts.command
        try:
            yield session
        finally:
            starts.wait()
            for outcome in starts.outcomes():
                session.exchanges += outcome.exchanges
                session.problem = session.problem or outcome.problem
                session.failure = session.failure or outcome.objection
            session.find_objection()
            if output.exists() and session.exchanges:
                session.published = len(cassette_file.load_cassette(output).interactions)


def _refuse_to_append(options: RecordOptions) -> None:
    """Make sure that a recording on pipes does not add to a cassette.

    Raises:
        UsageError: it would.
    """
    if options.existing == "append":
        raise UsageError(
            "a recording that clients start can't be added to yet",
            hint="record it anew with <<replace>>, or over HTTP",
        )


@dataclass(slots=True)
class PipedReplay:
    """A replay on pipes, which is begun by whoever starts its command.

    Attributes:
        cassette_path: the cassette.
        terms: how its reports spell the options.
        command: what the client starts as its server.
    """

    cassette_path: Path
    terms: Terms
    command: list[str]
    _starts: ClientStarts
    _last: list[StartOutcome] | None = field(default=None)

    @property
    def url(self) -> str:
        """There is none."""
        raise UsageError(
            f"{self.cassette_path} is played over pipes, where there is no URL",
            hint="have the client start `command`",
        )

    @property
    def path(self) -> str:
        """The cassette's path."""
        return str(self.cassette_path)

    @property
    def cassette(self) -> Cassette:
        """What is on it."""
        return cassette_file.load_cassette(self.cassette_path)

    @property
    def misses(self) -> tuple[MissReport, ...]:
        """What was asked so far and had not been recorded."""
        return tuple(miss for outcome in self._outcomes() for miss in outcome.misses)

    @property
    def unplayed(self) -> list[int]:
        """Numbers of the interactions of which something was played in no start."""
        numbers = set(range(1, len(self.cassette.interactions) + 1))
        for outcome in self._outcomes():
            if outcome.unplayed is not None:
                numbers &= outcome.unplayed
        return sorted(numbers)

    @property
    def problems(self) -> list[str]:
        """Why starts came to nothing."""
        return [outcome.problem for outcome in self._outcomes() if outcome.problem is not None]

    def finish(self) -> None:
        """Wait for all starts, and keep what they came to."""
        self._starts.wait()
        self._last = self._starts.outcomes()

    def _outcomes(self) -> list[StartOutcome]:
        return self._starts.outcomes() if self._last is None else self._last


@contextmanager
def replayed_by_client(path: Path, options: ReplayOptions) -> Iterator[PipedReplay]:
    """Give a replay on pipes, which is begun by whoever starts its command.

    Raises:
        CassetteError: the cassette can't be read.
    """
    cassette_file.load_cassette(path)
    with _starts_of(Task(path.absolute(), options)) as starts:
        replayed = PipedReplay(path, options.terms, starts.command, starts)
        try:
            yield replayed
        finally:
            replayed.finish()


# In the process that a client has started


class _Start:
    """One start: what it tells."""

    def __init__(self, folder: Path) -> None:
        """Be running."""
        self._file = folder / f"{os.getpid()}.outcome"
        # It is let go of when this process ends, whatever ends it.
        self._lock = os.open(folder / f"{os.getpid()}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def tell(self, outcome: StartOutcome) -> None:
        """Tell what it came to so far."""
        temporary = self._file.with_suffix(".new")
        # Where nobody waits any more, there is nobody to be told.
        with suppress(OSError):
            temporary.write_bytes(pickle.dumps(outcome))
            temporary.replace(self._file)


def main() -> NoReturn:
    """Do what a client has started, and exit."""
    sys.exit(_work(Path(sys.argv[1])))


def _work(folder: Path) -> int:
    task: Task = pickle.loads((folder / _TASK).read_bytes())  # noqa: S301  ours alone
    start = _Start(folder)
    terms = task.options.terms
    try:
        if isinstance(task.options, RecordOptions):
            session, code = record_pipe(task.server, task.cassette, task.options, cwd=task.cwd)
            start.tell(
                StartOutcome(
                    exchanges=session.exchanges,
                    problem=session.problem,
                    objection=session.objection,
                )
            )
            return code
        return run(_replay(task.cassette, task.options, start))
    except MrtrCassetteError as error:
        problem = error.in_terms(terms)
        start.tell(StartOutcome(problem=problem))
        sys.stderr.write(f"error: {problem}\n")
        return error.exit_code


async def _replay(path: Path, options: ReplayOptions, start: _Start) -> int:
    sessions: list[ReplaySession] = []

    def tell() -> None:
        for session in sessions:
            start.tell(StartOutcome(session.misses, frozenset(session.unplayed)))

    def on_event(event: dict[str, object]) -> None:
        if event["event"] == "missed":
            tell()

    async with stop_signals() as signals:
        await replay_pipe(path, options, signals, on_event, began=sessions.append)
    tell()
    return int(bool(sessions[0].misses))
