"""Facts about a page as a whole."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from builders import (
    Answer,
    Step,
    answer,
    cassette_of,
    changed,
    get,
    loaded,
    missed,
    play,
    player_of,
    post,
    progress,
    refusal,
    retry,
    stream,
    tool,
    with_meta,
)
from harmless import HOSTILE
from hypothesis import example, given, settings
from hypothesis import strategies as st
from messages import CLIENT_KEY, NO, YES, asks, form, text
from pages import Node, assert_readable, assert_safe, parsed
from pushing import branched

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.compare.conversations import compared
from mrtr_cassette.core.report.details import details_of
from mrtr_cassette.core.report.page import START, Assets, Earlier, View, page
from mrtr_cassette.core.report.runs import ReplayReport, report_of_replay
from mrtr_cassette.shell.files.reports import page_assets

ASSETS = Assets("p { color: red }", '"use strict";', page_assets().templates)
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
BRANCHED: tuple[Step, ...] = (
    (CALL, asks("a", state=STATE)),
    (retry(CALL, {"a": YES}, state=STATE), text("done")),
    (retry(CALL, {"a": NO}, state=STATE), text("left")),
)


def page_of(
    cassette: Cassette, replay: ReplayReport | None = None, first: Cassette | None = None
) -> Node:
    """Return the page of a cassette, which is as every page must be."""
    earlier = None
    if first is not None:
        earlier = Earlier(details_of(first), compared(first, cassette))
    html = "".join(page(View(details_of(cassette), replay, earlier), ASSETS))
    assert html.startswith(START)
    made = parsed(html.removeprefix("<!doctype html>\n"))
    assert_safe(made)
    assert_readable(made)
    return made


def shown(*script: Step, **options: Any) -> Node:
    """Return the page of a script."""
    return page_of(loaded(cassette_of(*script, **options), "cassettes/talk.json"))


def test_page_tells_what_was_recorded() -> None:
    """Name, origin, count, and how secrets are kept stand in its head."""
    made = shown(*BRANCHED, redacts=True, seals_answers=True)

    assert made.one("title").text == "talk.json - mrtr-cassette"
    assert made.one("h1").text == "talk.json"
    assert [each.text for each in made.one("header").every(class_="chip")] == [
        "2 calls",
        "2 turns in 2 calls",
        "1 answered again in another way",
        "request states sealed",
        "known secrets redacted",
        "answers sealed",
    ]
    facts = [each.text for each in made.one("header").every("dd")]
    assert facts[0] == "http://localhost:8000/mcp"
    assert "Nothing was recorded." in shown().one("main").text


def test_page_is_whole_without_its_script_and_read_aloud() -> None:
    """The parts are landmarks, no level of headings is left out, and the tools are hidden."""
    made = page_of(branched())

    for name in ("header", "search", "main", "footer"):
        assert made.one(name)
    levels = [int(each.name[1]) for each in made.every("h1", "h2", "h3", "h4", "h5")]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert made.one("html").attributes["lang"] == "en"
    assert "hidden" in made.one("search").attributes
    assert "hidden" in made.one(class_="keys").attributes
    assert len(list(made.every("li", class_="call"))) == 3


def test_each_session_is_a_section() -> None:
    """Calls of a session stand together, under its name and its client."""
    session = ("Mcp-Session-Id", "sess-0123456789abcdef")
    asked = with_meta(tool("a"), **{CLIENT_KEY: {"name": "agent", "version": "2"}})
    made = shown((post(asked), text("x")), (post(tool("b"), session), text("x")))

    headings = [each.text for each in made.one("main").every("h2")]
    assert headings == ["Calls without a session", "Session mrtr-session:1"]
    first = next(made.every("section", class_="session"))
    assert next(first.every(class_="chip")).text == "agent 2"


def test_idle_time_is_marked() -> None:
    """Where time was cut out of the axis, there is a mark, and a text says so."""
    recording = loaded(cassette_of((CALL, text("x")), (tool("b"), text("x"))))
    first, second = recording.interactions
    late = replace(second.exchanges[0], started_ms=9000.0, ended_ms=9003.0)
    made = page_of(replace(recording, interactions=(first, replace(second, exchanges=(late,)))))

    assert len(list(made.every("line", class_="cut"))) == 1
    assert "idle time cut 1 time" in made.text


# Calls


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


# Misses and differences


def test_misses_stand_beside_what_was_recorded() -> None:
    """The nearest call is open and has the miss; one that is near nothing is listed whole."""
    script: tuple[Step, ...] = (
        (CALL, asks("a")),
        (retry(CALL, {"a": YES}), text("x")),
        (tool("other"), text("y")),
    )
    player = player_of(*script)
    play(player, CALL)
    missed(player, retry(CALL, {"a": NO}))
    missed(player, tool("odd"))
    made = page_of(loaded(cassette_of(*script)), report_of_replay(player))

    chips = [each.text for each in made.one("header").every(class_="chip")]
    assert chips[-2:] == ["replay played 0 of 2", "missed 2 requests"]
    assert made.by_id("misses").one("h2").text == "2 requests were missed"
    assert "open" in made.by_id("i1").attributes
    article = made.by_id("i1").one("article", class_="miss")
    assert article.attributes["id"] == "m1"
    assert 'a (form) "a?"' in article.text
    assert [each.attributes["href"] for each in article.every("a")] == ["#m1", "#i1t1"]
    assert [each.text for each in article.every("td")][:2] == ['"accept"', '"decline"']
    assert list(article.one("ul", class_="fixes").every("li"))
    assert "never played" in made.by_id("i2").text


def test_two_cassettes_are_one_page() -> None:
    """What differs is listed first; a changed question is drawn before and after."""

    def asking(words: str) -> tuple[Step, ...]:
        ask = asks("a")
        ask["inputRequests"]["a"]["params"]["message"] = words
        return ((CALL, ask), (retry(CALL, {"a": YES}), text("done")))

    old = (*asking("Sure?"), (tool("gone"), asks("b")), (tool("same"), text("x")))
    new = (*asking("Really?"), (tool("same"), text("x")), (tool("new"), text("x")))
    first = loaded(cassette_of(*old), "old/talk.json")
    made = page_of(loaded(cassette_of(*new), "new/other.json"), first=first)

    assert made.one("h1").text == "talk.json and other.json"
    assert "1 of 3 calls as in talk.json" in made.one("header").text
    assert [each.text for each in made.one("main").every("h2")] == [
        "Differences", "Calls without a session", "Only in old/talk.json",
    ]  # fmt: skip
    items = made.by_id("differences").every("li")
    assert [(item.text, item.one("a").attributes["href"]) for item in items] == [
        ('~ #1 tools/call "deploy" question-changed the question of turn 1', "#i1"),
        ('- #2 tools/call "gone" only in the first', "#o2"),
        ('+ #3 tools/call "new" only in the second', "#i3"),
    ]
    assert "open" in made.by_id("i1").attributes
    article = made.by_id("c1")
    assert article.text.startswith("Differs from #1 of the first cassette")
    assert [each.text for each in article.every(class_="message")] == ["Sure?", "Really?"]
    assert article.one("caption").text == "The question of turn 1: question-changed"
    assert [each.text for each in article.every("td")] == ['"Sure?"', '"Really?"']
    assert "This call is not in old/talk.json." in made.by_id("i3").text
    assert made.by_id("o2t1")
    assert "No differencesthe same: 3 interactions" in page_of(first, first=first).text


# Whatever is recorded

MARKUP = st.sampled_from(["<script>", "</", "<!--", "-->", "&lt;", '"', "'", ">", "{{ 1 }}", "]]>"])
TEXTS = st.lists(st.text(max_size=5) | MARKUP, max_size=6).map("".join)


@settings(max_examples=20, deadline=None)
@given(TEXTS)
@example("\"' onload=alert(1) <script>alert(1)</script>")
@example("</script></style></title></textarea>")
@example(HOSTILE)
def test_recorded_texts_are_inert(words: str) -> None:
    """Whatever text is recorded, the page has no element and no attribute that harmless words don't give it."""
    drawn = _page_of_words(f"a{words}")

    assert _outline(drawn) <= _harmless_outline()
    for node in drawn.every():
        for value in (*node.attributes.values(), *(c for c in node.children if isinstance(c, str))):
            assert all(line.isprintable() for line in value.split("\n")), value


def _outline(made: Node) -> set[tuple[str, frozenset[str]]]:
    """Return the kinds of elements of a page, each with the names of its attributes."""
    return {(each.name, frozenset(each.attributes)) for each in made.every()}


@cache
def _harmless_outline() -> set[tuple[str, frozenset[str]]]:
    """Return what the pages of a word, of two lines and of a placeholder are made of."""
    pages = (_page_of_words(words) for words in ("a", "a\nb", "<github:1>"))
    return set().union(*map(_outline, pages))


def _page_of_words(words: str) -> Node:
    """Return the page of two cassettes in which all texts are these words, replayed with a miss."""
    ask: dict[str, Any] = {"resultType": "input_required", "inputRequests": {words: form(words)}}
    properties = {words: {"title": words, "description": words, "enum": [words, words]}}
    ask["inputRequests"][words]["params"]["requestedSchema"] = {"properties": properties}
    call = changed(tool(words), "params", "arguments", to={words: words})
    script = (
        (call, ask),
        (retry(call, {words: {"action": "accept", "content": {words: words}}}), text(words)),
        (tool("x"), {words: words, "isError": True}),
        (get("/x"), words.encode("utf-8", "replace")),
    )
    player = player_of(*script)
    missed(player, tool(words, env=words))
    first = loaded(cassette_of((CALL, text(words))), "first.json")
    return page_of(loaded(cassette_of(*script), f"{words}.json"), report_of_replay(player), first)
