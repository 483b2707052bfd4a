"""Bodies as UTF-8 without a content coding, which is what everything that reads one takes.

Owns: undoing the content coding of a request and UTF-16 or UTF-32, and telling why a body can't be
read.
Does not own: decoding a response while it arrives (`coding`), what a body is read for (`protocol`,
`secrets`).
Rule: a request is matched, never played back, so it is kept as it can be read. A response is
changed back, as the client gets its bytes.
Source: RFC 9110, section 8.4; RFC 8259, section 8.1.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import replace
from functools import lru_cache

from mrtr_cassette.core.wire.coding import ContentDecoder
from mrtr_cassette.core.wire.http import LARGEST_BODY, Headers, Request, Response, header_value

_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_ASCII = rb"[\t\n\r -~]"
_ZEROS = (
    (re.compile(rb"\0\0\0" + _ASCII), "utf-32-be"),
    (re.compile(_ASCII + rb"\0\0\0"), "utf-32-le"),
    (re.compile(rb"\0" + _ASCII), "utf-16-be"),
    (re.compile(_ASCII + rb"\0"), "utf-16-le"),
)
"""Where a text that begins with an ASCII character has bytes of zero."""
_CHARSET = re.compile(r"charset *= *\"?utf-?(16|32)-?(be|le)?", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_CONTROL_BYTE = re.compile(_CONTROL.pattern.encode())
"""What no text has, in whatever encoding."""


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
    encoding = encoding_of(request.body, request.header("content-type"))
    if encoding:
        text = request.body.decode(encoding).removeprefix("\ufeff")
        request = replace(request, body=text.encode())
    return request


@lru_cache(maxsize=1024)
def content_coding(headers: Headers) -> str:
    """Return the content coding that headers name, in lower case; empty where there is none."""
    coding = header_value(headers, "content-encoding").strip().lower()
    return "" if coding == "identity" else coding


def encoding_of(raw: bytes, content_type: str) -> str:
    """Return the UTF-16 or UTF-32 in which a body is text; empty for any other body."""
    if not may_be_encoded(raw, content_type):
        return ""
    encoding = next((name for mark, name in _MARKS.items() if raw.startswith(mark)), "")
    if not encoding:
        by_zeros = (name for pattern, name in _ZEROS if pattern.match(raw))
        encoding = next(by_zeros, "" if _is_utf8(raw) else _declared(content_type))
    try:
        text = raw.decode(encoding) if encoding else "\0"
    except UnicodeDecodeError:
        return ""
    return "" if _CONTROL.search(text) else encoding


def may_be_encoded(raw: bytes, content_type: str) -> bool:
    """Tell, quickly, whether a body may be UTF-16 or UTF-32, from its first bytes."""
    head = raw[:4]
    return b"\0" in head or head[:2] in _MARKS or _declared(content_type) != ""


@lru_cache(maxsize=256)
def _declared(content_type: str) -> str:
    charset = _CHARSET.search(content_type)
    return "" if charset is None else f"utf-{charset[1]}-{(charset[2] or 'le').lower()}"


def why_unread(message: Request | Response) -> str:
    """Return why the body of a message can't be read, as the rest of a sentence; empty if it can.

    Args:
        message: as it can be read, if it can.
    """
    coding = content_coding(message.headers)
    if isinstance(message, Response) and all(piece.raw.isascii() for piece in message.pieces):
        is_readable = not coding or not any(piece.raw for piece in message.pieces)
    else:
        is_readable = not message.body or (not coding and _is_text(message.body))
    if is_readable:
        return ""
    if not coding:
        return "it is no text"
    if ContentDecoder(coding).is_known:
        return f"its {coding} is damaged, cut short or too large"
    return f"its content coding {coding} can't be decoded here"


def _is_text(raw: bytes) -> bool:
    return raw.isascii() or _is_utf8(raw) or _CONTROL_BYTE.search(raw) is None


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
