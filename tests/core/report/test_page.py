"""Facts about pages: as a whole, questions as forms, and the time axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import chain
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
from goldens import DATA, read_case
from harmless import HOSTILE
from hypothesis import example, given, settings
from hypothesis import strategies as st
from messages import CLIENT_KEY, NO, YES, array_asks, asks, form, text
from pages import Node, assert_readable, assert_safe, parsed
from tasking import task_steps

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.compare.conversations import ignores_nothing
from mrtr_cassette.core.report.page import Assets, cassette_page, form_fields
from mrtr_cassette.core.report.runs import ReplayReport, report_of_replay
from mrtr_cassette.core.report.text import PAGE_START
from mrtr_cassette.shell.files.reports import page_assets

ASSETS = Assets("p { color: red }", '"use strict";', page_assets().templates)
CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
SCHEMA = {
    "properties": {
        "name": {"type": "string", "title": "Name", "description": "Yours."},
        "size": {"enum": ["s", "m"]},
        "some": {"type": "array", "items": {"enum": ["a", "b"]}},
        "ok": {"type": "boolean"},
        "long": {"type": "string"},
        "bags": {
            "type": "integer",
            "title": "Bags",
            "minimum": 0,
            "maximum": 3,
            "default": 1,
        },
        "titled": {
            "oneOf": [{"const": "r", "title": "red"}, {"const": "g", "title": "green"}]
        },
        "named": {"enum": ["r", "g"], "enumNames": ["red", "green"]},
        "unoffered": {"type": "array", "items": {"enum": ["red"]}, "minItems": 1},
    },
    "required": ["name"],
}


def page_of(
    cassette: Cassette,
    replay: ReplayReport | None = None,
    first: Cassette | None = None,
) -> Node:
    """Return the page of a cassette, which is as every page must be."""
    html = "".join(cassette_page(cassette, ASSETS, replay, first, ignores_nothing))
    assert html.startswith(PAGE_START)
    made = parsed(html.removeprefix("<!doctype html>\n"))
    assert_safe(made)
    assert_readable(made)

    return made


def recording(*script: Step, **options: Any) -> Cassette:
    """Return the cassette of a script."""
    return loaded(cassette_of(*script, **options), "cassettes/talk.json")


# Pages as outlines

SESSION = ("Mcp-Session-Id", "sess-0123456789abcdef")
CONTENT = {"name": "Ada", "size": "m", "some": ["a"], "ok": True, "long": "a\nb"}
CONTENT |= {"bags": 2, "titled": "g", "named": "r", "unoffered": ["z"]}
FORM = {"message": "Sure?", "requestedSchema": SCHEMA}
URL = {"mode": "url", "message": "Pay", "url": "javascript:x"}
SPOKEN = {"role": "user", "content": {"type": "text", "text": "Why?"}}
SAMPLING = {"systemPrompt": "Be brief.", "messages": [SPOKEN, "odd"], "maxTokens": 9}
SAMPLED = {
    "role": "assistant",
    "model": "m1",
    "content": {"type": "text", "text": "So."},
}
ROOTS = {"roots": [{"uri": "file:///a", "name": "a"}, {"uri": "b:c"}]}
QUESTIONS: tuple[tuple[str, Any, Any], ...] = (
    (
        "elicitation/create",
        FORM,
        {"action": "accept", "content": {**CONTENT, "token": "<github:1>"}},
    ),
    ("elicitation/create", {"message": "Sure?"}, NO),
    ("elicitation/create", URL, YES),
    ("elicitation/create", {}, {"action": "cancel"}),
    ("elicitation/create", {}, {"odd": 1}),
    ("sampling/createMessage", SAMPLING, SAMPLED),
    ("sampling/createMessage", {}, "mrtr-answer:" + "a" * 64),
    ("roots/list", {}, ROOTS),
    ("roots/list", {}, {"roots": []}),
    ("roots/list", {}, {"roots": 5}),
    ("tasks/odd", {"x": 1}, {"y": 2}),
)
ENDINGS: tuple[Any, ...] = (
    {"isError": True, "content": [{"type": "text", "text": "no"}]},
    refusal(CALL, -32602, "bad"),
    Answer((b"<html>",), (), 404),
    Answer((), (), 202),
    {"structuredContent": {"a": 1}},
    {"messages": [SPOKEN]},
    {"content": [{"type": "image", "mimeType": "image/png", "data": "A" * 8}]},
    {"content": [{"type": "resource_link", "uri": "file:///x"}]},
    {"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "in"}}, 5]},
    {
        "contents": [
            {
                "uri": "ui://a",
                "mimeType": "text/html;profile=mcp-app",
                "text": "<p>'\"&",
            }
        ]
    },
    b'{"jsonrpc":"2.0","id":1,"result":5}',
    stream(*[progress(7)] * 6, answer(CALL, text("end"))),
)


def asked(method: str, params: Any, answers: Any) -> Iterator[Step]:
    """Yield a call with one question, and its retry."""
    asking = {"k": {"method": method, "params": params}}
    yield CALL, {"resultType": "input_required", "inputRequests": asking}
    yield retry(CALL, {"k": answers}), text("done")


def differing(words: str) -> tuple[Step, ...]:
    """Return a call that asks in these words."""
    ask = asks("a")
    ask["inputRequests"]["a"]["params"]["message"] = words
    return ((CALL, ask), (retry(CALL, {"a": YES}), text("done")))


def missed_page() -> Node:
    """Return the page of a replay that was asked what is near a call, and what is near none."""
    script: tuple[Step, ...] = (*differing("Sure?"), (tool("other"), text("y")))
    player = player_of(*script)
    play(player, CALL)
    missed(player, retry(CALL, {"a": NO}))
    missed(player, tool("odd"))

    return page_of(recording(*script), report_of_replay(player))


def compared_page() -> Node:
    """Return the page of two cassettes."""
    old = (*differing("Sure?"), (tool("gone"), asks("b")), (tool("same"), text("x")))
    new = (*differing("Really?"), (tool("same"), text("x")), (tool("new"), text("x")))
    first = loaded(cassette_of(*old), "old/talk.json")

    return page_of(loaded(cassette_of(*new), "new/other.json"), first=first)


PAGES: dict[str, Callable[[], Node]] = {
    "empty": lambda: page_of(recording(redacts=True, seals_answers=True)),
    "unusual": lambda: page_of(
        recording(
            (CALL, asks("a", state=STATE)),
            (retry(CALL, {"a": YES}, state=STATE), text("done")),
            (retry(CALL, {"a": NO}, state=STATE), asks("b", state=STATE + "2")),
            (retry(CALL, {"b": 5}, state=STATE + "2"), {"x": 1}),
            (retry(CALL, state="unknown"), text("x")),
            (with_meta(tool("other"), **{CLIENT_KEY: {"name": "agent"}}), asks("a")),
            (tool("list"), array_asks("k", state="T")),
            (retry(tool("list"), [{"id": "k", "value": 5}], state="T"), text("x")),
            (post(tool("b"), SESSION), text("<jwt:1>")),
            (get("/page"), b"x"),
            redacts=True,
        )
    ),
    "questions": lambda: page_of(
        recording(*chain.from_iterable(asked(*question) for question in QUESTIONS))
    ),
    "endings": lambda: page_of(recording(*((CALL, response) for response in ENDINGS))),
    "tasks": lambda: page_of(recording(*task_steps(STATE))),
    "misses": missed_page,
    "compared": compared_page,
}
OUTLINED = {"questions": ("question",), "endings": ("chips", "said", "final")}
"""The classes of a page's elements that are enough to show; else it is head and calls."""

TOLD = (
    "type",
    "href",
    "width",
    "data-is",
    "open",
    "checked",
    "selected",
    "disabled",
    "hidden",
)


def outline(made: Node, indent: str = "") -> Iterator[str]:
    """Yield the elements of a page, each with its class, its id, what it leads to and its state."""
    for child in made.children:
        if isinstance(child, str):
            yield f"{indent}{child!r}"
            continue

        facts = child.attributes
        named = f"{child.name} .{facts['class']}" if facts.get("class") else child.name
        named += f" #{facts['id']}" if "id" in facts else ""
        for attribute in TOLD:
            if attribute in facts:
                named += f" {attribute}={facts[attribute]!r}"

        has_elements = not all(isinstance(inner, str) for inner in child.children)
        if child.children and not has_elements:
            named += f" {child.raw_text!r}"

        yield f"{indent}{named}"
        if has_elements:
            yield from outline(child, indent + "  ")


@pytest.mark.parametrize("name", PAGES)
def test_page_is_as_its_outline_says(name: str, *, updates_goldens: bool) -> None:
    """What stands on it, in which order and state; forms have their answers, and lead nowhere."""
    made = PAGES[name]()
    classes = OUTLINED.get(name, ())
    parts = [made.one("header"), made.one("main")]
    if classes:
        parts = [*chain.from_iterable(made.every(class_=name) for name in classes)]

    shown = "\n".join(outline(Node("parts", {}, [*parts])))

    case = read_case(DATA / "pages" / f"{name}.case")
    case.expect("page", f"{shown}\n", updates=updates_goldens)
    controls = made.one("main").every("input")

    assert all("disabled" in control.attributes for control in controls)


def test_outcomes_are_found_by_number() -> None:
    """The page of a failed test has them in the order of the calls, as an edited file has not."""
    script = ((tool("first"), text("1")), (tool("second"), text("2")))
    player = player_of(*script)
    play(player, tool("second"))
    report = report_of_replay(player)
    turned = replace(report, interactions=report.interactions[::-1])
    page = page_of(recording(*script), turned)

    assert "never played" in page.by_id("i1").text
    assert "never played" not in page.by_id("i2").text


def test_long_values_are_cut() -> None:
    """A page has to stay quick; `inspect` shows the rest."""
    page = page_of(recording((CALL, text("x" * 20_050))))
    _, shown, _ = page.every("pre")

    assert shown.text.endswith("x… (50 more characters)")


# Whatever is recorded

MARKUP = st.sampled_from(
    ["<script>", "</", "<!--", "-->", "&lt;", '"', "'", ">", "{{ 1 }}", "]]>"]
)
TEXTS = st.lists(st.text(max_size=5) | MARKUP, max_size=6).map("".join)


@settings(max_examples=10, deadline=None)
@given(TEXTS)
@example("\"' onload=alert(1) <script>alert(1)</script>")
@example("</script></style></title></textarea>")
@example(HOSTILE)
def test_recorded_texts_are_inert(words: str) -> None:
    """Whatever text is recorded, the page has no element and no attribute that harmless words don't give it."""
    drawn = _page_of_words(f"a{words}")

    assert _outline(drawn) <= _harmless_outline()

    for node in drawn.every():
        texts = [child for child in node.children if isinstance(child, str)]
        for value in (*node.attributes.values(), *texts):
            assert all(line.isprintable() for line in value.split("\n")), value


def _outline(made: Node) -> set[tuple[str, frozenset[str]]]:
    """Return the kinds of elements of a page, each with the names of its attributes."""
    return {(element.name, frozenset(element.attributes)) for element in made.every()}


@cache
def _harmless_outline() -> set[tuple[str, frozenset[str]]]:
    """Return what the pages of a word, of two lines and of a placeholder are made of."""
    pages = (_page_of_words(words) for words in ("a", "a\nb", "<github:1>"))
    return set().union(*map(_outline, pages))


def _page_of_words(words: str) -> Node:
    """Return the page of two cassettes in which all texts are these words, replayed with a miss."""
    ask: dict[str, Any] = {
        "resultType": "input_required",
        "inputRequests": {words: form(words)},
    }

    properties = {words: {"title": words, "description": words, "enum": [words, words]}}
    ask["inputRequests"][words]["params"]["requestedSchema"] = {
        "properties": properties
    }
    call = changed(tool(words), "params", "arguments", to={words: words})
    script = (
        (call, ask),
        (
            retry(call, {words: {"action": "accept", "content": {words: words}}}),
            text(words),
        ),
        (tool("x"), {words: words, "isError": True}),
        (get("/x"), words.encode("utf-8", "replace")),
    )

    player = player_of(*script)
    missed(player, tool(words, env=words))
    first = loaded(cassette_of((CALL, text(words))), "first.json")

    return page_of(
        loaded(cassette_of(*script), f"{words}.json"), report_of_replay(player), first
    )


MEMBERS = [
    "a",
    "anyOf",
    "const",
    "enum",
    "enumNames",
    "items",
    "oneOf",
    "properties",
    "required",
    "title",
    "type",
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=3)
    ),
    max_leaves=20,
)


@settings(max_examples=40)
@given(JSON, JSON)
def test_whatever_a_server_says_is_a_form(schema: Any, content: Any) -> None:
    """No schema and no answer is an error, and each answered member is in a field."""
    fields = form_fields(schema, content)
    answers = content if isinstance(content, dict) else {}

    assert len(fields) >= len(answers)
    assert sum("not in the schema" in field.helps for field in fields) <= len(answers)


# Time


def test_calls_that_overlapped_stand_so_on_the_axis_of_their_session() -> None:
    """Each begins where it came, idle time is left out, and what it overlapped is said."""
    talk = recording(*((tool(name), text(name)) for name in "abc"))
    times = {1: (0, 100, 2), 2: (50, 150, 2), 3: (9_000, 9_050, 3)}
    changed = {}
    for interaction in talk.interactions:
        (exchange,) = interaction.exchanges
        began, ended, after = times[interaction.number]
        changed[exchange] = replace(
            exchange, started_ms=began, ended_ms=ended, ended_after=after
        )

    made = page_of(talk.with_exchanges(changed))
    bars = []
    for number in times:
        lane = made.by_id(f"i{number}").one(class_="lane")
        bar = lane.one("rect").attributes
        bars.append((bar["x"], bar["width"], lane.one("small").text))

    assert bars == [
        ("0.00%", "50.00%", "server 100 ms, beside #2"),
        ("25.00%", "50.00%", "server 100 ms, beside #1"),
        ("75.00%", "25.00%", "server 50 ms"),
    ]
