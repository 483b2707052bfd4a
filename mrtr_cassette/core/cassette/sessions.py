"""Sessions and streams of recorded exchanges, as MCP 2025-11-25 and 2024-11-05 (SSE) have them."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace

from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedExchange,
    RecordedInteraction,
)
from mrtr_cassette.core.protocol.calls import (
    NO_SESSION,
    Call,
    resumed_event_id,
    session_in,
    session_of,
)
from mrtr_cassette.core.protocol.jsonrpc import (
    Kind,
    Message,
    last_response,
    messages_in,
)
from mrtr_cassette.core.protocol.methods import PING, method_of
from mrtr_cassette.core.protocol.origins import ServerOrigin, origin_in, shown_origin
from mrtr_cassette.core.secrets.names import sealed_hash
from mrtr_cassette.core.wire.http import (
    EVENT_STREAM,
    LAST_EVENT_ID_HEADER,
    REFUSED,
    SESSION_HEADER,
    End,
    Headers,
    Request,
    Response,
    header_value,
    opens_channel,
)
from mrtr_cassette.core.wire.jsonbytes import Span, splice
from mrtr_cassette.core.wire.sse import SseFramer, event_id, event_type, read_event

_ENDPOINT_EVENT = b"endpoint"
_MESSAGE_DATA = re.compile(rb"(?:\A|[\r\n])data: ?[{\[]")
"""Matches where the data of an event is JSON."""

_MOST_BYTES_HELD = 64 * 1024
"""Bytes of an event that are held back while they may say where to post."""


def opened_session(response: Response | None) -> str:
    """Return the session that a response opens, by a header or in the URL to post to."""
    if response is None:
        return NO_SESSION

    session = header_value(response.headers, SESSION_HEADER)
    if session or not response.is_event_stream:
        return session

    _, endpoint = endpoint_piece(response)
    return NO_SESSION if endpoint is None else session_in(endpoint.decode("latin-1"))


def issued_session(exchange: RecordedExchange) -> str:
    """Return the session id that a response issued; it issues none by repeating its request's."""
    response = exchange.response
    if response is None or response.status >= REFUSED:
        return NO_SESSION

    session_in_response = opened_session(response)
    if session_in_response == session_of(exchange.request):
        return NO_SESSION
    return session_in_response


def endpoint_piece(response: Response) -> tuple[int, bytes | None]:
    """Return the URL to which a client of HTTP+SSE posts, after the index of its piece, or None."""
    for index, piece in enumerate(response.pieces):
        data = read_event(piece.raw, first=index == 0).data
        if is_endpoint_event(piece.raw):
            return index, data
        if not may_precede_endpoint(piece.raw, data):
            break

    return 0, None


def post_target(listening_target: str, url: str) -> str:
    """Return the target to which a client posts if the stream that it opened names a URL."""
    path, _, _ = url.removeprefix(origin_in(url)).partition("#")
    path = without_empty_query(path)
    if path.startswith("/"):
        return path
    if origin_in(url):
        return f"/{path}"

    base_path, _, _ = listening_target.partition("?")
    if not path.startswith("?"):
        base_path = base_path[: base_path.rfind("/") + 1]

    return base_path + path


def without_empty_query(target: str) -> str:
    """Return a target as clients spell it that send no `?` without a query."""
    return target.removesuffix("?")


def is_endpoint_event(event: bytes) -> bool:
    """Tell whether an event tells a client of HTTP+SSE where to post."""
    return _ENDPOINT_EVENT in event and event_type(event) == _ENDPOINT_EVENT


def may_precede_endpoint(event: bytes, data: bytes | None) -> bool:
    """Tell whether an event may stand before the one that says where to post: it is no message."""
    return not data or event_type(event) != b"message"


def foreign_redirect_origin(
    request: Request, status: int, headers: Headers, origin: ServerOrigin
) -> str | None:
    """Return the origin to which a response redirects a client of MCP, if it isn't the server's.

    Browsers are sent to and fro while a user is authorized, which is none of MCP.
    """
    location = ""
    if 300 <= status < 400:
        location = header_value(headers, "location")

    if origin.path_of(location) is not None:
        return None

    accept_header = request.header("accept")
    is_of_browser = request.method == "GET" and EVENT_STREAM not in accept_header
    if is_of_browser and not origin.asks_for_metadata(request):
        return None

    return shown_origin(location)


def foreign_endpoint_origin(response: Response, origin: ServerOrigin) -> str | None:
    """Return the origin at which a client of HTTP+SSE has to post, if it isn't the server's."""
    _, endpoint = endpoint_piece(response)
    url = "" if endpoint is None else endpoint.decode("latin-1")
    if origin.path_of(url) is not None:
        return None

    return shown_origin(url)


def is_listening_stream(call: Call, response: Response | None) -> bool:
    """Tell whether a response is a stream of messages that other requests caused."""
    if call.message is not None:
        is_request = call.message.kind is Kind.REQUEST
        return is_request and method_of(call.method).listens

    if opens_channel(call.request):
        return True

    is_stream = response is not None and response.is_event_stream
    return is_stream and call.request.method == "GET"


def lacks_end(call: Call, response: Response | None) -> bool:
    """Tell whether a client did not get a whole response: it left, or the server was lost.

    Streams that listen end like this, and a pipe may have no response to a cancelled call.
    """
    if response is not None and response.end is End.COMPLETE:
        return False
    if is_listening_stream(call, response):
        return False
    if response is None:
        return not call.request.is_line

    return not response.is_lines or response.end is End.BROKEN


def event_ids(response: Response | None) -> Iterator[tuple[int, str]]:
    """Yield the ids of a stream's events, each with the index of its piece."""
    if response is None or not response.is_event_stream:
        return

    for index, piece in enumerate(response.pieces):
        id_of_event = event_id(piece.raw)
        if id_of_event:
            yield index, id_of_event


def has_rpc_response(response: Response) -> bool:
    """Tell whether a stream has the JSON-RPC response that ends it."""
    return last_response(response) is not None


def ends_session(request: Request, response: Response | None) -> bool:
    """Tell whether a request ends its session; one that is refused ends nothing."""
    return request.method == "DELETE" and (response is None or response.status < 400)


def cassette_with_joined_streams(cassette: Cassette) -> Cassette:
    """Return a cassette in which interrupted streams are joined with those that resumed them."""
    streams = Streams()
    joined_responses: dict[RecordedExchange, Response] = {}
    for exchange in cassette.exchanges_by_arrival:
        stream_start = streams.stream_resumed_by(exchange)
        rest_of_stream = exchange.response
        if stream_start is None or stream_start.response is None:
            continue
        if stream_start.call.message is None:
            continue

        if rest_of_stream is not None and rest_of_stream.is_event_stream:
            response_before = joined_responses.get(stream_start, stream_start.response)
            joined_responses[stream_start] = _joined_response(
                response_before, rest_of_stream
            )

    changed_exchanges = {}
    for exchange, response in joined_responses.items():
        changed_exchanges[exchange] = replace(exchange, response=response)

    return cassette.with_exchanges(changed_exchanges)


def _joined_response(interrupted: Response, rest: Response) -> Response:
    """Return an interrupted stream with those events of its rest that it didn't have."""
    known_ids = {id_of_event for _, id_of_event in event_ids(interrupted)}
    repeated_indexes = {
        index for index, id_of_event in event_ids(rest) if id_of_event in known_ids
    }
    pieces = [*interrupted.pieces]
    for index, piece in enumerate(rest.pieces):
        if index not in repeated_indexes:
            pieces.append(piece)

    return replace(interrupted, pieces=tuple(pieces), end=rest.end)


def session_of_exchange(exchange: RecordedExchange) -> str:
    """Return the session that a request names, or else the session that its response opened."""
    return session_of(exchange.request) or opened_session(exchange.response)


class Streams:
    """The streams of a recording, by the ids of their events.

    Some servers count events anew in every stream.
    """

    def __init__(self) -> None:
        self._stream_starts_by_event: dict[tuple[str, str], list[RecordedExchange]] = {}

    def stream_resumed_by(self, exchange: RecordedExchange) -> RecordedExchange | None:
        """Take the next exchange in arrival order; return the one whose stream it resumes."""
        session = session_of_exchange(exchange)
        event = (session, resumed_event_id(exchange.request))
        stream_start = _resumed_stream(
            self._stream_starts_by_event.get(event, []), exchange
        )
        for _, id_of_event in event_ids(exchange.response):
            stream_starts = self._stream_starts_by_event.setdefault(
                (session, id_of_event), []
            )
            if stream_start is None or not stream_starts:
                stream_starts.append(stream_start or exchange)

        return stream_start


def _resumed_stream(
    stream_starts: Sequence[RecordedExchange], resuming_exchange: RecordedExchange
) -> RecordedExchange | None:
    """Return the stream of a call to which a rest responds, or else the latest of some."""
    if not stream_starts:
        return None

    rpc_response = None
    if resuming_exchange.response is not None:
        rpc_response = last_response(resuming_exchange.response)

    if rpc_response is None:
        return stream_starts[-1]

    for stream_start in reversed(stream_starts):
        request_message = stream_start.call.message
        if request_message is not None and request_message.id == rpc_response.id:
            return stream_start

    return stream_starts[-1]


class LiveStreams:
    """The streams that a live server has begun in this run, by the ids of their events.

    The recorded server may have given the same ids.
    """

    def __init__(self) -> None:
        self._event_ids: set[str] = set()

    def add_events(self, response: Response | None) -> None:
        """Take events of a live server, as they are recorded."""
        for _, id_of_event in event_ids(response):
            self._event_ids.add(id_of_event)

    def is_resumed_by(self, request: Request) -> bool:
        """Tell whether a client resumes one of them; a played stream has sealed ids."""
        event = resumed_event_id(request)
        if request.header(SESSION_HEADER):
            event = sealed_hash(event)

        return event in self._event_ids


def resumed_events(exchanges: Iterable[RecordedExchange]) -> frozenset[str]:
    """Return the ids of events, as recorded, after which clients resumed a stream."""
    return frozenset([resumed_event_id(exchange.request) for exchange in exchanges])


def with_event_as_recorded(
    request: Request, recorded_events: Container[str]
) -> Request:
    """Seal the event after which a client resumes a stream, if a recorded one named it too.

    An id of a recorded stream is sealed when the client gets it; this is any other one. Outside
    sessions ids of events are as recorded.
    """
    id_of_event = resumed_event_id(request)
    is_outside_session = not request.header(SESSION_HEADER)
    if not id_of_event or is_outside_session:
        return request
    if sealed_hash(id_of_event) not in recorded_events:
        return request

    headers = []
    for name, value in request.headers:
        is_event_header = name.lower() == LAST_EVENT_ID_HEADER
        headers.append((name, sealed_hash(value) if is_event_header else value))

    return replace(request, headers=tuple(headers))


class EndpointPassing:
    """Takes the server's origin out of the URL that an HTTP+SSE stream gives its client.

    It holds back one event at a time, until that is whole; once `is_over`, all bytes pass.

    Attributes:
        foreign_origin: the origin that the URL names, if it is not the server's.
    """

    def __init__(self, origin: ServerOrigin, prefix: str = "") -> None:
        """Begin before the first byte of a stream of a server, whose paths get a prefix."""
        self.is_over = False
        self.foreign_origin = ""
        self._origin = origin
        self._prefix = prefix
        self._framer = SseFramer()
        self._is_first = True
        self._held_bytes = b""

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes, and return those that pass."""
        if self.is_over:
            return chunk

        self._held_bytes += chunk
        passed_bytes = b""
        for event in self._framer.feed(chunk):
            self._held_bytes = self._held_bytes[len(event) :]
            if self.is_over:
                passed_bytes += event
            else:
                passed_bytes += self._event_as_passed(event)

        has_too_many_bytes = len(self._held_bytes) > _MOST_BYTES_HELD
        if has_too_many_bytes or _MESSAGE_DATA.search(self._held_bytes):
            self.is_over = True

        if self.is_over:
            passed_bytes += self.release_held_bytes()

        return passed_bytes

    def release_held_bytes(self) -> bytes:
        """Return the bytes held back; from now on there are none."""
        held_bytes = self._held_bytes
        self._held_bytes = b""
        self.is_over = True

        return held_bytes

    def _event_as_passed(self, raw: bytes) -> bytes:
        """Return an event as it passes: an endpoint of the server without the server's origin."""
        event = read_event(raw, first=self._is_first)
        self._is_first = False
        if not is_endpoint_event(raw):
            self.is_over = not may_precede_endpoint(raw, event.data)
            return raw

        self.is_over = True
        url = (event.data or b"").decode("latin-1")
        path = self._origin.path_of(url)
        if path is None:
            self.foreign_origin = shown_origin(url)
            return raw

        span = event.raw_span(Span(0, len(url)))
        if span is None:
            return raw

        if path.startswith("/"):
            path = self._prefix + path

        return splice(raw, [(span, path.encode("latin-1"))])


# Pings of a server and the answers to them say nothing about it (MCP 2025-11-25, "Ping").

PingIds = frozenset[tuple[str, str]]
"""Sessions, and the ids of pings in them as canonical texts."""


def ping_ids(exchanges: Iterable[RecordedExchange]) -> PingIds:
    """Return the ids of the pings that a server sent."""
    sessions_and_ids: set[tuple[str, str]] = set()
    for exchange in exchanges:
        response = exchange.response
        if response is None or b'"ping"' not in response.body:
            continue

        session = session_of_exchange(exchange)
        for located in messages_in(response):
            message = located.message
            is_ping = message.kind is Kind.REQUEST and message.method == PING
            if is_ping and message.id is not None:
                sessions_and_ids.add((session, message.id))

    return frozenset(sessions_and_ids)


def answers_ping(session: str, answer: Message | None, pings: PingIds) -> bool:
    """Tell whether a message answers a ping, however it does so."""
    if answer is None or answer.kind is not Kind.RESPONSE:
        return False
    return answer.id is not None and (session, answer.id) in pings


def without_pongs(
    interactions: Iterable[RecordedInteraction],
) -> list[RecordedInteraction]:
    """Return the interactions that are more than the answer to a ping."""
    all_interactions = list(interactions)
    exchanges: list[RecordedExchange] = []
    for interaction in all_interactions:
        exchanges += interaction.unshared_exchanges

    pings = ping_ids(exchanges)
    other_interactions = []
    for interaction in all_interactions:
        exchange = interaction.exchanges[0]
        session = session_of(exchange.request)
        if not answers_ping(session, exchange.call.message, pings):
            other_interactions.append(interaction)

    return other_interactions
