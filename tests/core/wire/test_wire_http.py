from __future__ import annotations

import gzip
import zlib

import pytest

from mrtr_cassette.core.wire.coding import ContentDecoder
from mrtr_cassette.core.wire.http import (
    End,
    Piece,
    Request,
    Response,
    header_value,
    is_event_stream,
    kept_request_headers,
    kept_response_headers,
)


def test_header_is_found_by_its_lower_case_name() -> None:
    """Values of one header are joined by commas, whatever their names' spelling."""
    headers = (("Accept", "a"), ("ACCEPT", "b"), ("X", "c"))

    assert header_value(headers, "accept") == "a, b"
    assert header_value(headers, "host") == ""
    assert Request("GET", "/", headers, b"").header("x") == "c"


def test_body_is_all_pieces() -> None:
    """The body of a response is the bytes of its pieces."""
    pieces = (Piece(b"a", 0, 1), Piece(b"b", 1, 1))

    assert Response(200, (), pieces, End.COMPLETE).body == b"ab"


@pytest.mark.parametrize(
    ("content_type", "streams"),
    [
        ("text/event-stream", True),
        ("Text/Event-Stream ; charset=utf-8", True),
        ("text/event-stream-x", False),
        ("application/json", False),
        ("", False),
    ],
)
def test_event_stream_is_known_by_its_type(content_type: str, streams: bool) -> None:  # noqa: FBT001
    """A response is an event stream if its content type says so."""
    headers = (("content-TYPE", content_type),)

    assert is_event_stream(headers) is streams
    assert Response(200, headers, (), End.COMPLETE).is_event_stream is streams


SECRETS = (
    ("Authorization", "Bearer s3cret"),
    ("Cookie", "sid=s3cret"),
    ("Set-Cookie", "sid=s3cret"),
    ("Proxy-Authorization", "s3cret"),
    ("X-Api-Key", "s3cret"),
    ("X-Unknown", "s3cret"),
    ("Date", "today"),
)


def test_kept_headers_are_on_the_list() -> None:
    """Only headers that matter to MCP and to replay are kept, in order and as spelled."""
    asked = (("Accept", "a"), ("Mcp-Method", "m"), ("CONTENT-TYPE", "c"), ("Last-Event-ID", "7"))
    answered = (("Content-Type", "c"), ("mcp-session-id", "s"), ("WWW-Authenticate", "w"))

    assert kept_request_headers((*SECRETS, *asked, ("Host", "h"))) == asked
    assert kept_response_headers((*SECRETS, *answered, ("Content-Length", "5"))) == answered


@pytest.mark.parametrize(
    "header",
    [
        ("Accept", "a\x00"),
        ("Accept", "a\x01b"),
        ("Accept", "a\r\nb"),
        ("Accept", "\x7f"),
        ("Mcp-Näme", "x"),
        ("Mcp-Na me", "x"),
        ("Mcp-\n", "x"),
    ],
)
def test_header_that_http_forbids_is_not_kept(header: tuple[str, str]) -> None:
    """What nobody could send on replay is left out, and nothing else is."""
    fine = (("Accept", "tab\tand é"), ("Mcp-Param-x_!", ""))

    assert kept_request_headers((header, *fine)) == fine


def decoded(coding: str, *chunks: bytes) -> tuple[bytes, bool]:
    """Return what chunks decode to, and whether decoding failed."""
    decoder = ContentDecoder(coding)
    return b"".join(decoder.decode(chunk) for chunk in chunks), decoder.failed


TEXT = b"round and round " * 20


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", " GZIP ", "deflate"])
def test_known_coding_is_taken_off(coding: str) -> None:
    """`gzip` and `deflate` are taken off, whole and byte by byte."""
    packed = zlib.compress(TEXT) if coding == "deflate" else gzip.compress(TEXT)

    assert decoded(coding, packed) == (TEXT, False)
    assert decoded(coding, *(packed[at : at + 1] for at in range(len(packed)))) == (TEXT, False)


@pytest.mark.parametrize("cut", [0, 5])
def test_gzip_may_have_several_members(cut: int) -> None:
    """All members of a gzip body are read, wherever the chunks are cut."""
    first, second = gzip.compress(b"one "), gzip.compress(b"two")
    at = len(first) + cut

    assert decoded("gzip", (first + second)[:at], (first + second)[at:]) == (b"one two", False)


@pytest.mark.parametrize("coding", ["", "identity", "br", "zstd"])
def test_other_coding_is_left(coding: str) -> None:
    """A coding that isn't known stays on."""
    assert decoded(coding, TEXT) == (TEXT, False)


def test_what_cannot_be_decoded_fails_without_raising() -> None:
    """Garbage passes as it is, and is said to have failed."""
    assert decoded("gzip", b"garbage", b"more") == (b"garbagemore", True)
    assert decoded("gzip", gzip.compress(TEXT) + b"trailing garbage")[1]


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


def test_bomb_is_not_decoded_whole() -> None:
    """What a chunk decodes to is cut off at the limit."""
    packed = gzip.compress(b"0" * 10_000_000)

    assert len(ContentDecoder("gzip", 1_000).decode(packed)) <= 1_001
