"""Recordings and replays on pipes that begin when a client starts their command."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import pickle
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, NoReturn

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.report.misses import MissReport, Nearest
from mrtr_cassette.core.wire.pointers import Difference
from mrtr_cassette.errors import CassetteError, MrtrCassetteError, UsageError
from mrtr_cassette.options import RecordOptions, ReplayOptions
from mrtr_cassette.shell.files import cassettes
from mrtr_cassette.shell.files.cassettes import journal_path, recorded_so_far, recover_journal
from mrtr_cassette.shell.files.disk import is_locked
from mrtr_cassette.shell.files.log import OnEvent
from mrtr_cassette.shell.files.stores import Location, path_of
from mrtr_cassette.shell.runs.piped import (
    check_transport,
    predecessor_ended,
    record_pipe,
    replay_pipe,
)
from mrtr_cassette.shell.runs.record_session import check_output
from mrtr_cassette.shell.runs.running import run
from mrtr_cassette.shell.runs.sessions import Session

_TASK: Final = "task"
_OUTCOMES: Final = "outcomes.jsonl"
_PROGRAM: Final = "from mrtr_cassette.shell.runs.client_starts import main; main()"
_LAST_S: Final = 5.0
"""Seconds for processes whose clients have closed, which publish what they recorded."""
_LOOK_S: Final = 0.01
"""Seconds between two looks whether they have ended."""
_LEFT_OPEN: Final = (
    "a process that the client started as its server is still running: close the client before "
    "the test ends"
)


@dataclass(frozen=True, slots=True)
class _Task:
    """What a started process is to do."""

    cassette: Location
    options: RecordOptions | ReplayOptions
    server: tuple[str, ...] = ()
    """The command that is recorded; empty where the cassette is replayed."""
    cwd: Path | None = None
    named: Location | None = None
    """The cassette that is added to, as shown in messages."""


@dataclass(frozen=True, slots=True)
class StartOutcome:
    """The results of one started process so far: a line in the file of outcomes."""

    misses: Sequence[MissReport] = ()
    unplayed: Sequence[int] | None = None
    played: int = 0
    unreachable: int = 0
    unrecorded: Sequence[str] = ()
    problem: str | None = None
    objection: str | None = None

    @staticmethod
    def of(session: Session) -> StartOutcome:
        """Return the outcome of a recording or a replay."""
        return StartOutcome(
            **{each.name: getattr(session, each.name) for each in fields(StartOutcome)}
        )

    @staticmethod
    def from_data(data: dict[str, Any]) -> StartOutcome:
        """Return an outcome that was written as JSON."""
        return StartOutcome(**{**data, "misses": [_miss_from(each) for each in data["misses"]]})


def _miss_from(data: dict[str, Any]) -> MissReport:
    lists = {name: tuple(data[name]) for name in ("questions", "fixes")}
    nearest = None if data["nearest"] is None else Nearest(*data["nearest"])
    differences = tuple(Difference(*each) for each in data["differences"])
    return MissReport(**{**data, **lists, "nearest": nearest, "differences": differences})


class ClientStarts:
    """A recording or a replay whose command a client may start any number of times.

    A task and the outcomes pass in the files of a folder: clients hand on neither their environment
    nor descriptors.
    """

    admin_url = None

    def __init__(self, path: Location, task: _Task, folder: Path, base: Cassette | None) -> None:
        """Prepare a folder for a task; `base` is the cassette that is played or added to."""
        self.path = path
        self.base = base
        self.is_recording = isinstance(task.options, RecordOptions)
        self.command = [sys.executable, "-c", _PROGRAM, str(folder)]
        self.is_left_open = False
        """A start was still running at the end."""
        self._outcomes = folder / _OUTCOMES
        self._last: list[StartOutcome] | None = None
        self._whole: Cassette | None = None
        self._outcomes.touch()
        # A function can't be handed on, and its process has nobody to tell.
        plain = replace(task, options=replace(task.options, log=None))
        (folder / _TASK).write_bytes(pickle.dumps(plain))

    @property
    def url(self) -> str:
        """There is none."""
        raise UsageError(
            f"{self.path} is {'recorded' if self.is_recording else 'played'} over pipes, "
            "where there is no URL",
            hint="have the client start `command`",
        )

    @property
    def starts(self) -> list[StartOutcome]:
        """The outcomes so far, in the order of the starts."""
        if self._last is not None:
            return self._last
        # The last word of each process counts.
        told = dict(json.loads(line) for line in self._outcomes.read_bytes().splitlines())
        return [StartOutcome.from_data(data) for data in told.values()]

    @property
    def exchanges(self) -> int:
        """How many exchanges have been recorded."""
        recorded, before = (
            0 if each is None else each.highest_number for each in (self.recorded(), self.base)
        )
        return recorded - before

    @property
    def misses(self) -> Sequence[MissReport]:
        """What was asked so far and had not been recorded."""
        return tuple(miss for start in self.starts for miss in start.misses)

    @property
    def played(self) -> int:
        """How many requests got their response from the cassette."""
        return sum(start.played for start in self.starts)

    @property
    def unplayed(self) -> list[int]:
        """Numbers of the interactions that no start has played whole."""
        numbers = set(range(1, 1 + (0 if self.base is None else len(self.base.interactions))))
        for start in self.starts:
            if start.unplayed is not None:
                numbers &= set(start.unplayed)
        return sorted(numbers)

    @property
    def unreachable(self) -> int:
        """How many requests the server did not answer."""
        return sum(start.unreachable for start in self.starts)

    @property
    def unrecorded(self) -> list[str]:
        """Why requests could not be recorded, in words."""
        return [text for start in self.starts for text in start.unrecorded]

    @property
    def problem(self) -> str | None:
        """Why a start failed or has not ended, or None."""
        problem = next((start.problem for start in self.starts if start.problem is not None), None)
        if problem is not None or not self.is_left_open:
            return problem
        becomes = (
            f"; what it recorded becomes {self.path} when it ends (if it is killed: "
            f"mrtr-cassette recover {self.path})"
        )
        return _LEFT_OPEN + (becomes if self.is_recording else "")

    @property
    def objection(self) -> str | None:
        """Why the recording is not published by itself, or None."""
        return next((start.objection for start in self.starts if start.objection is not None), None)

    def find_objection(self) -> str | None:
        """Return the objection: each start has looked for its own."""
        return self.objection

    def recorded(self) -> Cassette | None:
        """Return the cassette as it is by now."""
        if self._last is not None:
            return self._whole
        running = recorded_so_far(self.path) if self.is_recording else self.base
        if running is None and cassettes.exists(self.path):
            return cassettes.load_cassette(self.path)
        return running

    def finish(self) -> None:
        """Wait for all starts, and publish the journal of one that was killed."""
        deadline = time.monotonic() + _LAST_S
        while not self.is_left_open and is_locked(self._outcomes):
            self.is_left_open = time.monotonic() > deadline
            time.sleep(_LOOK_S)
        last = self.starts
        if self.is_recording:
            journal = journal_path(self.path)
            is_good = all(start.objection is None for start in last)
            if is_good and journal.exists() and not is_locked(journal):
                recover_journal(self.path)
        self._whole, self._last = self.recorded(), last


@asynccontextmanager
async def recorded_by_client(
    server: Sequence[str],
    output: Location,
    options: RecordOptions,
    cwd: Path | None = None,
    *,
    copied_from: Path | None = None,
    named: Path | None = None,
) -> AsyncIterator[ClientStarts]:
    """Prepare the recording of a server on pipes; a client starts its `command`.

    Each start publishes what it recorded when it ends, and is added to those before it. `output`
    becomes a copy of `copied_from`, where that is added to; messages name it `named`.

    Raises:
        CassetteError: the cassette can't be written, or exists.
        UsageError: a cassette that is to be added to was recorded over HTTP.
    """
    earlier = check_output(copied_from or output, options)
    if earlier is not None:
        check_transport(earlier)
        if copied_from is not None:
            path_of(output).write_bytes(cassettes.read_file(copied_from))
    task = _Task(output.absolute(), options, tuple(server), cwd, named or copied_from or output)
    async with _started(output, task, earlier) as starts:
        yield starts


@asynccontextmanager
async def replayed_by_client(path: Location, options: ReplayOptions) -> AsyncIterator[ClientStarts]:
    """Prepare a replay on pipes; a client starts its `command`.

    Raises:
        CassetteError: the cassette can't be read.
    """
    cassette = cassettes.load_cassette(path)
    async with _started(path, _Task(path.absolute(), options), cassette) as starts:
        yield starts


@asynccontextmanager
async def _started(
    path: Location, task: _Task, base: Cassette | None
) -> AsyncIterator[ClientStarts]:
    with tempfile.TemporaryDirectory(prefix="mrtr-cassette-") as folder:
        starts = ClientStarts(path, task, Path(folder), base)
        try:
            yield starts
        finally:
            await asyncio.to_thread(starts.finish)


# In the process that a client has started


def main() -> NoReturn:
    """Record or replay in a process that a client has started, and exit."""
    sys.exit(run(_work(Path(sys.argv[1]))))


async def _work(folder: Path) -> int:
    """Record or replay, write the outcomes to the file as they change; return the code."""
    task: _Task = pickle.loads((folder / _TASK).read_bytes())  # noqa: S301  ours alone
    outcomes = os.open(folder / _OUTCOMES, os.O_RDWR | os.O_APPEND)
    # It is let go of when this process ends, whatever ends it.
    fcntl.flock(outcomes, fcntl.LOCK_SH)
    sessions: list[Session] = []

    def tell(outcome: StartOutcome) -> None:
        line = json.dumps([os.getpid(), asdict(outcome)]) + "\n"
        # Where nobody waits any more, there is nobody to be told.
        with suppress(OSError):
            os.write(outcomes, line.encode())

    def on_event(event: dict[str, object]) -> None:
        if event["event"] in ("unrecorded", "missed"):
            tell(StartOutcome.of(sessions[0]))

    try:
        # Whoever has the command is the same client, by however many processes it starts it.
        client = hashlib.sha256(bytes(folder)).hexdigest()
        code = await _run(task, client, on_event, sessions.append)
    except MrtrCassetteError as error:
        problem = error.in_terms(task.options.terms)
        tell(StartOutcome(problem=problem))
        sys.stderr.write(f"error: {problem}\n")
        return error.exit_code
    tell(StartOutcome.of(sessions[0]))
    return code


async def _run(
    task: _Task, client: str, on_event: OnEvent, began: Callable[[Session], None]
) -> int:
    if isinstance(task.options, ReplayOptions):
        session = await replay_pipe(task.cassette, task.options, on_event, began=began)
        return int(bool(session.misses))
    if not await predecessor_ended(task.cassette, client):
        raise CassetteError(
            task.named or task.cassette,
            "a server that the client has started before is still running",
            hint="end it first: what two servers say at the same time is no one recording",
        )
    _, code = await record_pipe(
        *(task.server, task.cassette, task.options, on_event),
        cwd=task.cwd,
        client=client,
        named=task.named,
        began=began,
    )
    return code
