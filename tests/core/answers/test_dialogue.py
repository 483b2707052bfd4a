"""Asking a person, as transcripts: what is shown, what is typed, and the answer that comes of it."""

from __future__ import annotations

from typing import Any

import pytest
from goldens import DATA, read_case
from messages import compact

from mrtr_cassette.core.answers.forms import dialogue_with_person
from mrtr_cassette.core.protocol.dialect import InputRequest

OPEN = "(not over)"


def transcript(request: InputRequest, *typed: str | None) -> tuple[list[str], Any]:
    """Return what is shown with what is typed in it, and the answer or `OPEN`."""
    steps = dialogue_with_person("plan", request)
    shown = []
    left = [*typed]
    reply: str | None = None
    while True:
        try:
            lines, text = steps.send(reply)
        except StopIteration as ended:
            assert not left, f"never read: {left}"
            return shown, ended.value

        shown += lines
        if not left:
            return [*shown, text], OPEN

        reply = left.pop(0)
        shown.append(f"{text}{reply}")


def form(*required: str, **fields: Any) -> InputRequest:
    """Return a form with these fields."""
    schema = {"type": "object", "properties": fields, "required": list(required)}
    return InputRequest("form", "Which?", {"requestedSchema": schema})


def value(*, required: bool = True) -> InputRequest:
    """Return a request for a bare number, as the array dialect has it."""
    item = {"id": "plan", "kind": "number", "required": required}
    return InputRequest("number", "How many?", item, takes_bare_value=True)


def accepted(**content: Any) -> Any:
    """Return an accepted form."""
    return {"action": "accept", "content": content}


TEXT = {"type": "string"}
ENV = {"type": "string", "enum": ["dev", "prod"], "enumNames": ["Test", "Live"]}
TAGS = {
    "type": "array",
    "items": {"anyOf": [{"const": "a", "title": "A"}, {"const": "b"}]},
}
URL = InputRequest("url", "Sign in", {"url": "https://example.com/in"})


@pytest.mark.parametrize(
    ("field", "prompt", "line", "value"),
    [
        (TEXT, "it* [a text]: ", "a b", "a b"),
        ({"type": "string", "title": "Name"}, "Name (it)* [a text]: ", "a", "a"),
        ({"type": "integer", "minimum": 1}, "it* [a whole number]: ", "5", 5),
        ({"type": "boolean"}, "it* [true or false]: ", "n", False),
        (
            {"type": "boolean", "default": True},
            "it* [true or false, default true]: ",
            "",
            True,
        ),
        (
            {"type": "string", "format": "email"},
            "it* [e-mail address]: ",
            "a@b.c",
            "a@b.c",
        ),
        (ENV, "it* [number or value]: ", "2", "prod"),
        (ENV, "it* [number or value]: ", "Live", "prod"),
        (TAGS, "it* [a list]: ", "1, b", ["a", "b"]),
        (TAGS, "it* [a list]: ", ",", []),
    ],
)
def test_line_is_read_as_its_field_has_it(
    field: Any, prompt: str, line: str, value: Any
) -> None:
    """A prompt tells the type, its default and that the field is required."""
    shown, answer = transcript(form("it", it=field), line)

    assert shown[-1] == f"{prompt}{line}"
    assert answer == accepted(it=value)


DIALOGUES: dict[str, tuple[InputRequest, list[str | None]]] = {
    "choices are shown with numbers and titles, and nothing steers the terminal": (
        InputRequest(
            "form",
            "Sure?\x1b",
            form(it={**ENV, "description": "Where\x1b[2J to"}).definition,
        ),
        ["1"],
    ),
    "what does not fit is asked again": (
        form("it", it={"type": "integer", "minimum": 2}),
        ["", "x", "1", "2"],
    ),
    "an empty line takes the default, or leaves out what is optional": (
        form(a=TEXT, b={"type": "string", "default": "x"}),
        ["", ""],
    ),
    "a form without fields is confirmed": (form(), ["", "n", "y"]),
    "a URL is shown until somebody says that it was visited": (URL, ["", "no", "y"]),
    "bare values have their kind": (value(), ["", "x", "5"]),
    "bare values may be optional": (value(required=False), [""]),
}


@pytest.mark.parametrize("name", DIALOGUES)
def test_dialogue(name: str, *, updates_goldens: bool) -> None:
    """Whatever is typed, the answer that comes of it fits."""
    request, typed = DIALOGUES[name]
    shown, answer = transcript(request, *typed)
    said = "\n".join(
        [*shown, f"=> {answer if answer is OPEN else compact(answer).decode()}", ""]
    )

    read_case(DATA / "dialogues.case").expect(name, said, updates=updates_goldens)


@pytest.mark.parametrize(
    ("request_", "before", "decline"),
    [
        (form("a", "b", a=TEXT, b=TEXT), [], {"action": "decline"}),
        (form("a", "b", a=TEXT, b=TEXT), ["x"], {"action": "decline"}),
        (form(), [], {"action": "decline"}),
        (URL, [], {"action": "decline"}),
        (value(required=False), [], None),
    ],
)
def test_question_can_be_refused_at_each_step(
    request_: InputRequest, before: list[str], decline: Any
) -> None:
    """By a command, where its answer has that form; the end of all lines is no answer."""
    cancel = None if decline is None else {"action": "cancel"}

    assert transcript(request_, *before, ":decline")[1] == decline
    assert transcript(request_, *before, ":cancel")[1] == cancel
    assert transcript(request_, *before, None)[1] is None
