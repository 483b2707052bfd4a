r"""Text within text: JSON strings, JSON in such a string, URLs, forms.

Owns: undoing the escapes of one layer (`\u002d`, `%2D`), the tokens of JSON, also of JSON that is
cut off or nested too deeply to parse, and mapping a finding back to the text that spells it.
Does not own: what is searched for (`redact`, `states`).
Rule: a replacement is spelled for the layer that it stands in: JSON stays JSON, a URL stays a URL.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from html import unescape
from typing import NamedTuple

from mrtr_cassette.errors import NotJsonError

_JSON_TOKEN = re.compile(
    r"[ \t\r\n,:]*+(?:"
    r'"(?P<text>[^"\\]*+(?:\\.[^"\\]*+)*+)(?:"(?P<key>[ \t\r\n]*+:)?|\\?\Z)'
    r"|(?P<opening>[{\[])|(?P<closing>[}\]])"
    # Numbers that follow a number are no values of a member, and there may be millions.
    r"|(?P<number>-?\d[\d.eE+-]*+)[\d.eE+, \t\r\n-]*+|true|false|null|[a-z]{1,4}\Z)",
    re.DOTALL,
)
_JSON_BEGINNING = re.compile(r'\ufeff?[ \t\r\n]*+(?=[{\["tfn\d-])')
_JSON_END = re.compile(r"[ \t\r\n,:]*+-?\Z")
_JSON_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)",
    re.DOTALL,
)
_HTML_ESCAPE = re.compile(r"&(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});")
_JSON_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS = bytes(
    ord("w") if chr(code).isascii() and (chr(code).isalnum() or chr(code) in "_.-") else ord(" ")
    for code in range(256)
)
"""Translates each letter, digit, `_`, `.` and `-` to `w`, and all else to a space."""
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_PERCENT_OR_PLUS = re.compile(r"(?:%[0-9A-Fa-f]{2})+|\+")


def long_words(raw: bytes, shortest: int) -> Iterator[bytes]:
    """Yield the words of at least so many letters, digits, `_`, `.` and `-`."""
    # The beginning of a long word is then found by one search for a literal.
    mapped = raw.translate(_WORDS)
    long = b"w" * shortest
    at = mapped.find(long)
    while at >= 0:
        end = mapped.find(b" ", at)
        end = len(raw) if end < 0 else end
        yield raw[at:end]
        at = mapped.find(long, end)


def _spell_as_is(text: str) -> str:
    return text


def spell_as_json(text: str) -> str:
    """Spell a text where a JSON number stood."""
    return f'"{text}"'


def spell_in_json(text: str) -> str:
    """Spell a text inside a JSON string."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def spell_in_url(text: str) -> str:
    """Spell a text inside a URL or a form."""
    for char, escape in (("<", "%3C"), (">", "%3E"), ('"', "%22"), ("\\", "%5C")):
        text = text.replace(char, escape)
    return text


def spell_nothing(_text: str) -> str:
    """Leave no text, as the placeholder stands in an earlier line."""
    return ""


def _spell_both(outer: Callable[[str], str], inner: Callable[[str], str], text: str) -> str:
    return outer(inner(text))


class Finding(NamedTuple):
    """A secret or a state in a text.

    Attributes:
        start: offset of its first character.
        end: offset after its last one.
        rule: the rule that it was found by; empty for a state.
        plain: the secret or state itself, with all escapes undone.
        spell: turns what replaces it into the spelling that this text needs.
    """

    start: int
    end: int
    rule: str
    plain: str
    spell: Callable[[str], str] = _spell_as_is


_NO_ESCAPES = array("q", [0])


class DecodedText:
    """A text with one layer of escapes undone, and where each of its characters was spelled.

    Attributes:
        text: the text.
    """

    def __init__(
        self, raw: str, pattern: re.Pattern[str], undo: Callable[[str], Iterable[tuple[str, int]]]
    ) -> None:
        """Undo the escapes in a text.

        Args:
            raw: the text with its escapes.
            pattern: matches an escape, or several in a row.
            undo: returns the characters that such a match stands for, each with the length of its
                spelling.
        """
        self.text = raw
        self._starts = self._sources = _NO_ESCAPES
        if pattern.search(raw) is not None:
            self._undo(raw, pattern, undo)

    def _undo(
        self, raw: str, pattern: re.Pattern[str], undo: Callable[[str], Iterable[tuple[str, int]]]
    ) -> None:
        parts: list[str] = []
        self._starts = array("q", [0])
        self._sources = array("q", [0])
        length = at = 0
        for match in pattern.finditer(raw):
            if match.start() > at:
                parts.append(raw[at : match.start()])
                length += match.start() - at
            at = match.start()
            for char, spelled_length in undo(match[0]):
                self._starts.append(length)
                self._sources.append(at)
                parts.append(char)
                length += 1
                at += spelled_length
            self._starts.append(length)
            self._sources.append(at)
        parts.append(raw[at:])
        self.text = "".join(parts)

    def source(self, at: int) -> int:
        """Return the offset at which the character at an offset is spelled."""
        index = bisect_right(self._starts, at) - 1
        return self._sources[index] + at - self._starts[index]


def _undo_json(escape: str) -> list[tuple[str, int]]:
    if len(escape) == 2:
        return [(_JSON_SHORT.get(escape[1], escape[1]), 2)]
    units = bytes.fromhex(escape.replace("\\u", ""))
    return [(units.decode("utf-16-be", "surrogatepass"), len(escape))]


def _undo_percent(escape: str) -> list[tuple[str, int]]:
    if escape == "+":
        return [(" ", 1)]
    text = bytes.fromhex(escape.replace("%", "")).decode("utf-8", "surrogateescape")
    return [(char, 3 * len(char.encode("utf-8", "surrogateescape"))) for char in text]


decode_json = partial(DecodedText, pattern=_JSON_ESCAPE, undo=_undo_json)
decode_url = partial(DecodedText, pattern=_PERCENT, undo=_undo_percent)
decode_form = partial(DecodedText, pattern=_PERCENT_OR_PLUS, undo=_undo_percent)


def _undo_json_bytes(escape: str) -> Iterator[tuple[str, int]]:
    """Undo an escape of JSON to the bytes of UTF-8, as one character each."""
    if len(escape) == 2 and escape[1] not in '"\\/bfnrt':
        yield from ((char, 1) for char in escape)
        return
    for char, spelled_length in _undo_json(escape):
        raw = char.encode("utf-8", "surrogatepass").decode("latin-1")
        yield raw[0], spelled_length
        yield from ((byte, 0) for byte in raw[1:])


def _undo_percent_bytes(escape: str) -> list[tuple[str, int]]:
    if escape == "+":
        return [(" ", 1)]
    return [(char, 3) for char in bytes.fromhex(escape.replace("%", "")).decode("latin-1")]


def _undo_html_bytes(escape: str) -> Iterator[tuple[str, int]]:
    """Undo an escape of HTML to the bytes of UTF-8, as one character each."""
    raw = unescape(escape).encode("utf-8", "surrogatepass").decode("latin-1")
    # What stands for no character stays.
    yield from ((byte, 0 if at else len(escape)) for at, byte in enumerate(raw))


_IN_BYTES = {
    "json": ("\\", _JSON_ESCAPE, _undo_json_bytes),
    "url": ("%", _PERCENT, _undo_percent_bytes),
    "form": ("+", _PERCENT_OR_PLUS, _undo_percent_bytes),
    "html": ("&", _HTML_ESCAPE, _undo_html_bytes),
}


def decode_layer(text: str, kind: str) -> DecodedText | None:
    """Undo the escapes of bytes that are one character each; None for a text without any."""
    char, pattern, undo = _IN_BYTES[kind]
    return DecodedText(text, pattern, undo) if char in text else None


def mapped_back(
    decoded: DecodedText, findings: Iterable[Finding], at: int, spell: Callable[[str], str]
) -> Iterator[Finding]:
    """Yield findings of a decoded text as findings of the text that spells it from offset `at`."""
    for start, end, rule, plain, inner in findings:
        spelled = partial(_spell_both, spell, inner)
        yield Finding(at + decoded.source(start), at + decoded.source(end), rule, plain, spelled)


def shifted(findings: Iterable[Finding], by: int) -> Iterator[Finding]:
    """Yield findings of a part of a text as findings of the text; the part begins at `by`."""
    for start, end, rule, plain, spell in findings:
        yield Finding(start + by, end + by, rule, plain, spell)


class SpanSet:
    """Spans in order that don't overlap."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        """Take the spans."""
        self._spans = list(spans)
        self._starts = [start for start, _ in self._spans]

    def covers(self, start: int, end: int) -> bool:
        """Tell whether one of them contains all of another span."""
        index = bisect_right(self._starts, start) - 1
        return index >= 0 and end <= self._spans[index][1]

    def cuts(self, start: int, end: int) -> bool:
        """Tell whether one of them begins or ends inside another span without lying in it."""
        before = bisect_left(self._starts, start) - 1
        last = bisect_left(self._starts, end) - 1
        return (before >= 0 and self._spans[before][1] > start) or (
            last >= 0 and self._spans[last][1] > end
        )


def without_overlaps(text: str, findings: list[Finding]) -> list[Finding]:
    """Return findings that don't overlap: of two in one place the wider one counts.

    Two that overlap in part become one, or a rest of the second would stay.
    """
    findings.sort(key=lambda finding: (finding.start, -finding.end))
    kept: list[Finding] = []
    for finding in findings:
        if not kept or finding.start >= kept[-1].end:
            kept.append(finding)
        elif finding.end > kept[-1].end:
            wider = text[kept[-1].start : finding.end]
            kept[-1] = kept[-1]._replace(end=finding.end, plain=wider)
    return kept


JsonToken = re.Match[str]


def json_tokens(text: str) -> Iterator[JsonToken]:
    """Yield the strings, brackets and numbers of JSON texts; of many numbers in a row the first.

    The JSON texts may follow one another, be cut off, or be nested to any depth.

    Args:
        text: the texts.

    Raises:
        NotJsonError: there is other text; all tokens before it have been yielded.
    """
    beginning = _JSON_BEGINNING.match(text)
    if beginning is None:
        raise NotJsonError("no JSON")
    at = beginning.end()
    while token := _JSON_TOKEN.match(text, at):
        yield token
        at = token.end()
    if not _JSON_END.match(text, at):
        raise NotJsonError("other text")
