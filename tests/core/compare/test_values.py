from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.compare.values import (
    Change,
    heaviest_verdict,
    is_below,
    masks_as_places,
    paired_indices,
    unused_masks,
    value_changes,
    without_ignored_changes,
    without_repeated_values,
)
from mrtr_cassette.core.wire.jsonbytes import parse

Json = Any


def read(tree: Json) -> Json:
    """Return a value as it is read from JSON."""
    return parse(json.dumps(tree).encode())


def shown(
    recorded: Json, received: Json
) -> list[tuple[str, str, str | None, str | None]]:
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
        ([1, 2, 3], [1, 3], [("shape-changed", "/1", "2", None)]),
        ([1, 3], [1, 2, 3], [("shape-changed", "/1", None, "2")]),
        (
            [[1, 2], [3]],
            [[3], [1, 2]],
            [("text-changed", "#order", "[[1,2],[3]]", "[[3],[1,2]]")],
        ),
        (
            {"a": [1, 2]},
            {"a": [2, 1]},
            [("text-changed", "/a#order", "[1,2]", "[2,1]")],
        ),
        (
            {"a": [1, 2]},
            {"a": [2, 3]},
            [("text-changed", "/a/0", "1", "2"), ("text-changed", "/a/1", "2", "3")],
        ),
        (
            [{"n": 1}, {"n": 2}],
            [{"n": 3}],
            [
                ("text-changed", "/0/n", "1", "3"),
                ("shape-changed", "/1", '{"n":2}', None),
            ],
        ),
        ('{"a": 1}', '{ "a":1.0 }', []),
        ('{"a": 1}', '{"a": 2}', [("text-changed", "#json/a", "1", "2")]),
        ("[1]", "[]", [("shape-changed", "#json/0", "1", None)]),
        ('{"a": 1}', "none", [("text-changed", "", '"{\\"a\\": 1}"', '"none"')]),
        ("{a", "{b", [("text-changed", "", '"{a"', '"{b"')]),
        (
            json.dumps({"inner": json.dumps({"a": 1})}),
            json.dumps({"inner": json.dumps({"a": 2})}),
            [("text-changed", "#json/inner#json/a", "1", "2")],
        ),
    ],
)
def test_a_change_is_of_text_or_of_shape(
    recorded: Json, received: Json, changes: Json
) -> None:
    """Another value of the same type is text; another type, one more or one less is shape.

    JSON in both texts is compared as JSON.
    """
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
    assert value_changes(read(["\ud800["]), read(['["\ud800"]'])) != []


def test_the_heaviest_change_decides() -> None:
    """What is information doesn't count, and without changes all is the same."""
    text = Change("text-changed", "/a", "1", "2")
    shape = Change("shape-changed", "/a", "1", "2")
    added = Change("surface-changed", "/tools/1", None, "{}", is_information=True)

    assert heaviest_verdict([]) == heaviest_verdict([added]) == "same"
    assert heaviest_verdict([shape, text, added]) == "shape-changed"
    assert (
        heaviest_verdict([text, Change("question-changed", "", "1", "2"), shape])
        == "question-changed"
    )


@pytest.mark.parametrize(
    ("pointer", "outer", "is_hidden"),
    [
        ("/a", "/a", True),
        ("/a/b", "/a", True),
        ("/a/b", "", True),
        ("/ab", "/a", False),
        ("/a", "/a/b", False),
        ("/content/0/text#json/total", "/content/0/text", True),
        ("/content/0/text#json/total", "/content/0/text#json", True),
        ("/content/0/text#json/total", "/content/0/text#json/to", False),
        ("/content/0/text#jsonl", "/content/0/text", False),
        ("/#headers/vary", "/#headers", True),
        ("/a#order", "/a", True),
        ("/a#order", "/a#order", True),
        ("/a/0", "/a#order", False),
        ("/content/0/text#json#order", "/content/0/text", True),
    ],
)
def test_a_pointer_hides_what_is_below_it(
    pointer: str, outer: str, *, is_hidden: bool
) -> None:
    """A place is below another one if all of that one's steps lead to it."""
    assert is_below(pointer, outer) is is_hidden

    change = Change("text-changed", pointer, "1", "2")

    assert without_ignored_changes([change], ["/other", outer]) == (
        [] if is_hidden else [change]
    )


def test_long_sequences_with_something_new_after_each_item_are_paired_at_once() -> None:
    """Time grows with the length, and not with its square."""
    old = [*range(30_000)]
    new: list[Any] = []
    for item in old:
        new += [item, "new"]

    assert paired_indices(old, new)[2:5] == [(1, 2), (None, 3), (2, 4)]


PIECES = st.lists(
    st.sampled_from(["a", "7", "12", " ", "\u2028", "\ud800", '"']), max_size=6
)


@given(PIECES, PIECES)
def test_a_mask_hides_texts_that_are_equal_around_what_it_matches(
    old: list[str], new: list[str]
) -> None:
    """A change of a text counts exactly if the texts differ without what the mask matches."""
    texts = ["".join(old), "".join(new)]
    places = masks_as_places(["[0-9]+"])
    changes = value_changes({"at": texts[0]}, {"at": texts[1]})
    around = [re.sub("[0-9]+", "#", text) for text in texts]

    assert (without_ignored_changes(changes, places) == []) is (around[0] == around[1])

    if changes:
        assert (unused_masks(["[0-9]+"], changes) == []) is any(map(has_digit, texts))


def has_digit(text: str) -> bool:
    """Tell whether the mask of the law matches something."""
    return re.search("[0-9]", text) is not None


@pytest.mark.parametrize(
    ("recorded", "received", "counts"),
    [
        ("job old-1", "job new-22", False),
        ("old-1 at 3", "new-22 at 14", False),
        (3, 14, False),
        ("job old-1", "job new-2", True),
        ("job old-1", "work new-22", True),
        ("old-1", "xnew-22", True),
    ],
)
def test_a_value_that_repeats_the_request_does_not_count(
    recorded: Any, received: Any, *, counts: bool
) -> None:
    """The other request's values stand where the recorded ones were, as whole words."""
    changes = value_changes(recorded, received)
    values = [("old-1", "new-22"), ("old-12", "new-2"), (3, 14)]

    assert without_repeated_values(changes, []) == changes
    assert bool(without_repeated_values(changes, values)) is counts
