"""What replay sends: recorded bytes, with slots for what is the caller's own.

Owns: finding the slots (id, progress token, subscription id) by byte span, and cutting a body
where it has to wait for another request or for the recorded rhythm.
Rule: outside the slots every byte is the recorded one.
Source: docs/matching.md, "What comes back".
"""

from __future__ import annotations

from enum import Enum
from operator import itemgetter
from typing import NamedTuple

from mrtr_cassette.core.exchange.caller_values import Own
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message, echoes
from mrtr_cassette.core.protocol.messages import messages_in
from mrtr_cassette.core.wire.http import End, Headers, Response
from mrtr_cassette.core.wire.jsonbytes import Span


class Slot(Enum):
    """What is the caller's own; the value is its place in `Own`."""

    ID = 0
    PROGRESS_TOKEN = 1


Echoed = tuple[tuple[Span, Slot], ...]
"""Where a body repeats what is the caller's own, in order."""
Segment = bytes | tuple[Slot, bytes]


class Part(NamedTuple):
    """Bytes that are sent together.

    Attributes:
        segments: recorded bytes, and slots in between.
        at_ms: milliseconds after the request, in the recorded rhythm.
        gate: numbers of the recorded exchanges whose requests must have come before.
    """

    segments: tuple[Segment, ...]
    at_ms: float
    gate: frozenset[int]

    def fill(self, own: Own) -> bytes:
        """Return the bytes with the caller's own values; recorded ones where it has none."""
        return b"".join(
            [
                segment if isinstance(segment, bytes) else own[segment[0].value] or segment[1]
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


def build_reply(
    echoed: Echoed,
    response: Response,
    gates: tuple[frozenset[int], ...],
    *,
    paced: bool,
) -> Reply:
    """Return what to send for a recorded response.

    Args:
        echoed: where its body repeats what is the caller's own.
        response: the recorded response; its pieces' times count from the request.
        gates: for each piece, the exchanges that it waits for.
        paced: keep pieces apart that nothing but the rhythm separates.
    """
    body = response.body
    begun: list[tuple[int, float, frozenset[int]]] = []
    start = 0
    for piece, gate in zip(response.pieces, gates, strict=True):
        if not begun or paced or not gate <= begun[-1][2]:
            begun.append((start, piece.at_ms, gate))
        start += len(piece.raw)
    parts = []
    sent = place = 0
    for number, (_, at_ms, gate) in enumerate(begun, start=1):
        end = begun[number][0] if number < len(begun) else start
        # A slot goes whole with the part in which it begins.
        segments: list[Segment] = []
        while place < len(echoed) and echoed[place][0].start < end:
            span, slot = echoed[place]
            segments += (body[sent : span.start], (slot, body[span.start : span.end]))
            sent = span.end
            place += 1
        segments.append(body[sent:end])
        sent = max(sent, end)
        parts.append(Part(tuple(segments), at_ms, gate))
    return Reply(
        response.status, response.headers, tuple(parts), response.end, response.is_event_stream
    )


def echoed_in(request: Message | None, response: Response) -> Echoed:
    """Return where a response's body repeats what is its caller's own."""
    if request is None or request.kind is not Kind.REQUEST:
        return ()
    placed = []
    for located in messages_in(response):
        found = echoes(located.message, request)
        for spans, slot in ((found.id, Slot.ID), (found.progress_token, Slot.PROGRESS_TOKEN)):
            for span in spans:
                in_body = located.in_body(span)
                if in_body is not None:
                    placed.append((in_body, slot))
    return tuple(sorted(placed, key=itemgetter(0)))
