"""Watching what passes, so that it is recorded.

Owns: showing each exchange to the recorder, writing it to the journal when it is due, counting, and
saying what happens.
Does not own: what passes (`relay`), and what the bytes mean (`core.record`).
Rule: a failure in here is said once, and never breaks what passes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mrtr_cassette.core.format.journal import encode_line
from mrtr_cassette.core.protocol.calls import CallKey
from mrtr_cassette.core.protocol.dialect import InputRequired
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.record.sealing import Unread
from mrtr_cassette.core.record.writer import Due, ExchangeWriter
from mrtr_cassette.core.report.events import (
    exchange_line,
    failed_event,
    failed_line,
    pushed_event,
    pushed_line,
    request_event,
    response_event,
    unreachable_event,
    unreachable_line,
    unread_event,
    unread_line,
)
from mrtr_cassette.core.wire.http import End, Headers, Request
from mrtr_cassette.errors import MrtrCassetteError, internal_error
from mrtr_cassette.shell.announcing import Announcer
from mrtr_cassette.shell.clock import Clock
from mrtr_cassette.shell.journal_file import Journal
from mrtr_cassette.shell.record_session import RecordSession
from mrtr_cassette.shell.sealing_process import SealingProcess, is_plain_exchange

OnAsk = Callable[[CallKey, InputRequired], None]


@dataclass(frozen=True, slots=True)
class Watcher:
    """Watches all exchanges of one recording.

    Attributes:
        recorder: what the exchanges are shown to.
        journal: takes what is due on disk.
        session: counts them.
        announcer: says what happens.
        clock: tells the time.
        started: when the recording began, by that clock.
        on_ask: told of each ask of the upstream; None where nobody wants to know.
        sealing_process: works on what is large; None where everything is small.
        under_way: what is being done while the event loop goes on.
        writing: held while a line is written in parts.
        behind: exchanges of which bytes have come that are not in the journal, and since when, by
            `now_ms`.
    """

    recorder: Recorder
    journal: Journal
    session: RecordSession
    announcer: Announcer
    clock: Clock
    started: float
    on_ask: OnAsk | None = None
    sealing_process: SealingProcess | None = None
    under_way: set[asyncio.Task[None]] = field(default_factory=set)
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    behind: dict[WatchedExchange, float] = field(default_factory=dict)
    _warned_of: set[Unread] = field(default_factory=set)

    def now_ms(self) -> float:
        """Milliseconds since the recording began."""
        return (self.clock.now() - self.started) * 1000

    def lag(self) -> tuple[int, float]:
        """Return how many bytes have come and are not in the journal, and for how many seconds."""
        if not self.behind:
            return 0, 0.0
        missing = sum(each.missing for each in self.behind)
        return missing, (self.now_ms() - min(self.behind.values())) / 1000

    def go_on(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do some work that nobody has to wait for before the recording ends."""
        task = asyncio.create_task(work)
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        return task

    @asynccontextmanager
    async def finishing(self) -> AsyncIterator[None]:
        """Wait, when the block ends, for all that is under way, and let go of the process."""
        try:
            yield
        finally:
            while self.under_way:
                await asyncio.wait(self.under_way)
            if self.sealing_process is not None:
                await self.sealing_process.close()

    def unreachable(self, request: Request, problem: str) -> None:
        """Take note that the upstream gave no response; that is no exchange to record."""
        self.session.unreachable += 1
        shown = f"{request.method} {self.recorder.shown_target(request.target)}"
        self.announcer.say(
            partial(unreachable_event, problem), partial(unreachable_line, shown, problem)
        )

    def warn_of(self, observation: Observation, unread: Unread) -> None:
        """Say, once for each reason, that a body can't be read."""
        if unread in self._warned_of:
            return
        self._warned_of.add(unread)
        self.announcer.say(
            partial(unread_event, observation, unread),
            partial(unread_line, observation, unread, self.announcer.terms),
        )

    def failed(self, error: Exception) -> None:
        """Say, once, that the recording is not whole; what passes goes on."""
        if self.session.problem is not None:
            return
        if isinstance(error, MrtrCassetteError):
            problem = error.in_terms(self.announcer.terms)
        elif isinstance(error, OSError):
            problem = f"{self.session.path}: {error.strerror or error}".lower()
        else:
            problem = internal_error(error)
        self.session.problem = problem
        self.announcer.say(partial(failed_event, problem), partial(failed_line, problem))


class WatchedExchange:
    """One exchange, which the recorder sees while it passes.

    What has to be awaited before anything is passed on is returned: work on what is large, which
    the event loop must not stop for. It is done in order, and goes on if nobody waits any more.
    After a failure nothing of the exchange is kept any more.
    """

    def __init__(self, watcher: Watcher, request: Request) -> None:
        """Begin with the request."""
        self._watcher = watcher
        self._writer: ExchangeWriter | None = None
        self._work: asyncio.Task[None] | None = None
        self._size = self._written = 0
        process = watcher.sealing_process
        with self:
            is_large = process is not None and process.is_large_request(request)
            observation = watcher.recorder.request_received(
                request, watcher.now_ms(), is_read_later=is_large
            )
            self._writer = ExchangeWriter(observation)
            if process is not None and is_large:
                self._in_turn(self._read(process, observation))
            else:
                watcher.announcer.say(partial(request_event, observation), None)

    # The recorder is a spectator: whatever error comes up while it is shown something is told.
    # No guard of its own is made for each block, as there are four of them in each exchange.

    def __enter__(self) -> None:
        """Begin to show something to the recorder."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool:
        """Keep an error in here; what passes goes on."""
        if isinstance(error, Exception):
            self._failed(error)
            return True
        return False

    def _failed(self, error: Exception) -> None:
        self._writer = None
        self._caught_up()
        self._watcher.failed(error)

    def forget(self) -> None:
        """Keep nothing of this exchange, because none came about."""
        self._writer = None

    def response_started(self, status: int, headers: Headers) -> None:
        """Show the response's head."""
        writer = self._writer
        if writer is not None:
            with self:
                due = writer.response_started(status, headers, self._watcher.now_ms())
                if due is not None:
                    self._write(due, writer.observation)

    @property
    def missing(self) -> int:
        """Bytes of the response that have come and are not in the journal."""
        return self._size - self._written

    def _caught_up(self) -> None:
        self._written = self._size
        self._watcher.behind.pop(self, None)

    @property
    def called(self) -> str:
        """The JSON-RPC method of the request, where it has been read."""
        return "" if self._writer is None else self._writer.observation.call.method

    @property
    def acknowledges(self) -> bool:
        """Whether the response says no more than that a message has arrived."""
        return self._writer is not None and self._writer.observation.acknowledges

    @property
    def size(self) -> int:
        """Bytes of the response's body so far."""
        return 0 if self._writer is None else self._writer.observation.size

    def response_bytes(self, chunk: bytes) -> Awaitable[None] | None:
        """Show bytes that will be passed on, and write the exchange down if it is due."""
        writer = self._writer
        if writer is None:
            return None
        now = self._watcher.now_ms()
        self._size += len(chunk)
        if self._work is not None or writer.observation.takes_long(chunk):
            self._watcher.behind.setdefault(self, now)
            return self._in_turn(self._take(writer, chunk, now))
        with self:
            due = writer.response_bytes(chunk, now)
            if due is None:
                self._watcher.behind.setdefault(self, now)
            work = None if due is None else self._write(due, writer.observation)
            self._say_pushed(writer.observation)
            return work
        return None

    def response_ended(self, end: End) -> Awaitable[None] | None:
        """Show the end, and write the exchange down if it is due."""
        writer = self._writer
        if writer is None:
            return None
        now = self._watcher.now_ms()
        if self._work is not None:
            return self._in_turn(self._end(writer, end, now))
        with self:
            due = writer.response_ended(end, now)
            work = None if due is None else self._write(due, writer.observation)
            if work is not None:
                return self._in_turn(self._count(writer.observation, end, now))
            self._counted(writer.observation, end, now)
        return None

    def _write(self, due: Due, observation: Observation) -> Awaitable[None] | None:
        """Write an exchange to the journal: at once, or in its turn."""
        watcher = self._watcher
        if watcher.writing.locked() or self._is_large(due):
            watcher.behind.setdefault(self, watcher.now_ms())
            return self._in_turn(self._write_in_turn(due, observation))
        self._write_at_once(due, observation)
        return None

    def _is_large(self, due: Due) -> bool:
        process = self._watcher.sealing_process
        return process is not None and process.is_large(due.seen)

    def _write_at_once(self, due: Due, observation: Observation, *, is_plain: bool = False) -> None:
        watcher = self._watcher
        exchange, ask, unread = watcher.recorder.seal(due.seen, is_plain=is_plain)
        self._sealed(due, observation, ask, unread)
        watcher.journal.append(encode_line(exchange, continues=due.seen.continues))
        self._caught_up()
        if not due.seen.continues:
            watcher.session.written(exchange)

    def _sealed(
        self,
        due: Due,
        observation: Observation,
        ask: InputRequired | None,
        unread: Sequence[Unread],
        key: CallKey | None = None,
    ) -> None:
        """Say what is to be said of an exchange before it is written."""
        watcher = self._watcher
        observation.ask = ask
        if due.is_first and ask is not None and watcher.on_ask is not None:
            watcher.on_ask(key or observation.call.key(), ask)
        for each in unread:
            watcher.warn_of(observation, each)

    def _counted(self, observation: Observation, end: End, now: float) -> None:
        watcher = self._watcher
        self._caught_up()
        watcher.session.exchanges += 1
        watcher.announcer.say(
            partial(response_event, observation, end, now),
            partial(exchange_line, observation, now),
        )

    def _say_pushed(self, observation: Observation) -> None:
        for push in observation.take_pushed():
            self._watcher.announcer.say(
                partial(pushed_event, observation, push), partial(pushed_line, observation, push)
            )

    # What is done while the event loop goes on

    def _in_turn(self, work: Coroutine[Any, Any, None]) -> Awaitable[None]:
        """Do some work after what has been begun before; who waits for it may be cancelled."""
        self._work = task = self._watcher.go_on(self._after(self._work, work))
        return asyncio.shield(task)

    async def _after(
        self, before: asyncio.Task[None] | None, work: Coroutine[Any, Any, None]
    ) -> None:
        if before is not None:
            await before
        if self._writer is None:
            work.close()
        else:
            with self:
                await work
        if self._work is asyncio.current_task():
            self._work = None

    async def _read(self, process: SealingProcess, observation: Observation) -> None:
        observation.call_read(await process.read(observation.call.request))
        self._watcher.announcer.say(partial(request_event, observation), None)

    async def _take(self, writer: ExchangeWriter, chunk: bytes, now: float) -> None:
        observation, process = writer.observation, self._watcher.sealing_process
        for _ in observation.response_steps(chunk, now):
            await asyncio.sleep(0)
            if observation.to_read is not None and process is not None:
                observation.message_read(await process.read_message(observation.to_read))
        due = writer.bytes_taken(now)
        if due is not None:
            await self._write_in_turn(due, observation)
        self._say_pushed(observation)

    async def _end(self, writer: ExchangeWriter, end: End, now: float) -> None:
        due = writer.response_ended(end, now)
        if due is not None:
            await self._write_in_turn(due, writer.observation)
        self._counted(writer.observation, end, now)

    async def _write_in_turn(self, due: Due, observation: Observation) -> None:
        watcher, process = self._watcher, self._watcher.sealing_process
        is_large = process is not None and process.is_large(due.seen)
        is_plain = is_large and await is_plain_exchange(watcher.recorder, due.seen)
        if process is None or not is_large or is_plain:
            async with watcher.writing:
                self._write_at_once(due, observation, is_plain=is_plain)
            return
        sealed = await process.seal(due.seen)
        key = None
        if watcher.on_ask is not None and sealed.ask is not None:
            # Of a large request only the short texts are kept.
            key = await asyncio.to_thread(watcher.recorder.key_of, due.seen.call.request)
        self._sealed(due, observation, sealed.ask, sealed.unread, key)
        async with watcher.writing:
            for _ in watcher.journal.append_parts(sealed.line):
                await asyncio.sleep(0)
        self._caught_up()
        watcher.session.judged(observation.number, sealed.verdict)

    async def _count(self, observation: Observation, end: End, now: float) -> None:
        self._counted(observation, end, now)
