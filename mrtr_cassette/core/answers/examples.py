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

_TEXT: Final = "text"
_FORMATTED: Final = {
    "email": "ada@example.com",
    "uri": "https://example.com",
    "date": "2026-07-28",
    "date-time": "2026-07-28T09:30:00Z",
}
_OF_KINDS: Final[Mapping[str, Any]] = {"url": "accept", "sampling": _TEXT, "roots": {"roots": []}}
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
    values = {name: example_of(fields.get(name)) for name in names}
    can_be_named = all(name in fields and "=" not in name and name[-1:] != ":" for name in names)
    answer = elicited("accept", values)
    if problem_of(request, answer) is not None:
        return Example({}, "decline")
    return Example(values) if can_be_named else Example({}, answer)


def example_of(schema: Any) -> Any:
    """Return a value for a field that has this schema."""
    if not isinstance(schema, Mapping):
        return _TEXT
    if "default" in schema:
        return schema["default"]
    kind, choices = type_of_text(schema), titled_choices(schema)
    if kind == "array":
        least = schema.get("minItems")
        count = least if isinstance(least, int) else 1
        return [value for value, _ in choices][:count] or [example_of(schema.get("items"))] * count
    if choices:
        return choices[0][0]
    if kind in ("integer", "number"):
        return schema.get("minimum", schema.get("maximum", 1))
    return True if kind == "boolean" else _example_text(schema)


def _example_text(schema: Mapping[str, Any]) -> str:
    text = _FORMATTED.get(str(schema.get("format")), _TEXT)
    least, most = schema.get("minLength"), schema.get("maxLength")
    if isinstance(least, int):
        text = text.ljust(least, ".")
    return text[:most] if isinstance(most, int) else text


def spelled_pair(name: str, value: Any) -> str:
    """Return a name and a value as the command line takes them."""
    if isinstance(value, bool):
        return f"{name}={'yes' if value else 'no'}"
    if isinstance(value, str):
        return f"{name}={value}"
    return f"{name}:={canonical(value)}"
