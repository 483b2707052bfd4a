"""Headers are compared by what they mean, and a refusal is for those who sent what was refused."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from builders import Answer, compact, heard, missed, player_of, post, refusal, tool
from messages import text

from mrtr_cassette.core.replay.diagnosis import Reason
from mrtr_cassette.core.wire.http import Request

CALL = tool("work", n=42, city="Berlin")
RIGHT_TYPES = "application/json, text/event-stream"


class Case(NamedTuple):
    """A header that was refused, the one that was not, and others that mean the same as that."""

    name: str
    refused: str
    right: str
    same: tuple[str, ...]


CASES = [
    Case(
        "Accept",
        "*/*",
        RIGHT_TYPES,
        (
            "text/event-stream, application/json",
            "text/event-stream;q=0.5,application/json",
            "Application/JSON ; q=1.0 ,, text/event-stream",
        ),
    ),
    Case(
        "Accept",
        "application/json",
        'application/json;profile="a,b", text/event-stream',
        ('text/event-stream;q=0.1, application/json; Profile = "a,b"',),
    ),
    Case("Mcp-Param-N", "42.0", "42", ("=?base64?NDI=?=", "4.2e1", "42.00")),
    Case("Mcp-Param-N", "43", "42", ("42.0",)),
    Case("Mcp-Param-City", "Hamburg", "=?base64?QmVybGlu?=", ("Berlin",)),
    Case("Mcp-Name", "", "=?base64?d29yaw==?=", ("work",)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name} {case.refused}")
def test_header_that_means_the_same_gets_the_same_answer(case: Case) -> None:
    """Another spelling of the right header gets the success, that of the refused one the refusal."""

    def asking(value: str) -> Request:
        return post(CALL, (case.name, value))

    for spelling in (case.right, *case.same):
        player = player_of(
            (asking(case.refused), Answer((refusal(CALL),), status=406)),
            (asking(case.right), text("done")),
        )

        assert heard(player, asking(spelling)) == "done"
        assert missed(player, asking(spelling)).reason is Reason.ALREADY_PLAYED
        assert "error" in heard(player, asking(case.refused))


@pytest.mark.parametrize(
    "refused", [Answer((b"",), status=406), Answer((refusal(CALL),))]
)
def test_client_like_none_that_was_recorded_gets_the_success(refused: Answer) -> None:
    """Of recordings that are equally near, one that was not refused comes first, and only that."""
    player = player_of(
        (post(CALL, ("Accept", "*/*")), refused),
        (post(CALL, ("Accept", RIGHT_TYPES)), text("done")),
        (post(CALL, ("Accept", "text/html")), refused),
    )

    asked = post(CALL, ("Accept", f"{RIGHT_TYPES}, text/plain"))

    assert heard(player, asked) == "done"
    assert missed(player, asked).reason is Reason.ALREADY_PLAYED


def test_equal_requests_that_were_refused_at_first_play_in_recorded_order() -> None:
    """A server that was busy once is busy once again."""
    busy = Answer((compact({"error": "busy"}),), status=503)
    player = player_of((CALL, busy), (CALL, text("done")))

    assert [heard(player, CALL) for _ in range(2)] == ['{"error":"busy"}', "done"]
