"""Python programs forked off a process that has imported the SDK and the program already.

Each is a process like others, with an id, signals, output and an exit code of its own; only its
imports, which take most of a second, were made before. What it starts itself is not forked.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import IO, Any, Self

from patience import HANGS_S

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "anyio.pytest_plugin",
        "fastmcp_tasks",
        "mcp.server.mcpserver",
        "uvicorn",
        "aiohttp.web",
        "mrtr_cassette.cli.proxies",
        "mrtr_cassette.cli.live",
        "mrtr_cassette.shell.runs.piped",
        "pytest",
    ]
)
_FORKS_HERE = "pytest" in sys.modules and not any(
    name.startswith("COVERAGE_") for name in os.environ
)
"""Tests fork; what the benchmark or coverage measures is started as users start it."""


class _Output:
    """A file that the forked process reads from or writes to; it is an open descriptor there."""

    def __init__(self, file: IO[Any]) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return _descriptor, (DupFd(self.file.fileno()),)


def _descriptor(inherited: Any) -> int:
    descriptor: int = inherited.detach()
    return descriptor


class _Forked:
    """A forked process; its methods are those of `Popen`."""

    def __init__(
        self,
        words: Sequence[str],
        stdout: IO[Any],
        stderr: IO[Any],
        env: Mapping[str, str],
        cwd: Path | None,
        stdin: IO[Any] | None = None,
    ) -> None:
        self._words = words
        outputs = {1: _Output(stdout), 2: _Output(stderr)}
        if stdin is not None:
            outputs[0] = _Output(stdin)
        self._process = _FORKS.Process(
            target=_become, args=([*words], outputs, {**env}, cwd or Path.cwd())
        )
        self._process.start()
        self.pid = self._process.pid or 0

    @property
    def code(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout: float = HANGS_S) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self._words, timeout)
        return self._process.exitcode


Process = subprocess.Popen[str] | _Forked


def start(
    command: Sequence[str],
    stdout: IO[Any],
    stderr: IO[Any],
    env: Mapping[str, str],
    cwd: Path | None = None,
) -> Process:
    """Start a command; a Python program is forked."""
    if command[0] == sys.executable and _FORKS_HERE:
        return _Forked(command[1:], stdout, stderr, env, cwd)
    return subprocess.Popen(
        command, stdout=stdout, stderr=stderr, env=env, cwd=cwd, text=True
    )


@dataclass
class ReadByLoop:
    """A forked program whose output an event loop reads; its methods are those of asyncio."""

    process: _Forked
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def returncode(self) -> int | None:
        return self.process.code

    def send_signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()

    async def communicate(self) -> tuple[bytes, bytes]:
        printed = await asyncio.gather(self.stdout.read(), self.stderr.read())
        await asyncio.to_thread(self.process.wait, HANGS_S)
        return printed[0], printed[1]


async def start_for_loop(
    command: Sequence[str], limit: int, cwd: Path | None = None
) -> ReadByLoop | None:
    """Fork a Python program whose output is read here; None where no program is forked."""
    if not _FORKS_HERE:
        return None
    readers = []
    written = []
    for _ in range(2):
        reading, writing = os.pipe()
        written.append(os.fdopen(writing, "wb"))
        reader = asyncio.StreamReader(limit=limit)
        protocol = asyncio.StreamReaderProtocol(reader)
        pipe = os.fdopen(reading, "rb", buffering=0)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda made=protocol: made, pipe
        )
        readers.append(reader)
    process = _Forked(command[1:], *written, os.environ, cwd)
    for file in written:
        file.close()
    return ReadByLoop(process, *readers)


class Piped:
    """A forked program on pipes; its members are those of `Popen`."""

    def __init__(self, command: Sequence[str], stderr: IO[Any]) -> None:
        heard, said = os.pipe()
        answered, answers = os.pipe()
        with os.fdopen(heard, "rb") as stdin, os.fdopen(answers, "wb") as stdout:
            self._forked = _Forked(command[1:], stdout, stderr, os.environ, None, stdin)
        self.stdin = os.fdopen(said, "wb", buffering=0)
        self.stdout = os.fdopen(answered, "rb", buffering=0)
        self.wait = self._forked.wait
        self.kill = self._forked.kill
        self.send_signal = self._forked.send_signal

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for its end."""
        self.stdin.close()
        self.stdout.close()
        self.wait()


def start_piped(
    command: Sequence[str], stderr: IO[Any]
) -> Piped | subprocess.Popen[bytes]:
    """Start a command on pipes; a script, a module and a text of this program's are forked."""
    is_python = command[0] == sys.executable and _FORKS_HERE
    if is_python and (
        command[1] != "-c" or command[2].startswith("from mrtr_cassette")
    ):
        return Piped(command, stderr)
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command,
        stdin=pipe,
        stdout=pipe,
        stderr=stderr,
        bufsize=0,
        start_new_session=True,
    )


def _become(
    words: list[str], outputs: dict[int, int], env: dict[str, str], cwd: Path
) -> None:
    """Run a script, a module after `-m` or a text after `-c`, in the process forked for it."""
    global _FORKS_HERE  # noqa: PLW0603  here, pytest is loaded and no test runs
    _FORKS_HERE = False
    for number, descriptor in outputs.items():
        os.dup2(descriptor, number)
        os.close(descriptor)
    if 0 in outputs:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    # A suite that a script runs in the background is started with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    is_module = words[0] == "-m"
    sys.argv = words[is_module:]
    # Python reads these when it starts.
    named = env.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [
        str(cwd if is_module else Path(words[0]).parent),
        *filter(None, named),
    ]
    sys.dont_write_bytecode = bool(env.get("PYTHONDONTWRITEBYTECODE"))
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(words[1], {"__name__": "__main__"})
    elif is_module:
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(words[0], run_name="__main__")
