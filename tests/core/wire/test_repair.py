"""What tolerant clients read as JSON is read with the same values at the same places."""

from __future__ import annotations

import json
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.protocol.jsonrpc import server_messages
from mrtr_cassette.core.wire.jsonbytes import (
    DEEPEST_NESTING,
    Number,
    find_spans,
    parse,
    parse_tolerantly,
    repaired_json,
)
from mrtr_cassette.errors import NotJsonError


class Word(NamedTuple):
    """Something that is no JSON, and what it is read as."""

    spelled: bytes
    read: Any


WORDS = (
    *(
        Word(word.encode(), word[1:-1])
        for word in ("NaN", "-Infinity", "01", "+1", "0x1F", ".5")
    ),
    Word(b"x", 0),
    Word(b'"a\nb\0x"', "a b x"),
    Word(b'"\xe9"', "\ufffd"),
)
texts = st.one_of(
    st.text(max_size=6), st.sampled_from(['"id":1', "\\", '"', "//", "/*", "[", "é"])
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(-1e9, 1e9),
    texts,
    st.sampled_from(WORDS),
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4)
    ),
    max_leaves=12,
)
names = st.text(st.characters(codec="ascii"), max_size=6)
objects = st.dictionaries(names, values, max_size=5)
seeds = st.integers(0, 2**32).map(Random)
GAPS = (b"", b"", b" ", b"\0", b"\x0c", b"//]\n", b'/* "*/')


def write(value: Any, chance: Random, gaps: tuple[bytes, ...]) -> bytes:
    """Spell a value with chance between its tokens; with more than spaces it is no JSON."""

    def gap() -> bytes:
        return chance.choice(gaps)

    def text(words: Any) -> bytes:
        return json.dumps(words, ensure_ascii=chance.random() < 0.5).encode()

    def last() -> bytes:
        is_valid = all(not space.strip() for space in gaps)
        return b"" if is_valid else chance.choice([b"", b","])

    if isinstance(value, Word):
        return value.spelled

    if isinstance(value, dict):
        members = [
            gap()
            + text(key)
            + gap()
            + b":"
            + gap()
            + write(inner, chance, gaps)
            + gap()
            for key, inner in value.items()
        ]
        return b"{" + b",".join(members) + (last() if members else b"") + gap() + b"}"

    if isinstance(value, list):
        items = [gap() + write(inner, chance, gaps) + gap() for inner in value]
        return b"[" + b",".join(items) + (last() if items else b"") + gap() + b"]"

    return text(value)


def meaning(value: Any) -> Any:
    """Return a value as it is read."""
    if isinstance(value, Word):
        return value.read
    if isinstance(value, Number):
        return json.loads(value.text)
    if isinstance(value, dict):
        return {key: meaning(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [meaning(inner) for inner in value]

    return value


@given(values, seeds)
def test_valid_json_is_as_it_was(value: Any, chance: Random) -> None:
    """A text that a strict parser reads is not changed in any byte."""
    raw = write(value, chance, (b"", b" ", b"\r\n\t"))
    try:
        parse(raw)
    except NotJsonError:
        return

    assert repaired_json(raw) == raw


@given(objects, seeds)
def test_values_and_their_places_are_those_of_the_client(
    value: Any, chance: Random
) -> None:
    """Whatever no JSON may have around the values, they are read, and each where it stands."""
    before = chance.choice([b"", b"\xef\xbb\xbf", b"\0 "])
    after = chance.choice([b"", b"\0", b"}x"])

    raw = before + write(value, chance, GAPS) + after

    assert meaning(parse_tolerantly(raw)) == meaning(value)

    spans = find_spans(raw, [(key,) for key in value])
    found = {path[0]: span.slice_of(raw) for path, span in spans}

    assert {
        key: meaning(parse_tolerantly(text)) for key, text in found.items()
    } == meaning(value)


@given(
    st.binary(max_size=60),
    st.lists(st.sampled_from([*b'{}[],:"\\/*\n\0 1aN\xef\xbb\xbf'])),
)
def test_any_bytes_are_taken(raw: bytes, chosen: list[int]) -> None:
    """Nothing but the one error is raised, and no byte moves."""
    for tried in (
        raw,
        bytes(chosen),
        b'{"jsonrpc":"2.0","id":1,"result":' + bytes(chosen) + b"}",
    ):
        server_messages(tried)
        with suppress(NotJsonError):
            assert len(repaired_json(tried)) == len(tried)


MANY = 300_000


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * MANY,
        b'{"a":' * MANY,
        b"[" * MANY + b"]" * MANY,
        b'["' + b'\\"' * MANY,
        b'["' + b"\\" * MANY,
        b'"' * MANY,
        b"/*" * MANY,
        b"/*" + b"*" * MANY,
        b"//" * MANY,
        b"\xef\xbb" * MANY,
        b"-" * MANY + b"x",
        b"[" + b"1," * MANY + b"]",
        b"[" + b"," * MANY,
    ],
    ids=range(13),
)
def test_hostile_text_takes_no_longer_than_its_length(raw: bytes) -> None:
    """No text of this kind ends the run by its time or by the depth of the stack."""
    with_key = b'{"jsonrpc":"2.0","id":1,"result":' + raw + b"}"

    for tried in (raw, with_key):
        with suppress(NotJsonError):
            assert len(repaired_json(tried)) == len(tried)

        assert len(server_messages(tried)) <= 1


def test_too_deep_a_value_becomes_a_text() -> None:
    """What is nested more deeply than is read stays apart from its like, in the same bytes."""
    deep = (
        b'{"id":1,"result":'
        + b"[" * DEEPEST_NESTING
        + b'"a\\n",{"id":2}'
        + b"]" * DEEPEST_NESTING
        + b"}"
    )

    valid = repaired_json(deep)

    assert valid.count(b"[") == DEEPEST_NESTING - 1
    assert b"\"'a'n',{'id':2}\"" in valid
    assert find_spans(deep, [("id",)]) == find_spans(b'{"id":1}', [("id",)])


@pytest.mark.parametrize(
    "raw", [b"{'id':1}", b"{id:1}", b'{"id":1', b'{"id"', b'"a', b'{"a" "b"}']
)
def test_what_no_repair_makes_json_is_not_read(raw: bytes) -> None:
    """Names without quotes, and what is cut short or lacks a mark, are left unread."""
    with pytest.raises(NotJsonError):
        parse_tolerantly(raw)


def test_members_are_found_beside_a_name_that_is_no_utf_8() -> None:
    """The name is read as clients read it, and the members behind it are in their places."""
    raw = b'{"\xffname":0,"id":7}'
    ((_, span),) = find_spans(raw, [("id",)])

    assert raw[span.start : span.end] == b"7"
    assert parse_tolerantly(raw) == {"\ufffdname": 0, "id": 7}
