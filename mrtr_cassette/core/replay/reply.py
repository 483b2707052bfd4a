"""What replay sends: recorded bytes, with the caller's own values put in.

Rule: outside the callers' values every byte is the recorded one.
Source: docs/matching.md, "What comes back".
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from mrtr_cassette.core.exchange.caller_values import CallerValues
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message, echoes
from mrtr_cassette.core.protocol.messages import Located, messages_in
from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.replay.timeline import NO_WAITS, OPEN, Gate, Waits
from mrtr_cassette.core.wire.http import End, Headers, Response
from mrtr_cassette.core.wire.jsonbytes import Span


class CallerValue(Enum):
    """One of the caller's values, as a response repeats it."""

    ID = 0
    PROGRESS_TOKEN = 1
    ID_AS_TEXT = 2
    """The id as a string, whatever it is."""

    def of(self, values: CallerValues) -> bytes | None:
        """Return the value as a caller spells it, or None."""
        if self is CallerValue.PROGRESS_TOKEN:
            return values.progress_token
        identity = values.id
        if self is CallerValue.ID or identity is None or identity.startswith(b'"'):
            return identity
        return b'"%b"' % identity


class Echo(NamedTuple):
    """A place in a body that repeats one of a caller's values.

    Attributes:
        span: where.
        value: which value.
        request: whose; None for the request that the body responds to.
    """

    span: Span
    value: CallerValue
    request: Playable | None = None


class Gap(NamedTuple):
    """Where one of a caller's values is put in.

    Attributes:
        value: which value.
        recorded: the recorded bytes, which stand where the caller has no such value.
        request: whose; None for the request that is replied to.
    """

    value: CallerValue
    recorded: bytes
    request: Playable | None


ValuesOf = Callable[["Playable | None"], CallerValues]
"""Returns the values of the request in the place of a recorded one, or of the one replied to."""


class Part(NamedTuple):
    """Bytes that are sent together.

    Attributes:
        segments: recorded bytes, and gaps in between.
        at_ms: milliseconds after the request, in the recorded rhythm.
        gate: what they wait for.
        pieces: which pieces of the recorded body they are, as indices.
    """

    segments: tuple[bytes | Gap, ...]
    at_ms: float
    gate: Gate
    pieces: range

    def fill(self, values_of: ValuesOf) -> bytes:
        """Return the bytes with the callers' values; recorded ones where there are none."""
        return b"".join(
            [
                segment
                if isinstance(segment, bytes)
                else segment.value.of(values_of(segment.request)) or segment.recorded
                for segment in self.segments
            ]
        )


class Reply(NamedTuple):
    """One recorded response, ready to be served.

    Attributes:
        status: the HTTP status.
        headers: the headers.
        parts: the body.
        end: how it ends.
        is_event_stream: whether the body is a stream of Server-Sent Events.
        waits: what it waits for.
    """

    status: int
    headers: Headers
    parts: tuple[Part, ...]
    end: End
    is_event_stream: bool
    waits: Waits


class _Beginning(NamedTuple):
    """Where in a body a part begins, with which piece, and what it waits for."""

    start: int
    piece: int
    at_ms: float
    gate: Gate


def build_reply(
    echoed: tuple[Echo, ...],
    response: Response,
    waits: Waits,
    *,
    started_ms: float = 0,
    piecewise: bool = False,
) -> Reply:
    """Return what to send for a recorded response.

    Args:
        echoed: where its body repeats the callers' values, in order.
        response: the recorded response.
        waits: what it waits for.
        started_ms: when its request had arrived.
        piecewise: keep pieces apart that wait for the same.
    """
    body = response.body
    beginnings: list[_Beginning] = []
    start = 0
    for index, piece in enumerate(response.pieces):
        gate = waits.pieces[index] if waits.pieces else OPEN
        if piecewise or not beginnings or gate != beginnings[-1].gate:
            beginnings.append(_Beginning(start, index, piece.at_ms - started_ms, gate))
        start += len(piece.raw)
    parts = []
    sent = place = 0
    behind = _Beginning(start, len(response.pieces), 0, OPEN)
    for (_, piece_at, at_ms, gate), (end, next_piece, *_) in pairwise([*beginnings, behind]):
        # A value goes whole with the part in which it begins.
        segments: list[bytes | Gap] = []
        while place < len(echoed) and echoed[place].span.start < end:
            span, value, request = echoed[place]
            segments += (body[sent : span.start], Gap(value, body[span.start : span.end], request))
            sent = span.end
            place += 1
        segments.append(body[sent:end])
        sent = max(sent, end)
        parts.append(Part(tuple(segments), at_ms, gate, range(piece_at, next_piece)))
    return Reply(
        response.status,
        response.headers,
        tuple(parts),
        _end_of(response),
        response.is_event_stream,
        waits,
    )


def _end_of(response: Response) -> End:
    """Return how a response ends on replay.

    Who posts a message may leave as soon as it is accepted; others read on.
    """
    if response.only_accepts and response.end is End.OPEN:
        return End.COMPLETE
    return response.end


def echoes_in(
    request: Message | None, response: Response, waits: Waits = NO_WAITS
) -> tuple[Echo, ...]:
    """Return where a response's body repeats the values of its caller, or of other requests.

    Args:
        request: the message that is responded to, or None.
        response: the response.
        waits: what it waits for, and so which requests a listening stream responds to.
    """
    own = request if request is not None and request.kind is Kind.REQUEST else None
    if own is None and not waits.pieces:
        return ()
    placed: list[Echo] = []
    for located in messages_in(response):
        repeated = None if own is None else _echoes(located, own, None)
        other = waits.pieces[located.piece].request if waits.pieces else None
        if not repeated and other is not None and other.call.message is not None:
            repeated = _echoes(located, other.call.message, other)
        placed += repeated or ()
    return tuple(sorted(placed, key=itemgetter(0)))


def _echoes(located: Located, request: Message, playable: Playable | None) -> list[Echo]:
    repeated = echoes(located.message, request)
    return [
        Echo(in_body, value, playable)
        for spans, value in (
            (repeated.id, CallerValue.ID),
            (repeated.progress_token, CallerValue.PROGRESS_TOKEN),
            (repeated.id_as_text, CallerValue.ID_AS_TEXT),
        )
        for span in spans
        if (in_body := located.in_body(span)) is not None
    ]


class KnownEchoes:
    """What responses repeat; each is read once."""

    def __init__(self) -> None:
        """Begin with none."""
        self._known: dict[Playable, tuple[Echo, ...]] = {}

    def of(self, playable: Playable, waits: Waits) -> tuple[Echo, ...]:
        """Return what the response to an exchange repeats, where there is one.

        Args:
            playable: the exchange.
            waits: what the response waits for.
        """
        echoed = self._known.get(playable)
        if echoed is None:
            exchange = playable.exchange
            if exchange.response is None:
                return ()
            request = playable.stream.exchange.call.message
            echoed = self._known[playable] = echoes_in(request, exchange.response, waits)
        return echoed
