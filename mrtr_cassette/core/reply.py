"""What replay sends: recorded bytes, with slots for what is the caller's own.

Owns: finding the slots (id, progress token, subscription id) by byte span, and cutting a body
where it has to wait for another request or for the recorded rhythm.
Rule: outside the slots every byte is the recorded one.
Source: docs/matching.md, "What comes back".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import cast

from mrtr_cassette.core.jsonbytes import Span
from mrtr_cassette.core.jsonrpc import Kind, Message, echoes
from mrtr_cassette.core.messages import messages_in
from mrtr_cassette.core.own import Own
from mrtr_cassette.core.wire import End, Headers, Response


class Slot(Enum):
    """What is the caller's own; the value is its place in `Own`."""

    ID = 0
    PROGRESS_TOKEN = 1


Segment = bytes | tuple[Slot, bytes]


@dataclass(frozen=True, slots=True)
class Part:
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


@dataclass(frozen=True, slots=True)
class Reply:
    """One recorded response, ready to be served."""

    status: int
    headers: Headers
    parts: tuple[Part, ...]
    end: End
    is_event_stream: bool


def build_reply(
    request: Message | None,
    response: Response,
    gates: tuple[frozenset[int], ...],
    *,
    paced: bool,
) -> Reply:
    """Return what to send for a recorded response.

    Args:
        request: the recorded request's message.
        response: the recorded response; its pieces' times count from the request.
        gates: for each piece, the exchanges that it waits for.
        paced: keep pieces apart that nothing but the rhythm separates.
    """
    slots = deque(sorted(_slots(request, response), key=_begin) if request is not None else ())
    parts: list[tuple[list[Segment], float, frozenset[int]]] = []
    body = response.body
    start = sent = 0
    for piece, gate in zip(response.pieces, gates, strict=True):
        # A slot goes whole with the piece in which it begins.
        end = start + len(piece.raw)
        inside = []
        while slots and slots[0][0].start < end:
            inside.append(slots.popleft())
        if not parts or paced or not gate <= parts[-1][2]:
            parts.append(([], piece.at_ms, gate))
        parts[-1][0].extend(_segments(body, max(start, sent), end, inside))
        sent = inside[-1][0].end if inside else sent
        start = end
    return Reply(
        response.status,
        response.headers,
        tuple(Part(_merged(segments), at_ms, gate) for segments, at_ms, gate in parts),
        response.end,
        response.is_event_stream,
    )


def _slots(request: Message, response: Response) -> Iterator[tuple[Span, Slot]]:
    """Yield the spans in the body that are the caller's own."""
    if request.kind is not Kind.REQUEST:
        return
    for located in messages_in(response):
        found = echoes(located.message, request)
        for spans, slot in ((found.id, Slot.ID), (found.progress_token, Slot.PROGRESS_TOKEN)):
            for span in spans:
                placed = located.in_body(span)
                if placed is not None:
                    yield placed, slot


def _begin(placed: tuple[Span, Slot]) -> Span:
    return placed[0]


def _segments(
    body: bytes, at: int, end: int, slots: Iterable[tuple[Span, Slot]]
) -> Iterator[Segment]:
    for span, slot in slots:
        yield body[at : span.start]
        yield slot, body[span.start : span.end]
        at = span.end
    yield body[at:end]


def _merged(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    merged: list[Segment] = []
    for is_bytes, run in groupby(segments, key=lambda segment: isinstance(segment, bytes)):
        if is_bytes:
            merged.append(b"".join(cast("Iterable[bytes]", run)))
        else:
            merged.extend(run)
    return tuple(merged)
