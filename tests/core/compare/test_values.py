from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.compare.changes import is_below, without_ignored
from mrtr_cassette.core.compare.values import ABSENT, ANY, json_in, pinned, value_changes
from mrtr_cassette.core.wire.jsonbytes import parse

Json = Any
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(-2, 2), st.sampled_from("abc")
)
trees: st.SearchStrategy[Json] = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "b", "a/b", "~"]), inner, max_size=3),
        inner.map(json.dumps),
    ),
    max_leaves=8,
)


def read(tree: Json) -> Json:
    """Return a value as it is read from JSON."""
    return parse(json.dumps(tree).encode())


def shown(recorded: Json, received: Json) -> list[tuple[str, str, str | None, str | None]]:
    """Return the changes from one value to another, without what is said of all of them."""
    return [change[:4] for change in value_changes(read(recorded), read(received))]


@pytest.mark.parametrize(
    ("recorded", "received", "changes"),
    [
        ({"a": 1, "b": [1, 2]}, {"b": [1, 2.0], "a": 1.0}, []),
        ("x", "y", [("text-changed", "", '"x"', '"y"')]),
        ({"a": 1}, {"a": 2}, [("text-changed", "/a", "1", "2")]),
        ({"a": 1}, {"a": 1.5}, [("text-changed", "/a", "1", "1.5")]),
        ({"a": True}, {"a": False}, [("text-changed", "/a", "true", "false")]),
        ({"a": 1}, {"a": True}, [("shape-changed", "/a", "1", "true")]),
        ({"a": 1}, {"a": "1"}, [("shape-changed", "/a", "1", '"1"')]),
        ({"a": None}, {}, [("shape-changed", "/a", "null", None)]),
        ({}, {"a/b": []}, [("shape-changed", "/a~1b", None, "[]")]),
        ({"a": {}}, {"a": []}, [("shape-changed", "/a", "{}", "[]")]),
        ([1, 2, 3], [1, 3], [("shape-changed", "/1", "2", None)]),
        ([1, 3], [1, 2, 3], [("shape-changed", "/1", None, "2")]),
        (
            [{"n": 1}, {"n": 2}],
            [{"n": 3}],
            [("text-changed", "/0/n", "1", "3"), ("shape-changed", "/1", '{"n":2}', None)],
        ),
    ],
)
def test_a_change_is_of_text_or_of_shape(recorded: Json, received: Json, changes: Json) -> None:
    """Another value of the same type is text; another type, one more or one less is shape."""
    assert shown(recorded, received) == changes


@pytest.mark.parametrize(
    ("recorded", "received", "changes"),
    [
        ('{"a": 1}', '{ "a":1.0 }', []),
        ('{"a": 1}', '{"a": 2}', [("text-changed", "#json/a", "1", "2")]),
        ("[1]", "[]", [("shape-changed", "#json/0", "1", None)]),
        ('{"a": 1}', "none", [("text-changed", "", '"{\\"a\\": 1}"', '"none"')]),
        ("1", "1.0", [("text-changed", "", '"1"', '"1.0"')]),
        ("{a", "{b", [("text-changed", "", '"{a"', '"{b"')]),
        (
            json.dumps({"inner": json.dumps({"a": 1})}),
            json.dumps({"inner": json.dumps({"a": 2})}),
            [("text-changed", "#json/inner#json/a", "1", "2")],
        ),
    ],
)
def test_json_in_a_text_is_compared_as_json(recorded: str, received: str, changes: Json) -> None:
    """Where both texts are an object or an array, their spelling doesn't count."""
    assert shown(recorded, received) == changes


def test_deep_json_within_json_is_compared() -> None:
    """Text within text within text may be as deep as JSON may be."""

    def nested(leaf: Json) -> Json:
        for _ in range(4):
            for _ in range(150):
                leaf = [leaf]
            leaf = json.dumps(leaf)
        return leaf

    (change,) = value_changes(nested(1), nested(2))
    assert change.pointer.endswith("/0/0")
    assert json_in("\ud800[") is json_in('["\ud800"]') is None


@given(trees, trees)
def test_changes_are_there_from_both_sides(one: Json, other: Json) -> None:
    """Where one value differs from another, that one differs from it in as many places."""
    there, back = (
        sorted((change.verdict, change.recorded or "", change.received or "") for change in changes)
        for changes in (
            value_changes(read(one), read(other)),
            [
                c._replace(recorded=c.received, received=c.recorded)
                for c in value_changes(read(other), read(one))
            ],
        )
    )
    assert bool(there) == bool(back)
    if not any("[" in text for text in (json.dumps(one), json.dumps(other))):
        assert there == back


@given(trees, st.sampled_from([None, 1, 3]))
def test_a_value_is_the_same_as_itself_in_any_spelling(tree: Json, indent: int | None) -> None:
    """Neither spaces nor the order of members is a change."""
    spelled = json.dumps(tree, indent=indent, sort_keys=True)
    assert value_changes(read(tree), parse(spelled.encode())) == []


@given(trees, trees)
def test_ignoring_a_pointer_hides_just_what_is_below_it(one: Json, other: Json) -> None:
    """All other changes stay, and what differs is hidden by its own pointer."""
    changes = value_changes(read(one), read(other))
    for change in changes:
        kept = without_ignored(changes, [change.pointer])
        hidden = [each for each in changes if each not in kept]
        assert change in hidden
        assert all(is_below(each.pointer, change.pointer) for each in hidden)


def test_absent_values_are_a_change_of_shape() -> None:
    """A value that only one side has is new or missing."""
    assert value_changes(ABSENT, ABSENT) == []
    assert value_changes(ABSENT, 1) == [("shape-changed", "", None, "1", False)]
    assert value_changes([], ABSENT) == [("shape-changed", "", "[]", None, False)]


def test_a_pinned_value_is_the_same_wherever_it_is() -> None:
    """What stands at a pinned place is the same, and still there; nothing else changes."""
    places = {("at",), ("items", ANY, "at"), ("one", "0")}
    one = {"at": 1, "items": [{"at": 1, "b": 1}, 5], "one": ["x", "y"], "b": {"at": 1}}
    other = {"at": [], "items": [{"at": 2, "b": 1}, 5], "one": ["z", "y"], "b": {"at": 2}}

    (change,) = value_changes(pinned(one, places), pinned(other, places))
    assert change.pointer == "/b/at"
    (change,) = value_changes(pinned(one, places), pinned({**one, "items": [{"b": 1}, 5]}, places))
    assert change[:2] == ("shape-changed", "/items/0/at")
