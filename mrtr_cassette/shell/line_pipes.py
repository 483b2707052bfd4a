"""Lines to and from a pipe, for an event loop.

Rule: threads read and write, as what stands behind a descriptor may be anything, and must not
become non-blocking for others.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Final

from mrtr_cassette.core.wire.lines import Line, LineFramer

_READ_AT_ONCE: Final = 64 * 1024
_MOST_WAITING: Final = 1024 * 1024
"""Bytes that wait to be written before whoever writes has to wait too."""


@dataclass(frozen=True, slots=True)
class PipeEnds:
    """The client's side: file descriptors.

    Attributes:
        source: where the client's lines come from.
        target: where they are answered.
    """

    source: int = 0
    target: int = 1


OWN_PIPES: Final = PipeEnds()
"""This process's stdin and stdout."""


def read_some(source: int) -> bytes:
    """Return the next bytes, or none at the end, however it came."""
    try:
        return os.read(source, _READ_AT_ONCE)
    except OSError:
        return b""


def write_all(target: int, raw: bytes) -> bool:
    """Write all bytes; return whether somebody takes them."""
    rest = memoryview(raw)
    try:
        while rest:
            rest = rest[os.write(target, rest) :]
    except OSError:
        return False
    return True


def write_at_once(target: int, raw: bytes) -> bool:
    """Write all bytes if that can't take long; return whether they are written."""
    if len(raw) > select.PIPE_BUF:
        return False
    ready = select.poll()
    ready.register(target, select.POLLOUT)
    # A pipe that is ready takes so many bytes without waiting.
    return ready.poll(0) == [(target, select.POLLOUT)] and write_all(target, raw)


def close_pipe(target: int) -> None:
    """Close what may be written to in another thread: its number stays taken, by nothing."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, target, inheritable=False)
        os.close(nowhere)


def read_lines(source: int, longest: int, take: Callable[[Sequence[Line]], None]) -> None:
    """Hand the lines of a pipe to the running event loop as they come; at the end, none."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        framer = LineFramer(longest)
        # A loop that has been closed takes nothing any more.
        with suppress(RuntimeError):
            while chunk := read_some(source):
                lines = framer.feed(chunk)
                if lines:
                    loop.call_soon_threadsafe(take, lines)
            rest = framer.finish()
            if rest:
                loop.call_soon_threadsafe(take, rest)
            loop.call_soon_threadsafe(take, ())

    Thread(target=read, daemon=True).start()


class LineWriter:
    """Writes to a pipe, in order."""

    def __init__(self, target: int, on_gone: Callable[[], None]) -> None:
        """Begin writing; `on_gone` is called when nobody reads any more."""
        self._target = target
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[bytes | None] = SimpleQueue()
        self._waiting = 0
        self._has_room = asyncio.Event()
        self._thread = Thread(target=self._work, daemon=True)
        self._thread.start()

    async def write(self, raw: bytes) -> None:
        """Have bytes written; wait where too many wait already."""
        self._waiting += len(raw)
        self._queue.put(raw)
        while self._waiting > _MOST_WAITING:
            self._has_room.clear()
            await self._has_room.wait()

    async def finish(self, seconds: float) -> None:
        """Wait, so many seconds at most, until all is written."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join, seconds)

    def _work(self) -> None:
        is_taken = True
        with suppress(RuntimeError):
            while (raw := self._queue.get()) is not None:
                if is_taken and not write_all(self._target, raw):
                    is_taken = False
                    self._loop.call_soon_threadsafe(self._on_gone)
                self._loop.call_soon_threadsafe(self._written, len(raw))

    def _written(self, size: int) -> None:
        self._waiting -= size
        if self._waiting <= _MOST_WAITING:
            self._has_room.set()
