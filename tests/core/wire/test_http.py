"""Facts about one HTTP exchange: which headers are kept, and bodies in a content coding."""

from __future__ import annotations

import gzip
import zlib

import codings
import pytest
from builders import JSON_HEADERS, tool
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.wire.codings import (
    ContentDecoder,
    why_body_unreadable,
    with_decoded_body,
)
from mrtr_cassette.core.wire.http import (
    NO_STATUS,
    SESSION_HEADER,
    End,
    Headers,
    Line,
    LineFramer,
    Piece,
    PipeRead,
    Request,
    Response,
    channel_request,
    decoded_header,
    is_event_stream,
    kept_request_headers,
    kept_response_headers,
    line_request,
    lines_in,
    named_by_user,
    opens_channel,
)
from mrtr_cassette.core.wire.jsonbytes import Span
from mrtr_cassette.core.wire.sse import SseFramer, event_id_spans, read_event


@pytest.mark.parametrize(
    ("status", "headers", "is_acknowledgement"),
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
    is_acknowledgement: bool,  # noqa: FBT001
) -> None:
    """A response with status 202 says nothing else, unless it is a stream of events."""
    assert (
        Response(status, headers, (), End.COMPLETE).is_acknowledgement
        is is_acknowledgement
    )


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
    asked = (
        ("Accept", "a"),
        ("Mcp-Method", "m"),
        ("CONTENT-TYPE", "c"),
        ("Last-Event-ID", "7"),
    )

    answered = (
        ("Content-Type", "c"),
        ("mcp-session-id", "s"),
        ("WWW-Authenticate", "w"),
    )

    answered += (
        ("ETag", "e"),
        ("Last-Modified", "m"),
        ("DPoP-Nonce", "n"),
        ("Allow", "GET"),
    )

    answered += (("Cache-Control", "no-store"), ("Retry-After", "5"))
    asked += (
        ("Access-Control-Request-Headers", "x"),
        ("access-control-request-method", "PUT"),
    )

    answered += (("Vary", "Origin"), ("Access-Control-Allow-Origin", "*"))

    kept = kept_request_headers((*SECRETS, *asked, ("Host", "h")))

    assert kept == (("Authorization", ""), *asked)

    named = kept_request_headers(
        (*SECRETS, ("Cookie", "a=s3cret")), frozenset({"x-unknown"})
    )

    assert named == (("Authorization", ""), ("X-Unknown", "s3cret"))
    assert named_by_user(named) == {"x-unknown"}
    assert (
        kept_response_headers((*SECRETS, *answered, ("Content-Length", "5")))
        == answered
    )


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
        ("gzip", packed(TEXT[:7]) + packed(b"") + packed(TEXT[7:])),
        ("gzip", GZIP + bytes(3)),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", zlib.compress(TEXT)[2:-4]),
        ("unknown", TEXT),
        ("", TEXT),
        *codings.packed_by_libraries(TEXT),
    ],
)
def test_known_coding_is_taken_off(coding: str, body: bytes) -> None:
    """Every coding that can be decoded here is taken off, whole and byte by byte."""
    assert decoded(coding, body) == (TEXT, False)
    assert decoded(coding, *(body[at : at + 1] for at in range(len(body)))) == (
        TEXT,
        False,
    )


def test_what_cannot_be_decoded_fails_without_raising() -> None:
    """Garbage passes as it is, and is said to have failed, also behind what was whole."""
    assert decoded("gzip", b"garbage", b"more") == (b"garbagemore", True)
    assert decoded("gzip", GZIP + b"trailing garbage")[1]
    assert decoded("deflate", b"\x05garbage")[1]
    assert decoded("deflate", zlib.compress(TEXT) + zlib.compress(TEXT))[1]

    for coding, body in codings.packed_by_libraries(TEXT):
        assert decoded(coding, body + b"garbage")[1]
        assert decoded(coding, b"garbage")[1]


CALL = tool("deploy", env="prød")


def coded(body: bytes, coding: str, content_type: str = "application/json") -> Request:
    """Return a request with a body in a content coding."""
    headers = (
        ("Content-Type", content_type),
        ("content-encoding", coding),
        ("Accept", "*/*"),
    )
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

    assert with_decoded_body(request) is request
    assert bool(why_body_unreadable(request)) is (bool(body) and coding != "identity")


def test_content_coding_of_a_request_is_undone() -> None:
    """Its headers name none any more; what becomes larger than the limit stays as it came."""
    request = coded(packed(b"x" * 1000), "gzip")

    assert with_decoded_body(request, 999) is request
    assert why_body_unreadable(request) == "its gzip is damaged, cut short or too large"

    fits = with_decoded_body(request, 1000)

    assert fits.body == b"x" * 1000
    assert [name for name, _ in fits.headers] == ["Content-Type", "Accept"]


@pytest.mark.parametrize(
    ("body", "is_read"),
    [
        (b"", True),
        (CALL, True),
        (b"text with a NUL \x00", True),
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

    assert (why_body_unreadable(Request("POST", "/", headers, body)) == "") is is_read
    assert (
        why_body_unreadable(Response(200, headers, pieces, End.COMPLETE)) == ""
    ) is is_read


# Lines on a pipe

LONGEST = 12

a_text = st.lists(
    st.sampled_from([b"\n", b"\r\n", b"{}", b"a", b"", b"\xff", b"long" * 4])
).map(b"".join)


def lines_of(*chunks: bytes, longest: int = LONGEST) -> list[Line]:
    """Return the lines of bytes that come in these chunks; parts of a long line are joined."""
    framer = LineFramer(longest)
    passed_length = b""
    joined: list[Line] = []
    for read in [*map(framer.feed, chunks), framer.finish()]:
        for line in read.lines:
            passed_length += line.new_bytes
            before = joined[-1] if joined else Line(b"", is_whole=True)
            if before.is_whole or before.raw.endswith(b"\n"):
                joined.append(line._replace(passed_length=0))
            else:
                joined[-1] = Line(before.raw + line.raw, is_whole=False)

        passed_length += read.rest

    assert passed_length == b"".join(chunks)
    return joined


@given(a_text, st.lists(st.integers(0, 40)))
def test_any_split_into_reads_gives_the_same_lines(
    data: bytes, cuts: list[int]
) -> None:
    """However bytes are cut, the lines are the same, and together they are the bytes."""
    places = sorted({min(cut, len(data)) for cut in cuts})
    chunks = [
        data[start:end]
        for start, end in zip([0, *places], [*places, len(data)], strict=True)
    ]

    lines = lines_of(*chunks)

    assert lines == lines_of(data)
    assert b"".join(line.raw for line in lines) == data
    assert all(line.is_whole == (len(line.raw) <= LONGEST) for line in lines)
    assert all(line.raw.endswith(b"\n") for line in lines[:-1])
    assert all(line.raw.count(b"\n") <= 1 for line in lines)


def test_line_comes_when_it_ends_and_its_bytes_as_they_are_read() -> None:
    """A line is whole with its end, which only the last one may lack; what it had is passed on."""
    framer = LineFramer(100)

    assert framer.feed(b"one\ntw") == PipeRead([Line(b"one\n")], b"tw")
    assert framer.feed(b"o") == PipeRead([], b"o")
    assert framer.feed(b"\n\nrest") == PipeRead(
        [Line(b"two\n", passed_length=3), Line(b"\n")], b"rest"
    )
    assert framer.finish() == PipeRead([Line(b"rest", passed_length=4)])
    assert framer.finish() == PipeRead([])


def test_line_that_is_too_long_passes_in_parts() -> None:
    """A line longer than the limit is not held; the next one is whole again."""
    framer = LineFramer(4)

    assert framer.feed(b"1234") == PipeRead([], b"1234")
    assert framer.feed(b"5") == PipeRead(
        [Line(b"12345", is_whole=False, passed_length=4)]
    )
    assert framer.feed(b"6") == PipeRead([Line(b"6", is_whole=False)])
    assert framer.feed(b"7\n123\n").lines == [
        Line(b"7\n", is_whole=False),
        Line(b"123\n"),
    ]


@pytest.mark.parametrize(
    ("line", "body"),
    [
        (b"{}\n", b"{}"),
        (b"{}\r\n", b"{}"),
        (b"{}", b"{}"),
        (b"\n", b"\n"),
        (b" \n", b" "),
    ],
)
def test_request_is_the_line_without_its_end(line: bytes, body: bytes) -> None:
    """A request has the line's bytes, and never none: that is the beginning of the channel."""
    request = line_request(line)

    assert request.body == body
    assert request.is_line
    assert request.headers == ()
    assert not opens_channel(request)


def test_channel_has_a_request_of_its_own() -> None:
    """The beginning of a channel is a request without a body; a session is named in it."""
    request = channel_request("mrtr-session:1")

    assert opens_channel(request)
    assert request.header(SESSION_HEADER) == "mrtr-session:1"


def test_lines_that_came_together_are_told_apart() -> None:
    """Each keeps its end, and together they are the bytes."""
    for raw, lines in (
        (b"", [b""]),
        (b"a\n", [b"a\n"]),
        (b"a", [b"a"]),
        (b"a\r\n\n\rb\nc", [b"a\r\n", b"\n", b"\rb\n", b"c"]),
    ):
        assert list(lines_in(raw)) == lines
        assert b"".join(lines) == raw


# Event streams

BOM = b"\xef\xbb\xbf"


def test_event_is_there_as_soon_as_it_is_whole() -> None:
    """An event whose blank line has come doesn't wait for the next chunk."""
    framer = SseFramer()

    assert list(framer.feed(b"data: 1\n")) == []
    assert list(framer.feed(b"\ndata: 2")) == [b"data: 1\n\n"]
    assert list(framer.feed(b"\r\n\r\n")) == [b"data: 2\r\n\r\n"]


def test_byte_order_mark_counts_in_the_first_event_only() -> None:
    """A byte order mark is skipped where the stream begins, and is part of a line elsewhere."""
    raw = BOM + b"data: 1\n\n"

    assert read_event(raw, first=True).data == b"1"
    assert read_event(raw, first=False).data is None


@pytest.mark.parametrize(
    ("span", "found"),
    [
        (Span(0, 3), b"abc"),
        (Span(1, 2), b"b"),
        (Span(3, 3), b""),
        (Span(4, 7), b"def"),
        (Span(6, 7), b"f"),
        (Span(2, 5), None),
        (Span(3, 4), None),
        (Span(7, 9), None),
    ],
)
def test_span_of_data_is_found_in_the_bytes(span: Span, found: bytes | None) -> None:
    """A span of the data stands in one data line of the event, or nowhere."""
    event = read_event(b"id: 1\r\ndata: abc\r\ndata:def\r\n\r\n", first=True)

    place = event.raw_span(span)

    assert (None if place is None else event.raw[place.start : place.end]) == found


@pytest.mark.parametrize(
    ("raw", "ids"),
    [
        (b"id: 1\ndata: x\n\n", [b"1"]),
        (b"data: x\r\nid:a b \r\n\r\n", [b"a b "]),
        (b"id: 1\rid: 2\r\r", [b"1", b"2"]),
        (b"id:\nid\ndata: id: 3\n\n", []),
        (b"data: x\n\n", []),
    ],
)
def test_ids_of_events_are_found(raw: bytes, ids: list[bytes]) -> None:
    """An id is the value of a field of that name; an empty one names no event."""
    assert [raw[span.start : span.end] for span in event_id_spans(raw)] == ids


READABLE = '{"jsonrpc": "2.0", "id": 1, "result": {"≠": "浮浮"}}'


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"data: " + READABLE.encode() + b"\0\n\n", ""),
        (b"\0" + READABLE.encode(), ""),
        (READABLE.encode("utf-16"), "it is not UTF-8"),
        (READABLE.encode("utf-32-be"), "it may be UTF-16 or UTF-32"),
        (b'{"id": 1}'.decode().encode("utf-16-le"), "it may be UTF-16 or UTF-32"),
        ('{"≠≡": "浮浮捡"}'.encode("utf-16-be"), "it may be UTF-16 or UTF-32"),
        (b"\x89PNG \0", "it is not UTF-8"),
    ],
)
def test_text_with_a_nul_is_read_unless_it_is_in_another_encoding(
    body: bytes, reason: str
) -> None:
    """Where every character of ASCII has a NUL beside it, no name is found."""
    assert why_body_unreadable(Request("POST", "/", (), body)) == reason
