"""Running coroutines: to their end, until a signal, or in a thread; and running a command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from functools import partial
from threading import Thread
from typing import Any, Generic, NamedTuple, TypeVar, cast
from urllib.parse import urlsplit

from mrtr_cassette.errors import StoppedError, UsageError
from mrtr_cassette.shell.files.disk import UnfrozenLoop, system_reason

URL_VARIABLE = "MRTR_CASSETTE_URL"
SERVE_VARIABLE = "MRTR_CASSETTE_SERVE"
"""Has the URL of a process that serves plays."""

FOLDER_VARIABLE = "MRTR_CASSETTE_FOLDER"
"""Has the folder to which the names of these plays' files are relative."""

MISSES_TOLD_VARIABLE = "MRTR_CASSETTE_MISSES_TOLD"
"""Set to the proxy's URL where misses are on the terminal of the command already."""

_NO_PROXY = ("no_proxy", "NO_PROXY")

T = TypeVar("T")


class CommandEnd(NamedTuple):
    """How a command ended."""

    exit_code: int
    """128 plus its number for a signal; 127 or 126 where it could not be started, as in a shell."""

    has_run: bool = True
    was_stopped: bool = False
    """A signal to this process ended it."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, on uvloop where that is installed.

    Raises:
        UsageError: this thread runs a loop already.
    """
    if _is_loop_running():
        main.close()
        problem = (
            "an event loop runs in this thread already, as where gevent has made greenlets of all "
            "threads: a recorder, an application and a call need one each"
        )
        hint = (
            "start the server by a command and use a client without asyncio, or leave threads "
            "alone with gevent.monkey.patch_all(thread=False)"
        )
        raise UsageError(problem, hint=hint)

    factory: Callable[[], asyncio.AbstractEventLoop] = UnfrozenLoop
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop

    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


def _is_loop_running() -> bool:
    """Tell whether an asyncio event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False

    return True


def run_until_signal(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, or cancel it at the first SIGINT, SIGTERM or SIGHUP.

    Raises:
        StoppedError: one came; what the coroutine had started is stopped.
    """
    return run(_until_signal(main))


async def _until_signal(main: Coroutine[Any, Any, T]) -> T:
    """Return a coroutine's result; a signal cancels it, and is raised if no result comes."""
    main_task = asyncio.ensure_future(main)
    async with stop_signals() as signals:
        next_signal = asyncio.ensure_future(signals.get())
        awaited_futures: set[asyncio.Future[Any]] = {main_task, next_signal}
        await asyncio.wait(awaited_futures, return_when=asyncio.FIRST_COMPLETED)
        if not next_signal.done():
            next_signal.cancel()
            return await main_task

        # Further signals don't break off what ends the processes that it has started.
        main_task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            return await main_task

    _ignore_signals()
    raise StoppedError(next_signal.result())


@asynccontextmanager
async def stop_signals() -> AsyncIterator[asyncio.Queue[signal.Signals]]:
    """Queue SIGINT, SIGTERM and SIGHUP instead of letting them end the process."""
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    signal_numbers = [signal.SIGINT, signal.SIGTERM]
    # Under `nohup` the end of the terminal is none for the run.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal_numbers.append(signal.SIGHUP)

    for signal_number in signal_numbers:
        loop.add_signal_handler(signal_number, signals.put_nowait, signal_number)

    try:
        yield signals
    finally:
        for signal_number in signal_numbers:
            loop.remove_signal_handler(signal_number)


@contextmanager
def waiting_for_input(file: int) -> Iterator[Callable[[], None]]:
    """Give a function that blocks the event loop until a file can be read.

    Raises:
        StoppedError: SIGINT, SIGTERM or SIGHUP came; the function raises it, or the block's end.
    """
    signal_reader, signal_writer = socket.socketpair()
    signal_reader.setblocking(False)
    signal_writer.setblocking(False)

    def raise_if_signalled() -> None:
        with contextlib.suppress(BlockingIOError):
            signal_number = signal_reader.recv(1)[0]
            raise StoppedError(signal.Signals(signal_number))

    def wait_for_input() -> None:
        select.select([file, signal_reader.fileno()], [], [])
        # A signal counts even if input came with it.
        raise_if_signalled()

    with signal_reader, signal_writer:
        # Python writes the numbers of signals there, and not to the loop.
        earlier_wakeup_fd = signal.set_wakeup_fd(signal_writer.fileno())
        try:
            yield wait_for_input
        finally:
            signal.set_wakeup_fd(earlier_wakeup_fd)

        raise_if_signalled()


@asynccontextmanager
async def catching_end_signals() -> AsyncIterator[asyncio.Event]:
    """Set an event at SIGINT, SIGTERM and SIGHUP, and ignore them after the block."""
    end_requested = asyncio.Event()
    async with stop_signals() as signals:
        next_signal = asyncio.ensure_future(signals.get())
        next_signal.add_done_callback(lambda _: end_requested.set())
        try:
            yield end_requested
        finally:
            next_signal.cancel()

    _ignore_signals()


def _ignore_signals() -> None:
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_number, signal.SIG_IGN)


def _without_proxy(url: str) -> dict[str, str]:
    """Return the variables that make clients call a URL without a proxy of the environment."""
    no_proxy_lists = [os.environ[name] for name in _NO_PROXY if os.environ.get(name)]
    hosts = "*"
    if "*" not in no_proxy_lists:
        hosts = ",".join([*dict.fromkeys(no_proxy_lists), urlsplit(url).hostname or ""])

    return dict.fromkeys(_NO_PROXY, hosts)


@contextmanager
def reached_without_proxy(url: str) -> Iterator[None]:
    """Let this process reach a URL without a proxy until the block ends."""
    earlier_values = {name: os.environ.get(name) for name in _NO_PROXY}
    os.environ.update(_without_proxy(url))
    try:
        yield
    finally:
        for name, value in earlier_values.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


async def run_command(
    command: Sequence[str],
    url: str,
    signals: asyncio.Queue[signal.Signals],
    say: Callable[[str], None],
    grace_s: float = 10.0,
    *,
    folder: str | None = None,
    tells_misses: bool = False,
) -> CommandEnd:
    """Run a command with a URL in its environment, until it ends or a signal comes.

    Args:
        say: takes a line about what goes wrong.
        folder: the folder whose plays are served at the URL; None: the URL is a proxy's.
        tells_misses: misses are told to who reads what the command writes.
        grace_s: seconds that the command has to end after a signal before it is killed.
    """
    environment = {**os.environ, **_without_proxy(url)}
    if folder is None:
        environment[URL_VARIABLE] = url
    else:
        environment[SERVE_VARIABLE] = url
        environment[FOLDER_VARIABLE] = folder

    environment[MISSES_TOLD_VARIABLE] = url if tells_misses else ""
    try:
        process = await asyncio.create_subprocess_exec(*command, env=environment)
    except OSError as error:
        say(f"error: can't run {command[0]!r}: {system_reason(error)}")
        exit_code = 127 if isinstance(error, FileNotFoundError) else 126
        return CommandEnd(exit_code, has_run=False)

    exit_future = asyncio.ensure_future(process.wait())
    signal_number = None
    # A terminal has sent its Ctrl-C to the command too, which ends in its own way then.
    for wait_s in (None, grace_s):
        coming_signal = asyncio.ensure_future(signals.get())
        awaited_futures: set[asyncio.Future[Any]] = {exit_future, coming_signal}
        await asyncio.wait(
            awaited_futures, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
        )
        if coming_signal.done():
            signal_number = coming_signal.result()

        coming_signal.cancel()
        if signal_number is not signal.SIGINT:
            break

    for end_process in (process.terminate, process.kill):
        if not exit_future.done():
            with contextlib.suppress(ProcessLookupError):
                end_process()

            await asyncio.wait({exit_future}, timeout=grace_s)

    exit_code = await exit_future
    if exit_code < 0:
        # A signal ended it.
        exit_code = 128 - exit_code

    return CommandEnd(exit_code, was_stopped=signal_number is not None)


# In a thread


def result_in_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a loop of its own, whatever runs in this thread; Ctrl-C cancels it."""
    try:
        with in_thread(_running_loop_cleaned_up()) as loop:
            return _result_of(asyncio.run_coroutine_threadsafe(coroutine, loop))
    except UsageError:
        # It may never have begun.
        coroutine.close()
        raise


@asynccontextmanager
async def _running_loop_cleaned_up() -> AsyncIterator[asyncio.AbstractEventLoop]:
    """Give the running loop, at whose end all that still runs in it is cancelled."""
    yield asyncio.get_running_loop()


_EnteredFuture = Future[tuple[T, Callable[[], object]]]
"""The value of a context manager, and the function that has it left."""


@contextmanager
def in_thread(manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enter and leave an async context manager in an event loop in a thread of its own."""
    entered_future: _EnteredFuture[T] = Future()
    exit_future: Future[None] = Future()

    def enter_and_leave() -> None:
        """Run the context manager in the thread; errors go to one of the futures."""
        try:
            run(_stay_until_left(manager, entered_future))
        except BaseException as error:  # noqa: BLE001  whatever it is, it is the caller's
            if entered_future.done():
                exit_future.set_exception(error)
            else:
                entered_future.set_exception(error)
        else:
            exit_future.set_result(None)

    # A program that ends without leaving must not hang; what was recorded is in the journal.
    thread = Thread(target=enter_and_leave, name="mrtr-cassette", daemon=True)
    try:
        thread.start()
        entered_value, leave_manager = _result_of(entered_future)
    except KeyboardInterrupt:
        # As soon as it is entered, it is left.
        entered_future.add_done_callback(_leave_abandoned)
        raise

    try:
        yield entered_value
    finally:
        leave_manager()
        _result_of(exit_future)


class LoopOfThreads:
    """An event loop in which other threads enter and leave async context managers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._entering_tasks: set[asyncio.Task[None]] = set()
        self._is_given_up = False

    @contextmanager
    def entering(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter and leave a context manager; the calling thread waits for both.

        Raises:
            CancelledError: it was given up before it was entered.
        """
        entered_future: _EnteredFuture[T] = Future()
        stay = self._enter_and_stay(manager, entered_future)
        stay_future = asyncio.run_coroutine_threadsafe(stay, self._loop)

        def fail_to_enter(stay_future: Future[None]) -> None:
            if entered_future.done():
                return

            if stay_future.cancelled():
                entered_future.cancel()
            else:
                entered_future.set_exception(stay_future.exception())

        stay_future.add_done_callback(fail_to_enter)
        entered_value, leave_manager = entered_future.result()
        try:
            yield entered_value
        finally:
            leave_manager()
            stay_future.result()

    def give_up_entering(self) -> None:
        """Cancel what is not entered yet, in the loop's own thread, and enter nothing more."""
        self._is_given_up = True
        for task in self._entering_tasks:
            task.cancel()

    async def _enter_and_stay(
        self, manager: AbstractAsyncContextManager[T], entered: _EnteredFuture[T]
    ) -> None:
        """Enter a context manager unless that is given up, and leave it when that is wanted."""
        if self._is_given_up:
            raise asyncio.CancelledError

        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._entering_tasks.add(task)
        task.add_done_callback(self._entering_tasks.discard)
        entered.add_done_callback(lambda _: self._entering_tasks.discard(task))
        await _stay_until_left(manager, entered)


async def _stay_until_left(
    manager: AbstractAsyncContextManager[T], entered: _EnteredFuture[T]
) -> None:
    """Enter an async context manager, and leave it when that is wanted."""
    leave_event = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with manager as value:
        entered.set_result((value, partial(loop.call_soon_threadsafe, leave_event.set)))
        await leave_event.wait()


def _leave_abandoned(entered: Future[tuple[T, Callable[[], object]]]) -> None:
    """Leave a context manager whose caller was interrupted before it was entered."""
    if entered.exception() is None:
        _, leave = entered.result()
        leave()


def _result_of(future: Future[T]) -> T:
    """Wait for a future in such a way that Ctrl-C always ends the wait."""
    # A signal that comes just before a wait does not end it, but is seen before the next one.
    while not wait([future], timeout=0.5).done:
        pass

    return future.result()


class Proxy(Generic[T]):
    """A proxy that runs while a `with` or an `async with` block does.

    With `with` it runs in a thread of its own, so it serves any caller: plain code, asyncio,
    trio, and clients in other processes. With `async with` it runs in the caller's asyncio loop,
    which must not be blocked meanwhile.

    `make_block_value` makes what the block gets of what is opened; `check` raises what is wrong
    with a run whose block ended well.
    """

    def __init__(
        self,
        open_proxy: Callable[[], AbstractAsyncContextManager[Any]],
        make_block_value: Callable[[Any], T],
        check: Callable[[T], None],
    ) -> None:
        self._open_manager = open_proxy
        self._make_block_value = make_block_value
        self._check_value = check
        self._block_value: T | None = None
        self._running_manager: Any = None
        """The context manager, once it is entered."""

    def __enter__(self) -> T:
        """Start the proxy in a thread of its own."""
        self._running_manager = in_thread(self._open_manager())
        return self._keep_entered_value(self._running_manager.__enter__())

    def __exit__(self, *raised: object) -> None:
        """Stop the proxy, and wait until it has stopped."""
        self._running_manager.__exit__(*raised)
        self._check_after_block(raised[1])

    async def __aenter__(self) -> T:
        """Start the proxy in the running event loop."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            problem = (
                "`async with` needs asyncio, and its event loop is not running here"
            )
            hint = "use `with`, which works anywhere"
            raise UsageError(problem, hint=hint) from None

        self._running_manager = self._open_manager()
        return self._keep_entered_value(await self._running_manager.__aenter__())

    async def __aexit__(self, *raised: object) -> None:
        """Stop the proxy."""
        await self._running_manager.__aexit__(*raised)
        self._check_after_block(raised[1])

    def _keep_entered_value(self, value: Any) -> T:
        """Keep and return the value that the block gets."""
        self._block_value = self._make_block_value(value)
        return self._block_value

    def _check_after_block(self, error: object) -> None:
        """Check the run if its block ended well."""
        # An exception of the block has the first word; an exit with success is none.
        is_success = error is None or (isinstance(error, SystemExit) and not error.code)
        if is_success and self._block_value is not None:
            self._check_value(self._block_value)
