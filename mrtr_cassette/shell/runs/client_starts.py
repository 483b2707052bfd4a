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
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.report.misses import MissReport, Nearest
from mrtr_cassette.core.wire.pointers import Difference
from mrtr_cassette.errors import MrtrCassetteError, UsageError
from mrtr_cassette.options import AnyOptions, RecordOptions, ReplayOptions
from mrtr_cassette.shell.files import cassettes
from mrtr_cassette.shell.files.cassettes import journal_path, recorded_so_far, recover_journal
from mrtr_cassette.shell.files.disk import is_locked
from mrtr_cassette.shell.files.stores import Location
from mrtr_cassette.shell.runs.piped import check_transport, record_pipe, replay_pipe
from mrtr_cassette.shell.runs.record_session import check_output
from mrtr_cassette.shell.runs.running import run
from mrtr_cassette.shell.runs.sessions import RunOutcome, Session

_WORK: Final = "work"
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
_Work = partial[Any]
"""The call of `record_pipe` or `replay_pipe` that a started process makes."""


class ClientStarts:
    """A recording or a replay whose command a client may start any number of times.

    Its work and the outcomes pass in the files of a folder: clients hand on neither their
    environment nor descriptors.
    """

    admin_url = None

    def __init__(self, path: Location, work: _Work, folder: Path, base: Cassette | None) -> None:
        """Prepare a folder for the work; `base` is the cassette that is played or added to."""
        self.path = path
        self.base = base
        self.is_recording = work.func is record_pipe
        self.command = [sys.executable, "-c", _PROGRAM, str(folder)]
        self.is_left_open = False
        """A start was still running at the end."""
        self._outcomes = folder / _OUTCOMES
        self._last: list[RunOutcome] | None = None
        self._whole: Cassette | None = None
        self._outcomes.touch()
        (folder / _WORK).write_bytes(pickle.dumps(work))

    @property
    def url(self) -> str:
        """There is none."""
        raise UsageError(
            f"{self.path} is {'recorded' if self.is_recording else 'played'} over pipes, "
            "where there is no URL",
            hint="have the client start `command`",
        )

    @property
    def exchanges(self) -> int:
        """How many exchanges have been recorded."""
        recorded, before = (
            0 if each is None else each.highest_number for each in (self.recorded(), self.base)
        )
        return recorded - before

    @property
    def outcome(self) -> RunOutcome:
        """What all starts came to so far."""
        starts = self._starts() if self._last is None else self._last
        numbers = set(range(1, 1 + (0 if self.base is None else len(self.base.interactions))))
        for start in starts:
            if start.unplayed is not None:
                numbers &= set(start.unplayed)
        problems = [start.problem for start in starts]
        if self.is_left_open:
            problems.append(_LEFT_OPEN)
        return RunOutcome(
            misses=[miss for start in starts for miss in start.misses],
            played=sum(start.played for start in starts),
            unplayed=sorted(numbers),
            unreachable=sum(start.unreachable for start in starts),
            unrecorded=[text for start in starts for text in start.unrecorded],
            problem=next(filter(None, problems), None),
            objection=next(filter(None, (start.objection for start in starts)), None),
        )

    def _starts(self) -> list[RunOutcome]:
        # The last word of each process counts.
        told = dict(json.loads(line) for line in self._outcomes.read_bytes().splitlines())
        return [
            RunOutcome(**{**data, "misses": [*map(_miss_from, data["misses"])]})
            for data in told.values()
        ]

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
        last = self._starts()
        if self.is_recording:
            journal = journal_path(self.path)
            is_good = all(start.objection is None for start in last)
            if is_good and journal.exists() and not is_locked(journal):
                recover_journal(self.path)
        self._whole, self._last = self.recorded(), last


def _miss_from(data: dict[str, Any]) -> MissReport:
    lists = {name: tuple(data[name]) for name in ("questions", "fixes")}
    nearest = None if data["nearest"] is None else Nearest(*data["nearest"])
    differences = tuple(Difference(*each) for each in data["differences"])
    return MissReport(**{**data, **lists, "nearest": nearest, "differences": differences})


@asynccontextmanager
async def recorded_by_client(
    server: Sequence[str],
    output: Location,
    options: RecordOptions,
    cwd: Path | None = None,
    *,
    named: Path | None = None,
) -> AsyncIterator[ClientStarts]:
    """Prepare the recording of a server on pipes; a client starts its `command`.

    Each start publishes what it recorded when it ends, and is added to those before it. Messages
    name the cassette `named`.

    Raises:
        CassetteError: the cassette can't be written, or exists.
        UsageError: a cassette that is to be added to was recorded over HTTP.
    """
    earlier = check_output(output, options)
    if earlier is not None:
        check_transport(replace(earlier, path=str(named or output)))
    begin = partial(record_pipe, tuple(server), output.absolute(), _for_a_process(options))
    work = partial(begin, cwd=cwd, named=named or output)
    async with _started(output, work, earlier) as starts:
        yield starts


@asynccontextmanager
async def replayed_by_client(path: Location, options: ReplayOptions) -> AsyncIterator[ClientStarts]:
    """Prepare a replay on pipes; a client starts its `command`.

    Raises:
        CassetteError: the cassette can't be read.
    """
    cassette = cassettes.load_cassette(path)
    work = partial(replay_pipe, path.absolute(), _for_a_process(options))
    async with _started(path, work, cassette) as starts:
        yield starts


def _for_a_process(options: AnyOptions) -> AnyOptions:
    # A function can't be handed on, and its process has nobody to tell.
    return replace(options, log=None)


@asynccontextmanager
async def _started(
    path: Location, work: _Work, base: Cassette | None
) -> AsyncIterator[ClientStarts]:
    with tempfile.TemporaryDirectory(prefix="mrtr-cassette-") as folder:
        starts = ClientStarts(path, work, Path(folder), base)
        try:
            yield starts
        finally:
            await asyncio.to_thread(starts.finish)


# In the process that a client has started


def main() -> NoReturn:
    """Record or replay in a process that a client has started, and exit."""
    sys.exit(run(_started_by_client(Path(sys.argv[1]))))


async def _started_by_client(folder: Path) -> int:
    """Record or replay, write the outcomes to the file as they change; return the code."""
    work: _Work = pickle.loads((folder / _WORK).read_bytes())  # noqa: S301  ours alone
    outcomes = os.open(folder / _OUTCOMES, os.O_RDWR | os.O_APPEND)
    # It is let go of when this process ends, whatever ends it.
    fcntl.flock(outcomes, fcntl.LOCK_SH)
    sessions: list[Session] = []
    code: int

    def tell(outcome: RunOutcome) -> None:
        line = json.dumps([os.getpid(), asdict(outcome)]) + "\n"
        # Where nobody waits any more, there is nobody to be told.
        with suppress(OSError):
            os.write(outcomes, line.encode())

    def on_event(event: dict[str, object]) -> None:
        if event["event"] in ("unrecorded", "missed"):
            tell(sessions[0].outcome)

    # Whoever has the command is the same client, by however many processes it starts it.
    client = {"client": hashlib.sha256(bytes(folder)).hexdigest()}
    try:
        session, code = await work(
            on_event=on_event,
            began=sessions.append,
            **(client if work.func is record_pipe else {}),
        )
    except MrtrCassetteError as error:
        problem = error.in_terms(work.args[-1].terms)
        tell(RunOutcome(problem=problem))
        sys.stderr.write(f"error: {problem}\n")
        return error.exit_code
    tell(session.outcome)
    return code
