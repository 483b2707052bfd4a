from __future__ import annotations

from typing import Any

import pytest

from mrtr_cassette.core.wire.jsonbytes import (
    MemberPath,
    Number,
    Span,
    canonical,
    find_spans,
    item_spans,
    parse,
    replace_members,
)
from mrtr_cassette.errors import NotJsonError

HUGE_EXPONENT = b"1e" + b"9" * 5_000


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"null", None),
        (b" true\n", True),
        (b'"\\u00e9\\ud800"', "é\ud800"),
        (b"[1, 1.0, -0e5, 7]", [1, Number("1.0"), Number("-0e5"), 7]),
        (b'{"a":1,"a":2}', {"a": 2}),
        (b"-" + b"9" * 18, int("-" + "9" * 18)),
        (b"1" + b"0" * 18, Number("1" + "0" * 18)),
        (b'"' + b"[" * 500 + b'"', "[" * 500),
        (b"[" + b"[]," * 500 + b"1]", [[]] * 500 + [1]),
        (b"9" * 5_000, Number("9" * 5_000)),
    ],
)
def test_parse_keeps_numbers_as_spelled(raw: bytes, value: Any) -> None:
    """A JSON text is read exactly; of duplicate keys the last counts."""
    assert parse(raw) == value


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[1,]",
        b"NaN",
        b"-Infinity",
        b"01",
        b"{} {}",
        b'"\xff"',
        b'"\n"',
        b"\xef\xbb\xbf{}",
        b"\xed\xa0\x80",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[" * 201 + b"]" * 201,
        b'{"a":[' * 101 + b"]}" * 101,
    ],
)
def test_parse_refuses_what_is_no_json(raw: bytes) -> None:
    """What is no JSON text, or too deep to read, is refused with one kind of error."""
    with pytest.raises(NotJsonError):
        parse(raw)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b'{"a":null,"b":{"c":null}}', '{"b":{}}'),
        (b'{"a":null}', "{}"),
        (b'[null,{"a":null}]', "[null,{}]"),
        (b'{"b":1,"a":[]}', '{"a":[],"b":1}'),
    ],
)
def test_canonical_text_can_leave_out_null_members(raw: bytes, text: str) -> None:
    """Members that are null are left out at any depth; items that are null stay."""
    assert canonical(parse(raw), without_null=True) == text


@pytest.mark.parametrize("raw", [HUGE_EXPONENT, b"[" + HUGE_EXPONENT + b"]"])
def test_canonical_text_of_an_enormous_exponent_is_refused(raw: bytes) -> None:
    """A number whose exponent has thousands of digits has no canonical text."""
    with pytest.raises(NotJsonError):
        canonical(parse(raw))


ID: MemberPath = ("id",)
TOKEN: MemberPath = ("params", "_meta", "progressToken")


@pytest.mark.parametrize(
    ("raw", "path", "found"),
    [
        (b'{"id":1}', ID, [b"1"]),
        (b'{"x":[{"id":2}],"id" : "a" }', ID, [b'"a"']),
        (b'{"id":1,"id":[2]}', ID, [b"1", b"[2]"]),
        (b'{"\\u0069d":1}', ID, [b"1"]),
        (b' { "params" : { "_meta" : { "progressToken" : 7 } } } ', TOKEN, [b"7"]),
        ('{"é":{"id":0},"id":1}'.encode(), ID, [b"1"]),
        (b'{"params":{"id":1}}', ID, []),
        (b'{"params":[{"_meta":{}}]}', TOKEN, []),
        (b'{"params":{"_meta":"x"},"params":{"_meta":{"progressToken":0}}}', TOKEN, [b"0"]),
        (b"[1]", ID, []),
        (b"{ }", ID, []),
    ],
)
def test_spans_are_those_of_the_values(raw: bytes, path: MemberPath, found: list[bytes]) -> None:
    """Every value at a path is found, duplicates too, and arrays are not entered."""
    spans = find_spans(raw, [path]).get(path, [])

    assert [raw[span.start : span.end] for span in spans] == found


@pytest.mark.parametrize("raw", [b"", b"{", b'{"id"', b'{"id":', b'{"id":1', b'{"id":{]', b"["])
def test_spans_in_what_is_no_json_are_refused(raw: bytes) -> None:
    """Bytes that are no JSON have no spans."""
    with pytest.raises(NotJsonError):
        find_spans(raw, [ID, TOKEN])


@pytest.mark.parametrize(
    ("raw", "members", "expected"),
    [
        (b'{"p":{"a":1,"b":2,"c":3}}', {"b": None}, b'{"p":{"a":1,"c":3}}'),
        (b'{"p":{"b":2 , "a":1, "b":3}}', {"b": None}, b'{"p":{"a":1}}'),
        (b'{"p":{ "a" : 1E2 , "b":2 } }', {"b": None}, b'{"p":{ "a" : 1E2 } }'),
        (b'{"p":{ "a" : 1E2 , "b":2 } }', {"c": b"3"}, b'{"p":{ "a" : 1E2 , "b":2,"c":3 } }'),
        (b'{"p":{"a":1,"b": 2,"c":3}}', {"b": b"[]", "c": None}, b'{"p":{"a":1,"b": []}}'),
        (b'{"p":{"b":1,"b":2}}', {"b": None}, b'{"p":{}}'),
        (b'{"p":{ "b":1, "b":2 }}', {"b": None, "c": b"3"}, b'{"p":{ "c":3 }}'),
        (b'{"p":{"b":1,"b":2}}', {"b": b"3"}, b'{"p":{"b":3,"b":3}}'),
        (b'{"p":{}}', {"b": b"[1]", "c": b"{}"}, b'{"p":{"b":[1],"c":{}}}'),
        (b'{"p":{"\\u0062":1,"x":"\xc3\xa9"}}', {"b": None}, b'{"p":{"x":"\xc3\xa9"}}'),
        (b'{"p":{"a":{"b":1}}}', {"b": None}, b'{"p":{"a":{"b":1}}}'),
        (b'{"q":{"b":1}}', {"b": None}, b'{"q":{"b":1}}'),
        (b'{"p":{"b":1},"p":{"b":2}}', {"b": None}, b'{"p":{},"p":{}}'),
    ],
)
def test_members_are_replaced_removed_and_added(
    raw: bytes, members: dict[str, bytes | None], expected: bytes
) -> None:
    """Each other member stays as it is spelled, whatever the object's escapes and duplicates."""
    assert replace_members(raw, ("p",), members) == expected


def test_members_of_what_is_no_object_are_refused() -> None:
    """There is nothing to take out of an array."""
    with pytest.raises(NotJsonError):
        replace_members(b'{"p":[1]}', ("p",), {"b": None})


@pytest.mark.parametrize(
    ("raw", "items"),
    [
        (b"[]", []),
        (b"[ ]", []),
        (b'[1, "a,]" ,{"b":[2]}]', [b"1", b'"a,]"', b'{"b":[2]}']),
        (b"[\n  [],\n  null\n]", [b"[]", b"null"]),
    ],
)
def test_the_items_of_an_array_are_found(raw, items):
    """Each item has its span, whatever stands in it."""
    spans = item_spans(raw, Span(0, len(raw)))
    assert [raw[span.start : span.end] for span in spans] == items


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("-7", "-7"),
        ("-0", "0"),
        ("0.0e99", "0"),
        ("-1.50", "-1.5"),
        ("1e19", "1" + "0" * 19),
        ("1e20", "1e20"),
        ("123456789012345678901", "123456789012345678901e0"),
        ("1e-400", "1e-400"),
        ("1E-3", "0.001"),
        ("1e-20", "0." + "0" * 19 + "1"),
        ("1e-21", "1e-21"),
        ("0.123456789012345678901", "123456789012345678901e-21"),
        ("[1234567890123456789]", "[1234567890123456789]"),
        ('["é",7]', '["\\u00e9",7]'),
    ],
)
def test_canonical_numbers_are_exact(text: str, spelled: str) -> None:
    """A number is written by its exact decimal value, whatever its size."""
    assert canonical(parse(text.encode())) == spelled
