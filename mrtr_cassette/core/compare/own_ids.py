"""The ids of our own requests to a live server, where it repeats them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from mrtr_cassette.core.exchange.caller_values import caller_values
from mrtr_cassette.core.exchange.recorded import RecordedExchange

OWN_ID: Final = b"mrtr-cassette-"
"""What our ids begin with; a number follows."""

_REPEATED = re.compile(
    rb"""(?P<quote>\\*["'])?(?P<id>%b[0-9]+)(?(quote)(?P=quote))""" % re.escape(OWN_ID)
)


def id_of(exchange: RecordedExchange) -> bytes:
    """Return the id of a request as it is spelled; empty where it has none."""
    return caller_values(exchange.call.message).id or b""


def with_ids(exchange: RecordedExchange, recorded: Mapping[bytes, bytes]) -> RecordedExchange:
    """Return a live exchange with the recorded ids, in whatever repeats them too.

    Args:
        recorded: the id that a recorded request had, by the one that it was given now.
    """

    def as_recorded(found: re.Match[bytes]) -> bytes:
        identity = recorded.get(b'"%b"' % found["id"])
        if identity is None:
            return found[0]
        # Whoever puts a text between quotes leaves a number without them.
        quote = found["quote"] or b""
        return quote + identity[1:-1] + quote if identity.startswith(b'"') else identity

    def changed(raw: bytes) -> bytes:
        return _REPEATED.sub(as_recorded, raw)

    request, response = exchange.request, exchange.response
    if OWN_ID not in request.body:
        return exchange
    if response is not None:
        pieces = tuple(piece._replace(raw=changed(piece.raw)) for piece in response.pieces)
        response = replace(response, pieces=pieces)
    request = replace(request, body=changed(request.body))
    return replace(exchange, request=request, response=response)


def repeats_own_id(live: RecordedExchange, recorded: RecordedExchange) -> bool:
    """Tell whether a live response has an id of ours that is not its request's."""
    live = with_ids(live, {id_of(live): id_of(recorded)})
    body = b"" if live.response is None else live.response.body
    return any(b'"%b"' % found["id"] != id_of(recorded) for found in _REPEATED.finditer(body))
