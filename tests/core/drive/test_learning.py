"""Facts about what is learned from two runs of one conversation."""

from __future__ import annotations

import pytest
from builders import converse, refusal, tool
from messages import Json, asks, text

from mrtr_cassette.core.drive.learning import Learned, learned
from mrtr_cassette.core.drive.plan import planned
from mrtr_cassette.core.drive.verification import Verified
from mrtr_cassette.core.exchange.recorded import Cassette, RecordedInteraction

CALL = tool("clock")


def run(*results: Json) -> Verified:
    """Return what came of a conversation in which the server gave these results."""
    exchanges = tuple(converse(*((CALL, result) for result in results)))
    interaction = RecordedInteraction(1, exchanges, None, False)
    cassette = Cassette(
        "c.json", "http://h/mcp", "sealed", None, False, "now", "tool", (interaction,)
    )
    return Verified(planned(cassette)[0], "same", live=exchanges)


@pytest.mark.parametrize(
    ("first", "second", "pointers"),
    [
        ({"at": "2026-08-01T10:00:00Z"}, {"at": "2026-08-01T10:00:01Z"}, ["/at"]),
        ({"count": 1, "a": "b"}, {"count": 2, "a": "b"}, ["/count"]),
        ({"is": True}, {"is": False}, ["/is"]),
        ({"items": [1, 2, {"a": [3]}]}, {"items": [{"a": [3]}, 2, 1]}, ["/items#order"]),
        (text('{"n":1,"m":2}'), text('{"n":5,"m":2}'), ["/content/0/text#json/n"]),
        (text("a"), text("a"), []),
    ],
)
def test_exact_places_are_learned(first: Json, second: Json, pointers: list[str]) -> None:
    """The innermost value that differs, or the order of a list."""
    assert learned(run(first), run(second)) == [Learned(pointer) for pointer in pointers]


@pytest.mark.parametrize(
    ("first", "second", "pointer", "reason"),
    [
        ({"a": "3 of 7 done"}, {"a": "4 of 7 done"}, "/a", "the words 'of 7 done'"),
        ({"a": 1}, {"a": "1"}, "/a", "not only its value"),
        ({"a": 1}, {}, "/a", "it is there in one"),
        ({"a": [1]}, {"a": [1, 2]}, "/a/1", "it is there in one"),
        (asks("a"), asks("b"), "/inputRequests/a", "never answered"),
        (asks("a"), text("done"), "", "asks in one run"),
        (text("done"), refusal(CALL), "/#error", "it is there in one"),
    ],
)
def test_what_would_hide_more_is_refused(
    first: Json, second: Json, pointer: str, reason: str
) -> None:
    """Each refusal says what leaving the place out would also hide."""
    places = learned(run(first), run(second))
    assert places[0].pointer == pointer
    assert reason in str(places[0].reason)


def test_another_number_of_questions_is_refused() -> None:
    """Nothing can be compared in the place of an exchange that there is not."""
    (place,) = learned(run(asks("a"), text("done")), run(text("done")))
    assert "more questions" in str(place.reason)


def test_what_is_left_out_already_is_not_learned() -> None:
    """Neither a place, nor what is below it, nor the order of a list in it."""
    first, second = (
        run({"a": {"b": "1 of x"}, "c": [1, 2]}),
        run({"a": {"b": "2 of x"}, "c": [2, 1]}),
    )
    assert [each.pointer for each in learned(first, second)] == ["/c#order", "/a/b"]
    for known in (["/a", "/c"], ["/a/b", "/c#order"]):
        assert learned(first, second, known) == []
