"""A client and a server on pipes, as the two sides of what passes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final

from mrtr_cassette.core.cassette.transports import FIRST_SESSION, on_one_line
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, Kind, Message, classify
from mrtr_cassette.core.record.channel import Channel
from mrtr_cassette.core.secrets.credentials import Knows
from mrtr_cassette.core.wire.http import ACCEPTED, EVENT_STREAM, NO_STATUS, Headers, Request
from mrtr_cassette.core.wire.jsonbytes import find_spans, splice
from mrtr_cassette.core.wire.lines import channel_request, line_request, opens_channel
from mrtr_cassette.shell.http.transport import Handler, RawHeaders
from mrtr_cassette.shell.pipes.lines import OWN_PIPES, LineWriter, PipeEnds, lines_from
from mrtr_cassette.shell.pipes.processes import CommandError, Grace, ServerProcess, server_process

_BEFORE_RESPONSE_S: Final = 0.005
"""Seconds between what is said during a call and its response.

The TypeScript SDK's client drops notifications that it reads together with the response.
"""
_LAST_S: Final = 0.3
"""Seconds after the client's end for what is still to be said."""
_GRACE: Final = Grace(closed=2.0, terminated=1.0, told=0.5, told_and_closed=0.5)
"""A server whose clients have gone already: whoever ends this process may kill it soon."""
_JSON: Final[RawHeaders] = ((b"Content-Type", b"application/json"),)
_STREAM: Final[RawHeaders] = ((b"Content-Type", EVENT_STREAM.encode()),)
_EVENT: Final = b"event: message\ndata: %b\n\n"


class PipeDownstream:
    """A client on a pipe, to which one request is answered; it gets nothing but messages."""

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
            self._writer.write(chunk)
            await self._writer.room()
        if is_last and self._is_channel:
            self._ended.set()

    async def send_whole(self, status: int, _headers: Headers, body: bytes) -> None:
        """Say recorded lines, or a message of our own, where the request wants a response."""
        if status == NO_STATUS:
            await self.send(body, is_last=True)
        elif self._responds and body:
            self._writer.write(body + b"\n")

    def break_off(self) -> None:
        """End the server, as it had ended."""
        self._ended.set()


class PipedClient:
    """One client on a pipe: its lines are requests, which a handler answers."""

    def __init__(self, handler: Handler, longest: int, ends: PipeEnds = OWN_PIPES) -> None:
        """Prepare to take lines of so many bytes at most."""
        self._handler = handler
        self._source = ends.source
        self._longest = longest
        self._listening: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._closed = asyncio.Event()
        self._writer = LineWriter(ends.target, self._closed.set)
        self._answers: set[asyncio.Task[None]] = set()

    def listen(self, handler: Handler | None = None) -> None:
        """Have the beginning of the channel answered, by what the server says by itself."""
        self._listening = self._answer(channel_request(FIRST_SESSION), handler)

    async def run(self, told_to_end: asyncio.Event, last_s: float = _LAST_S) -> None:
        """Answer until the client ends, the server does, or this process is told to end.

        `last_s` is for what is still to be said after the client's end.
        """
        reading = asyncio.ensure_future(self._read())
        endings = [
            asyncio.ensure_future(each.wait()) for each in (self._closed, self._ended, told_to_end)
        ]
        await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
        remaining = self._answers - {self._listening}
        if remaining and self._closed.is_set():
            endings.append(asyncio.ensure_future(asyncio.wait(remaining)))  # type: ignore[arg-type]
            await asyncio.wait(endings[-2:], timeout=last_s, return_when=asyncio.FIRST_COMPLETED)
        under_way = (reading, *endings, *self._answers)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await self._writer.finish(_LAST_S)

    async def _read(self) -> None:
        async for lines in lines_from(self._source, self._longest):
            for line in lines:
                self._answer(line_request(line.raw, FIRST_SESSION))
        self._closed.set()

    def _answer(self, request: Request, handler: Handler | None = None) -> asyncio.Task[None]:
        downstream = PipeDownstream(self._writer, self._ended, request)
        task = asyncio.ensure_future(_answered(handler or self._handler, request, downstream))
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)
        return task


async def _answered(handler: Handler, request: Request, downstream: PipeDownstream) -> None:
    # A client that is gone needs no answer.
    with suppress(ConnectionError):
        await handler(request, downstream)


class _Exchange:
    """What the server says in response to one request."""

    def __init__(self, own_id: bytes | None = None) -> None:
        """Begin; `own_id` is the client's id, where the server knows another one."""
        self.is_over = False
        self.is_lost = False
        """The server has ended before its response."""
        self.lines: list[bytes] = []
        """What has come and was not taken."""
        self._own_id = own_id
        self._came = asyncio.Event()

    def line(self, raw: bytes, *, is_over: bool) -> None:
        """Take the next line."""
        if is_over and self._own_id is not None:
            spans = find_spans(raw, [ID_PATH])[ID_PATH]
            raw = splice(raw, [(spans[-1], self._own_id)])
        self.lines.append(raw)
        self.is_over = is_over
        self._came.set()

    def end(self, *, is_lost: bool = False) -> None:
        """Take that nothing more comes."""
        self.is_over, self.is_lost = True, is_lost
        self._came.set()

    def taken(self) -> list[bytes]:
        """Return the lines that have come since the last time."""
        lines, self.lines = self.lines, []
        self._came.clear()
        return lines

    async def more(self) -> None:
        """Wait for a line or the end."""
        if not (self.lines or self.is_over):
            await self._came.wait()


class PipeResponse:
    """A response of a server on pipes."""

    reason = b""

    def __init__(self, exchange: _Exchange, status: int, headers: RawHeaders, framing: str) -> None:
        """Begin a response: its body is `lines`, one `message`, or `events`."""
        self.status = status
        self.headers = headers
        self._exchange = exchange
        self._framing = framing

    @property
    def is_read(self) -> bool:
        """Whether the whole response has come and has been read."""
        exchange = self._exchange
        return exchange.is_over and not exchange.is_lost and not exchange.lines

    def read_now(self) -> bytes:
        """Return what has come."""
        lines = self._exchange.taken()
        if self._framing == "lines":
            return b"".join(lines)
        said = [line.strip(b"\r\n") for line in lines if classify(line) is not None]
        return b"".join(said if self._framing == "message" else [_EVENT % raw for raw in said])

    async def read(self) -> bytes:
        """Return what comes next, or none at the end."""
        while not self.is_read:
            await self._exchange.more()
            chunk = self.read_now()
            if chunk:
                return chunk
            if self._exchange.is_lost:
                raise ConnectionResetError("the server has ended")
        return b""

    def close(self) -> None:
        """Leave what has not come to the channel."""


class PipeUpstream:
    """A server on pipes as an upstream, which is started for the first request that it gets.

    Clients over HTTP have ids of their own, so the server gets others where two have the same;
    nobody else sees these.
    """

    def __init__(
        self,
        command: Sequence[str],
        longest: int,
        knows: Knows,
        told_to_end: asyncio.Event,
        cwd: Path | None,
    ) -> None:
        """Prepare to start it; `pipe_upstream` says how."""
        self.on_own_line: Callable[[], None] = lambda: None
        """Called when it has said something of its own accord for the first time."""
        self.exit_code: int | None = None
        """Once it has ended; None where it was never started."""
        self._told_to_end = told_to_end
        self._command, self._knows, self._cwd = command, knows, cwd
        self._longest = longest
        self._running = ExitStack()
        self._server: ServerProcess | None = None
        self._reading: asyncio.Future[None] | None = None
        self._own_id: bytes | None = None
        self._line = b""
        self._ids = count(1)
        self._is_heard = False
        self._has_spoken = False
        self._listening: _Exchange | None = None
        self._channel: Channel[_Exchange] | None = None

    def start(self) -> LineWriter:
        """Start the server, unless it runs; return what it is spoken to through.

        Raises:
            CommandError: it can't be run.
        """
        if self._server is None:
            starting = server_process(self._command, self._knows, self._cwd, _GRACE)
            self._server = self._running.enter_context(starting)
            self._channel = Channel(self._begin)
            self._reading = asyncio.ensure_future(self._read(self._server, self._channel))
        return self._server.writer

    def _begin(self, request: Request) -> _Exchange:
        exchange = _Exchange(self._own_id)
        if opens_channel(request):
            self._listening = exchange
        return exchange

    async def _read(self, server: ServerProcess, channel: Channel[_Exchange]) -> None:
        async for lines in server.lines(self._longest):
            for line in lines:
                exchange, is_over = channel.server_line(line.raw)
                exchange.line(line.raw, is_over=is_over)
                if exchange is self._listening and not self._has_spoken:
                    self._has_spoken = True
                    self.on_own_line()
        self._channel = None
        for exchange, _ in channel.ended(by_server=True):
            exchange.end(is_lost=True)

    async def send(self, request: Request, _headers: Headers) -> PipeResponse:
        """Say what a request says, and return the response when it has begun.

        Raises:
            OSError: the server can't be started, or has ended.
        """
        try:
            writer = self.start()
        except CommandError as error:
            raise OSError(0, str(error)) from None
        if opens_channel(request) and self._listening is not None:
            return PipeResponse(self._listening, NO_STATUS, (), "lines")
        if not request.is_line and request.method != "POST":
            return self._listened(request)
        exchange = self._said(request)
        writer.write(self._line)
        await writer.room()
        if request.is_line:
            return PipeResponse(exchange, NO_STATUS, (), "lines")
        await exchange.more()
        if exchange.is_lost and not exchange.lines:
            raise ConnectionResetError("the server has ended")
        if exchange.is_over and not exchange.lines:
            return PipeResponse(exchange, ACCEPTED, (), "message")
        if exchange.is_over and len(exchange.lines) == 1:
            return PipeResponse(exchange, 200, _JSON, "message")
        return PipeResponse(exchange, 200, _STREAM, "events")

    def _said(self, request: Request) -> _Exchange:
        """Return the exchange of a request, whose line is to be written."""
        if self._channel is None:
            raise ConnectionResetError("the server has ended")
        body = on_one_line(request.body)
        message = classify(body)
        self._own_id = None
        if message is not None and message.kind is Kind.REQUEST and not request.is_line:
            body = self._with_free_id(body, message, self._channel)
        self._line = body + b"\n"
        exchange, is_over = self._channel.client_line(self._line)
        if is_over:
            exchange.end()
        return exchange

    def _with_free_id(self, body: bytes, message: Message, channel: Channel[_Exchange]) -> bytes:
        """Return a request with an id that no other client's request has just now."""
        if not channel.is_pending(message.id or ""):
            return body
        self._own_id = message.spelled(ID_PATH)
        spans = find_spans(body, [ID_PATH])[ID_PATH]
        return splice(body, [(spans[-1], b'"mrtr-%d"' % next(self._ids))])

    def _listened(self, request: Request) -> PipeResponse:
        """Return the stream of what the server says of its own accord, which one client gets."""
        is_stream = request.method == "GET" and EVENT_STREAM in request.header("accept")
        if is_stream and self._listening is not None and not self._is_heard:
            self._is_heard = True
            return PipeResponse(self._listening, 200, _STREAM, "events")
        nothing = _Exchange()
        nothing.end()
        return PipeResponse(nothing, 405, ((b"Allow", b"POST"),), "message")

    async def close(self) -> None:
        """End the server."""
        server, reading = self._server, self._reading
        if server is None or reading is None:
            return
        closing = asyncio.ensure_future(server.close_stdin())
        await server.ended(self._told_to_end, reading)
        closing.cancel()
        reading.cancel()
        self.exit_code = server.exit_code
        self._running.close()


@asynccontextmanager
async def pipe_upstream(
    command: Sequence[str],
    longest: int,
    knows: Knows,
    told_to_end: asyncio.Event | None = None,
    cwd: Path | None = None,
) -> AsyncIterator[PipeUpstream]:
    """Give a server on pipes, which ends with the block, or when `told_to_end` is set.

    `knows` is told which credentials it is given.
    """
    upstream = PipeUpstream(command, longest, knows, told_to_end or asyncio.Event(), cwd)
    try:
        yield upstream
    finally:
        await upstream.close()
