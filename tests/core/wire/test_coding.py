from __future__ import annotations

import gzip
import zlib

import pytest

from mrtr_cassette.core.wire.http import ContentDecoder


def decoded(coding: str, *chunks: bytes) -> tuple[bytes, bool]:
    """Return what chunks decode to, and whether decoding failed."""
    decoder = ContentDecoder(coding)
    return b"".join(decoder.decode(chunk) for chunk in chunks), decoder.failed


TEXT = b"round and round " * 20


GZIP = gzip.compress(TEXT, mtime=0)
TWO = gzip.compress(TEXT[:9], mtime=0) + gzip.compress(TEXT[9:], mtime=0)


@pytest.mark.parametrize(
    ("coding", "packed"),
    [
        ("x-gzip", GZIP),
        (" GZIP ", TWO),
        ("deflate", zlib.compress(TEXT)),
        ("br", TEXT),
        ("", TEXT),
    ],
)
def test_known_coding_is_taken_off(coding: str, packed: bytes) -> None:
    """`gzip`, of several members too, and `deflate` are taken off, whole and byte by byte."""
    assert decoded(coding, packed) == (TEXT, False)
    assert decoded(coding, *(packed[at : at + 1] for at in range(len(packed)))) == (TEXT, False)


def test_what_cannot_be_decoded_fails_without_raising() -> None:
    """Garbage passes as it is, and is said to have failed; so is deflate without its header."""
    assert decoded("gzip", b"garbage", b"more") == (b"garbagemore", True)
    assert decoded("gzip", GZIP + b"trailing garbage")[1]
    assert decoded("deflate", zlib.compress(TEXT)[2:-4])[1]


@pytest.mark.parametrize(("limit", "fails"), [(len(TEXT), False), (len(TEXT) - 1, True), (0, True)])
@pytest.mark.parametrize("size", [7, 1_000])
def test_body_that_becomes_too_large_fails(limit: int, fails: bool, size: int) -> None:  # noqa: FBT001
    """A few bytes that decode to more than is kept are given up, and never held whole."""
    packed = gzip.compress(TEXT[:150]) + gzip.compress(TEXT[150:])
    decoder = ContentDecoder("gzip", limit)
    parts = [decoder.decode(packed[at : at + size]) for at in range(0, len(packed), size)]

    assert decoder.failed is fails
    if not fails:
        assert b"".join(parts) == TEXT


def test_body_is_whole_where_its_last_member_ends() -> None:
    """A body that is cut off, or in no known coding, isn't whole."""
    packed = gzip.compress(TEXT)
    decoder = ContentDecoder("gzip")
    decoder.decode(packed[:-1])
    assert not decoder.is_whole
    decoder.decode(packed[-1:])
    assert decoder.is_whole
    assert not ContentDecoder("br").is_whole
