"""Facts about the file that says what is left out of a comparison."""

from __future__ import annotations

import pytest
from builders import post, rpc, tool

from mrtr_cassette.core.drive.ignored import (
    IgnoredPlaces,
    call_name,
    ignored_in,
    read_ignored,
    write_ignored,
)
from mrtr_cassette.core.protocol.calls import read_call

CLOCK = read_call(post(tool("clock")))
LIST = read_call(post(rpc("tools/list")))


def test_places_are_written_and_read_again() -> None:
    """What stands in the file stays, comments too."""
    before = "# ours\n" + write_ignored("", "tools/list", ["/tools/0/title"])
    after = write_ignored(before, call_name(CLOCK), ["/content/0/text", '/a"b'])
    assert after.startswith(before)
    rules = read_ignored(after)
    assert rules == [
        IgnoredPlaces("tools/list", ("/tools/0/title",)),
        IgnoredPlaces("tools/call clock", ("/content/0/text", '/a"b')),
    ]
    assert ignored_in(rules, CLOCK) == ("/content/0/text", '/a"b')
    assert ignored_in(rules, LIST) == ("/tools/0/title",)
    assert write_ignored("x = 1", "a", ["/b"]).startswith("x = 1\n\n[[")


def test_call_is_a_pattern_of_method_name_or_both() -> None:
    """Without one, the places are those of every call."""
    for pattern in ("clock", "tools/call", "tools/* clock", "*"):
        assert IgnoredPlaces(pattern, ("/a",)).concerns(CLOCK)
    assert not IgnoredPlaces("clock", ("/a",)).concerns(LIST)
    assert read_ignored('[[ignore]]\npointers = ["/a"]')[0].concerns(LIST)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x", "Expected"),
        ("x = 1", "'x'"),
        ('[ignore]\npointers = ["/a"]', "one table"),
        ("ignore = [5]", r"\[\[ignore\]\] 1 has '\?'"),
        ('[[ignore]]\npointer = ["/a"]', "'pointer'"),
        ('[[ignore]]\ncall = 5\npointers = ["/a"]', "call is no text"),
        ("[[ignore]]", "no list"),
        ('[[ignore]]\npointers = ["a"]', "'a' is no JSON Pointer"),
    ],
)
def test_file_that_is_none_is_told_with_its_place(text: str, problem: str) -> None:
    """Nothing is ignored by mistake."""
    with pytest.raises(ValueError, match=problem):
        read_ignored(text)
