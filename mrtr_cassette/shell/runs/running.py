"""Running one command of the command line until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from mrtr_cassette.errors import StoppedError
from mrtr_cassette.shell.files.disk import reason_of

URL_VARIABLE = "MRTR_CASSETTE_URL"
_MOST_FILES = 65_536
"""The limit that is requested; a shell's usual 1,024 are enough for 500 clients, with two each."""

T = TypeVar("T")


class CommandEnd(NamedTuple):
    """How a command ended."""

    code: int
    """128 plus its number for a signal; 127 or 126 where it could not be started, as in a shell."""
    has_run: bool = True
    was_stopped: bool = False
    """A signal to this process ended it."""


def allow_many_files() -> None:
    """Raise the limit of open files as far as the system allows, within reason."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    # Some systems refuse the limit that they announce; then it stays as it is.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, on uvloop where that is installed."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    if _has_uvloop():
        with contextlib.suppress(ImportError):
            import uvloop

            factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


def run_until_signal(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, or cancel it where SIGINT or SIGTERM comes.

    Raises:
        StoppedError: one came; what the coroutine had started is stopped.
    """

    async def stoppable() -> T:
        task = asyncio.current_task()
        if task is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await main

    try:
        return run(stoppable())
    except KeyboardInterrupt:
        raise StoppedError(signal.SIGINT) from None
    except asyncio.CancelledError:
        raise StoppedError(signal.SIGTERM) from None


@lru_cache
def _has_uvloop() -> bool:
    # Looking for what is not installed takes longer than starting a loop, so it is done once.
    return find_spec("uvloop") is not None


@asynccontextmanager
async def stop_signals() -> AsyncIterator[asyncio.Queue[signal.Signals]]:
    """Queue SIGINT, SIGTERM and SIGHUP instead of letting them end the process."""
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    with _taking(signals.put_nowait):
        yield signals


@asynccontextmanager
async def told_to_end() -> AsyncIterator[asyncio.Event]:
    """Set an event at SIGINT, SIGTERM and SIGHUP, and ignore them after the block."""
    told = asyncio.Event()
    with _taking(lambda _: told.set()):
        yield told
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def _taking(take: Callable[[signal.Signals], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGINT, signal.SIGTERM]
    # Under `nohup` the end of the terminal is none for the run.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, take, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def run_command(
    command: Sequence[str],
    url: str,
    signals: asyncio.Queue[signal.Signals],
    say: Callable[[str], None],
    grace_s: float = 10.0,
) -> CommandEnd:
    """Run a command with the proxy's URL in its environment, until it ends or a signal comes.

    Args:
        say: takes a line about what goes wrong.
        grace_s: seconds that the command has to end after a signal before it is killed.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command, env={**os.environ, **_no_proxy(url), URL_VARIABLE: url}
        )
    except OSError as error:
        say(f"error: can't run {command[0]!r}: {reason_of(error)}")
        code = 127 if isinstance(error, FileNotFoundError) else 126
        return CommandEnd(code, has_run=False)
    ended = asyncio.ensure_future(process.wait())
    number = await signal_before(ended, signals, None)
    # A terminal has sent its Ctrl-C to the command too, which ends in its own way then.
    if number is signal.SIGINT:
        await signal_before(ended, signals, grace_s)
    for end in (process.terminate, process.kill):
        if not ended.done():
            with contextlib.suppress(ProcessLookupError):
                end()
            await asyncio.wait({ended}, timeout=grace_s)
    code = await ended
    return CommandEnd(128 - code if code < 0 else code, was_stopped=number is not None)


def _no_proxy(url: str) -> dict[str, str]:
    """Return the variables by which a command calls our URL itself, whatever proxy it has."""
    names = ("no_proxy", "NO_PROXY")
    given = [os.environ[name] for name in names if os.environ.get(name)]
    hosts = "*" if "*" in given else ",".join([*dict.fromkeys(given), urlsplit(url).hostname or ""])
    return dict.fromkeys(names, hosts)


async def signal_before(
    ended: asyncio.Future[Any], signals: asyncio.Queue[signal.Signals], seconds: float | None
) -> signal.Signals | None:
    """Wait for a signal, an end or the timeout; return the signal, if any."""
    coming = asyncio.ensure_future(signals.get())
    either: set[asyncio.Future[Any]] = {ended, coming}
    await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    if coming.done():
        return coming.result()
    coming.cancel()
    return None
