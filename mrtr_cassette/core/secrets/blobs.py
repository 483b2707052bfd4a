"""Text in base64: what the `blob` of a resource, `data` or `content` of an item, or a query spells.

Owns: telling text from images and other binary data, and decoding it.
Does not own: what the text is searched for (`text_search`).
Rule: only what may begin a text in UTF-8 of eight bytes or more is decoded, and only so much of it.
Source: MCP 2026-07-28, server, "Resources" and "Tools"; RFC 4648.
"""

from __future__ import annotations

import re
from base64 import b64decode
from codecs import getincrementaldecoder
from typing import Final

BLOBS: Final = frozenset({"blob", "data", "content"})
"""Names of members that may be base64."""
LONGEST: Final = 256 * 1024
"""Characters of base64 that are decoded."""

# Text begins with ASCII or with the first byte of a character in UTF-8; PNG and JPEG don't.
_FIRST = "[C-fw-z0-9]"
_TEXT = re.compile(rf"{_FIRST}[A-Za-z0-9+/_\s-]{{10,}}=*\s*")
_SPACE = re.compile(r"\s+")
_AS_STANDARD = str.maketrans("-_", "+/")

_SPACES = r"(?:\s|\\+[nrt])*"
MARKER: Final = (
    rf'(?:blob|data|content)\\*"{_SPACES}:{_SPACES}\\*"{_FIRST}'
    r"(?:(?:\\+[nrt])*\\*[A-Za-z0-9+/_-]){10}"
)
"""Matches in a body where such a member may have text in base64."""
QUERY_MARKER: Final = r"(?:=|%3[dD])e[yw][A-Za-z0-9+/_-]{10}"
"""Matches in a text where a parameter of a URL may have JSON in base64."""
_OBJECT = re.compile(r"e[yw][A-Za-z0-9+/_-]{10,}=*\Z")


def may_be_object(value: str) -> bool:
    """Tell whether a value may be an object of JSON in base64."""
    return _OBJECT.match(value) is not None


def decoded_blob(value: str) -> str | None:
    """Return the text that a value spells in base64, as far as it is read; None for other data."""
    if not _TEXT.fullmatch(value):
        return None
    encoded = _SPACE.sub("", value[:LONGEST]).rstrip("=").translate(_AS_STANDARD)
    if len(encoded) % 4 == 1:
        encoded = encoded[:-1]
    raw = b64decode(encoded + "=" * (-len(encoded) % 4))
    try:
        # The last character may be cut off.
        text = getincrementaldecoder("utf-8")().decode(raw)
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text.removeprefix("\ufeff")
