"""Replaying over pipes: the recording is a server that its client has started.

Owns: a client's lines as requests, and the end of the replay.
Does not own: what is answered (`replaying`), reading and writing (`line_pipes`).
Rule: nothing but messages is written to the client.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.exchange.transports import FIRST_SESSION, over_pipes
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.wire.http import NO_STATUS, Headers, Request
from mrtr_cassette.core.wire.lines import Line, channel_request, line_request, opens_channel
from mrtr_cassette.options import ReplayOptions
from mrtr_cassette.shell.announcing import Announcer, OnEvent
from mrtr_cassette.shell.line_pipes import OWN_PIPES, LineWriter, PipeEnds, read_lines
from mrtr_cassette.shell.replaying import ReplayServer, ReplaySession, load_server

_BEFORE_RESPONSE_S: Final = 0.005
"""Seconds between what is said during a call and its response.

The TypeScript SDK's client drops notifications that it reads together with the response.
"""
_LAST_S: Final = 0.3
"""Seconds after the client's end for what is still to be said."""


class PipeDownstream:
    """A client on a pipe, to which one request is answered."""

    def __init__(self, writer: LineWriter, ended: asyncio.Event, request: Request) -> None:
        """Answer a request; `ended` is set where the server ends."""
        self._writer = writer
        self._ended = ended
        self._is_channel = opens_channel(request)
        self._has_spoken = False
        message = read_call(request).message
        self._responds = message is not None and message.kind is Kind.REQUEST

    def send_early_hints(self, headers: Headers) -> None:
        """Do nothing: there are no headers."""

    def begin(self, status: int, headers: Headers, reason: str | None = None) -> None:
        """Do nothing: there is no head."""

    async def send(self, chunk: bytes = b"", *, is_last: bool = False) -> None:
        """Say lines."""
        if chunk:
            if is_last and self._has_spoken:
                await asyncio.sleep(_BEFORE_RESPONSE_S)
            self._has_spoken = True
            await self._writer.write(chunk)
        if is_last and self._is_channel:
            self._ended.set()

    async def send_whole(self, status: int, _headers: Headers, body: bytes) -> None:
        """Say recorded lines, or a message of our own, where the request wants a response."""
        if status == NO_STATUS:
            await self.send(body, is_last=True)
        elif self._responds and body:
            await self._writer.write(body + b"\n")

    def break_off(self) -> None:
        """End the server, as it had ended."""
        self._ended.set()


async def replay_pipe(
    path: Path,
    options: ReplayOptions,
    signals: asyncio.Queue[signal.Signals],
    on_event: OnEvent | None = None,
    *,
    began: Callable[[ReplaySession], None] = lambda _session: None,
    ends: PipeEnds = OWN_PIPES,
) -> ReplaySession:
    """Serve a cassette on two pipes until the client ends, a signal comes, or the server had ended.

    Args:
        path: the cassette's file.
        options: how it is served.
        signals: those that come to this process.
        on_event: takes each play and each miss as facts, for programs.
        began: called with what is replayed, before it is.
        ends: the client's side.

    Raises:
        CassetteError: the cassette can't be read, or not be played over pipes.
    """
    announcer = Announcer(options.log, on_event, options.terms)
    cassette, server = load_server(path, over_pipes, options, announcer)
    session = ReplaySession("", "", cassette, server.player, options.terms)
    began(session)
    channel = _ReplayedChannel(server, ends, options.max_body)
    await channel.run(cassette, signals)
    return session


class _ReplayedChannel:
    """One client of a replay on pipes."""

    def __init__(self, server: ReplayServer, ends: PipeEnds, longest: int) -> None:
        self._server = server
        self._source = ends.source
        self._longest = longest
        self._ended = asyncio.Event()
        self._closed = asyncio.Event()
        self._writer = LineWriter(ends.target, self._closed.set)
        self._answers: set[asyncio.Task[None]] = set()

    async def run(self, cassette: Cassette, signals: asyncio.Queue[signal.Signals]) -> None:
        """Answer until the end."""
        requests = [each.exchanges[0].request for each in cassette.interactions]
        has_channel = any(map(opens_channel, requests))
        listening = self._answer(channel_request(FIRST_SESSION)) if has_channel else None
        read_lines(self._source, self._longest, self._take)
        endings = [
            asyncio.ensure_future(each)
            for each in (self._closed.wait(), self._ended.wait(), signals.get())
        ]
        await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
        remaining = self._answers - {listening}
        if remaining and self._closed.is_set():
            await asyncio.wait(remaining, timeout=_LAST_S)
        for task in (*endings, *self._answers):
            task.cancel()
        await self._writer.finish(_LAST_S)

    def _take(self, lines: Sequence[Line]) -> None:
        if not lines:
            self._closed.set()
        for line in lines:
            self._answer(line_request(line.raw, FIRST_SESSION))

    def _answer(self, request: Request) -> asyncio.Task[None]:
        downstream = PipeDownstream(self._writer, self._ended, request)
        task = asyncio.ensure_future(self._server.handle(request, downstream))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)
        return task
