"""The URL that a server of HTTP+SSE gives a client to post to, on its way to the client.

Rule: nothing but that URL changes, and nothing waits but the beginning of the event that has it.
Source: MCP 2024-11-05, "HTTP with SSE".
"""

from __future__ import annotations

import re
from typing import Final

_STARTS: Final = (b"event: endpoint", b"event:endpoint")
_LONGEST: Final = 8 * 1024
"""Bytes up to which the end of the event is waited for."""
_URL = re.compile(rb"(?<=[\r\n])(data: ?)(https?://)([^/\r\n]*)(?=[/\r\n])")
_END = re.compile(rb"\n\r?\n|\r\r")


class EndpointPassing:
    """The beginning of an event stream, as it passes.

    Attributes:
        is_over: nothing can change any more.
    """

    def __init__(self, authority: str) -> None:
        """Begin before the first byte; `authority` is the server's host with its port."""
        self.is_over = False
        self._authority = authority.lower().encode()
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes, and return those that pass."""
        if self.is_over:
            return chunk
        held = self._held + chunk
        may_begin = any(held.startswith(start) or start.startswith(held) for start in _STARTS)
        if may_begin and not _END.search(held) and len(held) < _LONGEST:
            self._held = held
            return b""
        self._held = held
        return self.finish()

    def finish(self) -> bytes:
        """Return what was held; nothing is from now on."""
        held, self._held, self.is_over = self._held, b"", True
        if not held.startswith(_STARTS):
            return held
        end = _END.search(held)
        event, rest = (held, b"") if end is None else (held[: end.end()], held[end.end() :])
        return _URL.sub(self._without_host, event) + rest

    def _without_host(self, match: re.Match[bytes]) -> bytes:
        return match[1] if match[3].lower() == self._authority else match[0]
