"""A server on pipes as an upstream that takes requests.

Rule: a client over HTTP has ids of its own, so the server gets others where two clients have the
same; nobody else sees these.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Final

from mrtr_cassette.core.exchange.transports import on_one_line
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, Kind, Message, classify
from mrtr_cassette.core.record.channel import Channel
from mrtr_cassette.core.secrets.credentials import Knows
from mrtr_cassette.core.wire.http import ACCEPTED, EVENT_STREAM, NO_STATUS, Headers, Request
from mrtr_cassette.core.wire.jsonbytes import find_spans, splice
from mrtr_cassette.core.wire.lines import Line, opens_channel
from mrtr_cassette.shell.line_pipes import LineWriter, close_pipe, read_lines
from mrtr_cassette.shell.server_process import CommandError, ServerProcess, server_process
from mrtr_cassette.shell.transport import RawHeaders

_JSON: Final[RawHeaders] = ((b"Content-Type", b"application/json"),)
_STREAM: Final[RawHeaders] = ((b"Content-Type", EVENT_STREAM.encode()),)
_EVENT: Final = b"event: message\ndata: %b\n\n"
_CLOSED_S: Final = 2.0
"""Seconds that the server has for its end after its stdin was closed."""
_TERMINATED_S: Final = 1.0
"""Seconds that it has after SIGTERM."""
_TOLD_S: Final = 0.5
"""The same where this process was told to end: whoever told it may kill it after a second."""


class _Exchange:
    """What the server says in response to one request.

    Attributes:
        is_over: nothing more comes.
        is_lost: the server has ended before its response.
    """

    def __init__(self, own_id: bytes | None = None) -> None:
        """Begin; `own_id` is the client's id, where the server knows another one."""
        self.is_over = False
        self.is_lost = False
        self._own_id = own_id
        self._lines: list[bytes] = []
        self._came = asyncio.Event()

    @property
    def waiting(self) -> int:
        """How many lines have not been taken."""
        return len(self._lines)

    def line(self, raw: bytes, *, is_over: bool) -> None:
        """Take the next line."""
        if is_over and self._own_id is not None:
            spans = find_spans(raw, [ID_PATH])[ID_PATH]
            raw = splice(raw, [(spans[-1], self._own_id)])
        self._lines.append(raw)
        self.is_over = is_over
        self._came.set()

    def end(self, *, is_lost: bool = False) -> None:
        """Take that nothing more comes."""
        self.is_over, self.is_lost = True, is_lost
        self._came.set()

    def taken(self) -> list[bytes]:
        """Return the lines that have come since the last time."""
        lines, self._lines = self._lines, []
        self._came.clear()
        return lines

    async def more(self) -> None:
        """Wait for a line or the end."""
        if not (self._lines or self.is_over):
            await self._came.wait()


class PipeResponse:
    """A response of a server on pipes."""

    def __init__(self, exchange: _Exchange, status: int, headers: RawHeaders, framing: str) -> None:
        """Begin a response: its body is `lines`, one `message`, or `events`."""
        self.status = status
        self.headers = headers
        self.reason = b""
        self._exchange = exchange
        self._framing = framing

    @property
    def is_read(self) -> bool:
        """Whether the whole response has come and has been read."""
        exchange = self._exchange
        return exchange.is_over and not exchange.is_lost and not exchange.waiting

    def read_now(self) -> bytes:
        """Return what has come."""
        lines = self._exchange.taken()
        if self._framing == "lines":
            return b"".join(lines)
        said = [line.strip(b"\r\n") for line in lines if classify(line) is not None]
        return b"".join(said if self._framing == "message" else [_EVENT % raw for raw in said])

    async def read(self) -> bytes:
        """Return what comes next, or none at the end."""
        exchange = self._exchange
        while not self.is_read:
            await exchange.more()
            chunk = self.read_now()
            if chunk:
                return chunk
            if exchange.is_lost:
                raise ConnectionResetError("the server has ended")
        return b""

    def close(self) -> None:
        """Leave what has not come to the channel."""


class PipeUpstream:
    """A server on pipes, which is started for the first request that it gets.

    Attributes:
        on_own_line: called when it has said something of its own accord for the first time.
        told_to_end: whatever waits for the server waits no more once this is set.
        exit_code: its exit code, once it has ended; None where it was never started.
    """

    def __init__(
        self, command: Sequence[str], longest: int, knows: Knows, cwd: Path | None = None
    ) -> None:
        """Prepare to start it, in a directory.

        Args:
            longest: the most bytes of a line.
            knows: sees what it says, and is told which credentials it is given.
        """
        self.on_own_line: Callable[[], None] = lambda: None
        self.told_to_end = asyncio.Event()
        self.exit_code: int | None = None
        self._command = command
        self._longest = longest
        self._knows = knows
        self._cwd = cwd
        self._running = ExitStack()
        self._server: ServerProcess | None = None
        self._writer: LineWriter | None = None
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
        if self._writer is None:
            starting = server_process(self._command, self._knows, self._cwd)
            self._server = self._running.enter_context(starting)
            self._channel = Channel(self._begin)
            self._writer = LineWriter(self._server.stdin.fileno(), lambda: None)
            read_lines(self._server.stdout.fileno(), self._longest, self._take)
        return self._writer

    def _begin(self, request: Request) -> _Exchange:
        exchange = _Exchange(self._own_id)
        if opens_channel(request):
            self._listening = exchange
        return exchange

    def _take(self, lines: Sequence[Line]) -> None:
        channel = self._channel
        if channel is None:
            return
        for line in lines:
            placed = channel.server_line(line.raw)
            placed.exchange.line(line.raw, is_over=placed.is_over)
            if placed.exchange is self._listening and not self._has_spoken:
                self._has_spoken = True
                self.on_own_line()
        if not lines:
            for exchange, _ in channel.ended(by_server=True):
                exchange.end(is_lost=True)
            self._channel = None

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
        await writer.write(self._line)
        if request.is_line:
            return PipeResponse(exchange, NO_STATUS, (), "lines")
        await exchange.more()
        if exchange.is_lost and not exchange.waiting:
            raise ConnectionResetError("the server has ended")
        if exchange.is_over and not exchange.waiting:
            return PipeResponse(exchange, ACCEPTED, (), "message")
        if exchange.is_over and exchange.waiting == 1:
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
            body = self._with_free_id(body, message)
        self._line = body + b"\n"
        exchange, is_over = self._channel.client_line(self._line)
        if is_over:
            exchange.end()
        return exchange

    def _with_free_id(self, body: bytes, message: Message) -> bytes:
        """Return a request with an id that no other client's request has just now."""
        if self._channel is None or not self._channel.is_pending(message.id or ""):
            return body
        self._own_id = message.spelled(ID_PATH)
        spans = find_spans(body, [ID_PATH])[ID_PATH]
        return splice(body, [(spans[-1], b'"mrtr-%d"' % next(self._ids))])

    def _listened(self, request: Request) -> PipeResponse:
        """Return the stream of what the server says of its own accord, which one client gets."""
        if (
            request.method == "GET"
            and EVENT_STREAM in request.header("accept")
            and self._listening is not None
            and not self._is_heard
        ):
            self._is_heard = True
            return PipeResponse(self._listening, 200, _STREAM, "events")
        nothing = _Exchange()
        nothing.end()
        return PipeResponse(nothing, 405, ((b"Allow", b"POST"),), "message")

    async def close(self) -> None:
        """End the server."""
        server, writer = self._server, self._writer
        if server is None or writer is None:
            return
        told = asyncio.ensure_future(self.told_to_end.wait())
        ended = asyncio.ensure_future(self._ended(writer, server))
        await asyncio.wait({told, ended}, return_when=asyncio.FIRST_COMPLETED)
        for waiting in (told, ended):
            waiting.cancel()
        is_told = self.told_to_end.is_set()
        await asyncio.to_thread(server.group.stop, _TOLD_S if is_told else _TERMINATED_S)
        self.exit_code = server.exit_code
        self._running.close()

    async def _ended(self, writer: LineWriter, server: ServerProcess) -> None:
        """Close the server's stdin, and give it time for its end."""
        await writer.finish(_CLOSED_S)
        close_pipe(server.stdin.fileno())
        await asyncio.to_thread(server.wait, _CLOSED_S)


@asynccontextmanager
async def pipe_upstream(
    command: Sequence[str], longest: int, knows: Knows, cwd: Path | None = None
) -> AsyncIterator[PipeUpstream]:
    """Give a server on pipes, which ends with the block."""
    upstream = PipeUpstream(command, longest, knows, cwd)
    try:
        yield upstream
    finally:
        await upstream.close()
