from __future__ import annotations

import pytest
from builders import converse, post, refusal, rpc, tool
from messages import Json, asks, text

from mrtr_cassette.core.cassette.recorded import Cassette, RecordedInteraction
from mrtr_cassette.core.drive.verification import (
    IgnoredPlaces,
    LivePair,
    VerifiedInteraction,
    call_name,
    ignored_in,
    learned,
    planned,
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
        assert ignored_in([IgnoredPlaces(pattern, ("/a",))], CLOCK) == ("/a",)
    assert ignored_in([IgnoredPlaces("clock", ("/a",))], LIST) == ()
    assert ignored_in(read_ignored('[[ignore]]\npointers = ["/a"]'), LIST) == ("/a",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x", "Expected"),
        ("x = 1", "may have tables"),
        ('[ignore]\npointers = ["/a"]', "may have tables"),
        ("ignore = [5]", r"\[\[ignore\]\] 1 has"),
        ('[[ignore]]\npointer = ["/a"]', "nothing else"),
        ('[[ignore]]\ncall = 5\npointers = ["/a"]', "`call`, a text"),
        ('[[ignore]]\npointers = ["a"]', "begin with a slash"),
    ],
)
def test_file_that_is_none_is_told_with_its_place(text: str, problem: str) -> None:
    """Nothing is ignored by mistake."""
    with pytest.raises(ValueError, match=problem):
        read_ignored(text)


# What is learned

CALL = tool("clock")


def run(*results: Json) -> VerifiedInteraction:
    """Return what came of a conversation in which the server gave these results."""
    exchanges = tuple(converse(*((CALL, result) for result in results)))
    interaction = RecordedInteraction(1, exchanges, None, False)
    cassette = Cassette(
        "c.json", "http://h/mcp", "sealed", None, False, "now", "tool", (interaction,)
    )
    return VerifiedInteraction(
        planned(cassette)[0], "same", pairs=tuple(LivePair(each, each) for each in exchanges)
    )


@pytest.mark.parametrize(
    ("first", "second", "pointer", "reason"),
    [
        ({"at": "2026-08-01T10:00:00Z"}, {"at": "2026-08-01T10:00:01Z"}, "/at", None),
        ({"count": 1, "a": "b"}, {"count": 2, "a": "b"}, "/count", None),
        ({"items": [1, {"a": [3]}]}, {"items": [{"a": [3]}, 1]}, "/items#order", None),
        (text('{"n":1,"m":2}'), text('{"n":5,"m":2}'), "/content/0/text#json/n", None),
        ({"a": "3 of 7 done"}, {"a": "4 of 7 done"}, "/a", "the words 'of 7 done'"),
        ({"a": 1}, {"a": "1"}, "/a", "not only its value"),
        ({"a": [1]}, {"a": [1, 2]}, "/a/1", "it is there in one"),
        (asks("a"), asks("b"), "/inputRequests/a", "never answered"),
        (asks("a"), text("done"), "/inputRequests", "never answered"),
        (text("done"), refusal(CALL), "/#error", "it is there in one"),
    ],
)
def test_exact_places_are_learned_and_what_would_hide_more_is_refused(
    first: Json, second: Json, pointer: str, reason: str | None
) -> None:
    """A refusal says what leaving the place out would also hide."""
    place = learned(run(first), run(second))[0]
    assert place.pointer == pointer
    assert place.reason is None if reason is None else reason in str(place.reason)
    assert learned(run(first), run(first)) == []
    (place,) = learned(run(first, second), run(first))
    assert "more questions" in str(place.reason)


def test_what_is_left_out_already_is_not_learned() -> None:
    """Neither a place, nor what is below it, nor the order of a list in it."""
    first, second = (
        run({"a": {"b": "1 of x"}, "c": [1, 2]}),
        run({"a": {"b": "2 of x"}, "c": [2, 1]}),
    )
    assert [each.pointer for each in learned(first, second)] == ["/a/b", "/c#order"]
    for known in (["/a", "/c"], ["/a/b", "/c#order"]):
        assert learned(first, second, known) == []
