"""Text in base64: what a resource's `blob`, or the `data` of an item of content, spells.

Owns: telling text from images and other binary data, and decoding it.
Does not own: what the text is searched for (`text_search`).
Rule: only what begins with twelve ASCII characters is decoded, and only so much of it.
Source: MCP 2026-07-28, server, "Resources" and "Tools"; RFC 4648.
"""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Final

BLOBS: Final = frozenset({"blob", "data"})
"""Names of members that may be base64."""
LONGEST: Final = 256 * 1024
"""Characters of base64 that are decoded."""

_THREE_OF_ASCII = r"[A-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589]"


def _beginning(before_slash: str = "") -> str:
    """Return how base64 begins if ASCII does, with or without a byte order mark."""
    return rf"(?:77u{before_slash}/)?(?:{_THREE_OF_ASCII}{before_slash}[A-Za-z0-9+/_-]){{4}}"


_TEXT = re.compile(rf"{_beginning()}[A-Za-z0-9+/_\s-]*=*\s*")
_SPACE = re.compile(r"\s+")
_AS_STANDARD = str.maketrans("-_", "+/")

_SPACES = r"(?:\s|\\+[nrt])*"
_IN_JSON = _beginning(r"\\{0,8}")
MARKER: Final = rf'(?:blob|data)\\*"{_SPACES}:{_SPACES}\\*"{_IN_JSON}'
"""Matches in a body where such a member has text in base64."""


def decoded_blob(value: str) -> str | None:
    """Return the text that a value spells in base64, as far as it is read; None for other data."""
    if not _TEXT.fullmatch(value):
        return None
    encoded = _SPACE.sub("", value[:LONGEST]).rstrip("=").translate(_AS_STANDARD)
    if len(encoded) % 4 == 1:
        encoded = encoded[:-1]
    raw = b64decode(encoded + "=" * (-len(encoded) % 4))
    return None if b"\0" in raw else raw.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
