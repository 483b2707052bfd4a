"""Python programs forked off a process that has imported the SDK and the program already.

Each is a process like others, with an id, signals, output and an exit code of its own; only its
imports, which take most of a second, were made before. What it starts itself is not forked, unless
its variables have `FORKS_ALL`; what a test starts by itself is, where the fixture `forks_programs` is.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import multiprocessing
import os
import runpy
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import thread as pools
from dataclasses import dataclass
from functools import partial
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
        "mrtr_cassette.cli.serve",
        "mrtr_cassette.core.report.coverage",
        "mrtr_cassette.shell.runs.client_starts",
        "mrtr_cassette.shell.runs.pipe_recording",
        "mrtr_cassette.testing.suite_replay",
        "encodings.idna",
        "httpcore2",
        "pytest",
    ]
)
FORKS_HERE = "pytest" in sys.modules and not any(
    name.startswith("COVERAGE_") for name in os.environ
)
"""Tests fork; what the benchmark or coverage measures is started as users start it."""

_FINDERS = [
    finder
    for finder in sys.meta_path
    if not type(finder).__module__.startswith("_pytest.")
]
"""What finds modules where no test runs; pytest's own comes before these in a suite."""

_UNSEEN = (
    DeprecationWarning,
    PendingDeprecationWarning,
    ImportWarning,
    ResourceWarning,
)
"""The warnings that Python shows only if it is told to."""

FORKS_ALL = "MRTR_TEST_FORKS_ALL"
MODULES = {
    "python": (),
    "pytest": ("-m", "pytest"),
    "mrtr-cassette": ("-m", "mrtr_cassette"),
}
"""Programs beside this Python, and how it runs them."""


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
    stdin: IO[Any] | None = None,
) -> Process:
    """Start a command; a Python program is forked."""
    if command[0] == sys.executable and FORKS_HERE:
        return _Forked(command[1:], stdout, stderr, env, cwd, stdin)
    return subprocess.Popen(
        command, stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd, text=True
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
    if not FORKS_HERE:
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
    is_python = command[0] == sys.executable and FORKS_HERE
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
    """Run a program in the process forked for it."""
    global FORKS_HERE  # noqa: PLW0603  here, pytest is loaded and no test runs
    FORKS_HERE = False
    # The collector would copy what both processes have, page by page.
    gc.freeze()
    for number, descriptor in outputs.items():
        os.dup2(descriptor, number)
        os.close(descriptor)

    if 0 in outputs:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115

    # A suite that a script runs in the background is started with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd)
    if FORKS_ALL in env:
        subprocess.Popen = ForkedPopen

    _run(words, env)


class ForkedPopen(subprocess.Popen[Any]):
    """A process that is forked off the one that starts it, where it is a Python program too."""

    def __init__(self, args: Any, *more: Any, **options: Any) -> None:
        env = {**(options.get("env") or os.environ)}
        words = None if isinstance(args, str) else _words_in_python(args, env)
        if words is not None:
            options["preexec_fn"] = partial(_begin, words, env)

        super().__init__(args, *more, **options)


def _words_in_python(command: Sequence[str], env: dict[str, str]) -> list[str] | None:
    """Return what Python is to run for a script, a module or one of the programs; None for others."""
    path = shutil.which(command[0], path=env.get("PATH"))
    program = Path(path or "")
    if program.parent != Path(sys.executable).parent or program.name not in MODULES:
        return None

    words = [*MODULES[program.name], *map(str, command[1:])]
    if words[:2] == ["-u", "-c"]:
        # A worker of xdist.
        return words[1:]

    is_run = bool(words) and (words[0] == "-m" or not words[0].startswith("-"))
    return words if is_run else None


def _begin(words: list[str], env: dict[str, str]) -> None:
    """Become a program in place of executing it; nothing of the program before is gone on with."""
    gc.freeze()
    # Its pipes and sockets, and what tells it that the command is executed.
    os.closerange(3, 2**16)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    asyncio.set_event_loop_policy(None)
    _forget_the_test()
    process = multiprocessing.get_context("fork").Process(
        target=contextvars.Context().run, args=(_run_with_input, words, env)
    )
    os._exit(process._bootstrap())


def _forget_the_test() -> None:
    """Leave what pytest has changed where a test starts the program."""
    sys.meta_path[:] = _FINDERS
    sys.unraisablehook = sys.__unraisablehook__
    threading.excepthook = threading.__excepthook__
    # At its end, a thread of a pool that starts the program would wait for itself.
    pools._threads_queues.clear()
    logging.root.handlers.clear()
    logging.root.setLevel(logging.WARNING)
    warnings.resetwarnings()
    for category in _UNSEEN:
        warnings.simplefilter("ignore", category)


def _run_with_input(words: list[str], env: dict[str, str]) -> None:
    """Run with the stdin that the process was started with."""
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    _run(words, env)


def _run(words: list[str], env: dict[str, str]) -> None:
    """Run a script, a module after `-m` or a text after `-c`, here and now."""
    os.environ.clear()
    os.environ.update(env)
    cwd = Path.cwd()
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
        # It may have been imported here in another way than programs are, such as pytest's.
        sys.modules.pop(words[1], None)
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(words[0], run_name="__main__")
