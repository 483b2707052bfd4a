"""Record and replay on pipes: in this process, or in those that a client starts by a command."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pickle
import secrets
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.transports import over_pipes
from mrtr_cassette.core.record.recorder import Channel
from mrtr_cassette.core.report.runs import MissReport, Nearest
from mrtr_cassette.core.secrets.credentials import Given, shown_by
from mrtr_cassette.core.secrets.sealed import sha256_of
from mrtr_cassette.core.wire.http import NO_STATUS, End, Line, Request, opens_channel
from mrtr_cassette.core.wire.pointers import Difference
from mrtr_cassette.errors import BodyTooLargeError, CassetteError, MrtrCassetteError, UsageError
from mrtr_cassette.options import RecordOptions, ReplayOptions
from mrtr_cassette.shell.files import cassettes
from mrtr_cassette.shell.files.cassettes import journal_path, recorded_so_far, recover_journal
from mrtr_cassette.shell.files.clock import monotonic
from mrtr_cassette.shell.files.disk import is_locked
from mrtr_cassette.shell.files.log import Announcer, OnEvent, heard_by
from mrtr_cassette.shell.files.stores import Location
from mrtr_cassette.shell.pipes.lines import STDIN, STDOUT, LineWriter, reads_from
from mrtr_cassette.shell.pipes.processes import (
    ServerProcess,
    given_to,
    server_process,
    shown_command,
)
from mrtr_cassette.shell.pipes.transport import LAST_S, PipedClient, pipe_upstream
from mrtr_cassette.shell.runs.recording import Appender, Relay
from mrtr_cassette.shell.runs.replaying import load_server, player_of
from mrtr_cassette.shell.runs.running import run, told_to_end
from mrtr_cassette.shell.runs.sessions import (
    ExchangeRecording,
    RecordedServer,
    RecordSession,
    ReplaySession,
    RunOutcome,
    Session,
    check_output,
    journaling,
    rules_of_both,
)

_PREDECESSOR_S: Final = 5.0
"""Seconds to wait for the end of a recorder that the same client started before."""
_LOOK_S: Final = 0.02
"""Seconds between two looks whether it has ended."""
_LAST_S: Final = 4.0
"""Seconds after the client's end for what a server that is added from is still to say."""


async def record_pipe(  # noqa: PLR0913  all but two are by name
    command: Sequence[str],
    output: Location,
    options: RecordOptions,
    on_event: OnEvent | None = None,
    *,
    cwd: Path | None = None,
    client: str | None = None,
    restarts_within_s: float | None = None,
    named: Location | None = None,
    began: Callable[[RecordSession], None] = lambda _session: None,
) -> tuple[RecordSession, int]:
    """Record between our own stdin and stdout and a server, until both sides have ended.

    With `existing="append"`, what the cassette has is played, and the server is started for the
    first request that it lacks. Where the same client has recorded the cassette, or is about to end
    its recording, this one is added to it: some clients start a server twice.

    Args:
        client: hash of the client; None where nobody can tell.
        restarts_within_s: seconds after the end of a recording within which another start of the
            client belongs to it; None: any start of it does.
        named: the cassette that is added to, as shown in messages.

    Returns:
        what it came to, and the server's exit code; 0 where it was never started.

    Raises:
        CassetteError: the cassette can't be written, or exists.
        UsageError: a cassette that is to be added to was recorded over HTTP.
        CommandError: the server can't be started.
    """
    plays = options.existing == "append"
    if client is not None:
        await _predecessor_ended(output, client, named or output)
        if _continues(output, client, restarts_within_s):
            options = replace(options, existing="append")
    with cassettes.without_collection():
        earlier = check_output(output, options)
    rules = rules_of_both(earlier, options.redaction)
    shown = shown_by(rules, Given(secrets=options.secrets))(shown_command(command, rules))
    player = None
    if plays and earlier is not None:
        _check_transport(earlier)
        earlier = replace(earlier, path=str(named or output))
        player = player_of(over_pipes(earlier), options, given_to(command), strict=True)
        player.recording = replace(player.recording, upstream=shown)
    announcer = Announcer(options.log, heard_by(on_event), options.terms)
    run = (output, options, announcer, earlier, player)
    async with told_to_end() as told:
        with journaling(*run, RecordedServer(shown, "stdio", client)) as session:
            began(session)
            if earlier is not None and player is not None:
                tell = session.recorder.was_given
                upstream = pipe_upstream(command, options.max_body, tell, told, cwd)
                async with session.finishing(), upstream as live:
                    relay = Relay(live, shown, (), session)
                    appender = Appender(relay, earlier, player)
                    answered = PipedClient(appender.handle, options.max_body)
                    live.on_own_line = partial(answered.listen, appender.listen)
                    await _answer(answered, earlier, told, _LAST_S)
                return session, live.exit_code or 0
            with server_process(command, session.recorder.was_given, cwd) as server:
                code = await _PipedRecorder(session, server).run(told)
            if not session.outcomes.errors and not session.outcomes.has_success:
                session.failure = f"{command[0]!r} ended with {code} and answered nothing"
    if client is not None and session.published is not None and session.published.is_same:
        _mark("kept", output, client).touch()
    return session, code


def _check_transport(earlier: Cassette) -> None:
    if earlier.transport != "stdio":
        raise UsageError(
            f"{earlier.path} was recorded over HTTP, and this recording would be over pipes",
            hint="choose another <<cassette>>, or add to it over HTTP",
        )


async def _predecessor_ended(output: Location, client: str, named: Location) -> None:
    """Wait until the client's earlier recording is published; it may have been killed."""
    journal = journal_path(output)
    deadline = monotonic() + _PREDECESSOR_S
    while cassettes.client_of(journal) == client:
        if not is_locked(journal):
            # Whoever ended it did not wait for its cassette.
            recover_journal(output)
        elif monotonic() > deadline:
            raise CassetteError(
                named,
                "a server that the client has started before is still running",
                hint="end it first: what two servers say at the same time is no one recording",
            )
        else:
            await asyncio.sleep(_LOOK_S)


def next_place(output: Path, client: str | None, within_s: float) -> Path:
    """Return where a start of a client records: the first place that no other recording has.

    After `c.json` comes `c-2.json`. A start that continues the client's last one has its place.
    """
    number = 1
    place = output
    while cassettes.exists(place) or journal_path(place).exists():
        if client is not None:
            is_under_way = cassettes.client_of(journal_path(place)) == client
            if is_under_way or _continues(place, client, within_s):
                return place
        number += 1
        place = output.with_stem(f"{output.stem}-{number}")
    return place


def _mark(kind: str, cassette: Location, client: str) -> Path:
    """Return the file by which a start of a client tells the next one what became of a cassette.

    It was recorded and left alone (`kept`), or only `server/discover` was played (`probed`).
    """
    name = sha256_of(f"{client} {cassette.absolute()}")[:32]
    return Path(tempfile.gettempdir()) / f"mrtr-cassette-{kind}-{name}"


def _continues(output: Location, client: str, within_s: float | None) -> bool:
    """Tell whether a start belongs to a cassette that the client's last start recorded."""
    written: list[Location] = [output] if _client_of(output) == client else []
    mark = _mark("kept", output, client)
    if mark.exists():
        written.append(mark)
    if within_s is None:
        return bool(written)
    return any(not isinstance(place, Path) or _age_s(place) < within_s for place in written)


def _age_s(path: Path) -> float:
    """Return the seconds since a file was written."""
    return time.time() - path.stat().st_mtime


def _client_of(output: Location) -> str | None:
    cassette = cassettes.load_if_readable(output)
    return None if cassette is None else cassette.client


class _PipedRecorder:
    """Passes lines between a client and a server, and records them."""

    def __init__(self, session: RecordSession, server: ServerProcess) -> None:
        self._session = session
        self._longest = session.recorder.largest_body
        self._server = server
        self._client = LineWriter(STDOUT, server.client_left.set)
        # Each run of the server after the first one in a cassette is a session of its own.
        own = secrets.token_hex(16) if session.base is not None else ""
        self._channel: Channel[ExchangeRecording] = Channel(self._begin, own)

    async def run(self, told: asyncio.Event) -> int:
        """Pass lines on until both sides have ended; return the server's exit code."""
        heard = asyncio.ensure_future(self._from_server())
        said = asyncio.ensure_future(self._from_client())
        by_server = await self._server.ended(told, heard)
        for task in (said, heard):
            task.cancel()
        for exchange, end in self._channel.ended(by_server=by_server):
            if end is None:
                exchange.forget()
            else:
                exchange.response_ended(end)
        return self._server.exit_code

    async def _from_client(self) -> None:
        writer = self._server.writer
        async for brought in reads_from(STDIN, self._longest):
            for line in brought.lines:
                # Nothing that the server says in response is read before the line is shown.
                writer.write(line.new)
                self._show(line, is_by_client=True)
            if brought.rest:
                writer.write(brought.rest)
            await writer.room()
        await self._server.close_stdin()

    async def _from_server(self) -> None:
        client = self._client
        async for brought in self._server.reads(self._longest):
            for line in brought.lines:
                self._show(line, is_by_client=False)
                client.write(line.new)
            if brought.rest:
                client.write(brought.rest)
            await client.room()
        await client.finish()
        client.close()

    def _begin(self, request: Request) -> ExchangeRecording:
        exchange = ExchangeRecording(self._session, request)
        if opens_channel(request):
            exchange.response_started(NO_STATUS, ())
        return exchange

    def _show(self, line: Line, *, is_by_client: bool) -> None:
        if not line.is_whole:
            self._session.failed(BodyTooLargeError("a line", self._longest))
            return
        try:
            if is_by_client:
                exchange, is_over = self._channel.client_line(line.raw)
                if not is_over:
                    exchange.response_started(NO_STATUS, ())
            else:
                exchange, is_over = self._channel.server_line(line.raw)
                exchange.response_bytes(line.raw)
            if is_over:
                exchange.response_ended(End.COMPLETE)
        except Exception as error:  # noqa: BLE001  the recorder is a spectator
            self._session.failed(error)


async def _answer(
    client: PipedClient, cassette: Cassette, told: asyncio.Event, last_s: float = LAST_S
) -> None:
    """Answer a client from a cassette until it ends."""
    if any(opens_channel(each.exchanges[0].request) for each in cassette.interactions):
        client.listen()
    await client.run(told, last_s)


async def replay_pipe(
    path: Location,
    options: ReplayOptions,
    on_event: OnEvent | None = None,
    *,
    server_command: Sequence[str] = (),
    client: str | None = None,
    restarts_within_s: float = 0.0,
    began: Callable[[ReplaySession], None] = lambda _session: None,
) -> tuple[ReplaySession, int]:
    """Serve a cassette on our own pipes until the client ends, a signal comes, or the server ended.

    `server_command` starts the server in whose place it stands, where that is known. What a start
    of the client played that was a probe, and has just ended, counts as played. Returns what it
    came to, and an exit code.

    Raises:
        CassetteError: the cassette can't be read, or not be played over pipes.
    """
    announcer = Announcer(options.log, heard_by(on_event), options.terms)
    cassette, server = load_server(path, over_pipes, options, announcer)
    player = server.player
    player.was_given(given_to(server_command))
    mark = None if client is None else _mark("probed", path, client)
    if mark is not None and mark.exists():
        player.was_probed = _age_s(mark) < restarts_within_s
    session = ReplaySession("", "", path, cassette, player, options.terms)
    began(session)
    async with told_to_end() as told:
        await _answer(PipedClient(server.handle, options.max_body), cassette, told)
    if mark is not None and player.only_probed:
        mark.touch()
    return session, int(bool(player.misses))


# What a client starts

_WORK: Final = "work"
_OUTCOMES: Final = "outcomes"
_PROGRAM: Final = "from mrtr_cassette.shell.runs.piped import main; main()"
_PUBLISHING_S: Final = 5.0
"""Seconds for processes whose clients have closed, which publish what they recorded."""
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
        self.path = path
        self.base = base
        self.is_recording = work.func is record_pipe
        self.command = [sys.executable, "-c", _PROGRAM, str(folder)]
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
        unused: set[tuple[str, str]] | None = None
        for start in starts:
            if start.unplayed is not None:
                numbers &= set(start.unplayed)
            if start.unused is not None:
                unused = {*start.unused} if unused is None else unused & {*start.unused}
        return RunOutcome(
            misses=[miss for start in starts for miss in start.misses],
            played=sum(start.played for start in starts),
            unplayed=sorted(numbers),
            after_other_writes=sorted({it for start in starts for it in start.after_other_writes}),
            unreachable=sum(start.unreachable for start in starts),
            unrecorded=[text for start in starts for text in start.unrecorded],
            problem=next(filter(None, (start.problem for start in starts)), None),
            objection=next(filter(None, (start.objection for start in starts)), None),
            unused=None if unused is None else sorted(unused),
        )

    def _starts(self) -> list[RunOutcome]:
        # The last word of each process counts.
        told = dict(json.loads(line) for line in self._outcomes.read_bytes().splitlines())
        return [_outcome_from(data) for data in told.values()]

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
        deadline = monotonic() + _PUBLISHING_S
        while (is_left_open := is_locked(self._outcomes)) and monotonic() < deadline:
            time.sleep(_LOOK_S)
        last = [*self._starts(), *[RunOutcome(problem=_LEFT_OPEN)] * is_left_open]
        if self.is_recording:
            journal = journal_path(self.path)
            is_good = all(start.objection is None for start in last)
            if is_good and journal.exists() and not is_locked(journal):
                recover_journal(self.path)
        self._whole, self._last = self.recorded(), last


def _outcome_from(data: dict[str, Any]) -> RunOutcome:
    misses = [*map(_miss_from, data["misses"])]
    unused = None if data["unused"] is None else [tuple(pair) for pair in data["unused"]]
    return RunOutcome(**{**data, "misses": misses, "unused": unused})


def _miss_from(data: dict[str, Any]) -> MissReport:
    lists = {name: tuple(data[name]) for name in ("questions", "fixes")}
    nearest = None if data["nearest"] is None else Nearest(*data["nearest"])
    differences = tuple(Difference(*each) for each in data["differences"])
    return MissReport(**{**data, **lists, "nearest": nearest, "differences": differences})


def recorded_by_client(
    server: Sequence[str],
    output: Location,
    options: RecordOptions,
    cwd: Path | None = None,
    *,
    named: Path | None = None,
) -> AbstractAsyncContextManager[ClientStarts]:
    """Prepare the recording of a server on pipes; a client starts its `command`.

    Each start publishes what it recorded when it ends, and is added to those before it. Messages
    name the cassette `named`.

    Raises:
        CassetteError: the cassette can't be written, or exists.
        UsageError: a cassette that is to be added to was recorded over HTTP.
    """
    earlier = check_output(output, options)
    if earlier is not None:
        _check_transport(replace(earlier, path=str(named or output)))
    begin = partial(record_pipe, tuple(server), output.absolute(), replace(options, log=None))
    # Whoever has the command is the same client, by however many processes it starts it.
    work = partial(begin, cwd=cwd, named=named or output, client=secrets.token_hex(32))
    return _started(output, work, earlier)


def replayed_by_client(
    path: Location, options: ReplayOptions
) -> AbstractAsyncContextManager[ClientStarts]:
    """Prepare a replay on pipes; a client starts its `command`.

    Raises:
        CassetteError: the cassette can't be read.
    """
    cassette = cassettes.load_cassette(path)
    work = partial(replay_pipe, path.absolute(), replace(options, log=None))
    return _started(path, work, cassette)


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
        if event["event"] == "missed":
            tell(sessions[0].outcome)

    try:
        session, code = await work(on_event=on_event, began=sessions.append)
    except MrtrCassetteError as error:
        problem = error.in_terms(work.args[-1].terms)
        tell(RunOutcome(problem=problem))
        sys.stderr.write(f"error: {problem}\n")
        return error.exit_code
    tell(session.outcome)
    return code
