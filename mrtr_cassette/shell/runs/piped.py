"""Replay on our own pipes, and tell which client has started this process."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.transports import cassette_over_pipes
from mrtr_cassette.core.protocol.methods import DISCOVER
from mrtr_cassette.core.secrets.names import sha256_of
from mrtr_cassette.core.wire.http import opens_channel
from mrtr_cassette.options import ReplayOptions
from mrtr_cassette.shell.files.cassettes import load_if_readable
from mrtr_cassette.shell.files.log import Announcer, OnEvent, given_listeners
from mrtr_cassette.shell.files.stores import Location
from mrtr_cassette.shell.pipes.commands import credentials_given_to
from mrtr_cassette.shell.pipes.lines import LAST_RESPONSES_S, PipedClient
from mrtr_cassette.shell.runs.proxy_runs import ReplayRun, miss_terms
from mrtr_cassette.shell.runs.replaying import load_server
from mrtr_cassette.shell.runs.running import catching_end_signals

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

    def leave_note(self, note: Note, cassette: Location) -> None:
        """Leave a note about a cassette for the next start."""
        self._note_file(note, cassette).touch()

    def take_note(self, note: Note, cassette: Location) -> bool:
        """Tell whether the last start has left a note, which is then gone."""
        file = self._note_file(note, cassette)
        is_recent = self._is_recent(file)
        file.unlink(missing_ok=True)

        return is_recent

    def _note_file(self, note: Note, cassette: Location) -> Path:
        """Return the file whose existence is a note about a cassette."""
        name = sha256_of(f"{self.sha256} {cassette.absolute()}")[:32]
        return self.folder / f"mrtr-cassette-{note}-{name}"

    def _is_recent(self, path: Path) -> bool:
        """Tell whether a file exists, and is younger than `within_s` unless that is None."""
        if not path.exists():
            return False
        if self.within_s is None:
            return True
        return time.time() - path.stat().st_mtime < self.within_s

    def continues_recording(self, cassette: Location) -> bool:
        """Tell whether this start belongs to a cassette that the last one recorded."""
        if self.take_note("kept", cassette):
            return True

        recorded_cassette = load_if_readable(cassette)
        if recorded_cassette is None or recorded_cassette.client != self.sha256:
            return False
        if _has_only_probes(recorded_cassette):
            # However long a busy machine takes to start the server that was probed.
            return True

        return not isinstance(cassette, Path) or self._is_recent(cassette)


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


# Who the client is

_MOST_WRAPPERS: Final = 8
_WRAPPER_PROGRAMS: Final = frozenset({"env", "pipx", "timeout", "uv", "uvx"})
"""Programs that only pass their arguments on, and are started anew each time."""

_SHELL_PROGRAMS: Final = frozenset(
    {"bash", "csh", "dash", "fish", "ksh", "sh", "tcsh", "zsh"}
)
"""Programs that pass on the arguments of their only command, and are no client otherwise."""

_PROC_FOLDER: Final = Path("/proc")


def client_sha256() -> str | None:
    """Return a hash of the client that started this process; None where that can't be told.

    Programs that only pass the arguments on, such as `uvx`, don't count, and a shell that runs
    other commands too is no client. Two starts have the same hash only if the same living process
    caused both.
    """
    arguments = " ".join(sys.argv[1:])
    pid = os.getppid()
    process_facts_of = _process_facts_from_ps
    if _PROC_FOLDER.joinpath("self/stat").exists():
        process_facts_of = _process_facts_from_proc

    for _ in range(_MOST_WRAPPERS):
        try:
            parent_pid, start_time, command = process_facts_of(pid)
        except (OSError, ValueError, IndexError, subprocess.CalledProcessError):
            return None

        program = _program_of(command)
        if program in _SHELL_PROGRAMS:
            if not _runs_only_our_command(arguments, command):
                return None
        elif program not in _WRAPPER_PROGRAMS or arguments not in command:
            return sha256_of(f"{pid} {start_time}")

        pid = parent_pid

    return None


def _program_of(command: str) -> str:
    """Return the name of the program, without the dash of a login shell."""
    path, _, _ = command.strip().partition(" ")
    return path.rpartition("/")[2].removeprefix("-")


def _runs_only_our_command(arguments: str, command: str) -> bool:
    """Tell whether a shell runs nothing but our command, which has these arguments."""
    # In a script, other commands come before or after.
    return command.count(arguments) == 1 and command.rstrip().endswith(arguments)


def _process_facts_from_proc(pid: int) -> tuple[int, str, str]:
    """Return a process's parent, its start, in whatever unit the system has, and its command."""
    folder = _PROC_FOLDER / str(pid)
    stat = (folder / "stat").read_text(errors="replace")
    # The process's name, in parentheses, may be anything.
    fields = stat.rpartition(")")[2].split()
    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")

    return int(fields[1]), fields[19], command.decode(errors="replace")


def _process_facts_from_ps(pid: int) -> tuple[int, str, str]:
    """Return a process's parent, its start and its command, on systems without `/proc`."""
    ps_output = subprocess.run(  # noqa: S603
        ["/bin/ps", "-o", "ppid=,lstart=,command=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "LC_ALL": "C"},
    )

    parent_pid, *start_words, command = ps_output.stdout.split(None, 6)
    return int(parent_pid), " ".join(start_words), command


async def replay_pipe(
    path: Location,
    options: ReplayOptions,
    on_event: OnEvent | None,
    *,
    server_command: Sequence[str] = (),
    client: StartingClient | None = None,
    on_begin: Callable[[ReplayRun], None] = lambda _replay_run: None,
) -> tuple[ReplayRun, int]:
    """Serve a cassette on our own pipes until the client ends, a signal comes, or the server ended.

    Args:
        server_command: starts the recorded server, if that is known.
        client: where it has just probed this server, the probe counts as played.

    Returns:
        the run, and an exit code.

    Raises:
        CassetteError: the cassette can't be read, or not be played over pipes.
    """
    terms = miss_terms(options)
    announcer = Announcer(options.log, given_listeners(on_event), terms)
    cassette, server = load_server(path, cassette_over_pipes, options, announcer)
    player = server.player
    player.normaliser.sent_secrets.add_settings(credentials_given_to(server_command))
    if client is not None:
        player.played_part.has_discovered = client.take_note("probed", path)

    replay_run = ReplayRun("", "", path, cassette, player, terms)
    replay_run.faults = server.faults
    on_begin(replay_run)
    async with catching_end_signals() as end_requested:
        await answer_pipe(
            PipedClient(server.answer_request, options.max_body),
            cassette,
            end_requested,
        )

    has_only_discovered = player.played_part.has_only_discovered
    if client is not None and has_only_discovered and not player.tally.misses:
        client.leave_note("probed", path)

    return replay_run, int(bool(player.tally.misses))


async def answer_pipe(
    client: PipedClient,
    cassette: Cassette,
    end_requested: asyncio.Event,
    last_responses_s: float = LAST_RESPONSES_S,
) -> None:
    """Answer a client on pipes from a cassette until it ends."""
    for interaction in cassette.interactions:
        if opens_channel(interaction.exchanges[0].request):
            client.pass_on_unsolicited()
            break

    await client.answer_until_end(end_requested, last_responses_s)
