"""What a cassette has for whatever every recording has anew: states, ids, and secrets.

The names and numbers depend on what was exchanged, not on when, so that every re-recording has the
same ones. What an earlier recording named keeps its name.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from operator import itemgetter

from mrtr_cassette.core.cassette.digests import Announced
from mrtr_cassette.core.cassette.recorded import Cassette, RecordedBy, RecordedExchange
from mrtr_cassette.core.protocol.methods import TASK_ID
from mrtr_cassette.core.protocol.tasks import created_id, named_task
from mrtr_cassette.core.secrets.sealed import (
    SEALED_HASH,
    STATE_SURROGATE,
    compared_sha256,
    renumber,
    sha256_of,
)
from mrtr_cassette.core.wire.http import Headers, Piece, Request, Response

_NUMBER = re.compile("[0-9]{1,9}")

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


def renumbered(
    exchange: RecordedExchange, number: Callable[[str, str], int | str | None]
) -> RecordedExchange:
    """Return an exchange with other numbers in its placeholders; itself where nothing changes."""
    return with_texts(exchange, lambda raw, _: renumber(raw, number))


class SecretNumbers:
    """The numbers of the secrets of a recording, given as the secrets turn up in the cassette."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._last: Counter[str] = Counter()

    def leave_out_those_in(self, file: bytes) -> None:
        """Leave out the numbers that a cassette's file has."""

        def leave_out(rule: str, token: str) -> None:
            if _NUMBER.fullmatch(token):
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


# A cassette's exchanges as the journals of its recorders had them

_SURROGATE = re.compile(
    rb"mrtr-(?:state(:|%3A)[0-9a-f]{16}\1[0-9]{1,9}\1[0-9]{1,9}|session(:|%3A)[0-9]{1,9}"
    rb"|task(:|%3A)[0-9a-f]{16}\3[0-9]{1,9})"
)


def reopened(cassette: Cassette) -> dict[str, dict[int, RecordedExchange]]:
    """Return the exchanges of a cassette by recorder, and by number there.

    A state has the hash that `recording` keeps. What a cassette has no hash of (session ids, ids of
    events and of questions, secrets) gets one of its own path. A recorder that is not known has an
    empty id.
    """
    own = [exchange for interaction in cassette.interactions for exchange in interaction.own]
    free = count(max((exchange.number or 0 for exchange in own), default=0) + 1)
    numbered = {exchange.number or next(free): exchange for exchange in own}
    states = {
        name: each.issued_sha256 or _sha256_of_name(name, cassette.path)
        for each in own
        if (name := issued_name(each)) is not None
    }
    offsets = {each.id: each.offset_ms for each in cassette.recorders}
    numbers: dict[str, list[tuple[int, int]]] = {}
    announced = Announced()
    before: dict[int, RecordedExchange] = {}
    for number in sorted(numbered):
        exchange = before[number] = _put_back(numbered[number], states, cassette.path)
        named = numbered[number].response
        if named is not None and exchange.response is not None:
            digests = announced.add(named, exchange.response)
            before[number] = replace(exchange, digests=digests)
        recorder, at = numbered[number].recorded_by or RecordedBy("", number)
        numbers.setdefault(recorder, [(0, 0)]).append((number, at))
    return {
        recorder: {
            at: _as_counted(before[number], at, its, offsets.get(recorder, 0))
            for number, at in its[1:]
        }
        for recorder, its in numbers.items()
    }


def _as_counted(
    exchange: RecordedExchange, number: int, numbers: Sequence[tuple[int, int]], offset_ms: float
) -> RecordedExchange:
    """Return an exchange as its recorder counted: its own requests, and the time since it began."""
    response, ended_after = exchange.response, exchange.ended_after or 0
    if response is not None:
        # Of a response in one piece a cassette tells the end alone.
        pieces = [
            each if each.after else each._replace(at_ms=exchange.ended_ms, after=ended_after)
            for each in response.pieces
        ]
        response = replace(response, pieces=tuple(pieces))

    def after(count: int, _: float) -> int:
        return max(number, numbers[bisect_right(numbers, count, key=itemgetter(0)) - 1][1])

    exchange = replace(exchange, response=response, ended_after=ended_after)
    return recounted(exchange, exchange.recorded_by, number, after, -offset_ms)


def _put_back(exchange: RecordedExchange, states: Mapping[str, str], path: str) -> RecordedExchange:
    """Return an exchange with what stood where it has names; `states` has hashes by name."""
    message, answers = exchange.call.message, exchange.call.answers
    echoed = named_task(message) or (None if answers is None else answers.request_state)
    issued = issued_name(exchange)
    if echoed is not None and echoed not in states:
        # A later recording that was added echoed the name itself.
        states = {**states, echoed: exchange.echoed_sha256 or _sha256_of_name(echoed, path)}

    def hashed(match: re.Match[bytes]) -> bytes:
        name = match[0].replace(b"%3A", b":").decode()
        sha256 = states.get(name) or sha256_of(f"{path} {name}")
        return b"sha256%b%b" % (match[match.lastindex or 0], sha256.encode())

    def token(rule: str, number: str) -> str | None:
        is_number = _NUMBER.fullmatch(number)
        return sha256_of(f"{path} {rule} {number}")[:24] if is_number else None

    return replace(
        with_texts(exchange, lambda raw, _: renumber(_SURROGATE.sub(hashed, raw), token)),
        issued_sha256=None if issued is None else states[issued],
        echoed_sha256=None if echoed is None else states[echoed],
    )


def _sha256_of_name(state: str, path: str) -> str:
    is_surrogate = STATE_SURROGATE.fullmatch(state)
    return sha256_of(f"{path} {state}") if is_surrogate else compared_sha256(state)
