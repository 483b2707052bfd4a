"""Facts about one HTTP exchange: which headers are kept, and bodies in a content coding."""

from __future__ import annotations

import gzip
import zlib

import pytest
from builders import JSON_HEADERS, tool

from mrtr_cassette.core.wire.http import (
    NO_STATUS,
    ContentDecoder,
    End,
    Headers,
    Piece,
    Request,
    Response,
    decoded_header,
    is_event_stream,
    kept_request_headers,
    kept_response_headers,
    named_by_user,
    readable,
    why_unread,
)


@pytest.mark.parametrize(
    ("status", "headers", "only_accepts"),
    [
        (202, (), True),
        (202, (("Content-Type", "text/plain"),), True),
        (202, (("Content-Type", "text/event-stream"),), False),
        (200, (), False),
        (NO_STATUS, (), False),
    ],
)
def test_accepted_says_no_more_than_that(
    status: int,
    headers: Headers,
    only_accepts: bool,  # noqa: FBT001
) -> None:
    """A response with status 202 says nothing else, unless it is a stream of events."""
    assert Response(status, headers, (), End.COMPLETE).only_accepts is only_accepts


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
    """Only headers that matter to MCP and to replay are kept; of a credential only its name."""
    asked = (("Accept", "a"), ("Mcp-Method", "m"), ("CONTENT-TYPE", "c"), ("Last-Event-ID", "7"))
    answered = (("Content-Type", "c"), ("mcp-session-id", "s"), ("WWW-Authenticate", "w"))
    asked += (("Access-Control-Request-Headers", "x"), ("access-control-request-method", "PUT"))
    answered += (("Vary", "Origin"), ("Access-Control-Allow-Origin", "*"))

    kept = kept_request_headers((*SECRETS, *asked, ("Host", "h")))
    assert kept == (("Authorization", ""), *asked)
    named = kept_request_headers((*SECRETS, ("Cookie", "a=s3cret")), frozenset({"x-unknown"}))
    assert named == (("Authorization", ""), ("X-Unknown", "s3cret"))
    assert named_by_user(named) == {"x-unknown"}
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


@pytest.mark.parametrize(
    ("value", "decoded"),
    [
        ("=?base64?Y2Fmw6k=?=", "café"),
        ("=?base64??=", ""),
        ("=?base64?/w==?=", "\udcff"),
        ("=?base64?Y?=", None),
        ("=?base64?Y2Fm", None),
        ("plain", None),
    ],
)
def test_encoded_header_is_decoded(value: str, decoded: str | None) -> None:
    """MCP spells what no header may have in base64; anything else stands for itself."""
    assert decoded_header(value) == decoded


# Content codings


def packed(body: bytes) -> bytes:
    """Return a body in `gzip`, the same on every run."""
    return gzip.compress(body, mtime=0)


def decoded(coding: str, *chunks: bytes) -> tuple[bytes, bool]:
    """Return what chunks decode to, and whether decoding failed."""
    decoder = ContentDecoder(coding)
    return b"".join(decoder.decode(chunk) for chunk in chunks), decoder.failed


TEXT = b"round and round " * 20
GZIP = packed(TEXT)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("x-gzip", GZIP),
        (" GZIP ", GZIP),
        ("deflate", zlib.compress(TEXT)),
        ("br", TEXT),
        ("", TEXT),
    ],
)
def test_known_coding_is_taken_off(coding: str, body: bytes) -> None:
    """`gzip` and `deflate` are taken off, whole and byte by byte."""
    assert decoded(coding, body) == (TEXT, False)
    assert decoded(coding, *(body[at : at + 1] for at in range(len(body)))) == (TEXT, False)


def test_what_cannot_be_decoded_fails_without_raising() -> None:
    """Garbage passes as it is, and is said to have failed; so is deflate without its header."""
    assert decoded("gzip", b"garbage", b"more") == (b"garbagemore", True)
    assert decoded("gzip", GZIP + b"trailing garbage")[1]
    assert decoded("deflate", zlib.compress(TEXT)[2:-4])[1]


def test_body_is_whole_where_its_last_member_ends() -> None:
    """A body that is cut off, or in no known coding, isn't whole."""
    decoder = ContentDecoder("gzip")
    decoder.decode(GZIP[:-1])
    assert not decoder.is_whole
    decoder.decode(GZIP[-1:])
    assert decoder.is_whole
    assert not ContentDecoder("br").is_whole


CALL = tool("deploy", env="prød")


def coded(body: bytes, coding: str, content_type: str = "application/json") -> Request:
    """Return a request with a body in a content coding."""
    headers = (("Content-Type", content_type), ("content-encoding", coding), ("Accept", "*/*"))
    return Request("POST", "/mcp", headers, body)


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("br", CALL),
        ("gzip", CALL),
        ("gzip", packed(CALL)[:-1]),
        ("gzip", packed(CALL) + b"more"),
        ("gzip, gzip", packed(packed(CALL))),
        ("gzip", b""),
        ("identity", CALL),
    ],
)
def test_what_cannot_be_undone_stays(coding: str, body: bytes) -> None:
    """A body in another coding, or one that is damaged, stays as it came, and so do its headers."""
    request = coded(body, coding)

    assert readable(request) is request
    assert bool(why_unread(request)) is (bool(body) and coding != "identity")


def test_content_coding_of_a_request_is_undone() -> None:
    """Its headers name none any more; what becomes larger than the limit stays as it came."""
    request = coded(packed(b"x" * 1000), "gzip")

    assert readable(request, 999) is request
    assert why_unread(request) == "its gzip is damaged, cut short or too large"
    fits = readable(request, 1000)
    assert fits.body == b"x" * 1000
    assert [name for name, _ in fits.headers] == ["Content-Type", "Accept"]


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
