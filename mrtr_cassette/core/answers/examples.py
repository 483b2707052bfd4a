"""Answers that fit, for hints that are taken as they stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.answers.forms import (
    elicited,
    fields_of,
    problem_of,
    required_in,
    titled_choices,
    type_of_text,
    value_schema,
)
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.core.wire.pointers import members_of

_TEXT: Final = "text"
_FORMATTED: Final = {
    "email": "ada@example.com",
    "uri": "https://example.com",
    "date": "2026-07-28",
    "date-time": "2026-07-28T09:30:00Z",
}
_OF_KINDS: Final[Mapping[str, Any]] = {
    "url": "accept",
    "sampling": _TEXT,
    "roots": {"roots": []},
}
"""Answers to questions that have no fields."""


class Example(NamedTuple):
    """The values of a form's fields that are needed, or else what answers a question as a whole."""

    fields: Mapping[str, Any]
    whole: Any = None


def example_answer(request: InputRequest) -> Example:
    """Return an answer that fits a question."""
    if request.takes_value:
        return Example({}, example_of(value_schema(request)))

    fields = fields_of(request)
    names = required_in(request) or [*fields]
    if request.kind != "form" or not names:
        return Example({}, _OF_KINDS.get(request.kind, "accept"))

    values = {}
    can_be_named = True
    for name in names:
        values[name] = example_of(fields.get(name))
        if name not in fields or not _can_be_written(name):
            can_be_named = False

    answer = elicited("accept", values)
    if problem_of(request, answer) is not None:
        return Example({}, "decline")
    if not can_be_named:
        return Example({}, answer)

    return Example(values)


def _can_be_written(name: str) -> bool:
    """Tell whether a pair can have a name."""
    return "=" not in name and not name.endswith(":")


def example_of(schema: Any) -> Any:
    """Return a value for a field that has this schema."""
    members = members_of(schema)
    if "default" in members:
        return members["default"]

    match type_of_text(members):
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
    count = schema.get("minItems")
    if not isinstance(count, int):
        count = 1

    choices = [value for value, _ in titled_choices(schema)]
    return choices[:count] or [example_of(schema.get("items"))] * count


def _example_text(schema: Mapping[str, Any]) -> str:
    text = _FORMATTED.get(str(schema.get("format")), _TEXT)
    least = schema.get("minLength")
    if isinstance(least, int):
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
