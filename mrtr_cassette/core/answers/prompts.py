"""Asking a person: what is shown, and what each line that is typed means.

Rule: a person can decline and cancel at each step, nothing is opened unasked, and whatever a line
says, the answer that comes of it fits.
Source: MCP 2026-07-28, "Elicitation"; docs/answers.md, "At a terminal".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.answers.checking import (
    elicited,
    fields_of,
    is_required,
    problem_of,
    required_in,
    sampled,
    value_schema,
)
from mrtr_cassette.core.answers.schemas import (
    FORMATS,
    problem_of_value,
    titled_choices,
    type_of_text,
    value_of_text,
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
    "null": "JSON",
}
_ACTION_OF: Final = {":decline": "decline", ":cancel": "cancel"}
_HELP: Final = (
    "an empty line takes the default, or leaves out what is optional",
    ":empty gives the empty text; a text that begins with a colon is written with two",
    ":decline or :cancel answers the whole question so",
)


class Field(NamedTuple):
    """One field of a form.

    Attributes:
        name: its name in the content.
        schema: its schema.
        is_required: it must not be left out.
    """

    name: str
    schema: Mapping[str, Any]
    is_required: bool

    @property
    def choices(self) -> list[tuple[Any, str]]:
        """The values to choose from, with their titles."""
        return titled_choices(self.schema)

    @property
    def prompt(self) -> str:
        """What stands before the line that is typed."""
        title = self.schema.get("title")
        about = [self._type_words()]
        if "default" in self.schema:
            about.append(f"default {canonical(self.schema['default'])}")
        mark = "" if self.is_required else ", optional"
        shown = f"{title} ({self.name})" if isinstance(title, str) else self.name
        return printable(f"{shown}{'*' if self.is_required else ''} [{', '.join(about)}{mark}]: ")

    def _type_words(self) -> str:
        wanted = FORMATS.get(str(self.schema.get("format")))
        kind = _WORDS[type_of_text(self.schema)]
        if self.choices and type_of_text(self.schema) != "array":
            return "number or value"
        bounds = [
            f"{words} {canonical(self.schema[member])}"
            for member, words in _BOUNDS.items()
            if member in self.schema
        ]
        return " ".join([wanted or kind, *bounds])

    def lines(self) -> Iterator[str]:
        """Yield what is shown before the field is asked for."""
        description = self.schema.get("description")
        if isinstance(description, str):
            yield printable(f"  {description}")
        for number, (value, title) in enumerate(self.choices, start=1):
            spelled = value if isinstance(value, str) else canonical(value)
            shown = spelled if title == spelled else f"{spelled}: {title}"
            yield printable(f"  {number}) {shown}")

    def read(self, line: str) -> Any:
        """Return the value that a line means."""
        if self.choices and type_of_text(self.schema) == "array":
            return [self._chosen(part.strip()) for part in line.split(",") if part.strip()]
        if self.choices:
            return self._chosen(line.strip())
        return value_of_text(line, self.schema)

    def _chosen(self, text: str) -> Any:
        """Return the choice that a text names: by its value, its title or its number."""
        choices = self.choices
        for value, title in choices:
            if text in ((value if isinstance(value, str) else canonical(value)), title):
                return value
        is_number = text.isascii() and text.isdigit() and 0 < int(text) <= len(choices)
        return choices[int(text) - 1][0] if is_number else text


_BOUNDS: Final = {
    "minimum": "from",
    "maximum": "up to",
    "minLength": "of at least",
    "maxLength": "of at most",
    "minItems": "at least",
    "maxItems": "at most",
}


class Dialogue(ABC):
    """One request for input, asked line by line.

    Attributes:
        said: lines to show before the next prompt; whoever shows them clears them.
        answer: the answer; None until there is one, and where there is none.
        is_over: nothing more is asked.
        file: a file whose text `file_read` takes before the next line.
        url: a URL that is to be opened now.
    """

    can_refuse = True

    def __init__(self, key: str, request: InputRequest) -> None:
        """Begin with what the server says."""
        message = f": {request.message}" if request.message else ""
        self.said: list[str] = [printable(f"The server asks for {key} ({request.kind}){message}")]
        self.answer: Any = None
        self.is_over = False
        self.file: str | None = None
        self.url: str | None = None
        self.request = request

    @property
    @abstractmethod
    def prompt(self) -> str:
        """What stands before the line that is typed."""

    @abstractmethod
    def _take(self, line: str) -> None:
        """Take a line that is no command."""

    def line(self, line: str | None) -> None:
        """Take the line that was typed; None stands for the end of all lines."""
        if line is None:
            self.is_over = True
        elif line == ":help":
            self.said += self.help
        elif line in _ACTION_OF and self.can_refuse:
            self._end(elicited(_ACTION_OF[line]))
        elif line in _ACTION_OF:
            # Its answer has no such form.
            self.is_over = True
        else:
            self._take(line)

    @property
    def help(self) -> Sequence[str]:
        """What can be typed."""
        return _HELP

    def file_read(self, text: str | None) -> None:
        """Take the text of the file that was named, or None where it can't be read."""
        self.file = None
        if text is None:
            self.said.append("this file can't be read")

    def _end(self, answer: Any) -> None:
        problem = problem_of(self.request, answer)
        if problem is None:
            self.answer = answer
            self.is_over = True
        else:
            self.said.append(printable(problem))


class FormDialogue(Dialogue):
    """A form, field by field."""

    def __init__(self, key: str, request: InputRequest) -> None:
        super().__init__(key, request)
        required = required_in(request)
        self._fields = [
            Field(name, schema if isinstance(schema, Mapping) else {}, name in required)
            for name, schema in fields_of(request).items()
        ]
        self._content: dict[str, Any] = {}
        self._show()

    def _show(self) -> None:
        if self._fields:
            self.said += self._fields[0].lines()

    @property
    def prompt(self) -> str:
        """The field that comes next."""
        return self._fields[0].prompt if self._fields else "accept [y, :decline, :cancel]: "

    def _take(self, line: str) -> None:
        if not self._fields:
            if value_of_text(line, {"type": "boolean"}) is True:
                self._end(elicited("accept", {}))
            return
        field = self._fields[0]
        if not line and "default" in field.schema:
            value = field.schema["default"]
        elif not line and not field.is_required:
            self._next()
            return
        elif not line:
            self.said.append("this is required")
            return
        else:
            value = field.read(_text_of(line))
        problem = problem_of_value(value, field.schema)
        if problem is not None:
            self.said.append(printable(problem))
            return
        self._content[field.name] = value
        self._next()

    def _next(self) -> None:
        self._fields.pop(0)
        if self._fields:
            self._show()
        else:
            self._end(elicited("accept", self._content))


def _text_of(line: str) -> str:
    """Return the text that a line gives."""
    if line == ":empty":
        return ""
    return line[1:] if line.startswith("::") else line


class ValueDialogue(Dialogue):
    """A bare value, as the array dialect has it."""

    can_refuse = False

    def __init__(self, key: str, request: InputRequest) -> None:
        super().__init__(key, request)
        self._field = Field(key, value_schema(request), is_required(request))

    @property
    def prompt(self) -> str:
        """The value."""
        return self._field.prompt

    def _take(self, line: str) -> None:
        if not line and not self._field.is_required:
            self.is_over = True
        elif not line:
            self.said.append("this is required")
        else:
            self._end({"value": self._field.read(_text_of(line))})


class UrlDialogue(Dialogue):
    """A URL that the server wants to be visited."""

    def __init__(self, key: str, request: InputRequest) -> None:
        """Begin with the URL."""
        super().__init__(key, request)
        url = request.definition.get("url")
        self._url = url if isinstance(url, str) else ""
        self.said.append(printable(f"  {self._url}"))

    @property
    def prompt(self) -> str:
        """What can be done with it."""
        return "done there [y, :open, :decline, :cancel]: "

    @property
    def help(self) -> Sequence[str]:
        """What can be typed."""
        return (":open shows the URL in a browser; y says that it was visited", _HELP[-1])

    def _take(self, line: str) -> None:
        if line == ":open" and self._url.startswith(("https://", "http://")):
            self.url = self._url
        elif line == ":open":
            self.said.append("only URLs of http and https are opened")
        elif value_of_text(line, {"type": "boolean"}) is True:
            self._end(elicited("accept"))


class TextDialogue(Dialogue):
    """A result that is pasted, or read from a file: sampling, roots, and what is unknown."""

    can_refuse = False

    def __init__(self, key: str, request: InputRequest) -> None:
        """Begin with what the server wants to have answered."""
        super().__init__(key, request)
        self._lines: list[str] = []
        if request.kind == "sampling":
            self.said += _conversation(request.definition)
        wanted = _PASTED.get(request.kind, "JSON")
        self.said.append(f"  paste {wanted}, then a line with a dot; or @FILE")

    @property
    def prompt(self) -> str:
        """One more line."""
        return "> "

    @property
    def help(self) -> Sequence[str]:
        """What can be typed."""
        return ("a line with a dot ends the text; @FILE reads it from a file", ":cancel gives none")

    def _take(self, line: str) -> None:
        if line.startswith("@") and not self._lines:
            self.file = line[1:].strip()
        elif line == ".":
            text, self._lines = "\n".join(self._lines), []
            self._given(text)
        else:
            self._lines.append(line)

    def file_read(self, text: str | None) -> None:
        """Take the text of the file."""
        super().file_read(text)
        if text is not None:
            self._given(text)

    def _given(self, text: str) -> None:
        try:
            tree = parse(text.encode("utf-8", "surrogatepass"))
        except NotJsonError:
            tree = None
        if isinstance(tree, dict):
            self._end(tree)
        elif self.request.kind == "roots":
            uris = [line.strip() for line in text.splitlines() if line.strip()]
            roots = [{"uri": f"file://{uri}" if uri.startswith("/") else uri} for uri in uris]
            self._end({"roots": roots})
        elif self.request.kind == "sampling":
            self._end(sampled(text))
        else:
            self.said.append("this is no JSON object")


_PASTED: Final = {
    "sampling": "the text, or the result as JSON",
    "roots": "one path or file: URI a line",
}


def _conversation(params: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a model is asked, as a person reads it."""
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


def dialogue_for(key: str, request: InputRequest) -> Dialogue:
    """Return how a person is asked one request for input."""
    if request.takes_value:
        return ValueDialogue(key, request)
    kinds: Mapping[str, type[Dialogue]] = {"form": FormDialogue, "url": UrlDialogue}
    return kinds.get(request.kind, TextDialogue)(key, request)
