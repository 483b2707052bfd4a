"""Turn a recording of one transport into one of the other (MCP 2026-07-28, "Transports")."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any, Final, Literal

from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    RecordedExchange,
    without_interactions,
)
from mrtr_cassette.core.cassette.sessions import (
    endpoint_piece,
    has_rpc_response,
    opened_session,
    session_of_exchange,
)
from mrtr_cassette.core.protocol.calls import NO_SESSION, session_of
from mrtr_cassette.core.protocol.jsonrpc import (
    Kind,
    Message,
    comparable_id_or_token,
    repeated_token,
    server_message,
    server_messages,
)
from mrtr_cassette.core.protocol.methods import DISCOVER
from mrtr_cassette.core.protocol.origins import ServerOrigin
from mrtr_cassette.core.secrets.names import has_secrets
from mrtr_cassette.core.wire.http import (
    ACCEPTED,
    EVENT_STREAM,
    JSON_HEADERS,
    NO_STATUS,
    POST_HEADERS,
    SESSION_HEADER,
    End,
    Headers,
    Piece,
    Request,
    Response,
    channel_request,
    line_request,
    opens_channel,
)
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.core.wire.sse import read_event
from mrtr_cassette.errors import CassetteError, printable

TRANSPORTS: Final = {"http": "HTTP", "stdio": "pipes"}
"""What messages call each transport."""

ENDPOINT: Final = "/mcp"
"""The path of a server on pipes that is served over HTTP: the default of the official SDKs."""

_LOCAL_ORIGIN = "http://localhost"
STARTED_HERE: Final = f"{_LOCAL_ORIGIN}{ENDPOINT}"
"""Named as the upstream in a cassette of a server on pipes, or of an application."""

FIRST_SESSION: Final = "mrtr-session:0"
"""The session of everything that was recorded with the first start of a server on pipes."""

_STREAM_HEADERS = (("Content-Type", EVENT_STREAM),)
_HEADER_MISMATCH = -32020
_HEADERS_ABOUT_BODIES = frozenset({"accept", "content-type"})
"""Headers that say how a body is encoded, and not what it says."""

_MCP_PREFIX = "io.modelcontextprotocol/"
"""Begins the metadata of a request that a server may answer to."""

_ChangedExchange = tuple[Request, Response | None]
"""An exchange over the other transport; a piece that has no meaning there is empty."""


def local_upstream_url(path: str) -> str:
    """Return the URL that a cassette has for an upstream with another port on each run."""
    return f"{_LOCAL_ORIGIN}{path}"


def origin_of(cassette: Cassette) -> ServerOrigin:
    """Return the origin of a recorded server; one that a recording started has any port."""
    return ServerOrigin(cassette.upstream, any_port=is_started_here(cassette.upstream))


def is_started_here(upstream: str) -> bool:
    """Tell whether a recording has started its upstream, which has another port on each run."""
    return upstream.startswith(f"{_LOCAL_ORIGIN}/")


def recorded_path(cassette: Cassette) -> str:
    """Return the path of a recorded server, as far as it is known."""
    _, scheme_separator, host_and_path = cassette.upstream.partition("://")
    path = f"/{host_and_path.partition('/')[2]}"
    if not scheme_separator or has_secrets(path):
        return ENDPOINT

    return path


def cassette_over_pipes(cassette: Cassette) -> Cassette:
    """Return a cassette as one of a server on pipes, in which every request has a session.

    Raises:
        CassetteError: something in it can't be said over pipes.
    """
    if cassette.transport == "stdio":
        return _cassette_with_changes(cassette, _with_session)

    _refuse_if_headers_decide_response(cassette)
    is_one_session = _is_one_session(cassette)
    if is_one_session:
        cassette = _without_session_end(cassette)

    return _cassette_with_changes(
        cassette, partial(_exchange_as_lines, is_one_session=is_one_session)
    )


def _is_one_session(cassette: Cassette) -> bool:
    """Tell whether a recording is of one session with at most one stream, as a pipe has it."""
    sessions = set()
    stream_count = 0
    for exchange in cassette.exchanges:
        session = session_of_exchange(exchange)
        if session or exchange.call.method != DISCOVER:
            sessions.add(session)

        stream_count += _is_stream_opened_by_get(exchange)

    return len(sessions) == 1 and NO_SESSION not in sessions and stream_count <= 1


def _is_stream_opened_by_get(exchange: RecordedExchange) -> bool:
    """Tell whether an exchange is a GET to which the server responded with an event stream."""
    response = exchange.response
    is_get = exchange.request.method == "GET"
    return is_get and response is not None and response.is_event_stream


def _without_session_end(cassette: Cassette) -> Cassette:
    """Return a session without its end and refused streams, which a pipe doesn't have."""
    dropped_numbers = set()
    for interaction in cassette.interactions:
        exchange = interaction.exchanges[0]
        if exchange.request.method != "POST" and not _is_stream_opened_by_get(exchange):
            dropped_numbers.add(interaction.number)

    return without_interactions(cassette, dropped_numbers)


def _refuse_if_headers_decide_response(cassette: Cassette) -> None:
    """Make sure that no request had other responses with another header, or at another path.

    Equal requests with equal headers may have had several responses, so a header decides only if
    the responses have none in common.
    """
    answers_by_call: dict[str, dict[Headers, set[str]]] = {}
    for exchange in cassette.exchanges:
        message = exchange.call.message
        response_members = exchange.rpc_members
        if message is None or message.kind is not Kind.REQUEST or not response_members:
            continue

        answers_by_headers = answers_by_call.setdefault(_comparable_call(message), {})
        answers_by_headers.setdefault(_deciding_headers(exchange.request), set()).add(
            _comparable_answer(response_members)
        )

    for answers_by_headers in answers_by_call.values():
        for first_headers, second_headers in combinations(answers_by_headers, 2):
            if answers_by_headers[first_headers].isdisjoint(
                answers_by_headers[second_headers]
            ):
                differing_names = {
                    name for name, _ in set(first_headers) ^ set(second_headers)
                }
                names = ", ".join(sorted(differing_names))
                raise _other_transport_error(
                    cassette, f"the header or path ({names}) decides a response"
                )


def _comparable_call(message: Message) -> str:
    """Return the call of a request, as any client may make it."""
    meta = {}
    for name, value in message.meta.items():
        if name.startswith(_MCP_PREFIX):
            meta[name] = value

    return canonical([message.method, {**message.params, "_meta": meta}])


def _deciding_headers(request: Request) -> Headers:
    """Return the path and the headers that may decide the response."""
    headers = [("path", request.target)]
    for name, value in request.headers:
        if name.lower() not in _HEADERS_ABOUT_BODIES:
            headers.append((name, value))

    return tuple(headers)


def _comparable_answer(response: Mapping[str, Any]) -> str:
    """Return what a response says, but for its state."""
    result = response.get("result")
    if isinstance(result, dict):
        result = {**result, "requestState": None, "_meta": None}

    return canonical([result, response.get("error")])


def cassette_over_http(cassette: Cassette) -> Cassette:
    """Return a cassette as one of a server that is called over HTTP.

    Raises:
        CassetteError: something in it can't be said over HTTP.
    """
    if cassette.transport == "http":
        return cassette
    return replace(
        _cassette_with_changes(cassette, _exchange_as_post), upstream=STARTED_HERE
    )


def response_over_http(exchange: RecordedExchange) -> RecordedExchange:
    """Return an exchange on pipes with its response as it is over HTTP; others as they are."""
    response = exchange.response
    if response is None or not response.is_lines:
        return exchange

    _, response = _exchange_as_post(exchange)
    return replace(exchange, response=response)


def _other_transport_error(cassette: Cassette, reason: str) -> CassetteError:
    """Return the error for a cassette with something that the other transport can't say."""
    transport = "pipes"
    recorder = "record_pipe_again"
    if cassette.transport == "stdio":
        transport = "HTTP"
        recorder = "record_started_again"

    return CassetteError(
        cassette.path,
        printable(f"it can't be played over {transport}: {reason}"),
        hint=f"record it over {transport} with: <<{recorder}>>",
    )


def _cassette_with_changes(
    cassette: Cassette, change: Callable[[RecordedExchange], _ChangedExchange]
) -> Cassette:
    """Return a cassette with all exchanges changed; an error names the interaction."""
    changed_exchanges: dict[RecordedExchange, RecordedExchange] = {}
    for interaction in cassette.interactions:
        for exchange in interaction.unshared_exchanges:
            try:
                request, response = change(exchange)
            except ValueError as error:
                raise _other_transport_error(
                    cassette, f"interaction {interaction.number}: {error}"
                ) from None

            changed_exchanges[exchange] = replace(
                exchange, request=request, response=response
            )

    return cassette.with_exchanges(changed_exchanges)


def _with_session(exchange: RecordedExchange) -> _ChangedExchange:
    """Return an exchange on pipes, in the first session if its request names none."""
    request = exchange.request
    if not request.header(SESSION_HEADER):
        request = line_request(request.body, FIRST_SESSION)

    return request, exchange.response


def _exchange_as_lines(
    exchange: RecordedExchange, *, is_one_session: bool
) -> _ChangedExchange:
    """Return a request over HTTP and its response as lines of the first session on pipes."""
    request = exchange.request
    response = exchange.response
    is_channel = is_one_session and _is_stream_opened_by_get(exchange)
    if request.method != "POST" and not is_channel:
        raise ValueError(f"{request.method} {request.target} means nothing there")
    if request.header(SESSION_HEADER) and not is_one_session:
        raise ValueError(
            "it is part of an HTTP session (protocol versions before 2026-07-28)"
        )

    line = line_request(json_on_one_line(request.body), FIRST_SESSION)
    if response is None:
        return line, None

    pieces = _pieces_as_lines(response)
    has_message = _check_pipes_can_say_response(response, pieces)
    request_message = exchange.call.message
    expects_response = request_message is None or request_message.kind is Kind.REQUEST
    if not expects_response and not has_message:
        return line, None

    # A stream ends with its session, and a pipe with its server.
    end = End.OPEN if is_channel else response.end
    return line, Response(NO_STATUS, (), tuple(pieces), end)


def _pieces_as_lines(response: Response) -> list[Piece]:
    """Return the pieces of a response as lines; a piece without a message becomes empty."""
    pieces = []
    last_index = len(response.pieces) - 1
    for index, piece in enumerate(response.pieces):
        message_text = b""
        if response.is_event_stream:
            data = read_event(piece.raw, first=index == 0).data
            if data and server_messages(data):
                message_text = data
        elif index == last_index and not response.is_acknowledgement:
            message_text = response.body

        if message_text:
            message_text = json_on_one_line(message_text) + b"\n"

        pieces.append(piece._replace(raw=message_text))

    return pieces


def _check_pipes_can_say_response(response: Response, lines: Iterable[Piece]) -> bool:
    """Make sure that pipes can say what a response says; tell whether it has a message."""
    has_message = False
    for line in lines:
        message = server_message(line.raw)
        if message is None:
            continue

        has_message = True
        error = message.tree.get("error")
        if isinstance(error, dict) and error.get("code") == _HEADER_MISMATCH:
            raise ValueError("its headers decided the response, and pipes have none")

    if response.status >= 300 and not has_message:
        raise ValueError(
            f"its response is HTTP {response.status}, which is not a message"
        )

    return has_message


def json_on_one_line(raw: bytes) -> bytes:
    """Return JSON on one line: the line ends between its tokens become spaces."""
    return raw.strip(b"\r\n").replace(b"\r\n", b"  ").replace(b"\n", b" ")


def _exchange_as_post(exchange: RecordedExchange) -> _ChangedExchange:
    """Return a request on pipes and its response as they are over HTTP, a line as a POST."""
    request = exchange.request
    response = exchange.response
    is_channel = opens_channel(request)
    if not is_channel:
        if exchange.call.message is None:
            raise ValueError("a line of the client is not a message")

        request = Request("POST", ENDPOINT, POST_HEADERS, request.body)

    if response is None:
        return request, Response(ACCEPTED, (), (), End.COMPLETE)

    pieces = []
    message_kinds = []
    for piece in response.pieces:
        message = server_message(piece.raw)
        # Clients ignore what servers print by mistake.
        message_text = b""
        if message is not None:
            message_text = piece.raw.strip(b"\r\n")
            message_kinds.append(message.kind)

        pieces.append(piece._replace(raw=message_text))

    if is_channel and message_kinds:
        raise ValueError("the server speaks of its own accord")

    is_one_body = message_kinds == [Kind.RESPONSE] and response.end is End.COMPLETE
    headers: Headers = JSON_HEADERS
    if not is_one_body:
        headers = _STREAM_HEADERS
        pieces = list(map(_piece_as_event, pieces))

    return request, Response(200, headers, tuple(pieces), response.end)


def _piece_as_event(piece: Piece) -> Piece:
    """Return a message as an event of a stream; an empty piece stays empty."""
    if not piece.raw:
        return piece
    return piece._replace(raw=b"event: message\ndata: %b\n\n" % piece.raw)


# HTTP+SSE (MCP 2024-11-05): as on pipes, one stream has all messages


_PiecesByExchange = dict[RecordedExchange, list[Piece]]

_PostName = tuple[Literal["id", "progress token"], str | None]
"""What names a request in its response, or in a report of its progress."""

_PostsByName = defaultdict[_PostName, list[RecordedExchange]]


def begins_old_stream(exchange: RecordedExchange) -> bool:
    """Tell whether a response is a stream of HTTP+SSE: it says where its client posts."""
    response = exchange.response
    if response is None or not response.is_event_stream:
        return False

    _, endpoint = endpoint_piece(response)
    return endpoint is not None


def is_over_old_transport(cassette: Cassette) -> bool:
    """Tell whether a cassette has sessions of HTTP+SSE."""
    return any(begins_old_stream(exchange) for exchange in cassette.exchanges)


def http_sse_over_pipes(cassette: Cassette) -> Cassette:
    """Return a recording of HTTP+SSE as one over pipes; exchanges outside sessions stay."""
    stream_by_session = {}
    posts_by_session: dict[str, list[RecordedExchange]] = defaultdict(list)
    for exchange in cassette.exchanges_by_arrival:
        if begins_old_stream(exchange):
            stream_by_session[opened_session(exchange.response)] = exchange
        elif exchange.request.method == "POST":
            posts_by_session[session_of(exchange.request)].append(exchange)

    changed_exchanges: dict[RecordedExchange, RecordedExchange] = {}
    for session, stream in stream_by_session.items():
        pieces_by_exchange = _lines_by_exchange(stream, posts_by_session[session])
        for exchange, pieces in pieces_by_exchange.items():
            response = _response_as_over_pipes(exchange, pieces)
            request = line_request(json_on_one_line(exchange.request.body), session)
            if exchange is stream:
                request = channel_request(session)

            changed_exchanges[exchange] = replace(
                exchange, request=request, response=response
            )

    return replace(cassette.with_exchanges(changed_exchanges), transport="stdio")


def _lines_by_exchange(
    stream: RecordedExchange, posts: Sequence[RecordedExchange]
) -> _PiecesByExchange:
    """Return the lines of each exchange of a session.

    All pieces of the stream keep their places in it: a message that moves to a post leaves an empty
    piece.
    """
    pieces_by_exchange: _PiecesByExchange = {stream: []}
    posts_by_name: _PostsByName = defaultdict(list)
    for post in posts:
        pieces_by_exchange[post] = []
        message = post.call.message
        if message is not None and message.kind is Kind.REQUEST:
            posts_by_name["id", message.comparable_id].append(post)
            token = comparable_id_or_token(message.progress_token)
            posts_by_name["progress token", token].append(post)

    if stream.response is None:
        return pieces_by_exchange

    for line in _pieces_as_lines(stream.response):
        piece_for_stream = line
        owning_exchange = _exchange_of_line(line, posts_by_name)
        if owning_exchange is not None:
            pieces_by_exchange[owning_exchange].append(line)
            piece_for_stream = line._replace(raw=b"")

        pieces_by_exchange[stream].append(piece_for_stream)

    return pieces_by_exchange


def _exchange_of_line(
    line: Piece, posts_by_name: _PostsByName
) -> RecordedExchange | None:
    """Return the latest request that a line responds to, or reports the progress of; or None."""
    message = server_message(line.raw)
    if message is None:
        return None

    if message.kind is Kind.REQUEST:
        return None

    name: _PostName = ("id", message.comparable_id)
    if message.kind is not Kind.RESPONSE:
        name = ("progress token", comparable_id_or_token(repeated_token(message)))

    _, id_or_token = name
    if id_or_token is None:
        return None

    for post in reversed(posts_by_name[name]):
        if (post.number or 0) <= line.arrived_count:
            return post

    return None


def _response_as_over_pipes(
    exchange: RecordedExchange, pieces: Sequence[Piece]
) -> Response | None:
    """Return a response on pipes with these pieces; None for a notification or an answer."""
    request_message = exchange.call.message
    if request_message is not None and request_message.kind is not Kind.REQUEST:
        return None

    response = Response(NO_STATUS, (), tuple(pieces), End.OPEN)
    if request_message is not None and has_rpc_response(response):
        return replace(response, end=End.COMPLETE)

    return response
