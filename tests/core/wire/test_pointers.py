from __future__ import annotations

import re
from typing import Any

import pytest

from mrtr_cassette.core.wire.jsonbytes import DEEPEST, MemberPath, canonical, find_spans, parse
from mrtr_cassette.core.wire.pointers import (
    Difference,
    differences,
    escape_pointer,
    pointer_path,
    without_paths,
)


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
    assert differences(parse(recorded), parse(received), without_null=True) == []
    assert differences(parse(recorded), parse(received)) != []


@pytest.mark.parametrize("nest", [(b"[", b"]"), (b'{"a":', b"}")], ids=["array", "object"])
def test_depth_that_is_read_is_compared_too(nest: tuple[bytes, bytes]) -> None:
    """The deepest value that is read has a canonical text, spans and differences."""
    begin, end = nest
    raws = [begin * DEEPEST + leaf + end * DEEPEST for leaf in (b"1", b"2")]
    one, other = (parse(raw) for raw in raws)

    assert canonical(one) == raws[0].decode()
    assert len(differences(one, other)) == 1
    assert find_spans(raws[0], [("a", "a")]).keys() <= {("a", "a")}


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
