"""An HTTP/1 server (RFC 9112): parses requests, calls a handler, and frames the responses."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Final, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from mrtr_cassette.core.cassette.sessions import EndpointPassing
from mrtr_cassette.core.protocol.origins import (
    ServerOrigin,
    authorization_state,
    path_in,
    with_client_state,
)
from mrtr_cassette.core.wire.http import (
    Headers,
    Request,
    header_value,
    is_event_stream,
    without_header,
)
from mrtr_cassette.errors import internal_error, printable, printable_lines
from mrtr_cassette.options import ListeningOptions
from mrtr_cassette.shell.http.access import Listener, refusal_of
from mrtr_cassette.shell.http.transport import (
    TEXT_HEADERS,
    Handler,
    RawHeaders,
    ResponseHead,
    header_texts,
    render_head,
)
from mrtr_cassette.terms import in_terms

_NOT_HANDLED: Final = "the request could not be handled"
_LAST_CHUNK = b"0\r\n\r\n"
_WITHOUT_BODY = frozenset({204, 304})
_HEAD_OF_NO_RESPONSE = ResponseHead(b"", has_length=False)
_LINGER_S = 10.0
"""Seconds for a client that is still sending to read why it is refused."""

_TLS_HANDSHAKE = b"\x16\x03"
"""How a client begins that speaks TLS (RFC 8446, section 5.1)."""

_SHUTDOWN_S = 1.0
"""Seconds in which a client can take what was sent; its request has been cancelled before."""

_ORIGIN_IN_TARGET = re.compile("^[^/?]+://[^/?]*/?")

_LISTEN_BACKLOG = 1024
"""Connections that may wait to be accepted."""


@dataclass(slots=True, eq=False)
class ReceivedRequest:
    """A request as it is received: the head is there, and the body as far as it has come."""

    method: str
    target: str
    raw_headers: RawHeaders
    takes_chunks: bool
    """Its client speaks HTTP/1.1; an older one knows the end of a body by the close."""

    keep_alive: bool
    """The connection stays open after it."""

    body: bytearray = field(default_factory=bytearray)

    def head_without_upgrade(self) -> bytes:
        """Return its head again, for a parser that reads its body."""
        target = self.target.encode("utf-8", "surrogateescape")
        lines = []
        for name, value in self.raw_headers:
            if name.lower() != b"upgrade":
                lines.append(b"%b: %b\r\n" % (name, value))

        return b"%b %b HTTP/1.1\r\n%b\r\n" % (
            self.method.encode(),
            target,
            b"".join(lines),
        )


@dataclass(slots=True, eq=False)
class ResponseChanges:
    """What is changed in a response before it is sent."""

    translate_headers: Callable[[Headers], Headers]
    rewrite_body: Callable[[bytes], bytes] | None = None
    """Changes the body, if it is JSON; it is sent whole then."""

    endpoint: EndpointPassing | None = None
    """Changes the body, if it is an event stream."""

    _held_body: bytearray | None = None

    def changed_headers(self, headers: Headers) -> Headers:
        """Return the headers as they are sent."""
        headers = self.translate_headers(headers)
        if self.rewrite_body is not None and _announces_plain_json(headers):
            self._held_body = bytearray()
            headers = without_header(headers, "content-length")

        if self.endpoint is not None and not is_event_stream(headers):
            self.endpoint = None

        return headers

    def changed_chunk(self, chunk: bytes, *, is_last: bool) -> bytes | None:
        """Return bytes of the body as they are sent; None while it is held back."""
        if self.rewrite_body is not None and self._held_body is not None:
            self._held_body += chunk
            if not is_last:
                return None

            chunk = self.rewrite_body(bytes(self._held_body))

        if self.endpoint is not None:
            chunk = self.endpoint.feed(chunk)
            if is_last:
                chunk += self.endpoint.release_held_bytes()

        return chunk


@dataclass(slots=True, eq=False)
class HttpDownstream:
    """A client and its request.

    A response has the headers that it is given, and those that its framing needs: no date, no
    server and no content type that nobody sent.
    """

    connection: _ClientConnection
    request: ReceivedRequest
    changes: ResponseChanges | None = None
    """What is changed in the response; None: nothing."""

    sent_bytes: int = 0
    """Bytes of the response's body."""

    is_started: bool = False
    _rendered_head: ResponseHead = _HEAD_OF_NO_RESPONSE
    _has_body: bool = False
    _is_chunked: bool = False

    def begin_response(
        self, status: int, headers: Headers, reason: str | None = None
    ) -> None:
        """Begin a response that comes in chunks; the head is sent with the first of them."""
        if self.changes is not None:
            headers = self.changes.changed_headers(headers)

        self._rendered_head = render_head(status, headers, reason)
        self._has_body = self.request.method != "HEAD" and status not in _WITHOUT_BODY

    async def send_response(self, status: int, headers: Headers, body: bytes) -> None:
        """Send a whole response in one write."""
        self.begin_response(status, headers)
        await self.send_chunk(body, is_last=True)

    async def send_chunk(self, chunk: bytes = b"", *, is_last: bool = False) -> None:
        """Send the head, if it has not been sent, and the next bytes of the body."""
        if self.changes is not None:
            changed_chunk = self.changes.changed_chunk(chunk, is_last=is_last)
            if changed_chunk is None:
                return

            chunk = changed_chunk

        self.sent_bytes += len(chunk)
        parts_to_write: list[bytes] = []
        if not self.is_started:
            parts_to_write.append(self._started_head(len(chunk), is_last=is_last))

        if chunk and self._has_body:
            if self._is_chunked:
                parts_to_write += [b"%x\r\n" % len(chunk), chunk, b"\r\n"]
            else:
                parts_to_write.append(chunk)

        if is_last and self._is_chunked:
            parts_to_write.append(_LAST_CHUNK)

        if parts_to_write:
            await self.connection.write(parts_to_write)

    def break_off(self) -> None:
        """End the response so that the client sees that it is incomplete."""
        # What was sent still arrives; the last chunk, or the rest of the length, does not.
        self.connection.transport.close()

    def _started_head(self, size: int, *, is_last: bool) -> bytes:
        """Return the head, before the first bytes of the body."""
        self.is_started = True
        framing = b""
        if self._has_body and not self._rendered_head.has_length:
            if is_last:
                framing = b"Content-Length: %d\r\n" % size
            elif self.request.takes_chunks:
                self._is_chunked = True
                framing = b"Transfer-Encoding: chunked\r\n"

        connection = b"" if self.request.keep_alive else b"Connection: close\r\n"
        return b"".join(
            (b"HTTP/1.1", self._rendered_head.raw, framing, connection, b"\r\n")
        )


def _announces_plain_json(headers: Headers) -> bool:
    """Tell whether the headers of a response announce JSON without a content coding."""
    is_json = "json" in header_value(headers, "content-type")
    return is_json and not header_value(headers, "content-encoding")


HttpHandler = Callable[[Request, HttpDownstream], Awaitable[None]]
"""A `transport.Handler` that may ask more of a client."""


class OriginRewriter:
    """Stands before a handler that knows the server's origin; clients read the one they called.

    So clients come here to be authorized, and a cassette is the same on any port. The URL may have
    a path, under which all paths of the server are.
    """

    def __init__(self, handler: Handler, origin: ServerOrigin, url: str) -> None:
        self._inner_handler = handler
        self._server_origin = origin
        self._own_url = url
        self._path_prefix = path_in(url)
        self.elsewhere: dict[str, None] = {}
        """Other authorization servers that clients were sent to."""
        self._translated_headers = lru_cache(maxsize=1024)(
            lambda called_origin, headers: self._server_origin.headers_with_origin(
                headers, called_origin
            )
        )

    def answer_request(
        self, request: Request, client: HttpDownstream
    ) -> Awaitable[None]:
        """Answer one request."""
        called_origin = _called_origin(request.headers, self._own_url)
        changes = ResponseChanges(partial(self._translated_headers, called_origin))
        client.changes = changes
        if self._path_prefix and request.method == "GET":
            changes.endpoint = EndpointPassing(self._server_origin, self._path_prefix)

        registers = self._server_origin.registers_client(request)
        if request.method == "GET" or registers or b"resource=" in request.body:
            return self._pass_on_authorization(request, client, changes, called_origin)

        return self._inner_handler(request, client)

    async def _pass_on_authorization(
        self,
        request: Request,
        client: HttpDownstream,
        changes: ResponseChanges,
        called_origin: str,
    ) -> None:
        """Pass on a request that may be for authorization; its response keeps the `state`."""
        state = authorization_state(request.target)
        if state is not None:
            changes.translate_headers = lambda headers: with_client_state(
                self._translated_headers(called_origin, headers), state
            )

        if self._server_origin.asks_for_metadata(request):
            changes.rewrite_body = partial(self._document_for_client, called_origin)
        elif self._server_origin.registers_client(request):
            changes.rewrite_body = partial(
                self._server_origin.registration_with_origin, origin=called_origin
            )

        await self._inner_handler(
            self._server_origin.request_with_origin(request, called_origin), client
        )

    def _document_for_client(self, called_origin: str, body: bytes) -> bytes:
        """Return a document with the called origin; take note of other authorization servers."""
        for origin in self._server_origin.other_authorization_servers(body):
            self.elsewhere[f"the authorization server {origin}"] = None

        return self._server_origin.document_with_origin(body, called_origin)


@lru_cache(maxsize=1024)
def _called_origin(headers: Headers, url: str) -> str:
    """Return the origin that a client has called, perhaps through a balancer that speaks TLS."""
    host = header_value(headers, "host")
    if not host:
        # HTTP/1.0 has none.
        return url

    is_secure = header_value(headers, "x-forwarded-proto").lower() == "https"
    scheme = "https" if is_secure else "http"
    return f"{scheme}://{host}{path_in(url)}"


class Service:
    """What the connections of one server have in common."""

    def __init__(
        self,
        handler: HttpHandler,
        options: ListeningOptions,
        complain: Callable[[str], None],
    ) -> None:
        """Serve requests by a handler; `complain` takes a line about what can't be handled."""
        self.handler = handler
        self.options = options
        self.complain = complain
        self.connections: set[_ClientConnection] = set()
        self.is_ending = False
        """No request is begun any more."""
        # A client sends the same headers with call after call.
        self.refusal_of = lru_cache(maxsize=1024)(partial(refusal_of, options=options))

    def new_connection(self) -> asyncio.Protocol:
        """Return a new connection of a client."""
        return _ClientConnection(self)


class _RefusedError(Exception):
    """A request is refused, with this status and text."""

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        self.text = text


class _RequestReader:
    """Reads requests, each of them whole, from the bytes of a client."""

    def __init__(self, max_body: int, send_continue: Callable[[], None]) -> None:
        """Read bodies of `max_body` bytes at most; `send_continue` asks the client for one."""
        self.received: deque[ReceivedRequest] = deque()
        """The requests that are complete, and not taken yet."""
        self.incoming_request: ReceivedRequest | None = None
        """The request of which the head has come, and not all of the body."""
        self.is_done = False
        """Further bytes are ignored."""
        self._max_body = max_body
        self._send_continue = send_continue
        self._parser = HttpRequestParser(self)
        self._raw_target = b""
        self._raw_headers: list[tuple[bytes, bytes]] = []
        self._is_receiving = False

    @property
    def begun_count(self) -> int:
        """How many requests have begun to come, and are not taken yet."""
        return len(self.received) + int(self._is_receiving)

    def read_bytes(self, data: bytes) -> _RefusedError | None:
        """Read bytes that have come; return why they are refused, or None."""
        try:
            while data:
                try:
                    self._parser.feed_data(data)
                    break
                except HttpParserUpgrade as upgrade:
                    # The offer of another protocol is not taken: the request is one of this.
                    incoming = cast("ReceivedRequest", self.incoming_request)
                    self.incoming_request = None
                    data = incoming.head_without_upgrade() + data[upgrade.args[0] :]
                    self._parser = HttpRequestParser(self)
        except (HttpParserError, _RefusedError) as error:
            # After a last request the parser takes nothing.
            if not self.is_done:
                self.is_done = True
                return _refusal_of_bytes(error, data)

        return None

    # What the parser calls

    def on_message_begin(self) -> None:
        self._is_receiving = True

    def on_url(self, raw: bytes) -> None:
        self._raw_target += raw

    def on_header(self, name: bytes, value: bytes) -> None:
        # What comes after a body is left out.
        if self.incoming_request is None:
            self._raw_headers.append((name, value.strip(b" \t")))

    def on_headers_complete(self) -> None:
        parser = self._parser
        method = parser.get_method().decode()
        speaks_http_1_1 = parser.get_http_version() >= "1.1"
        if method == "CONNECT":
            text = "it asks for a tunnel, and this is the proxy of one server"
            raise _RefusedError(400, f"{_NOT_HANDLED}: {text}")

        target = self._raw_target.decode("utf-8", "surrogateescape")
        if not target.startswith("/"):
            # A client that takes us for its proxy names a whole URL.
            target = _ORIGIN_IN_TARGET.sub("/", target)

        self.incoming_request = ReceivedRequest(
            method,
            target,
            tuple(self._raw_headers),
            takes_chunks=speaks_http_1_1,
            keep_alive=speaks_http_1_1 and parser.should_keep_alive(),
        )

        headers = {name.lower(): value for name, value in self._raw_headers}
        self._raw_headers = []
        self._raw_target = b""
        if int(headers.get(b"content-length") or 0) > self._max_body:
            raise self._too_large()

        awaits_continue = headers.get(b"expect", b"").lower() == b"100-continue"
        if awaits_continue and not parser.should_upgrade():
            self._send_continue()

    def on_body(self, body: bytes) -> None:
        if self.incoming_request is not None:
            self.incoming_request.body += body
            if len(self.incoming_request.body) > self._max_body:
                raise self._too_large()

    def on_message_complete(self) -> None:
        if self.incoming_request is None or self._parser.should_upgrade():
            return

        self.received.append(self.incoming_request)
        self.is_done = not self.incoming_request.keep_alive
        self.incoming_request = None
        self._is_receiving = False

    def _too_large(self) -> _RefusedError:
        """Return the refusal of a request whose body has more than `max_body` bytes."""
        text = f"the body has more than {self._max_body:,} bytes"
        return _RefusedError(413, f"{text}; see <<max_body>>")


class _ClientConnection(asyncio.Protocol):
    """One connection of a client: its requests are read whole, and handled one after the other."""

    transport: asyncio.Transport

    def __init__(self, service: Service) -> None:
        self.request_task: asyncio.Task[None] | None = None
        """Handles the request under way; None between requests."""
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        """Is done when the connection is closed."""
        self._service = service
        self._reader = _RequestReader(service.options.max_body, self._send_continue)
        self._current_exchange: HttpDownstream | None = None
        self._pending_refusal: _RefusedError | None = None
        self._room_to_write: asyncio.Future[None] | None = None

    async def write(self, parts: Sequence[bytes]) -> None:
        """Write, and wait until the client has taken enough of what was written.

        Raises:
            ConnectionResetError: nobody is there any more.
        """
        if self.transport.is_closing():
            raise ConnectionResetError("the client is gone")

        self.transport.writelines(parts)
        if self._room_to_write is not None:
            await self._room_to_write

    def close_after_request(self) -> None:
        """Close the connection after the request that is being handled or received."""
        request_under_way = self._reader.incoming_request
        if self._current_exchange is not None:
            request_under_way = self._current_exchange.request

        if request_under_way is None:
            self.transport.close()
        else:
            request_under_way.keep_alive = False

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._service.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._reader.is_done:
            return

        refusal = self._reader.read_bytes(data)
        if refusal is not None:
            # The client's earlier requests are answered first.
            self._pending_refusal = refusal
            if refusal.status == 400:
                self._service.complain(f"a {refusal.text.removeprefix('the ')}")

        is_busy = self._current_exchange is not None
        request_count = self._reader.begun_count + int(is_busy)
        if request_count > 1:
            # What comes after the first bytes of a request waits for its turn.
            self.transport.pause_reading()

        self._begin_next_request()

    def pause_writing(self) -> None:
        # The client does not read.
        self._room_to_write = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._room_to_write is not None and not self._room_to_write.done():
            self._room_to_write.set_result(None)

        self._room_to_write = None

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's own
        self._service.connections.discard(self)
        self.resume_writing()
        if self.request_task is not None:
            self.request_task.cancel()

        self.closed.set_result(None)

    def _send_continue(self) -> None:
        """Ask the client for the body that it waits with."""
        self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # One request after the other

    def _begin_next_request(self) -> None:
        """Begin the next request if none is under way; if none waits, read on or refuse."""
        if self._current_exchange is not None or self.transport.is_closing():
            return

        if self._reader.received and self._service.is_ending:
            self.transport.close()
        elif self._reader.received:
            request = self._reader.received.popleft()
            self._current_exchange = HttpDownstream(self, request)
            self.request_task = self._loop.create_task(
                self._handle_request(self._current_exchange)
            )
        else:
            self.transport.resume_reading()
            if self._pending_refusal is not None:
                self._send_refusal(self._pending_refusal)

    async def _handle_request(self, client: HttpDownstream) -> None:
        """Have a request handled, or refuse it; then begin the next, or close the connection."""
        service = self._service
        try:
            request = client.request
            headers = header_texts(request.raw_headers)
            refusal = service.refusal_of(headers)
            if refusal is None:
                body = bytes(request.body)
                request.body.clear()
                await service.handler(
                    Request(request.method, request.target, headers, body), client
                )
            else:
                text = in_terms(refusal, service.options.terms)
                await client.send_response(403, TEXT_HEADERS, f"{text}\n".encode())
        except (asyncio.CancelledError, ConnectionResetError):
            # Nobody takes a response any more, or nobody gives one.
            client.break_off()
        except Exception as error:  # noqa: BLE001  a fault of one request ends no other
            service.complain(f"a request could not be handled: {internal_error(error)}")
            if client.is_started:
                client.break_off()
            else:
                text = f"{_NOT_HANDLED}; the proxy's log says why\n"
                with suppress(ConnectionResetError):
                    await client.send_response(500, TEXT_HEADERS, text.encode())

        self._current_exchange = self.request_task = None
        if not client.request.keep_alive:
            self.transport.close()

        self._begin_next_request()

    def _send_refusal(self, refusal: _RefusedError) -> None:
        """Send a refusal, and close the connection when the client has read it."""
        body = f"{in_terms(refusal.text, self._service.options.terms)}\n".encode()
        framing = (("Connection", "close"), ("Content-Length", str(len(body))))
        head = render_head(refusal.status, (*TEXT_HEADERS, *framing)).raw
        self.transport.write(b"HTTP/1.1%b\r\n%b" % (head, body))
        # What still comes is read, and lost.
        self.transport.write_eof()
        self._loop.call_later(_LINGER_S, self.transport.abort)


def _refusal_of_bytes(error: Exception, data: bytes) -> _RefusedError:
    """Say why bytes are no request, without repeating any of them."""
    # An error of a function that the parser called stands behind the parser's own.
    cause = error.__context__ or error
    if isinstance(cause, _RefusedError):
        return cause

    problem = f"it is not readable HTTP ({str(cause).lower()})"
    if not isinstance(cause, HttpParserError):
        problem = internal_error(cause)
    elif data.startswith(_TLS_HANDSHAKE):
        problem = "it speaks TLS, and this address is http://"

    return _RefusedError(400, f"{_NOT_HANDLED}: {problem}")


@asynccontextmanager
async def serving(
    handler: HttpHandler,
    listener: Listener,
    options: ListeningOptions,
    log: Callable[[str], None] | None,
    *,
    drain_s: float = 0.0,
) -> AsyncIterator[None]:
    """Serve `handler` for every method and path until the block ends.

    `log` takes a line for each request that could not be handled. Requests under way when the block
    ends have `drain_s` seconds to end; then they are cancelled.
    """

    def complain(text: str) -> None:
        if log is not None:
            with suppress(OSError):
                log(printable_lines(printable(text)))

    service = Service(handler, options, complain)
    loop = asyncio.get_running_loop()
    servers = []
    for listening_socket in listener.sockets:
        server = await loop.create_server(
            service.new_connection, sock=listening_socket, backlog=_LISTEN_BACKLOG
        )
        servers.append(server)

    try:
        yield
        if drain_s:
            await _drain_connections(service, servers, drain_s)
    finally:
        for server in servers:
            server.close()

        await _end_requests(service)


async def _drain_connections(
    service: Service, servers: Sequence[asyncio.Server], seconds: float
) -> None:
    """Take no new connections, close idle ones, and the others after the response under way."""
    for server in servers:
        server.close()

    # Requests that have come begin to be handled.
    await asyncio.sleep(0)
    connections = tuple(service.connections)
    for connection in connections:
        connection.close_after_request()

    if connections:
        await asyncio.wait(
            [connection.closed for connection in connections], timeout=seconds
        )


async def _end_requests(service: Service) -> None:
    """Cancel all requests, await their ends, and close the connections."""
    service.is_ending = True
    request_tasks = []
    for connection in service.connections:
        if connection.request_task is not None:
            connection.request_task.cancel()
            request_tasks.append(connection.request_task)

    await asyncio.gather(*request_tasks, return_exceptions=True)
    connections = tuple(service.connections)
    for connection in connections:
        connection.transport.close()

    if connections:
        await asyncio.wait(
            [connection.closed for connection in connections], timeout=_SHUTDOWN_S
        )

    for connection in tuple(service.connections):
        connection.transport.abort()
