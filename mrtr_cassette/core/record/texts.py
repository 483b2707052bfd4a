"""The texts of an exchange: its target, its headers and its bodies.

Rule: where nothing changes, the exchange stays the same object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import AnyStr, Protocol

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.secrets.placeholders import renumber
from mrtr_cassette.core.wire.http import Headers, Piece, Request, Response


class TextChange(Protocol):
    """What a text becomes."""

    def __call__(self, raw: AnyStr, /) -> AnyStr:
        """Return it."""
        ...


def with_texts(exchange: RecordedExchange, change: TextChange) -> RecordedExchange:
    """Return an exchange with other texts; itself where nothing changes."""
    request, response = exchange.request, exchange.response
    new_request = Request(
        request.method,
        change(request.target),
        _with_values(request.headers, change),
        change(request.body),
    )
    new_response = response
    if response is not None:
        headers = _with_values(response.headers, change)
        pieces = [Piece(change(piece.raw), piece.at_ms, piece.after) for piece in response.pieces]
        new_response = Response(response.status, headers, tuple(pieces), response.end)
    if new_request == request and new_response == response:
        return exchange
    return replace(exchange, request=new_request, response=new_response)


def _with_values(headers: Headers, change: TextChange) -> Headers:
    return tuple([(name, change(value)) for name, value in headers])


def renumbered(
    exchange: RecordedExchange, number: Callable[[str, str], int | str | None]
) -> RecordedExchange:
    """Return an exchange with other numbers in its placeholders; itself where nothing changes."""

    def change(raw: AnyStr, /) -> AnyStr:
        return renumber(raw, number)

    return with_texts(exchange, change)
