"""Facts about calls on a page."""

from __future__ import annotations

from typing import Any

import pytest
from builders import (
    Answer,
    Step,
    answer,
    cassette_of,
    get,
    loaded,
    progress,
    refusal,
    retry,
    stream,
    tool,
)
from messages import NO, YES, asks, text
from pages import Node, assert_readable, parsed

from mrtr_cassette.core.report.details import InteractionDetails, detailed
from mrtr_cassette.core.report.summary import InteractionOutcome, Outcome
from mrtr_cassette.core.view.conversations import row
from mrtr_cassette.core.view.markup import Markup, element, joined
from mrtr_cassette.core.view.timeline import timelines

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"


def calls_of(*script: Step) -> tuple[InteractionDetails, ...]:
    """Return the calls of a script."""
    return detailed(loaded(cassette_of(*script))).interactions


def rows_of(*script: Step, notes: tuple[Markup, ...] = (), outcome: Outcome | None = None) -> Node:
    """Return the rows of a script."""
    calls = calls_of(*script)
    (timeline,) = timelines(calls)
    made = []
    for each in calls:
        interaction = each.interaction
        branches = [
            other
            for other in calls
            if other.interaction.branch and other.interaction.branch.of == interaction.number
        ]
        played = None
        if outcome is not None:
            played = InteractionOutcome(interaction.number, interaction.call, outcome, 0)
        made.append(row(each, timeline.axis, branches, played, notes))
    page = parsed(joined(made))
    assert_readable(page)
    return page


def chips_of(page: Node) -> list[list[str]]:
    """Return what the rows tell in short."""
    return [
        [chip.text for chip in next(each.every("summary")).every(class_="chip")]
        for each in page.every("li", class_="call")
    ]


def test_row_tells_a_call_in_short() -> None:
    """Number, method, name, arguments, turns and the end stand in its summary."""
    page = rows_of((CALL, asks("a")), (retry(CALL, {"a": YES}), text("done")))

    summary = next(page.every("summary"))
    assert summary.one("h3").text == "#1 tools/call deploy"
    assert summary.one(class_="arguments").text == "env: prod"
    assert chips_of(page) == [["1 turn", "result"]]
    assert page.one("li").attributes["data-is"] == "asks"
    assert "open" not in page.by_id("i1").attributes


def test_time_is_drawn_by_whose_it_is() -> None:
    """The server's and the person's time are bars, in order; their sums are a text."""
    page = rows_of((CALL, asks("a")), (retry(CALL, {"a": YES}), text("done")))

    drawing = page.one("svg")
    assert [each.attributes["class"] for each in drawing.every("rect")] == [
        "server-time", "person-time", "server-time",
    ]  # fmt: skip
    starts = [float(each.attributes["x"].removesuffix("%")) for each in drawing.every("rect")]
    assert starts == sorted(starts)
    assert drawing.attributes["aria-label"] == "server 6 ms, person 1 ms"


def test_all_that_was_said_stands_below() -> None:
    """The call, its turns, notifications and the result follow one another."""
    again = retry(CALL, {"a": YES})
    page = rows_of((CALL, asks("a")), (again, stream(progress(7), answer(again, text("done")))))

    headings = [each.text for each in page.every("h4")]
    assert headings == [
        "The client calls",
        "Turn 1: the server asks",
        "Meanwhile the server sends 1 notification",
        "The server's result",
    ]
    assert page.by_id("i1t1").name == "section"
    assert next(page.one("section", class_="final").every("pre")).text == "done"


def test_many_notifications_are_folded() -> None:
    """A long list of notifications is opened by whoever wants it."""
    page = rows_of((CALL, stream(*(progress(7, at) for at in range(6)), answer(CALL, text("x")))))

    assert len(list(page.one("ol", class_="said").every("li"))) == 6
    assert "Show" in [each.text for each in page.every("summary")]


def test_branches_stand_side_by_side() -> None:
    """Calls that share a question are compared below it, and each links to the other."""
    page = rows_of(
        (CALL, asks("a", state=STATE)),
        (retry(CALL, {"a": YES}, state=STATE), text("done")),
        (retry(CALL, {"a": NO}, state=STATE), asks("b", state=STATE + "2")),
        (retry(CALL, {"b": 5}, state=STATE + "2"), text("left")),
    )

    assert chips_of(page) == [
        ["1 turn", "2 branches", "result"],
        ["2 turns", "branch of #1", "result"],
    ]
    columns = [each.text for each in page.one(class_="columns").every("article")]
    assert columns == [
        'In #1 resultaaccept {"ok":true}thenno further turndone',
        "In #2 resultadeclinethen1 further turnleft",
    ]
    assert "Shares the question of turn 1 with #1" in page.by_id("i2").text


@pytest.mark.parametrize(
    ("response", "chip", "heading", "shown"),
    [
        ({"isError": True, "content": [{"type": "text", "text": "no"}]}, "tool error", "The server's result: the tool failed", "no"),
        (refusal(CALL, -32602, "bad"), "error -32602", "The server's error", '{ "code": -32602, "message": "bad" }'),
        (Answer((b"<html>",), (), 404), "HTTP 404", "The response", "<html>"),
        (Answer((), (), 202), "HTTP 202", "How it ended", None),
        ({"structuredContent": {"a": 1}}, "result", "The server's result", '{ "a": 1 }'),
        ({"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]}, "result", "The server's result", "hi"),
        ({"tools": []}, "result", "The server's result", '{ "tools": [] }'),
        (b'{"jsonrpc":"2.0","id":1,"result":5}', "result", "The server's result", "5"),
    ],
)  # fmt: skip
def test_end_of_a_call_is_shown(response: Any, chip: str, heading: str, shown: str | None) -> None:
    """Whatever ended a call is told in short and shown in full."""
    page = rows_of((CALL, response))
    final = page.one("section", class_="final")

    assert chips_of(page) == [[chip]]
    assert final.one("h4").text == heading
    assert [each.text for each in final.every("pre")][:1] == ([] if shown is None else [shown])


def test_what_is_out_of_the_ordinary_is_told() -> None:
    """Orphans, asks without an answer and other traffic are marked."""
    page = rows_of(
        (retry(CALL, state="unknown"), text("x")), (CALL, asks("a")), (get("/page"), b"x")
    )

    assert chips_of(page) == [
        ["orphan", "result"],
        ["1 turn", "abandoned: the last ask has no answer"],
        ["HTTP 200"],
    ]
    assert "Continues a request state" in page.by_id("i1").text


def test_outcome_of_a_replay_is_told() -> None:
    """What a replay never played, or not wholly, is marked; what it played is as ever."""
    assert chips_of(rows_of((CALL, text("x")), outcome=Outcome.UNPLAYED)) == [
        ["never played", "result"]
    ]
    in_part = rows_of((CALL, text("x")), outcome=Outcome.PLAYED_IN_PART)
    assert chips_of(in_part) == [["played in part", "result"]]
    assert in_part.one("li").attributes["data-is"] == "unplayed"
    assert chips_of(rows_of((CALL, text("x")), outcome=Outcome.PLAYED)) == [["result"]]


def test_notes_come_first() -> None:
    """A call with a note is open, and the note stands before anything else."""
    page = rows_of((CALL, text("x")), notes=(element("article", "note"),))

    assert "open" in page.by_id("i1").attributes
    assert chips_of(page) == [["look here", "result"]]
    assert next(page.one(class_="flow").every()).text == "note"
