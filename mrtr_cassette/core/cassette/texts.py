"""Recorded exchanges with other texts, or as another recording counts them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mrtr_cassette.core.cassette.recorded import RecordedBy, RecordedExchange
from mrtr_cassette.core.wire.http import Headers, Piece, Request, Response


def recounted(
    exchange: RecordedExchange,
    by: RecordedBy | None,
    number: int,
    after: Callable[[int, float], int],
    offset_ms: float = 0.0,
) -> RecordedExchange:
    """Return an exchange as another recording counts it, which began `offset_ms` earlier.

    `after` tells how many requests had arrived there, by how many had here and when.
    """

    def time(at_ms: float) -> float:
        return max(0.0, at_ms + offset_ms)

    response, ended_after = exchange.response, exchange.ended_after
    if response is not None:
        pieces = [Piece(raw, time(ms), after(count, ms)) for raw, ms, count in response.pieces]
        response = replace(response, pieces=tuple(pieces))
    return replace(
        exchange,
        number=number,
        response=response,
        started_ms=time(exchange.started_ms),
        ended_ms=time(exchange.ended_ms),
        ended_after=None if ended_after is None else after(ended_after, exchange.ended_ms),
        recorded_by=by,
    )


TextChange = Callable[[bytes, str], bytes]
"""What a text becomes, by the lower-case name of its header; of a target and a body, nothing."""


def with_texts(exchange: RecordedExchange, change: TextChange) -> RecordedExchange:
    """Return an exchange with other target, header values and bodies; itself if none changes."""
    request, response = exchange.request, exchange.response
    new_request = request_with(request, change)
    new_response = None if response is None else response_with(response, change)
    if new_request == request and new_response == response:
        return exchange
    return replace(exchange, request=new_request, response=new_response)


def request_with(request: Request, change: TextChange) -> Request:
    """Return a request with other target, header values and body."""
    target = _changed_text(request.target, change, "")
    headers = headers_with(request.headers, change)
    return Request(request.method, target, headers, change(request.body, ""))


def response_with(response: Response, change: TextChange) -> Response:
    """Return a response with other header values and other pieces."""
    headers = headers_with(response.headers, change)
    pieces = [Piece(change(raw, ""), at_ms, after) for raw, at_ms, after in response.pieces]
    return Response(response.status, headers, tuple(pieces), response.end)


def headers_with(headers: Headers, change: TextChange) -> Headers:
    """Return headers with other values."""
    return tuple([(name, _changed_text(text, change, name.lower())) for name, text in headers])


def _changed_text(text: str, change: TextChange, name: str) -> str:
    raw = text.encode("utf-8", "surrogateescape")
    return change(raw, name).decode("utf-8", "surrogateescape")
