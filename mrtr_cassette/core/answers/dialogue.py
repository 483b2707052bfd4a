"""Asking a person: what is shown, and what each line that is typed means."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
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
_BOUNDS: Final = {
    "minimum": "from",
    "maximum": "up to",
    "minLength": "of at least",
    "maxLength": "of at most",
    "minItems": "at least",
    "maxItems": "at most",
}
_PASTED: Final = {
    "sampling": "the text, or the result as JSON",
    "roots": "one path or file: URI a line",
}
_ACTION_OF: Final = {":decline": "decline", ":cancel": "cancel"}
_HELP: Final = "  :decline or :cancel refuses it; an empty line takes the default or leaves it out"
_YES: Final = {"type": "boolean"}


class Prompt(NamedTuple):
    """Lines are shown, then a line is read after `text`; None is sent at the end of all lines."""

    lines: tuple[str, ...]
    text: str


Line = Generator[Prompt, str | None, str]
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
            field = _Field(key, value_schema(request), is_required(request))
            value = yield from field.asked(lines)
            return None if value is ABSENT else {"value": value}
        if request.kind == "form":
            return (yield from _form(request, lines))
        if request.kind == "url":
            lines.append(f"  {request.definition.get('url', '')}")
            yield from _confirmed(lines, "done there")
            return elicited("accept")
        return (yield from _pasted(request, lines))
    except _EndedError as ended:
        return elicited(ended.action) if ended.action and is_elicitation else None


def _typed(lines: Iterable[str], prompt: str) -> Line:
    line = yield Prompt(tuple(map(printable, lines)), printable(prompt))
    if line is None or line in _ACTION_OF:
        raise _EndedError(None if line is None else _ACTION_OF[line])
    return line


def _confirmed(lines: Sequence[str], question: str) -> Generator[Prompt, str | None, None]:
    line = ""
    while value_of_text(line, _YES) is not True:
        line = yield from _typed(lines, f"{question} [y, :decline, :cancel]: ")
        lines = ()


def _form(request: InputRequest, lines: list[str]) -> Steps:
    required = required_in(request)
    content: dict[str, Any] = {}
    fields = fields_of(request)
    if not fields:
        yield from _confirmed(lines, "accept")
    lines.append(_HELP)
    for name, schema in fields.items():
        field = _Field(name, schema if isinstance(schema, Mapping) else {}, name in required)
        value = yield from field.asked(lines)
        lines = []
        if value is not ABSENT:
            content[name] = value
    return elicited("accept", content)


def _pasted(request: InputRequest, lines: list[str]) -> Steps:
    if request.kind == "sampling":
        lines += _conversation(request.definition)
    lines.append(f"  paste {_PASTED.get(request.kind, 'JSON')}, then a line with a dot")
    while True:
        pasted: list[str] = []
        while (line := (yield from _typed(lines, "> "))) != ".":
            pasted.append(line)
            lines = []
        answer = _result_of(request, "\n".join(pasted))
        problem = "this is no JSON object" if answer is None else problem_of(request, answer)
        if problem is None:
            return answer
        lines = [problem]


def _result_of(request: InputRequest, text: str) -> dict[str, Any] | None:
    tree = json_or_text(text)
    if isinstance(tree, dict):
        return tree
    if request.kind == "roots":
        uris = [line.strip() for line in text.splitlines() if line.strip()]
        return {"roots": [{"uri": f"file://{u}" if u.startswith("/") else u} for u in uris]}
    return sampled(text) if request.kind == "sampling" else None


def _conversation(params: Mapping[str, Any]) -> Iterator[str]:
    system = params.get("systemPrompt")
    if isinstance(system, str):
        yield f"  system: {system}"
    messages = params.get("messages")
    for message in messages if isinstance(messages, list) else ():
        if not isinstance(message, Mapping):
            continue
        content = message.get("content")
        text = content.get("text") if isinstance(content, Mapping) else None
        shown = text if isinstance(text, str) else canonical(content)
        yield f"  {message.get('role')}: {shown}"


class _Field(NamedTuple):
    """One field of a form, or a bare value under its key."""

    name: str
    schema: Mapping[str, Any]
    is_required: bool

    def asked(self, lines: Sequence[str]) -> Steps:
        """Ask for the value until it fits; an optional one without a default may be `ABSENT`."""
        lines = [*lines, *self._lines()]
        while True:
            line = yield from _typed(lines, self._prompt())
            value = self._read(line)
            if value is ABSENT:
                problem = "this is required" if self.is_required else None
            else:
                problem = problem_of_value(value, self.schema)
            if problem is None:
                return value
            lines = [problem]

    def _prompt(self) -> str:
        title = self.schema.get("title")
        about = self._about()
        if "default" in self.schema:
            about += f", default {canonical(self.schema['default'])}"
        shown = f"{title} ({self.name})" if isinstance(title, str) else self.name
        star, optional = ("*", "") if self.is_required else ("", ", optional")
        return f"{shown}{star} [{about}{optional}]: "

    def _about(self) -> str:
        kind = type_of_text(self.schema)
        if kind != "array" and titled_choices(self.schema):
            return "number or value"
        bounds = [
            f"{words} {canonical(self.schema[member])}"
            for member, words in _BOUNDS.items()
            if member in self.schema
        ]
        return " ".join([FORMATS.get(str(self.schema.get("format"))) or _WORDS[kind], *bounds])

    def _lines(self) -> Iterator[str]:
        description = self.schema.get("description")
        if isinstance(description, str):
            yield f"  {description}"
        for number, (value, title) in enumerate(titled_choices(self.schema), start=1):
            spelled = text_of(value)
            yield f"  {number}) {spelled if title == spelled else f'{spelled}: {title}'}"

    def _read(self, line: str) -> Any:
        if not line:
            return self.schema.get("default", ABSENT)
        if not titled_choices(self.schema):
            return value_of_text(line, self.schema)
        if type_of_text(self.schema) == "array":
            return [self._chosen(part.strip()) for part in line.split(",") if part.strip()]
        return self._chosen(line.strip())

    def _chosen(self, text: str) -> Any:
        choices = titled_choices(self.schema)
        for value, title in choices:
            if text in (text_of(value), title):
                return value
        is_number = text.isascii() and text.isdigit() and 0 < int(text) <= len(choices)
        return choices[int(text) - 1][0] if is_number else text
