from __future__ import annotations

import pytest

from mrtr_cassette.core.wire.jsonbytes import Span
from mrtr_cassette.core.wire.sse import SseFramer, event_id_spans, read_event

BOM = b"\xef\xbb\xbf"


def test_event_is_there_as_soon_as_it_is_whole() -> None:
    """An event whose blank line has come doesn't wait for the next chunk."""
    framer = SseFramer()

    assert list(framer.feed(b"data: 1\n")) == []
    assert list(framer.feed(b"\ndata: 2")) == [b"data: 1\n\n"]
    assert list(framer.feed(b"\r\n\r\n")) == [b"data: 2\r\n\r\n"]


def test_byte_order_mark_counts_in_the_first_event_only() -> None:
    """A byte order mark is skipped where the stream begins, and is part of a line elsewhere."""
    raw = BOM + b"data: 1\n\n"

    assert read_event(raw, first=True).data == b"1"
    assert read_event(raw, first=False).data is None


@pytest.mark.parametrize(
    ("span", "found"),
    [
        (Span(0, 3), b"abc"),
        (Span(1, 2), b"b"),
        (Span(3, 3), b""),
        (Span(4, 7), b"def"),
        (Span(6, 7), b"f"),
        (Span(2, 5), None),
        (Span(3, 4), None),
        (Span(7, 9), None),
    ],
)
def test_span_of_data_is_found_in_the_bytes(span: Span, found: bytes | None) -> None:
    """A span of the data stands in one data line of the event, or nowhere."""
    event = read_event(b"id: 1\r\ndata: abc\r\ndata:def\r\n\r\n", first=True)

    place = event.raw_span(span)

    assert (None if place is None else event.raw[place.start : place.end]) == found


@pytest.mark.parametrize(
    ("raw", "ids"),
    [
        (b"id: 1\ndata: x\n\n", [b"1"]),
        (b"data: x\r\nid:a b \r\n\r\n", [b"a b "]),
        (b"id: 1\rid: 2\r\r", [b"1", b"2"]),
        (b"id:\nid\ndata: id: 3\n\n", []),
        (b"data: x\n\n", []),
    ],
)
def test_ids_of_events_are_found(raw: bytes, ids: list[bytes]) -> None:
    """An id is the value of a field of that name; an empty one names no event."""
    assert [raw[span.start : span.end] for span in event_id_spans(raw)] == ids
