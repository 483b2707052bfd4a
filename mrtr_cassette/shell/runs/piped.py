"""Record and replay on our own pipes, and have a client start that."""

# A replay loads no client: what records imports it in its functions.

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.texts import combine_cassettes
from mrtr_cassette.core.cassette.transports import over_pipes
from mrtr_cassette.core.protocol.methods import DISCOVER
from mrtr_cassette.core.record.recorder import Channel
from mrtr_cassette.core.replay.faults import FaultOutcome, read_faults
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.runs import MissReport, Nearest
from mrtr_cassette.core.report.trials import DivergenceReport, RecordingsLeft
from mrtr_cassette.core.secrets.credentials import UserSettings, shown_by
from mrtr_cassette.core.secrets.names import sha256_of
from mrtr_cassette.core.wire.http import NO_STATUS, End, Line, Request, opens_channel
from mrtr_cassette.core.wire.pointers import Difference
from mrtr_cassette.errors import (
    BodyTooLargeError,
    CassetteError,
    MrtrCassetteError,
    UsageError,
)
from mrtr_cassette.options import Options, RecordOptions, ReplayOptions
from mrtr_cassette.shell.files import cassettes
from mrtr_cassette.shell.files.cassettes import (
    client_of,
    journal_path,
    load_if_readable,
    recorded_so_far,
    recover_journal,
)
from mrtr_cassette.shell.files.disk import is_free_within, is_locked
from mrtr_cassette.shell.files.log import Announcer, OnEvent, heard_by
from mrtr_cassette.shell.files.stores import Location, StoreFile, location
from mrtr_cassette.shell.pipes.commands import given_to, shown_command
from mrtr_cassette.shell.pipes.lines import (
    LAST_S,
    STDIN,
    STDOUT,
    LineWriter,
    PipedClient,
    reads_from,
)
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
    check_transport,
    journaling,
    rules_of_both,
)

if TYPE_CHECKING:
    from mrtr_cassette.shell.pipes.processes import ServerProcess

T = TypeVar("T")

_PREDECESSOR_S: Final = 5.0
"""Seconds to wait for the end of a recorder that the same client started before."""
_WITHIN_S: Final = 10.0
"""Seconds after the end of a server on pipes within which its client starts it again, as the
TypeScript SDK does after its probe; a busy machine takes long to start a program."""

Note = Literal["kept", "probed"]
"""A recording was the same as its cassette, or only `server/discover` was played."""


@dataclass(frozen=True, slots=True)
class StartingClient:
    """The client that started this process, and may have started others before."""

    sha256: str
    """Names it in journals and cassettes."""
    within_s: float | None = _WITHIN_S
    """Seconds after the end of a start within which the next one belongs to it; None: always."""
    folder: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))
    """Has the notes of a start for the next one."""

    def note(self, note: Note, cassette: Location) -> None:
        """Leave a note about a cassette for the next start."""
        self._file(note, cassette).touch()

    def has_noted(self, note: Note, cassette: Location) -> bool:
        """Tell whether the last start has left a note."""
        return self._is_recent(self._file(note, cassette))

    def _file(self, note: Note, cassette: Location) -> Path:
        name = sha256_of(f"{self.sha256} {cassette.absolute()}")[:32]
        return self.folder / f"mrtr-cassette-{note}-{name}"

    def _is_recent(self, path: Path) -> bool:
        if not path.exists():
            return False
        if self.within_s is None:
            return True
        return time.time() - path.stat().st_mtime < self.within_s

    def continues(self, cassette: Location) -> bool:
        """Tell whether this start belongs to a cassette that the last one recorded."""
        if self.has_noted("kept", cassette):
            return True
        recorded = load_if_readable(cassette)
        if recorded is None or recorded.client != self.sha256:
            return False
        if _has_only_probes(recorded):
            # However long a busy machine takes to start the server that was probed.
            return True
        return not isinstance(cassette, Path) or self._is_recent(cassette)

    async def wait_for_predecessor(self, cassette: Location, named: str) -> None:
        """Wait until the client's last recording is published; it may have been killed.

        Raises:
            CassetteError: it goes on.
        """
        journal = journal_path(cassette)
        if client_of(journal) != self.sha256:
            return
        if not await asyncio.to_thread(is_free_within, journal, _PREDECESSOR_S):
            raise CassetteError(
                named,
                "a server that the client has started before is still running",
                hint="end it first: two servers at once can't share a recording",
            )
        if client_of(journal) == self.sha256:
            # Whoever ended it did not wait for its cassette.
            recover_journal(cassette)


def _has_only_probes(cassette: Cassette) -> bool:
    """Whether a client has asked for nothing but `server/discover`."""
    methods = set()
    for interaction in cassette.interactions:
        methods.add(interaction.exchanges[0].call.method)
    return methods == {DISCOVER}


def starting_client() -> StartingClient | None:
    """Return the client that started this process; None where that can't be told."""
    sha256 = client_sha256()
    return None if sha256 is None else StartingClient(sha256)


def next_place(output: Path) -> Path:
    """Return where this start of a client records: the first place that no other recording has.

    After `c.json` comes `c-2.json`. A start that continues the client's last one has its place.
    """
    client = starting_client()
    number = 1
    place = output
    while cassettes.exists(place) or journal_path(place).exists():
        if client is not None:
            is_under_way = client_of(journal_path(place)) == client.sha256
            if is_under_way or client.continues(place):
                return place
        number += 1
        place = output.with_stem(f"{output.stem}-{number}")
    return place


# Who the client is

_MOST_WRAPPERS: Final = 8
_WRAPPERS: Final = frozenset({"env", "pipx", "timeout", "uv", "uvx"})
"""Programs that only pass their arguments on, and are started anew each time."""
_SHELLS: Final = frozenset({"bash", "csh", "dash", "fish", "ksh", "sh", "tcsh", "zsh"})
"""Programs that pass on the arguments of their only command, and are no client otherwise."""
_PROC: Final = Path("/proc")


def client_sha256() -> str | None:
    """Return a hash of the client that started this process; None where that can't be told.

    Programs that only pass the arguments on, such as `uvx`, don't count, and a shell that runs
    other commands too is no client. Two starts have the same hash only if the same living process
    caused both.
    """
    arguments = " ".join(sys.argv[1:])
    number = os.getppid()
    look_up = _from_proc if _PROC.joinpath("self/stat").exists() else _from_ps
    for _ in range(_MOST_WRAPPERS):
        try:
            parent, started, command = look_up(number)
        except (OSError, ValueError, IndexError, subprocess.CalledProcessError):
            return None
        program = _program_of(command)
        if program in _SHELLS:
            if not _has_only(arguments, command):
                return None
        elif program not in _WRAPPERS or arguments not in command:
            return sha256_of(f"{number} {started}")
        number = parent
    return None


def _program_of(command: str) -> str:
    """Return the name of the program, without the dash of a login shell."""
    path, _, _ = command.strip().partition(" ")
    return path.rpartition("/")[2].removeprefix("-")


def _has_only(arguments: str, command: str) -> bool:
    """Tell whether a shell runs nothing but our command, which has these arguments."""
    # In a script, other commands come before or after.
    return command.count(arguments) == 1 and command.rstrip().endswith(arguments)


def _from_proc(number: int) -> tuple[int, str, str]:
    """Return a process's parent, its start, in whatever unit the system has, and its command."""
    folder = _PROC / str(number)
    stat = (folder / "stat").read_text(errors="replace")
    # The process's name, in parentheses, may be anything.
    fields = stat.rpartition(")")[2].split()
    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
    return int(fields[1]), fields[19], command.decode(errors="replace")


def _from_ps(number: int) -> tuple[int, str, str]:
    listed = subprocess.run(  # noqa: S603
        ["/bin/ps", "-o", "ppid=,lstart=,command=", "-p", str(number)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    parent, *started, command = listed.stdout.split(None, 6)
    return int(parent), " ".join(started), command


_LAST_S: Final = 4.0
"""Seconds after the client's end for responses of a server that is added from."""


async def record_pipe(
    command: Sequence[str],
    output: Location,
    options: RecordOptions,
    on_event: OnEvent | None = None,
    *,
    cwd: Path | None = None,
    client: StartingClient | None = None,
    named: str = "",
    began: Callable[[RecordSession], None] = lambda _session: None,
) -> tuple[RecordSession, int]:
    """Record between our own stdin and stdout and a server, until both sides have ended.

    With `existing="append"`, what the cassette has is played, and the server is started for the
    first request that it lacks. Where the same client has recorded the cassette, or is about to end
    its recording, this one is added to it: some clients start a server twice.

    Args:
        client: None where nobody can tell who it is.
        named: the cassette as messages show it.

    Returns:
        the session, and the server's exit code; 0 where it was never started.

    Raises:
        CassetteError: the cassette can't be written, or exists.
        UsageError: a cassette that is to be added to was recorded over HTTP.
        CommandError: the server can't be started.
    """
    command = options.filled(command)
    plays = options.existing == "append"
    named = named or str(output)
    if client is not None:
        await client.wait_for_predecessor(output, named)
        if client.continues(output):
            options = replace(options, existing="append")
    with cassettes.without_collection():
        earlier = check_output(output, options)
    shown = _shown(command, earlier, options)
    player = None
    if plays and earlier is not None:
        check_transport(earlier, named, "stdio")
        earlier = replace(earlier, path=named)
        player = player_of(over_pipes(earlier), options, given_to(command), strict=True)
        player.recording = replace(player.recording, upstream=shown)
    announcer = Announcer(options.log, heard_by(on_event), options.terms)
    client_name = None if client is None else client.sha256
    server = RecordedServer(shown, "stdio", client_name)
    process = _ServerCommand(command, cwd)
    async with told_to_end() as told:
        with journaling(output, options, announcer, earlier, player, server) as session:
            began(session)
            if player is None:
                code = await _record(session, process, told)
            else:
                code = await _append(session, player, process, told, options)
    is_same = session.published is not None and session.published.is_same
    if client is not None and is_same:
        client.note("kept", output)
    return session, code


class _ServerCommand(NamedTuple):
    """The command of a server, and the folder in which it runs, if that is not ours."""

    arguments: Sequence[str]
    cwd: Path | None


def _shown(
    command: Sequence[str], earlier: Cassette | None, options: RecordOptions
) -> str:
    """Return the command without secrets."""
    rules = rules_of_both(earlier, options.redaction)
    without_secrets = shown_by(rules, UserSettings(secrets=options.secrets))
    return without_secrets(shown_command(command, rules))


async def _append(
    session: RecordSession,
    player: Player,
    process: _ServerCommand,
    told: asyncio.Event,
    options: RecordOptions,
) -> int:
    """Play a cassette, and record what it lacks; return the server's exit code, if it has one."""
    from mrtr_cassette.shell.files.ignored import ignoring
    from mrtr_cassette.shell.pipes.upstream import pipe_upstream
    from mrtr_cassette.shell.runs.recording import Appender, Relay

    earlier = session.base
    if earlier is None:
        raise AssertionError("unreachable because a player plays a cassette")
    recorder = session.recorder
    longest = recorder.largest_body
    upstream = pipe_upstream(
        process.arguments, longest, recorder.add_settings, told, process.cwd
    )
    async with session.finishing(), upstream as live:
        relay = Relay(live, session.url, (), session)
        ignored_for = ignoring(options.ignore, options.ignore_from, options.masks)
        appender = Appender(relay, earlier, player, ignored_for)
        client = PipedClient(appender.handle, longest)
        live.on_own_line = partial(client.listen, appender.listen)
        await answer_pipe(client, earlier, told, _LAST_S)
    return live.exit_code or 0


async def _record(
    session: RecordSession, process: _ServerCommand, told: asyncio.Event
) -> int:
    """Record all that passes; return the server's exit code."""
    from mrtr_cassette.shell.pipes.processes import server_process

    add_settings = session.recorder.add_settings
    with server_process(process.arguments, add_settings, process.cwd) as server:
        code = await _PipedRecorder(session, server).run(told)
    if not session.outcomes.errors and not session.outcomes.has_success:
        program = process.arguments[0]
        session.failure = f"{program!r} ended with {code} and answered nothing"
    return code


class _PipedRecorder:
    """Passes lines between a client and a server, and records them."""

    def __init__(self, session: RecordSession, server: ServerProcess) -> None:
        self._session = session
        self._longest = session.recorder.largest_body
        self._server = server
        self._client = LineWriter(STDOUT, server.client_left.set)
        # Each run of the server after the first one in a cassette is a session of its own.
        name = "" if session.base is None else secrets.token_hex(16)
        self._channel: Channel[ExchangeRecording] = Channel(self._begin, name)

    async def run(self, told: asyncio.Event) -> int:
        """Pass lines on until both sides have ended; return the server's exit code."""
        from_server = asyncio.ensure_future(self._from_server())
        from_client = asyncio.ensure_future(self._from_client())
        by_server = await self._server.ended(told, from_server)
        from_client.cancel()
        from_server.cancel()
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
                self._show(line, self._show_clients)
            if brought.rest:
                writer.write(brought.rest)
            await writer.room()
        await self._server.close_stdin()

    async def _from_server(self) -> None:
        client = self._client
        async for brought in self._server.reads(self._longest):
            for line in brought.lines:
                self._show(line, self._show_servers)
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

    def _show(self, line: Line, show: Callable[[bytes], None]) -> None:
        if not line.is_whole:
            self._session.failed(BodyTooLargeError("a line", self._longest))
            return
        try:
            show(line.raw)
        except Exception as error:  # noqa: BLE001  the recorder is a spectator
            self._session.failed(error)

    def _show_clients(self, line: bytes) -> None:
        exchange, is_over = self._channel.client_line(line)
        if is_over:
            exchange.response_ended(End.COMPLETE)
        else:
            exchange.response_started(NO_STATUS, ())

    def _show_servers(self, line: bytes) -> None:
        exchange, is_over = self._channel.server_line(line)
        exchange.response_bytes(line)
        if is_over:
            exchange.response_ended(End.COMPLETE)


async def replay_pipe(
    path: Location,
    options: ReplayOptions,
    on_event: OnEvent | None = None,
    *,
    server_command: Sequence[str] = (),
    client: StartingClient | None = None,
    began: Callable[[ReplaySession], None] = lambda _session: None,
) -> tuple[ReplaySession, int]:
    """Serve a cassette on our own pipes until the client ends, a signal comes, or the server ended.

    Args:
        server_command: starts the recorded server, if that is known.
        client: where it has just probed this server, the probe counts as played.

    Returns:
        the session, and an exit code.

    Raises:
        CassetteError: the cassette can't be read, or not be played over pipes.
    """
    announcer = Announcer(options.log, heard_by(on_event), options.terms)
    cassette, server = load_server(path, over_pipes, options, announcer)
    player = server.player
    player.add_settings(given_to(server_command))
    player.was_probed = client is not None and client.has_noted("probed", path)
    session = ReplaySession("", "", path, cassette, player, options.terms)
    began(session)
    async with told_to_end() as told:
        await answer_pipe(PipedClient(server.handle, options.max_body), cassette, told)
    if client is not None and player.only_probed:
        client.note("probed", path)
    return session, int(bool(player.misses))


async def answer_pipe(
    client: PipedClient, cassette: Cassette, told: asyncio.Event, last_s: float = LAST_S
) -> None:
    """Answer a client on pipes from a cassette until it ends."""
    for interaction in cassette.interactions:
        if opens_channel(interaction.exchanges[0].request):
            client.listen()
            break
    await client.run(told, last_s)


# What a client starts is a process of its own, and clients hand on neither their environment nor
# descriptors: its work and its outcomes pass as JSON, in the files of a folder.

_WORK: Final = "work.json"
_OUTCOMES: Final = "outcomes"
_PUBLISHING_S: Final = 5.0
"""Seconds for processes whose clients have closed, which publish what they recorded."""
_LEFT_OPEN: Final = RunOutcome(
    problem="a process that the client started as its server is still running: close the client "
    "before the test ends"
)


class ClientStarts:
    """A recording or a replay whose command a client may start any number of times."""

    admin_url = None
    is_piped = True

    def __init__(
        self, path: Location, base: Cassette | None, folder: Path, *, is_recording: bool
    ) -> None:
        self.path = path
        self.base = base
        self.is_recording = is_recording
        self.command = [sys.executable, "-m", __name__, str(folder)]
        self._outcomes = folder / _OUTCOMES
        self._outcomes.touch()
        self._last: list[RunOutcome] | None = None
        self._whole: Cassette | None = None

    @property
    def url(self) -> str:
        """There is none."""
        done = "recorded" if self.is_recording else "played"
        raise UsageError(
            f"{self.path} is {done} over pipes, where there is no URL",
            hint="have the client start `command`",
        )

    @property
    def exchanges(self) -> int:
        """How many exchanges have been recorded."""
        return _highest_number(self.recorded()) - _highest_number(self.base)

    @property
    def outcome(self) -> RunOutcome:
        """What all starts came to so far."""
        interactions = 0 if self.base is None else len(self.base.interactions)
        combined = RunOutcome(unplayed=range(1, interactions + 1))
        starts = self._starts() if self._last is None else self._last
        for start in starts:
            combined = _both(combined, start)
        return combined

    def _starts(self) -> list[RunOutcome]:
        last = {}
        for line in self._outcomes.read_bytes().splitlines():
            process, outcome = json.loads(line)
            last[process] = outcome
        return [_outcome_from(outcome) for outcome in last.values()]

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
        have_ended = is_free_within(self._outcomes, _PUBLISHING_S)
        starts = self._starts()
        if not have_ended:
            starts.append(_LEFT_OPEN)
        if self.is_recording and all(start.objection is None for start in starts):
            journal = journal_path(self.path)
            if journal.exists() and not is_locked(journal):
                recover_journal(self.path)
        self._whole = self.recorded()
        self._last = starts


def _both(first: RunOutcome, second: RunOutcome) -> RunOutcome:
    """Return what two starts came to together."""
    after_other_writes = {*first.after_other_writes, *second.after_other_writes}
    unused = _common(first.unused, second.unused)
    return RunOutcome(
        misses=[*first.misses, *second.misses],
        played=first.played + second.played,
        harmless=first.harmless + second.harmless,
        unplayed=_common(first.unplayed, second.unplayed),
        after_other_writes=sorted(after_other_writes),
        faults=_added(first.faults, second.faults),
        unknown_tools=Counter(first.unknown_tools) + Counter(second.unknown_tools),
        stopped=first.stopped + second.stopped,
        divergences=RecordingsLeft(
            first.divergences.nearest or second.divergences.nearest,
            [*first.divergences.all, *second.divergences.all],
        ),
        unreachable=first.unreachable + second.unreachable,
        unrecorded=[*first.unrecorded, *second.unrecorded],
        problem=first.problem or second.problem,
        objection=first.objection or second.objection,
        unused=None if unused is None else sorted(unused),
        learned={**first.learned, **second.learned},
        matched=Counter(first.matched) + Counter(second.matched),
    )


def _added(
    first: Sequence[FaultOutcome], second: Sequence[FaultOutcome]
) -> Sequence[FaultOutcome]:
    """Return how often the same faults were met in two starts."""
    if not first or not second:
        return first or second
    added = []
    for one_start, next_start in zip(first, second, strict=True):
        came = one_start.came + next_start.came
        times = one_start.times + next_start.times
        added.append(FaultOutcome(one_start.fault, came, times))
    return added


def _common(
    first: Sequence[T] | None, second: Sequence[T] | None
) -> Sequence[T] | None:
    """Return the items that are in both; None has them all."""
    if first is None or second is None:
        return second if first is None else first
    kept = set(second)
    return [item for item in first if item in kept]


def _highest_number(cassette: Cassette | None) -> int:
    return 0 if cassette is None else cassette.highest_number


def _outcome_from(data: dict[str, Any]) -> RunOutcome:
    data["misses"] = [_miss_from(miss) for miss in data["misses"]]
    data["faults"] = [FaultOutcome(*fault) for fault in data["faults"]]
    nearest, left = data["divergences"]
    if nearest is not None:
        nearest = _divergence_from(nearest)
    found = [_divergence_from(divergence) for divergence in left]
    data["divergences"] = RecordingsLeft(nearest, found)
    if data["unused"] is not None:
        data["unused"] = [tuple(pair) for pair in data["unused"]]
    return RunOutcome(**data)


def _divergence_from(data: list[Any]) -> DivergenceReport:
    after, recording, why = data
    return DivergenceReport(after, recording, _miss_from(why))


def _miss_from(data: dict[str, Any]) -> MissReport:
    data["questions"] = tuple(data["questions"])
    data["fixes"] = tuple(data["fixes"])
    differences = [Difference(*difference) for difference in data["differences"]]
    data["differences"] = tuple(differences)
    if data["nearest"] is not None:
        data["nearest"] = Nearest(*data["nearest"])
    return MissReport(**data)


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
    shown = str(named or output)
    earlier = check_output(output, options)
    if earlier is not None:
        check_transport(earlier, shown, "stdio")
    work = {
        "server": list(server),
        "cwd": cwd,
        "named": shown,
        # Whoever has the command is the same client, by however many processes it starts it.
        "client": secrets.token_hex(32),
    }
    return _started(output, earlier, options, work)


def replayed_by_client(
    path: Location, options: ReplayOptions
) -> AbstractAsyncContextManager[ClientStarts]:
    """Prepare a replay on pipes; a client starts its `command`.

    Raises:
        CassetteError: the cassette can't be read.
    """
    read_faults(options.faults, is_piped=True)
    loaded = [cassettes.load_cassette(path)]
    for beside in options.beside:
        loaded.append(cassettes.load_cassette(location(beside)))
    return _started(path, combine_cassettes(loaded), options, {})


@asynccontextmanager
async def _started(
    path: Location, base: Cassette | None, options: Options, work: Mapping[str, object]
) -> AsyncIterator[ClientStarts]:
    place = path.absolute()
    values = {}
    for option in fields(options):
        value = getattr(options, option.name)
        if option.name == "log":
            continue
        if callable(value):
            raise UsageError(
                f"<<{option.name}>> is a function, and clients on pipes start another process, "
                "which doesn't have it",
                hint="have the client connect to a URL",
            )
        values[option.name] = value
    whole = {
        **work,
        "place": place if isinstance(place, StoreFile) else [place],
        "options": values,
    }
    with tempfile.TemporaryDirectory(prefix="mrtr-cassette-") as name:
        folder = Path(name)
        text = json.dumps(whole, default=os.fspath)
        (folder / _WORK).write_text(text, encoding="utf-8")
        starts = ClientStarts(path, base, folder, is_recording=bool(work))
        try:
            yield starts
        finally:
            await asyncio.to_thread(starts.finish)


# In the process that a client has started


async def _work_of(folder: Path) -> int:
    """Record or replay, write the outcomes to the file as they change; return the code."""
    work = json.loads((folder / _WORK).read_bytes())
    outcomes = os.open(folder / _OUTCOMES, os.O_RDWR | os.O_APPEND)
    # It is let go of when this process ends, whatever ends it.
    fcntl.flock(outcomes, fcntl.LOCK_SH)

    def tell(outcome: RunOutcome) -> None:
        line = json.dumps([os.getpid(), asdict(outcome)]) + "\n"
        # Where nobody waits any more, there is nobody to be told.
        with suppress(OSError):
            os.write(outcomes, line.encode())

    try:
        session, code = await _do(work, folder, tell)
    except MrtrCassetteError as error:
        problem = error.in_terms(work["options"]["terms"])
        tell(RunOutcome(problem=problem))
        sys.stderr.write(f"error: {problem}\n")
        return error.exit_code
    tell(session.outcome)
    return code


async def _do(
    work: dict[str, Any], folder: Path, tell: Callable[[RunOutcome], None]
) -> tuple[Session, int]:
    """Record or replay; tell the outcome at each miss."""
    sessions: list[Session] = []

    def on_event(event: dict[str, object]) -> None:
        if event["event"] == "missed":
            tell(sessions[0].outcome)

    path = _place_from(work["place"])
    if "server" not in work:
        options = ReplayOptions(**work["options"])
        return await replay_pipe(path, options, on_event, began=sessions.append)
    return await record_pipe(
        work["server"],
        path,
        RecordOptions(**work["options"]),
        on_event,
        cwd=work["cwd"],
        client=StartingClient(work["client"], None, folder),
        named=work["named"],
        began=sessions.append,
    )


def _place_from(parts: Sequence[str]) -> Location:
    if len(parts) == 1:
        return Path(parts[0])
    url, folder = parts
    return StoreFile(url, Path(folder))


if __name__ == "__main__":
    sys.exit(run(_work_of(Path(sys.argv[1]))))
