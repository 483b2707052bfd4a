"""Servers that take lines as `Upstream`: on pipes, or over HTTP+SSE."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    closing,
    suppress,
)
from functools import partial
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Final, Literal, NamedTuple

from mrtr_cassette.core.cassette.sessions import is_endpoint_event, post_target
from mrtr_cassette.core.cassette.transports import json_on_one_line
from mrtr_cassette.core.protocol.calls import read_call, session_ids_in_target
from mrtr_cassette.core.protocol.jsonrpc import (
    CANCELLED_ID_PATH,
    ID_PATH,
    TOKEN_PATH,
    Kind,
    Message,
    echoes_of_request,
    message_in,
    server_message,
    server_messages,
)
from mrtr_cassette.core.protocol.methods import INITIALIZE
from mrtr_cassette.core.protocol.origins import ServerOrigin
from mrtr_cassette.core.record.channel import Channel
from mrtr_cassette.core.secrets.credentials import (
    AddSettings,
    UserSettings,
    text_redactor,
)
from mrtr_cassette.core.secrets.rules import BUILT_IN_RULES
from mrtr_cassette.core.wire.http import (
    ACCEPTED,
    EVENT_STREAM,
    NO_STATUS,
    POST_HEADERS,
    SESSION_HEADER,
    Request,
    is_event_stream,
    opens_channel,
)
from mrtr_cassette.core.wire.jsonbytes import MemberPath, find_spans, spelled_at, splice
from mrtr_cassette.core.wire.sse import SseFramer, read_event
from mrtr_cassette.errors import printable, shorten
from mrtr_cassette.shell.http.transport import (
    ArrivingResponse,
    RawHeaders,
    Upstream,
    UpstreamResponse,
    headers_for_client,
)
from mrtr_cassette.shell.pipes.commands import credentials_given_to
from mrtr_cassette.shell.pipes.processes import (
    GracePeriods,
    ServerOnDemand,
    ServerProcess,
    server_process,
)

_STOPPING_GRACE: Final = GracePeriods(
    after_close=2.0,
    after_sigterm=1.0,
    after_end_request=0.5,
    after_end_request_and_close=0.5,
)
"""A server whose clients have gone already: whoever ends this process may kill it soon."""

_JSON_HEADERS: Final[RawHeaders] = ((b"Content-Type", b"application/json"),)
_STREAM_HEADERS: Final[RawHeaders] = ((b"Content-Type", EVENT_STREAM.encode()),)
_MESSAGE_EVENT: Final = b"event: message\ndata: %b\n\n"
_HAS_ENDED: Final = "the server has ended"
_MUTE_S: Final = 20.0
"""Seconds from a first line that is not MCP until a server counts as one that speaks another way.

Some print a line for people before they serve.
"""

_MOST_UNHEARD: Final = 1_000
"""Messages of a server that are kept for a client that listens later."""

NEEDS_PORT: Final = "a server over HTTP needs {port} in its command"

Framing = Literal["lines", "message", "events"]
"""How the lines of a server are the body of a response."""


class NotMcpError(ConnectionError):
    """What a server says on its stdout is not MCP."""


class RenamedRequest(NamedTuple):
    """A request with another id or progress token than its client's.

    Attributes:
        client_names: the client's, as it spelled them, by their members of `CallerValues`.
    """

    request: Message
    client_names: Mapping[str, bytes]

    def line_for_client(self, line: bytes) -> bytes:
        """Return a line of the server that names the request as the client does."""
        message = server_message(line)
        if message is None:
            return line

        splices = []
        for span, value in echoes_of_request(message, self.request):
            if value in self.client_names:
                splices.append((span, self.client_names[value]))

        return splice(message.raw, splices)


class PipeResponse(ArrivingResponse):
    """The lines of a server on pipes that respond to one request."""

    status = NO_STATUS
    reason = b""
    headers: RawHeaders = ()
    unread: list[bytes]

    def __init__(self) -> None:
        self.unread = []
        self.renamed_request: RenamedRequest | None = None
        """Its request, where the server knows it by other names than the client."""
        self.request_key: tuple[str, str] | None = None
        """Session and id of the request of a client over HTTP."""
        self.on_client_done: Callable[[], None] = lambda: None
        """Called when its client has left, or has had it all."""
        self._framing: Framing = "lines"

    def as_http(
        self, status: int, headers: RawHeaders, framing: Framing
    ) -> PipeResponse:
        """Make it a response of HTTP."""
        self.status = status
        self.headers = headers
        self._framing = framing

        return self

    def add_line(self, raw: bytes, *, is_over: bool) -> None:
        """Add a line."""
        if self.renamed_request is not None:
            raw = self.renamed_request.line_for_client(raw)

        self.unread.append(raw)
        self.is_over = is_over
        self.wake_reader()

    def read_now(self) -> bytes:
        """Return the bytes that have come."""
        lines = self.unread
        self.unread = []
        if self._framing == "lines":
            return b"".join(lines)

        messages = [line.strip(b"\r\n") for line in lines if server_messages(line)]
        if self._framing == "events":
            messages = [_MESSAGE_EVENT % message for message in messages]

        return b"".join(messages)

    def close(self) -> None:
        """Leave it to the channel, which reads on."""
        self.on_client_done()


def response_channel(unsolicited_stream: PipeResponse) -> Channel[PipeResponse]:
    """Return a channel whose unsolicited messages are one response, `unsolicited_stream`."""
    return Channel(
        lambda request: unsolicited_stream if opens_channel(request) else PipeResponse()
    )


def _with_value_at(message: bytes, path: MemberPath, value: bytes) -> bytes:
    """Return a JSON-RPC message with another value at a path."""
    spans = [span for _, span in find_spans(message, [path])]
    return splice(message, [(spans[-1], value)])


def _response_to_line(line: bytes, channel: Channel[PipeResponse]) -> PipeResponse:
    """Return the response to a line of the client, which has ended if nothing follows."""
    response, is_over = channel.take_client_line(line)
    if is_over:
        response.note_end()

    return response


def _fail_open_responses(channel: Channel[PipeResponse], lost: OSError) -> None:
    """End the responses under way, as the server will not respond any more."""
    for response, _ in channel.ended_exchanges(by_server=True):
        response.note_end(lost)


def _empty_response(status: int, headers: RawHeaders = ()) -> PipeResponse:
    """Return a complete HTTP response without a body."""
    response = PipeResponse().as_http(status, headers, "message")
    response.note_end()
    return response


class _McpCheck:
    """Finds out by a server's first lines whether it speaks MCP."""

    def __init__(
        self,
        without_secrets: Callable[[str], str],
        refuse_server: Callable[[NotMcpError], None],
    ) -> None:
        self._without_secrets = without_secrets
        self._refuse_server = refuse_server
        self._speaks_mcp = False
        self._timer: asyncio.TimerHandle | None = None

    def take_line(self, line: bytes) -> None:
        """Take a line; after one that is not MCP the server has some time for one that is."""
        if self._speaks_mcp:
            return

        if server_messages(line):
            self._speaks_mcp = True
            self.stop()
        elif self._timer is None and line.strip():
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_MUTE_S, self._refuse, line)

    def _refuse(self, line: bytes) -> None:
        """Refuse a server whose first line is not MCP."""
        text = self._without_secrets(line.decode(errors="replace").strip())
        first_line = shorten(printable(text))
        self._refuse_server(
            NotMcpError(
                f"its stdout isn't MCP (first line: {first_line}); {NEEDS_PORT}"
            )
        )

    def stop(self) -> None:
        """Refuse the server no more."""
        if self._timer is not None:
            self._timer.cancel()


class _RequestNames:
    """The ids and progress tokens that a server gets for the requests of clients over HTTP.

    Clients choose theirs independently: where two have the same, the server gets others.
    """

    def __init__(self, channel: Channel[PipeResponse]) -> None:
        self._channel = channel
        self._replacement_numbers = count(1)
        self._server_ids: dict[tuple[str, str], bytes] = {}
        """The server's ids of pending requests, by session and the client's id."""

    def renamed_if_in_use(self, message: Message) -> RenamedRequest | None:
        """Rename a request if one that is pending has the same id or the same progress token."""
        paths_in_use: dict[str, MemberPath] = {}
        if self._channel.is_pending(message.id or ""):
            paths_in_use["id"] = ID_PATH
        if self._channel.is_token_in_use(message.progress_token):
            paths_in_use["progress_token"] = TOKEN_PATH

        body = message.raw
        client_names = {}
        for member, path in paths_in_use.items():
            client_names[member] = message.spelled(path) or b""
            new_name = b'"mrtr-%d"' % next(self._replacement_numbers)
            body = _with_value_at(body, path, new_name)

        request = message_in(body)
        if not client_names or request is None:
            return None
        return RenamedRequest(request, client_names)

    def add_request(self, request_key: tuple[str, str], body: bytes) -> None:
        """Take note of the id by which the server knows a request."""
        self._server_ids[request_key] = spelled_at(body, ID_PATH) or b""

    def forget_request(self, request_key: tuple[str, str]) -> None:
        """Forget a request that has its response."""
        self._server_ids.pop(request_key, None)

    def with_servers_id(self, message: Message, session: str) -> bytes | None:
        """Return a message that names a request to be cancelled by the id that the server knows.

        None is returned if it would cancel the request of another client.
        """
        if message.cancelled_id is None:
            return message.raw

        server_id = self._server_ids.get((session, message.cancelled_id))
        if server_id is not None:
            return _with_value_at(message.raw, CANCELLED_ID_PATH, server_id)
        if self._channel.is_pending(message.cancelled_id):
            return None

        return message.raw


class _HttpClients:
    """The clients over HTTP of a server on pipes: their sessions, and the one that listens.

    Those of the 2025 era get sessions, as they listen in one only.
    """

    def __init__(
        self, channel: Channel[PipeResponse], unsolicited_messages: PipeResponse
    ) -> None:
        self.has_any = False
        self._channel = channel
        self._unsolicited_messages = unsolicited_messages
        """What the server says while nobody listens."""
        self._open_sessions: set[str] = set()
        self._listener_stream: PipeResponse | None = None
        """The stream of the client that listens to the server."""
        self._listener_session = ""
        """Its session."""

    def response_without_server(self, request: Request) -> PipeResponse | None:
        """Return the response to a request that the server does not get; None for all others."""
        self.has_any = True
        session = request.header(SESSION_HEADER)
        if session and session not in self._open_sessions:
            return _empty_response(404)
        if request.method != "POST":
            return self._stream_for_listener(request)

        return None

    def begun_response(self, request: Request, response: PipeResponse) -> PipeResponse:
        """Return a response over HTTP that has begun or ended.

        Raises:
            OSError: the server has ended.
        """
        if response.lost is not None and not response.unread:
            raise response.lost
        if response.is_over and not response.unread:
            return response.as_http(ACCEPTED, (), "message")

        session = self._opened_session(request, response)
        if response.is_over and len(response.unread) == 1:
            return response.as_http(200, (*_JSON_HEADERS, *session), "message")

        return response.as_http(200, (*_STREAM_HEADERS, *session), "events")

    def _opened_session(self, request: Request, response: PipeResponse) -> RawHeaders:
        """Open a session for a client that begins, unless the server refuses; return its header."""
        if read_call(request).method != INITIALIZE:
            return ()

        for line in response.unread:
            message = server_message(line)
            if message is not None and "error" in message.tree:
                return ()

        session = token_hex(16)
        self._open_sessions.add(session)
        return ((SESSION_HEADER.encode(), session.encode()),)

    def _stream_for_listener(self, request: Request) -> PipeResponse:
        """Return the stream of unsolicited messages, which one client at a time gets."""
        session = request.header(SESSION_HEADER)
        if request.method == "DELETE" and session:
            self._open_sessions.remove(session)
            if self._listener_stream is not None and self._listener_session == session:
                self._listener_stream.note_end()

            return _empty_response(204)

        is_stream = request.method == "GET" and EVENT_STREAM in request.header("accept")
        if not is_stream or self._listener_stream is not None:
            return _empty_response(405, ((b"Allow", b"POST"),))

        listener_stream = PipeResponse()
        listener_stream.unread = self._unsolicited_messages.unread
        listener_stream.on_client_done = self._keep_unread_lines
        self._unsolicited_messages.unread = []
        self._listener_stream = listener_stream
        self._listener_session = session

        return listener_stream.as_http(200, _STREAM_HEADERS, "events")

    def _keep_unread_lines(self) -> None:
        """Keep the lines that a leaving listener has not read for the next client that listens."""
        if self._listener_stream is not None:
            self._unsolicited_messages.unread = self._listener_stream.unread

        self._listener_stream = None

    def response_for_unsolicited(self, line: bytes) -> PipeResponse:
        """Return the stream for an unsolicited message of the server.

        A question goes to the stream of the latest call where nobody listens.
        """
        if self._listener_stream is not None:
            return self._listener_stream

        message = server_message(line)
        is_question = message is not None and message.kind is Kind.REQUEST
        call = self._channel.latest_call if is_question else None

        return call or self._unsolicited_messages

    def drop_oldest_unheard(self) -> None:
        """Drop what no client may read later, as none listens now."""
        unheard_lines = self._unsolicited_messages.unread
        if not server_messages(unheard_lines[-1]):
            unheard_lines.pop()

        del unheard_lines[:-_MOST_UNHEARD]

    def end_listening(self, lost: OSError) -> None:
        """End the listener's stream, with the reason for the loss of the server."""
        if self._listener_stream is not None:
            self._listener_stream.note_end(lost)


class PipeUpstream:
    """A server on pipes as an upstream, which is started for the first request that it gets."""

    def __init__(
        self,
        start: Callable[[], AbstractContextManager[ServerProcess]],
        longest_line: int,
        without_secrets: Callable[[str], str],
    ) -> None:
        self.on_unsolicited_line: Callable[[], None] | None = None
        """Called at the first unsolicited message of the server."""
        self.exit_code: int | None = None
        """Once it has ended; None where it was never started."""
        self._longest_line = longest_line
        self._server = ServerOnDemand(start, self._read_server)
        self._mcp_check = _McpCheck(without_secrets, self._fail_all_responses)
        self._loss_error: OSError | None = None
        """Why nothing more is expected of the server."""
        self._unsolicited_messages = PipeResponse()
        self._channel = response_channel(self._unsolicited_messages)
        self._request_names = _RequestNames(self._channel)
        self._http_clients = _HttpClients(self._channel, self._unsolicited_messages)

    async def _read_server(self, server: ServerProcess) -> None:
        """Take the server's lines until its stdout ends; then nothing more is expected of it."""
        async for pipe_read in server.stdout_reads(self._longest_line):
            for line in pipe_read.lines:
                self._take_line(line.raw)

        self._fail_all_responses(self._loss_error or ConnectionResetError(_HAS_ENDED))

    def _fail_all_responses(self, lost: OSError) -> None:
        """End all responses under way, and the listener's stream, with the reason for the loss."""
        self._loss_error = lost
        _fail_open_responses(self._channel, lost)
        self._http_clients.end_listening(lost)

    def _take_line(self, line: bytes) -> None:
        """Add a line of the server to the response or the stream that it belongs to."""
        self._mcp_check.take_line(line)
        response, is_over = self._channel.take_server_line(line)
        if is_over and response.request_key is not None:
            self._request_names.forget_request(response.request_key)

        has_http_clients = self._http_clients.has_any
        if response is self._unsolicited_messages and has_http_clients:
            response = self._http_clients.response_for_unsolicited(line)

        response.add_line(line, is_over=is_over)
        is_unsolicited = response is self._unsolicited_messages
        if is_unsolicited and has_http_clients:
            self._http_clients.drop_oldest_unheard()

        if is_unsolicited and self.on_unsolicited_line is not None:
            self.on_unsolicited_line()
            self.on_unsolicited_line = None

    async def send_request(self, request: Request) -> PipeResponse:
        """Send a request, and return the response when it has begun.

        Raises:
            OSError: the server can't be started, or has ended.
        """
        server = self._server.started()
        if opens_channel(request):
            return self._unsolicited_messages

        if request.is_line:
            response = self._send_line(request, server)
            await server.writer.wait_for_room()
            return response

        own_response = self._http_clients.response_without_server(request)
        if own_response is not None:
            return own_response

        response = self._send_line(request, server)
        response.on_client_done = partial(self._channel.stop_waiting_for, response)
        await server.writer.wait_for_room()
        try:
            await response.wait_for_more()
        except asyncio.CancelledError:
            response.close()
            raise

        return self._http_clients.begun_response(request, response)

    def _send_line(self, request: Request, server: ServerProcess) -> PipeResponse:
        """Write a request's line, and return the response to it."""
        if self._loss_error is not None:
            raise self._loss_error

        body = json_on_one_line(request.body)
        message = None if request.is_line else message_in(body)
        if message is None:
            return self._written_line(body, server)

        session = request.header(SESSION_HEADER)
        if message.kind is not Kind.REQUEST:
            notice = self._request_names.with_servers_id(message, session)
            if notice is None:
                return _empty_response(ACCEPTED)
            return self._written_line(notice, server)

        renamed_request = self._request_names.renamed_if_in_use(message)
        if renamed_request is not None:
            body = renamed_request.request.raw

        response = self._written_line(body, server)
        response.renamed_request = renamed_request
        response.request_key = (session, message.id or "")
        self._request_names.add_request(response.request_key, body)

        return response

    def _written_line(self, body: bytes, server: ServerProcess) -> PipeResponse:
        """Write a line to the server, and return the response to it."""
        response = _response_to_line(body + b"\n", self._channel)
        server.writer.write(body + b"\n")
        return response

    async def close(self, end_requested: asyncio.Event) -> None:
        """End the server."""
        try:
            self.exit_code = await self._server.close(end_requested)
        finally:
            self._mcp_check.stop()


@asynccontextmanager
async def pipe_upstream(
    command: Sequence[str],
    longest_line: int,
    add_settings: AddSettings,
    end_requested: asyncio.Event | None = None,
    cwd: Path | None = None,
) -> AsyncIterator[PipeUpstream]:
    """Open a server on pipes until the block ends or `end_requested` is set."""
    upstream = PipeUpstream(
        partial(server_process, command, add_settings, cwd, _STOPPING_GRACE),
        longest_line,
        text_redactor(BUILT_IN_RULES, credentials_given_to(command)),
    )
    try:
        yield upstream
    finally:
        await upstream.close(end_requested or asyncio.Event())


# HTTP+SSE: each line is posted, and one stream has all replies.
# Source: MCP 2024-11-05, "Transports", HTTP with SSE.

_LOWEST_REFUSED_STATUS = 400
"""The lowest HTTP status of a response that refuses its request."""

Connect = Callable[[AddSettings], AbstractAsyncContextManager[Upstream]]


class StreamUpstream:
    """A server of HTTP+SSE, whose stream is opened for the first line."""

    def __init__(
        self,
        http: Upstream,
        target: str,
        origin: str,
        add_settings: AddSettings,
    ) -> None:
        self._http_client = http
        self._stream_target = target
        self._server_origin = ServerOrigin(origin)
        self._add_settings = add_settings
        self._unsolicited_messages = PipeResponse()
        self._channel = response_channel(self._unsolicited_messages)
        self._reading_task: asyncio.Task[None] | None = None
        self._post_endpoint: asyncio.Future[str] | None = None
        self._stream_has_ended = False

    async def send_request(self, request: Request) -> PipeResponse:
        """Send a line, and return the response, which may come later.

        Raises:
            OSError: the server opens no stream, has ended it, or refuses the line.
        """
        if self._post_endpoint is None:
            self._post_endpoint = asyncio.get_running_loop().create_future()
            self._reading_task = asyncio.ensure_future(
                self._read_stream(self._post_endpoint)
            )

        endpoint = await asyncio.shield(self._post_endpoint)
        if opens_channel(request):
            return self._unsolicited_messages
        if self._stream_has_ended:
            raise ConnectionResetError(_HAS_ENDED)

        line = json_on_one_line(request.body)
        response = _response_to_line(line + b"\n", self._channel)
        response.on_client_done = partial(self._channel.stop_waiting_for, response)
        post = Request("POST", endpoint, POST_HEADERS, line)
        with closing(await self._http_client.send_request(post)) as response_to_post:
            if response_to_post.status >= _LOWEST_REFUSED_STATUS:
                problem = f"status {response_to_post.status} for a posted message"
                raise OSError(0, problem)

            while await response_to_post.read():
                pass

        return response

    async def _read_stream(self, endpoint: asyncio.Future[str]) -> None:
        """Read the stream until it ends; `endpoint` gets the target for posts, or the error."""
        try:
            stream_request = Request(
                "GET", self._stream_target, (("Accept", EVENT_STREAM),), b""
            )
            with closing(
                await self._http_client.send_request(stream_request)
            ) as stream:
                await self._take_events(stream, endpoint)

            if not endpoint.done():
                endpoint.set_exception(
                    OSError(0, "its stream does not say where to post")
                )
        except OSError as error:
            if not endpoint.done():
                endpoint.set_exception(error)
        finally:
            self._stream_has_ended = True
            _fail_open_responses(self._channel, ConnectionResetError(_HAS_ENDED))

    async def _take_events(
        self, stream: UpstreamResponse, endpoint: asyncio.Future[str]
    ) -> None:
        """Take a stream's events until it ends; any other response is an OSError."""
        if not is_event_stream(headers_for_client(stream.headers)):
            problem = f"status {stream.status} and no stream that says where to post"
            raise OSError(0, problem)

        framer = SseFramer()
        is_first = True
        while chunk := await stream.read():
            for event in framer.feed(chunk):
                self._take_event(event, endpoint, is_first=is_first)
                is_first = False

    def _take_event(
        self, event: bytes, endpoint: asyncio.Future[str], *, is_first: bool
    ) -> None:
        """Take an event: the endpoint, or a message for the response that it belongs to."""
        data = read_event(event, first=is_first).data
        if not data:
            return

        if not endpoint.done() and is_endpoint_event(event):
            endpoint.set_result(self._endpoint_of(data.decode("latin-1")))
            return

        line = json_on_one_line(data) + b"\n"
        response, is_over = self._channel.take_server_line(line)
        response.add_line(line, is_over=is_over)

    def _endpoint_of(self, url: str) -> str:
        """Return the target for posts from the endpoint's URL, and keep the ids in it secret."""
        if self._server_origin.path_of(url) is None:
            raise OSError(0, "it sends its client to another server")

        target = post_target(self._stream_target, url)
        spans = session_ids_in_target(target, self._stream_target)
        ids = tuple(span.slice_of(target) for span in spans)
        self._add_settings(UserSettings(secrets=ids))

        return target

    async def close(self) -> None:
        """Leave the stream."""
        if self._reading_task is not None:
            self._reading_task.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading_task


def connect_over_sse(connect: Connect, target: str, origin: str) -> Connect:
    """Return how a server of HTTP+SSE at a target is reached as one that takes lines."""

    @asynccontextmanager
    async def connected(add_settings: AddSettings) -> AsyncIterator[Upstream]:
        """Open the server, and leave its stream after the block."""
        async with connect(add_settings) as http:
            upstream = StreamUpstream(http, target, origin, add_settings)
            try:
                yield upstream
            finally:
                await upstream.close()

    return connected
