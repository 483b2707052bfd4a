"""Lines to and from a pipe, and the client on our own pipes."""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Semaphore, Thread
from typing import Any, Final

from mrtr_cassette.core.cassette.transports import FIRST_SESSION
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.wire.http import (
    NO_STATUS,
    Headers,
    LineFramer,
    PipeRead,
    Request,
    channel_request,
    line_request,
    opens_channel,
)
from mrtr_cassette.shell.http.transport import Handler

_READ_AT_ONCE: Final = 64 * 1024
_MOST_UNTAKEN: Final = 16
"""Reads that wait to be taken before whoever writes to the pipe has to wait."""

_MOST_WAITING: Final = 1024 * 1024
"""Bytes that wait to be written before `room` has to be waited for."""

STDIN: Final = 0
STDOUT: Final = 1

# Threads read and write: what stands behind a descriptor may be a file, a terminal or a pipe that
# others use too, so it must not become non-blocking.


async def pipe_reads(source: int, longest_line: int) -> AsyncIterator[PipeRead]:
    """Yield what each read of a pipe brings, in lines, until the pipe ends."""
    loop = asyncio.get_running_loop()
    arrived_reads: asyncio.Queue[PipeRead | None] = asyncio.Queue()
    free_slots = Semaphore(_MOST_UNTAKEN)
    reader_has_left = False
    # Whoever leaves may close the descriptor, whose number then leads to another file.
    pipe = os.fdopen(os.dup(source), "rb", buffering=0)

    def read_pipe() -> None:
        """Read the pipe in a thread, until it ends or its lines are no longer taken."""
        framer = LineFramer(longest_line)
        # A loop that has been closed takes nothing any more.
        with pipe, suppress(RuntimeError):
            # An error is the end as well.
            with suppress(OSError):
                while (chunk := pipe.read(_READ_AT_ONCE)) and not reader_has_left:
                    free_slots.acquire()
                    loop.call_soon_threadsafe(
                        arrived_reads.put_nowait, framer.feed(chunk)
                    )

            loop.call_soon_threadsafe(arrived_reads.put_nowait, framer.finish())
            loop.call_soon_threadsafe(arrived_reads.put_nowait, None)

    Thread(target=read_pipe, daemon=True).start()
    try:
        while (read := await arrived_reads.get()) is not None:
            yield read
            free_slots.release()
    finally:
        reader_has_left = True
        free_slots.release()


class LineWriter:
    """Writes to a pipe, in order; `on_gone` is called when it has no reader any more."""

    def __init__(
        self, descriptor: int, on_gone: Callable[[], None] = lambda: None
    ) -> None:
        """Start the thread that writes to a descriptor."""
        self.descriptor = descriptor
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._queued_bytes: SimpleQueue[bytes | None] = SimpleQueue()
        self._waiting_count = 0
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_finished = asyncio.Event()
        Thread(target=self._write_queued_bytes, daemon=True).start()

    def write(self, raw: bytes) -> None:
        """Write bytes, at once if the pipe is ready for all of them, or else by the thread."""
        if not self._waiting_count and len(raw) <= select.PIPE_BUF:
            poller = select.poll()
            poller.register(self.descriptor, select.POLLOUT)
            # A pipe that is ready takes so many bytes without waiting.
            is_ready = poller.poll(0) == [(self.descriptor, select.POLLOUT)]
            if is_ready and _write_all(self.descriptor, raw):
                return

        self._waiting_count += len(raw)
        self._queued_bytes.put(raw)
        if self._waiting_count > _MOST_WAITING:
            self._has_room.clear()

    async def wait_for_room(self) -> None:
        """Wait until fewer bytes wait to be written."""
        await self._has_room.wait()

    async def finish(self, seconds: float | None = None) -> None:
        """Wait up to so many seconds until all bytes are written, after which the thread ends."""
        self._queued_bytes.put(None)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_finished.wait()

    def close(self) -> None:
        """Close the pipe, even while the thread writes; the descriptor then leads nowhere."""
        with suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.descriptor, inheritable=False)
            os.close(nowhere)

    def _write_queued_bytes(self) -> None:
        """Write the queued bytes until `finish` is called; the first failure calls `on_gone`."""
        has_reader = True
        with suppress(RuntimeError):
            while (raw := self._queued_bytes.get()) is not None:
                if has_reader and not _write_all(self.descriptor, raw):
                    has_reader = False
                    self._loop.call_soon_threadsafe(self._on_gone)

                self._loop.call_soon_threadsafe(self._count_written, len(raw))

            self._loop.call_soon_threadsafe(self._is_finished.set)

    def _count_written(self, size: int) -> None:
        """Count bytes as written, and end the wait for room if few enough are left."""
        self._waiting_count -= size
        if self._waiting_count <= _MOST_WAITING:
            self._has_room.set()


def _write_all(descriptor: int, raw: bytes) -> bool:
    """Write all bytes; return whether the pipe still has a reader."""
    unwritten = memoryview(raw)
    try:
        while unwritten:
            unwritten = unwritten[os.write(descriptor, unwritten) :]
    except OSError:
        return False

    return True


# A client on our own pipes, to which a handler answers as to one over HTTP

_PAUSE_BEFORE_RESPONSE_S: Final = 0.005
"""Seconds between a notification of a call and its response.

The TypeScript SDK's client drops notifications that it reads together with the response.
"""

LAST_RESPONSES_S: Final = 0.3
"""Seconds after the client's end for responses that are still under way."""


class PipeDownstream:
    """A client on a pipe, to which one request is answered; it gets nothing but messages."""

    def __init__(
        self, request: Request, writer: LineWriter, on_end: Callable[[], None]
    ) -> None:
        """Answer a request by a writer; `on_end` is called when the recorded server ended."""
        self._writer = writer
        self._on_end = on_end
        self._is_channel = opens_channel(request)
        self._has_sent_lines = False
        message = read_call(request).message
        self._expects_response = message is not None and message.kind is Kind.REQUEST

    def begin_response(
        self, status: int, headers: Headers, reason: str | None = None
    ) -> None:
        """Do nothing: there is no head."""

    async def send_chunk(self, chunk: bytes = b"", *, is_last: bool = False) -> None:
        """Write lines."""
        if chunk:
            if is_last and self._has_sent_lines:
                await asyncio.sleep(_PAUSE_BEFORE_RESPONSE_S)

            self._has_sent_lines = True
            self._writer.write(chunk)
            await self._writer.wait_for_room()

        if is_last and self._is_channel:
            self._on_end()

    async def send_response(self, status: int, _headers: Headers, body: bytes) -> None:
        """Write recorded lines, or our own response to a request."""
        if status == NO_STATUS:
            await self.send_chunk(body, is_last=True)
        elif self._expects_response and body:
            self._writer.write(body + b"\n")

    def break_off(self) -> None:
        """End as the recorded server did."""
        self._on_end()


class PipedClient:
    """One client on a pipe: its lines are requests, which a handler answers."""

    def __init__(self, handler: Handler, longest_line: int) -> None:
        self._handler = handler
        self._longest_line = longest_line
        self._listening_task: asyncio.Task[None] | None = None
        self._server_has_ended = asyncio.Event()
        """Set when the recorded server has ended."""
        self._client_has_ended = asyncio.Event()
        """Set when the client has ended, or reads no more."""
        self._writer = LineWriter(STDOUT, self._client_has_ended.set)
        self._answering_tasks: set[asyncio.Task[None]] = set()

    def pass_on_unsolicited(self, handler: Handler | None = None) -> None:
        """Pass on unsolicited messages of the server."""
        self._listening_task = self._start_answering(
            channel_request(FIRST_SESSION), handler
        )

    async def answer_until_end(
        self, end_requested: asyncio.Event, last_responses_s: float = LAST_RESPONSES_S
    ) -> None:
        """Answer until the client ends, the server does, or this process is told to end.

        Responses under way have `last_responses_s` seconds after the client's end.
        """
        reading_task = asyncio.ensure_future(self._answer_lines())
        events = (self._client_has_ended, self._server_has_ended, end_requested)
        ending_futures: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(event.wait()) for event in events
        ]
        await asyncio.wait(ending_futures, return_when=asyncio.FIRST_COMPLETED)
        remaining_tasks = self._answering_tasks - {self._listening_task}
        if remaining_tasks and self._client_has_ended.is_set():
            ending_futures.append(
                asyncio.gather(*remaining_tasks, return_exceptions=True)
            )
            await asyncio.wait(
                ending_futures[-2:],
                timeout=last_responses_s,
                return_when=asyncio.FIRST_COMPLETED,
            )

        tasks_under_way = (reading_task, *ending_futures, *self._answering_tasks)
        for task in tasks_under_way:
            task.cancel()

        await asyncio.gather(*tasks_under_way, return_exceptions=True)
        await self._writer.finish(LAST_RESPONSES_S)

    async def _answer_lines(self) -> None:
        """Have the lines on our stdin answered, and note when the client has ended."""
        async for read in pipe_reads(STDIN, self._longest_line):
            for line in read.lines:
                self._start_answering(line_request(line.raw, FIRST_SESSION))

        self._client_has_ended.set()

    def _start_answering(
        self, request: Request, handler: Handler | None = None
    ) -> asyncio.Task[None]:
        """Start the task in which a handler answers a request, and return it."""
        downstream = PipeDownstream(request, self._writer, self._server_has_ended.set)
        request_handler = handler or self._handler

        async def answer_request() -> None:
            # A client that is gone needs no answer.
            with suppress(ConnectionError):
                await request_handler(request, downstream)

        task = asyncio.ensure_future(answer_request())
        self._answering_tasks.add(task)
        task.add_done_callback(self._answering_tasks.discard)

        return task
