"""Asking a person: what is shown, and what each line that is typed means."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.answers.checking import (
    ELICITATIONS,
    FORMATS,
    elicited,
    fields_of,
    is_required,
    json_or_text,
    problem_of,
    problem_of_value,
    required_in,
    sampled,
    text_of,
    titled_choices,
    type_of_text,
    value_of_text,
    value_schema,
)
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.core.wire.pointers import ABSENT
from mrtr_cassette.errors import printable

_WORDS: Final = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "y or n",
    "array": "several, with commas between",
    "object": "JSON",
}
_ACTION_OF: Final = {":decline": "decline", ":cancel": "cancel"}
_HELP: Final = "  :decline or :cancel refuses it; an empty line takes the default or leaves it out"


class Prompt(NamedTuple):
    """Lines are shown, then a line is read after `text`; None is sent at the end of all lines."""

    lines: tuple[str, ...]
    text: str


Steps = Generator[Prompt, str | None, Any]
"""What is done with a person, step by step; it returns the answer, or None where there is none."""


class _EndedError(Exception):
    """The person ends the question, with this action or none."""

    def __init__(self, action: str | None) -> None:
        super().__init__()
        self.action = action


def dialogue(key: str, request: InputRequest) -> Steps:
    """Ask a person one request for input, line by line."""
    message = f": {request.message}" if request.message else ""
    lines = [f"The server asks for {key} ({request.kind}){message}"]
    is_elicitation = request.kind in ELICITATIONS and not request.takes_value
    try:
        if request.takes_value:
            required = is_required(request)
            value = yield from _value(lines, key, value_schema(request), is_required=required)
            return None if value is ABSENT else {"value": value}
        return (yield from (_elicited if is_elicitation else _pasted)(request, lines))
    except _EndedError as ended:
        return elicited(ended.action) if ended.action and is_elicitation else None


def _typed(lines: Iterable[str], prompt: str) -> Generator[Prompt, str | None, str]:
    line = yield Prompt(tuple(map(printable, lines)), printable(prompt))
    if line is None or line in _ACTION_OF:
        raise _EndedError(None if line is None else _ACTION_OF[line])
    return line


def _elicited(request: InputRequest, lines: list[str]) -> Steps:
    """Ask for each field of a form; a URL and a form without any are just confirmed."""
    fields = fields_of(request)
    if not fields:
        lines += [f"  {request.definition['url']}"] if "url" in request.definition else []
        line = ""
        while value_of_text(line, {"type": "boolean"}) is not True:
            line = yield from _typed(lines, "accept [y, :decline, :cancel]: ")
            lines = []
        return elicited("accept", None if request.kind == "url" else {})
    content = {}
    lines.append(_HELP)
    for name, schema in fields.items():
        required = name in required_in(request)
        read_by = schema if isinstance(schema, Mapping) else {}
        value = yield from _value(lines, name, read_by, is_required=required)
        lines = []
        if value is not ABSENT:
            content[name] = value
    return elicited("accept", content)


def _pasted(request: InputRequest, lines: list[str]) -> Steps:
    """Ask for a result as JSON, which for sampling may be the model's text alone."""
    if request.definition:
        lines.append(f"  {canonical(dict(request.definition))}")
    what = "the text, or the result as JSON" if request.kind == "sampling" else "the result as JSON"
    lines.append(f"  paste {what}, then a line with a dot")
    while True:
        pasted: list[str] = []
        while (line := (yield from _typed(lines, "> "))) != ".":
            pasted.append(line)
            lines = []
        text = "\n".join(pasted)
        answer = json_or_text(text)
        if request.kind == "sampling" and not isinstance(answer, dict):
            answer = sampled(text)
        problem = problem_of(request, answer)
        if problem is None:
            return answer
        lines = [problem]


def _value(
    lines: Sequence[str], name: str, schema: Mapping[str, Any], *, is_required: bool
) -> Steps:
    """Ask for a value until it fits; an optional one without a default may be `ABSENT`."""
    title, description = schema.get("title"), schema.get("description")
    choices, kind = titled_choices(schema), type_of_text(schema)
    shown = [*lines, *([f"  {description}"] if isinstance(description, str) else [])]
    for number, (value, named) in enumerate(choices, start=1):
        spelled = text_of(value)
        shown.append(f"  {number}) {spelled if named == spelled else f'{spelled}: {named}'}")
    about = FORMATS.get(str(schema.get("format")), (_WORDS[kind],))[0]
    about = "number or value" if choices and kind != "array" else about
    about += f", default {canonical(schema['default'])}" if "default" in schema else ""
    about += "" if is_required else ", optional"
    prompt = f"{title} ({name})" if isinstance(title, str) else name
    while True:
        line = yield from _typed(shown, f"{prompt}{'*' if is_required else ''} [{about}]: ")
        value = _read(line, schema, choices) if line else schema.get("default", ABSENT)
        problem: str | None = None
        if value is not ABSENT:
            problem = problem_of_value(value, schema)
        elif is_required:
            problem = "this is required"
        if problem is None:
            return value
        shown = [problem]


def _read(line: str, schema: Mapping[str, Any], choices: Sequence[tuple[Any, str]]) -> Any:
    """Return the value that a line means: one of the choices, several of them, or any other."""

    def chosen(text: str) -> Any:
        for value, title in choices:
            if text in (text_of(value), title):
                return value
        is_number = text.isascii() and text.isdigit() and 0 < int(text) <= len(choices)
        return choices[int(text) - 1][0] if is_number else text

    if not choices:
        return value_of_text(line, schema)
    if type_of_text(schema) == "array":
        return [chosen(part.strip()) for part in line.split(",") if part.strip()]
    return chosen(line.strip())
