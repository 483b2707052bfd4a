"""Turn a recording of HTTP+SSE into one over pipes: there too, one stream has all messages.

Source: MCP 2024-11-05, "Transports", HTTP with SSE.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange
from mrtr_cassette.core.cassette.sessions import endpoint_piece, opened_session
from mrtr_cassette.core.cassette.transports import on_one_line
from mrtr_cassette.core.protocol.calls import session_of
from mrtr_cassette.core.protocol.jsonrpc import (
    Kind,
    Message,
    repeated_token,
    same_name,
    server_message,
)
from mrtr_cassette.core.wire.http import (
    NO_STATUS,
    End,
    Piece,
    Response,
    channel_request,
    line_request,
)
from mrtr_cassette.core.wire.sse import read_event

_Lines = dict[RecordedExchange, list[Piece]]


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


def over_lines(cassette: Cassette) -> Cassette:
    """Return a recording of HTTP+SSE as one over pipes; exchanges outside sessions stay."""
    streams: dict[str, RecordedExchange] = {}
    posts: dict[str, list[RecordedExchange]] = defaultdict(list)
    by_arrival = sorted(cassette.exchanges, key=lambda exchange: exchange.number or 0)
    for exchange in by_arrival:
        if begins_old_stream(exchange):
            streams[opened_session(exchange.response)] = exchange
        elif exchange.request.method == "POST":
            posts[session_of(exchange.request)].append(exchange)

    changed: dict[RecordedExchange, RecordedExchange] = {}
    for session, stream in streams.items():
        lines = _assigned(stream, posts[session])
        for exchange, pieces in lines.items():
            response = _response(exchange, pieces)
            request = line_request(on_one_line(exchange.request.body), session)
            if exchange is stream:
                request = channel_request(session)

            changed[exchange] = replace(exchange, request=request, response=response)

    return replace(cassette.with_exchanges(changed), transport="stdio")


def _assigned(stream: RecordedExchange, posts: Sequence[RecordedExchange]) -> _Lines:
    """Return the lines of each exchange of a session.

    All pieces of the stream keep their places in it: a message that moves to a post leaves an empty
    piece.
    """
    lines: _Lines = {stream: []}
    for post in posts:
        lines[post] = []

    if stream.response is None:
        return lines

    for index, piece in enumerate(stream.response.pieces):
        left = piece._replace(raw=b"")
        data = read_event(piece.raw, first=index == 0).data
        message = server_message(data) if data else None
        if data and message is not None:
            line = piece._replace(raw=on_one_line(data) + b"\n")
            owner = _owner(message, piece.after, posts)
            if owner is None:
                left = line
            else:
                lines[owner].append(line)

        lines[stream].append(left)

    return lines


def _owner(
    message: Message, after: int, posts: Sequence[RecordedExchange]
) -> RecordedExchange | None:
    """Return the latest request that a message responds to, or reports the progress of; or None."""
    is_response = message.kind is Kind.RESPONSE
    name = same_name(repeated_token(message))
    if is_response:
        name = message.same_id

    if name is None or message.kind is Kind.REQUEST:
        return None

    for post in reversed(posts):
        asked = post.call.message
        if asked is None or asked.kind is not Kind.REQUEST:
            continue
        if (post.number or 0) > after:
            continue

        asked_name = same_name(asked.progress_token)
        if is_response:
            asked_name = asked.same_id

        if name == asked_name:
            return post

    return None


def _response(exchange: RecordedExchange, pieces: Sequence[Piece]) -> Response | None:
    asked = exchange.call.message
    if asked is not None and asked.kind is not Kind.REQUEST:
        return None

    end = End.OPEN
    if asked is not None and _has_response(pieces):
        end = End.COMPLETE

    return Response(NO_STATUS, (), tuple(pieces), end)


def _has_response(pieces: Iterable[Piece]) -> bool:
    for piece in pieces:
        message = server_message(piece.raw)
        if message is not None and message.kind is Kind.RESPONSE:
            return True

    return False
