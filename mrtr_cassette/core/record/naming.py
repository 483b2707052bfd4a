"""What a cassette has for whatever every recording has anew: states, ids, and secrets.

The names and numbers depend on what was exchanged, not on when, so that every re-recording has the
same ones. What an earlier recording named keeps its name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.record.history import is_journal_token
from mrtr_cassette.core.record.linking import LinkedInteraction
from mrtr_cassette.core.secrets.sealed import (
    ELICITATION_SURROGATE_BYTES,
    EVENT_SURROGATE_BYTES,
    SEALED_HASH_BYTES,
    SESSION_SURROGATE,
    elicitation_surrogate,
    event_surrogate,
    occurrence_in,
    renumber,
    reveal,
    reveal_text,
    session_surrogate,
    sha256_of,
    state_surrogate,
)
from mrtr_cassette.core.wire.http import (
    LAST_EVENT_ID_HEADER,
    SESSION_HEADER,
    Headers,
    Piece,
    Request,
    Response,
    header_value,
)
from mrtr_cassette.core.wire.jsonbytes import splice
from mrtr_cassette.core.wire.sse import event_id_spans

_LONGEST_NUMBER = 10
_ELICITATION = b'"elicitationId"'
_ISSUED_ID = re.compile(rb'"elicitationId"\s*:\s*"((?=[A-Za-z_-]*[0-9])[0-9A-Za-z_-]{16,200})"')
"""An id that a server made up for a question, which a word is not (MCP 2025-11-25, URL mode)."""
_TOKEN = re.compile(rb"[0-9A-Za-z_-]{16,200}")

TextChange = Callable[[bytes, str], bytes]
"""What a text becomes, by the lower-case name of its header; of a target and a body, nothing."""


def with_texts(exchange: RecordedExchange, change: TextChange) -> RecordedExchange:
    """Return an exchange with other target, header values and bodies; itself if none changes."""
    request, response = exchange.request, exchange.response
    new_request = _request_with(request, change)
    new_response = None if response is None else _response_with(response, change)
    if new_request == request and new_response == response:
        return exchange
    return replace(exchange, request=new_request, response=new_response)


def _request_with(request: Request, change: TextChange) -> Request:
    target = _changed_text(request.target, change, "")
    headers = _changed_headers(request.headers, change)
    return Request(request.method, target, headers, change(request.body, ""))


def _response_with(response: Response, change: TextChange) -> Response:
    headers = _changed_headers(response.headers, change)
    pieces = [Piece(change(raw, ""), at_ms, after) for raw, at_ms, after in response.pieces]
    return Response(response.status, headers, tuple(pieces), response.end)


def _changed_headers(headers: Headers, change: TextChange) -> Headers:
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


class Names:
    """The names and numbers of a recording.

    Exchanges are named in the file's order, states after all of them. Events and elicitations are
    counted in each session, by its number, which is 0 for what has none.
    """

    def __init__(self) -> None:
        self._secrets = SecretNumbers()
        self._occurrences: Counter[str] = Counter()
        self._highest: Counter[str] = Counter()
        self._issued_by: dict[int, str] = {}
        self._echoed_by: dict[int, str] = {}
        self._states: dict[str, str] = {}
        self._sessions: dict[str, str] = {}
        self._last_session = 0
        self._events: dict[tuple[str, str], str] = {}
        self._last_event: Counter[int] = Counter()
        self._with_events: set[int] = set()
        self._elicitations: dict[str, dict[bytes, bytes]] = {}
        self._last_elicitation: Counter[int] = Counter()

    def add_earlier(
        self, number: int, exchange: RecordedExchange, call: str, *, is_first: bool
    ) -> None:
        """Take the names from an exchange of an earlier recording, and the hash of its call key."""
        renumbered(exchange, self._secrets.leave_out)
        self._occurrences[call] += is_first
        ask = exchange.ask
        state = None if ask is None else ask.request_state
        if state is not None:
            self._issued_by[number] = state
            self._states.setdefault(sha256_of(state), state)
            if exchange.issued_sha256 is not None:
                self._states.setdefault(exchange.issued_sha256, state)
            self._highest[call] = max(self._highest[call], occurrence_in(state) or 0)
        response = exchange.response
        for piece in () if response is None else response.pieces:
            if _ELICITATION in piece.raw:
                _count_on(self._last_elicitation, ELICITATION_SURROGATE_BYTES.findall(piece.raw))
            ids = [piece.raw[span.start : span.end] for span in event_id_spans(piece.raw)]
            matches = [match for each in ids if (match := EVENT_SURROGATE_BYTES.fullmatch(each))]
            _count_on(self._last_event, [match.groups() for match in matches])
        for headers in (exchange.request.headers, response.headers if response else ()):
            session = header_value(headers, SESSION_HEADER)
            if session:
                self._sessions[sha256_of(session)] = session
                self._last_session = max(self._last_session, _number_of(session))

    def name(self, number: int, exchange: RecordedExchange, session: str) -> RecordedExchange:
        """Name what is new in an exchange of this recording, in its session; states come later.

        Returns:
            the exchange with the numbers of its secrets, or itself where it has none.
        """
        place = _number_of(reveal_text(session, self._name_session))
        response = exchange.response
        for piece in () if response is None else response.pieces:
            for identity in _ISSUED_ID.findall(piece.raw) if _ELICITATION in piece.raw else ():
                names = self._elicitations.setdefault(session, {})
                if identity not in names:
                    self._last_elicitation[place] += 1
                    surrogate = elicitation_surrogate(place, self._last_elicitation[place])
                    names[identity] = surrogate.encode()
            for sha256 in _event_ids(piece.raw) if response and response.is_event_stream else ():
                self._with_events.add(number)
                # A resumed stream has events again under the same ids.
                if (session, sha256) not in self._events:
                    self._last_event[place] += 1
                    self._events[session, sha256] = event_surrogate(place, self._last_event[place])
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
            if not recorded:
                continue
            call = calls[recorded[0]]
            occurrence = self._occurrence(interaction, call)
            before: int | None = None
            for turn, number in enumerate(interaction.numbers):
                if turn >= interaction.shared and number > 0:
                    exchange = exchanges[number]
                    issued, echoed = exchange.issued_sha256, exchange.echoed_sha256
                    if issued is not None:
                        name = state_surrogate(call, occurrence, turn + 1)
                        self._issued_by[number] = name
                        self._states.setdefault(issued, name)
                    if echoed is not None:
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

    def put_into(self, number: int, exchange: RecordedExchange, session: str) -> RecordedExchange:
        """Return a named exchange with the names of states and ids in it.

        States of other exchanges that it repeats are replaced too.
        """
        has_names = self._states or self._echoed_by or self._sessions or self._events
        if not has_names and session not in self._elicitations:
            return exchange
        issued, echoed = exchange.issued_sha256, exchange.echoed_sha256
        own = {} if echoed is None else {echoed: self._echoed_by[number]}
        request = _request_with(exchange.request, self._change(number, session, own))
        if issued is not None and number in self._issued_by:
            own = {**own, issued: self._issued_by[number]}
        response = exchange.response
        if response is not None:
            response = _response_with(response, self._change(number, session, own))
        return replace(exchange, request=request, response=response)

    def _change(self, number: int, session: str, own: Mapping[str, str]) -> TextChange:
        """Return what the texts of an exchange become, with its own states as they are named."""
        elicitations = self._elicitations.get(session, {})

        def name_of(sha256: str) -> str | None:
            return own.get(sha256) or self._states.get(sha256) or self._sessions.get(sha256)

        def event_of(sha256: str) -> str | None:
            return self._events.get((session, sha256)) or name_of(sha256)

        by_header = {SESSION_HEADER: self._name_session, LAST_EVENT_ID_HEADER: event_of}

        def change(raw: bytes, name: str) -> bytes:
            if elicitations:
                raw = _TOKEN.sub(lambda match: elicitations.get(match[0], match[0]), raw)
            if not name and number in self._with_events:
                spans = event_id_spans(raw)
                ids = [(span, reveal(raw[span.start : span.end], event_of)) for span in spans]
                raw = splice(raw, ids)
            return reveal(raw, by_header.get(name, name_of))

        return change


def _number_of(session: str) -> int:
    match = SESSION_SURROGATE.fullmatch(session)
    return 0 if match is None else int(match[1])


def _count_on(last: Counter[int], surrogates: Iterable[tuple[bytes, ...]]) -> None:
    """Count on after the surrogates of an earlier recording: place and index of each."""
    for session, index in surrogates:
        last[int(session)] = max(last[int(session)], int(index))


def _event_ids(raw: bytes) -> Iterator[str]:
    """Yield the hashes that stand for the ids of events."""
    if b"id: sha256" in raw or b"id:sha256" in raw:
        for span in event_id_spans(raw):
            match = SEALED_HASH_BYTES.fullmatch(raw, span.start, span.end)
            if match is not None:
                yield match[2].decode()
