from __future__ import annotations

from typing import Any

import orjson
import pytest
from builders import (
    STREAM_HEADERS,
    cassette_of,
    decode_cassette,
    encode_cassette,
    loaded,
    sse,
)

from mrtr_cassette.core.format.bodies import (
    decode_body,
    encode_body,
    encode_response_body,
    header_map,
    headers_of,
)
from mrtr_cassette.core.format.model import BodyModel
from mrtr_cassette.core.wire.http import NO_STATUS, End, Headers, Piece, Response
from mrtr_cassette.errors import CassetteError


def decoded(fields: dict[str, Any]) -> tuple[bytes, ...]:
    """Return the pieces of a body that went through a file."""
    written = BodyModel.model_validate(fields).model_dump(exclude_none=True)
    return decode_body(BodyModel.model_validate(orjson.loads(orjson.dumps(written))), "f", "/at")


def events_of(*events: bytes) -> dict[str, Any]:
    """Return what a file has of an event stream."""
    pieces = tuple(Piece(raw, 0, 0) for raw in events)
    return encode_response_body(Response(200, STREAM_HEADERS, pieces, End.COMPLETE))


def lines_of(*lines: bytes) -> dict[str, Any]:
    """Return what a file has of a server's lines."""
    pieces = tuple(Piece(raw, 0, 0) for raw in lines)
    return encode_response_body(Response(NO_STATUS, (), pieces, End.COMPLETE))


@pytest.mark.parametrize(
    ("raw", "form", "shown"),
    [
        (b'{"a":null,"b":[1.5,true,"\xc3\xa9"]}', "body", {"a": None, "b": [1.5, True, "é"]}),
        (b"false", "body", False),
        (b"0", "body", 0),
        (b'""', "body", ""),
        (b"[]", "body", []),
        (b"null", "text", "null"),
        (b'{"a": 1}', "text", '{"a": 1}'),
        (b"1.0e2", "text", "1.0e2"),
        (b"18446744073709551616", "text", "18446744073709551616"),
        (b'{"a":1,"a":2}', "text", '{"a":1,"a":2}'),
        (b'"\\u00e9"', "text", '"\\u00e9"'),
        (b'"\\ud800"', "text", '"\\ud800"'),
        (b"-0", "text", "-0"),
        (b"1e400", "text", "1e400"),
        (b"\xef\xbb\xbf{}", "text", "\ufeff{}"),
        (b"a\r\n\x00b", "text", "a\r\n\x00b"),
        (b"[" * 201 + b"]" * 201, "text", "[" * 201 + "]" * 201),
        (b"\xff\xfe", "base64", "//4="),
        (b'"\xed\xa0\x80"', "base64", "Iu2ggCI="),
    ],
)
def test_body_has_the_most_readable_form_that_gives_it_back(
    raw: bytes, form: str, shown: object
) -> None:
    """A body is JSON where that round-trips, else text, else base64; always byte for byte."""
    fields = encode_body(raw)

    assert fields.keys() == {form}
    assert fields[form] == shown
    assert decoded(fields) == (raw,)


@pytest.mark.parametrize("levels", [1, 199, 200, 201, 253, 254, 255, 1_000])
def test_deep_body_comes_back(levels: int) -> None:
    """However deep a body is nested, the file holds it."""
    raw = b'{"a":[' * levels + b"1" + b"]}" * levels
    cassette = cassette_of((b"x", raw))

    assert decode_cassette(encode_cassette(cassette), "f") == cassette
    response = loaded(cassette).interactions[0].exchanges[0].response
    assert response is not None
    assert response.body == raw


def test_empty_body_has_no_form() -> None:
    """Nothing is written for a body without bytes."""
    assert encode_body(b"") == events_of(b"") == lines_of(b"") == {}
    assert decoded({}) == ()


@pytest.mark.parametrize(
    ("raw", "form"),
    [
        (
            b'id: 1\ndata: {"a":1}\n\n',
            {"before": "id: 1\ndata: ", "data": {"a": 1}, "after": "\n\n"},
        ),
        (b'data:{"a":1}\r\n\r\n', {"before": "data:", "data": {"a": 1}, "after": "\r\n\r\n"}),
        (b"data: 1\nid: 2\n\n", {"before": "data: ", "data": 1, "after": "\nid: 2\n\n"}),
        (b'data: {"a": 1}\n\n', {"text": 'data: {"a": 1}\n\n'}),
        (b'data: {"a":\ndata: 1}\n\n', {"text": 'data: {"a":\ndata: 1}\n\n'}),
        (b"data: null\n\n", {"text": "data: null\n\n"}),
        (b": ping\n\n", {"text": ": ping\n\n"}),
        (b"data\n\n", {"text": "data\n\n"}),
        (b"data: \xff\n\n", {"base64": "ZGF0YTog/woK"}),
        (b": \xff\ndata: 1\n\n", {"base64": "OiD/CmRhdGE6IDEKCg=="}),
    ],
)
def test_event_shows_its_data_as_json_where_that_gives_it_back(
    raw: bytes, form: dict[str, Any]
) -> None:
    """An event is framing and JSON, else text, else base64; always byte for byte."""
    fields = events_of(b"data: 0\n\n", raw)

    assert fields["events"][1] == form
    assert decoded(fields) == (b"data: 0\n\n", raw)


@pytest.mark.parametrize(
    ("raw", "form"),
    [
        (b'{"a":1}\n', {"data": {"a": 1}}),
        (b'{"a":1}\r\n', {"text": '{"a":1}\r\n'}),
        (b'{"a": 1}\n', {"text": '{"a": 1}\n'}),
        (b'{"a":1}', {"text": '{"a":1}'}),
        (b"null\n", {"text": "null\n"}),
        (b"\n", {"text": "\n"}),
        (b"listening\n", {"text": "listening\n"}),
        (b"\xff\n", {"base64": "/wo="}),
    ],
)
def test_line_shows_its_json_where_that_gives_it_back(raw: bytes, form: dict[str, Any]) -> None:
    """A line is JSON and a line feed, else text, else base64; always byte for byte."""
    fields = lines_of(b"{}\n", raw)

    assert fields == {"lines": [{"data": {}}, form]}
    assert decoded(fields) == (b"{}\n", raw)


def test_byte_order_mark_of_a_stream_comes_back() -> None:
    """A byte order mark before the first event is kept, and is no part of a later one."""
    marked = b"\xef\xbb\xbf" + sse(b"{}")
    fields = events_of(marked, marked)

    first, second = fields["events"]

    assert first == {"before": "\ufeffdata: ", "data": {}, "after": "\n\n"}
    assert second == {"text": "\ufeffdata: {}\n\n"}
    assert decoded(fields) == (marked, marked)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"body": 1, "text": "1"}, "f: at /at: both `body` and `text`"),
        ({"base64": "AA==", "events": []}, "f: at /at: both `base64` and `events`"),
        ({"base64": "A"}, "f: at /at/base64: "),
        ({"base64": "\u00e9"}, "f: at /at/base64: "),
        ({"events": [{"text": ""}, {"base64": "A"}]}, "f: at /at/events/1/base64: "),
    ],
)
def test_damaged_body_is_refused_with_its_place(fields: dict[str, Any], message: str) -> None:
    """An error names file, place and reason, whatever is wrong with a body."""
    with pytest.raises(CassetteError, match=f"^{message}"):
        decoded(fields)


def test_body_that_is_too_deep_to_write_is_refused() -> None:
    """A hand-made body that no cassette of ours would hold as JSON is an error with its place."""
    value: Any = []
    for _ in range(300):
        value = [value]
    with pytest.raises(CassetteError, match=r"^f: at /at"):
        decode_body(BodyModel(body=value), "f", "/at")


def test_body_is_what_stands_there() -> None:
    """A body that was written by hand is read as it is spelled."""
    assert decoded({"body": {"b": 1, "a": 2}}) == (b'{"b":1,"a":2}',)
    assert decoded({"events": [{"data": 1}, {"before": "data: ", "data": 2, "after": "\n\n"}]}) == (
        b"1",
        b"data: 2\n\n",
    )


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ((), {}),
        ((("Accept", "a"), ("Mcp-Name", "n")), {"Accept": "a", "Mcp-Name": "n"}),
        ((("A", "1"), ("A", "2"), ("A", "3")), {"A": ["1", "2", "3"]}),
        ((("A", "1"), ("a", "2")), {"A": "1", "a": "2"}),
    ],
)
def test_headers_come_back(headers: Headers, shown: dict[str, Any]) -> None:
    """A header that came once is a string, one that came more often a list."""
    assert header_map(headers) == shown
    assert headers_of(header_map(headers)) == headers
