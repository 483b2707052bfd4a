"""The errors that this package raises, each with what the user can do about it."""

from __future__ import annotations

import re
from collections.abc import Callable
from signal import Signals
from traceback import walk_tb
from typing import Literal

from mrtr_cassette.terms import LIBRARY_TERMS, Terms, Values, in_terms

SHOWN_CHARS = 200


def shorten(text: str, limit: int = SHOWN_CHARS) -> str:
    """Cut `text` to `limit` characters, saying how many were left out, where that saves any."""
    if len(text) <= limit:
        return text
    return min(text, f"{text[:limit]}… ({len(text) - limit} more characters)", key=len)


def counted(count: int, noun: str) -> str:
    """Return a number and a noun in the form that fits it."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def printable(text: str) -> str:
    """Escape what a terminal or a CI runner would obey, line ends too, and what UTF-8 lacks."""
    return _escape_unprintable(text, _python_escape)


def printable_lines(text: str) -> str:
    """Escape the same in a text of whole lines, of which none begins with `::` then."""
    if text.isprintable() and "::" not in text and "##" not in text:
        return text

    lines = [_escape_unprintable(line, _python_escape) for line in text.split("\n")]
    return _LINE_COMMAND.sub(lambda match: match[0][:-1] + r"\x3a", "\n".join(lines))


def line_by_line(*lines: str) -> str:
    """Return a text of these lines, in which nobody whose words they repeat can begin another."""
    return printable_lines("\n".join(map(printable, lines)))


def printable_json(text: str) -> str:
    """Escape the same as JSON does, which leaves JSON what it means; tabs stay."""
    lines = []
    for line in text.split("\n"):
        lines.append(_escape_unprintable(line, _json_escape, kept="\t"))

    return _LINE_COMMAND.sub(lambda match: match[0][:-1] + r"\u003a", "\n".join(lines))


def internal_error(error: BaseException) -> str:
    """Name an error of our own and its place; its text may have what somebody sent."""
    where = ""
    for frame, line in walk_tb(error.__traceback__):
        where = f" at line {line} of {frame.f_code.co_filename.rpartition('/')[2]}"

    return f"INTERNAL ERROR, please report it: {type(error).__name__}{where}"


_CI_COMMAND = re.compile(r"#(?=#(?:\[|vso\[|teamcity\[))")
"""What begins a command to GitHub Actions, Azure Pipelines or TeamCity anywhere in a line."""

_LINE_COMMAND = re.compile("^[ \t]*:(?=:)", re.MULTILINE)
"""What begins a command to GitHub Actions at the start of a line."""


def _escape_unprintable(text: str, escape: Callable[[str], str], kept: str = "") -> str:
    """Escape unprintable characters, but those `kept`, and the `#` of commands to CI runners."""
    if "##" in text:
        text = _CI_COMMAND.sub(lambda match: escape(match[0]), text)

    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in kept else escape(char) for char in text
    )


def _python_escape(char: str) -> str:
    """Return the escape for a character in a Python string, even if it is printable."""
    if char.isprintable():
        return f"\\x{ord(char):02x}"
    return char.encode("unicode_escape").decode()


def _json_escape(char: str) -> str:
    """Return the escape for a character in JSON, or the two of a surrogate pair."""
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


class MrtrCassetteError(Exception):
    """Base of all errors of this package; `exit_code` is that of the command line."""

    exit_code = 1

    def __init__(
        self, message: str, *, hint: str | None = None, values: Values | None = None
    ) -> None:
        """Hold a message and a hint, which may have slots, and values for slots within these."""
        super().__init__(message)
        self._hint = hint
        self._slot_values = values

    @property
    def hint(self) -> str | None:
        """What the user can do, in the terms of the library, or None."""
        if self._hint is None:
            return None
        return in_terms(self._hint, values=self._slot_values)

    def in_terms(self, terms: Terms) -> str:
        """Return the message and the hint as one text, in the terms of a front."""
        message = super().__str__()
        text = f"{message}; {self._hint}" if self._hint else message
        return printable_lines(in_terms(text, terms, self._slot_values))

    def __str__(self) -> str:
        """Return both in the terms of the library."""
        return self.in_terms(LIBRARY_TERMS)


class UsageError(MrtrCassetteError):
    """An option is wrong, or two of them don't go together."""

    exit_code = 2


class HookError(MrtrCassetteError):
    """A function of the user raised an error, or returned what can't be meant."""


class CassetteError(MrtrCassetteError):
    """A cassette or a journal can't be read or written."""

    exit_code = 3

    def __init__(self, path: object, reason: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path}: {reason}", hint=hint, values={"path": str(path)})
        self.path = path
        self.reason = reason


def damage_error(path: str, pointer: str, reason: str) -> CassetteError:
    """Return the error for a place in a file, named by its JSON Pointer."""
    return CassetteError(
        path,
        printable(f"at {pointer}: {reason}"),
        hint="restore the file, or record it again",
    )


class BeingRecordedError(CassetteError):
    """A recording to the same cassette is under way."""


class UpstreamError(MrtrCassetteError):
    """The real server can't be reached or can't be used."""

    exit_code = 4


class MuteServerError(UpstreamError):
    """A server that was started on pipes speaks no MCP there, whatever it is called."""


class StoppedError(MrtrCassetteError):
    """A signal ended a run before it came to anything."""

    def __init__(self, number: Signals) -> None:
        super().__init__(f"stopped by {number.name}")
        self.exit_code = 128 + number


class BodyTooLargeError(MrtrCassetteError):
    """Something is larger than what is kept; it passes all the same, unrecorded."""

    exit_code = 3

    def __init__(
        self, what: str, limit: int, unit: Literal["bytes", "events"] = "bytes"
    ) -> None:
        super().__init__(
            f"{what} has more than {limit:,} {unit} and is not recorded",
            hint="allow more with <<max_body>>" if unit == "bytes" else None,
        )


class NotJsonError(ValueError):
    """Bytes are no JSON text that this package can read; they are relayed as they are."""
