"""Facts about bodies that are read without a content coding."""

from __future__ import annotations

import gzip
import zlib

import pytest
from builders import JSON_HEADERS, post, tool

from mrtr_cassette.core.wire.http import (
    End,
    Headers,
    Piece,
    Request,
    Response,
    readable,
    why_unread,
)

CALL = tool("deploy", env="prød")


def packed(body: bytes) -> bytes:
    """Return a body in `gzip`, the same on every run."""
    return gzip.compress(body, mtime=0)


def coded(body: bytes, coding: str, content_type: str = "application/json") -> Request:
    """Return a request with a body in a content coding."""
    headers = (("Content-Type", content_type), ("content-encoding", coding), ("Accept", "*/*"))
    return Request("POST", "/mcp", headers, body)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", packed(CALL)),
        ("X-GZIP", packed(CALL[:9]) + packed(CALL[9:])),
        ("deflate", zlib.compress(CALL)),
    ],
)
def test_content_coding_of_a_request_is_undone(coding: str, body: bytes) -> None:
    """A request is read without its coding, and its headers don't name one any more."""
    request = readable(coded(body, coding))

    assert request.body == CALL
    assert [name for name, _ in request.headers] == ["Content-Type", "Accept"]


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("br", CALL),
        ("gzip", CALL),
        ("gzip", packed(CALL)[:-1]),
        ("gzip", packed(CALL) + b"more"),
        ("gzip, gzip", packed(packed(CALL))),
        ("gzip", b""),
    ],
)
def test_what_cannot_be_undone_stays(coding: str, body: bytes) -> None:
    """A body in another coding, or one that is damaged, stays as it came, and so do its headers."""
    request = coded(body, coding)

    assert readable(request) is request
    assert bool(why_unread(request)) is bool(body)


def test_request_that_becomes_too_large_stays() -> None:
    """A few bytes that decode to more than the limit are not decoded."""
    request = coded(packed(b"x" * 1000), "gzip")

    assert readable(request, 999) is request
    assert why_unread(request) == "its gzip is damaged, cut short or too large"
    assert readable(request, 1000).body == b"x" * 1000


@pytest.mark.parametrize(
    ("body", "is_read"),
    [
        (b"", True),
        (CALL, True),
        (b"text with a NUL \x00", False),
        (CALL.decode().encode("utf-16"), False),
        (CALL.decode().encode("utf-32-be"), False),
        ("r\xe9sum\xe9".encode("latin-1"), True),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", False),
        (b"\xff\x00", False),
    ],
)
def test_bytes_that_are_no_text_cannot_be_read(body: bytes, is_read: bool) -> None:  # noqa: FBT001
    """Text in any encoding can be read; bytes of another kind can't, in requests and responses."""
    headers: Headers = JSON_HEADERS
    pieces = tuple(Piece(body[at : at + 3], 0, 0) for at in range(0, len(body), 3))

    assert (why_unread(Request("POST", "/", headers, body)) == "") is is_read
    assert (why_unread(Response(200, headers, pieces, End.COMPLETE)) == "") is is_read


def test_readable_request_is_the_same_one() -> None:
    """Nothing is made anew where nothing has to be undone."""
    request = post(CALL)

    assert readable(request) is request
    identity = coded(CALL, "identity")
    assert readable(identity) is identity
    assert why_unread(identity) == ""
