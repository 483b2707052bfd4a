"""Lines on a pipe, and a client's line as a request (MCP 2026-07-28, stdio)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from mrtr_cassette.core.wire.http import NO_METHOD, SESSION_HEADER, Headers, Request

_LINE_END: Final = b"\n"
_LINES: Final = re.compile(rb"[^\n]*\n|[^\n]+")


class Line(NamedTuple):
    """A line with its end, or a part of one that is too long to be kept."""

    raw: bytes
    is_whole: bool = True


class LineFramer:
    """Cuts bytes into lines.

    A line that is longer than allowed comes in parts, so that it passes without being held.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._held: list[bytes] = []
        self._size = 0
        self._is_cut = False

    def feed(self, chunk: bytes) -> list[Line]:
        """Take the next bytes, and return the lines that they complete."""
        lines = []
        start = 0
        while (end := chunk.find(_LINE_END, start) + 1) > 0:
            lines.append(self._ended(chunk[start:end]))
            start = end
        rest = chunk[start:]
        if rest:
            self._held.append(rest)
            self._size += len(rest)
            if self._is_cut or self._size > self._longest:
                self._is_cut = True
                lines.append(Line(self._taken(), is_whole=False))
        return lines

    def finish(self) -> list[Line]:
        """Take the end of the bytes, and return the line that has no end, if there is one."""
        return [self._ended(b"")] if self._held else []

    def _ended(self, last: bytes) -> Line:
        self._held.append(last)
        is_cut = self._is_cut or self._size + len(last) > self._longest
        self._is_cut = False
        return Line(self._taken(), is_whole=not is_cut)

    def _taken(self) -> bytes:
        raw = self._held[0] if len(self._held) == 1 else b"".join(self._held)
        self._held.clear()
        self._size = 0
        return raw


def lines_in(raw: bytes) -> Sequence[bytes]:
    """Return the lines of some bytes, each with its end; the last one may lack it."""
    return (raw,) if raw.find(_LINE_END, 0, -1) < 0 else _LINES.findall(raw)


def line_request(line: bytes, session: str = "") -> Request:
    """Return a client's line as a request, without its end unless there is nothing else."""
    headers: Headers = ((SESSION_HEADER, session),) if session else ()
    return Request(NO_METHOD, "", headers, line.rstrip(b"\r\n") or line)


def channel_request(session: str = "") -> Request:
    """Return the request that begins a channel; what the server sends unasked responds to it."""
    return line_request(b"", session)


def opens_channel(request: Request) -> bool:
    """Tell whether a request begins a channel."""
    return request.is_line and not request.body
