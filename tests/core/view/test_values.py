"""Facts about recorded values on a page."""

from __future__ import annotations

from typing import Any

import pytest
from pages import parsed

from mrtr_cassette.core.view.values import (
    LONGEST_TEXT,
    content_blocks,
    difference_table,
    json_block,
    members,
    message_bubble,
    text_block,
)
from mrtr_cassette.core.wire.pointers import Difference


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        ({"type": "text", "text": "done"}, "done"),
        ("done", "done"),
        (5, "5"),
        ({"type": "image", "mimeType": "image/png", "data": "A" * 8}, "image/png, about 6 bytes"),
        ({"uri": "file:///x", "blob": "AAAA"}, "data, about 3 bytes"),
        ({"type": "resource", "resource": {"uri": "a:b", "text": "inner"}}, "inner"),
        ({"type": "resource_link", "uri": "file:///x"}, "file:///x"),
        ({"type": "odd", "x": 1}, '{ "type": "odd", "x": 1 }'),
    ],
)
def test_each_kind_of_content_is_shown(block: Any, shown: str) -> None:
    """Text stands as text, bytes as their size, links as their URI, and anything else as JSON."""
    assert parsed(content_blocks([block])).text == shown
    assert parsed(content_blocks(block)).text == shown


def test_long_values_are_cut() -> None:
    """A page stays quick: a very long value says how much of it is missing."""
    shown = parsed(text_block("x" * (LONGEST_TEXT + 5))).text

    assert shown.endswith("… (5 more characters)")
    assert parsed(json_block({"a": "x" * LONGEST_TEXT})).text.endswith("more characters)")


def test_plain_members_are_a_list() -> None:
    """An object of scalars is names and values; any other value is JSON."""
    listed = parsed(members({"env": "prod", "count": 2}))

    assert [node.text for node in listed.every("dt", "dd")] == ["env", "prod", "count", "2"]
    assert parsed(members({"a": {"b": 1}})).one("pre").text == '{ "a": { "b": 1 } }'
    assert parsed(members({"a": "two\nlines"})).one("pre")
    assert parsed(members([1])).one("pre").text == "[ 1 ]"


def test_message_of_a_model_tells_who_says_it() -> None:
    """Role, notes and content are shown."""
    bubble = parsed(message_bubble("assistant", {"type": "text", "text": "hi"}, "model: m"))

    assert bubble.text == "assistantmodel: mhi"
    assert bubble.one(class_="bubble").attributes["class"] == "bubble assistant"
    assert list(parsed(message_bubble("user", "x")).every(class_="user"))


def test_differences_stand_side_by_side() -> None:
    """A table has the place, the recorded and the received value; an absent one reads as nothing."""
    table = parsed(
        difference_table(
            "What", [Difference("/a", "1", None), Difference("", None, "2")], "received"
        )
    )

    assert table.one("caption").text == "What"
    assert [node.text for node in table.every("th", "td")] == [
        "where", "recorded", "received", "/a", "1", "nothing", "/", "nothing", "2",
    ]  # fmt: skip
