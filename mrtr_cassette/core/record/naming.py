"""What a cassette has for whatever every recording has anew: states, ids, and secrets.

The names and numbers depend on what was exchanged, not on when, so that every re-recording has the
same ones. What an earlier recording named keeps its name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from mrtr_cassette.core.cassette.recorded import RecordedBy, RecordedExchange
from mrtr_cassette.core.protocol.methods import TASK_ID
from mrtr_cassette.core.protocol.tasks import created_id
from mrtr_cassette.core.secrets.sealed import SEALED_HASH, renumber
from mrtr_cassette.core.wire.http import Headers, Piece, Request, Response

NUMBER = re.compile("[0-9]{1,9}")
"""The token of a placeholder in a cassette."""

# What every recording has anew

_JOURNAL_TOKEN = re.compile("[0-9a-f]{24}")


def lasting(text: str) -> str:
    """Return a text of the journal without the hashes that every recording has anew."""
    if "sha256" in text:
        text = SEALED_HASH.sub("sha256", text)
    return renumber(text, lambda _, token: 0 if is_journal_token(token) else None)


def is_journal_token(token: str) -> bool:
    """Tell whether a text in a placeholder is what a journal has; any other is somebody's text."""
    return _JOURNAL_TOKEN.fullmatch(token) is not None


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


class SecretNumbers:
    """The numbers of the secrets of a recording, given as the secrets turn up in the cassette."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._last: Counter[str] = Counter()

    def leave_out_those_in(self, file: bytes) -> None:
        """Leave out the numbers that a cassette's file has."""

        def leave_out(rule: str, token: str) -> None:
            if NUMBER.fullmatch(token):
                self._last[rule] = max(self._last[rule], int(token))

        renumber(file, leave_out)

    def number(self, rule: str, token: str) -> int | None:
        """Return the number of a secret, a new one where it has none; None for other text."""
        if not is_journal_token(token):
            return None
        if (rule, token) not in self._numbers:
            self._last[rule] += 1
            self._numbers[rule, token] = self._last[rule]
        return self._numbers[rule, token]


def issued_name(exchange: RecordedExchange) -> str | None:
    """Return the request state that a response issues, or the id of the task that it creates."""
    ask, response = exchange.ask, exchange.response
    if ask is not None or response is None or TASK_ID.encode() not in response.body:
        return None if ask is None else ask.request_state
    return created_id(exchange.call.message, exchange.rpc_response)
