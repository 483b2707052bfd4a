"""An event loop in a thread of its own, for callers that have none."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from functools import partial
from threading import Thread
from types import TracebackType
from typing import Any, Generic, TypeVar

from mrtr_cassette.errors import UsageError
from mrtr_cassette.shell.runs.running import run

T = TypeVar("T")

Leave = Callable[[], object]

_POLL_S = 0.5
"""Seconds between two checks for a signal."""


def result_in_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns in a loop of its own, whatever runs in this thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


@asynccontextmanager
async def awaited(manager: AbstractContextManager[T]) -> AsyncIterator[T]:
    """Enter and leave a context manager that waits in its own way, while the loop goes on."""
    entering = asyncio.ensure_future(asyncio.to_thread(manager.__enter__))
    try:
        value = await asyncio.shield(entering)
    except asyncio.CancelledError:
        # A thread can't be interrupted; what it starts has to be stopped all the same.
        await entering
        await asyncio.to_thread(manager.__exit__, None, None, None)
        raise
    try:
        yield value
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)


@contextmanager
def in_thread(manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enter and leave an async context manager in an event loop in a thread of its own.

    A forked child has no such thread, and so nothing to leave.
    """
    owner = os.getpid()
    entered: Future[tuple[T, Leave]] = Future()
    left: Future[None] = Future()

    async def stay() -> None:
        leaving = asyncio.Event()
        loop = asyncio.get_running_loop()
        async with manager as value:
            entered.set_result((value, partial(loop.call_soon_threadsafe, leaving.set)))
            await leaving.wait()

    def work() -> None:
        try:
            run(stay())
        except BaseException as error:  # noqa: BLE001  whatever it is, it is the caller's
            (left if entered.done() else entered).set_exception(error)
        else:
            left.set_result(None)

    # A program that ends without leaving must not hang; what was recorded is in the journal.
    thread = Thread(target=work, name="mrtr-cassette", daemon=True)
    try:
        thread.start()
        value, leave = _result_of(entered)
    except KeyboardInterrupt:
        entered.add_done_callback(_leave_at_once)
        raise
    try:
        yield value
    finally:
        if os.getpid() == owner:
            leave()
            _result_of(left)


def _result_of(future: Future[T]) -> T:
    """Wait for a future in such a way that Ctrl-C always ends the wait."""
    # A signal that comes just before a wait does not end it, but is seen before the next one.
    while not wait([future], timeout=_POLL_S).done:
        pass
    return future.result()


def _leave_at_once(entered: Future[tuple[T, Leave]]) -> None:
    if entered.exception() is None:
        entered.result()[1]()


class Proxy(Generic[T]):
    """A proxy that runs while a `with` or an `async with` block does.

    With `with` it runs in a thread of its own, so it serves any caller: plain code, asyncio,
    trio, and clients in other processes. With `async with` it runs in the caller's asyncio loop,
    which must not be blocked meanwhile.
    """

    def __init__(
        self,
        opened: Callable[[], AbstractAsyncContextManager[T]],
        check: Callable[[T], None] = lambda _value: None,
    ) -> None:
        """Prepare the proxy; `check` raises what is wrong with a run whose block ended well."""
        self._opened = opened
        self._check = check
        self._owner = 0
        self._value: T | None = None
        self._in_thread = ExitStack()
        self._in_loop = AsyncExitStack()

    def __enter__(self) -> T:
        """Start the proxy in a thread of its own."""
        self._owner = os.getpid()
        value = self._in_thread.enter_context(in_thread(self._opened()))
        self._value = value
        return value

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the proxy, and wait until it has stopped."""
        self._in_thread.__exit__(kind, error, traceback)
        self._checked(error)

    async def __aenter__(self) -> T:
        """Start the proxy in the running event loop."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError(
                "`async with` needs asyncio, and its event loop is not running here",
                hint="use `with`, which works anywhere",
            ) from None
        self._owner = os.getpid()
        value = await self._in_loop.enter_async_context(self._opened())
        self._value = value
        return value

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the proxy."""
        await self._in_loop.__aexit__(kind, error, traceback)
        self._checked(error)

    def _checked(self, error: BaseException | None) -> None:
        """Check a run that has ended; an exception of its block has the first word.

        An exit with success is none, and a forked child leaves the check to its parent.
        """
        is_success = error is None or (isinstance(error, SystemExit) and not error.code)
        if is_success and self._value is not None and os.getpid() == self._owner:
            self._check(self._value)
