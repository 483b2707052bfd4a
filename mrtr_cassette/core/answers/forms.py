"""Whether an answer fits a request for input, what a text means, and how a person is asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Final

from mrtr_cassette.core.protocol.dialect import InputRequest, spelled_requests
from mrtr_cassette.core.wire.jsonbytes import Number, canonical, parse
from mrtr_cassette.core.wire.pointers import ABSENT, escape_pointer
from mrtr_cassette.errors import NotJsonError, counted, printable

ACTIONS: Final = ("accept", "decline", "cancel")
ELICITATIONS: Final = frozenset({"form", "url"})
"""The kinds of requests that an `ElicitResult` answers."""
RESULTS: Final = frozenset({"sampling", "roots"})
"""Those that a result of their own answers."""
VALUES: Final = frozenset({"string", "number", "integer", "boolean"})
"""Those of the array dialect, which a value answers."""
_RESULT_MEMBERS: Final = {"roots": ("roots",), "sampling": ("role", "content", "model")}
"""What the result for a kind of request must have."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The requests for input of one turn by key, and their call, whose method may be empty.

    `first` is the number of the first one among all that the call was asked.
    """

    method: str
    name: str
    arguments: Any
    turn: int
    requests: Mapping[str, InputRequest]
    first: int = 1

    def number_of(self, key: str) -> int:
        """Return the number of a question in the call, from 1."""
        return self.first + [*self.requests].index(key)

    def data(self) -> dict[str, Any]:
        """Return it for programs, with each request as the server spelled it."""
        return {
            "method": self.method,
            "name": self.name,
            "arguments": self.arguments,
            "turn": self.turn,
            "inputRequests": spelled_requests(self.requests),
        }


def problem_of(request: InputRequest, answer: Any) -> str | None:
    """Return why an answer doesn't fit the request that it answers, without quoting it.

    What is no `PrimitiveSchemaDefinition` of MCP 2026-07-28 is the server's to judge.
    """
    if request.kind in ELICITATIONS and not request.takes_value:
        return _problem_of_elicitation(request, answer)
    if not isinstance(answer, dict) or (request.takes_value and "value" not in answer):
        wanted = "an object with a `value`" if request.takes_value else "an object"
        return f"is {type_name(answer)}, and not {wanted}"
    if request.takes_value:
        return problem_of_value(answer["value"], value_schema(request))
    missing = [each for each in _RESULT_MEMBERS.get(request.kind, ()) if each not in answer]
    return f"has no `{missing[0]}`" if missing else None


def _problem_of_elicitation(request: InputRequest, answer: Any) -> str | None:
    action = answer.get("action") if isinstance(answer, dict) else None
    if action not in ACTIONS:
        return "has no `action` that is accept, decline or cancel"
    content = answer.get("content")
    if action != "accept" or request.kind == "url":
        what = "an accepted URL" if action == "accept" else f"a {action}"
        return None if content is None else f"has content, and {what} has none"
    content = {} if content is None else content
    if not isinstance(content, dict):
        return f"is {type_name(content)}, and not an object"
    fields = fields_of(request)
    problems: dict[str, str | None]
    problems = dict.fromkeys(required_in(request), "is required and missing")
    problems |= {name: problem_of_value(content[name], fields.get(name)) for name in content}
    told = [f"/{escape_pointer(name)} {problem}" for name, problem in problems.items() if problem]
    return "; ".join(told) or None


def fields_of(request: InputRequest) -> Mapping[str, Any]:
    """Return the schemas of a form's fields by name; none for what is no form."""
    schema = request.definition.get("requestedSchema") if request.kind == "form" else None
    fields = schema.get("properties") if isinstance(schema, Mapping) else None
    return fields if isinstance(fields, Mapping) else {}


def required_in(request: InputRequest) -> list[str]:
    """Return the names of the fields that a form requires."""
    schema = request.definition.get("requestedSchema")
    names = schema.get("required") if isinstance(schema, Mapping) else None
    return [it for it in names if isinstance(it, str)] if isinstance(names, list) else []


def with_defaults(request: InputRequest, answer: Any) -> Any:
    """Return an answer in which an accepted form has the defaults of the fields it leaves out."""
    fields = fields_of(request)
    is_accepted = isinstance(answer, dict) and answer.get("action") == "accept"
    content = (answer.get("content") or {}) if is_accepted else None
    if not fields or not isinstance(content, dict):
        return answer
    defaults = {}
    for name, schema in fields.items():
        if isinstance(schema, Mapping) and "default" in schema and name not in content:
            defaults[name] = schema["default"]
    return {**answer, "content": {**content, **defaults}} if defaults else answer


def value_schema(request: InputRequest) -> Mapping[str, Any]:
    """Return the schema of a bare value, as far as its kind tells."""
    return {"type": request.kind} if request.kind in VALUES else {}


def is_required(request: InputRequest) -> bool:
    """Tell whether a request for input has to be answered."""
    return not request.takes_value or request.definition.get("required", True) is not False


def elicited(action: str, content: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the answer to a form or a URL."""
    return {"action": action} if content is None else {"action": action, "content": dict(content)}


def sampled(text: str) -> dict[str, Any]:
    """Return the answer to a sampling request that a person wrote."""
    content = {"type": "text", "text": text}
    return {"role": "assistant", "content": content, "model": "none", "stopReason": "endTurn"}


# Fields of forms

_TYPES: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "string": ("a text", lambda it: isinstance(it, str)),
    "boolean": ("true or false", lambda it: isinstance(it, bool)),
    "integer": ("a whole number", lambda it: _is_whole(_decimal_of(it))),
    "number": ("a number", lambda it: _decimal_of(it) is not None),
    "array": ("a list", lambda it: isinstance(it, list)),
    "object": ("an object", lambda it: isinstance(it, dict)),
    "null": ("null", lambda it: it is None),
}
"""Each type in words, and the test for it."""
_BOUNDS: Final = {
    "string": ("minLength", "maxLength", "character"),
    "array": ("minItems", "maxItems", "value"),
    "integer": ("minimum", "maximum", ""),
    "number": ("minimum", "maximum", ""),
}
"""The least and the most of each type, and what is counted; numbers are compared themselves."""
FORMATS: Final = {
    "email": ("e-mail address", re.compile(r"[^\s@]+@[^\s@]+")),
    "uri": ("URI, such as https://example.com", re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:\S+")),
    "date": ("date, such as 2026-07-28", re.compile(r"[0-9]{4}-[01][0-9]-[0-3][0-9]")),
    "date-time": (
        "date and time, such as 2026-07-28T09:30:00Z",
        re.compile(r"[0-9-]{10}[Tt][0-9:]{8}(?:\.[0-9]+)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"),
    ),
}
"""The formats that forms have, in words, and how they are written."""
_TRUE: Final = frozenset({"true", "yes", "y", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "n", "off", "0"})


def problem_of_value(value: Any, schema: Any) -> str | None:
    """Return why a value doesn't fit the field that has this schema; None where it does."""
    wanted = schema.get("type") if isinstance(schema, Mapping) else None
    if not isinstance(wanted, str) or wanted not in _TYPES:
        return None
    words, is_of_type = _TYPES[wanted]
    if not is_of_type(value):
        return f"is {type_name(value)}, and not {words}"
    is_list = isinstance(value, list)
    choices = [canonical(each) for each, _ in titled_choices(schema)]
    if not {*map(canonical, value if is_list else [value])} <= {*choices} and choices:
        return f"{'has a value that ' if is_list else ''}is not one of {', '.join(choices)}"
    named = str(schema.get("format"))
    form, pattern = FORMATS.get(named, ("", None))
    if isinstance(value, str) and pattern is not None:
        is_day = not named.startswith("date") or _is_day(value[:10])
        if not (is_day and pattern.fullmatch(value)):
            return f"is no {form}"
    return _problem_of_size(value, wanted, schema)


def _is_day(text: str) -> bool:
    with suppress(ValueError):
        return bool(date.fromisoformat(text))
    return False


def _problem_of_size(value: Any, wanted: str, schema: Mapping[str, Any]) -> str | None:
    least, most, noun = _BOUNDS.get(wanted, ("", "", ""))
    size = Decimal(len(value)) if noun else _decimal_of(value)
    told = f"has {counted(len(value), noun)}, and must have" if noun else "must be"
    lower, upper = _decimal_of(schema.get(least)), _decimal_of(schema.get(most))
    if size is not None and lower is not None and size < lower:
        return f"{told} at least {canonical(schema[least])}"
    if size is not None and upper is not None and size > upper:
        return f"{told} at most {canonical(schema[most])}"
    return None


def type_name(value: Any) -> str:
    """Return what a value is, in words."""
    return next(words for words, is_of_type in _TYPES.values() if is_of_type(value))


def _decimal_of(value: Any) -> Decimal | None:
    if isinstance(value, Number):
        return Decimal(value.text)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Decimal(str(value))
    return None


def _is_whole(number: Decimal | None) -> bool:
    return number is not None and number == number.to_integral_value()


def titled_choices(schema: Any) -> list[tuple[Any, str]]:
    """Return the values that a field lists as choices, each with the title that people read."""
    if not isinstance(schema, Mapping):
        return []
    values, titles = schema.get("enum"), schema.get("enumNames")
    if isinstance(values, list):
        if not isinstance(titles, list) or len(titles) != len(values):
            titles = values
        return [(value, text_of(title)) for value, title in zip(values, titles, strict=True)]
    parts = schema.get("oneOf") or schema.get("anyOf")
    if isinstance(parts, list) and all(isinstance(it, Mapping) and "const" in it for it in parts):
        return [(part["const"], text_of(part.get("title", part["const"]))) for part in parts]
    return titled_choices(schema.get("items"))


def text_of(value: Any) -> str:
    """Return a text itself, and any other value as JSON."""
    return value if isinstance(value, str) else canonical(value)


def type_of_text(schema: Any) -> str:
    """Return the JSON type as which a text that somebody writes is read."""
    if not isinstance(schema, Mapping):
        return "string"
    named = schema.get("type")
    types = named if isinstance(named, list) else [named]
    if named is None:
        # An optional argument is one of its type and of null.
        parts = schema.get("anyOf")
        parts = parts if isinstance(parts, list) else []
        types = [each.get("type") for each in parts if isinstance(each, Mapping)]
    known = [each for each in map(str, types) if each in _TYPES and each != "null"]
    return "string" if not known or "string" in known else known[0]


def value_of_text(text: str, schema: Any) -> Any:
    """Return the value that a text means, by the type that its schema has.

    A text that doesn't read as that type stays a text.
    """
    match type_of_text(schema):
        case "boolean":
            folded = text.strip().lower()
            return True if folded in _TRUE else False if folded in _FALSE else text
        case "integer" | "number" | "object":
            return json_or_text(text)
        case "array":
            value = json_or_text(text)
            if isinstance(value, list):
                return value
            parts = [part.strip() for part in text.split(",")] if text.strip() else []
            return [value_of_text(part, schema.get("items")) for part in parts]
    return text


def json_or_text(text: str) -> Any:
    """Return the value that a text spells as JSON; any other text stays one."""
    try:
        return parse(text.strip().encode("utf-8", "surrogatepass"))
    except NotJsonError:
        return text


# Asking a person

_ACTION_OF: Final = {":decline": "decline", ":cancel": "cancel"}
_HELP: Final = (
    "  :decline or :cancel refuses; an empty line is the default or none; lists have commas"
)


Prompt = tuple[tuple[str, ...], str]
"""Lines are shown, then a line is read after the text; None is sent at the end of all lines."""
Steps = Generator[Prompt, str | None, Any]
"""What is done with a person, step by step; it returns the answer, or None where there is none."""


class _EndedError(Exception):
    """The person ends the question, with this action or none."""

    def __init__(self, action: str | None) -> None:
        super().__init__()
        self.action = action


def dialogue(key: str, request: InputRequest) -> Steps:
    """Ask a person for a form, a URL or a bare value, line by line."""
    message = f": {request.message}" if request.message else ""
    lines = [f"The server asks for {key} ({request.kind}){message}"]
    try:
        if request.takes_value:
            required = is_required(request)
            value = yield from _value(lines, key, value_schema(request), is_required=required)
            return None if value is ABSENT else {"value": value}
        return (yield from _elicited(request, lines))
    except _EndedError as ended:
        return elicited(ended.action) if ended.action and not request.takes_value else None


def _typed(lines: Iterable[str], prompt: str) -> Generator[Prompt, str | None, str]:
    line = yield tuple(map(printable, lines)), printable(prompt)
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
    about = FORMATS.get(str(schema.get("format")), _TYPES[kind])[0]
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
