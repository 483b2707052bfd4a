"""Values against JSON Schemas: of a form's fields, of a tool's arguments.

Rule: what this module doesn't know of a schema is the server's to judge; nothing that is valid is
ever refused, and no pattern can hang. That is why it is no general validator: those run patterns by
Python's `re`, and quote the value, which may be a secret, in their messages.
Source: MCP 2026-07-28, `PrimitiveSchemaDefinition`, `Tool.inputSchema`; JSON Schema 2020-12.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.secrets.patterns import refusal_of, searches
from mrtr_cassette.core.wire.jsonbytes import canonical, parse
from mrtr_cassette.core.wire.numbers import Number
from mrtr_cassette.core.wire.pointers import escape_pointer
from mrtr_cassette.errors import NotJsonError, counted

_TYPES: Final = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}
_MOST_REFERENCES: Final = 50
"""Levels of `$ref` and of subschemas that are followed; a schema may refer to itself."""
_DATE: Final = r"(?P<year>[0-9]{4})-(?P<month>0[1-9]|1[0-2])-(?P<day>0[1-9]|[12][0-9]|3[01])"
_TIME: Final = r"[Tt](?:[01]\d|2[0-4]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)"
_FORM_OF: Final = {
    "email": re.compile(r"[^\s@]+@[^\s@]+"),
    "uri": re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:\S+"),
    "date": re.compile(_DATE),
    "date-time": re.compile(_DATE + _TIME),
}
_TRUE: Final = frozenset({"true", "yes", "y", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "n", "off", "0"})


class Problem(NamedTuple):
    """One place where a value breaks its schema.

    Attributes:
        pointer: JSON Pointer to it; empty for the whole value.
        text: what is wrong there, without the value.
    """

    pointer: str
    text: str


def problems_of(value: Any, schema: Any) -> list[Problem]:
    """Return where a value breaks its schema."""
    return list(_Checker(schema).problems(value, schema, "", 0))


class _Checker:
    """Checks values against the parts of one schema, which may refer to each other."""

    def __init__(self, root: Any) -> None:
        self._root = root

    def problems(self, value: Any, schema: Any, at: str, depth: int) -> Iterator[Problem]:
        if schema is False:
            yield Problem(at, "must not be there")
        if not isinstance(schema, Mapping) or depth > _MOST_REFERENCES:
            return
        if "$ref" in schema:
            yield from self.problems(value, self._referred(schema["$ref"]), at, depth + 1)
        wanted = _types_of(schema)
        if wanted and not any(_is_of_type(value, each) for each in wanted):
            yield Problem(at, f"is {type_name(value)}, and not {_alternatives(wanted)}")
            return
        yield from self._value_problems(value, schema, at)
        if isinstance(value, dict):
            yield from self._object_problems(value, schema, at, depth)
        elif isinstance(value, list):
            yield from self._list_problems(value, schema, at, depth)
        yield from self._combined_problems(value, schema, at, depth)

    def _referred(self, reference: Any) -> Any:
        """Return the schema that a reference within this one names; True for any other."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return True
        referred = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            referred = referred.get(name, True) if isinstance(referred, Mapping) else True
        return referred

    def _value_problems(self, value: Any, schema: Mapping[str, Any], at: str) -> Iterator[Problem]:
        choices = choices_of(schema)
        if choices and not _is_among(value, choices):
            shown = ", ".join(canonical(choice) for choice in choices)
            yield Problem(at, f"is not one of {shown}")
        if isinstance(value, str):
            yield from _text_problems(value, schema, at)
        elif (number := decimal_of(value)) is not None:
            yield from _number_problems(number, schema, at)

    def _object_problems(
        self, value: dict[str, Any], schema: Mapping[str, Any], at: str, depth: int
    ) -> Iterator[Problem]:
        for name in _listed(schema.get("required")):
            if isinstance(name, str) and name not in value:
                yield Problem(f"{at}/{escape_pointer(name)}", "is required and missing")
        properties = _mapped(schema.get("properties"))
        patterns = _mapped(schema.get("patternProperties"))
        others = schema.get("additionalProperties", True)
        for name, member in value.items():
            place = f"{at}/{escape_pointer(name)}"
            if name in properties:
                yield from self.problems(member, properties[name], place, depth + 1)
            elif others is False and not patterns:
                listed = ", ".join(properties) or "none"
                yield Problem(place, f"is unknown; there are: {listed}")
            elif not patterns:
                yield from self.problems(member, others, place, depth + 1)

    def _list_problems(
        self, value: list[Any], schema: Mapping[str, Any], at: str, depth: int
    ) -> Iterator[Problem]:
        yield from _size_problems(len(value), "value", schema, ("minItems", "maxItems"), at)
        if schema.get("uniqueItems") is True and len({*map(canonical, value)}) < len(value):
            yield Problem(at, "has a value twice")
        first = _listed(schema.get("prefixItems"))
        for index, item in enumerate(value):
            part = first[index] if index < len(first) else schema.get("items", True)
            yield from self.problems(item, part, f"{at}/{index}", depth + 1)

    def _combined_problems(
        self, value: Any, schema: Mapping[str, Any], at: str, depth: int
    ) -> Iterator[Problem]:
        for part in _listed(schema.get("allOf")):
            yield from self.problems(value, part, at, depth + 1)
        for combined in ("anyOf", "oneOf"):
            parts = _listed(schema.get(combined))
            # What has been named as a list of choices is told better there.
            if not parts or choices_of(schema):
                continue
            problems_of_parts = [list(self.problems(value, part, at, depth + 1)) for part in parts]
            if all(problems_of_parts):
                nearest = min(problems_of_parts, key=lambda each: (-_deepest(each), len(each)))
                yield from nearest


def _deepest(problems: list[Problem]) -> int:
    """Return how deep in the value the deepest of some problems is."""
    return max(problem.pointer.count("/") for problem in problems)


def _types_of(schema: Mapping[str, Any]) -> list[str]:
    """Return the types that a schema allows, as far as they are known; none where all are."""
    named = schema.get("type")
    types = [named] if isinstance(named, str) else _listed(named)
    return [each for each in types if each in _TYPES] if all(t in _TYPES for t in types) else []


def _alternatives(types: list[str]) -> str:
    return " or ".join(_TYPES[each] for each in types)


def _is_of_type(value: Any, name: str) -> bool:
    match name:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
    number = decimal_of(value)
    return number is not None and (name == "number" or number == number.to_integral_value())


def type_name(value: Any) -> str:
    """Return what a value is, in words."""
    for name, words in _TYPES.items():
        if _is_of_type(value, name):
            return words
    return "no JSON value"


def decimal_of(value: Any) -> Decimal | None:
    """Return a JSON number exactly; None for any other value."""
    if isinstance(value, Number):
        return Decimal(value.text)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Decimal(str(value))
    return None


def choices_of(schema: Any) -> list[Any]:
    """Return the values that a schema lists as choices; none where it lists none."""
    return [value for value, _ in titled_choices(schema)]


def titled_choices(schema: Any) -> list[tuple[Any, str]]:
    """Return the values that a schema lists as choices, each with the title that people read."""
    if not isinstance(schema, Mapping):
        return []
    values = schema.get("enum")
    if isinstance(values, list):
        names = _listed(schema.get("enumNames"))
        titles = names if len(names) == len(values) else values
        return [(value, _text(title)) for value, title in zip(values, titles, strict=True)]
    if "const" in schema:
        return [(schema["const"], _text(schema.get("title", schema["const"])))]
    for combined in ("oneOf", "anyOf"):
        parts = _listed(schema.get(combined))
        if parts and all(isinstance(part, Mapping) and "const" in part for part in parts):
            return [(part["const"], _text(part.get("title", part["const"]))) for part in parts]
    return []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else canonical(value)


def _is_among(value: Any, choices: list[Any]) -> bool:
    return canonical(value) in {canonical(choice) for choice in choices}


def _size_problems(
    size: int, noun: str, schema: Mapping[str, Any], bounds: tuple[str, str], at: str
) -> Iterator[Problem]:
    least, most = (_count(schema.get(bound)) for bound in bounds)
    if least is not None and size < least:
        yield Problem(at, f"has {counted(size, noun)}, and not at least {least}")
    if most is not None and size > most:
        yield Problem(at, f"has {counted(size, noun)}, and not at most {most}")


def _text_problems(value: str, schema: Mapping[str, Any], at: str) -> Iterator[Problem]:
    yield from _size_problems(len(value), "character", schema, ("minLength", "maxLength"), at)
    pattern = schema.get("pattern")
    # What RE2 refuses is the server's to judge.
    if isinstance(pattern, str) and not refusal_of(pattern) and not searches(pattern, value):
        yield Problem(at, f"does not match {pattern}")
    wanted = schema.get("format")
    if wanted in FORMATS and not _has_form(value, wanted):
        yield Problem(at, f"is no {FORMATS[wanted]}")


def _has_form(value: str, wanted: str) -> bool:
    found = _FORM_OF[wanted].fullmatch(value)
    if found is None or wanted not in ("date", "date-time"):
        return found is not None
    return int(found["day"]) <= monthrange(int(found["year"]), int(found["month"]))[1]


FORMATS: Final = {
    "email": "e-mail address",
    "uri": "URI, such as https://example.com",
    "date": "date, such as 2026-07-28",
    "date-time": "date and time, such as 2026-07-28T09:30:00Z",
}
"""The formats that forms have, in words."""


def _number_problems(value: Decimal, schema: Mapping[str, Any], at: str) -> Iterator[Problem]:
    for member, (words, holds) in _BOUNDS.items():
        bound = decimal_of(schema.get(member))
        if bound is not None and not holds(value, bound):
            yield Problem(at, f"is not {words} {canonical(schema[member])}")


_BOUNDS: Final[Mapping[str, tuple[str, Callable[[Decimal, Decimal], bool]]]] = {
    "minimum": ("at least", Decimal.__ge__),
    "maximum": ("at most", Decimal.__le__),
    "exclusiveMinimum": ("more than", Decimal.__gt__),
    "exclusiveMaximum": ("less than", Decimal.__lt__),
    "multipleOf": ("a multiple of", lambda value, step: step <= 0 or value % step == 0),
}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapped(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _count(value: Any) -> int | None:
    number = decimal_of(value)
    return None if number is None else int(number)


def type_of_text(schema: Any) -> str:
    """Return the JSON type as which a text that somebody writes is read."""
    if not isinstance(schema, Mapping):
        return "string"
    types = [each for each in _types_of(schema) if each != "null"]
    for part in [] if types else [*_listed(schema.get("anyOf")), *_listed(schema.get("oneOf"))]:
        types += [each for each in [type_of_text(part)] if part != {"type": "null"}]
    return "string" if not types or "string" in types else types[0]


def value_of_text(text: str, schema: Any) -> Any:
    """Return the value that a text means, by the type that its schema has.

    A text that doesn't read as that type stays a text, which the schema refuses then.
    """
    match type_of_text(schema):
        case "boolean":
            folded = text.strip().lower()
            return True if folded in _TRUE else False if folded in _FALSE else text
        case "integer" | "number" | "object" | "null":
            return _json_or_text(text)
        case "array":
            value = _json_or_text(text)
            if isinstance(value, list):
                return value
            items = schema.get("items") if isinstance(schema, Mapping) else None
            parts = [part.strip() for part in text.split(",")] if text.strip() else []
            return [value_of_text(part, items) for part in parts]
    return text


def _json_or_text(text: str) -> Any:
    try:
        return parse(text.strip().encode("utf-8", "surrogatepass"))
    except NotJsonError:
        return text
