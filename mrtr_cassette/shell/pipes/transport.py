"""The client on our own pipes as a `Downstream`, and a server on pipes as an `Upstream`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Final

from mrtr_cassette.core.cassette.transports import FIRST_SESSION, on_one_line
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.jsonrpc import (
    ID_PATH,
    Kind,
    classify,
    server_message,
    server_messages,
)
from mrtr_cassette.core.protocol.methods import INITIALIZE
from mrtr_cassette.core.record.recorder import Channel
from mrtr_cassette.core.secrets.credentials import WasGiven
from mrtr_cassette.core.wire.http import (
    ACCEPTED,
    EVENT_STREAM,
    NO_STATUS,
    SESSION_HEADER,
    Headers,
    Request,
    channel_request,
    line_request,
    opens_channel,
)
from mrtr_cassette.core.wire.jsonbytes import find_spans, splice
from mrtr_cassette.shell.http.transport import Handler, RawHeaders
from mrtr_cassette.shell.pipes.lines import STDIN, STDOUT, LineWriter, reads_from
from mrtr_cassette.shell.pipes.processes import CommandError, Grace, ServerProcess, server_process

_BEFORE_RESPONSE_S: Final = 0.005
"""Seconds between what is said during a call and its response.

The TypeScript SDK's client drops notifications that it reads together with the response.
"""
LAST_S: Final = 0.3
"""Seconds after the client's end for what is still to be said."""
_GRACE: Final = Grace(closed=2.0, terminated=1.0, told=0.5, told_and_closed=0.5)
"""A server whose clients have gone already: whoever ends this process may kill it soon."""
_JSON: Final[RawHeaders] = ((b"Content-Type", b"application/json"),)
_STREAM: Final[RawHeaders] = ((b"Content-Type", EVENT_STREAM.encode()),)
_EVENT: Final = b"event: message\ndata: %b\n\n"


class PipeDownstream:
    """A client on a pipe, to which one request is answered; it gets nothing but messages.

    `ended` is set when the recorded server ended.
    """

    def __init__(self, writer: LineWriter, ended: asyncio.Event, request: Request) -> None:
        self._writer = writer
        self._ended = ended
        self._is_channel = opens_channel(request)
        self._has_spoken = False
        message = read_call(request).message
        self._responds = message is not None and message.kind is Kind.REQUEST

    def begin(self, status: int, headers: Headers, reason: str | None = None) -> None:
        """Do nothing: there is no head."""

    async def send(self, chunk: bytes = b"", *, is_last: bool = False) -> None:
        """Write lines."""
        if chunk:
            if is_last and self._has_spoken:
                await asyncio.sleep(_BEFORE_RESPONSE_S)
            self._has_spoken = True
            self._writer.write(chunk)
            await self._writer.room()
        if is_last and self._is_channel:
            self._ended.set()

    async def send_whole(self, status: int, _headers: Headers, body: bytes) -> None:
        """Write recorded lines, or our own response to a request."""
        if status == NO_STATUS:
            await self.send(body, is_last=True)
        elif self._responds and body:
            self._writer.write(body + b"\n")

    def break_off(self) -> None:
        """End as the recorded server did."""
        self._ended.set()


class PipedClient:
    """One client on a pipe: its lines are requests, which a handler answers."""

    def __init__(self, handler: Handler, longest: int) -> None:
        self._handler, self._longest = handler, longest
        self._listening: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._closed = asyncio.Event()
        self._writer = LineWriter(STDOUT, self._closed.set)
        self._answers: set[asyncio.Task[None]] = set()

    def listen(self, handler: Handler | None = None) -> None:
        """Pass on what the server says of its own accord."""
        self._listening = self._answer(channel_request(FIRST_SESSION), handler)

    async def run(self, told_to_end: asyncio.Event, last_s: float = LAST_S) -> None:
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
        await self._writer.finish(LAST_S)

    async def _read(self) -> None:
        async for brought in reads_from(STDIN, self._longest):
            for line in brought.lines:
                self._answer(line_request(line.raw, FIRST_SESSION))
        self._closed.set()

    def _answer(self, request: Request, handler: Handler | None = None) -> asyncio.Task[None]:
        downstream = PipeDownstream(self._writer, self._ended, request)

        async def answer() -> None:
            # A client that is gone needs no answer.
            with suppress(ConnectionError):
                await (handler or self._handler)(request, downstream)

        task = asyncio.ensure_future(answer())
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)
        return task


class PipeResponse:
    """The lines of a server on pipes that respond to one request."""

    status = NO_STATUS
    reason = b""
    headers: RawHeaders = ()

    def __init__(self) -> None:
        self.own_id: bytes | None = None
        """The client's id, where the server knows another one."""
        self.is_over = False
        """Nothing more comes."""
        self.is_lost = False
        """The server has ended before its response."""
        self.lines: list[bytes] = []
        """What has come and was not taken."""
        self.on_close: Callable[[], None] = lambda: None
        """Called when its client has left, or has had it all."""
        self._framing = "lines"
        self._came = asyncio.Event()

    def as_http(self, status: int, headers: RawHeaders, framing: str) -> PipeResponse:
        """Make it a response of HTTP, with one `message` or `events` as its body."""
        self.status, self.headers, self._framing = status, headers, framing
        return self

    def line(self, raw: bytes, *, is_over: bool) -> None:
        """Add a line."""
        if is_over and self.own_id is not None:
            raw = _with_id(raw, self.own_id)
        self.lines.append(raw)
        self.is_over = is_over
        self._came.set()

    def end(self, *, is_lost: bool = False) -> None:
        """Note that no more lines come."""
        self.is_over, self.is_lost = True, is_lost
        self._came.set()

    async def more(self) -> None:
        """Wait for a line or the end."""
        if not (self.lines or self.is_over):
            await self._came.wait()

    @property
    def is_read(self) -> bool:
        """Whether the whole response has come and has been read."""
        return self.is_over and not self.is_lost and not self.lines

    def read_now(self) -> bytes:
        """Return what has come."""
        lines, self.lines = self.lines, []
        self._came.clear()
        if self._framing == "lines":
            return b"".join(lines)
        said = [line.strip(b"\r\n") for line in lines if server_messages(line)]
        return b"".join(said if self._framing == "message" else [_EVENT % raw for raw in said])

    async def read(self) -> bytes:
        """Return what comes next, or none at the end."""
        while not self.is_read:
            await self.more()
            chunk = self.read_now()
            if chunk:
                return chunk
            if self.is_lost:
                raise ConnectionResetError("the server has ended")
        return b""

    def close(self) -> None:
        """Leave it to the channel, which reads on."""
        self.on_close()


def _with_id(message: bytes, identity: bytes) -> bytes:
    spans = find_spans(message, [ID_PATH])[ID_PATH]
    return splice(message, [(spans[-1], identity)])


def _empty(status: int, headers: RawHeaders = ()) -> PipeResponse:
    response = PipeResponse().as_http(status, headers, "message")
    response.end()
    return response


class PipeUpstream:
    """A server on pipes as an upstream, which is started for the first request that it gets.

    Clients over HTTP have ids of their own, so the server gets others where two have the same;
    nobody else sees these. Those of the 2025 era get sessions, as they listen in one only.
    """

    def __init__(
        self, start: Callable[[], AbstractContextManager[ServerProcess]], longest: int
    ) -> None:
        self.on_own_line: Callable[[], None] | None = None
        """Called when it has said something of its own accord for the first time."""
        self.exit_code: int | None = None
        """Once it has ended; None where it was never started."""
        self._start, self._longest = start, longest
        self._running = ExitStack()
        self._server: ServerProcess | None = None
        self._reading: asyncio.Future[None] | None = None
        self._ids = count(1)
        self._sessions: dict[str, None] = {}
        self._has_http = False
        self._heard: PipeResponse | None = None
        """The stream of the client over HTTP that listens to the server."""
        self._heard_in = ""
        """Its session."""
        self._listening = PipeResponse()
        self._channel: Channel[PipeResponse] | None = None

    async def _read(self, server: ServerProcess, channel: Channel[PipeResponse]) -> None:
        async for brought in server.reads(self._longest):
            for line in brought.lines:
                response, is_over = channel.server_line(line.raw)
                if response is self._listening and self._has_http:
                    response = self._listener(line.raw, channel)
                response.line(line.raw, is_over=is_over)
                if response is self._listening and self.on_own_line is not None:
                    self.on_own_line()
                    self.on_own_line = None
        self._channel = None
        for response, _ in channel.ended(by_server=True):
            response.end(is_lost=True)
        if self._heard is not None:
            self._heard.end(is_lost=True)

    def _listener(self, line: bytes, channel: Channel[PipeResponse]) -> PipeResponse:
        """Return the stream for what the server says of its own accord.

        A question is no longer its own where nobody listens: the latest call has a stream.
        """
        message = server_message(line)
        is_question = message is not None and message.kind is Kind.REQUEST
        call = channel.latest_call if is_question else None
        return self._heard or call or self._listening

    async def send(self, request: Request, _headers: Headers) -> PipeResponse:
        """Send a request, and return the response when it has begun.

        Raises:
            OSError: the server can't be started, or has ended.
        """
        if self._server is None:
            try:
                self._server = self._running.enter_context(self._start())
            except CommandError as error:
                raise OSError(0, str(error)) from None
            self._channel = Channel(
                lambda said: self._listening if opens_channel(said) else PipeResponse()
            )
            self._reading = asyncio.ensure_future(self._read(self._server, self._channel))
        if opens_channel(request):
            return self._listening
        if not request.is_line:
            self._has_http = True
            if request.header(SESSION_HEADER) not in ("", *self._sessions):
                return _empty(404)
            if request.method != "POST":
                return self._listened(request)
        response = self._said(request, self._server)
        await self._server.writer.room()
        if request.is_line:
            return response
        try:
            await response.more()
        except asyncio.CancelledError:
            response.close()
            raise
        return self._begun(request, response)

    def _begun(self, request: Request, response: PipeResponse) -> PipeResponse:
        """Return a response over HTTP of which something has come, or the end.

        Raises:
            OSError: the server has ended.
        """
        if response.is_lost and not response.lines:
            raise ConnectionResetError("the server has ended")
        if response.is_over and not response.lines:
            return response.as_http(ACCEPTED, (), "message")
        session = self._opened(request, response)
        if response.is_over and len(response.lines) == 1:
            return response.as_http(200, (*_JSON, *session), "message")
        return response.as_http(200, (*_STREAM, *session), "events")

    def _opened(self, request: Request, response: PipeResponse) -> RawHeaders:
        """Open a session for a client that begins, unless the server refuses; return its header."""
        said = [message for message in map(server_message, response.lines) if message is not None]
        is_refused = any("error" in message.tree for message in said)
        if read_call(request).method != INITIALIZE or is_refused:
            return ()
        session = token_hex(16)
        self._sessions[session] = None
        return ((SESSION_HEADER.encode(), session.encode()),)

    def _said(self, request: Request, server: ServerProcess) -> PipeResponse:
        """Write a request's line, with another id if the client's own is in use."""
        if self._channel is None:
            raise ConnectionResetError("the server has ended")
        body = on_one_line(request.body)
        message, own_id = classify(body), None
        is_request = message is not None and message.kind is Kind.REQUEST and not request.is_line
        if message and is_request and self._channel.is_pending(message.id or ""):
            own_id = message.spelled(ID_PATH)
            body = _with_id(body, b'"mrtr-%d"' % next(self._ids))
        response, is_over = self._channel.client_line(body + b"\n")
        response.own_id = own_id
        if not request.is_line:
            response.on_close = partial(self._channel.given_up, response)
        if is_over:
            response.end()
        server.writer.write(body + b"\n")
        return response

    def _listened(self, request: Request) -> PipeResponse:
        """Return the stream of the server's own messages, which one client at a time gets."""
        session = request.header(SESSION_HEADER)
        if request.method == "DELETE" and session:
            del self._sessions[session]
            if self._heard is not None and self._heard_in == session:
                self._heard.end()
            return _empty(204)
        is_stream = request.method == "GET" and EVENT_STREAM in request.header("accept")
        if not is_stream or self._heard is not None:
            return _empty(405, ((b"Allow", b"POST"),))
        self._heard = heard = PipeResponse()
        self._heard_in = session
        heard.lines = self._listening.lines
        self._listening.lines = []
        heard.on_close = self._leave
        return heard.as_http(200, _STREAM, "events")

    def _leave(self) -> None:
        if self._heard is not None:
            self._listening.lines = self._heard.lines
        self._heard = None

    async def close(self, told_to_end: asyncio.Event) -> None:
        """End the server."""
        server, reading = self._server, self._reading
        if server is None or reading is None:
            return
        closing = asyncio.ensure_future(server.close_stdin())
        await server.ended(told_to_end, reading)
        closing.cancel()
        reading.cancel()
        self.exit_code = server.exit_code
        self._running.close()


@asynccontextmanager
async def pipe_upstream(
    command: Sequence[str],
    longest: int,
    was_given: WasGiven,
    told_to_end: asyncio.Event | None = None,
    cwd: Path | None = None,
) -> AsyncIterator[PipeUpstream]:
    """Open a server on pipes until the block ends or `told_to_end` is set."""
    upstream = PipeUpstream(partial(server_process, command, was_given, cwd, _GRACE), longest)
    try:
        yield upstream
    finally:
        await upstream.close(told_to_end or asyncio.Event())
