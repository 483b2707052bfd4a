"""A client on a pipe: its lines as requests, and what it is answered.

Rule: nothing but messages is written to the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final, Literal

from mrtr_cassette.core.exchange.transports import FIRST_SESSION
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.wire.http import NO_STATUS, Headers, Request
from mrtr_cassette.core.wire.lines import Line, channel_request, line_request, opens_channel
from mrtr_cassette.shell.line_pipes import LineWriter, PipeEnds, read_lines
from mrtr_cassette.shell.transport import Handler

_BEFORE_RESPONSE_S: Final = 0.005
"""Seconds between what is said during a call and its response.

The TypeScript SDK's client drops notifications that it reads together with the response.
"""
LAST_S: Final = 0.3
"""Seconds after the client's end for what is still to be said."""


class PipeDownstream:
    """A client on a pipe, to which one request is answered."""

    def __init__(self, writer: LineWriter, ended: asyncio.Event, request: Request) -> None:
        """Answer a request; `ended` is set where the server ends."""
        self.called = ""
        self._writer = writer
        self._ended = ended
        self._is_channel = opens_channel(request)
        self._has_spoken = False
        message = read_call(request).message
        self._responds = message is not None and message.kind is Kind.REQUEST

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


class PipedClient:
    """One client on a pipe.

    Attributes:
        listening: what answers the beginning of the channel, once something does.
    """

    def __init__(self, ends: PipeEnds, longest: int) -> None:
        """Prepare to take lines of so many bytes at most."""
        self.listening: asyncio.Task[None] | None = None
        self._source = ends.source
        self._longest = longest
        self._ended = asyncio.Event()
        self._closed = asyncio.Event()
        self._writer = LineWriter(ends.target, self._closed.set)
        self._answers: set[asyncio.Task[None]] = set()

    def listen(self, handler: Handler) -> None:
        """Have the beginning of the channel answered, by what the server says by itself."""
        self.listening = self._answer(handler, channel_request(FIRST_SESSION))

    async def run(
        self, handler: Handler, told_to_end: asyncio.Event, last_s: float = LAST_S
    ) -> None:
        """Answer until the client ends, the server does, or this process is told to end.

        Args:
            last_s: seconds after the client's end for what is still to be said.
        """

        def take(lines: Sequence[Line]) -> None:
            if not lines:
                self._closed.set()
            for line in lines:
                self._answer(handler, line_request(line.raw, FIRST_SESSION))

        read_lines(self._source, self._longest, take)
        endings = [
            asyncio.ensure_future(each)
            for each in (self._closed.wait(), self._ended.wait(), told_to_end.wait())
        ]
        await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
        remaining = self._answers - {self.listening}
        if remaining and self._closed.is_set():
            endings.append(asyncio.ensure_future(_all_of(remaining)))
            await asyncio.wait(endings[-2:], timeout=last_s, return_when=asyncio.FIRST_COMPLETED)
        for task in (*endings, *self._answers):
            task.cancel()
        await asyncio.gather(*endings, *self._answers, return_exceptions=True)
        await self._writer.finish(LAST_S)

    def _answer(self, handler: Handler, request: Request) -> asyncio.Task[None]:
        downstream = PipeDownstream(self._writer, self._ended, request)
        task = asyncio.ensure_future(_answered(handler, request, downstream))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)
        return task


async def _all_of(answers: Collection[asyncio.Task[None]]) -> Literal[True]:
    await asyncio.wait(answers)
    return True


async def _answered(handler: Handler, request: Request, downstream: PipeDownstream) -> None:
    # A client that is gone needs no answer.
    with suppress(ConnectionError):
        await handler(request, downstream)
