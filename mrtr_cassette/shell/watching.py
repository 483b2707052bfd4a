"""Watching what passes, so that it is recorded.

Rule: a failure in here is said once, and never breaks what passes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from mrtr_cassette.core.format.journal import encode_line
from mrtr_cassette.core.protocol.calls import CallKey
from mrtr_cassette.core.protocol.dialect import InputRequired
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.record.sealing import Unread
from mrtr_cassette.core.record.writer import Due, ExchangeWriter
from mrtr_cassette.core.report.events import (
    failed_said,
    pushed_said,
    request_event,
    response_said,
    unreachable_said,
    unread_said,
)
from mrtr_cassette.core.wire.http import End, Headers, Request
from mrtr_cassette.errors import MrtrCassetteError, internal_error
from mrtr_cassette.shell.announcing import Announcer
from mrtr_cassette.shell.clock import Clock
from mrtr_cassette.shell.journal_file import Journal
from mrtr_cassette.shell.record_session import RecordSession

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
        under_way: what is read on although its client has left.
    """

    recorder: Recorder
    journal: Journal
    session: RecordSession
    announcer: Announcer
    clock: Clock
    started: float
    on_ask: OnAsk | None = None
    under_way: set[asyncio.Task[None]] = field(default_factory=set)
    _warned_of: set[Unread] = field(default_factory=set)

    def now_ms(self) -> float:
        """Milliseconds since the recording began."""
        return (self.clock.now() - self.started) * 1000

    def go_on(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do some work that nobody has to wait for before the recording ends."""
        task = asyncio.create_task(work)
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        return task

    @asynccontextmanager
    async def finishing(self) -> AsyncIterator[None]:
        """Wait, when the block ends, for all that is under way."""
        try:
            yield
        finally:
            while self.under_way:
                await asyncio.wait(self.under_way)

    def unreachable(self, request: Request, problem: str) -> None:
        """Take note that the upstream gave no response; that is no exchange to record."""
        self.session.unreachable += 1
        shown = f"{request.method} {self.recorder.shown_target(request.target)}"
        self.announcer.say(unreachable_said, shown, problem)

    def warn_of(self, observation: Observation, unread: Unread) -> None:
        """Say, once for each reason, that a body can't be read."""
        if unread in self._warned_of:
            return
        self._warned_of.add(unread)
        self.announcer.say(unread_said, observation, unread, self.announcer.terms)

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
        self.announcer.say(failed_said, problem)


class WatchedExchange:
    """One exchange, which the recorder sees while it passes.

    After a failure nothing of the exchange is kept any more.
    """

    def __init__(self, watcher: Watcher, request: Request) -> None:
        """Begin with the request."""
        self._watcher = watcher
        self._writer: ExchangeWriter | None = None
        with self:
            observation = watcher.recorder.request_received(request, watcher.now_ms())
            self._writer = ExchangeWriter(observation)
            watcher.announcer.tell(request_event, observation)

    # The recorder is a spectator: whatever error comes up while it is shown something is told.
    # No guard of its own is made for each block, as there are four of them in each exchange.

    def __enter__(self) -> None:
        """Begin to show something to the recorder."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool:
        """Keep an error in here; what passes goes on."""
        if isinstance(error, Exception):
            self._writer = None
            self._watcher.failed(error)
            return True
        return False

    def forget(self) -> None:
        """Keep nothing of this exchange, because none came about."""
        self._writer = None

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

    def response_started(self, status: int, headers: Headers) -> None:
        """Show the response's head."""
        writer = self._writer
        if writer is not None:
            with self:
                due = writer.response_started(status, headers, self._watcher.now_ms())
                self._write(due, writer.observation)

    def response_bytes(self, chunk: bytes) -> None:
        """Show bytes that will be passed on, and write the exchange down if it is due."""
        writer = self._writer
        if writer is not None:
            with self:
                due = writer.response_bytes(chunk, self._watcher.now_ms())
                self._write(due, writer.observation)
                self._say_pushed(writer.observation)

    def response_ended(self, end: End) -> None:
        """Show the end, and write the exchange down if it is due."""
        writer = self._writer
        if writer is not None:
            with self:
                now = self._watcher.now_ms()
                observation = writer.observation
                self._write(writer.response_ended(end, now), observation)
                self._watcher.session.exchanges += 1
                self._watcher.announcer.say(response_said, observation, end, now)

    def _write(self, due: Due | None, observation: Observation) -> None:
        """Write an exchange to the journal, if it is due."""
        if due is None:
            return
        watcher = self._watcher
        exchange, ask, unread = watcher.recorder.seal(due.seen)
        observation.ask = ask
        if due.is_first and ask is not None and watcher.on_ask is not None:
            watcher.on_ask(observation.call.key(), ask)
        for each in unread:
            watcher.warn_of(observation, each)
        watcher.journal.append(encode_line(exchange, continues=due.seen.continues))
        if not due.seen.continues:
            watcher.session.written(exchange)

    def _say_pushed(self, observation: Observation) -> None:
        for push in observation.take_pushed():
            self._watcher.announcer.say(pushed_said, observation, push)
