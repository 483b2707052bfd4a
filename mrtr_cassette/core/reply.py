"""What replay sends: recorded bytes, with slots for what is the caller's own.

Owns: finding the slots (id, progress token, subscription id) by byte span, and cutting a body
where it has to wait for another request or for the recorded rhythm.
Rule: outside the slots every byte is the recorded one.
Source: docs/matching.md, "What comes back".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import cast

from mrtr_cassette.core.jsonbytes import Span
from mrtr_cassette.core.jsonrpc import ID, PROGRESS_TOKEN, Kind, Message, echoes
from mrtr_cassette.core.messages import messages_in
from mrtr_cassette.core.wire import End, Headers, Response


class Slot(Enum):
    """What is the caller's own; the value is where a request has it."""

    ID = ID
    PROGRESS_TOKEN = PROGRESS_TOKEN


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

    def fill(self, caller: Message | None) -> bytes:
        """Return the bytes with the caller's own values; recorded ones where it has none."""
        return b"".join(
            segment
            if isinstance(segment, bytes)
            else (caller.spelled(segment[0].value) if caller is not None else None) or segment[1]
            for segment in self.segments
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
    slots = list(_slots(request, response)) if request is not None else []
    parts: list[tuple[list[Segment], float, frozenset[int]]] = []
    offset = 0
    for piece, gate in zip(response.pieces, gates, strict=True):
        end = offset + len(piece.raw)
        inside = [
            (Span(span.start - offset, span.end - offset), slot)
            for span, slot in slots
            if offset <= span.start and span.end <= end
        ]
        if not parts or paced or not gate <= parts[-1][2]:
            parts.append(([], piece.at_ms, gate))
        parts[-1][0].extend(_segments(piece.raw, inside))
        offset = end
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


def _segments(raw: bytes, slots: Iterable[tuple[Span, Slot]]) -> Iterator[Segment]:
    at = 0
    for span, slot in sorted(slots, key=lambda pair: pair[0]):
        yield raw[at : span.start]
        yield slot, raw[span.start : span.end]
        at = span.end
    yield raw[at:]


def _merged(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    merged: list[Segment] = []
    for is_bytes, run in groupby(segments, key=lambda segment: isinstance(segment, bytes)):
        if is_bytes:
            merged.append(b"".join(cast("Iterable[bytes]", run)))
        else:
            merged.extend(run)
    return tuple(merged)
