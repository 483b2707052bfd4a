"""Facts about a page as a whole."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

from builders import (
    Step,
    cassette_of,
    changed,
    get,
    loaded,
    missed,
    play,
    player_of,
    post,
    retry,
    tool,
    with_meta,
)
from harmless import HOSTILE
from hypothesis import example, given, settings
from hypothesis import strategies as st
from messages import CLIENT_KEY, NO, YES, asks, form, text
from pages import Node, assert_readable, assert_safe, parsed
from pushed_cassettes import branched

from mrtr_cassette.core.compare.cassettes import compared
from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.report.details import detailed
from mrtr_cassette.core.report.summary import ReplayReport, report_of_replay
from mrtr_cassette.core.view.differences import Earlier
from mrtr_cassette.core.view.page import START, Assets, View, page
from mrtr_cassette.shell.page_file import page_assets

ASSETS = Assets("p { color: red }", '"use strict";', page_assets().templates)
CALL = tool("deploy", env="prod")
BRANCHED: tuple[Step, ...] = (
    (CALL, asks("a", state="eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m")),
    (retry(CALL, {"a": YES}, state="eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"), text("done")),
    (retry(CALL, {"a": NO}, state="eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"), text("left")),
)


def page_of(
    recording: Cassette, replay: ReplayReport | None = None, first: Cassette | None = None
) -> Node:
    """Return the page of a recording, which is as every page must be."""
    earlier = None
    if first is not None:
        earlier = Earlier(detailed(first), compared(first, recording))
    html = "".join(page(View(detailed(recording), replay, earlier), ASSETS))
    assert html.startswith(START)
    made = parsed(html.removeprefix("<!doctype html>\n"))
    assert_safe(made)
    assert_readable(made)
    return made


def of_script(*script: Step, **options: Any) -> Node:
    """Return the page of a script."""
    return page_of(loaded(cassette_of(*script, **options), "cassettes/talk.json"))


def test_page_tells_what_was_recorded() -> None:
    """Name, origin, count, and how secrets are kept stand in its head."""
    made = of_script(*BRANCHED, redacts=True, seals_answers=True)

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


def test_page_has_landmarks_and_headings_in_order() -> None:
    """A reader who hears the page finds its parts: no level of headings is left out."""
    made = page_of(branched())

    for name in ("header", "search", "main", "footer"):
        assert made.one(name)
    levels = [int(each.name[1]) for each in made.every("h1", "h2", "h3", "h4", "h5")]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert made.one("html").attributes["lang"] == "en"


def test_what_needs_the_script_is_hidden_without_it() -> None:
    """The tools and the keys are shown by the script; all calls are there without."""
    made = of_script(*BRANCHED)

    assert "hidden" in made.one("search").attributes
    assert "hidden" in made.one(class_="keys").attributes
    assert len(list(made.every("li", class_="call"))) == 2


def test_each_session_is_a_section() -> None:
    """Calls of a session stand together, under its name and its client."""
    session = ("Mcp-Session-Id", "sess-0123456789abcdef")
    asked = with_meta(tool("a"), **{CLIENT_KEY: {"name": "agent", "version": "2"}})
    made = of_script((post(asked), text("x")), (post(tool("b"), session), text("x")))

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


def test_empty_cassette_is_a_page() -> None:
    """A cassette without anything says so."""
    assert "Nothing was recorded." in of_script().one("main").text


def test_replay_is_told_beside_the_recording() -> None:
    """What was missed stands in the nearest call, which is open; what was never played is marked."""
    script = ((CALL, text("x")), (tool("other"), text("y")))
    player = player_of(*script)
    play(player, CALL)
    missed(player, tool("deploy", env="test"))
    missed(player, get("/nowhere"))
    made = page_of(loaded(cassette_of(*script)), report_of_replay(player))

    chips = [each.text for each in made.one("header").every(class_="chip")]
    assert chips[-2:] == ["replay played 1 of 2", "missed 2 requests"]
    nearest = made.by_id("i1")
    assert "open" in nearest.attributes
    assert nearest.one("article", class_="miss").attributes["id"] == "m1"
    assert [each.text for each in nearest.every("td")] == ['"prod"', '"test"']
    assert "never played" in made.by_id("i2").text


def test_two_cassettes_are_one_page() -> None:
    """The page of the later one notes what differs, and has what only the first one has."""
    old = (*BRANCHED, (tool("gone"), asks("b")))
    new = (*BRANCHED[:2], (BRANCHED[2][0], text("changed")))
    first = loaded(cassette_of(*old), "old/talk.json")
    made = page_of(loaded(cassette_of(*new), "new/other.json"), first=first)

    assert made.one("h1").text == "talk.json and other.json"
    assert "1 of 2 calls as in talk.json" in made.one("header").text
    assert "open" in made.by_id("i2").attributes
    assert made.by_id("c2").text.startswith("Differs from #2 of the first cassette")
    assert [each.text for each in made.one("main").every("h2")] == [
        "Differences", "Calls without a session", "Only in old/talk.json",
    ]  # fmt: skip
    assert made.by_id("o3").name == "details"
    assert made.by_id("o3t1")


MARKUP = st.sampled_from(["<script>", "</", "<!--", "-->", "&lt;", '"', "'", ">", "{{ 1 }}", "]]>"])
TEXTS = st.lists(st.text(max_size=5) | MARKUP, max_size=6).map("".join)


@settings(max_examples=50, deadline=None)
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
