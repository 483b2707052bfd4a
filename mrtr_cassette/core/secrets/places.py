"""Tell what a place in a text is in JSON, and whether replay needs the value there."""

from __future__ import annotations

import json
import re
from bisect import bisect_right, insort
from enum import Enum, auto
from functools import cached_property, lru_cache
from typing import Final

from mrtr_cassette.core.protocol.dialect import ECHOED_STATE_PATH, ISSUED_STATE_PATH
from mrtr_cassette.core.protocol.jsonrpc import ECHO_PLACES, TOKEN_PATH
from mrtr_cassette.core.secrets.decode import without_framing
from mrtr_cassette.core.wire.jsonbytes import MemberPath, Span, find_spans
from mrtr_cassette.core.wire.sse import read_event
from mrtr_cassette.errors import NotJsonError

# Values that are never replaced

_CHARS_BEFORE_ID = 192
_EXEMPT_KEY = re.compile(
    r"\"(?:id|progressToken|requestId|requestState|code|io\.modelcontextprotocol/subscriptionId)\"\s*:\s*\"?[^\"]*\Z",
    re.ASCII,
)
_WHOLE_LINE = re.compile(r"[^\r\n]*")
_BEFORE_MESSAGE = re.compile(r"(?:\xef\xbb\xbf)?(?:data:)?[ \t\r\n]*")
_CODE_PATH: Final[MemberPath] = ("error", "code")
_EXEMPT_PATHS: Final[tuple[MemberPath, ...]] = (
    TOKEN_PATH,
    ECHOED_STATE_PATH,
    ISSUED_STATE_PATH,
    _CODE_PATH,
    *[place.path for place in ECHO_PLACES],
)
"""Values that replay splices, seals or compares by itself, and the code of an error."""

_VERSION_PATH: Final[MemberPath] = ("jsonrpc",)
"""A member that each message has, unlike other JSON with such members."""


class ExemptValues:
    """The ids, tokens and states of a message, or of a text's lines, which are never redacted."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._spans_between = lru_cache(maxsize=None)(self._read_spans)

    def contain(self, start: int, end: int) -> bool:
        """Tell whether a part of the text is in such a value."""
        text = self._text
        begin = max(0, start - _CHARS_BEFORE_ID)
        if not _EXEMPT_KEY.search(text, begin, start):
            return False

        # The message is the whole text, or a line of it.
        last_end = max(text.rfind("\r", 0, start), text.rfind("\n", 0, start))
        line = _WHOLE_LINE.match(text, last_end + 1).span()  # type: ignore[union-attr]
        exempt = [*self._spans_between(0, len(text)), *self._spans_between(*line)]
        return any(span.start <= start and end <= span.end for span in exempt)

    def _read_spans(self, start: int, end: int) -> list[Span]:
        """Return where a part of the text, if it is a message, has such values."""
        text = self._text
        start = _BEFORE_MESSAGE.match(text, start, end).end()  # type: ignore[union-attr]
        try:
            found = find_spans(
                text[start:end].encode("latin-1"), (*_EXEMPT_PATHS, _VERSION_PATH)
            )
        except NotJsonError:
            return []

        if not found.pop(_VERSION_PATH, None):
            return []

        exempt = []
        for path, spans in found.items():
            # An object or an array is no id, and a string no code, so it is like any other value.
            others = '{["' if path == _CODE_PATH else "{["
            for span in spans:
                if text[start + span.start] not in others:
                    exempt.append(Span(start + span.start, start + span.end))

        return exempt


# Strings and numbers

_ESCAPE_BEGUN = re.compile(rb"(?<!\\)(?:\\\\)*\\(?:u[0-9A-Fa-f]{0,3})?\Z")
_LONGEST_ESCAPE_BEGUN = 64
"""Bytes before an offset that tell whether it is within an escape."""

_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LINE_END = re.compile(rb"[\r\n]|\Z")
_CHARS_OF_NUMBERS = b"0123456789+-.eE"
_EVENT_BREAKS = (b"\n\n", b"\r\n\r\n", b"\r\r")


class JsonPart(Enum):
    """What a part of a text is, if the text is JSON."""

    TEXT = auto()
    """Within one string, or in a text that is no JSON."""

    NUMBER = auto()
    STRUCTURE = auto()
    """Anything else: without it, the text would be no JSON, or other JSON."""


class JsonParts:
    """The parts of a body that may be JSON, or have JSON in its lines or events."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._known_offsets = [0]
        self._is_quoted_at = {0: False}
        """Whether a string is open at the offsets that were asked about."""
        self._is_json_between = lru_cache(maxsize=None)(self._reads_as_json)

    def part_at(self, start: int, end: int) -> JsonPart:
        """Return what is between two offsets."""
        if self._is_in_string(start, end):
            return JsonPart.TEXT

        if not self._is_of_json(start, end):
            return JsonPart.TEXT
        if self._is_number(start, end):
            return JsonPart.NUMBER

        return JsonPart.STRUCTURE

    @cached_property
    def exempt_values(self) -> ExemptValues:
        """The values that are never redacted."""
        return ExemptValues(without_framing(self._raw.decode("latin-1")))

    def _is_in_string(self, start: int, end: int) -> bool:
        """Tell whether a part is within one string of JSON, with no escape that is cut."""
        if self._cuts_escape(start) or self._cuts_escape(end):
            return False

        return self._is_quoted(start) and not _quote_count(self._raw[start:end])

    def _cuts_escape(self, at: int) -> bool:
        """Tell whether an offset is within an escape of JSON."""
        window_start = max(0, at - _LONGEST_ESCAPE_BEGUN)
        return _ESCAPE_BEGUN.search(self._raw, window_start, at) is not None

    def _is_quoted(self, at: int) -> bool:
        """Tell whether a string of JSON is open at an offset; no string goes over two lines."""
        index = bisect_right(self._known_offsets, at) - 1
        counted_from = self._known_offsets[index]
        is_quoted = self._is_quoted_at[counted_from]
        line_start = self._line_start(at)
        if line_start > counted_from:
            counted_from = line_start
            is_quoted = False

        if _quote_count(self._raw[counted_from:at]) % 2:
            is_quoted = not is_quoted

        if at not in self._is_quoted_at:
            insort(self._known_offsets, at)
            self._is_quoted_at[at] = is_quoted

        return is_quoted

    def _line_start(self, at: int) -> int:
        """Return where the line of an offset begins."""
        last_end = max(self._raw.rfind(b"\r", 0, at), self._raw.rfind(b"\n", 0, at))
        return last_end + 1

    def _is_of_json(self, start: int, end: int) -> bool:
        """Tell whether the whole text is JSON, or the line or the event around a part of it."""
        if self._is_json:
            return True

        line_start = self._line_start(start)
        line_end = _LINE_END.search(self._raw, end).start()  # type: ignore[union-attr]
        if self._is_json_between(line_start, line_end):
            return True
        if not self._raw.startswith(b"data", line_start):
            return False

        event_start = 0
        event_end = len(self._raw)
        for mark in _EVENT_BREAKS:
            event_start = max(event_start, self._raw.rfind(mark, 0, start))
            found_at = self._raw.find(mark, end)
            if found_at >= 0:
                event_end = min(event_end, found_at)

        return self._is_json_between(event_start, event_end)

    @cached_property
    def _is_json(self) -> bool:
        """Whether the whole text is JSON."""
        return _reads_as_json(self._raw)

    def _reads_as_json(self, start: int, end: int) -> bool:
        """Tell whether a line, or the data of an event, is JSON."""
        raw = self._raw[start:end]
        data = read_event(raw, first=start == 0).data
        return _reads_as_json(raw if data is None else data)

    def _is_number(self, start: int, end: int) -> bool:
        """Tell whether a part of JSON outside its strings is a whole number."""
        before = self._raw[start - 1]
        after = self._raw[end]
        if before in _CHARS_OF_NUMBERS or after in _CHARS_OF_NUMBERS:
            return False

        return _NUMBER.fullmatch(self._raw, start, end) is not None


def _quote_count(raw: bytes) -> int:
    """Count the quotes that begin or end strings of JSON."""
    without_escapes = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    return without_escapes.count(b'"')


def _reads_as_json(raw: bytes) -> bool:
    """Tell whether a text is an object or an array of JSON, also one with `NaN`."""
    text = raw.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] not in (b"{", b"["):
        return False

    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False

    return True
