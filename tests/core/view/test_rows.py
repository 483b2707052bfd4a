"""Facts about calls as rows."""

from __future__ import annotations

from builders import cassette_of, get, loaded, retry, tool
from messages import NO, YES, asks, text
from pages import parsed
from rows import chips_of, rows_of

from mrtr_cassette.core.report.details import detailed
from mrtr_cassette.core.report.summary import Outcome
from mrtr_cassette.core.view.markup import element
from mrtr_cassette.core.view.notes import Note
from mrtr_cassette.core.view.rows import row

CALL = tool("deploy", env="prod")


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
    page = rows_of((CALL, text("x")), notes=(Note("look here", "bad", element("article", "note")),))

    assert "open" in page.by_id("i1").attributes
    assert chips_of(page) == [["look here", "result"]]
    assert next(page.one(class_="flow").every()).text == "note"


def test_row_tells_what_is_out_of_the_ordinary() -> None:
    """Branches, orphans and params that are no object are told in short."""
    state = "x" * 40
    page = rows_of(
        (CALL, asks("a", state=state)),
        (retry(CALL, {"a": YES}, state=state), text("done")),
        (retry(CALL, {"a": NO}, state=state), text("left")),
        (retry(CALL, state="unknown"), text("x")),
        (get("/page"), b"x"),
    )

    assert chips_of(page) == [
        ["1 turn", "2 branches", "result"],
        ["1 turn", "branch of #1", "result"],
        ["orphan", "result"],
        ["HTTP 200"],
    ]
    assert [each.attributes["data-is"] for each in page.every("li", class_="call")] == [
        "asks branches", "asks branches", "", "",
    ]  # fmt: skip
    assert "fails" in rows_of((CALL, {"isError": True})).one("li").attributes["data-is"]


def test_row_without_an_axis_has_no_time() -> None:
    """Where no time is shown, a row has no drawing; its id begins as is wanted."""
    (details,) = detailed(loaded(cassette_of((b"{}", text("x"))))).interactions
    shown = parsed(row(details, None, prefix="o"))

    assert not list(shown.every("svg"))
    assert shown.by_id("o1")
