"""Decoding the content coding of a body while it arrives.

Owns: `gzip` and `deflate`, and the limit on what a body may decode to.
Does not own: which bodies are decoded (`shell`).
Rule: no input raises, and a few bytes never decode to more than the limit.
Source: RFC 9110, section 8.4.1.
"""

from __future__ import annotations

import zlib

from mrtr_cassette.core.wire.http import LARGEST_BODY

_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_ZLIB_HEADER = 2
"""Bytes by which a body of `deflate` shows whether it has zlib's header (RFC 1950)."""


class ContentDecoder:
    """Decodes `gzip` and `deflate`; a body in any other coding stays as it is.

    Attributes:
        coding: the coding in lower case; empty where there is none.
        is_known: bodies in this coding are decoded.
        failed: the bytes can't be decoded, or decode to more than the limit; what `decode` returns
            is useless then.
    """

    def __init__(self, coding: str, limit_bytes: int = LARGEST_BODY) -> None:
        """Begin a body.

        Args:
            coding: its `Content-Encoding`.
            limit_bytes: the most that it may decode to.
        """
        self._remaining = limit_bytes
        coding = coding.strip().lower()
        self.coding = "" if coding == "identity" else coding
        self.is_known = self.coding in {"gzip", "x-gzip", "deflate"}
        self.failed = False
        self._begun = b""
        self._inflate = zlib.decompressobj(wbits=_GZIP_OR_ZLIB)

    @property
    def is_whole(self) -> bool:
        """Whether the bytes so far end where a compressed body may end."""
        return self.is_known and not self.failed and self._inflate.eof

    def decode(self, chunk: bytes) -> bytes:
        """Return what the next bytes decode to."""
        if not self.is_known or self.failed:
            return chunk
        if self.coding == "deflate" and len(self._begun) < _ZLIB_HEADER:
            chunk = self._begun + chunk
            self._begun = chunk[:_ZLIB_HEADER]
            if len(chunk) < _ZLIB_HEADER:
                return b""
            if not _is_zlib(chunk):
                # What some servers send instead (RFC 9110, section 8.4.1.2).
                self._inflate = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
        try:
            decoded = self._inflate.decompress(chunk, self._remaining + 1)
            # A gzip body may have several members (RFC 1952, section 2.2).
            while self._inflate.unused_data:
                following = self._inflate.unused_data
                self._inflate = zlib.decompressobj(wbits=_GZIP_OR_ZLIB)
                decoded += self._inflate.decompress(following, self._remaining + 1)
        except zlib.error:
            self.failed = True
            return chunk
        self._remaining -= len(decoded)
        # A few bytes may decode to more than memory can hold.
        self.failed = self._remaining < 0
        return decoded


def _is_zlib(raw: bytes) -> bool:
    return raw[0] & 0x0F == zlib.DEFLATED and int.from_bytes(raw[:_ZLIB_HEADER]) % 31 == 0
