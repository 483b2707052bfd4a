"""A server that a command started and that is spoken to through pipes.

Rule: what is started here is ended here, children included, even where this process is killed.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import IO, Final

from mrtr_cassette.core.secrets.credentials import Given, Knows, shown_by
from mrtr_cassette.core.secrets.rules import BUILT_IN, RedactionRules
from mrtr_cassette.errors import UpstreamError, printable
from mrtr_cassette.shell.files import reason_of
from mrtr_cassette.shell.process_group import ProcessGroup

NOT_FOUND: Final = 127
NOT_RUNNABLE: Final = 126
_GUARD: Final = (
    'read -r _ || { kill -s TERM -- "-$1"; sleep 1; kill -s KILL -- "-$1"; } 2>/dev/null'
)
"""Ends a process group when its own stdin ends without a line: whoever held it was killed."""


def shown_command(command: Sequence[str], rules: RedactionRules = BUILT_IN) -> str:
    """Return how a cassette and messages name a server that a command starts."""
    shown = shown_by(rules, Given(environment=tuple(_options(command))))
    return shown(shlex.join([Path(command[0]).name, *command[1:]]))


class CommandError(UpstreamError):
    """The server's command can't be run; the exit code is a shell's."""

    def __init__(self, command: Sequence[str], error: OSError) -> None:
        shown = shown_by(BUILT_IN, given_to(command))(" ".join(map(printable, command)))
        super().__init__(f"can't run the server {shown!r}: {reason_of(error)}")
        self.exit_code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE


class ServerProcess:
    """A running server.

    Attributes:
        group: the process, with all that it has started.
        stdin: takes what the client says.
        stdout: gives what the server says.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Watch over a process that leads a group of its own."""
        self.group = ProcessGroup(process)
        self.stdin = _pipe_of(process.stdin)
        self.stdout = _pipe_of(process.stdout)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for its end, at most so many seconds; return whether it has ended."""
        try:
            self.group.leader.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    @property
    def exit_code(self) -> int:
        """Its exit code, once it has ended; 128 and the number of the signal that ended it."""
        code = self.group.leader.wait()
        return 128 - code if code < 0 else code


def _pipe_of(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise AssertionError("unreachable because the process was started with pipes")
    return pipe


def given_to(command: Sequence[str]) -> Given:
    """Return what a server that a command starts is given: its arguments and our environment."""
    settings = (*os.environ.items(), *_options(command))
    return Given(environment=settings, command=shlex.join(command))


def _options(command: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what may be options, and their values."""
    for option, following in pairwise((*command, "")):
        name, has_value, value = option.lstrip("-").partition("=")
        value = value if has_value else following
        if option.startswith("-") and not value.startswith("-"):
            yield name, value


@contextmanager
def server_process(
    command: Sequence[str], knows: Knows, cwd: Path | None = None
) -> Iterator[ServerProcess]:
    """Run a server until the block ends, here or elsewhere; its stderr is this process's.

    Args:
        knows: sees what it says, and is told which credentials it is given.

    Raises:
        CommandError: it can't be run.
    """
    knows.was_given(given_to(command))
    try:
        process = subprocess.Popen(  # noqa: S603  it is the user's own command
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd=cwd,
            process_group=0,
        )
    except OSError as error:
        raise CommandError(command, error) from None
    server = ServerProcess(process)
    try:
        with _guarded(process.pid):
            yield server
    finally:
        if server.group.signal(0):
            server.group.stop(0.0)
        for pipe in (server.stdin, server.stdout):
            with suppress(OSError):
                pipe.close()


@contextmanager
def _guarded(group: int) -> Iterator[None]:
    """Have a process group ended where this process is killed before the block ends."""
    guard = subprocess.Popen(  # noqa: S603
        ["/bin/sh", "-c", _GUARD, "sh", str(group)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        # Whoever kills the group of this process must not kill the guard.
        start_new_session=True,
    )
    try:
        yield
    finally:
        guard.kill()
        guard.wait()
        _pipe_of(guard.stdin).close()
