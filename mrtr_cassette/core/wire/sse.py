"""Frame Server-Sent Events without losing a byte (WHATWG HTML, "Parsing an event stream")."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from mrtr_cassette.core.wire.jsonbytes import Span

_BOM = b"\xef\xbb\xbf"
# A CR at the very end may be half of a line's end.
_LINE_END = re.compile(rb"\r\n|\r(?!\Z)|\n")
_BLANK_LINE = re.compile(rb"(?:\n|\r(?!\n))(?:\r\n|\r(?!\Z)|\n)")
"""The end of a line, or its LF, and another end of a line behind it."""

_ID_LINE = re.compile(rb"(?:\A|(?<=[\r\n]))id: ?([^\r\n]+)")
_TYPE_LINE = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?|(?<=[\r\n]))event: ?([^\r\n]*)")
_RETRY_LINE = re.compile(rb"(?:\A|(?<=[\r\n]))retry: ?([0-9]{1,9})(?=[\r\n])")
_DATA_LINE = re.compile(
    # The search for a literal is fast, so it comes before the look at what precedes it.
    rb"data(?<![^\r\n]data)(?:: ?|(?=[\r\n]|\Z))([^\r\n]*)"
)


@dataclass(frozen=True)
class Event:
    """One event: all its bytes, blank line included, and the text of its data."""

    raw: bytes
    data: bytes | None
    begin: int
    """Where its first line begins, after a byte order mark."""

    @cached_property
    def data_lines(self) -> list[tuple[int, Span]]:
        """Where each line of the data begins in `data`, and where it is in `raw`."""
        data_lines: list[tuple[int, Span]] = []
        offset = 0
        for match in _DATA_LINE.finditer(self.raw[self.begin :]):
            start, end = match.span(1)
            data_lines.append((offset, Span(self.begin + start, self.begin + end)))
            offset += end - start + 1

        return data_lines

    def raw_span(self, span: Span) -> Span | None:
        """Return where in `raw` a span of `data` stands, or None if it crosses a line end."""
        line_index = (
            bisect_right(self.data_lines, span.start, key=lambda line: line[0]) - 1
        )
        if line_index >= 0:
            offset, line = self.data_lines[line_index]
            if span.end <= offset + line.end - line.start:
                return span.moved(line.start - offset)

        return None


def read_event(raw: bytes, *, first: bool) -> Event:
    """Read the data lines of one event."""
    start_of_first_line = _start_of_first_line(raw, first=first)
    data_lines = _DATA_LINE.findall(raw[start_of_first_line:])
    data = b"\n".join(data_lines) if data_lines else None

    return Event(raw, data, start_of_first_line)


def event_id_spans(raw: bytes) -> list[Span]:
    """Return where the ids of an event stand in its bytes, except empty ones."""
    if b"id:" not in raw:
        return []
    return [Span(*match.span(1)) for match in _ID_LINE.finditer(raw)]


def event_id(raw: bytes) -> str:
    """Return the id of an event, the last one that it names; empty where it names none."""
    spans = event_id_spans(raw)
    if not spans:
        return ""

    last_span = spans[-1]
    return last_span.slice_of(raw).decode("utf-8", "replace")


def event_type(raw: bytes) -> bytes:
    """Return the type of an event, `message` unless it names another one."""
    types: list[bytes] = _TYPE_LINE.findall(raw)
    if not types or not types[-1]:
        return b"message"
    return types[-1]


def retry_ms(raw: bytes) -> int | None:
    """Return after how many milliseconds an event lets the client come back, or None."""
    match = _RETRY_LINE.search(raw)
    return None if match is None else int(match[1])


def _start_of_first_line(raw: bytes | bytearray, *, first: bool) -> int:
    """Return where the first line begins: after a byte order mark, if the stream begins here."""
    return len(_BOM) if first and raw.startswith(_BOM) else 0


class SseFramer:
    """Cuts a stream of bytes into events while they arrive."""

    def __init__(self) -> None:
        self._pending_bytes = bytearray()
        self._searched_length = 0
        self._is_at_first_event = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes, and return the bytes of each event that they complete."""
        pending = self._pending_bytes
        pending += chunk
        events = []
        start_of_event = 0
        content_start = _start_of_first_line(pending, first=self._is_at_first_event)
        search_start = self._searched_length
        while end := _LINE_END.match(pending, content_start) or _BLANK_LINE.search(
            pending, search_start
        ):
            content_start = end.end()
            search_start = content_start
            events.append(bytes(pending[start_of_event:content_start]))
            start_of_event = content_start
            self._is_at_first_event = False

        del pending[:start_of_event]
        # The last three bytes may begin a blank line.
        self._searched_length = max(len(pending) - 3, 0)
        return events

    def finish(self) -> tuple[bytes, bytes]:
        """End the stream; return an event that only waited for an LF, and the remaining bytes.

        Either may be empty.
        """
        pending = bytes(self._pending_bytes)
        start = _start_of_first_line(pending, first=self._is_at_first_event)
        is_blank = len(pending) == start + 1 or pending[-2:].startswith((b"\r", b"\n"))
        if is_blank and pending.endswith(b"\r"):
            return pending, b""

        return b"", pending
