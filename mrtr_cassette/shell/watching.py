"""Watching what passes, so that it is recorded.

Owns: showing each exchange to the recorder, writing it to the journal when it is due, counting, and
saying what happens.
Does not own: what passes (`relay`), and what the bytes mean (`core.record`).
Rule: a failure in here is said once, and never breaks what passes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from mrtr_cassette.core.format.journal import encode_line
from mrtr_cassette.core.protocol.calls import Call
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
    restored_event,
    restored_line,
    unreachable_event,
    unreachable_line,
    unread_event,
    unread_line,
)
from mrtr_cassette.core.wire.http import End, Headers, Request
from mrtr_cassette.errors import MrtrCassetteError, internal_error
from mrtr_cassette.shell.announcing import Announcer
from mrtr_cassette.shell.clock import Clock
from mrtr_cassette.shell.journal_file import Journal, Restored, cut_short
from mrtr_cassette.shell.record_session import RecordSession

OnAsk = Callable[[Call, InputRequired], None]


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
    """

    recorder: Recorder
    journal: Journal
    session: RecordSession
    announcer: Announcer
    clock: Clock
    started: float
    on_ask: OnAsk | None = None
    _warned_of: set[Unread] = field(default_factory=set)

    def now_ms(self) -> float:
        """Milliseconds since the recording began."""
        return (self.clock.now() - self.started) * 1000

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
        is_kept = not self.recorder.withholds
        self.announcer.say(
            partial(unread_event, observation, unread),
            partial(unread_line, observation, unread, self.announcer.terms, is_kept=is_kept),
        )

    def restored(self, restored: Restored) -> None:
        """Say what another program did to the journal."""
        path = self.journal.path
        if restored is Restored.CUT:
            self.failed(cut_short(path))
        else:
            self.announcer.say(
                partial(restored_event, str(path)), partial(restored_line, str(path))
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


class _Guard:
    """Hands whatever error its block raises to a function: the recorder is a spectator."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool:
        if isinstance(error, Exception):
            self._failed(error)
            return True
        return False


class WatchedExchange:
    """One exchange, which the recorder sees while it passes.

    After a failure nothing of it is kept any more.
    """

    def __init__(self, watcher: Watcher, request: Request) -> None:
        """Begin with the request."""
        self._watcher = watcher
        self._guard = _Guard(self._failed)
        self._writer: ExchangeWriter | None = None
        with self._guard:
            observation = watcher.recorder.request_received(request, watcher.now_ms())
            self._writer = ExchangeWriter(observation)
            watcher.announcer.say(partial(request_event, observation), None)

    def _failed(self, error: Exception) -> None:
        self._writer = None
        self._watcher.failed(error)

    def forget(self) -> None:
        """Keep nothing of this exchange, because none came about."""
        self._writer = None

    def response_started(self, status: int, headers: Headers) -> None:
        """Show the response's head."""
        writer = self._writer
        if writer is not None:
            with self._guard:
                writer.response_started(status, headers)

    def response_bytes(self, chunk: bytes) -> None:
        """Show bytes that will be passed on, and write the exchange down if it is due."""
        writer = self._writer
        if writer is not None:
            with self._guard:
                due = writer.response_bytes(chunk, self._watcher.now_ms())
                if due is not None:
                    self._write(due, writer.observation)
                self._say_pushed(writer.observation)

    def response_ended(self, end: End) -> None:
        """Show the end, and write the exchange down if it is due."""
        writer = self._writer
        if writer is None:
            return
        with self._guard:
            watcher = self._watcher
            now = watcher.now_ms()
            due = writer.response_ended(end, now)
            observation = writer.observation
            if due is not None:
                self._write(due, observation)
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

    def _write(self, due: Due, observation: Observation) -> None:
        watcher = self._watcher
        if due.ask is not None and watcher.on_ask is not None:
            watcher.on_ask(observation.call, due.ask)
        for unread in observation.unread:
            watcher.warn_of(observation, unread)
        restored = watcher.journal.append(encode_line(due.exchange))
        if restored is not None:
            watcher.restored(restored)
        watcher.session.written(due.exchange)
