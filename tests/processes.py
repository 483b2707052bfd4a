"""Real processes that tests wait for: peers on the SDKs, the program itself, and their files.

A process counts as started when it has printed its `listening on` line, and as stopped when it has
ended and its port refuses connections, so nobody has to sleep.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Literal
from urllib.parse import urlsplit

from forked import Process, start
from patience import HANGS_S

TESTS = Path(__file__).parent
PEERS = TESTS / "peers"
CASSETTES = TESTS.parent / "cassettes"
TRANSCRIPTS = TESTS / "data" / "transcripts"
PROGRAM = (sys.executable, "-m", "mrtr_cassette")
_MEASURED_BY = ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START")
_UNMEASURED = [
    word for name in _MEASURED_BY if name in os.environ for word in ("-u", name)
]
PYTHON = (*(("env", *_UNMEASURED) if _UNMEASURED else ()), sys.executable)
"""Runs what has nothing of the program in it, and is not measured: that would take up to twice as
long."""

_ANNOUNCEMENT = "listening on "

Side = Literal["python", "typescript"]
SIDES: tuple[Side, ...] = ("python", "typescript")


class ProcessError(Exception):
    """A process that a test needs can't be had."""


@dataclass(frozen=True, slots=True)
class Run:
    """A process that ran to its end."""

    code: int
    stdout: str
    stderr: str


@dataclass(slots=True)
class Listening:
    """A process that listens at `url`; `code` and `stderr` are there once it has been stopped."""

    url: str
    pid: int
    code: int | None = None
    stderr: str = ""


StartServer = Callable[[Side, int], AbstractContextManager[Listening]]
RunClient = Callable[..., Run]


def peer(role: Literal["client", "server"], side: Side) -> tuple[str, ...]:
    """Return the command of a peer."""
    if side == "python":
        return *PYTHON, str(PEERS / f"{role}_python.py")
    return "node", str(PEERS / f"{role}_typescript.mjs")


def install_node_packages(directory: Path = PEERS) -> None:
    """Install what the TypeScript peers of a directory need, unless its lock file's packages are there."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            raise ProcessError(
                f"{tool} is not on the PATH; the TypeScript SDK's tests need it"
            )

    installed = directory / "node_modules" / ".package-lock.json"
    wanted = directory / "package-lock.json"
    with wanted.open("rb") as claim:
        # Of several workers one installs, and the others wait for it.
        fcntl.flock(claim, fcntl.LOCK_EX)
        if not installed.exists() or installed.stat().st_mtime < wanted.stat().st_mtime:
            _install(directory)
            installed.touch()


def _install(directory: Path) -> None:
    npm = subprocess.run(
        ["npm", "ci", "--no-audit", "--no-fund"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    if npm.returncode:
        raise ProcessError(
            f"npm ci in {directory} failed with {npm.returncode}:\n{npm.stderr}"
        )


def install_python_packages(wanted: Path, place: Path) -> None:
    """Make an environment of the packages in a file, unless it has them already."""
    installed = place / ".installed"
    with wanted.open("rb") as claim:
        # Of several workers one installs, and the others wait for it.
        fcntl.flock(claim, fcntl.LOCK_EX)
        if installed.exists() and installed.stat().st_mtime >= wanted.stat().st_mtime:
            return

        venv.create(place, clear=True, symlinks=True)
        python = str(place / "bin/python")
        installer = [sys.executable, "-m", "pip", "--python", python, "install"]
        uv = shutil.which("uv", path=Path(sys.executable).parent)
        if uv is not None:
            # It takes a tenth of the time.
            installer = [uv, "pip", "install", "--native-tls", "--compile-bytecode"]
            installer += ["--python", python]

        done = subprocess.run(
            [*installer, "--quiet", "--no-deps", "--requirement", str(wanted)],
            capture_output=True,
            text=True,
            check=False,
        )

        if done.returncode:
            raise ProcessError(
                f"{wanted.name}: pip failed with {done.returncode}:\n{done.stderr}"
            )

        installed.touch()


def run(
    command: Sequence[str],
    environment: Mapping[str, str] = MappingProxyType({}),
    cwd: Path | None = None,
) -> Run:
    """Run a command to its end, with these variables besides ours, and in our folder or another."""
    (ended,) = run_all([command], environment, cwd)
    return ended


def run_at(proxy: Sequence[str], client: Sequence[str]) -> Run:
    """Run a client with a proxy to its end, as `PROXY -- CLIENT` does, but for what starts it."""
    with listening(proxy) as listener:
        ended = run(client, {"MRTR_CASSETTE_URL": listener.url})

    return Run(
        ended.code or listener.code or 0, ended.stdout, ended.stderr + listener.stderr
    )


def run_all(
    commands: Sequence[Sequence[str]],
    environment: Mapping[str, str] = MappingProxyType({}),
    cwd: Path | None = None,
) -> list[Run]:
    """Run several commands at once, each to its end."""
    with ExitStack() as stack:
        outputs = [
            [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2)]
            for _ in commands
        ]

        started = [
            start(command, *files, {**os.environ, **environment}, cwd)
            for command, files in zip(commands, outputs, strict=True)
        ]

        codes = [_code(process) for process in started]

        return [
            Run(code, *map(_text, files))
            for code, files in zip(codes, outputs, strict=True)
        ]


def _code(process: Process) -> int:
    """Return the exit code of a process, which is killed if it does not end."""
    try:
        return process.wait(timeout=HANGS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def _text(file: IO[str]) -> str:
    """Return all that was written to a file."""
    file.seek(0)
    return file.read()


@contextmanager
def listening(
    command: Sequence[str],
    stop: signal.Signals = signal.SIGTERM,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Listening]:
    """Run a command that listens until the block ends, then stop it with a signal.

    Args:
        environment: variables that it has besides ours.

    Raises:
        ProcessError: it ended before it listened, or its port is open after its end.
    """
    reading, writing = os.pipe()
    with tempfile.TemporaryFile("w+") as stderr, os.fdopen(reading) as stdout:
        with os.fdopen(writing, "w") as announced:
            process = start(command, announced, stderr, {**os.environ, **environment})

        line = stdout.readline()
        started = Listening(line.removeprefix(_ANNOUNCEMENT).strip(), process.pid)
        try:
            if not line.startswith(_ANNOUNCEMENT):
                process.kill()
                _code(process)
                raise ProcessError(
                    f"{' '.join(command)} does not listen: {line}{_text(stderr)}"
                )

            yield started
        finally:
            process.send_signal(stop)
            started.code = _code(process)
            started.stderr = _text(stderr)

    if not is_refused(started.url):
        raise ProcessError(
            f"{' '.join(command)} has ended, and {started.url} is still open"
        )


def is_refused(url: str) -> bool:
    """Tell whether nobody listens at a URL."""
    address = urlsplit(url)
    try:
        socket.create_connection((address.hostname or "", address.port or 0)).close()
    except ConnectionRefusedError:
        return True

    return False


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a process that says nothing of its own listens at a port."""
    while is_refused(f"http://127.0.0.1:{port}"):
        if process.poll() is not None:
            raise ProcessError(f"{process.args!r} ended with {process.returncode}")

        time.sleep(0.05)


def free_port(*hosts: str) -> int:
    """Return a port that is free at this host, or all of some, and that no connection gets by itself."""
    while True:
        port = random.randrange(10_000, 30_000)
        with ExitStack() as held:
            try:
                for host in hosts or ("127.0.0.1",):
                    held.enter_context(socket.create_server((host, port)))
            except OSError:
                continue

        return port


def record_command(upstream: str, output: Path, *options: str) -> tuple[str, ...]:
    """Return the command that records an upstream; `options` may end in `-- COMMAND`."""
    wanted = ("--upstream", upstream, "--output", str(output), "--port", "0")
    return (*PROGRAM, "record", *wanted, *options)


def replay_command(cassette: Path, *options: str) -> tuple[str, ...]:
    """Return the command that replays a cassette; `options` may end in `-- COMMAND`."""
    return (*PROGRAM, "replay", str(cassette), "--port", "0", *options)


def lasting_part(cassette: Path) -> bytes:
    """Return a cassette up to its recording block, which is all that may differ between runs."""
    lasting, block, _ = cassette.read_bytes().partition(b'\n  "recording": {\n')
    if not block:
        raise ValueError(f"{cassette} has no recording block")
    return lasting
