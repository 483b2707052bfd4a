"""Asking a person, as transcripts: what is shown, what is typed, and the answer that comes of it."""

from __future__ import annotations

from typing import Any

import pytest

from mrtr_cassette.core.answers.dialogue import OpenUrl, Prompt, ReadFile, dialogue
from mrtr_cassette.core.protocol.dialect import InputRequest

OPEN = "(not over)"


def transcript(request: InputRequest, *typed: str | None, **files: str) -> tuple[list[str], Any]:
    """Return what is shown with what is typed in it, and the answer or `OPEN`."""
    steps, shown, left = dialogue("plan", request), [], [*typed]
    reply: str | None = None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as ended:
            assert not left, f"never read: {left}"
            return shown, ended.value
        match step:
            case Prompt(lines, prompt):
                shown += lines
                if not left:
                    return [*shown, prompt], OPEN
                reply = left.pop(0)
                shown.append(f"{prompt}{reply}")
            case ReadFile(path):
                reply = files.get(path)
            case OpenUrl(url):
                shown.append(f"(opens {url})")


def form(*required: str, **fields: Any) -> InputRequest:
    """Return a form with these fields."""
    schema = {"type": "object", "properties": fields, "required": list(required)}
    return InputRequest("form", "Which?", {"requestedSchema": schema})


def value(*, required: bool = True) -> InputRequest:
    """Return a request for a bare number, as the array dialect has it."""
    item = {"id": "plan", "kind": "number", "required": required}
    return InputRequest("number", "How many?", item, takes_value=True)


def accepted(**content: Any) -> Any:
    """Return an accepted form."""
    return {"action": "accept", "content": content}


TEXT = {"type": "string"}
ENV = {"type": "string", "enum": ["dev", "prod"], "enumNames": ["Test", "Live"]}
TAGS = {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}, {"const": "b"}]}}
URL = InputRequest("url", "Sign in", {"url": "https://example.com/in"})
ROOTS = InputRequest("roots", "")
TALK = [
    {"role": "user", "content": {"type": "text", "text": "Sum up"}},
    {"role": "user", "content": {"type": "image"}},
    "odd",
]
SAMPLING = InputRequest("sampling", "", {"systemPrompt": "Be short", "messages": TALK})
FORM_ASKED = "The server asks for plan (form): Which?"
URL_ASKED = ["The server asks for plan (url): Sign in", "  https://example.com/in"]
URL_PROMPT = "done there [y, :open, :decline, :cancel]: "
SAMPLING_ASKED = [
    "The server asks for plan (sampling)",
    "  system: Be short",
    "  user: Sum up",
    '  user: {"type":"image"}',
    "  paste the text, or the result as JSON, then a line with a dot; or @FILE",
]
PASTE_ROOTS = "  paste one path or file: URI a line, then a line with a dot; or @FILE"


@pytest.mark.parametrize(
    ("field", "prompt", "line", "value"),
    [
        (TEXT, "it* [text]: ", "a b", "a b"),
        (TEXT, "it* [text]: ", ":empty", ""),
        (TEXT, "it* [text]: ", "::decline", ":decline"),
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
    shown, answer = transcript(form("it", it=field), line)

    assert shown[-1] == f"{prompt}{line}"
    assert answer == accepted(it=value)


@pytest.mark.parametrize(
    ("request_", "typed", "shown", "answer"),
    [
        (
            InputRequest(
                "form", "Sure?\x1b", form(it={**ENV, "description": "Where\x1b[2J to"}).definition
            ),
            ["1"],
            [
                "The server asks for plan (form): Sure?\\x1b",
                "  Where\\x1b[2J to",
                "  1) dev: Test",
                "  2) prod: Live",
                "it [number or value, optional]: 1",
            ],
            accepted(it="dev"),
        ),
        (
            form("it", it={"type": "integer", "minimum": 2}),
            ["", "x", "1", "2"],
            [
                FORM_ASKED,
                "it* [whole number from 2]: ",
                "this is required",
                "it* [whole number from 2]: x",
                "is a text, and not a whole number",
                "it* [whole number from 2]: 1",
                "is not at least 2",
                "it* [whole number from 2]: 2",
            ],
            accepted(it=2),
        ),
        (
            form(a=TEXT, b={"type": "string", "default": "x"}),
            ["", ""],
            [FORM_ASKED, "a [text, optional]: ", 'b [text, default "x", optional]: '],
            accepted(b="x"),
        ),
        (
            form("b", a={}),
            ["x"],
            [
                FORM_ASKED,
                "a [text, optional]: x",
                "/b is required and missing",
                "accept [y, :decline, :cancel]: ",
            ],
            OPEN,
        ),
        (
            form(),
            ["", "n", "y"],
            [FORM_ASKED, *(f"accept [y, :decline, :cancel]: {line}" for line in ("", "n", "y"))],
            accepted(),
        ),
        (
            URL,
            ["", "no", ":open", "y"],
            [
                *URL_ASKED,
                f"{URL_PROMPT}",
                f"{URL_PROMPT}no",
                f"{URL_PROMPT}:open",
                "(opens https://example.com/in)",
                f"{URL_PROMPT}y",
            ],
            {"action": "accept"},
        ),
        (
            InputRequest("url", "", {"url": "file:///etc/passwd"}),
            [":open"],
            [
                "The server asks for plan (url)",
                "  file:///etc/passwd",
                f"{URL_PROMPT}:open",
                "only URLs of http and https are opened",
                URL_PROMPT,
            ],
            OPEN,
        ),
        (
            SAMPLING,
            ['{"role": "assistant"}', ".", "@none", "@answer"],
            [
                *SAMPLING_ASKED,
                '> {"role": "assistant"}',
                "> .",
                "has no `content` that is an object or a list",
                "> @none",
                "this file can't be read",
                "> @answer",
            ],
            {"role": "assistant", "content": {}, "model": "m"},
        ),
        (
            ROOTS,
            ["a", ".", "/a", "file:///b", "", "."],
            [
                "The server asks for plan (roots)",
                PASTE_ROOTS,
                "> a",
                "> .",
                "has a root without a `uri` that begins with file://",
                "> /a",
                "> file:///b",
                "> ",
                "> .",
            ],
            {"roots": [{"uri": "file:///a"}, {"uri": "file:///b"}]},
        ),
        (
            InputRequest("tasks/ask", ""),
            ["x", ".", '{"a": 1}', "."],
            [
                "The server asks for plan (tasks/ask)",
                "  paste JSON, then a line with a dot; or @FILE",
                "> x",
                "> .",
                "this is no JSON object",
                '> {"a": 1}',
                "> .",
            ],
            {"a": 1},
        ),
        (
            value(),
            ["", "x", "5"],
            [
                "The server asks for plan (number): How many?",
                "plan* [number]: ",
                "this is required",
                "plan* [number]: x",
                "is a text, and not a number",
                "plan* [number]: 5",
            ],
            {"value": 5},
        ),
    ],
    ids=[
        "choices are shown with numbers and titles, and nothing steers the terminal",
        "what does not fit is asked again",
        "an empty line takes the default, or leaves out what is optional",
        "the whole content is checked before it is sent",
        "a form without fields is confirmed",
        "a URL is opened as often as somebody says so",
        "other URLs are not opened",
        "sampling is read from a file",
        "roots are paths or URIs",
        "unknown kinds are answered by JSON",
        "bare values have their kind",
    ],
)
def test_dialogue(request_: InputRequest, typed: list[str], shown: list[str], answer: Any) -> None:
    """Whatever is typed, the answer that comes of it fits."""
    file = '{"role": "assistant", "content": {}, "model": "m"}'

    assert transcript(request_, *typed, answer=file) == (shown, answer)


def test_pasted_text_is_a_sampled_message() -> None:
    """A text that is no JSON becomes the model's message."""
    _, answer = transcript(SAMPLING, "All", "fine", ".")

    assert answer["content"] == {"type": "text", "text": "All\nfine"}


@pytest.mark.parametrize(
    ("request_", "before", "decline"),
    [
        (form("a", "b", a=TEXT, b=TEXT), [], {"action": "decline"}),
        (form("a", "b", a=TEXT, b=TEXT), ["x"], {"action": "decline"}),
        (form(), [], {"action": "decline"}),
        (URL, [], {"action": "decline"}),
        (SAMPLING, [], None),
        (ROOTS, [], None),
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
    assert transcript(value(required=False), "")[1] is None


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (form("a", a={}), "an empty line takes the default"),
        (URL, ":open shows the URL"),
        (SAMPLING, "a line with a dot ends the text"),
    ],
)
def test_help_says_what_can_be_typed(request_: InputRequest, words: str) -> None:
    """Each kind has its own."""
    shown, answer = transcript(request_, ":help")

    assert any(line.startswith(words) for line in shown)
    assert answer == OPEN
