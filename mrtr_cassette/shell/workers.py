"""Replaying with workers: processes that share one port and one cassette in memory.

Owns: starting workers, one more in the place of each that died, what they tell, and their end.
Does not own: what a worker does with a request (`replaying`).
Rule: a worker is a fork of the supervisor, which has loaded the cassette and bound the port, so
nothing is loaded twice, and what no worker accepts has to wait. Plays are counted in memory that
all share, so a worker that dies takes no count with it. A worker has a channel to the supervisor
and ends when that closes, whatever closed it.
"""

from __future__ import annotations

import asyncio
import gc
import mmap
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Final, NoReturn

from mrtr_cassette.core.exchange.transports import over_http
from mrtr_cassette.core.replay.harmless import Harmless
from mrtr_cassette.core.replay.playable import Tally, tally_of
from mrtr_cassette.core.report.events import worker_ended_event, worker_ended_line
from mrtr_cassette.core.report.misses import MissReport
from mrtr_cassette.core.report.summary import HarmlessRequest, ReplayReport, report_of_replay
from mrtr_cassette.errors import MrtrCassetteError, internal_error
from mrtr_cassette.options import ReplayOptions
from mrtr_cassette.shell.announcing import Announcer, OnEvent
from mrtr_cassette.shell.clock import CLOCK, Clock
from mrtr_cassette.shell.files import reason_of
from mrtr_cassette.shell.http_server import (
    Access,
    Listener,
    RequestTimeouts,
    access_of,
    listening,
    shared,
)
from mrtr_cassette.shell.replaying import ReplayServer, load_server, served_target
from mrtr_cassette.shell.running import run, signal_before
from mrtr_cassette.shell.stores import Location
from mrtr_cassette.shell.telemetry import Telemetry

DRAIN_S: Final = 10.0
"""Seconds that requests under way have to end when a replay with workers does."""
_MARGIN_S: Final = 2.0
"""Seconds in which a worker ends after that."""
_SHORT_LIFE_S: Final = 1.0
_MOST_SHORT_LIVES: Final = 3
"""Workers in a row with such a life, after which no other is started."""


@dataclass(frozen=True, slots=True)
class _Worker:
    """A process that serves.

    Attributes:
        number: which one of the workers it is, from 1; that in whose place it is had the same.
        pid: its process.
        channel: what it tells comes here.
        started: when it was started.
    """

    number: int
    pid: int
    channel: Connection
    started: float


@dataclass(slots=True)
class Workers:
    """The workers of one replay, for their supervisor.

    Attributes:
        url: what clients connect to.
        shown_url: the same without the secrets in it.
        server: what answers requests, here and in each worker.
        access: for whom.
        listeners: where each worker takes connections.
        announcer: says when one ended.
        telemetry: tells whoever watches.
        tally: where a worker counts.
        counts: how often each worker has played each exchange.
        drain_s: seconds that requests under way have to end when the replay does.
        clock: tells the time.
        has_failed: workers ended one after the other, so there are no more.
    """

    url: str
    shown_url: str
    server: ReplayServer
    access: Access
    listeners: tuple[Listener, ...]
    announcer: Announcer
    telemetry: Telemetry
    tally: Tally
    counts: tuple[memoryview, ...]
    drain_s: float
    clock: Clock = CLOCK
    has_failed: bool = False
    _running: dict[int, _Worker] = field(default_factory=dict)
    _misses: list[MissReport] = field(default_factory=list)
    _harmless: Counter[tuple[str, str]] = field(default_factory=Counter)
    _short_lives: int = 0
    _all_ended: asyncio.Event | None = None

    @property
    def report(self) -> ReplayReport:
        """What all workers together have come to so far."""
        player = self.server.player
        for playable in player.playables:
            playable.played = sum(counts[playable.place] for counts in self.counts)
        harmless = (HarmlessRequest(*each, times) for each, times in self._harmless.items())
        report = report_of_replay(player, self.announcer.terms)
        return replace(report, misses=tuple(self._misses), harmless=tuple(harmless))

    # The supervisor

    def start(self, number: int) -> None:
        """Start a worker.

        Raises:
            OSError: there can be no more processes.
        """
        ours, theirs = Pipe()
        pid = os.fork()
        if not pid:
            ours.close()
            self._work(number, theirs)
        theirs.close()
        self._running[number] = _Worker(number, pid, ours, self.clock.now())

    @asynccontextmanager
    async def supervised(self, signals: asyncio.Queue[signal.Signals]) -> AsyncIterator[Workers]:
        """Keep the workers running until the block ends, and let them end what is under way.

        Args:
            signals: those that come to this process; when they end, one more makes an end at once.
        """
        served = self._kept_running(signals)
        async with self.telemetry.watched(served, self.access, self.announcer):
            yield self

    @asynccontextmanager
    async def _kept_running(self, signals: asyncio.Queue[signal.Signals]) -> AsyncIterator[None]:
        for worker in self._running.values():
            self._watch(worker, signals)
        try:
            yield
        finally:
            await self._end(signals)

    def _watch(self, worker: _Worker, signals: asyncio.Queue[signal.Signals]) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(worker.channel.fileno(), self._read, worker, signals)

    def _read(self, worker: _Worker, signals: asyncio.Queue[signal.Signals]) -> None:
        """Take what a worker tells, or that it has ended."""
        try:
            told: MissReport | tuple[str, str] = worker.channel.recv()
        except (EOFError, OSError):
            self._forget(worker, signals)
            return
        if isinstance(told, MissReport):
            self._misses.append(told)
        else:
            self._harmless[told] += 1

    def _forget(self, worker: _Worker, signals: asyncio.Queue[signal.Signals]) -> None:
        asyncio.get_running_loop().remove_reader(worker.channel.fileno())
        worker.channel.close()
        del self._running[worker.number]
        _, status = os.waitpid(worker.pid, 0)
        if self._all_ended is None:
            self._replace(worker, os.waitstatus_to_exitcode(status), signals)
        elif not self._running:
            self._all_ended.set()

    def _replace(self, worker: _Worker, code: int, signals: asyncio.Queue[signal.Signals]) -> None:
        """Start another worker in the place of one that ended, unless that leads nowhere."""
        end = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        is_short = self.clock.now() - worker.started < _SHORT_LIFE_S
        self._short_lives = self._short_lives + 1 if is_short else 0
        problem = None
        if self._short_lives >= _MOST_SHORT_LIVES:
            problem = (
                f"{_MOST_SHORT_LIVES} in a row did within {_SHORT_LIFE_S:.0f} s of their start"
            )
        else:
            try:
                self.start(worker.number)
            except OSError as error:
                problem = f"no other can be started: {reason_of(error)}"
        self.announcer.say(
            partial(worker_ended_event, worker.number, end, problem),
            partial(worker_ended_line, worker.number, end, problem),
        )
        if problem is None:
            self._watch(self._running[worker.number], signals)
        else:
            self.has_failed = True
            # The command that is served ends too.
            signals.put_nowait(signal.SIGTERM)

    async def _end(self, signals: asyncio.Queue[signal.Signals]) -> None:
        self._all_ended = asyncio.Event()
        # What no worker has accepted yet waits for nobody any more.
        for listener in self.listeners:
            listener.close()
        for worker in self._running.values():
            with suppress(OSError):
                worker.channel.send(None)
        if self._running:
            ended = asyncio.ensure_future(self._all_ended.wait())
            await signal_before(ended, signals, self.drain_s + _MARGIN_S)
            for worker in self._running.values():
                os.kill(worker.pid, signal.SIGKILL)
            await ended

    # A worker

    def _work(self, number: int, channel: Connection) -> NoReturn:
        """Be a worker: serve until the supervisor says so or is gone; then end this process."""
        code = 1
        try:
            # What the supervisor did about signals is not for here; a terminal's Ctrl-C is for it.
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            for other in self._running.values():
                other.channel.close()
            for at, listener in enumerate(self.listeners, start=1):
                if at != number:
                    listener.close()
            self._count_as(number)
            run(self._serve(self.listeners[number - 1], channel))
            code = 0
        except BaseException as error:  # noqa: BLE001  nothing may go on in a copy of the supervisor
            with suppress(OSError):
                sys.stderr.write(f"{internal_error(error)}\n")
                sys.stderr.flush()
        finally:
            os._exit(code)

    def _count_as(self, number: int) -> None:
        """Go on counting where the one stopped in whose place this worker is."""
        self.tally.counts = counts = self.counts[number - 1]
        for playable in self.server.player.playables:
            if counts[playable.place]:
                playable.played = counts[playable.place]
        if self.telemetry.metrics is not None:
            # The first process is the supervisor.
            self.telemetry.metrics.count_as(number)

    async def _serve(self, listener: Listener, channel: Connection) -> None:
        def tell(unplayed: MissReport | Harmless) -> None:
            told: Any = unplayed
            if isinstance(unplayed, Harmless):
                told = self.server.player.redacted(unplayed.call.title), unplayed.answer
            with suppress(OSError):
                channel.send(told)

        self.server.on_unplayed = tell
        loop = asyncio.get_running_loop()
        is_ending = asyncio.Event()
        loop.add_reader(channel.fileno(), is_ending.set)
        loop.add_signal_handler(signal.SIGTERM, is_ending.set)
        timeouts = RequestTimeouts(drain_s=self.drain_s)
        handler, log = self.server.handle, self.announcer.log
        async with self.telemetry.counting(handler, listener, self.access, log, timeouts=timeouts):
            await is_ending.wait()
            loop.remove_reader(channel.fileno())


@contextmanager
def working(
    path: Location,
    options: ReplayOptions,
    workers: int,
    *,
    on_event: OnEvent | None = None,
    clock: Clock = CLOCK,
    drain_s: float = DRAIN_S,
) -> Iterator[Workers]:
    """Start so many workers that serve a cassette.

    They are forks of this process, so it has no event loop and no other thread yet.

    Args:
        on_event: takes each play and each miss as facts, for programs, in the worker that has it.
        drain_s: seconds that requests under way have to end when the replay does.

    Raises:
        CassetteError: the cassette can't be read.
        UsageError: the address can't be bound.
        MrtrCassetteError: a process can't be started.
    """
    telemetry = Telemetry(options)
    announcer = Announcer(options.log, on_event, options.terms, telemetry.listener)
    access = access_of(options)
    # Whatever a client was given, any worker may get what it sends next.
    options = replace(options, stateless=True)
    cassette, server = load_server(path, over_http, options, announcer, clock)
    target = served_target(cassette)
    # Each worker has its own count of each exchange, of eight bytes.
    playables = server.player.playables
    size = len(playables)
    counts = memoryview(mmap.mmap(-1, max(1, size * workers) * 8)).cast("Q")
    with listening(access) as listener:
        url = listener.address.url(target)
        crew = Workers(
            url,
            server.player.redacted(url),
            server,
            access,
            shared(listener, workers),
            announcer,
            telemetry,
            tally_of(playables),
            tuple(counts[at * size : (at + 1) * size] for at in range(workers)),
            drain_s,
            clock,
        )
        telemetry.begin(playables, workers + 1)
        # What a collection writes to is not shared any more.
        gc.freeze()
        gc.enable()
        try:
            for number in range(1, workers + 1):
                crew.start(number)
        except OSError as error:
            raise MrtrCassetteError(f"can't start {workers} workers: {reason_of(error)}") from None
        yield crew
