"""Programs on pipes, as a client starts them: what is said to them, and what they say."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import forked
from builders import rpc
from patience import HANGS_S, seconds
from processes import PEERS, PROGRAM, PYTHON

_AT_ONCE = 65_536
"""Bytes that are written at once, all of which a pipe takes."""

LINES_SERVER = (*PYTHON, str(PEERS / "server_lines.py"))


def recorder(output: Path, *server: str, options: Sequence[str] = ()) -> list[str]:
    """Return the command that records a server on pipes; without one, the server of lines."""
    program = [*PROGRAM, "record", "--stdio", "--output", str(output), *options]
    return [*program, "--", *(server or LINES_SERVER)]


def call(number: int, **params: Any) -> bytes:
    """Return a call of a tool as a line."""
    return rpc("tools/call", {"name": "t", "arguments": params}, number) + b"\n"


class Piped:
    """A running program on pipes."""

    def __init__(self, process: forked.Piped | subprocess.Popen[bytes]) -> None:
        self.process = process
        self.stdin = _given(process.stdin)
        self.stdout = _given(process.stdout)

    def say(self, raw: bytes) -> None:
        self.stdin.write(raw)

    def hear(self) -> bytes:
        return self.stdout.readline()

    def end(self) -> tuple[bytes, int]:
        """Close stdin, and return the rest of what it says, and its exit code."""
        self.stdin.close()
        rest = self.stdout.read()
        return rest, self.process.wait(HANGS_S)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


def _given(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


@contextmanager
def piped(command: Sequence[str], stderr: Path | None = None) -> Iterator[Piped]:
    """Run a program until the block ends; at the end it is killed if it is still there."""
    with (
        (stderr or Path(os.devnull)).open("wb") as errors,
        forked.start_piped(command, errors) as process,
    ):
        try:
            yield Piped(process)
        finally:
            process.kill()


def spoken(command: Sequence[str], raw: bytes) -> subprocess.CompletedProcess[bytes]:
    """Run a program that reads these bytes from its stdin, to its end."""
    with (
        tempfile.TemporaryFile() as errors,
        forked.start_piped(command, errors) as process,
        ThreadPoolExecutor(1) as threads,
    ):
        stdin = _given(process.stdin)
        stdout = _given(process.stdout)
        printed = threads.submit(stdout.read)
        with suppress(BrokenPipeError):
            for at in range(0, len(raw), _AT_ONCE):
                stdin.write(raw[at : at + _AT_ONCE])

        stdin.close()
        output = printed.result(HANGS_S)
        code = process.wait(HANGS_S)
        errors.seek(0)

        return subprocess.CompletedProcess(command, code, output, errors.read())


def processes_with(text: str) -> list[int]:
    """Return the processes that have a text in their arguments and live."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes()
        except OSError:
            continue

        if text.encode() in arguments and int(folder.name) != os.getpid():
            found.append(int(folder.name))

    return found


def until(condition: Callable[[], bool]) -> bool:
    """Wait until something is so; return whether it ever was."""
    import time

    deadline = time.monotonic() + seconds(15)
    while not condition():
        if time.monotonic() > deadline:
            return False

        time.sleep(0.02)

    return True


_FAR_AWAY = 2**33
"""Seconds since 1970."""


def stays_recent(path: Path) -> None:
    """Let a file count as written just now until the test ends, however long a start takes."""
    os.utime(path, (_FAR_AWAY, _FAR_AWAY))
