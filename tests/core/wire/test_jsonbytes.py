from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.wire.jsonbytes import (
    DEEPEST_NESTING,
    MemberPath,
    Number,
    Span,
    canonical,
    find_spans,
    item_spans,
    parse,
    replace_members,
)
from mrtr_cassette.core.wire.pointers import (
    Difference,
    differences,
    escape_pointer,
    pointer_path,
    value_at,
    without_null_members,
    without_paths,
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
    assert canonical(without_null_members(parse(raw))) == text


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
        ('{"é":{"id":0}}'.encode(), ("é", "id"), [b"0"]),
        (b'{"params":{"id":1}}', ID, []),
        (b'{"params":[{"_meta":{}}]}', TOKEN, []),
        (
            b'{"params":{"_meta":"x"},"params":{"_meta":{"progressToken":0}}}',
            TOKEN,
            [b"0"],
        ),
        (b"[1]", ID, []),
        (b"{ }", ID, []),
    ],
)
def test_spans_are_those_of_the_values(
    raw: bytes, path: MemberPath, found: list[bytes]
) -> None:
    """Every value at a path is found, duplicates too, and arrays are not entered."""
    spans = [span for _, span in find_spans(raw, [path])]

    assert [span.slice_of(raw) for span in spans] == found


@pytest.mark.parametrize(
    "raw", [b"", b"{", b'{"id"', b'{"id":', b'{"id":1', b'{"id":{]', b"["]
)
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
        (
            b'{"p":{ "a" : 1E2 , "b":2 } }',
            {"c": b"3"},
            b'{"p":{ "a" : 1E2 , "b":2,"c":3 } }',
        ),
        (
            b'{"p":{"a":1,"b": 2,"c":3}}',
            {"b": b"[]", "c": None},
            b'{"p":{"a":1,"b": []}}',
        ),
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


# Places in values


@pytest.mark.parametrize(
    ("recorded", "received", "found"),
    [
        (b"1", b"1.0", []),
        (b"1", b"2", [("", "1", "2")]),
        (b'{"a":1}', b'{"a":2}', [("/a", "1", "2")]),
        (b'{"a":1}', b"{}", [("/a", "1", None)]),
        (b"{}", b'{"a":null}', [("/a", None, "null")]),
        (b'{"a":{"b":[1,2]}}', b'{"a":{"b":[1,3]}}', [("/a/b/1", "2", "3")]),
        (b'{"a":[1]}', b'{"a":[1,2]}', [("/a", "[1]", "[1,2]")]),
        (b'{"a":{}}', b'{"a":[]}', [("/a", "{}", "[]")]),
        (b'{"a/b":1,"c~d":1}', b"{}", [("/a~1b", "1", None), ("/c~0d", "1", None)]),
        (
            b'{"x":1,"y":1}',
            b'{"y":2,"z":3}',
            [("/x", "1", None), ("/y", "1", "2"), ("/z", None, "3")],
        ),
    ],
)
def test_differences_are_the_innermost(
    recorded: bytes, received: bytes, found: list[Difference]
) -> None:
    """Each place where two values differ is named by the longest pointer."""
    assert differences(parse(recorded), parse(received)) == found


@pytest.mark.parametrize(
    ("recorded", "received"),
    [
        (b'{"a":null}', b"{}"),
        (b"{}", b'{"a":null}'),
        (b'[{"a":null}]', b"[{}]"),
        (b'{"a":{"b":null,"c":1}}', b'{"a":{"c":1}}'),
    ],
)
def test_null_can_equal_absent(recorded: bytes, received: bytes) -> None:
    """A null member is no difference from an absent one, where that is asked for."""
    assert without_null_members(parse(recorded)) == without_null_members(
        parse(received)
    )
    assert differences(parse(recorded), parse(received)) != []


@pytest.mark.parametrize(
    "nest", [(b"[", b"]"), (b'{"a":', b"}")], ids=["array", "object"]
)
def test_depth_that_is_read_is_compared_too(nest: tuple[bytes, bytes]) -> None:
    """The deepest value that is read has a canonical text, spans and differences."""
    begin, end = nest
    raw = begin * DEEPEST_NESTING + b"1" + end * DEEPEST_NESTING
    changed_raw = begin * DEEPEST_NESTING + b"2" + end * DEEPEST_NESTING
    value = parse(raw)

    assert canonical(value) == raw.decode()
    assert len(differences(value, parse(changed_raw))) == 1
    assert {path for path, _ in find_spans(raw, [("a", "a")])} <= {("a", "a")}


@given(
    st.integers(DEEPEST_NESTING - 3, DEEPEST_NESTING + 3),
    st.lists(
        st.tuples(st.booleans(), st.text('[]{}"\\a', max_size=4)),
        min_size=1,
        max_size=6,
    ),
)
def test_depth_is_that_of_the_structure_alone(
    depth: int, layers: list[tuple[bool, str]]
) -> None:
    """What is nested too deeply is refused, whatever brackets are in strings beside it."""
    value: Any = 1
    for level in range(depth):
        is_object, text = layers[level % len(layers)]
        value = {text: text, "inner": value} if is_object else [text, value, text]

    raw = json.dumps(value).encode()
    if depth > DEEPEST_NESTING:
        with pytest.raises(NotJsonError, match="nested deeper"):
            parse(raw)
    else:
        assert parse(raw) == value


@pytest.mark.parametrize(
    ("pointer", "path"),
    [
        ("/a", ("a",)),
        ("/a/0/b", ("a", "0", "b")),
        ("/a~1b/c~0d/~01", ("a/b", "c~d", "~1")),
        ("/", ("",)),
        ("//a", ("", "a")),
    ],
)
def test_pointer_is_read_as_keys(pointer: str, path: MemberPath) -> None:
    """A JSON Pointer names keys from the outermost inwards, and is spelled by them again."""
    assert pointer_path(pointer) == path
    assert "".join(f"/{escape_pointer(key)}" for key in path) == pointer


@pytest.mark.parametrize("pointer", ["", "a", "a/b", "#/a"])
def test_pointer_without_slash_is_refused(pointer: str) -> None:
    """A text that doesn't begin with a slash is no pointer to a member."""
    with pytest.raises(ValueError, match=f"^{re.escape(pointer)}$"):
        pointer_path(pointer)


@pytest.mark.parametrize(
    ("paths", "left"),
    [
        ([], {"a": {"b": 1, "c": [1, {"d": 2, "e": 3}]}, "f": 4}),
        ([("f",)], {"a": {"b": 1, "c": [1, {"d": 2, "e": 3}]}}),
        ([("a", "b"), ("a", "c", "1", "d")], {"a": {"c": [1, {"e": 3}]}, "f": 4}),
        ([("a", "c", "0")], {"a": {"b": 1, "c": [{"d": 2, "e": 3}]}, "f": 4}),
        ([("a",), ("a", "b")], {"f": 4}),
        (
            [("x",), ("f", "x"), ("a", "c", "9")],
            {"a": {"b": 1, "c": [1, {"d": 2, "e": 3}]}, "f": 4},
        ),
    ],
)
def test_members_can_be_left_out(paths: list[MemberPath], left: Any) -> None:
    """What the paths name is left out, and everything else stays."""
    value = {"a": {"b": 1, "c": [1, {"d": 2, "e": 3}]}, "f": 4}

    assert without_paths(value, paths) == left
    assert value["f"] == 4


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ((), ["a", {"²": 5}]),
        (("0",), "a"),
        (("1", "²"), 5),
        (("²",), None),
        (("9",), None),
    ],
)
def test_value_stands_at_a_path(path: MemberPath, found: Any) -> None:
    """A step that is no index leads to no item of an array."""
    assert value_at(["a", {"²": 5}], path) == found
