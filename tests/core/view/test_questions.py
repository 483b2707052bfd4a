"""Facts about turns on a page."""

from __future__ import annotations

from typing import Any

import pytest
from harmless import HOSTILE
from pages import Node, assert_readable, parsed

from mrtr_cassette.core.protocol.dialect import ARRAY, InputRequest, input_request
from mrtr_cassette.core.report.inspection import Turn
from mrtr_cassette.core.view.questions import turn_section
from mrtr_cassette.core.wire.jsonbytes import canonical

UNANSWERED = object()


def drawn(
    request: InputRequest, answer: Any = UNANSWERED, dialect: str | None = "2026-07-28"
) -> Node:
    """Return the question of a turn, with its answer."""
    answers = None if answer is UNANSWERED else {"k": canonical(answer)}
    turn = Turn({"k": request}, answers, dialect, has_request_state=True)
    section = parsed(turn_section(turn, "i1t1", 1, None))
    assert_readable(section)
    return section.one("fieldset")


def form(schema: Any, **params: Any) -> InputRequest:
    """Return a form elicitation."""
    return input_request(
        "elicitation/create", {"message": "Sure?", "requestedSchema": schema} | params
    )


SCHEMA = {
    "properties": {
        "name": {"type": "string", "title": "Name", "description": "Yours."},
        "size": {"enum": ["s", "m"]},
        "many": {"enum": list("abcdefgh")},
        "some": {"type": "array", "items": {"enum": list("abcdefgh")}},
        "both": {"type": "array", "items": {"enum": ["a", "b"]}},
        "ok": {"type": "boolean"},
    },
    "required": ["name"],
}


def test_form_has_the_answer_in_it() -> None:
    """Each kind of field is drawn by a control of its own, with what was answered in it."""
    content = {
        "name": "Ada",
        "size": "m",
        "many": "c",
        "some": ["a", "h"],
        "both": ["b"],
        "ok": True,
    }
    question = drawn(form(SCHEMA), {"action": "accept", "content": content})

    assert question.one("legend").text == "k asks for a form"
    assert question.one(class_="message").text == "Sure?"
    assert question.by_id("i1t1q1f1").attributes["value"] == "Ada"
    radios = [each for each in question.every("input") if each.attributes["type"] == "radio"]
    assert ["checked" in each.attributes for each in radios] == [False, True]
    selected = [each.text for each in question.every("option") if "selected" in each.attributes]
    assert selected == ["c", "a", "h"]
    assert "checked" in question.by_id("i1t1q1f6").attributes
    assert question.one(class_="outcome").text == "Accepted"
    assert "accept" in question.attributes["class"]
    assert question.one(class_="description").text == "Yours."
    assert "required" in [each.text for each in question.every("small")]


def test_nothing_can_be_filled_in() -> None:
    """The form and each of its fields are disabled."""
    question = drawn(form(SCHEMA), {"action": "accept", "content": {"name": "a\nb"}})

    assert "disabled" in question.attributes
    controls = list(question.every("input", "select", "textarea"))
    assert all("disabled" in each.attributes for each in controls)
    # A browser takes away the line end that stands first.
    assert question.one("textarea").raw_text == "\na\nb"


@pytest.mark.parametrize(
    ("answer", "outcome", "marked"),
    [
        ({"action": "decline"}, "Declined", "decline"),
        ({"action": "cancel"}, "Cancelled", "cancel"),
        (UNANSWERED, "No answer", "unanswered"),
        ({"error": {"code": -1}}, "Refused with an error", "answered"),
        ({"value": 5}, "Answered", "answered"),
        ("text", "Answered", "answered"),
        ({"odd": 1}, "Answered", "answered"),
    ],
)
def test_outcome_of_a_question_is_told(answer: Any, outcome: str, marked: str) -> None:
    """However a question was answered, the form says so, and nothing of the answer is lost."""
    question = drawn(form(SCHEMA), answer)

    assert question.one(class_="outcome").text == outcome
    assert marked in question.attributes["class"].split()


def test_nothing_chosen_of_many_is_told() -> None:
    """A list of choices of which none was taken doesn't look as if its first one was."""
    question = drawn(form({"properties": {"x": {"enum": list("abcdefgh")}}}), {"action": "decline"})

    selected = [each.text for each in question.every("option") if "selected" in each.attributes]
    assert selected == ["(nothing chosen)"]


def test_what_is_not_in_the_schema_or_redacted_is_told() -> None:
    """A member without a definition and a placeholder are noted beside their field."""
    question = drawn(form({}), {"action": "accept", "content": {"token": "<github:1>"}})

    assert question.one("small").text == "not in the schema, redacted"
    assert question.one("small").attributes["class"] == "redacted"


def test_url_is_text() -> None:
    """A URL question shows where it leads, and doesn't lead there."""
    params = {"mode": "url", "message": "Pay", "url": "javascript:alert(1)"}
    question = drawn(input_request("elicitation/create", params), {"action": "accept"})

    assert question.one("code").text == "javascript:alert(1)"
    assert not list(question.every("a"))


def test_sampling_is_a_conversation() -> None:
    """System prompt, messages and the model's result are told one after another."""
    params = {
        "systemPrompt": "Be brief.",
        "messages": [{"role": "user", "content": {"type": "text", "text": "Why?"}}, "odd"],
        "maxTokens": 9,
    }
    answer = {"role": "assistant", "model": "m1", "content": {"type": "text", "text": "So."}}
    question = drawn(input_request("sampling/createMessage", params), answer)

    assert [each.text for each in question.every(class_="bubble")] == [
        "systemBe brief.",
        "userWhy?",
        "assistantmodel: m1So.",
    ]
    assert question.one("details").one("pre").text == '{ "maxTokens": 9 }'
    sealed = drawn(input_request("sampling/createMessage", {}), "mrtr-answer:" + "a" * 64)
    assert sealed.one("mark").attributes["class"] == "sealed"


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ({"roots": [{"uri": "file:///a", "name": "a"}, {"uri": "file:///b"}]}, "a file:///a root"),
        ({"roots": []}, "The client has none."),
        ({"roots": 5}, '{ "roots": 5 }'),
        (UNANSWERED, "No answer"),
    ],
)
def test_roots_are_a_list(answer: Any, shown: str) -> None:
    """Each root has its name and URI."""
    question = drawn(input_request("roots/list", {}), answer)

    words = " ".join(part.text for part in question.every("dt", "dd", "p", "pre"))
    assert shown in words


def test_unknown_questions_are_shown_as_they_are() -> None:
    """A kind of question that nobody knows is JSON."""
    question = drawn(input_request("tasks/odd", {"x": 1}), {"y": 2})

    assert [each.text for each in question.every("pre")] == ['{ "x": 1 }', '{ "y": 2 }']


def test_array_dialect_is_a_field() -> None:
    """A question of the array dialect is a form with one field."""
    request = InputRequest("string", "Name?", {"id": "k", "kind": "string", "description": "Name?"})
    question = drawn(request, {"value": "Ada"}, ARRAY)

    assert question.by_id("i1t1q1f1").attributes["value"] == "Ada"


def test_turn_tells_how_it_was_asked_and_answered() -> None:
    """How the server asked, its state, the time and what was never asked are told."""
    pushed = Turn({"k": form({})}, {"k": "{}", "z": "1"}, None, False, "push")
    section = parsed(turn_section(pushed, "i2t1", 1, 8200))
    chips = [each.text for each in section.every("span", class_="chip")]
    assert chips == ["via: push", "answered after 8.2 s"]
    assert section.one("section").attributes["id"] == "i2t1"
    assert next(section.every("summary")).text == "Answered without being asked"

    ruled = Turn({"k": form({})}, {"k": "{}"}, "2026-07-28", False, answered_by="rule 1")
    chips = [each.text for each in parsed(turn_section(ruled, "i2t1", 1, 2)).every(class_="chip")]
    assert chips == ["via: result", "by the recording proxy: rule 1", "answered after 2 ms"]

    alone = parsed(turn_section(Turn({}, None, ARRAY, True), "i2t1", 1, None))
    chips = [each.text for each in alone.every("span", class_="chip")]
    assert chips == ["via: result", "request state", "array dialect", "not answered"]
    assert "nothing but the same call again" in alone.text


def test_hostile_questions_are_inert() -> None:
    """Whatever stands in a question is text."""
    words = f"<script>alert(1)</script>{HOSTILE}"
    schema = {"properties": {words: {"title": words, "description": words, "enum": [words]}}}
    question = drawn(form(schema, message=words), {"action": "accept", "content": {words: words}})

    assert not list(question.every("script"))
    assert "\x1b" not in question.raw_text
