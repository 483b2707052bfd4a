from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.wire.jsonbytes import (
    parse_in_pieces,
)
from mrtr_cassette.core.wire.large_json import (
    LargeDict,
    LargeList,
    LargeReader,
    in_order,
    string_end,
)
from mrtr_cassette.core.wire.pieces import PIECE
from mrtr_cassette.errors import NotJsonError

PLAIN = st.text(st.characters(exclude_characters='"\\', min_codepoint=32, codec="utf-8"))
ESCAPES = st.sampled_from(
    [r"\n", r"\"", r"\\", r"\/", r"\u0041", r"\ud83d", r"\ude00", r"\ud83d\ude00", r"\\ud83d"]
)
PIECES = st.integers(2, 40)


@given(st.lists(PLAIN | ESCAPES, max_size=20).map("".join), st.sampled_from(['"', "", "\\"]))
def test_a_string_ends_at_its_quote(text: str, ending: str) -> None:
    """No escaped quote ends a string, and no piece does."""
    for piece in (2, 3, 7):
        assert string_end(text + ending, 0, piece) == len(text)
        raw = (text + ending).encode()
        assert string_end(raw, 0, piece) == len(text.encode())


def test_no_call_reads_more_than_a_piece() -> None:
    """What is read in one go is counted, for each kind of large text."""
    longest: list[int] = []

    def read(text: str) -> Any:
        longest.append(len(text))
        return json.loads(text)

    class Scanner(json.JSONDecoder):
        def __init__(self) -> None:
            super().__init__()
            scan = self.scan_once

            def counting(text: str, at: int) -> tuple[Any, int]:
                value, end = scan(text, at)
                longest.append(end - at)
                return value, end

            self.scan_once = counting

    words = "a" * PIECE * 5
    values: list[Any] = [
        [12345] * PIECE,
        ["token", {"a": [1, {"b": "c"}]}] * (PIECE // 4),
        {f"k{number}": {"a": number} for number in range(PIECE // 2)},
        [[[words], words], {words: [words, 1]}],
        [{}] * PIECE * 2,
        '"\\' * PIECE * 2,
        [[[1] * PIECE] * 3] * 2,
    ]
    for value in values:
        text = json.dumps(value)
        assert len(text) > 3 * PIECE
        longest.clear()
        assert LargeReader(Scanner(), read).decode(text) == value
        assert max(longest, default=0) <= PIECE + 2
        # Nor are there many more calls than pieces.
        assert sum(longest) < 4 * len(text)


def test_what_is_large_lets_go_in_pieces() -> None:
    """No array or object that is read holds more than a piece itself."""
    text = json.dumps({"a": [{"n": number} for number in range(PIECE)], "b": "c" * PIECE * 2})
    tree = parse_in_pieces(text.encode())
    assert isinstance(tree, LargeDict)
    assert isinstance(tree["a"], LargeList)
    assert max(len(json.dumps(batch)) for batch in tree["a"].batches()) <= 2 * PIECE
    assert [list(batch) for batch in tree.batches() if batch] == [["a"], ["b"]]
    assert tree.copy() == tree
    assert isinstance(tree.copy(), LargeDict)


@given(st.lists(st.text(max_size=3)))
def test_names_come_in_order(names: list[str]) -> None:
    """Few names and many come in the order of `sorted`."""
    assert list(in_order(names)) == sorted(names)
    many = [f"{name}{number}" for number in range(500) for name in names[:9]]
    assert list(in_order(many)) == sorted(many)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "[1",
            '{"a"',
            '{"a":1,}',
            "[1,]",
            "[,1]",
            "{,}",
            "[] []",
            "",
            "x",
            '{"a":[1 2]}',
            '{"a" 1}',
        ),
        '{"a":1,"b":{"c":[1,2,3,4,5]},"d":{"e":1,"f":{"g":1,"h":22222222}}}',
        '["wrong at \\u12 its end"]',
        *('{"a":1 "b":2}', '["long and wrong \\x"]', '["cut short', "{1:2}", '{"a":1;}', "[1;]"),
        *(
            " [ ] ",
            "{ }",
            ' { "a" : [ 1 , [ ] , { } ] , "b" : "long text" } ',
            '["\\ud83d\\ude00"]',
        ),
        *('{"long name":1,"b":[12345,678]}', "[[],[[[]]]]", "[123456789]", '{"a":{"b":1}}', "true"),
    ],
)
def test_pieces_are_what_json_is(text: str) -> None:
    """What Python reads is read alike, and what it refuses is refused."""
    for piece in range(2, 24):
        reader = LargeReader(json.JSONDecoder(), json.loads, piece=piece)
        ends = LargeReader(json.JSONDecoder(), json.loads, keeps=False, piece=piece)
        try:
            expected = json.loads(text)
        except ValueError:
            with pytest.raises(NotJsonError, match=re.compile(".")):
                reader.decode(text)
        else:
            assert reader.decode(text) == expected
            start = len(text) - len(text.lstrip())
            assert ends.scan(text, start)[1] == len(text.rstrip())
