"""Whether an answer fits a request for input, what a text means, and how a person is asked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.cassette.matchers import RFC3339
from mrtr_cassette.core.protocol.dialect import (
    ELICITATION_KINDS,
    VALUE_KINDS,
    InputRequest,
    question_kind,
    spelled_requests,
)
from mrtr_cassette.core.protocol.jsonrpc import Via
from mrtr_cassette.core.wire.jsonbytes import canonical, decimal_of, parse
from mrtr_cassette.core.wire.pointers import ABSENT, escape_pointer, members_of
from mrtr_cassette.errors import NotJsonError, counted, printable

ACTIONS: Final = ("accept", "decline", "cancel")
"""What a person can do with a form or a URL."""

_KEY_PARTS: Final = re.compile("[:./#]")


class AskedQuestion(NamedTuple):
    """One request for input; `number` is its place among all that its call was asked, from 1.

    The last part of a key stands for it where no other key of the turn ends so.
    """

    key: str
    short_key: str
    number: int
    request: InputRequest

    @property
    def numbered_name(self) -> str:
        """The name that it has by its place."""
        return f"#{self.number}"

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which it is meant, the surest first."""
        return self.numbered_name, self.short_key, self.key


@dataclass(frozen=True, slots=True)
class AskedTurn:
    """The requests for input of one turn by key, and their call, whose method may be empty.

    `first` is the number of the first one among all that the call was asked.
    """

    method: str
    name: str
    arguments: Any
    turn: int
    requests: Mapping[str, InputRequest]
    first: int = 1

    def questions(self) -> list[AskedQuestion]:
        """Return the requests in the order in which they were asked."""
        ends = Counter(_last_key_part(key) for key in self.requests)
        questions = []
        for number, (key, request) in enumerate(
            self.requests.items(), start=self.first
        ):
            end = _last_key_part(key)
            short_key = end if end and ends[end] == 1 else key
            questions.append(AskedQuestion(key, short_key, number, request))

        return questions

    def data_for_programs(self) -> dict[str, Any]:
        """Return it for programs, with each request as the server spelled it."""
        return {
            "method": self.method,
            "name": self.name,
            "arguments": self.arguments,
            "turn": self.turn,
            "inputRequests": spelled_requests(self.requests),
        }


@dataclass(frozen=True, slots=True)
class UnansweredQuestion:
    """A request for input has no answer, so nothing is answered; `detail` says why.

    `example` has names and values by which the call could answer it itself; `is_fault` says that a
    source answers it wrongly.
    """

    asked: AskedTurn
    key: str
    detail: str
    example: Mapping[str, Any] = field(default_factory=dict)
    is_fault: bool = False


@dataclass(frozen=True, slots=True)
class CallTurn:
    """One turn of a call, with requests, answers as on the wire and who answered, each by key."""

    number: int
    via: Via
    requests: Mapping[str, InputRequest]
    answers: Mapping[str, Any]
    answered_by: Mapping[str, str]
    state_sha256: str | None


def _last_key_part(key: str) -> str:
    """Return the last part of a key, after any of `:`, `.`, `/` and `#`."""
    return _KEY_PARTS.split(key)[-1]


def problem_of_answer(request: InputRequest, answer: Any) -> str | None:
    """Return why an answer doesn't fit the request that it answers, without quoting it.

    What is no `PrimitiveSchemaDefinition` of MCP 2026-07-28 is the server's to judge.
    """
    members = members_of(answer)
    if request.takes_bare_value:
        if "value" not in members:
            return f"is {type_name(answer)}, and not an object with a `value`"
        return problem_of_value(members["value"], value_schema(request))

    if request.kind in ELICITATION_KINDS:
        return _problem_of_elicitation(request, members)
    if not isinstance(answer, dict):
        return f"is {type_name(answer)}, and not an object"

    for name in question_kind(request.kind).needed_members:
        if name not in members:
            return f"has no `{name}`"

    return None


def _problem_of_elicitation(
    request: InputRequest, answer: Mapping[str, Any]
) -> str | None:
    """Return why an `ElicitResult` doesn't fit a form or a URL; None if it does."""
    action = answer.get("action")
    if action not in ACTIONS:
        return "has no `action` that is accept, decline or cancel"

    content = answer.get("content")
    if action == "accept" and request.kind == "form":
        return _problem_of_content(request, {} if content is None else content)
    if content is None:
        return None
    if action == "accept":
        return "has content, but an accepted URL has none"

    return f"has content, and a {action} has none"


def _problem_of_content(request: InputRequest, content: Any) -> str | None:
    """Return why the content of an accepted form doesn't fit, field by field; None if it does."""
    if not isinstance(content, dict):
        return f"is {type_name(content)}, and not an object"

    fields = fields_of(request)
    problems: dict[str, str | None] = {}
    for name in required_fields(request):
        problems[name] = "is required and missing"

    for name, value in content.items():
        problems[name] = problem_of_value(value, fields.get(name))

    sentences = []
    for name, problem in problems.items():
        if problem is not None:
            sentences.append(f"/{escape_pointer(name)} {problem}")

    return "; ".join(sentences) or None


def _form_schema(request: InputRequest) -> dict[str, Any]:
    """Return a form's `requestedSchema`; empty if the request has none."""
    return members_of(request.definition.get("requestedSchema"))


def fields_of(request: InputRequest) -> Mapping[str, Any]:
    """Return the schemas of a form's fields by name; none for what is no form."""
    if request.kind != "form":
        return {}
    return members_of(_form_schema(request).get("properties"))


def required_fields(request: InputRequest) -> list[str]:
    """Return the names of the fields that a form requires."""
    names = _form_schema(request).get("required")
    if not isinstance(names, list):
        return []
    return [name for name in names if isinstance(name, str)]


def with_defaults(request: InputRequest, answer: Any) -> Any:
    """Return an answer in which an accepted form has the defaults of the fields it leaves out."""
    if members_of(answer).get("action") != "accept":
        return answer

    content = answer.get("content")
    if content is None:
        content = {}

    if not isinstance(content, dict):
        return answer

    defaults = {}
    for name, schema in fields_of(request).items():
        if name not in content and "default" in members_of(schema):
            defaults[name] = schema["default"]

    if not defaults:
        return answer

    return {**answer, "content": {**content, **defaults}}


def value_schema(request: InputRequest) -> dict[str, Any]:
    """Return the schema of a bare value, as far as its kind tells."""
    if request.kind not in VALUE_KINDS:
        return {}
    return {"type": request.kind}


def must_be_answered(request: InputRequest) -> bool:
    """Tell whether a request for input has to be answered."""
    is_optional = request.definition.get("required", True) is False
    return not (request.takes_bare_value and is_optional)


def elicitation_answer(
    action: str, content: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the answer to a form or a URL."""
    answer: dict[str, Any] = {"action": action}
    if content is not None:
        answer["content"] = dict(content)

    return answer


def sampling_answer(text: str) -> dict[str, Any]:
    """Return the answer to a sampling request that a person wrote."""
    content = {"type": "text", "text": text}
    return {
        "role": "assistant",
        "content": content,
        "model": "none",
        "stopReason": "endTurn",
    }


# Fields of forms

_TYPE_TESTS: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "string": ("a text", lambda value: isinstance(value, str)),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "integer": ("a whole number", lambda value: _is_whole_number(decimal_of(value))),
    "number": ("a number", lambda value: decimal_of(value) is not None),
    "array": ("a list", lambda value: isinstance(value, list)),
    "object": ("an object", lambda value: isinstance(value, dict)),
    "null": ("null", lambda value: value is None),
}
"""Each type in words, and the test for it."""

_SIZE_BOUNDS: Final = {
    "string": ("minLength", "maxLength", "character"),
    "array": ("minItems", "maxItems", "value"),
    "integer": ("minimum", "maximum", ""),
    "number": ("minimum", "maximum", ""),
}
"""The least and the most of each type, and what is counted; numbers are compared themselves."""

_TEXT_FORMATS: Final[Mapping[str, tuple[str, str | re.Pattern[str], str]]] = {
    "email": ("e-mail address", r"[^\s@]+@[^\s@]+", "ada@example.com"),
    "uri": (
        "URI, such as https://example.com",
        r"[A-Za-z][A-Za-z0-9+.\-]*:\S+",
        "https://example.com",
    ),
    "date": (
        "date, such as 2026-07-28",
        "[0-9]{4}-[01][0-9]-[0-3][0-9]",
        "2026-07-28",
    ),
    "date-time": (
        "date and time, such as 2026-07-28T09:30:00Z",
        RFC3339,
        "2026-07-28T09:30:00Z",
    ),
}
"""The formats that forms have, in words, with the pattern of their texts and an example."""

_TRUE_WORDS: Final = frozenset({"true", "yes", "y", "on", "1"})
_FALSE_WORDS: Final = frozenset({"false", "no", "n", "off", "0"})


def problem_of_value(value: Any, schema: Any) -> str | None:
    """Return why a value doesn't fit the field that has this schema; None where it does."""
    wanted_type = members_of(schema).get("type")
    if not isinstance(wanted_type, str) or wanted_type not in _TYPE_TESTS:
        return None

    words, is_of_type = _TYPE_TESTS[wanted_type]
    if not is_of_type(value):
        return f"is {type_name(value)}, and not {words}"

    problem = _problem_of_choice(value, schema) or _problem_of_format(value, schema)
    return problem or _problem_of_size(value, wanted_type, schema)


def _problem_of_choice(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Return why a value, or part of a list, is not among a field's choices; None if it is."""
    choices = [canonical(choice) for choice, _ in titled_choices(schema)]
    is_list = isinstance(value, list)
    chosen_values = value if is_list else [value]
    if not choices or {*map(canonical, chosen_values)} <= {*choices}:
        return None

    problem = f"is not one of {', '.join(choices)}"
    if is_list:
        return f"has a value that {problem}"

    return problem


def _problem_of_format(value: Any, schema: Mapping[str, Any]) -> str | None:
    """Return why a text is not in its field's format; None if it is, or the format is unknown."""
    format_name = str(schema.get("format"))
    if not isinstance(value, str) or format_name not in _TEXT_FORMATS:
        return None

    words, pattern, _ = _TEXT_FORMATS[format_name]
    has_valid_date = not format_name.startswith("date") or _is_calendar_date(value[:10])
    if has_valid_date and re.fullmatch(pattern, value):
        return None

    return f"is not a valid {words}"


def _is_calendar_date(text: str) -> bool:
    """Tell whether a text is a date of the calendar, such as 2026-07-28."""
    try:
        date.fromisoformat(text)
    except ValueError:
        return False

    return True


def _problem_of_size(
    value: Any, wanted_type: str, schema: Mapping[str, Any]
) -> str | None:
    """Return why a number, or the length of a text or a list, is out of bounds, or None."""
    least_member, most_member, noun = _SIZE_BOUNDS.get(wanted_type, ("", "", ""))
    size = decimal_of(value)
    sentence_start = "must be"
    if noun:
        size = Decimal(len(value))
        sentence_start = f"has {counted(len(value), noun)}, and must have"

    if size is None:
        return None

    lower = decimal_of(schema.get(least_member))
    if lower is not None and size < lower:
        return f"{sentence_start} at least {canonical(schema[least_member])}"

    upper = decimal_of(schema.get(most_member))
    if upper is not None and size > upper:
        return f"{sentence_start} at most {canonical(schema[most_member])}"

    return None


def type_name(value: Any) -> str:
    """Return what a value is, in words."""
    return next(
        words for words, is_of_type in _TYPE_TESTS.values() if is_of_type(value)
    )


def _is_whole_number(number: Decimal | None) -> bool:
    """Tell whether there is a number, and it has no fraction."""
    return number is not None and number == number.to_integral_value()


def titled_choices(schema: Any) -> list[tuple[Any, str]]:
    """Return the values that a field lists as choices, each with the title that people read."""
    if not isinstance(schema, dict):
        return []

    values = schema.get("enum")
    if isinstance(values, list):
        titles = schema.get("enumNames")
        if not isinstance(titles, list) or len(titles) != len(values):
            titles = values

        return list(zip(values, map(text_of_value, titles), strict=True))

    parts = schema.get("oneOf") or schema.get("anyOf")
    if not isinstance(parts, list):
        return titled_choices(schema.get("items"))

    choices = []
    for part in parts:
        if "const" not in members_of(part):
            return titled_choices(schema.get("items"))

        value = part["const"]
        choices.append((value, text_of_value(part.get("title", value))))

    return choices


def text_of_value(value: Any) -> str:
    """Return a text itself, and any other value as JSON."""
    return value if isinstance(value, str) else canonical(value)


def type_to_read_as(schema: Any) -> str:
    """Return the JSON type as which a text that somebody writes is read."""
    types = _known_types_in(members_of(schema))
    if not types or "string" in types:
        return "string"
    return types[0]


def _known_types_in(schema: Mapping[str, Any]) -> list[str]:
    """Return the known types that a schema allows, without null."""
    types = schema.get("type")
    parts = schema.get("anyOf")
    if types is None and isinstance(parts, list):
        # An optional argument is one of its type and of null.
        types = [members_of(part).get("type") for part in parts]
    elif not isinstance(types, list):
        types = [types]

    return [name for name in map(str, types) if name in _TYPE_TESTS and name != "null"]


def value_of_text(text: str, schema: Any) -> Any:
    """Return the value that a text means, by the type that its schema has.

    A text that doesn't read as that type stays a text.
    """
    match type_to_read_as(schema):
        case "boolean":
            return _boolean_from_text(text)
        case "integer" | "number" | "object":
            return value_of_json_or_text(text)
        case "array":
            return _list_from_text(text, schema)

    return text


def _list_from_text(text: str, schema: Mapping[str, Any]) -> list[Any]:
    """Return the list that a text means: a JSON array, or values between commas."""
    value = value_of_json_or_text(text)
    if isinstance(value, list):
        return value
    if not text.strip():
        return []

    values = []
    for part in text.split(","):
        values.append(value_of_text(part.strip(), schema.get("items")))

    return values


def _boolean_from_text(text: str) -> bool | str:
    """Return the boolean that a text means, such as `yes` or `off`; any other text stays."""
    word = text.strip().lower()
    if word in _TRUE_WORDS:
        return True
    if word in _FALSE_WORDS:
        return False

    return text


def value_of_json_or_text(text: str) -> Any:
    """Return the value that a text spells as JSON; any other text stays one."""
    try:
        return parse(text.strip().encode("utf-8", "surrogatepass"))
    except NotJsonError:
        return text


# Asking a person

_ACTION_BY_WORD: Final = {":decline": "decline", ":cancel": "cancel"}
_DIALOGUE_HELP: Final = (
    "  :decline or :cancel refuses; "
    "an empty line is the default or none; lists have commas"
)


Prompt = tuple[tuple[str, ...], str]
"""Lines are shown, then a line is read after the text; None is sent at the end of all lines."""

Dialogue = Generator[Prompt, str | None, Any]
"""What is done with a person, step by step; it returns the answer, or None where there is none."""


class _DialogueEndedError(Exception):
    """The person ends the question, with this action or none."""

    def __init__(self, action: str | None) -> None:
        super().__init__()
        self.action = action


def dialogue_with_person(key: str, request: InputRequest) -> Dialogue:
    """Ask a person for a form, a URL or a bare value, line by line."""
    line = f"The server asks for {key} ({request.kind})"
    if request.message:
        line += f": {request.message}"

    lines = [line]
    try:
        if not request.takes_bare_value:
            return (yield from _ask_for_form(request, lines))

        required = must_be_answered(request)
        value = yield from _ask_for_value(
            lines, key, value_schema(request), is_required=required
        )
    except _DialogueEndedError as ended:
        if ended.action is None or request.takes_bare_value:
            return None
        return elicitation_answer(ended.action)

    if value is ABSENT:
        return None

    return {"value": value}


def _typed_line(
    lines: Iterable[str], prompt: str
) -> Generator[Prompt, str | None, str]:
    """Show lines and return the line that a person types; an action or the end raises an error."""
    line = yield tuple(map(printable, lines)), printable(prompt)
    if line is None:
        raise _DialogueEndedError(None)
    if line in _ACTION_BY_WORD:
        raise _DialogueEndedError(_ACTION_BY_WORD[line])

    return line


def _ask_for_form(request: InputRequest, lines: list[str]) -> Dialogue:
    """Ask for each field of a form; a URL and a form without any are just confirmed."""
    fields = fields_of(request)
    if not fields:
        yield from _ask_to_confirm(request, lines)
        return elicitation_answer("accept", None if request.kind == "url" else {})

    content = {}
    lines.append(_DIALOGUE_HELP)
    for name, schema in fields.items():
        required = name in required_fields(request)
        value = yield from _ask_for_value(
            lines, name, members_of(schema), is_required=required
        )
        lines = []
        if value is not ABSENT:
            content[name] = value

    return elicitation_answer("accept", content)


def _ask_to_confirm(request: InputRequest, lines: list[str]) -> Dialogue:
    """Ask until a person accepts a URL or a form without fields; refusing raises an error."""
    if "url" in request.definition:
        lines.append(f"  {request.definition['url']}")

    line = ""
    while value_of_text(line, {"type": "boolean"}) is not True:
        line = yield from _typed_line(lines, "accept [y, :decline, :cancel]: ")
        lines = []

    return None


def _ask_for_value(
    lines: Sequence[str], name: str, schema: dict[str, Any], *, is_required: bool
) -> Dialogue:
    """Ask for a value until it fits; an optional one without a default may be `ABSENT`."""
    shown = [*lines, *_description_lines(schema)]
    prompt = _field_prompt(name, schema, is_required=is_required)
    while True:
        line = yield from _typed_line(shown, prompt)
        value = schema.get("default", ABSENT)
        if line:
            value = _value_of_typed_line(line, schema)

        problem = None
        if value is not ABSENT:
            problem = problem_of_value(value, schema)
        elif is_required:
            problem = "this is required"

        if problem is None:
            return value

        shown = [problem]


def _description_lines(schema: Mapping[str, Any]) -> list[str]:
    """Return the lines that describe a field and its choices."""
    description = schema.get("description")
    lines = []
    if isinstance(description, str):
        lines.append(f"  {description}")

    for number, (value, title) in enumerate(titled_choices(schema), start=1):
        line = f"  {number}) {text_of_value(value)}"
        if title != text_of_value(value):
            line += f": {title}"

        lines.append(line)

    return lines


def _field_prompt(name: str, schema: Mapping[str, Any], *, is_required: bool) -> str:
    """Return the prompt for a field: its title, name, type or format, and default."""
    kind = type_to_read_as(schema)
    about = _TEXT_FORMATS.get(str(schema.get("format")), _TYPE_TESTS[kind])[0]
    if kind != "array" and titled_choices(schema):
        about = "number or value"

    if "default" in schema:
        about += f", default {canonical(schema['default'])}"

    title = schema.get("title")
    label = f"{title} ({name})" if isinstance(title, str) else name
    if is_required:
        return f"{label}* [{about}]: "

    return f"{label} [{about}, optional]: "


def _value_of_typed_line(line: str, schema: Mapping[str, Any]) -> Any:
    """Return the value that a line means: one of the choices, several of them, or any other."""
    choices = titled_choices(schema)
    if not choices:
        return value_of_text(line, schema)
    if type_to_read_as(schema) != "array":
        return _choice_of_text(line.strip(), choices)

    chosen_values = []
    for part in line.split(","):
        text = part.strip()
        if text:
            chosen_values.append(_choice_of_text(text, choices))

    return chosen_values


def _choice_of_text(text: str, choices: Sequence[tuple[Any, str]]) -> Any:
    """Return the choice that a text means by its value, its title or its number, or the text."""
    for value, title in choices:
        if text in (text_of_value(value), title):
            return value

    if text.isascii() and text.isdigit():
        number = int(text)
        if 0 < number <= len(choices):
            return choices[number - 1][0]

    return text


# Answers that fit, for hints that are taken as they stand


_SAMPLE_TEXT: Final = "text"
_LONGEST_EXAMPLE: Final = 10_000
"""Characters of the longest text or list that is made for an example."""


class Example(NamedTuple):
    """The values of a form's fields that are needed, or else what answers a question as a whole."""

    fields: Mapping[str, Any]
    whole: Any = None


def example_answer(request: InputRequest) -> Example:
    """Return an answer that fits a question."""
    if request.takes_bare_value:
        return Example({}, example_value(value_schema(request)))

    fields = fields_of(request)
    names = required_fields(request) or [*fields]
    if request.kind != "form" or not names:
        return Example({}, question_kind(request.kind).example)

    values = {}
    can_be_named = True
    for name in names:
        values[name] = example_value(fields.get(name))
        if name not in fields or not _can_be_pair_name(name):
            can_be_named = False

    answer = elicitation_answer("accept", values)
    if problem_of_answer(request, answer) is not None:
        return Example({}, "decline")
    if not can_be_named:
        return Example({}, answer)

    return Example(values)


def _can_be_pair_name(name: str) -> bool:
    """Tell whether a pair can have a name."""
    return "=" not in name and not name.endswith(":")


def example_value(schema: Any) -> Any:
    """Return a value for a field that has this schema."""
    members = members_of(schema)
    if "default" in members:
        return members["default"]

    match type_to_read_as(members):
        case "array":
            return _example_list(members)
        case "integer" | "number":
            value = members.get("minimum", members.get("maximum", 1))
        case "boolean":
            value = True
        case _:
            value = _example_text(members)

    choices = titled_choices(members)
    if choices:
        return choices[0][0]

    return value


def _example_list(schema: Mapping[str, Any]) -> list[Any]:
    """Return a list of as many values as a field needs, its first choices if it has any."""
    count = schema.get("minItems")
    if not isinstance(count, int):
        count = 1

    choices = [value for value, _ in titled_choices(schema)]
    if choices:
        return choices[:count]

    item = example_value(schema.get("items"))
    if count * len(canonical(item)) > _LONGEST_EXAMPLE:
        return [item]

    return [item] * count


def _example_text(schema: Mapping[str, Any]) -> str:
    """Return an example text in the format and the length that a field's schema wants."""
    text = _SAMPLE_TEXT
    if schema.get("format") in _TEXT_FORMATS:
        _, _, text = _TEXT_FORMATS[schema["format"]]

    least = schema.get("minLength")
    if isinstance(least, int) and least <= _LONGEST_EXAMPLE:
        text = text.ljust(least, ".")

    most = schema.get("maxLength")
    if isinstance(most, int):
        text = text[:most]

    return text


def spelled_pair(name: str, value: Any) -> str:
    """Return a name and a value as the command line takes them."""
    if isinstance(value, bool):
        return f"{name}={'yes' if value else 'no'}"
    if isinstance(value, str):
        return f"{name}={value}"
    return f"{name}:={canonical(value)}"
