"""Values that a live server issues anew, in the place of those that it issued while recording.

Source: MCP 2026-07-28, "Pagination"; MCP 2025-11-25, "Tasks".
"""

from __future__ import annotations

from json.encoder import encode_basestring_ascii
from typing import Final

from mrtr_cassette.core.protocol.jsonrpc import Message
from mrtr_cassette.core.wire.jsonbytes import MemberPath, find_spans, parse, splice
from mrtr_cassette.core.wire.pointers import value_at

_RELATED: Final = ("_meta", "io.modelcontextprotocol/related-task", "taskId")
_ISSUED: Final[tuple[MemberPath, ...]] = (
    ("result", "nextCursor"),
    ("result", "taskId"),
    ("result", "task", "taskId"),
)
_SENT_BACK: Final[tuple[MemberPath, ...]] = (
    ("params", "cursor"),
    ("params", "taskId"),
    ("params", *_RELATED),
)


class LiveValues:
    """What was issued so far, by what was recorded in its place."""

    def __init__(self) -> None:
        self._live: dict[str, str] = {}

    def issued(self, recorded: Message, live: Message) -> None:
        """Take two responses to the same request."""
        for path in _ISSUED:
            pair = [value_at(message.tree, path) for message in (recorded, live)]
            if isinstance(pair[0], str) and isinstance(pair[1], str):
                self._live[pair[0]] = pair[1]

    def in_live(self, body: bytes) -> bytes:
        """Return a request with the live values in it."""
        if not self._live:
            return body
        replacements = []
        for spans in find_spans(body, _SENT_BACK).values():
            for span in spans:
                value = parse(body[span.start : span.end])
                live = self._live.get(value) if isinstance(value, str) else None
                if live is not None:
                    replacements.append((span, encode_basestring_ascii(live).encode()))
        return splice(body, replacements)
