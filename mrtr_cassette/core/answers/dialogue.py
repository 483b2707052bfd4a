"""Asking a person: what is shown, and what each line that is typed means."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.answers.checking import (
    FORMATS,
    elicited,
    fields_of,
    is_required,
    problem_of,
    problem_of_value,
    required_in,
    sampled,
    titled_choices,
    type_of_text,
    value_of_text,
    value_schema,
)
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.wire.jsonbytes import canonical, parse
from mrtr_cassette.errors import NotJsonError, printable

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
_REFUSING: Final = ":decline or :cancel answers the whole question so"
_HELP: Final = (
    "an empty line takes the default, or leaves out what is optional",
    ":empty gives the empty text; a text that begins with a colon is written with two",
    _REFUSING,
)
_URL_HELP: Final = ("y says that the URL was visited", _REFUSING)
_TEXT_HELP: Final = (
    "a line with a dot ends the text; @FILE reads it from a file",
    ":cancel gives none",
)


class Prompt(NamedTuple):
    """Lines are shown, then a line is read after `text`; None is sent at the end of all lines."""

    lines: tuple[str, ...]
    text: str


class ReadFile(NamedTuple):
    """The text of a file is sent; None where it can't be read."""

    path: str


Steps = Generator[Prompt | ReadFile, str | None, Any]
"""What is done with a person, step by step; it returns the answer, or None where there is none."""


class _EndedError(Exception):
    """The person ends the question, with this answer or none."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer


def dialogue(key: str, request: InputRequest) -> Steps:
    """Ask a person one request for input, line by line."""
    message = f": {request.message}" if request.message else ""
    asking = _Asking(request, f"The server asks for {key} ({request.kind}){message}")
    try:
        if request.takes_value:
            return (yield from asking.value(key))
        if request.kind == "form":
            return (yield from asking.form())
        if request.kind == "url":
            return (yield from asking.url())
        return (yield from asking.text())
    except _EndedError as ended:
        return ended.answer


class _Asking:
    """One request for input on its way to a person's answer."""

    def __init__(self, request: InputRequest, first: str) -> None:
        self._request = request
        self._lines = [printable(first)]
        """Lines that are shown before the next prompt."""

    def _line(
        self, prompt: str, help_: Sequence[str] = _HELP, *, can_refuse: bool = False
    ) -> Generator[Prompt, str | None, str]:
        while True:
            line = yield Prompt(tuple(self._lines), prompt)
            self._lines.clear()
            if line is None:
                raise _EndedError(None)
            if line in _ACTION_OF:
                raise _EndedError(elicited(_ACTION_OF[line]) if can_refuse else None)
            if line != ":help":
                return line
            self._lines += help_

    def _fits(self, answer: Any) -> bool:
        problem = problem_of(self._request, answer)
        self._lines += [] if problem is None else [printable(problem)]
        return problem is None

    def form(self) -> Steps:
        fields, required = fields_of(self._request), required_in(self._request)
        content: dict[str, Any] = {}
        if fields:
            self._lines.append(
                "  :decline or :cancel refuses it, :help says what else can be typed"
            )
        for name, schema in fields.items():
            field = _Field(name, schema if isinstance(schema, Mapping) else {}, name in required)
            content |= yield from self._field(field)
        is_confirmed = bool(fields)
        while not (is_confirmed and self._fits(elicited("accept", content))):
            line = yield from self._line("accept [y, :decline, :cancel]: ", can_refuse=True)
            is_confirmed = value_of_text(line, {"type": "boolean"}) is True
        return elicited("accept", content)

    def _field(self, field: _Field) -> Generator[Prompt, str | None, dict[str, Any]]:
        self._lines += field.lines()
        while True:
            line = yield from self._line(field.prompt, can_refuse=True)
            if not line and "default" not in field.schema:
                if not field.is_required:
                    return {}
                self._lines.append("this is required")
                continue
            value = field.read(line) if line else field.schema["default"]
            problem = problem_of_value(value, field.schema)
            if problem is None:
                return {field.name: value}
            self._lines.append(printable(problem))

    def value(self, key: str) -> Steps:
        field = _Field(key, value_schema(self._request), is_required(self._request))
        while True:
            line = yield from self._line(field.prompt)
            if not line and not field.is_required:
                return None
            if not line:
                self._lines.append("this is required")
            elif self._fits(answer := {"value": field.read(line)}):
                return answer

    def url(self) -> Steps:
        given = self._request.definition.get("url")
        url = given if isinstance(given, str) else ""
        self._lines.append(printable(f"  {url}"))
        prompt = "done there [y, :decline, :cancel]: "
        while True:
            line = yield from self._line(prompt, _URL_HELP, can_refuse=True)
            if value_of_text(line, {"type": "boolean"}) is True:
                return elicited("accept")

    def text(self) -> Steps:
        if self._request.kind == "sampling":
            self._lines += _conversation(self._request.definition)
        wanted = _PASTED.get(self._request.kind, "JSON")
        self._lines.append(f"  paste {wanted}, then a line with a dot; or @FILE")
        pasted: list[str] = []
        while True:
            line = yield from self._line("> ", _TEXT_HELP)
            if line.startswith("@") and not pasted:
                text = yield ReadFile(line[1:].strip())
            elif line == ".":
                text = "\n".join(pasted)
                pasted.clear()
            else:
                pasted.append(line)
                continue
            if text is None:
                self._lines.append("this file can't be read")
                continue
            answer = self._result(text)
            if answer is None:
                self._lines.append("this is no JSON object")
            elif self._fits(answer):
                return answer

    def _result(self, text: str) -> dict[str, Any] | None:
        try:
            tree = parse(text.encode("utf-8", "surrogatepass"))
        except NotJsonError:
            tree = None
        if isinstance(tree, dict):
            return tree
        if self._request.kind == "roots":
            uris = [line.strip() for line in text.splitlines() if line.strip()]
            return {"roots": [{"uri": f"file://{u}" if u.startswith("/") else u} for u in uris]}
        return sampled(text) if self._request.kind == "sampling" else None


def _conversation(params: Mapping[str, Any]) -> Iterator[str]:
    system = params.get("systemPrompt")
    if isinstance(system, str):
        yield printable(f"  system: {system}")
    messages = params.get("messages")
    for message in messages if isinstance(messages, list) else ():
        if not isinstance(message, Mapping):
            continue
        content = message.get("content")
        text = content.get("text") if isinstance(content, Mapping) else None
        shown = text if isinstance(text, str) else canonical(content)
        yield printable(f"  {message.get('role')}: {shown}")


class _Field(NamedTuple):
    """One field of a form, or a bare value under its key."""

    name: str
    schema: Mapping[str, Any]
    is_required: bool

    @property
    def prompt(self) -> str:
        title = self.schema.get("title")
        about = self._about()
        if "default" in self.schema:
            about += f", default {canonical(self.schema['default'])}"
        shown = f"{title} ({self.name})" if isinstance(title, str) else self.name
        star, optional = ("*", "") if self.is_required else ("", ", optional")
        return printable(f"{shown}{star} [{about}{optional}]: ")

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

    def lines(self) -> Iterator[str]:
        description = self.schema.get("description")
        if isinstance(description, str):
            yield printable(f"  {description}")
        for number, (value, title) in enumerate(titled_choices(self.schema), start=1):
            spelled = value if isinstance(value, str) else canonical(value)
            shown = spelled if title == spelled else f"{spelled}: {title}"
            yield printable(f"  {number}) {shown}")

    def read(self, line: str) -> Any:
        text = "" if line == ":empty" else line[1:] if line.startswith("::") else line
        if not titled_choices(self.schema):
            return value_of_text(text, self.schema)
        if type_of_text(self.schema) == "array":
            return [self._chosen(part.strip()) for part in text.split(",") if part.strip()]
        return self._chosen(text.strip())

    def _chosen(self, text: str) -> Any:
        choices = titled_choices(self.schema)
        for value, title in choices:
            if text in ((value if isinstance(value, str) else canonical(value)), title):
                return value
        is_number = text.isascii() and text.isdigit() and 0 < int(text) <= len(choices)
        return choices[int(text) - 1][0] if is_number else text
