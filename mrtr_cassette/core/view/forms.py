"""A question as the form that its schema describes, with the recorded answer in it.

Rule: a schema is a server's word. Whatever it is, all that was answered is in a field.
Source: MCP 2026-07-28, "Elicitation": `PrimitiveSchemaDefinition`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from mrtr_cassette.core.answers.schemas import titled_choices
from mrtr_cassette.core.report.wording import json_text

FieldKind = Literal["text", "long", "check", "choice", "choices"]
"""One line of text, several, a box to tick, one of several choices, some of several choices."""

_LONGEST_LINE: Final = 80
_FEW_CHOICES: Final = 6
_LIMITS: Final = (
    ("minimum", "at least"),
    ("maximum", "at most"),
    ("minLength", "characters: at least"),
    ("maxLength", "characters: at most"),
    ("minItems", "choices: at least"),
    ("maxItems", "choices: at most"),
    ("format", "format"),
    ("pattern", "pattern"),
    ("default", "default"),
)


class Choice(NamedTuple):
    """One of the values that a field may have.

    Attributes:
        label: what a person reads.
        is_chosen: it is what was answered, or a part of it.
    """

    label: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of a form.

    Attributes:
        name: its name in the schema.
        label: what a person reads, the name where the schema has no title.
        description: what the schema says of it, or an empty string.
        kind: how it is drawn.
        hints: its type and its limits, such as `integer`, `at least 1`.
        choices: the values to choose from.
        value: the text that was put in; of a box `true` or `false`.
        is_required: the schema requires it.
        is_answered: the answer has it.
        is_asked: the schema has it.
    """

    name: str
    label: str
    description: str
    kind: FieldKind
    hints: tuple[str, ...]
    choices: tuple[Choice, ...]
    value: str
    is_required: bool
    is_answered: bool
    is_asked: bool

    @property
    def has_buttons(self) -> bool:
        """Its choices are drawn beside each other, not as a list that opens."""
        return bool(self.choices) and len(self.choices) <= _FEW_CHOICES

    @property
    def helps(self) -> tuple[str, ...]:
        """What a reader is told of it: its hints, and whether it is required or not asked for."""
        facts = {"required": self.is_required, "not in the schema": not self.is_asked}
        return (*self.hints, *(words for words, applies in facts.items() if applies))


def form_fields(schema: Any, content: Any) -> tuple[FormField, ...]:
    """Return the fields of a form, those that the schema lacks after all others.

    Args:
        schema: the `requestedSchema` of an elicitation, whatever it is.
        content: what was answered; no object where nothing was.
    """
    properties = schema.get("properties") if isinstance(schema, dict) else None
    properties = properties if isinstance(properties, dict) else {}
    required = schema.get("required") if isinstance(schema, dict) else None
    required = required if isinstance(required, list) else []
    answers = content if isinstance(content, dict) else {}
    fields = [
        _field(name, definition, answers, is_required=name in required)
        for name, definition in properties.items()
    ]
    fields += [
        _field(name, {}, answers, is_asked=False) for name in answers if name not in properties
    ]
    return tuple(fields)


def listed_field(definition: Mapping[str, Any], answer: Any) -> FormField:
    """Return the one field of a question in the dialect that lists them."""
    key, kind = str(definition.get("id", "")), definition.get("kind")
    answers = {key: answer["value"]} if isinstance(answer, dict) and "value" in answer else {}
    is_required = definition.get("required", True) is not False
    return _field(key, {**definition, "type": kind}, answers, is_required=is_required)


def _field(
    name: str,
    definition: Any,
    answers: Mapping[str, Any],
    *,
    is_required: bool = False,
    is_asked: bool = True,
) -> FormField:
    facts = definition if isinstance(definition, dict) else {}
    is_answered = name in answers
    value = answers.get(name)
    kind, choices = _kind_and_choices(facts, value, is_answered=is_answered)
    title, description = facts.get("title"), facts.get("description")
    return FormField(
        name=name,
        label=title if isinstance(title, str) and title else name,
        description=description if isinstance(description, str) else "",
        kind=kind,
        hints=tuple(_hints(facts)),
        choices=choices,
        value=_text(value) if is_answered else "",
        is_required=is_required,
        is_answered=is_answered,
        is_asked=is_asked,
    )


def _kind_and_choices(
    facts: Mapping[str, Any], value: Any, *, is_answered: bool
) -> tuple[FieldKind, tuple[Choice, ...]]:
    items = facts.get("items")
    is_several = facts.get("type") == "array" and isinstance(items, dict)
    listed = titled_choices(facts)
    options = [(_text(value), title) for value, title in listed]
    if options:
        given = [] if not is_answered else value if isinstance(value, list) else [value]
        chosen = [_text(each) for each in given]
        choices = [Choice(label, option in chosen) for option, label in options]
        # What was answered is shown, also where it was none of the choices.
        offered = {option for option, _ in options}
        choices += [Choice(text, is_chosen=True) for text in chosen if text not in offered]
        return ("choices" if is_several else "choice"), tuple(choices)
    if facts.get("type") == "boolean" and (not is_answered or isinstance(value, bool)):
        return "check", ()
    text = _text(value) if is_answered else ""
    return ("long" if "\n" in text or len(text) > _LONGEST_LINE else "text"), ()


def _hints(facts: Mapping[str, Any]) -> list[str]:
    kind = facts.get("type")
    hints = [kind] if isinstance(kind, str) and kind not in {"string", "boolean", "array"} else []
    hints += [f"{words} {_text(facts[name])}" for name, words in _LIMITS if name in facts]
    return hints


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)
