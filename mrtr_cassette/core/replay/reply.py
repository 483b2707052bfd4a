"""What replay sends: recorded bytes, with the caller's own values put in.

Owns: finding where a response repeats the caller's values (id, progress token, subscription id),
and cutting a body where it has to wait for another request or for the recorded rhythm.
Rule: outside the caller's values every byte is the recorded one.
Source: docs/matching.md, "What comes back".
"""

from __future__ import annotations

from enum import Enum
from operator import itemgetter
from typing import NamedTuple

from mrtr_cassette.core.exchange.caller_values import CallerValues
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message, echoes
from mrtr_cassette.core.protocol.messages import messages_in
from mrtr_cassette.core.wire.http import End, Headers, Response
from mrtr_cassette.core.wire.jsonbytes import Span


class CallerValue(Enum):
    """One of the caller's values; the number is its place in `CallerValues`."""

    ID = 0
    PROGRESS_TOKEN = 1


class Echo(NamedTuple):
    """A place in a body that repeats one of the caller's values."""

    span: Span
    value: CallerValue


Segment = bytes | tuple[CallerValue, bytes]
"""Recorded bytes, or one of the caller's values with its recorded bytes."""


class Part(NamedTuple):
    """Bytes that are sent together.

    Attributes:
        segments: recorded bytes and the caller's values in between.
        at_ms: milliseconds after the request, in the recorded rhythm.
        gate: numbers of the recorded exchanges whose requests must have come before.
    """

    segments: tuple[Segment, ...]
    at_ms: float
    gate: frozenset[int]

    def fill(self, values: CallerValues) -> bytes:
        """Return the bytes with the caller's values; recorded ones where it has none."""
        return b"".join(
            [
                segment if isinstance(segment, bytes) else values[segment[0].value] or segment[1]
                for segment in self.segments
            ]
        )


class Reply(NamedTuple):
    """One recorded response, ready to be served."""

    status: int
    headers: Headers
    parts: tuple[Part, ...]
    end: End
    is_event_stream: bool


class _Beginning(NamedTuple):
    """Where in a body a part begins, and what it waits for."""

    start: int
    at_ms: float
    gate: frozenset[int]


def build_reply(
    echoed: tuple[Echo, ...],
    response: Response,
    gates: tuple[frozenset[int], ...],
    *,
    started_ms: float = 0,
    paced: bool = False,
) -> Reply:
    """Return what to send for a recorded response.

    Args:
        echoed: where its body repeats the caller's values, in order.
        response: the recorded response.
        gates: for each piece of it, the exchanges that it waits for; none at all wait for nothing.
        started_ms: when its request had arrived.
        paced: keep pieces apart that nothing but the rhythm separates.
    """
    body = response.body
    beginnings: list[_Beginning] = []
    start = 0
    for index, piece in enumerate(response.pieces):
        gate = gates[index] if gates else _NOTHING
        if not beginnings or paced or not gate <= beginnings[-1].gate:
            beginnings.append(_Beginning(start, piece.at_ms - started_ms, gate))
        start += len(piece.raw)
    parts = []
    sent = place = 0
    for number, (_, at_ms, gate) in enumerate(beginnings, start=1):
        end = beginnings[number].start if number < len(beginnings) else start
        # A value goes whole with the part in which it begins.
        segments: list[Segment] = []
        while place < len(echoed) and echoed[place].span.start < end:
            span, value = echoed[place]
            segments += (body[sent : span.start], (value, body[span.start : span.end]))
            sent = span.end
            place += 1
        segments.append(body[sent:end])
        sent = max(sent, end)
        parts.append(Part(tuple(segments), at_ms, gate))
    return Reply(
        response.status, response.headers, tuple(parts), response.end, response.is_event_stream
    )


_NOTHING: frozenset[int] = frozenset()


def echoes_in(request: Message | None, response: Response) -> tuple[Echo, ...]:
    """Return where a response's body repeats its caller's values."""
    if request is None or request.kind is not Kind.REQUEST:
        return ()
    placed = []
    for located in messages_in(response):
        repeated = echoes(located.message, request)
        for spans, value in (
            (repeated.id, CallerValue.ID),
            (repeated.progress_token, CallerValue.PROGRESS_TOKEN),
        ):
            for span in spans:
                in_body = located.in_body(span)
                if in_body is not None:
                    placed.append(Echo(in_body, value))
    return tuple(sorted(placed, key=itemgetter(0)))
