"""What a client gets for a request: recorded bytes with its own values, as soon as they are due."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import NamedTuple

from mrtr_cassette.core.cassette.entries import ReplayEntry
from mrtr_cassette.core.protocol.jsonrpc import (
    Kind,
    LocatedMessage,
    Message,
    echoes_of_request,
    messages_in,
)
from mrtr_cassette.core.protocol.tasks import (
    TaskState,
    clock_spans,
    notified_state,
    polled_state,
)
from mrtr_cassette.core.replay.timelines import (
    OPEN_GATE,
    Gate,
    PieceArrival,
    Waits,
    arrival_of_piece,
)
from mrtr_cassette.core.wire.http import End, Headers, Response, kept_response_headers
from mrtr_cassette.core.wire.jsonbytes import Span

# Replies


class Gap(NamedTuple):
    """A place in a body that has another value in every replay, or the recorded bytes.

    Attributes:
        value: its name, as `CallerValues` has it, or the state of a task.
        source: the id of that task, or the request whose caller it is, if not the caller itself.
    """

    span: Span
    value: str
    recorded: bytes
    source: ReplayEntry | str | None = None


class Part(NamedTuple):
    """Pieces of a recorded body that are sent together, in rhythm `at_ms` after the request."""

    segments: tuple[bytes | Gap, ...]
    at_ms: float
    gate: Gate
    pieces: range
    arrival: PieceArrival


class Reply(NamedTuple):
    """One recorded response, ready to be served: outside the gaps every byte is recorded.

    Attributes:
        notified_state_by_piece: the states of tasks of which its pieces notify the client.
        response_piece: the piece that completes the JSON-RPC response to the request, or None.
    """

    status: int
    headers: Headers
    parts: tuple[Part, ...]
    end: End
    is_event_stream: bool
    is_message_stream: bool
    waits: Waits
    notified_state_by_piece: Mapping[int, TaskState]
    response_piece: int | None


FindRepeatedValues = Callable[[LocatedMessage], list[tuple[Span, str]]]
"""Finds where a message repeats values of its request, with the names of these."""


class EchoSources(NamedTuple):
    """What a response may repeat of a request, besides its id and its token.

    Attributes:
        batch: the requests, if it is a batch.
        find_repeated_values: finds values of its arguments.
    """

    batch: Sequence[Message]
    find_repeated_values: FindRepeatedValues | None


def build_reply(
    request: Message | None,
    response: Response,
    waits: Waits,
    *,
    started_ms: float,
    end_arrival: PieceArrival,
    piecewise: bool,
    echo_sources: EchoSources,
) -> Reply:
    """Return what to send for a recorded response to a request; `piecewise` keeps pieces apart."""
    gap_finder = _GapFinder(request, response, echo_sources)
    gap_finder.find_gaps(waits)
    parts = _parts_sent_together(
        response, waits, gap_finder.gaps, started_ms, end_arrival, piecewise=piecewise
    )
    end = response.end
    # Who posts a message may leave as soon as it is accepted; others read on.
    if end is End.OPEN and response.is_acknowledgement:
        end = End.COMPLETE

    return Reply(
        status=response.status,
        # A stranger's cassette may have what no recorder keeps: other framing, or cookies.
        headers=kept_response_headers(response.headers),
        parts=parts,
        end=end,
        is_event_stream=response.is_event_stream,
        is_message_stream=response.is_message_stream,
        waits=waits,
        notified_state_by_piece=gap_finder.notified_state_by_piece,
        response_piece=gap_finder.response_piece,
    )


def _parts_sent_together(
    response: Response,
    waits: Waits,
    gaps: Sequence[Gap],
    started_ms: float,
    end_arrival: PieceArrival,
    *,
    piecewise: bool,
) -> tuple[Part, ...]:
    """Return the pieces of a body that are sent together: all up to one that waits."""
    body = response.body
    gates = waits.piece_gates or (OPEN_GATE,) * len(response.pieces)
    first_piece_of_parts = []
    for index, gate in enumerate(gates):
        if piecewise or index == 0 or gate != OPEN_GATE:
            first_piece_of_parts.append(index)

    piece_ends = list(accumulate([len(piece.raw) for piece in response.pieces]))
    remaining_gaps = list(gaps)
    sent_length = 0
    parts = []
    for first, next_first in pairwise([*first_piece_of_parts, len(gates)]):
        part_end = piece_ends[next_first - 1]
        segments: list[bytes | Gap] = []
        # A value goes whole with the part in which it begins.
        while remaining_gaps and remaining_gaps[0].span.start < part_end:
            gap = remaining_gaps.pop(0)
            segments += (body[sent_length : gap.span.start], gap)
            sent_length = gap.span.end

        segments.append(body[sent_length:part_end])
        sent_length = max(sent_length, part_end)
        piece = response.pieces[first]
        parts.append(
            Part(
                tuple(segments),
                piece.at_ms - started_ms,
                gates[first],
                range(first, next_first),
                arrival_of_piece(piece, end_arrival),
            )
        )

    return tuple(parts)


_GapPlace = tuple[Span, str, ReplayEntry | str | None]
"""A span of a message, with the value and the source of its gap."""


class _GapFinder:
    """Finds the gaps of a body, and what its messages are about."""

    def __init__(
        self,
        request: Message | None,
        response: Response,
        echo_sources: EchoSources,
    ) -> None:
        self.gaps: list[Gap] = []
        self.notified_state_by_piece: dict[int, TaskState] = {}
        self.response_piece: int | None = None
        self._response = response
        self._find_repeated_values = echo_sources.find_repeated_values
        self._may_tell_states = b'"taskId"' in response.body
        self._request: Message | None = None
        self._requests_with_prefix: list[tuple[str, Message]] = []
        """The requests to which the body responds, and what begins the names of their values."""
        if request is not None and request.kind is Kind.REQUEST:
            self._request = request
            self._requests_with_prefix.append(("", request))

        for place_in_batch, request_of_body in enumerate(echo_sources.batch):
            self._requests_with_prefix.append((f"{place_in_batch}:", request_of_body))

    def find_gaps(self, waits: Waits) -> None:
        """Find the gaps in the messages of the body.

        The gates of a listening stream tell to which requests it responds.
        """
        for located in messages_in(self._response):
            message = located.message
            if self._request is not None and _responds_to(message, self._request):
                self.response_piece = located.piece

            subject_request = None
            if waits.piece_gates:
                subject_request = waits.piece_gates[located.piece].subject_request

            places = self._places_repeating_request(message, subject_request)
            if self._may_tell_states:
                places += self._clock_places_in_state(message, located.piece)

            if self._find_repeated_values is not None:
                for span, name in self._find_repeated_values(located):
                    places.append((span, name, None))

            for place in places:
                self._add_gap(located, place)

        self.gaps.sort(key=attrgetter("span"))

    def _add_gap(self, located: LocatedMessage, place: _GapPlace) -> None:
        """Take a place in a message as a gap of the body."""
        span_in_message, value, source = place
        span = located.in_body(span_in_message)
        if span is not None:
            recorded_bytes = span.slice_of(self._response.body)
            self.gaps.append(Gap(span, value, recorded_bytes, source))

    def _places_repeating_request(
        self, message: Message, subject_request: ReplayEntry | None
    ) -> list[_GapPlace]:
        """Return where a message repeats values of a caller, or else of the request it is about."""
        place_by_span: dict[Span, _GapPlace] = {}
        for prefix, request_of_body in self._requests_with_prefix:
            for echo in echoes_of_request(message, request_of_body):
                is_exact = echo.value in ("id", "progress_token")
                # Beside `1` another request may have `"1"`, which is nearly the same.
                if is_exact or echo.span not in place_by_span:
                    value_name = f"{prefix}{echo.value}"
                    place_by_span[echo.span] = (echo.span, value_name, None)

        if place_by_span or subject_request is None:
            return list(place_by_span.values())

        if subject_request.client_message is not None:
            for echo in echoes_of_request(message, subject_request.client_message):
                place_by_span[echo.span] = (echo.span, echo.value, subject_request)

        return list(place_by_span.values())

    def _clock_places_in_state(self, message: Message, piece: int) -> list[_GapPlace]:
        """Return the places in a state of a task that depend on the clock."""
        state = notified_state(message) or polled_state(message)
        if state is None:
            return []

        if message.method:
            self.notified_state_by_piece[piece] = state

        return [(span, name, state.id) for name, span in clock_spans(message)]


def _responds_to(message: Message, request: Message) -> bool:
    """Tell whether a message is the response to a request, by its id."""
    return message.kind is Kind.RESPONSE and message.id == request.id
