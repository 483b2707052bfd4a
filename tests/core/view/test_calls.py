"""Facts about calls on a rendered page: what was said, asked and answered, and how it ended."""

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
    missed,
    player_of,
    progress,
    refusal,
    retry,
    stream,
    tool,
)
from messages import NO, YES, asks, text
from pages import Node, assert_readable, assert_safe, parsed

from mrtr_cassette.core.compare.cassettes import compared
from mrtr_cassette.core.report.details import detailed
from mrtr_cassette.core.report.summary import report_of_replay
from mrtr_cassette.core.view.differences import Earlier
from mrtr_cassette.core.view.page import View, page
from mrtr_cassette.shell.page_file import page_assets

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
SCHEMA = {
    "properties": {
        "name": {"type": "string", "title": "Name", "description": "Yours."},
        "size": {"enum": ["s", "m"]},
        "many": {"enum": list("abcdefgh")},
        "some": {"type": "array", "items": {"enum": list("abcdefgh")}},
        "ok": {"type": "boolean"},
        "long": {"type": "string"},
    },
    "required": ["name"],
}


def shown(*script: Step, first: tuple[Step, ...] | None = None) -> Node:
    """Return the page of a script, beside the one of an earlier script where there is one."""
    recording, earlier = loaded(cassette_of(*script), "new.json"), None
    if first is not None:
        old = loaded(cassette_of(*first), "old.json")
        earlier = Earlier(detailed(old), compared(old, recording))
    return drawn(View(detailed(recording), None, earlier))


def drawn(view: View) -> Node:
    """Return a page, which is as every page must be."""
    html = "".join(page(view, page_assets()))
    made = parsed(html.removeprefix("<!doctype html>\n"))
    assert_safe(made)
    assert_readable(made)
    return made


def question(method: str, params: dict[str, Any], answers: Any = None) -> Node:
    """Return a question as it is drawn, with its answer."""
    ask = {"resultType": "input_required", "inputRequests": {"k": {"method": method}}}
    ask["inputRequests"]["k"]["params"] = params  # type: ignore[index]
    script: list[Step] = [(CALL, ask)]
    if answers is not None:
        script.append((retry(CALL, {"k": answers}), text("done")))
    return shown(*script).one("fieldset")


def chips_of(made: Node) -> list[list[str]]:
    """Return what the rows tell in short."""
    return [
        [chip.text for chip in next(each.every("summary")).every(class_="chip")]
        for each in made.every("li", class_="call")
    ]


def test_all_that_was_said_stands_below() -> None:
    """The call, its turns, notifications and the result follow one another."""
    again = retry(CALL, {"a": YES})
    made = shown((CALL, asks("a")), (again, stream(*[progress(7)] * 6, answer(again, text("end")))))

    assert [each.text for each in made.every("h4")] == [
        "The client calls",
        "Turn 1: the server asks",
        "Meanwhile the server sends 6 notifications",
        "The server's result",
    ]
    assert next(made.every("h3")).text == "#1 tools/call deploy"
    assert made.one(class_="arguments").text == "env: prod"
    assert made.by_id("i1t1").name == "section"
    assert len(list(made.one("ol", class_="said").every("li"))) == 6
    rects = [each.attributes["class"] for each in made.by_id("i1").every("rect")]
    assert rects == ["server-time", "person-time", "server-time"]


def test_form_has_the_answer_in_it() -> None:
    """Each kind of field is a disabled control of its own, with what was answered in it."""
    content = {"name": "Ada", "size": "m", "many": "c", "some": ["a", "h"], "ok": True}
    asked = question(
        "elicitation/create",
        {"message": "Sure?", "requestedSchema": SCHEMA},
        {"action": "accept", "content": {**content, "long": "a\nb", "token": "<github:1>"}},
    )

    assert asked.one("legend").text == "k asks for a form"
    assert asked.one(class_="message").text == "Sure?"
    assert asked.by_id("i1t1q1f1").attributes["value"] == "Ada"
    checked = ["checked" in each.attributes for each in asked.every("input")]
    assert checked == [False, False, True, True, False]
    chosen = [each.text for each in asked.every("option") if "selected" in each.attributes]
    assert chosen == ["c", "a", "h"]
    assert [each.text for each in asked.every("small")] == [
        "required", "not in the schema, redacted",
    ]  # fmt: skip
    # A browser takes away the line end that stands first.
    assert asked.one("textarea").raw_text == "\na\nb"
    controls = list(asked.every("input", "select", "textarea"))
    assert all("disabled" in each.attributes for each in (asked, *controls))
    declined = question("elicitation/create", {"requestedSchema": SCHEMA}, {"action": "decline"})
    chosen = [each.text for each in declined.every("option") if "selected" in each.attributes]
    assert chosen == ["(nothing chosen)"] * 2


@pytest.mark.parametrize(
    ("method", "params", "answers", "words"),
    [
        ("elicitation/create", {"mode": "url", "message": "Pay", "url": "javascript:x"}, YES, ["visit to a URL", "javascript:x", "Accepted"]),
        ("elicitation/create", {}, {"action": "cancel"}, ["Cancelled"]),
        ("elicitation/create", {}, None, ["No answer"]),
        ("elicitation/create", {}, {"odd": 1}, ["Answered", '{ "odd": 1 }']),
        ("sampling/createMessage", {"systemPrompt": "Be brief.", "messages": [{"role": "user", "content": {"type": "text", "text": "Why?"}}, "odd"], "maxTokens": 9}, {"role": "assistant", "model": "m1", "content": {"type": "text", "text": "So."}}, ["systemBe brief.", "userWhy?", '"odd"', "assistantmodel: m1So.", '{ "maxTokens": 9 }']),
        ("sampling/createMessage", {}, "mrtr-answer:" + "a" * 64, ["mrtr-answer:"]),
        ("roots/list", {}, {"roots": [{"uri": "file:///a", "name": "a"}, {"uri": "b:c"}]}, ["afile:///a", "rootb:c"]),
        ("roots/list", {}, {"roots": []}, ["The client has none."]),
        ("roots/list", {}, {"roots": 5}, ['{ "roots": 5 }']),
        ("tasks/odd", {"x": 1}, {"y": 2}, ['{ "x": 1 }', '{ "y": 2 }']),
    ],
)  # fmt: skip
def test_question_of_any_kind_is_shown(
    method: str, params: dict[str, Any], answers: Any, words: list[str]
) -> None:
    """What was asked and answered is told in the way of its kind, and leads nowhere."""
    asked = question(method, params, answers)

    assert all(each in asked.text for each in words), asked.text
    assert not list(asked.every("a"))


@pytest.mark.parametrize(
    ("response", "chip", "heading", "words"),
    [
        ({"isError": True, "content": [{"type": "text", "text": "no"}]}, "tool error", "The server's result: the tool failed", "no"),
        (refusal(CALL, -32602, "bad"), "error -32602", "The server's error", '{ "code": -32602, "message": "bad" }'),
        (Answer((b"<html>",), (), 404), "HTTP 404", "The response", "<html>"),
        (Answer((), (), 202), "HTTP 202", "How it ended", ""),
        ({"structuredContent": {"a": 1}}, "result", "The server's result", '{ "a": 1 }'),
        ({"messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}]}, "result", "The server's result", "userhi"),
        ({"content": [{"type": "image", "mimeType": "image/png", "data": "A" * 8}]}, "result", "The server's result", "image/png, about 6 bytes"),
        ({"content": [{"type": "resource_link", "uri": "file:///x"}]}, "result", "The server's result", "file:///x"),
        ({"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "in"}}, 5]}, "result", "The server's result", "in5"),
        (text("x" * 20_005), "result", "The server's result", "… (5 more characters)"),
        (b'{"jsonrpc":"2.0","id":1,"result":5}', "result", "The server's result", "5"),
    ],
)  # fmt: skip
def test_end_of_a_call_is_shown(response: Any, chip: str, heading: str, words: str) -> None:
    """Whatever ended a call is told in short and shown in full."""
    made = shown((CALL, response))
    final = made.one("section", class_="final")

    assert chips_of(made) == [[chip]]
    assert final.one("h4").text == heading
    assert words in final.text


def test_what_is_out_of_the_ordinary_is_told() -> None:
    """Branches stand side by side; orphans, asks without an answer and other traffic are marked."""
    made = shown(
        (CALL, asks("a", state=STATE)),
        (retry(CALL, {"a": YES}, state=STATE), text("done")),
        (retry(CALL, {"a": NO}, state=STATE), asks("b", state=STATE + "2")),
        (retry(CALL, {"b": 5}, state=STATE + "2"), {"x": 1}),
        (retry(CALL, state="unknown"), text("x")),
        (tool("other"), asks("a")),
        (get("/page"), b"x"),
    )

    assert chips_of(made) == [
        ["1 turn", "2 branches", "result"],
        ["2 turns", "branch of #1", "result"],
        ["orphan", "result"],
        ["1 turn", "abandoned: the last ask has no answer"],
        ["HTTP 200"],
    ]
    assert [each.text for each in made.one(class_="columns").every("article")] == [
        'In #1 resultaaccept {"ok":true}thenno further turndone',
        'In #2 resultadeclinethen1 further turn{ "x": 1 }',
    ]
    marks = [each.attributes["data-is"] for each in made.every("li", class_="call")]
    assert marks == ["asks branches", "asks branches", "", "asks", ""]
    assert "Shares the question of turn 1 with #1, and" in made.by_id("i2").text


def test_what_differs_is_listed_and_drawn() -> None:
    """The list leads to each call that differs; a changed question is drawn before and after."""

    def asking(words: str) -> tuple[Step, ...]:
        ask = asks("a")
        ask["inputRequests"]["a"]["params"]["message"] = words
        return ((CALL, ask), (retry(CALL, {"a": YES}), text("done")))

    old = (*asking("Sure?"), (tool("gone"), text("x")), (tool("same"), text("x")))
    new = (*asking("Really?"), (tool("same"), text("x")), (tool("new"), text("x")))
    made = shown(*new, first=old)

    items = made.by_id("differences").every("li")
    assert [(item.text, item.one("a").attributes["href"]) for item in items] == [
        ('~ #1 tools/call "deploy" question-changed the question of turn 1', "#i1"),
        ('- #2 tools/call "gone" only in the first', "#o2"),
        ('+ #3 tools/call "new" only in the second', "#i3"),
    ]
    article = made.by_id("c1")
    assert [each.text for each in article.every(class_="message")] == ["Sure?", "Really?"]
    assert article.one("caption").text == "The question of turn 1: question-changed"
    assert [each.text for each in article.every("td")] == ['"Sure?"', '"Really?"']
    assert "This call is not in old.json." in made.by_id("i3").text
    assert "No differencesthe same: 3 interactions" in shown(*old, first=old).text


def test_misses_stand_beside_what_was_recorded() -> None:
    """A miss tells what was received, asked and recorded; one that is near nothing is listed whole."""
    script: tuple[Step, ...] = ((CALL, asks("a")), (retry(CALL, {"a": YES}), text("x")))
    player = player_of(*script)
    missed(player, retry(CALL, {"a": NO}))
    missed(player, tool("odd"))
    made = drawn(View(detailed(loaded(cassette_of(*script))), report_of_replay(player)))

    assert made.by_id("misses").one("h2").text == "2 requests were missed"
    article = made.by_id("m1")
    assert "answers-differ" in article.one("h4").text
    assert 'a (form) "a?"' in article.text
    assert [each.attributes["href"] for each in article.every("a")] == ["#m1", "#i1t1"]
    assert [each.text for each in article.every("td")][:2] == ['"accept"', '"decline"']
    assert list(article.one("ul", class_="fixes").every("li"))
