"""What a cassette has for whatever every recording has anew: states, ids, and secrets.

The names and numbers depend on what was exchanged, not on when, so that every re-recording has the
same ones. What an earlier recording named keeps its name.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import ChainMap, Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from operator import itemgetter

from mrtr_cassette.core.cassette.digests import Announced
from mrtr_cassette.core.cassette.recorded import Cassette, RecordedBy, RecordedExchange
from mrtr_cassette.core.cassette.sessions import event_ids
from mrtr_cassette.core.protocol.methods import TASK_ID
from mrtr_cassette.core.protocol.tasks import created_id, named_task
from mrtr_cassette.core.record.linking import LinkedInteraction
from mrtr_cassette.core.secrets.sealed import (
    SEALED_HASH,
    STATE_SURROGATE,
    compared_sha256,
    occurrence_in,
    renumber,
    reveal,
    reveal_text,
    sealed_hash,
    session_surrogate,
    sha256_of,
    state_surrogate,
    task_surrogate,
)
from mrtr_cassette.core.wire.http import (
    LAST_EVENT_ID_HEADER,
    SESSION_HEADER,
    Headers,
    Piece,
    Request,
    Response,
)
from mrtr_cassette.core.wire.jsonbytes import splice
from mrtr_cassette.core.wire.sse import event_id_spans

_LONGEST_NUMBER = 10
_SESSION = re.compile(rb"mrtr-session(?::|%3A)([0-9]{1,9})")

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
    new_response = None if response is None else _response_with(response, change)
    if new_request == request and new_response == response:
        return exchange
    return replace(exchange, request=new_request, response=new_response)


def request_with(request: Request, change: TextChange) -> Request:
    """Return a request with other target, header values and body."""
    target = _changed_text(request.target, change, "")
    headers = headers_with(request.headers, change)
    return Request(request.method, target, headers, change(request.body, ""))


def _response_with(response: Response, change: TextChange) -> Response:
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
        renumber(file, self.leave_out)

    def leave_out(self, rule: str, token: str) -> None:
        """Leave out a number that an earlier recording gave."""
        if token.isascii() and token.isdigit() and len(token) < _LONGEST_NUMBER:
            self._last[rule] = max(self._last[rule], int(token))

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


def _echoed_name(exchange: RecordedExchange) -> str | None:
    """Return the request state that a request repeats, or the id of the task that it names."""
    call = exchange.call
    task, answers = named_task(call.message), call.answers
    return task if answers is None or task is not None else answers.request_state


class Names:
    """The names and numbers of a recording, given in the file's order; to states after that."""

    def __init__(self) -> None:
        self._secrets = SecretNumbers()
        self._occurrences: Counter[str] = Counter()
        self._highest: Counter[str] = Counter()
        self._issued_by: dict[int, str] = {}
        self._echoed_by: dict[int, str] = {}
        self._states: dict[str, str] = {}
        self._sessions: dict[str, str] = {}
        self._last_session = 0
        self._earlier = 0
        self._events: dict[bytes, bytes] = {}

    def add_earlier(
        self, number: int, exchange: RecordedExchange, call: str, *, is_first: bool
    ) -> None:
        """Take the names from an exchange of an earlier recording, and the hash of its call key."""

        def read(raw: bytes, name: str) -> bytes:
            self._secrets.leave_out_those_in(raw)
            for place in _SESSION.findall(raw):
                self._last_session = max(self._last_session, int(place))
            if name == SESSION_HEADER:
                session = raw.decode("utf-8", "surrogateescape")
                self._sessions[sha256_of(session)] = session
            return raw

        with_texts(exchange, read)
        self._earlier += 1
        self._occurrences[call] += is_first
        state = issued_name(exchange)
        if state is not None:
            self._issued_by[number] = state
            self._states.setdefault(sha256_of(state), state)
            if exchange.issued_sha256 is not None:
                self._states.setdefault(exchange.issued_sha256, state)
            self._highest[call] = max(self._highest[call], occurrence_in(state) or 0)

    def name(self, exchange: RecordedExchange, session: str) -> RecordedExchange:
        """Name the session of an exchange, and put the numbers of its secrets into it."""
        reveal_text(session, self._name_session)
        for _, identity in event_ids(exchange.response) if self._earlier else ():
            # A server that was started anew may count its events from the same number.
            if SEALED_HASH.fullmatch(identity):
                new = sealed_hash(f"{self._earlier} {identity}")
                self._events[identity.encode()] = new.encode()
        return renumbered(exchange, self._secrets.number)

    def _name_session(self, sha256: str) -> str:
        if sha256 not in self._sessions:
            self._last_session += 1
            self._sessions[sha256] = session_surrogate(self._last_session)
        return self._sessions[sha256]

    def name_states(
        self,
        interactions: Iterable[LinkedInteraction],
        exchanges: Mapping[int, RecordedExchange],
        calls: Mapping[int, str],
    ) -> None:
        """Name every state, by the hashes of the call keys as the cassette has them."""
        # Where interactions were taken out by hand, the count is too low.
        self._occurrences |= self._highest
        for interaction in interactions:
            recorded = [number for number in interaction.own if number > 0]
            if recorded:
                self._name_states_of(interaction, exchanges, calls[recorded[0]])
            task = self._issued_by.get(interaction.numbers[-1])
            if task is not None:
                self._echoed_by |= dict.fromkeys(interaction.steps, task)

    def _name_states_of(
        self,
        interaction: LinkedInteraction,
        exchanges: Mapping[int, RecordedExchange],
        call: str,
    ) -> None:
        occurrence = self._occurrence(interaction, call)
        before: int | None = None
        for turn, number in enumerate(interaction.numbers):
            if turn >= interaction.shared and number > 0:
                exchange = exchanges[number]
                issued, echoed = exchange.issued_sha256, exchange.echoed_sha256
                if issued is not None:
                    name = state_surrogate(call, occurrence, turn + 1)
                    if created_id(exchange.call.message, exchange.rpc_response) is not None:
                        name = task_surrogate(call, occurrence)
                    self._issued_by[number] = name
                    self._states.setdefault(issued, name)
                if echoed is not None and named_task(exchange.call.message) is None:
                    answered = self._issued_by.get(before or 0)
                    unknown = state_surrogate(call, occurrence, 0)
                    self._echoed_by[number] = answered or self._states.get(echoed) or unknown
            before = number

    def _occurrence(self, interaction: LinkedInteraction, call: str) -> int:
        """Return the number in the surrogates of an interaction: a new one, unless it has one."""
        for number in reversed(interaction.own):
            occurrence = occurrence_in(self._issued_by.get(number, ""))
            if occurrence is not None:
                return occurrence
        self._occurrences[call] += 1
        return self._occurrences[call]

    def put_into(self, number: int, exchange: RecordedExchange) -> RecordedExchange:
        """Return a named exchange with the names of states and sessions in it.

        States of other exchanges that it repeats are replaced too.
        """
        echoed, issued = exchange.echoed_sha256, exchange.issued_sha256
        own: dict[str, str] = {}
        # A task that no recorded call created has no name.
        if echoed is not None and number in self._echoed_by:
            own = {echoed: self._echoed_by[number]}
        request = request_with(exchange.request, self._change(own))
        if issued is not None and number in self._issued_by:
            own = {**own, issued: self._issued_by[number]}
        response = exchange.response
        if response is not None:
            response = _response_with(response, self._change(own))
        return replace(exchange, request=request, response=response)

    def _change(self, own: Mapping[str, str]) -> TextChange:
        """Return what the texts of an exchange become, with its own states as they are named."""

        def name_of(sha256: str) -> str | None:
            return own.get(sha256) or self._states.get(sha256) or self._sessions.get(sha256)

        def change(raw: bytes, name: str) -> bytes:
            if self._events and name == LAST_EVENT_ID_HEADER:
                return self._events.get(raw, raw)
            if self._events and not name:
                ids = [(span, raw[span.start : span.end]) for span in event_id_spans(raw)]
                raw = splice(raw, [(span, self._events.get(it, it)) for span, it in ids])
            return reveal(raw, self._name_session if name == SESSION_HEADER else name_of)

        return change


# A cassette's exchanges as the journals of its recorders had them

_SURROGATE = re.compile(
    rb"mrtr-(?:state(:|%3A)[0-9a-f]{16}\1[0-9]{1,9}\1[0-9]{1,9}|session(:|%3A)[0-9]{1,9}"
    rb"|task(:|%3A)[0-9a-f]{16}\3[0-9]{1,9})"
)


def reopened(cassette: Cassette, digest: str) -> dict[str, dict[int, RecordedExchange]]:
    """Return the exchanges of a cassette by recorder, and by number there.

    A state has the hash that `recording` keeps. What a cassette has no hash of (session ids, ids of
    events and of questions, secrets) gets one of its own file, which has this digest. A recorder
    that is not known has an empty id.
    """
    own = [exchange for interaction in cassette.interactions for exchange in interaction.own]
    free = count(max((exchange.number or 0 for exchange in own), default=0) + 1)
    numbered = {exchange.number or next(free): exchange for exchange in own}
    names = _NamesBefore(digest, own)
    offsets = {each.id: each.offset_ms for each in cassette.recorders}
    numbers: dict[str, list[tuple[int, int]]] = {}
    announced = Announced()
    before: dict[int, RecordedExchange] = {}
    for number in sorted(numbered):
        exchange = before[number] = names.put_back(numbered[number])
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


class _NamesBefore:
    """What stood in the place of the names and numbers that a cassette has."""

    def __init__(self, digest: str, exchanges: Iterable[RecordedExchange]) -> None:
        self._digest = digest
        issued = [(each, issued_name(each)) for each in exchanges]
        self._issued = {
            name: each.issued_sha256 or self._sha256(name)
            for each, name in issued
            if name is not None
        }

    def put_back(self, exchange: RecordedExchange) -> RecordedExchange:
        echoed, issued = _echoed_name(exchange), issued_name(exchange)
        own = {}
        if echoed is not None and echoed not in self._issued:
            # A later recording that was added echoed the name itself.
            own[echoed] = exchange.echoed_sha256 or self._sha256(echoed)
        states = ChainMap(own, self._issued)

        def hashed(match: re.Match[bytes]) -> bytes:
            name = match[0].replace(b"%3A", b":").decode()
            sha256 = states.get(name) or sha256_of(f"{self._digest} {name}")
            return b"sha256%b%b" % (match[match.lastindex or 0], sha256.encode())

        return replace(
            with_texts(exchange, lambda raw, _: renumber(_SURROGATE.sub(hashed, raw), self._token)),
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
