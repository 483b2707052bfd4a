"""A cassette's exchanges as the journals of its recorders had them.

Rule: a state has the hash that `recording` keeps. What a cassette has no hash of (session ids, ids
of events and of questions, secrets) gets one that no other file's is taken for.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import AnyStr

from mrtr_cassette.core.exchange.recorded import Cassette, RecordedBy, RecordedExchange
from mrtr_cassette.core.record.texts import with_texts
from mrtr_cassette.core.secrets.placeholders import renumber
from mrtr_cassette.core.secrets.surrogates import STATE_SURROGATE, compared_sha256, sha256_of
from mrtr_cassette.core.wire.http import Piece

_SURROGATE = re.compile(
    rb"mrtr-(?:state(?P<colon>:|%3A)[0-9a-f]{16}(?P=colon)[0-9]{1,9}(?P=colon)[0-9]{1,9}"
    rb"|session(?P<of_session>:|%3A)[0-9]{1,9}"
    rb"|(?P<counted>event|elicitation)(?P<of_counted>:|%3A)[0-9]{1,9}(?P=of_counted)[0-9]{1,9})"
)
_LONGEST_NUMBER = 10


def reopened(cassette: Cassette, digest: str) -> dict[str, dict[int, RecordedExchange]]:
    """Return the exchanges of a cassette by recorder, and by number there.

    Args:
        cassette: the cassette; a recorder that it does not name has an empty id.
        digest: tells this file from any other one.
    """
    own = [exchange for interaction in cassette.interactions for exchange in interaction.own]
    free = count(max((exchange.number or 0 for exchange in own), default=0) + 1)
    numbered = {exchange.number or next(free): exchange for exchange in own}
    names = _Names(digest)
    for exchange in own:
        names.add(exchange)
    by_recorder: dict[str, dict[int, RecordedExchange]] = {}
    places: dict[str, dict[int, int]] = {}
    for number in sorted(numbered):
        exchange = numbered[number]
        seen = exchange.recorded_by or RecordedBy("", number)
        places.setdefault(seen.recorder, {})[number] = seen.number
        by_recorder.setdefault(seen.recorder, {})[seen.number] = exchange
    offsets = {each.id: each.offset_ms for each in cassette.recorders}
    counting = {
        recorder: _OwnCount(places[recorder], offsets.get(recorder, 0)) for recorder in places
    }
    return {
        recorder: {
            number: counting[recorder].exchange(number, names.put_into(exchange))
            for number, exchange in exchanges.items()
        }
        for recorder, exchanges in by_recorder.items()
    }


class _OwnCount:
    """Counts as one recorder did: its own requests, and the time since it began."""

    def __init__(self, own_numbers: Mapping[int, int], offset_ms: float) -> None:
        self._numbers = list(own_numbers)
        self._own = list(own_numbers.values())
        self._offset_ms = offset_ms

    def exchange(self, number: int, exchange: RecordedExchange) -> RecordedExchange:
        response = exchange.response
        started_ms, ended_ms = self._time(exchange.started_ms), self._time(exchange.ended_ms)
        ended_after = self._after(number, exchange.ended_after or 0)
        if response is not None:
            # Of a response in one piece a cassette tells the end alone.
            pieces = [
                Piece(each.raw, self._time(each.at_ms), self._after(number, each.after))
                if each.after
                else Piece(each.raw, ended_ms, ended_after)
                for each in response.pieces
            ]
            response = replace(response, pieces=tuple(pieces))
        return replace(
            exchange,
            number=number,
            response=response,
            started_ms=started_ms,
            ended_ms=ended_ms,
            ended_after=ended_after,
        )

    def _time(self, at_ms: float) -> float:
        return max(0.0, at_ms - self._offset_ms)

    def _after(self, number: int, after: int) -> int:
        at = bisect_right(self._numbers, after)
        return max(number, self._own[at - 1] if at else 0)


class _Names:
    """What stood in the place of the names that a cassette has."""

    def __init__(self, digest: str) -> None:
        self._digest = digest
        self._issued: dict[str, str] = {}

    def add(self, exchange: RecordedExchange) -> None:
        """Take note of the state that an exchange issued."""
        state = _issued_by(exchange)
        if state is not None:
            self._issued[state] = exchange.issued_sha256 or self._sha256(state)

    def put_into(self, exchange: RecordedExchange) -> RecordedExchange:
        answers = exchange.call.answers
        echoed, issued = answers.request_state if answers else None, _issued_by(exchange)
        states = dict(self._issued)
        if echoed is not None:
            # A later recording that was added echoed the name itself.
            states.setdefault(echoed, exchange.echoed_sha256 or self._sha256(echoed))
        return replace(
            with_texts(exchange, _Change(self._digest, states)),
            issued_sha256=None if issued is None else states[issued],
            echoed_sha256=None if echoed is None else states[echoed],
        )

    def _sha256(self, state: str) -> str:
        if STATE_SURROGATE.fullmatch(state):
            return sha256_of(f"{self._digest} {state}")
        return compared_sha256(state)


class _Change:
    """Puts hashes and tokens in the place of names and numbers."""

    def __init__(self, digest: str, states: Mapping[str, str]) -> None:
        self._digest = digest
        self._states = states

    def __call__(self, raw: AnyStr, /) -> AnyStr:
        if isinstance(raw, str):
            changed = self(raw.encode("utf-8", "surrogateescape"))
            return changed.decode("utf-8", "surrogateescape")
        if b"mrtr-" in raw:
            raw = _SURROGATE.sub(self._hash, raw)
        return renumber(raw, self._token)

    def _hash(self, match: re.Match[bytes]) -> bytes:
        name = match[0].replace(b"%3A", b":").decode()
        sha256 = self._states.get(name) or sha256_of(f"{self._digest} {name}")
        if match["counted"] == b"elicitation":
            return f"0{sha256[:31]}".encode()
        colon = match["colon"] or match["of_session"] or match["of_counted"]
        return b"sha256%b%b" % (colon, sha256.encode())

    def _token(self, rule: str, number: str) -> str | None:
        is_number = number.isascii() and number.isdigit() and len(number) < _LONGEST_NUMBER
        return sha256_of(f"{self._digest} {rule} {number}")[:24] if is_number else None


def _issued_by(exchange: RecordedExchange) -> str | None:
    ask = exchange.ask
    return None if ask is None else ask.request_state
