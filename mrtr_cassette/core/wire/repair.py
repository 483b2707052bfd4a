"""Make JSON valid that tolerant clients read although it is not, without moving a byte."""

from __future__ import annotations

import re
from typing import Final

from mrtr_cassette.errors import NotJsonError

DEEPEST: Final = 200
"""The most levels of nesting that are read; Python's stack and orjson can take many more."""

# All repetitions are possessive, so that no text takes longer than its length.
_STRING_PATTERN: Final = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_BLANKS_OR_COMMENTS: Final = (
    r"(?:[\x00-\x20]|\xef\xbb\xbf|//[^\r\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)++"
)
_WORD_PATTERN: Final = r'[^\x00-\x20"{}\[\],:/]++'
_NEXT_TOKEN: Final = re.compile(
    rf"(?P<string>{_STRING_PATTERN})"
    r"|(?P<mark>[{}\[\],:])"
    rf"|(?P<nothing>{_BLANKS_OR_COMMENTS})"
    rf"|(?P<word>{_WORD_PATTERN})"
    r"|(?P<other>.)",
    re.DOTALL,
)
_BEFORE_COLON: Final = rf"(?:{_BLANKS_OR_COMMENTS})?:"
_OTHER_WORD: Final = rf"{_WORD_PATTERN}(?!{_BEFORE_COLON})"
_BRACKETS_RUN: Final = re.compile(
    rf"(?:{_STRING_PATTERN}|[,:]|{_BLANKS_OR_COMMENTS}|{_OTHER_WORD})*+"
    rf'(?:(?P<opening>[{{\[](?:[{{\[,: ]|"[^"\\{{}}\[\]]*+"|{_OTHER_WORD})*+)'
    r"|(?P<closing>[}\]]++)|\Z)",
    re.DOTALL,
)
"""The next brackets of one kind, behind all else that a tolerant client reads.

Between opening ones may be what has no other bracket in it.
"""

_VALID_WORD: Final = re.compile(
    r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]{1,18})?|true|false|null",
    re.ASCII,
)
_VALID_VALUE: Final = (
    r'(?:"[^"\\\x00-\x1f]*+(?:\\[^\x00-\x1f][^"\\\x00-\x1f]*+)*+"'
    rf"|(?:{_VALID_WORD.pattern})(?!{_WORD_PATTERN}|{_BEFORE_COLON}))"
)
_VALID_RUN: Final = re.compile(
    rf"[ \t\r\n]*+{_VALID_VALUE}"
    rf"(?:{_VALID_VALUE}|[ \t\r\n]++|:|,(?!(?:{_BLANKS_OR_COMMENTS})?[}}\]]))*+",
    re.DOTALL,
)
"""Valid JSON between two brackets, which may be millions of numbers."""

_CONTROL_CHARACTER: Final = re.compile(r"[\x00-\x1f]")
_NOT_QUOTABLE: Final = re.compile(r'["\\\x00-\x1f]')


def repaired_json(raw: bytes) -> bytes:
    """Return JSON with the same values at the same offsets.

    Byte order marks, NULs, comments, a trailing comma and all that follows the first value become
    spaces. Words such as `NaN`, and what is nested too deeply, become strings. Valid JSON stays.
    What is no JSON in any other way stays invalid.

    Raises:
        NotJsonError: some of it can be in no JSON.
    """
    text = raw.decode("latin-1")
    repair = _Repair(bytearray(raw))
    next_position = 0
    while not repair.is_whole:
        token = repair.valid_at(text, next_position)
        if token is None:
            token = _NEXT_TOKEN.match(text, next_position)

        if token is None:
            break

        repair.take_token(token)
        next_position = token.end()
        if repair.is_deep:
            next_position = _end_of_deep(text, next_position)

    return bytes(repair.text)


def _end_of_deep(text: str, at: int) -> int:
    """Return where the bracket is that closes the one before an offset, or the end of the text."""
    depth = 1
    while depth > 0:
        brackets = _BRACKETS_RUN.match(text, at)
        if brackets is None:
            raise _unreadable_error()

        at = brackets.end()
        if brackets["opening"]:
            depth += brackets["opening"].count("{") + brackets["opening"].count("[")
        elif brackets["closing"]:
            depth -= len(brackets["closing"])
        else:
            return at

    # The run of brackets may close outer ones too.
    return at + depth - 1


def _unreadable_error() -> NotJsonError:
    """Return the error for a text that no tolerant reader understands."""
    return NotJsonError("not JSON, even to a tolerant reader")


class _Repair:
    """A text under repair, token by token."""

    def __init__(self, text: bytearray) -> None:
        self.text = text
        self.is_whole = False
        """Whether the first value has ended, and all that follows is blank."""
        self._depth = 0
        self._deep_start = 0
        self._last_part = ""
        """The last token of the text: a mark, or the kind of another one."""
        self._comma_start = 0

    @property
    def is_deep(self) -> bool:
        """Whether the text is nested too deeply here."""
        return self._depth > DEEPEST

    def valid_at(self, text: str, at: int) -> re.Match[str] | None:
        """Return the valid JSON at an offset, if it is inside the first value and not deep."""
        is_inside = 0 < self._depth <= DEEPEST
        return _VALID_RUN.match(text, at) if is_inside else None

    def take_token(self, token: re.Match[str]) -> None:
        """Take the next token."""
        kind = token.lastgroup or ""
        spelled = token[0]
        is_name_of_no_string = spelled == ":" and self._last_part == "word"
        if kind == "other" or is_name_of_no_string:
            raise _unreadable_error()

        if kind == "nothing":
            self._replace_by_spaces(token.start(), token.end())
            return

        if kind == "mark":
            self._take_mark(spelled, token.start())
        elif kind:
            self._take_value(kind, token)

        self._last_part = spelled if kind == "mark" else kind
        if self._depth == 0:
            self._replace_by_spaces(token.end(), len(self.text))
            self.is_whole = True

    def _take_mark(self, mark: str, start: int) -> None:
        """Count brackets, blank a trailing comma, and quote a value that was nested too deeply."""
        if mark in "{[":
            self._depth += 1
            if self._depth == DEEPEST + 1:
                self._deep_start = start
        elif mark in "}]":
            if self._last_part == ",":
                self._replace_by_spaces(self._comma_start, self._comma_start + 1)

            if self._depth == DEEPEST + 1:
                self._quote_bytes(self._deep_start, start + 1)

            self._depth -= 1
        elif mark == ",":
            self._comma_start = start

    def _take_value(self, kind: str, token: re.Match[str]) -> None:
        """Blank the control characters of a string, and quote a word that JSON doesn't have."""
        start, end = token.span()
        if kind == "string":
            self.text[start:end] = _CONTROL_CHARACTER.sub(" ", token[0]).encode(
                "latin-1"
            )
        elif _VALID_WORD.fullmatch(token[0]) is None:
            self._quote_bytes(start, end)

    def _replace_by_spaces(self, start: int, end: int) -> None:
        """Put spaces in the place of some bytes, unless they are white space already."""
        if self.text[start:end].strip(b" \t\r\n"):
            self.text[start:end] = b" " * (end - start)

    def _quote_bytes(self, start: int, end: int) -> None:
        """Make a string of some bytes; of a single one, which has no room for quotes, a number."""
        if end - start == 1:
            self.text[start] = ord("0")
            return

        inner = self.text[start + 1 : end - 1].decode("latin-1")
        self.text[start:end] = b'"%b"' % _NOT_QUOTABLE.sub("'", inner).encode("latin-1")
