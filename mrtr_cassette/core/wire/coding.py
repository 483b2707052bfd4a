"""Taking the content coding off a body, as it comes.

Owns: `gzip` and `deflate`, and the bound on what a body may decode to.
Source: RFC 9110, section 8.4.1.
"""

from __future__ import annotations

import zlib

from mrtr_cassette.core.wire.http import LARGEST_BODY


class ContentDecoder:
    """Takes `gzip` or `deflate` off a body as it comes; anything else passes as it is.

    Attributes:
        coding: the coding in lower case; empty where there is none.
        is_known: it can be taken off.
        failed: what came can't be decoded, or decodes to too much.

    Raises nothing: after bytes that can't be decoded, or decode to too many, `failed` is true and
    the output useless.
    """

    def __init__(self, coding: str, limit_bytes: int = LARGEST_BODY) -> None:
        """Begin a body with this `Content-Encoding`, which may become as large as the limit."""
        self._left = limit_bytes
        coding = coding.strip().lower()
        self.coding = "" if coding == "identity" else coding
        self.is_known = self.coding in {"gzip", "x-gzip", "deflate"}
        self.failed = False
        self._inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)

    @property
    def is_whole(self) -> bool:
        """Whether what has come so far ends where a compressed body may end."""
        return self.is_known and not self.failed and self._inflate.eof

    def decode(self, chunk: bytes) -> bytes:
        """Return what the next bytes decode to so far."""
        if not self.is_known or self.failed:
            return chunk
        try:
            decoded = self._inflate.decompress(chunk, self._left + 1)
            # A gzip body may have several members (RFC 1952, section 2.2).
            while self._inflate.unused_data:
                rest = self._inflate.unused_data
                self._inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
                decoded += self._inflate.decompress(rest, self._left + 1)
        except zlib.error:
            self.failed = True
            return chunk
        self._left -= len(decoded)
        # A few bytes may decode to more than the memory holds.
        self.failed = self._left < 0
        return decoded
