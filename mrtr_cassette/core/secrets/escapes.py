r"""Text within text: JSON strings, JSON in such a string, URLs, forms.

Owns: undoing the escapes of one layer (`\u002d`, `%2D`), the tokens of JSON that may be broken off
or too deep to read, and mapping what is found in a layer back to where it is spelled.
Does not own: what is looked for (`redact`, `seal`).
Law: what replaces a find is spelled so that its layer stays one: JSON stays JSON, a URL a URL.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

_JSON_TOKEN = re.compile(
    r"[ \t\r\n,:]*+(?:"
    r'"(?P<text>[^"\\]*+(?:\\.[^"\\]*+)*+)(?:"(?P<key>[ \t\r\n]*+:)?|\\?\Z)'
    r"|(?P<opening>[{\[])|(?P<closing>[}\]])"
    r"|(?P<number>-?\d[\d.eE+-]*+)|true|false|null|[a-z]{1,4}\Z)",
    re.DOTALL,
)
_JSON_BEGINNING = re.compile(r'\ufeff?[ \t\r\n]*+(?=[{\["tfn\d-])')
_JSON_END = re.compile(r"[ \t\r\n,:]*+-?\Z")
_JSON_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)",
    re.DOTALL,
)
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
    # Where a long word begins is then told by one search for a literal.
    mapped = raw.translate(_WORDS)
    long = b"w" * shortest
    at = mapped.find(long)
    while at >= 0:
        end = mapped.find(b" ", at)
        end = len(raw) if end < 0 else end
        yield raw[at:end]
        at = mapped.find(long, end)


def _as_it_is(placeholder: str) -> str:
    return placeholder


def as_json_string(placeholder: str) -> str:
    """Spell a text where a number stood."""
    return f'"{placeholder}"'


def in_json_string(text: str) -> str:
    """Spell a text inside a JSON string."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def in_url(text: str) -> str:
    """Spell a text inside a URL or a form."""
    for char, escape in (("<", "%3C"), (">", "%3E"), ('"', "%22"), ("\\", "%5C")):
        text = text.replace(char, escape)
    return text


def nothing(_placeholder: str) -> str:
    """Leave no text: its placeholder stands in an earlier line."""
    return ""


def _both(outer: Callable[[str], str], inner: Callable[[str], str], text: str) -> str:
    return outer(inner(text))


@dataclass(frozen=True, slots=True)
class Found:
    """A secret in a text.

    Attributes:
        start: offset of its first character.
        end: offset after its last one.
        rule: what it was found by.
        secret: it, with all escapes undone.
        spelled: turns the placeholder into what stands for it in this text.
    """

    start: int
    end: int
    rule: str
    secret: str
    spelled: Callable[[str], str] = _as_it_is


class View:
    """A text with one layer of escapes undone, and where each character of it came from."""

    def __init__(
        self, raw: str, pattern: re.Pattern[str], undo: Callable[[str], Iterable[tuple[str, int]]]
    ) -> None:
        """Undo what `pattern` matches; `undo` gives characters and how long each was spelled."""
        parts: list[str] = []
        self._starts: list[int] = [0]
        self._sources: list[int] = [0]
        length = at = 0
        for match in pattern.finditer(raw):
            if match.start() > at:
                parts.append(raw[at : match.start()])
                length += match.start() - at
            at = match.start()
            for char, spelled in undo(match[0]):
                self._starts.append(length)
                self._sources.append(at)
                parts.append(char)
                length += 1
                at += spelled
            self._starts.append(length)
            self._sources.append(at)
        parts.append(raw[at:])
        self.text = "".join(parts)

    def source(self, at: int) -> int:
        """Return where the character at an offset is spelled."""
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


json_view = partial(View, pattern=_JSON_ESCAPE, undo=_undo_json)
url_view = partial(View, pattern=_PERCENT, undo=_undo_percent)
form_view = partial(View, pattern=_PERCENT_OR_PLUS, undo=_undo_percent)


def through(
    view: View, found: Iterable[Found], at: int, layer: Callable[[str], str]
) -> Iterator[Found]:
    """Map what was found in a view to the text that has it at offset `at`."""
    for one in found:
        yield replace(
            one,
            start=at + view.source(one.start),
            end=at + view.source(one.end),
            spelled=partial(_both, layer, one.spelled),
        )


class Spans:
    """Spans that don't overlap, in order, for quick questions."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        """Hold the spans."""
        self._spans = list(spans)
        self._starts = [start for start, _ in self._spans]

    def hold(self, start: int, end: int) -> bool:
        """Tell whether one of them holds all of another span."""
        index = bisect_right(self._starts, start) - 1
        return index >= 0 and end <= self._spans[index][1]

    def cut(self, start: int, end: int) -> bool:
        """Tell whether one of them begins or ends inside another span without lying in it."""
        before = bisect_left(self._starts, start) - 1
        last = bisect_left(self._starts, end) - 1
        return (before >= 0 and self._spans[before][1] > start) or (
            last >= 0 and self._spans[last][1] > end
        )


def without_overlaps(text: str, found: list[Found]) -> list[Found]:
    """Return what was found, each place once; of two that overlap the wider one counts.

    Two that only overlap in part become one, or a rest of the second would be left.
    """
    found.sort(key=lambda one: (one.start, -one.end))
    kept: list[Found] = []
    for one in found:
        if not kept or one.start >= kept[-1].end:
            kept.append(one)
        elif one.end > kept[-1].end:
            wider = text[kept[-1].start : one.end]
            kept[-1] = replace(kept[-1], end=one.end, secret=wider)
    return kept


def json_tokens(text: str) -> list[re.Match[str]] | None:
    """Return the strings, brackets and numbers of JSON texts, or None for what is none.

    The texts may follow one another, break off, or be nested to any depth.
    """
    beginning = _JSON_BEGINNING.match(text)
    if beginning is None:
        return None
    at = beginning.end()
    tokens: list[re.Match[str]] = []
    while token := _JSON_TOKEN.match(text, at):
        tokens.append(token)
        at = token.end()
    return tokens if _JSON_END.match(text, at) else None


def moved(found: Iterable[Found], by: int) -> Iterator[Found]:
    """Yield what was found in a part of a text that begins at offset `by`."""
    for one in found:
        yield replace(one, start=one.start + by, end=one.end + by)
