"""Recording between the pipes of a client and those of a server.

Rule: pass on first. Each direction has a thread that reads, shows and writes, so that whoever does
not read holds up its own direction only.
"""

from __future__ import annotations

import gc
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Final, Self

from mrtr_cassette.core.record.channel import Channel
from mrtr_cassette.core.wire.http import NO_STATUS, End, Request
from mrtr_cassette.core.wire.lines import Line, LineFramer, opens_channel
from mrtr_cassette.errors import CassetteError, LineTooLongError
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell import cassette_file, journal_file
from mrtr_cassette.shell.announcing import Announcer, OnEvent
from mrtr_cassette.shell.clock import CLOCK
from mrtr_cassette.shell.keeping import check_output, journal_header, keeping, rules_of_both
from mrtr_cassette.shell.line_pipes import (
    OWN_PIPES,
    PipeEnds,
    close_pipe,
    read_some,
    write_all,
    write_at_once,
)
from mrtr_cassette.shell.locks import is_locked
from mrtr_cassette.shell.publishing import recover_journal
from mrtr_cassette.shell.record_session import RecordSession
from mrtr_cassette.shell.server_process import ServerProcess, server_process, shown_command
from mrtr_cassette.shell.stores import Location
from mrtr_cassette.shell.watching import WatchedExchange, Watcher

_PREDECESSOR_S: Final = 5.0
"""Seconds to wait for the end of a recorder that the same client started before."""
_LOOK_S: Final = 0.02
"""Seconds between two looks whether it has ended."""


@dataclass(frozen=True, slots=True)
class Grace:
    """How many seconds a server has for its end.

    Clients send SIGTERM two seconds after they closed stdin, and SIGKILL two seconds later; the
    TypeScript SDK ends the server that it probes by both at once, and by SIGKILL after a second.

    Attributes:
        closed: from the end of the client until SIGTERM; a server may have much to finish.
        terminated: from that SIGTERM until SIGKILL.
        told: from a signal to this process, which SIGTERM to the server follows at once, until
            SIGKILL.
        told_and_closed: the same where the client has closed stdin too.
        left_over: for the server's children after its own end, until SIGKILL.
    """

    closed: float = 10.0
    terminated: float = 2.0
    told: float = 1.2
    told_and_closed: float = 0.5
    left_over: float = 0.15


GRACE: Final = Grace()


class _Happened(Enum):
    """What the end of a run consists of."""

    CLIENT_CLOSED = auto()
    TOLD_TO_STOP = auto()
    SERVER_CLOSED = auto()
    SERVER_EXITED = auto()


class Stops:
    """Signals to this process, which end a recording instead of the process."""

    def __init__(self) -> None:
        self.queue: SimpleQueue[_Happened] = SimpleQueue()

    def __enter__(self) -> Self:
        """Take SIGINT, SIGTERM and SIGHUP from now on."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: self.queue.put(_Happened.TOLD_TO_STOP))
        return self

    def __exit__(self, *_: object) -> None:
        """Ignore them: what follows is the end anyway."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def pipe_recording(
    command: Sequence[str],
    output: Location,
    options: RecordOptions,
    *,
    on_event: OnEvent | None = None,
    client: str | None = None,
) -> Iterator[tuple[RecordSession, Watcher]]:
    """Keep what passes until the block ends, then publish the cassette.

    Where the same client has recorded the cassette, or is about to end its recording, this one is
    added to it: some clients start a server twice.

    Args:
        client: hash of the client; None where nobody can tell.

    Raises:
        CassetteError: the cassette can't be written, or exists.
    """
    is_same_client = client is not None and _is_of_client(output, client)
    continued = replace(options, existing="append") if is_same_client else options
    with cassette_file.without_collection():
        earlier = check_output(output, continued)
    rules = rules_of_both(earlier, options.redaction)
    shown = shown_command(command, rules)
    session = RecordSession(shown, shown, output, earlier, None, options.terms)
    header = journal_header(continued, rules, shown, "stdio", client)
    announcer = Announcer(options.log, on_event, options.terms)
    with keeping(session, header, options, announcer, CLOCK) as watcher:
        yield session, watcher


def predecessor_ended(output: Location, client: str) -> bool:
    """Wait until what the same client started before has published what it recorded.

    Returns:
        whether it has, in the time that there is.

    Raises:
        CassetteError: it was killed, and what it left can't be published.
    """
    journal = journal_file.journal_path(output)
    deadline = time.monotonic() + _PREDECESSOR_S
    while journal_file.client_of(journal) == client:
        if not is_locked(journal):
            # Whoever ended it did not wait for its cassette.
            recover_journal(output)
        elif time.monotonic() > deadline:
            return False
        else:
            time.sleep(_LOOK_S)
    return True


def _is_of_client(output: Location, client: str) -> bool:
    """Tell whether a client has recorded a cassette, once that is published."""
    if not predecessor_ended(output, client):
        return False
    try:
        return cassette_file.exists(output) and cassette_file.load_cassette(output).client == client
    except CassetteError:
        return False


class Pump:
    """Passes lines on between a client and a server, and shows them to a recording."""

    def __init__(
        self,
        server: ServerProcess,
        watcher: Watcher,
        happened: SimpleQueue[_Happened],
        ends: PipeEnds = OWN_PIPES,
    ) -> None:
        self._server = server
        self._watcher = watcher
        self._happened = happened
        self._ends = ends
        self._lock = Lock()
        self._is_over = False
        self._said_to: int = server.stdin.fileno()
        # Each run of the server after the first one in a cassette is a session of its own.
        session = secrets.token_hex(16) if watcher.session.earlier is not None else ""
        self._channel: Channel[WatchedExchange] = Channel(self._begin, session)

    def run(self, grace: Grace = GRACE) -> int:
        """Pass lines on until both sides have ended; return the server's exit code."""
        source, target = self._ends.source, self._ends.target
        heard_from = self._server.stdout.fileno()
        closed, over = _Happened.CLIENT_CLOSED, _Happened.SERVER_CLOSED
        threads = [
            self._thread(self._pass_on, source, self._said_to, self._client_said, closed),
            self._thread(self._pass_on, heard_from, target, self._server_said, over),
            self._thread(self._wait_for_exit),
        ]
        close = partial(close_pipe, self._said_to)
        by_server = _Ending(self._server, self._happened, close, grace).run()
        # What the server said last has been read by now, unless a child of its own talks on.
        threads[1].join(grace.left_over)
        self._server.group.stop(grace.left_over)
        threads[1].join(grace.left_over)
        with self._lock:
            self._is_over = True
            for exchange, end in self._channel.ended(by_server=by_server):
                if end is None:
                    exchange.forget()
                else:
                    exchange.response_ended(end)
        return self._server.exit_code

    def _thread(self, work: Callable[..., None], *arguments: object) -> Thread:
        thread = Thread(target=work, args=arguments, daemon=True)
        thread.start()
        return thread

    def _begin(self, request: Request) -> WatchedExchange:
        exchange = WatchedExchange(self._watcher, request)
        if opens_channel(request):
            exchange.response_started(NO_STATUS, ())
        return exchange

    def _client_said(self, line: bytes) -> None:
        exchange, is_over = self._channel.client_line(line)
        if is_over:
            exchange.response_ended(End.COMPLETE)
        else:
            exchange.response_started(NO_STATUS, ())

    def _server_said(self, line: bytes) -> None:
        exchange, is_over = self._channel.server_line(line)
        exchange.response_bytes(line)
        if is_over:
            exchange.response_ended(End.COMPLETE)

    def _pass_on(
        self, source: int, target: int, said: Callable[[bytes], None], then: _Happened
    ) -> None:
        """Read until the end, and close the target then."""
        framer = LineFramer(self._watcher.recorder.largest_body)
        is_to_server = target == self._said_to
        is_taken = True
        chunk = b"-"
        while chunk:
            chunk = read_some(source)
            if is_to_server and framer.is_between and self._pass_first(chunk, framer, said):
                continue
            # One after the other, so that a client that reads in between has them as they came.
            for line in framer.feed(chunk) if chunk else framer.finish():
                with self._lock:
                    self._show(line, said)
                if is_taken and not write_all(target, line.raw):
                    is_taken = False
                    if target == self._ends.target:
                        # A client that does not listen any more has ended, as far as we can tell.
                        self._happened.put(_Happened.CLIENT_CLOSED)
        # Before the other side can know it: its own end comes after this one.
        self._happened.put(then)
        close_pipe(target)

    def _pass_first(self, chunk: bytes, framer: LineFramer, said: Callable[[bytes], None]) -> bool:
        """Pass whole lines on to the server before they are shown, if that can't take long.

        What it says in response is shown after them all the same: that needs the lock.
        """
        if not chunk.endswith(b"\n"):
            return False
        with self._lock:
            if not write_at_once(self._said_to, chunk):
                return False
            for line in framer.feed(chunk):
                self._show(line, said)
        return True

    def _show(self, line: Line, said: Callable[[bytes], None]) -> None:
        if self._is_over:
            return
        if not line.is_whole:
            self._watcher.failed(LineTooLongError(self._watcher.recorder.largest_body))
            return
        try:
            said(line.raw)
        except Exception as error:  # noqa: BLE001  the recorder is a spectator
            self._watcher.failed(error)

    def _wait_for_exit(self) -> None:
        self._server.wait()
        self._happened.put(_Happened.SERVER_EXITED)


@dataclass(slots=True)
class _Ending:
    """Waits until a server has ended, and ends it where it does not do so by itself."""

    server: ServerProcess
    happened: SimpleQueue[_Happened]
    close: Callable[[], None]
    grace: Grace

    def run(self) -> bool:
        """Return, once the server has ended, whether it ended before anybody wanted it to."""
        seen: set[_Happened] = set()
        by_server = False
        deadline: float | None = None
        is_terminated = False
        while _Happened.SERVER_EXITED not in seen:
            event = self._next(deadline)
            if event is None and is_terminated:
                self.server.group.signal(signal.SIGKILL)
                deadline = None
                continue
            if event is not None:
                is_asked = seen & {_Happened.CLIENT_CLOSED, _Happened.TOLD_TO_STOP}
                is_servers = event in (_Happened.SERVER_CLOSED, _Happened.SERVER_EXITED)
                by_server = by_server or (is_servers and not is_asked)
                seen.add(event)
            if event in (None, _Happened.TOLD_TO_STOP):
                is_terminated = True
                self.close()
                self.server.group.signal(signal.SIGTERM)
            deadline = self._deadline(event, seen, deadline)
        return by_server

    def _next(self, deadline: float | None) -> _Happened | None:
        try:
            if deadline is None:
                return self.happened.get()
            return self.happened.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            return None

    def _deadline(
        self, event: _Happened | None, seen: set[_Happened], before: float | None
    ) -> float | None:
        """Return until when the server has time after an event, or after its time was over."""
        if event is None:
            seconds = self.grace.terminated
        elif event is _Happened.CLIENT_CLOSED or event is _Happened.TOLD_TO_STOP:
            is_told = _Happened.TOLD_TO_STOP in seen
            is_closed = _Happened.CLIENT_CLOSED in seen
            if is_told:
                seconds = self.grace.told_and_closed if is_closed else self.grace.told
            else:
                seconds = self.grace.closed
        else:
            return before
        after = time.monotonic() + seconds
        return after if before is None or event is None else min(before, after)


def record_pipe(
    command: Sequence[str],
    output: Location,
    options: RecordOptions,
    on_event: OnEvent | None = None,
    *,
    cwd: Path | None = None,
    client: str | None = None,
) -> tuple[RecordSession, int]:
    """Record between our own stdin and stdout and a server, until both sides have ended.

    Args:
        client: hash of the client; None where nobody can tell.

    Returns:
        what it came to, and the server's exit code.

    Raises:
        CassetteError: the cassette can't be written, or exists.
        CommandError: the server can't be started.
    """
    recording = pipe_recording(command, output, options, on_event=on_event, client=client)
    with (
        Stops() as stops,
        recording as (session, watcher),
        server_process(command, watcher.recorder, cwd) as server,
    ):
        # What was imported stays: the collector need not look at it again and again.
        gc.freeze()
        code = Pump(server, watcher, stops.queue).run()
        if not session.verdicts and not session.has_success:
            session.failure = f"{command[0]!r} ended with {code} and answered nothing"
    return session, code
