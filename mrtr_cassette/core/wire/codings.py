"""Content codings (RFC 9110, section 8.4): bodies as they can be read, and why one can't be."""

from __future__ import annotations

import re
import zlib
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from mrtr_cassette.core.wire.http import (
    LARGEST_BODY,
    Headers,
    Request,
    Response,
    header_value,
    without_header,
)

_MODULES_BY_CODING: Final = {
    "gzip": ("zlib",),
    "x-gzip": ("zlib",),
    "deflate": ("zlib",),
    "br": ("brotli", "brotlicffi"),
    "zstd": ("compression.zstd", "zstandard"),
}
"""The modules that can decode a coding; one is enough, and most are only there if installed."""

_GZIP_CODINGS: Final = ("gzip", "x-gzip")
_CODINGS_WITH_SEVERAL_STREAMS: Final = (*_GZIP_CODINGS, "zstd")
_HEADER_OF_ZLIB_OR_GZIP: Final = (0x8, 0xF)
"""The low half of the first byte; many servers send deflate without a header."""

_ASCII_RUN: Final = re.compile(rb"[ -~]{8}")
"""Matches what UTF-16 and UTF-32 hardly have: their characters of ASCII have NULs between them."""

_BYTES_DECODED_AT_ONCE: Final = 1024
"""Bytes that are decoded at once, so that little becomes too much before it is noticed."""


@lru_cache(maxsize=8)
def _decoding_module(coding: str) -> Any:
    """Return the first installed module that decodes a coding; None if there is none."""
    for name in _MODULES_BY_CODING.get(coding, ()):
        try:
            return import_module(name)
        except ImportError:
            continue

    return None


def _stream_decompressor(coding: str, first: int) -> Any:
    """Return what decodes one stream: a member of gzip, a frame of zstd, or all of another coding.

    `first` is the first byte of the stream.
    """
    library = _decoding_module(coding)
    if coding == "br":
        return library.Decompressor()

    if coding == "zstd":
        decompressor = library.ZstdDecompressor()
        return getattr(decompressor, "decompressobj", lambda: decompressor)()

    if coding == "deflate" and first & 0xF not in _HEADER_OF_ZLIB_OR_GZIP:
        return zlib.decompressobj(-zlib.MAX_WBITS)

    return zlib.decompressobj(zlib.MAX_WBITS | 32)


def _has_ended(decompressor: Any) -> bool:
    """Tell whether a decompressor, of whichever library, has reached the end of its stream."""
    if hasattr(decompressor, "is_finished"):
        return bool(decompressor.is_finished())
    return bool(decompressor.eof)


class ContentDecoder:
    """Decodes `gzip`, `deflate` and, by a library if one is installed, `br` and `zstd`.

    A body in any other coding stays as it is.
    """

    def __init__(self, coding: str, limit_bytes: int = LARGEST_BODY) -> None:
        self._coding = coding.strip().lower()
        self._limit_bytes = limit_bytes
        self._decoded_length = 0
        self._current_stream: Any = None
        self.is_known = _decoding_module(self._coding) is not None
        self.failed = False

    @property
    def is_whole(self) -> bool:
        """Whether the bytes so far end where a compressed body may end."""
        if self.failed or self._current_stream is None:
            return False

        return _has_ended(self._current_stream)

    def decode(self, chunk: bytes) -> bytes:
        """Return what the next bytes decode to, up to a little more than the limit."""
        if not self.is_known:
            return chunk

        decoded_parts = []
        start = 0
        while start < len(chunk) and not self.failed:
            if self._is_padding(chunk[start]):
                start += 1
                continue

            part = chunk[start : start + _BYTES_DECODED_AT_ONCE]
            try:
                decoded_parts.append(self._decode_part(part))
            except Exception:  # noqa: BLE001  each library has errors of its own
                self.failed = True
                break

            self._decoded_length += len(decoded_parts[-1])
            self.failed = self._decoded_length > self._limit_bytes
            start += len(part) - len(getattr(self._current_stream, "unused_data", b""))

        if self.failed:
            return chunk

        return b"".join(decoded_parts)

    def _is_padding(self, byte: int) -> bool:
        """Tell whether a byte is a NUL behind gzip, which clients skip."""
        return byte == 0 and self._coding in _GZIP_CODINGS and self.is_whole

    def _decode_part(self, part: bytes) -> bytes:
        """Decode a part of a body; begin another stream if the coding allows several."""
        is_first = self._current_stream is None
        if is_first or self.is_whole:
            if not is_first and self._coding not in _CODINGS_WITH_SEVERAL_STREAMS:
                raise ValueError("bytes behind the end")

            self._current_stream = _stream_decompressor(self._coding, part[0])

        # Brotli's has another name.
        brotli_process = getattr(self._current_stream, "process", None)
        decompress = brotli_process or self._current_stream.decompress
        return bytes(decompress(part))


def with_decoded_body(request: Request, limit_bytes: int = LARGEST_BODY) -> Request:
    """Return a request with its body decoded; the same one where that is not needed or fails."""
    coding = content_coding(request.headers)
    if not coding:
        return request

    decoder = ContentDecoder(coding, limit_bytes)
    body = decoder.decode(request.body)
    if not decoder.is_whole:
        return request

    headers = without_header(request.headers, "content-encoding")
    return replace(request, headers=headers, body=body)


@lru_cache(maxsize=1024)
def content_coding(headers: Headers) -> str:
    """Return the content coding that headers name, in lower case; empty where there is none."""
    coding = header_value(headers, "content-encoding").strip().lower()
    return "" if coding == "identity" else coding


def why_body_unreadable(message: Request | Response) -> str:
    """Return why the body of a message can't be read, as the rest of a sentence, or nothing."""
    coding = content_coding(message.headers)
    body = message.body
    # Text in another encoding than UTF-16 and UTF-32 has hardly any NUL, and can be searched.
    if not body or (not coding and b"\0" not in body):
        return ""
    if not coding:
        return _why_text_with_nul_unreadable(body)
    if ContentDecoder(coding).is_known:
        return f"its {coding} is damaged, cut short or too large"

    return f"its content coding {coding} can't be decoded here"


def _why_text_with_nul_unreadable(text: bytes) -> str:
    """Return why a text can't be searched, as the rest of a sentence, or nothing."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return "it is not UTF-8"

    return "" if _ASCII_RUN.search(text) else "it may be UTF-16 or UTF-32"
