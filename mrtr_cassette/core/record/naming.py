"""What stands in a cassette for request states, session ids and the ids of events.

Rule: the names depend on what was exchanged, not on when, so that every re-recording has the same
ones. What an earlier recording named keeps its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.record.elicitation_ids import ElicitationIds
from mrtr_cassette.core.record.linking import LinkedInteraction, LinkFacts
from mrtr_cassette.core.secrets.surrogates import (
    EVENT_SURROGATE_BYTES,
    SEALED_HASH_BYTES,
    SESSION_SURROGATE,
    event_surrogate,
    occurrence_in,
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


class Surrogates:
    """The surrogates of a recording; states are named when all exchanges are known."""

    def __init__(self) -> None:
        self._occurrences: Counter[str] = Counter()
        self._sessions: dict[str, str] = {}
        self._last_session = 0
        self._raw: dict[int, tuple[str | None, str | None]] = {}
        self._issued_by: dict[int, str] = {}
        self._echoed_by: dict[int, str] = {}
        self._named: dict[str, str] = {}
        self._session_of: dict[int, str] = {}
        self._event_ids: dict[int, list[str]] = {}
        self._events: dict[tuple[str, str], str] = {}
        self._last_events: Counter[int] = Counter()
        self._elicitations = ElicitationIds()

    def add_earlier(
        self, number: int, exchange: RecordedExchange, call: str, *, is_first: bool
    ) -> None:
        """Take the names from an exchange of an earlier recording.

        Args:
            number: what the exchange is known by from here on.
            exchange: the exchange.
            call: hash of its call key.
            is_first: its request began an interaction.
        """
        self._occurrences[call] += is_first
        ask = exchange.ask
        state = None if ask is None else ask.request_state
        if state is not None:
            self._issued_by[number] = state
            self._named.setdefault(sha256_of(state), state)
            if exchange.issued_sha256 is not None:
                self._named.setdefault(exchange.issued_sha256, state)
        self._elicitations.add_earlier(exchange)
        response = exchange.response
        for piece in () if response is None else response.pieces:
            for span in event_id_spans(piece.raw):
                event = EVENT_SURROGATE_BYTES.fullmatch(piece.raw, span.start, span.end)
                if event is not None:
                    place, index = map(int, event.groups())
                    self._last_events[place] = max(self._last_events[place], index)
        for headers in (exchange.request.headers, response.headers if response else ()):
            session = header_value(headers, SESSION_HEADER)
            if session:
                self._sessions[sha256_of(session)] = session
                number_in = SESSION_SURROGATE.fullmatch(session)
                if number_in is not None:
                    self._last_session = max(self._last_session, int(number_in[1]))

    def add(self, number: int, exchange: RecordedExchange, session: str = "") -> None:
        """Take note of an exchange of this recording, and of its session as the journal has it."""
        if exchange.issued_sha256 is not None or exchange.echoed_sha256 is not None:
            self._raw[number] = exchange.issued_sha256, exchange.echoed_sha256
        self._elicitations.add(number, exchange)
        if session:
            self._session_of[number] = session
        response = exchange.response
        if response is not None and response.is_event_stream:
            ids = [raw.decode() for piece in response.pieces for raw in _event_ids(piece.raw)]
            if ids:
                self._event_ids[number] = ids

    def name_session_of(self, number: int) -> None:
        """Name the session of an exchange, the ids of its events and of its questions."""
        session = self._session_of.get(number, "")
        name = reveal_text(session, self._name_session) if session else ""
        match = SESSION_SURROGATE.fullmatch(name)
        place = 0 if match is None else int(match[1])
        self._elicitations.name(number, session, place)
        for sha256 in self._event_ids.get(number, ()):
            # A resumed stream has events again under the same ids.
            if (session, sha256) not in self._events:
                self._last_events[place] += 1
                surrogate = event_surrogate(place, self._last_events[place])
                self._events[session, sha256] = surrogate

    def _name_session(self, sha256: str) -> str:
        if sha256 not in self._sessions:
            self._last_session += 1
            self._sessions[sha256] = session_surrogate(self._last_session)
        return self._sessions[sha256]

    def name_states(
        self, interactions: Iterable[LinkedInteraction], facts: Mapping[int, LinkFacts]
    ) -> None:
        """Name every state of this recording.

        Args:
            interactions: all of the cassette, in its order.
            facts: the exchanges of this recording, by number.
        """
        for number, state in self._issued_by.items():
            # Where interactions were taken out by hand, the count is too low.
            call = facts[number].call
            self._occurrences[call] = max(self._occurrences[call], occurrence_in(state) or 0)
        for interaction in interactions:
            recorded = [number for number in interaction.own if number > 0]
            if not recorded:
                continue
            call = facts[recorded[0]].call
            occurrence = self._occurrence(interaction, call)
            for turn, number in enumerate(interaction.numbers):
                if turn >= interaction.shared and number in self._raw:
                    before = interaction.numbers[turn - 1] if turn else None
                    self._name_states_of(number, before, call, occurrence, turn)

    def _occurrence(self, interaction: LinkedInteraction, call: str) -> int:
        """Return the number in the surrogates of an interaction: a new one, unless it has one."""
        for number in reversed(interaction.own):
            occurrence = occurrence_in(self._issued_by.get(number, ""))
            if occurrence is not None:
                return occurrence
        self._occurrences[call] += 1
        return self._occurrences[call]

    def _name_states_of(
        self, number: int, before: int | None, call: str, occurrence: int, turn: int
    ) -> None:
        issued, echoed = self._raw[number]
        if issued is not None:
            name = state_surrogate(call, occurrence, turn + 1)
            self._issued_by[number] = name
            self._named.setdefault(issued, name)
        if echoed is not None:
            answered = None if before is None else self._issued_by.get(before)
            unknown = state_surrogate(call, occurrence, 0)
            self._echoed_by[number] = answered or self._named.get(echoed) or unknown

    def put_into(self, number: int, exchange: RecordedExchange) -> RecordedExchange:
        """Return an exchange of this recording with the names in it.

        States of other exchanges that it repeats are replaced too.
        """
        exchange = self._elicitations.put_into(exchange, self._session_of.get(number, ""))
        if not (self._named or self._echoed_by or self._sessions or self._events):
            return exchange
        exchange = self._with_events(number, exchange)
        own: dict[str, str] = {}

        def name_of(sha256: str) -> str | None:
            return own.get(sha256) or self._named.get(sha256) or self._sessions.get(sha256)

        issued, echoed = self._raw.get(number, (None, None))
        if echoed is not None:
            own[echoed] = self._echoed_by[number]
        request = self._request(exchange.request, name_of)
        if issued is not None and number in self._issued_by:
            own[issued] = self._issued_by[number]
        response = exchange.response
        if response is not None:
            response = self._response(response, name_of)
        return replace(exchange, request=request, response=response)

    def _with_events(self, number: int, exchange: RecordedExchange) -> RecordedExchange:
        """Return an exchange with the names of events in the places of their ids."""
        session = self._session_of.get(number, "")

        def name_of(sha256: str) -> str | None:
            return self._events.get((session, sha256))

        request, response = exchange.request, exchange.response
        if request.header(LAST_EVENT_ID_HEADER):
            headers = tuple(
                (
                    name,
                    reveal_text(value, name_of) if name.lower() == LAST_EVENT_ID_HEADER else value,
                )
                for name, value in request.headers
            )
            request = replace(request, headers=headers)
        if response is not None and number in self._event_ids:
            pieces = [
                Piece(_with_event_ids(piece.raw, name_of), piece.at_ms, piece.after)
                for piece in response.pieces
            ]
            response = replace(response, pieces=tuple(pieces))
        if request is exchange.request and response is exchange.response:
            return exchange
        return replace(exchange, request=request, response=response)

    def _request(self, request: Request, name_of: Callable[[str], str | None]) -> Request:
        return Request(
            request.method,
            reveal_text(request.target, name_of),
            self._headers(request.headers, name_of),
            reveal(request.body, name_of),
        )

    def _response(self, response: Response, name_of: Callable[[str], str | None]) -> Response:
        pieces = tuple(
            [
                Piece(reveal(piece.raw, name_of), piece.at_ms, piece.after)
                for piece in response.pieces
            ]
        )
        return Response(
            response.status, self._headers(response.headers, name_of), pieces, response.end
        )

    def _headers(self, headers: Headers, name_of: Callable[[str], str | None]) -> Headers:
        return tuple(
            [
                (
                    name,
                    reveal_text(
                        value, self._name_session if name.lower() == SESSION_HEADER else name_of
                    ),
                )
                for name, value in headers
            ]
        )


def _event_ids(raw: bytes) -> Iterator[bytes]:
    """Yield the hashes that stand for the ids of events."""
    if b"id: sha256" in raw or b"id:sha256" in raw:
        for span in event_id_spans(raw):
            match = SEALED_HASH_BYTES.fullmatch(raw, span.start, span.end)
            if match is not None:
                yield match[2]


def _with_event_ids(raw: bytes, name_of: Callable[[str], str | None]) -> bytes:
    spans = event_id_spans(raw)
    return splice(raw, [(span, reveal(raw[span.start : span.end], name_of)) for span in spans])
