"""What a client starts, where this process only hands out the command.

Rule: a start tells what it came to in a file of its own, as nothing else passes between the two;
clients hand on neither their environment nor descriptors.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Final, NoReturn

from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.report.misses import MissReport
from mrtr_cassette.errors import CassetteError, MrtrCassetteError, Terms, UsageError
from mrtr_cassette.options import RecordOptions, ReplayOptions
from mrtr_cassette.shell import cassette_file
from mrtr_cassette.shell.journal_file import journal_path
from mrtr_cassette.shell.keeping import check_output
from mrtr_cassette.shell.locks import is_locked
from mrtr_cassette.shell.pipe_appending import check_transport, record_or_append
from mrtr_cassette.shell.pipe_recording import predecessor_ended
from mrtr_cassette.shell.pipe_replaying import replay_pipe
from mrtr_cassette.shell.publishing import recorded_so_far, recover_journal
from mrtr_cassette.shell.record_session import RecordSession
from mrtr_cassette.shell.replaying import ReplaySession
from mrtr_cassette.shell.running import run, told_to_end
from mrtr_cassette.shell.stores import Location, path_of

_TASK: Final = "task"
_PROGRAM: Final = "from mrtr_cassette.shell.client_starts import main; main()"
_LAST_S: Final = 5.0
"""Seconds for processes whose clients have closed, which publish what they recorded."""
_LEFT_OPEN: Final = (
    "a process that the client started as its server is still running: close the client before "
    "the test ends"
)
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
        named: how messages name a cassette that is added to, where that is not its path.
    """

    cassette: Location
    options: RecordOptions | ReplayOptions
    server: tuple[str, ...] = ()
    cwd: Path | None = None
    named: Location | None = None


@dataclass(frozen=True, slots=True)
class StartOutcome:
    """What one start came to so far.

    Attributes:
        misses: requests that had not been recorded.
        unplayed: numbers of the interactions of which something was not played.
        played: how many requests got their response from the cassette.
        unreachable: how many requests the server did not answer.
        unrecorded: why requests could not be recorded.
        problem: what went wrong, or None.
        objection: why there is no cassette, or None.
    """

    misses: tuple[MissReport, ...] = ()
    unplayed: frozenset[int] | None = None
    played: int = 0
    unreachable: int = 0
    unrecorded: tuple[str, ...] = ()
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

    def wait(self) -> bool:
        """Wait until no start is running any more; return whether that came in time."""
        deadline = time.monotonic() + _LAST_S
        for lock in self.folder.glob("*.lock"):
            while is_locked(lock):
                if time.monotonic() > deadline:
                    return False
                time.sleep(_LOOK_S)
        return True


@contextmanager
def _starts_of(task: Task) -> Iterator[ClientStarts]:
    with tempfile.TemporaryDirectory(prefix="mrtr-cassette-") as name:
        # A function can't be handed on, and its process has nobody to tell.
        plain = replace(task.options, log=None)
        (Path(name) / _TASK).write_bytes(pickle.dumps(replace(task, options=plain)))
        yield ClientStarts(Path(name))


@dataclass(slots=True)
class _ByClient:
    """What a client begins by starting a command.

    Attributes:
        path: the cassette.
        terms: how its reports spell the options.
        command: what the client starts as its server.
        is_left_open: a start was still running at the end.
    """

    _is_done: ClassVar[str]
    path: Location
    terms: Terms
    command: list[str]
    _starts: ClientStarts
    _last: list[StartOutcome] | None = field(default=None, init=False)
    is_left_open: bool = field(default=False, init=False)

    @property
    def url(self) -> str:
        """There is none."""
        raise UsageError(
            f"{self.path} is {self._is_done} over pipes, where there is no URL",
            hint="have the client start `command`",
        )

    @property
    def outcomes(self) -> list[StartOutcome]:
        """What each start came to so far."""
        return self._starts.outcomes() if self._last is None else self._last

    @property
    def problems(self) -> list[str]:
        """Why starts came to nothing, or did not come to an end."""
        problems = [outcome.problem for outcome in self.outcomes if outcome.problem is not None]
        return [*problems, _LEFT_OPEN] if self.is_left_open else problems

    @property
    def played(self) -> int:
        """How many requests got their response from the cassette."""
        return sum(outcome.played for outcome in self.outcomes)

    def finish(self) -> None:
        """Wait for all starts, and keep what they came to."""
        self.is_left_open = not self._starts.wait()
        self._last = self._starts.outcomes()

    def _never_played(self, cassette: Cassette) -> list[int]:
        """Return the numbers of the interactions of which something was played in no start."""
        numbers = set(range(1, len(cassette.interactions) + 1))
        for outcome in self.outcomes:
            if outcome.unplayed is not None:
                numbers &= outcome.unplayed
        return sorted(numbers)


@dataclass(slots=True)
class PipedRecording(_ByClient):
    """A recording on pipes, which is begun by whoever starts its command.

    Attributes:
        earlier: the cassette that is added to; None where there was none.
        exchanges: how many exchanges have been recorded, once all starts have ended.
    """

    _is_done = "recorded"
    earlier: Cassette | None
    exchanges: int = field(default=0, init=False)

    @property
    def unreachable(self) -> int:
        """How many requests the server did not answer."""
        return sum(outcome.unreachable for outcome in self.outcomes)

    @property
    def unplayed(self) -> list[int]:
        """Numbers of the interactions that are added to of which something was not played."""
        return [] if self.earlier is None else self._never_played(self.earlier)

    @property
    def unrecorded_texts(self) -> tuple[str, ...]:
        """Why requests could not be recorded, in words."""
        return tuple(text for outcome in self.outcomes for text in outcome.unrecorded)

    @property
    def problem(self) -> str | None:
        """Why the recording is not whole, or None."""
        problem = next(iter(self.problems), None)
        if problem != _LEFT_OPEN:
            return problem
        return (
            f"{problem}; what it recorded becomes {self.path} when it ends (if it is killed: "
            f"mrtr-cassette recover {self.path})"
        )

    @property
    def objection(self) -> str | None:
        """Why what was recorded is hardly what was meant, or None."""
        return next((each.objection for each in self.outcomes if each.objection is not None), None)

    def find_objection(self) -> str | None:
        """Return the objection: each start has looked for its own."""
        return self.objection

    def finish(self) -> None:
        """Wait for all starts, and publish what one left that its client has killed."""
        _ByClient.finish(self)
        journal = journal_path(self.path)
        if self.objection is None and journal.exists() and not is_locked(journal):
            recover_journal(self.path)
        self.exchanges = _count_of(self.recorded()) - _count_of(self.earlier)

    def recorded(self) -> Cassette | None:
        """Return what is on the cassette by now, with what was on one that is added to."""
        running = recorded_so_far(self.path)
        if running is None and cassette_file.exists(self.path):
            return cassette_file.load_cassette(self.path)
        return running


def _count_of(cassette: Cassette | None) -> int:
    """Return how many exchanges a cassette has."""
    return 0 if cassette is None else sum(len(each.own) for each in cassette.interactions)


@contextmanager
def recorded_by_client(
    server: Sequence[str],
    output: Location,
    options: RecordOptions,
    cwd: Path | None = None,
    *,
    copied_from: Path | None = None,
    named: Path | None = None,
) -> Iterator[PipedRecording]:
    """Give a recording of a server on pipes, which is begun by whoever starts its command.

    Each start publishes what it recorded when it ends, and is added to those before it.

    Args:
        server: the server's program and its arguments.
        copied_from: the cassette of which `output` becomes a copy, where it is added to.
        named: how messages name it.

    Raises:
        CassetteError: the cassette can't be written, or exists.
        UsageError: a cassette that is to be added to was recorded over HTTP.
    """
    earlier = check_output(copied_from or output, options)
    if earlier is not None:
        check_transport(earlier)
        if copied_from is not None:
            path_of(output).write_bytes(cassette_file.read_file(copied_from))
    task = Task(output.absolute(), options, tuple(server), cwd, named or copied_from or output)
    with _starts_of(task) as starts:
        recording = PipedRecording(output, options.terms, starts.command, starts, earlier)
        try:
            yield recording
        finally:
            recording.finish()


@dataclass(slots=True)
class PipedReplay(_ByClient):
    """A replay on pipes, which is begun by whoever starts its command."""

    _is_done = "played"

    @property
    def cassette(self) -> Cassette:
        """What is on it."""
        return cassette_file.load_cassette(self.path)

    @property
    def misses(self) -> tuple[MissReport, ...]:
        """What was asked so far and had not been recorded."""
        return tuple(miss for outcome in self.outcomes for miss in outcome.misses)

    @property
    def unplayed(self) -> list[int]:
        """Numbers of the interactions of which something was played in no start."""
        return self._never_played(self.cassette)


@contextmanager
def replayed_by_client(path: Location, options: ReplayOptions) -> Iterator[PipedReplay]:
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
    """One start, which tells in a folder what it came to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
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
            return _record(task, task.options, start)
        return run(_replay(task.cassette, task.options, start))
    except MrtrCassetteError as error:
        problem = error.in_terms(terms)
        start.tell(StartOutcome(problem=problem))
        sys.stderr.write(f"error: {problem}\n")
        return error.exit_code


def _record(task: Task, options: RecordOptions, start: _Start) -> int:
    sessions: list[RecordSession] = []

    def tell(session: RecordSession) -> None:
        start.tell(
            StartOutcome(
                unplayed=None if session.player is None else frozenset(session.unplayed),
                played=session.played,
                unreachable=session.unreachable,
                unrecorded=session.unrecorded_texts,
                problem=session.problem,
                objection=session.objection,
            )
        )

    def on_event(event: dict[str, object]) -> None:
        if event["event"] == "unrecorded":
            tell(sessions[0])

    # Whoever has the command is the same client, by however many processes it starts it.
    client = hashlib.sha256(bytes(start.folder)).hexdigest()
    if not predecessor_ended(task.cassette, client):
        raise CassetteError(
            task.named or task.cassette,
            "a server that the client has started before is still running",
            hint="end it first: what two servers say at the same time is no one recording",
        )
    session, code = record_or_append(
        task.server,
        task.cassette,
        options,
        on_event,
        cwd=task.cwd,
        client=client,
        named=task.named,
        began=sessions.append,
    )
    tell(session)
    return code


async def _replay(path: Location, options: ReplayOptions, start: _Start) -> int:
    sessions: list[ReplaySession] = []

    def tell() -> None:
        for session in sessions:
            start.tell(StartOutcome(session.misses, frozenset(session.unplayed), session.played))

    def on_event(event: dict[str, object]) -> None:
        if event["event"] == "missed":
            tell()

    async with told_to_end() as told:
        await replay_pipe(path, options, told, on_event, began=sessions.append)
    tell()
    return int(bool(sessions[0].misses))
