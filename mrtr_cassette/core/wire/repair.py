"""Make JSON valid that tolerant clients read although it is not, without moving a byte."""

from __future__ import annotations

import re
from typing import Final

from mrtr_cassette.errors import NotJsonError

DEEPEST: Final = 200
"""The most levels of nesting that are read; Python's stack and orjson can take many more."""

# All repetitions are possessive, so that no text takes longer than its length.
_TOKEN: Final = re.compile(
    r'(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")'
    r"|(?P<mark>[{}\[\],:])"
    r"|(?P<nothing>(?:[\x00-\x20]|\xef\xbb\xbf|//[^\r\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)++)"
    r'|(?P<word>[^\x00-\x20"{}\[\],:/]++)'
    r"|(?P<other>.)",
    re.DOTALL,
)
_VALID_WORD: Final = re.compile(
    r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]{1,18})?|true|false|null",
    re.ASCII,
)
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_NOT_QUOTABLE: Final = re.compile(r'["\\\x00-\x1f]')


def repaired(raw: bytes) -> bytes:
    """Return JSON with the same values at the same offsets.

    Byte order marks, NULs, comments, a trailing comma and all that follows the first value become
    spaces. Words such as `NaN`, and what is nested too deeply, become strings. Valid JSON stays.
    What is no JSON in any other way stays invalid.

    Raises:
        NotJsonError: some of it can be in no JSON.
    """
    text = raw.decode("latin-1")
    repair = _Repair(bytearray(raw))
    for token in _TOKEN.finditer(text):
        repair.take(token)
        if repair.is_whole:
            break

    return bytes(repair.text)


class _Repair:
    """A text under repair, token by token."""

    def __init__(self, text: bytearray) -> None:
        self.text = text
        self.is_whole = False
        """Whether the first value has ended, and all that follows is blank."""
        self._depth = 0
        self._deep_start = 0
        self._last = ""
        """The last token of the text: a mark, or the kind of another one."""
        self._comma = 0

    def take(self, token: re.Match[str]) -> None:
        """Take the next token."""
        kind = token.lastgroup or ""
        spelled = token[0]
        is_name_of_no_string = spelled == ":" and self._last == "word"
        if kind == "other" or is_name_of_no_string:
            raise NotJsonError("not JSON, even to a tolerant reader")

        if kind == "nothing":
            if self._depth <= DEEPEST:
                self._blank(token.start(), token.end())

            return

        if kind == "mark":
            self._take_mark(spelled, token.start())
        elif self._depth <= DEEPEST:
            self._take_value(kind, token)

        self._last = spelled if kind == "mark" else kind
        if self._depth == 0:
            self._blank(token.end(), len(self.text))
            self.is_whole = True

    def _take_mark(self, mark: str, start: int) -> None:
        if mark in "{[":
            self._depth += 1
            if self._depth == DEEPEST + 1:
                self._deep_start = start
        elif mark in "}]":
            if self._last == "," and self._depth <= DEEPEST:
                self._blank(self._comma, self._comma + 1)

            if self._depth == DEEPEST + 1:
                self._quote(self._deep_start, start + 1)

            self._depth -= 1
        elif mark == ",":
            self._comma = start

    def _take_value(self, kind: str, token: re.Match[str]) -> None:
        start, end = token.span()
        if kind == "string":
            self.text[start:end] = _CONTROL.sub(" ", token[0]).encode("latin-1")
        elif _VALID_WORD.fullmatch(token[0]) is None:
            self._quote(start, end)

    def _blank(self, start: int, end: int) -> None:
        if self.text[start:end].strip(b" \t\r\n"):
            self.text[start:end] = b" " * (end - start)

    def _quote(self, start: int, end: int) -> None:
        """Make a string of some bytes; of a single one, which has no room for quotes, a number."""
        if end - start == 1:
            self.text[start] = ord("0")
            return

        inner = self.text[start + 1 : end - 1].decode("latin-1")
        self.text[start:end] = b'"%b"' % _NOT_QUOTABLE.sub("'", inner).encode("latin-1")
