"""What stands in a cassette for the ids that a server makes up for its questions.

Rule: only what looks made up is named: a word stays. The names depend on what was exchanged, not on
when, so that every re-recording has the same ones.
Source: MCP 2025-11-25, "Elicitation", URL mode.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.secrets.surrogates import ELICITATION_SURROGATE_BYTES, elicitation_surrogate
from mrtr_cassette.core.wire.http import Piece

_NAME = b'"elicitationId"'
_ISSUED = re.compile(rb'"elicitationId"\s*:\s*"((?=[A-Za-z_-]*[0-9])[0-9A-Za-z_-]{16,200})"')
_TOKEN = re.compile(rb"[0-9A-Za-z_-]{16,200}")


class ElicitationIds:
    """The ids of the questions of a recording; they are named in the order of the file."""

    def __init__(self) -> None:
        self._issued: dict[int, list[bytes]] = {}
        self._names: dict[str, dict[bytes, bytes]] = {}
        self._last: Counter[int] = Counter()

    def add_earlier(self, exchange: RecordedExchange) -> None:
        """Go on from the names of an earlier recording."""
        response = exchange.response
        for piece in () if response is None else response.pieces:
            if _NAME in piece.raw:
                for session, index in ELICITATION_SURROGATE_BYTES.findall(piece.raw):
                    self._last[int(session)] = max(self._last[int(session)], int(index))

    def add(self, number: int, exchange: RecordedExchange) -> None:
        """Take note of the ids in the response of an exchange of this recording."""
        response = exchange.response
        for piece in () if response is None else response.pieces:
            if _NAME in piece.raw:
                self._issued.setdefault(number, []).extend(_ISSUED.findall(piece.raw))

    def name(self, number: int, session: str, place: int) -> None:
        """Name the ids in the response of an exchange.

        Args:
            number: the exchange.
            session: its session.
            place: the number of that in the cassette; 0 where it has none.
        """
        for identity in self._issued.get(number, ()):
            names = self._names.setdefault(session, {})
            if identity not in names:
                self._last[place] += 1
                names[identity] = elicitation_surrogate(place, self._last[place]).encode()

    def put_into(self, exchange: RecordedExchange, session: str) -> RecordedExchange:
        """Return an exchange of a session with the names in it."""
        names = self._names.get(session)
        if names is None:
            return exchange

        def named(raw: bytes) -> bytes:
            return _TOKEN.sub(lambda match: names.get(match[0], match[0]), raw)

        request, response = exchange.request, exchange.response
        if response is not None:
            pieces = [Piece(named(each.raw), each.at_ms, each.after) for each in response.pieces]
            response = replace(response, pieces=tuple(pieces))
        request = replace(request, body=named(request.body))
        return replace(exchange, request=request, response=response)
