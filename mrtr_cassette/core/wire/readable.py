"""Bodies without a content coding, which is what everything that reads one takes.

Rule: a request is matched, never played back, so it is kept as it can be read.
Source: RFC 9110, section 8.4; RFC 8259, section 8.1.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from mrtr_cassette.core.wire.coding import ContentDecoder
from mrtr_cassette.core.wire.http import LARGEST_BODY, Headers, Request, Response, header_value

_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""What no text has that is not in UTF-8."""


def readable(request: Request, limit_bytes: int = LARGEST_BODY) -> Request:
    """Return a request as it can be read; the same one where nothing has to be undone."""
    coding = content_coding(request.headers)
    if coding and request.body:
        decoder = ContentDecoder(coding, limit_bytes)
        body = decoder.decode(request.body)
        if decoder.is_whole:
            headers = tuple(
                [pair for pair in request.headers if pair[0].lower() != "content-encoding"]
            )
            request = replace(request, headers=headers, body=body)
    return request


@lru_cache(maxsize=1024)
def content_coding(headers: Headers) -> str:
    """Return the content coding that headers name, in lower case; empty where there is none."""
    coding = header_value(headers, "content-encoding").strip().lower()
    return "" if coding == "identity" else coding


def is_plain_ascii(raw: bytes) -> bool:
    """Tell whether a body is ASCII; what has a zero in it is UTF-16 or UTF-32, or no text."""
    return raw.isascii() and b"\0" not in raw


def why_unread(message: Request | Response) -> str:
    """Return why the body of a message can't be read, as the rest of a sentence; empty if it can.

    Args:
        message: as it can be read, if it can.
    """
    coding = content_coding(message.headers)
    if isinstance(message, Response) and all(is_plain_ascii(piece.raw) for piece in message.pieces):
        is_readable = not coding or not any(piece.raw for piece in message.pieces)
    else:
        is_readable = not message.body or (not coding and _is_text(message.body))
    if is_readable:
        return ""
    if not coding:
        return "it is no UTF-8"
    if ContentDecoder(coding).is_known:
        return f"its {coding} is damaged, cut short or too large"
    return f"its content coding {coding} can't be decoded here"


def _is_text(raw: bytes) -> bool:
    if b"\0" in raw:
        return False
    try:
        raw.decode()
    except UnicodeDecodeError:
        return _CONTROL.search(raw) is None
    return True
