"""Undo the escapes of JSON and of URLs, and know where each byte was spelled, in JSON or not."""

from __future__ import annotations

import json
import re
from binascii import a2b_base64
from bisect import bisect_right, insort
from codecs import getincrementaldecoder
from collections.abc import Callable
from enum import Enum, auto
from functools import cached_property, lru_cache
from typing import Final

from mrtr_cassette.core.wire.sse import read_event

_ASCII_ESCAPE = re.compile(r"\\+(?:/|u00(?!5[cC]|7[fF])[2-7][0-9a-fA-F])")
"""A printable character of ASCII, escaped in JSON or in JSON in a string; not a backslash."""

_PERCENT_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_JSON_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[\"\\/bfnrt])"
)
_SHORT_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WHITESPACE_ESCAPES = tuple(
    ("\\" * count + letter, char + " " * count)
    for count in (8, 4, 2, 1)
    for letter, char in (("n", "\n"), ("r", "\r"), ("t", "\t"))
)
_LONGEST_BASE64 = 256 * 1024
_BASE64_LINE = re.compile(r"([A-Za-z0-9+/_-]+)={0,2}")
_NEXT_BASE64_LINE = re.compile(r"\s{1,4}([A-Za-z0-9+/_-]{2,})={0,2}", re.ASCII)
_TO_STANDARD_BASE64 = str.maketrans("-_", "+/")
_ASCII = "[CDI-Za-f]"
_FIRST_OF_TWO = "[w-z0-3]"
_FIRST_OF_MORE = "[4-9]"
"""The first six bits of a byte of text: of ASCII, or of a character of two bytes or more."""

_THEN_ASCII = "[AC-HQS-Xgi-nwyz0-3]"
_THEN_FIRST = "[M-Pc-fs-v89+/_-]"
_THEN_LATER = "[I-LYZabo-r4-7]"
"""The end of a byte and the beginning of the next: ASCII, or a first or later byte of more."""

_THEN_BEGINS = "[ABDEFHIJLMNPQRTUVXYZb-df-hj-ln-pr-tv-xz013-57-9/_]"
_THEN_GOES_ON = "[CGKOSWaeimquy26+-]"
"""The end of a byte, and whether the next begins a character or goes on with one."""

BEGINNING_OF_TEXT_IN_BASE64: Final = (
    f"(?:{_ASCII}(?:{_THEN_ASCII}{_THEN_BEGINS}|{_THEN_FIRST}{_THEN_GOES_ON})"
    f"|{_FIRST_OF_TWO}{_THEN_LATER}{_THEN_BEGINS}|{_FIRST_OF_MORE}{_THEN_LATER}{_THEN_GOES_ON})"
)
"""The first three characters in base64, in either alphabet, of text in UTF-8."""

_REST_OF_STRING = re.compile(r"[^\"\\\r\n]*+(?:\\.[^\"\\\r\n]*+)*+")
_QUOTE_OR_LINE_END = re.compile(r"(\\*)\"|[\r\n]")


class Decoded:
    """A text with the escapes of one layer undone."""

    def __init__(
        self,
        text: str,
        escape: re.Pattern[str],
        undo: Callable[[str], str],
        chars_per_byte: int = 0,
    ) -> None:
        """Undo all escapes; `chars_per_byte` is 0 if their lengths vary."""
        decoded_parts: list[str] = []
        # Of each part: where it begins, where that is spelled, and how many characters spell one
        # of its own.
        self._starts = [0]
        self._source_starts = [0]
        self._chars_per_byte = [1]
        decoded_length = 0
        end_of_last_escape = 0
        for match in escape.finditer(text):
            start, end = match.span()
            unescaped = undo(match[0])
            decoded_parts += (text[end_of_last_escape:start], unescaped)
            decoded_length += start - end_of_last_escape
            self._starts += (decoded_length, decoded_length + len(unescaped))
            self._source_starts += (start, end)
            self._chars_per_byte += (chars_per_byte, 1)
            decoded_length += len(unescaped)
            end_of_last_escape = end

        decoded_parts.append(text[end_of_last_escape:])
        self.text = "".join(decoded_parts)

    def source_offset(self, offset: int) -> int:
        """Return where the character at an offset is spelled."""
        index = bisect_right(self._starts, offset) - 1
        chars_past_start = offset - self._starts[index]
        if chars_past_start and not self._chars_per_byte[index]:
            return self._source_starts[index + 1]

        source_chars = chars_past_start * self._chars_per_byte[index]
        return self._source_starts[index] + source_chars


def with_real_line_ends(text: str) -> str:
    r"""Return a text of the same length with real line ends for `\n` in strings of JSON."""
    if "\\" not in text:
        return text

    escapes = _WHITESPACE_ESCAPES
    if "\\\\" not in text:
        escapes = _WHITESPACE_ESCAPES[-3:]

    for escape, char in escapes:
        text = text.replace(escape, char)

    return text


def without_framing(stream: str) -> str:
    """Return an event stream of the same length in which the names of data fields are blank."""
    stream = f"\n{stream}"
    for end in "\n\r":
        for name in ("data: ", "data:"):
            stream = stream.replace(end + name, end + " " * len(name))

    return stream[1:]


def end_of_json_string(text: str, start: int, backslashes: int) -> int:
    """Return where a string of JSON ends whose quotes have so many backslashes before them."""
    if not backslashes:
        return _REST_OF_STRING.match(text, start).end()  # type: ignore[union-attr]

    for quote in _QUOTE_OR_LINE_END.finditer(text, start):
        if quote[1] is None:
            return quote.start()

        # Escaped backslashes come before those of the quote.
        quote_backslashes = len(quote[1]) % (2 * backslashes + 2)
        if quote_backslashes <= backslashes:
            return quote.end() - 1 - quote_backslashes

    return len(text)


def utf8_text_of_latin1(latin1_text: str) -> str:
    """Return the characters that a Latin-1 decoding of UTF-8 stands for."""
    if latin1_text.isascii():
        return latin1_text

    raw = latin1_text.encode("latin-1")
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return raw.decode("utf-8", "surrogateescape")


def without_ascii_escapes(text: str) -> Decoded:
    """Undo the escapes of ASCII in JSON and in JSON in a string, so that a quote stays escaped."""
    return Decoded(text, _ASCII_ESCAPE, _char_of_ascii_escape)


def without_json_escapes(text: str) -> Decoded:
    """Undo the escapes of a string of JSON."""
    return Decoded(text, _JSON_ESCAPE, _char_of_json_escape)


def without_percent(text: str, *, is_form: bool = False) -> Decoded:
    """Undo the escapes of a URL, or of a form."""

    def decode_percent_escapes(escapes: str) -> str:
        return bytes.fromhex(escapes.replace("%", "")).decode("latin-1")

    if is_form:
        text = text.replace("+", " ")

    return Decoded(text, _PERCENT_ESCAPES, decode_percent_escapes, chars_per_byte=3)


def _char_of_ascii_escape(escape: str) -> str:
    """Return the character of an escape; a quote keeps its backslashes."""
    if escape[-1] == "/":
        return "/"

    char = chr(int(escape[-2:], 16))
    if char == '"':
        return escape[:-5] + char

    return char


def _char_of_json_escape(escape: str) -> str:
    """Return the character of an escape of JSON, as Latin-1 decodes its UTF-8."""
    if len(escape) == 2:
        return _SHORT_ESCAPES.get(escape[1], escape[1])

    utf16 = bytes.fromhex(escape.replace("\\u", ""))
    char = utf16.decode("utf-16-be", "surrogatepass")
    return char.encode("utf-8", "surrogatepass").decode("latin-1")


def unescaped_json(escaped_text: str, times: int = 6) -> str:
    """Undo the escapes of JSON so many times, or until there are none."""
    for _ in range(times):
        if "\\" not in escaped_text:
            break

        undone = _JSON_ESCAPE.sub(
            lambda escape: _char_of_json_escape(escape[0]), escaped_text
        )
        if undone == escaped_text:
            break

        escaped_text = undone

    return escaped_text


def spell_in_url(text: str) -> str:
    """Spell a text inside a URL or a form."""
    for char, escape in (("<", "%3C"), (">", "%3E"), ('"', "%22"), ("\\", "%5C")):
        text = text.replace(char, escape)

    return text


def word_table(chars: str) -> bytes:
    """Return a table for `translate` that maps these characters to `w`, and others to a space."""
    char_table = bytearray(b" " * 256)
    for char in chars:
        char_table[ord(char)] = ord("w")

    return bytes(char_table)


def long_words(
    raw: bytes, char_table: bytes, least_length: int
) -> list[tuple[int, int]]:
    """Return where long words begin and end; `char_table` is a table from `word_table`."""
    word_spans = []
    marked_words = raw.translate(char_table)
    # A search for a literal is the fastest one.
    shortest_word = b"w" * least_length
    start = marked_words.find(shortest_word)
    while start >= 0:
        end = marked_words.find(b" ", start)
        if end < 0:
            end = len(raw)

        word_spans.append((start, end))
        start = marked_words.find(shortest_word, end)

    return word_spans


def end_of_base64(text: str, start: int) -> int:
    """Return where base64 ends that begins at an offset, as far as its lines encode text."""
    end = start
    decoder = getincrementaldecoder("utf-8")()
    line = _BASE64_LINE.match(text, start)
    while line is not None:
        encoded = line[1].translate(_TO_STANDARD_BASE64)
        try:
            decoder.decode(a2b_base64(encoded + "=" * (-len(encoded) % 4)))
        except ValueError:
            break

        end = line.end()
        # Only the last line may have any other length.
        if len(encoded) % 4:
            break

        line = _NEXT_BASE64_LINE.match(text, end)

    return end


def decoded_base64(base64_text: str) -> str:
    """Return the text that is spelled in base64, as far as it is read; empty for other data."""
    encoded = "".join(base64_text[:_LONGEST_BASE64].split())
    encoded = encoded.rstrip("=").translate(_TO_STANDARD_BASE64)
    if len(encoded) % 4 == 1:
        encoded = encoded[:-1]

    padding = "=" * (-len(encoded) % 4)
    # The last character may be cut off.
    decoder = getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(a2b_base64(encoded + padding))
    except ValueError:
        return ""

    if "\0" in text:
        return ""

    return text.removeprefix("\ufeff").encode().decode("latin-1")


# JSON

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
        self._has_json = b"{" in raw or b"[" in raw
        self._line_ends = [end for end in (b"\r", b"\n") if end in raw]
        self._offsets_with_quoting = [(0, False)]
        """The offsets that were asked about, and whether a string is open there."""
        self._is_json_between = lru_cache(maxsize=None)(self._reads_as_json_between)

    def json_part_at(self, start: int, end: int) -> JsonPart:
        """Return what is between two offsets."""
        if not self._has_json or self._is_in_string(start, end):
            return JsonPart.TEXT

        if not self._is_within_json(start, end):
            return JsonPart.TEXT
        if self._is_number(start, end):
            return JsonPart.NUMBER

        return JsonPart.STRUCTURE

    def _is_in_string(self, start: int, end: int) -> bool:
        """Tell whether a part is within one string of JSON, with no escape that is cut."""
        if self._is_within_escape(start) or self._is_within_escape(end):
            return False

        return self._is_string_open_at(start) and not _quote_count(self._raw[start:end])

    def _is_within_escape(self, offset: int) -> bool:
        """Tell whether an offset is within an escape of JSON."""
        window_start = max(0, offset - _LONGEST_ESCAPE_BEGUN)
        if self._raw.find(b"\\", window_start, offset) < 0:
            return False

        return _ESCAPE_BEGUN.search(self._raw, window_start, offset) is not None

    def _is_string_open_at(self, offset: int) -> bool:
        """Tell whether a string of JSON is open at an offset; no string goes over two lines."""
        index = bisect_right(self._offsets_with_quoting, (offset, True)) - 1
        counted_from, is_quoted = self._offsets_with_quoting[index]
        line_start = self._line_start(offset)
        if line_start > counted_from:
            counted_from = line_start
            is_quoted = False

        if _quote_count(self._raw[counted_from:offset]) % 2:
            is_quoted = not is_quoted

        if counted_from < offset:
            insort(self._offsets_with_quoting, (offset, is_quoted))

        return is_quoted

    def _line_start(self, offset: int) -> int:
        """Return where the line of an offset begins."""
        last_end = -1
        for line_end in self._line_ends:
            last_end = max(last_end, self._raw.rfind(line_end, last_end + 1, offset))

        return last_end + 1

    def _is_within_json(self, start: int, end: int) -> bool:
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

    def _reads_as_json_between(self, start: int, end: int) -> bool:
        """Tell whether a line, or the data of an event, is JSON."""
        raw = self._raw[start:end]
        data = read_event(raw, first=start == 0).data
        return _reads_as_json(raw if data is None else data)

    def _is_number(self, start: int, end: int) -> bool:
        """Tell whether a part of JSON outside its strings is a whole number."""
        if _NUMBER.fullmatch(self._raw, start, end) is None:
            return False

        # A number is in an object or an array, so something is around it.
        before = self._raw[start - 1]
        after = self._raw[end]
        return before not in _CHARS_OF_NUMBERS and after not in _CHARS_OF_NUMBERS


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
