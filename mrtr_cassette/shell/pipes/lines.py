"""Lines to and from a pipe, for an event loop."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Final

from mrtr_cassette.core.wire.http import LineFramer, Read

_READ_AT_ONCE: Final = 64 * 1024
_MOST_UNTAKEN: Final = 16
"""Reads that wait to be taken before whoever writes to the pipe has to wait."""
_MOST_WAITING: Final = 1024 * 1024
"""Bytes that wait to be written before `room` has to be waited for."""
STDIN: Final = 0
STDOUT: Final = 1

# Threads read and write: what stands behind a descriptor may be a file, a terminal or a pipe that
# others use too, so it must not become non-blocking.


async def reads_from(source: int, longest: int) -> AsyncIterator[Read]:
    """Yield what each read of a pipe brings, in lines, until the pipe ends."""
    loop = asyncio.get_running_loop()
    came: asyncio.Queue[Read | None] = asyncio.Queue()
    room = Semaphore(_MOST_UNTAKEN)
    is_left = False

    def read() -> None:
        framer = LineFramer(longest)
        # A loop that has been closed takes nothing any more.
        with suppress(RuntimeError):
            # An error is the end as well.
            with suppress(OSError):
                while (chunk := os.read(source, _READ_AT_ONCE)) and not is_left:
                    room.acquire()
                    loop.call_soon_threadsafe(came.put_nowait, framer.feed(chunk))
            loop.call_soon_threadsafe(came.put_nowait, framer.finish())
            loop.call_soon_threadsafe(came.put_nowait, None)

    Thread(target=read, daemon=True).start()
    try:
        while (brought := await came.get()) is not None:
            yield brought
            room.release()
    finally:
        is_left = True
        room.release()


class LineWriter:
    """Writes to a pipe, in order; `on_gone` is called when it has no reader any more."""

    def __init__(self, target: int, on_gone: Callable[[], None] = lambda: None) -> None:
        self.target = target
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._waiting = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_finished = asyncio.Event()
        Thread(target=self._work, daemon=True).start()

    def write(self, raw: bytes) -> None:
        """Write bytes, at once if the pipe is ready for all of them, or else by the thread."""
        if not self._waiting and len(raw) <= select.PIPE_BUF:
            ready = select.poll()
            ready.register(self.target, select.POLLOUT)
            # A pipe that is ready takes so many bytes without waiting.
            if ready.poll(0) == [(self.target, select.POLLOUT)] and _write_all(self.target, raw):
                return
        self._waiting += len(raw)
        self._queue.put(raw)
        if self._waiting > _MOST_WAITING:
            self._has_room.clear()

    async def room(self) -> None:
        """Wait until fewer bytes wait to be written."""
        await self._has_room.wait()

    async def finish(self, seconds: float | None = None) -> None:
        """Wait up to so many seconds until all bytes are written; later writes are ignored."""
        self._queue.put(None)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_finished.wait()

    def close(self) -> None:
        """Close the pipe, even while the thread writes; the descriptor then leads nowhere."""
        with suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.target, inheritable=False)
            os.close(nowhere)

    def _work(self) -> None:
        is_taken = True
        with suppress(RuntimeError):
            while (raw := self._queue.get()) is not None:
                if is_taken and not _write_all(self.target, raw):
                    is_taken = False
                    self._loop.call_soon_threadsafe(self._on_gone)
                self._loop.call_soon_threadsafe(self._written, len(raw))
            self._loop.call_soon_threadsafe(self._is_finished.set)

    def _written(self, size: int) -> None:
        self._waiting -= size
        if self._waiting <= _MOST_WAITING:
            self._has_room.set()


def _write_all(target: int, raw: bytes) -> bool:
    """Write all bytes; return whether the pipe still has a reader."""
    rest = memoryview(raw)
    try:
        while rest:
            rest = rest[os.write(target, rest) :]
    except OSError:
        return False
    return True
