from __future__ import annotations

import pytest

from mrtr_cassette.core.wire.http import (
    NO_STATUS,
    End,
    Headers,
    Piece,
    Response,
    decoded_header,
    is_event_stream,
    kept_request_headers,
    kept_response_headers,
    named_by_user,
)


def test_responses_are_the_same_however_they_were_cut() -> None:
    """The pieces of a body are the network's; everything else is the server's."""
    whole = Response(200, (), (Piece(b"ab", 0, 1),), End.COMPLETE)

    assert whole.is_same_as(Response(200, (), (Piece(b"a", 0, 1), Piece(b"b", 9, 2)), End.COMPLETE))
    for other in (
        Response(201, (), whole.pieces, End.COMPLETE),
        Response(200, (("A", "b"),), whole.pieces, End.COMPLETE),
        Response(200, (), (Piece(b"a", 0, 1),), End.COMPLETE),
        Response(200, (), whole.pieces, End.OPEN),
    ):
        assert not whole.is_same_as(other)


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
