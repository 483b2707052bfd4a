"""Facts about what was said in a call, on a page."""

from __future__ import annotations

from typing import Any

import pytest
from builders import (
    Answer,
    answer,
    cassette_of,
    get,
    loaded,
    progress,
    refusal,
    retry,
    stream,
    tool,
    with_meta,
)
from messages import CLIENT_KEY, NO, YES, asks, text
from pages import parsed
from rows import chips_of, rows_of

from mrtr_cassette.core.report.details import detailed
from mrtr_cassette.core.view.conversations import GONE, conversation
from mrtr_cassette.core.view.markup import joined

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"


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


def test_client_is_named() -> None:
    """A call tells which client made it, where that says so."""
    page = rows_of((with_meta(CALL, **{CLIENT_KEY: {"name": "agent"}}), text("x")))

    assert "clientagent" in page.one("section", class_="sent").text


def test_branches_of_any_shape_stand_side_by_side() -> None:
    """Answers without an action and results without content are compared as JSON."""
    page = rows_of(
        (CALL, asks("a", state=STATE)),
        (retry(CALL, {"a": 5}, state=STATE), {"x": 1}),
        (retry(CALL, {"a": 6}, state=STATE), Answer((), (), 202)),
    )

    first, second = page.one(class_="columns").every("article")
    assert first.text.endswith('a5thenno further turn{ "x": 1 }')
    assert second.text.endswith("a6thenno further turn")


def test_calls_of_another_cassette_have_ids_of_their_own() -> None:
    """What only the other cassette has stands on the same page, and leads to nothing of this one."""
    script = (
        (CALL, asks("a", state=STATE)),
        (retry(CALL, {"a": YES}, state=STATE), text("done")),
        (retry(CALL, {"a": NO}, state=STATE), text("left")),
    )
    _, branch = detailed(loaded(cassette_of(*script))).interactions
    shown = parsed(joined(conversation(branch, prefix=GONE)))

    assert [each.attributes["href"] for each in shown.every("a")] == ["#o2", "#o2t1"]
    assert "with #1, and" in shown.text
