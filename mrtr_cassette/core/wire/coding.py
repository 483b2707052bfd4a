"""Decoding the content coding of a body while it arrives.

Rule: no input raises, and a few bytes never decode to more than the limit.
Source: RFC 9110, section 8.4.1.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

from mrtr_cassette.core.wire.http import LARGEST_BODY

_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
_AT_ONCE = 64 * 1024
"""Bytes that are decoded before their number is compared with the limits."""
LARGEST_RATIO: Final = 200
"""How many times its own size a large body decodes to at most.

The format allows 1,032 times. Logs and tables of one repeated line stay below 100.
"""
_SMALL = 16 * 1024 * 1024
"""Bytes up to which a body may decode at any ratio."""


class ContentDecoder:
    """Decodes `gzip` and `deflate`; a body in any other coding stays as it is.

    Attributes:
        coding: the coding in lower case; empty where there is none.
        is_known: bodies in this coding are decoded.
        failed: the bytes can't be decoded, or decode to more than the limit; what `decode` returns
            is useless then.
        is_bomb: the bytes decode to so much that somebody made them for that.
    """

    def __init__(self, coding: str, limit_bytes: int = LARGEST_BODY) -> None:
        self._limit = limit_bytes
        self._taken = self._decoded = 0
        coding = coding.strip().lower()
        self.coding = "" if coding == "identity" else coding
        self.is_known = self.coding in {"gzip", "x-gzip", "deflate"}
        self.failed = self.is_bomb = False
        self._inflate = zlib.decompressobj(wbits=_GZIP_OR_ZLIB)

    @property
    def is_whole(self) -> bool:
        """Whether the bytes so far end where a compressed body may end."""
        return self.is_known and not self.failed and self._inflate.eof

    def decode(self, chunk: bytes) -> bytes:
        """Return what the next bytes decode to."""
        return b"".join(self._parts(chunk))

    def _parts(self, chunk: bytes) -> Iterator[bytes]:
        if not self.is_known or self.failed:
            yield chunk
            return
        self._taken += len(chunk)
        is_whole = False
        while not is_whole and not self.failed:
            try:
                most = min(_AT_ONCE, self._limit + 1 - self._decoded)
                part = self._inflate.decompress(chunk, most)
            except zlib.error:
                self.failed = True
                yield chunk
                return
            chunk = self._inflate.unconsumed_tail
            if self._inflate.unused_data:
                # A gzip body may have several members (RFC 1952, section 2.2).
                chunk = self._inflate.unused_data
                self._inflate = zlib.decompressobj(wbits=_GZIP_OR_ZLIB)
            is_whole = not chunk and len(part) < most
            self._decoded += len(part)
            # A few bytes may decode to more than memory can hold.
            self.is_bomb = self._decoded > max(_SMALL, LARGEST_RATIO * self._taken)
            self.failed = self.is_bomb or self._decoded > self._limit
            yield part
