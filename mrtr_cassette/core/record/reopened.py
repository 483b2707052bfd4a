"""A cassette's exchanges as the journals of its recorders had them.

Rule: a state has the hash that `recording` keeps. What a cassette has no hash of (session ids, ids
of events and of questions, secrets) gets one that no other file's is taken for.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import ChainMap
from collections.abc import Iterable, Mapping
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
    names = _Names(digest, own)
    own_numbers: dict[str, dict[int, int]] = {}
    for number in sorted(numbered):
        seen = numbered[number].recorded_by or RecordedBy("", number)
        own_numbers.setdefault(seen.recorder, {})[number] = seen.number
    offsets = {each.id: each.offset_ms for each in cassette.recorders}
    by_recorder: dict[str, dict[int, RecordedExchange]] = {}
    for recorder, numbers in own_numbers.items():
        counted = _OwnCount(numbers, offsets.get(recorder, 0))
        by_recorder[recorder] = {
            at: counted.exchange(at, names.put_into(numbered[number]))
            for number, at in numbers.items()
        }
    return by_recorder


class _OwnCount:
    """Counts as one recorder did: its own requests, and the time since it began."""

    def __init__(self, own_numbers: Mapping[int, int], offset_ms: float) -> None:
        self._numbers = list(own_numbers)
        self._own = [0, *own_numbers.values()]
        self._offset_ms = offset_ms

    def exchange(self, number: int, exchange: RecordedExchange) -> RecordedExchange:
        def after(count: int) -> int:
            return max(number, self._own[bisect_right(self._numbers, count)])

        def time(at_ms: float) -> float:
            return max(0.0, at_ms - self._offset_ms)

        response = exchange.response
        ended_ms, ended_after = time(exchange.ended_ms), after(exchange.ended_after or 0)
        if response is not None:
            # Of a response in one piece a cassette tells the end alone.
            pieces = [
                Piece(each.raw, time(each.at_ms), after(each.after))
                if each.after
                else Piece(each.raw, ended_ms, ended_after)
                for each in response.pieces
            ]
            response = replace(response, pieces=tuple(pieces))
        return replace(
            exchange,
            number=number,
            response=response,
            started_ms=time(exchange.started_ms),
            ended_ms=ended_ms,
            ended_after=ended_after,
        )


class _Names:
    """What stood in the place of the names and numbers that a cassette has."""

    def __init__(self, digest: str, exchanges: Iterable[RecordedExchange]) -> None:
        self._digest = digest
        self._issued = {
            exchange.ask.request_state: exchange.issued_sha256
            or self._sha256(exchange.ask.request_state)
            for exchange in exchanges
            if exchange.ask is not None and exchange.ask.request_state is not None
        }

    def put_into(self, exchange: RecordedExchange) -> RecordedExchange:
        answers, ask = exchange.call.answers, exchange.ask
        echoed = None if answers is None else answers.request_state
        issued = None if ask is None else ask.request_state
        own = {}
        if echoed is not None and echoed not in self._issued:
            # A later recording that was added echoed the name itself.
            own[echoed] = exchange.echoed_sha256 or self._sha256(echoed)
        states = ChainMap(own, self._issued)

        def hashed(match: re.Match[bytes]) -> bytes:
            name = match[0].replace(b"%3A", b":").decode()
            sha256 = states.get(name) or sha256_of(f"{self._digest} {name}")
            if match["counted"] == b"elicitation":
                return f"0{sha256[:31]}".encode()
            colon = match["colon"] or match["of_session"] or match["of_counted"]
            return b"sha256%b%b" % (colon, sha256.encode())

        def change(raw: AnyStr, /) -> AnyStr:
            if isinstance(raw, str):
                changed = change(raw.encode("utf-8", "surrogateescape"))
                return changed.decode("utf-8", "surrogateescape")
            return renumber(_SURROGATE.sub(hashed, raw), self._token)

        return replace(
            with_texts(exchange, change),
            issued_sha256=None if issued is None else states[issued],
            echoed_sha256=None if echoed is None else states[echoed],
        )

    def _sha256(self, state: str) -> str:
        if STATE_SURROGATE.fullmatch(state):
            return sha256_of(f"{self._digest} {state}")
        return compared_sha256(state)

    def _token(self, rule: str, number: str) -> str | None:
        is_number = number.isascii() and number.isdigit() and len(number) < _LONGEST_NUMBER
        return sha256_of(f"{self._digest} {rule} {number}")[:24] if is_number else None
