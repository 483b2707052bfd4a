"""Facts about asking a person: what is shown, what a line means, and how a question is refused."""

from __future__ import annotations

from typing import Any

import pytest

from mrtr_cassette.core.answers.prompts import Dialogue, dialogue_for
from mrtr_cassette.core.protocol.dialect import InputRequest


def form(*required: str, **fields: Any) -> InputRequest:
    """Return a form with these fields."""
    schema = {"type": "object", "properties": fields, "required": list(required)}
    return InputRequest("form", "Which?", {"requestedSchema": schema})


def typed(request: InputRequest, *lines: str | None) -> Dialogue:
    """Return a dialogue after these lines."""
    dialogue = dialogue_for("plan", request)
    for line in lines:
        assert not dialogue.is_over
        dialogue.line(line)
    return dialogue


def accepted(**content: Any) -> Any:
    """Return an accepted form."""
    return {"action": "accept", "content": content}


ENV = {"type": "string", "enum": ["dev", "prod"], "enumNames": ["Test", "Live"]}
TAGS = {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}, {"const": "b"}]}}
URL = InputRequest("url", "Sign in", {"url": "https://example.com/in"})
SAMPLING = InputRequest(
    "sampling",
    "",
    {
        "systemPrompt": "Be short",
        "messages": [
            {"role": "user", "content": {"type": "text", "text": "Sum up"}},
            {"role": "user", "content": {"type": "image"}},
            "odd",
        ],
    },
)
ROOTS = InputRequest("roots", "")


@pytest.mark.parametrize(
    ("field", "prompt", "line", "value"),
    [
        ({"type": "string"}, "it* [text]: ", "a b", "a b"),
        ({"type": "string"}, "it* [text]: ", ":empty", ""),
        ({"type": "string"}, "it* [text]: ", "::decline", ":decline"),
        ({"type": "string", "title": "Name"}, "Name (it)* [text]: ", "a", "a"),
        ({"type": "integer", "minimum": 1}, "it* [whole number from 1]: ", "5", 5),
        ({"type": "number", "maximum": 9}, "it* [number up to 9]: ", "5", 5),
        ({"type": "boolean"}, "it* [y or n]: ", "n", False),
        ({"type": "boolean", "default": True}, "it* [y or n, default true]: ", "", True),
        ({"type": "string", "format": "email"}, "it* [e-mail address]: ", "a@b.c", "a@b.c"),
        ({"type": "string", "minLength": 2}, "it* [text of at least 2]: ", "ab", "ab"),
        (ENV, "it* [number or value]: ", "2", "prod"),
        (ENV, "it* [number or value]: ", "prod", "prod"),
        (ENV, "it* [number or value]: ", "Live", "prod"),
        ({"enum": ["2", "1"]}, "it* [number or value]: ", "1", "1"),
        (TAGS, "it* [several, with commas between]: ", "1, b", ["a", "b"]),
        (TAGS, "it* [several, with commas between]: ", ",", []),
    ],
)
def test_line_is_read_as_its_field_has_it(field: Any, prompt: str, line: str, value: Any) -> None:
    """A prompt tells the type, its bounds, its default and that the field is required."""
    dialogue = typed(form("it", it=field))
    assert dialogue.prompt == prompt
    dialogue.line(line)
    assert dialogue.is_over
    assert dialogue.answer == accepted(it=value)


def test_choices_and_descriptions_are_shown() -> None:
    """Choices come with numbers and titles; what would steer a terminal is escaped."""
    field = {**ENV, "description": "Where\x1b[2J to"}
    dialogue = typed(InputRequest("form", "Sure?\x1b", form(it=field).definition))
    assert dialogue.said == [
        "The server asks for plan (form): Sure?\\x1b",
        "  Where\\x1b[2J to",
        "  1) dev: Test",
        "  2) prod: Live",
    ]


def test_what_does_not_fit_is_asked_again() -> None:
    """A person is told what is wrong, and the field stays."""
    dialogue = typed(form("it", it={"type": "integer", "minimum": 2}), "", "x", "1", "2")
    assert dialogue.said[1:] == [
        "this is required",
        "is a text, and not a whole number",
        "is not at least 2",
    ]
    assert dialogue.answer == accepted(it=2)


def test_optional_fields_are_left_out() -> None:
    """An empty line leaves out what has no default."""
    request = form(a={"type": "string"}, b={"type": "string", "default": "x"})
    dialogue = typed(request, "")
    assert dialogue.prompt == 'b [text, default "x", optional]: '
    dialogue.line("")
    assert dialogue.answer == accepted(b="x")


def test_whole_content_is_checked() -> None:
    """What only the form as a whole forbids is told, and nothing is sent."""
    schema = {"type": "object", "properties": {"a": {}}, "minProperties": 1, "required": ["b"]}
    dialogue = typed(InputRequest("form", "", {"requestedSchema": schema}), "x")
    assert dialogue.answer is None
    assert dialogue.said[-1] == "/b is required and missing"


@pytest.mark.parametrize("command", ["decline", "cancel"])
def test_question_can_be_refused_at_each_step(command: str) -> None:
    """After any number of fields; a URL and an empty form too."""
    request = form("a", "b", a={"type": "string"}, b={"type": "string"})
    for lines in ([], ["x"]):
        assert typed(request, *lines, f":{command}").answer == {"action": command}
    assert typed(URL, f":{command}").answer == {"action": command}
    assert typed(form(), f":{command}").answer == {"action": command}


def test_form_without_fields_is_confirmed() -> None:
    """Only a yes accepts it."""
    dialogue = typed(form(), "", "n")
    assert not dialogue.is_over
    dialogue.line("y")
    assert dialogue.answer == accepted()


def test_end_of_lines_answers_nothing() -> None:
    """Whatever has been typed before."""
    for request in (form("a", a={}), URL, SAMPLING, ROOTS):
        dialogue = typed(request, None)
        assert dialogue.is_over
        assert dialogue.answer is None


def test_url_is_shown_and_opened_on_request_only() -> None:
    """It is opened as often as somebody says so, and accepted by a yes."""
    dialogue = typed(URL, "", "no")
    assert dialogue.said[1] == "  https://example.com/in"
    assert dialogue.url is None
    dialogue.line(":open")
    assert dialogue.url == "https://example.com/in"
    dialogue.line("y")
    assert dialogue.answer == {"action": "accept"}
    unsafe = typed(InputRequest("url", "", {"url": "file:///etc/passwd"}), ":open")
    assert unsafe.url is None
    assert unsafe.said[-1] == "only URLs of http and https are opened"
    assert typed(InputRequest("url", "", {"url": 5}), ":open").url is None


def test_help_says_what_can_be_typed() -> None:
    """Each kind has its own."""
    for request in (form("a", a={}), URL, SAMPLING):
        dialogue = typed(request)
        shown = len(dialogue.said)
        dialogue.line(":help")
        assert dialogue.said[shown:] == list(dialogue.help)
        assert not dialogue.is_over


def test_sampling_is_pasted_or_read_from_a_file() -> None:
    """The prompt shows what the model is asked; a text becomes a result, JSON is one."""
    dialogue = typed(SAMPLING, "All", "fine", ".")
    assert dialogue.said[1:4] == [
        "  system: Be short",
        "  user: Sum up",
        '  user: {"type":"image"}',
    ]
    assert dialogue.answer["content"] == {"type": "text", "text": "All\nfine"}
    dialogue = typed(SAMPLING, "@answer.json")
    assert dialogue.file == "answer.json"
    dialogue.file_read(None)
    assert dialogue.said[-1] == "this file can't be read"
    dialogue.line("@answer.json")
    dialogue.file_read('{"role": "assistant", "content": {}, "model": "m"}')
    assert dialogue.answer == {"role": "assistant", "content": {}, "model": "m"}
    refused = typed(SAMPLING, '{"role": "assistant"}', ".")
    assert not refused.is_over
    assert refused.said[-1] == "has no `content` that is an object or a list"
    assert typed(SAMPLING, ":cancel").answer is None


def test_roots_are_paths_or_uris() -> None:
    """One a line; other paths are no roots."""
    dialogue = typed(ROOTS, "/a", "file:///b", "", ".")
    assert dialogue.answer == {"roots": [{"uri": "file:///a"}, {"uri": "file:///b"}]}
    dialogue = typed(ROOTS, "a", ".")
    assert dialogue.said[-1] == "has a root without a `uri` that begins with file://"
    assert not dialogue.is_over


def test_unknown_kinds_are_answered_by_json() -> None:
    """A person can give what this version doesn't know."""
    dialogue = typed(InputRequest("tasks/ask", ""), "x", ".", '{"a": 1}', ".")
    assert dialogue.said[-1] == "this is no JSON object"
    assert dialogue.answer == {"a": 1}


def test_bare_values_have_their_kind() -> None:
    """In the array dialect an optional value can be left out, and none can be declined."""

    def request(*, required: bool = True) -> InputRequest:
        item = {"id": "plan", "kind": "number", "required": required}
        return InputRequest("number", "How many?", item, takes_value=True)

    dialogue = typed(request(), "", "x", "5")
    assert dialogue.prompt == "plan* [number]: "
    assert dialogue.said[1:] == ["this is required", "is a text, and not a number"]
    assert dialogue.answer == {"value": 5}
    assert typed(request(required=False), "").answer is None
    assert typed(request(), ":decline").is_over
