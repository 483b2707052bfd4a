"""The questions of a turn as a page draws them: forms with their fields, and the answers in them.

Rule: a schema is a server's word. Whatever it is, all that was answered is in a field.
Source: MCP 2026-07-28, "Elicitation", "Sampling", "Roots"; `PrimitiveSchemaDefinition`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from mrtr_cassette.core.answers.checking import titled_choices
from mrtr_cassette.core.protocol.dialect import ARRAY, InputRequest
from mrtr_cassette.core.report.details import Turn
from mrtr_cassette.core.report.text import message_lines
from mrtr_cassette.core.report.wording import json_text

_ACTIONS: Final = {"accept": "Accepted", "decline": "Declined", "cancel": "Cancelled"}
_KINDS: Final = {
    "form": "a form",
    "url": "a visit to a URL",
    "sampling": "a model's text",
    "roots": "the client's roots",
}
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
    """One of the values that a field may have; a chosen one is in the answer."""

    label: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of a form, with what a reader is told of it and the text that was put in."""

    name: str
    label: str
    description: str
    kind: Literal["one line", "lines", "check", "choice", "choices"]
    helps: tuple[str, ...]
    choices: tuple[Choice, ...]
    value: str

    @property
    def has_buttons(self) -> bool:
        """Its choices are drawn beside each other, not as a list that opens."""
        return bool(self.choices) and len(self.choices) <= _FEW_CHOICES


class ShownQuestion(NamedTuple):
    """A question as a page draws it, and its answer, which may be null.

    Attributes:
        kind: how it is drawn: `form`, `url`, `sampling`, `roots`, or another kind as JSON.
        asks_for: what it asks for, in words.
        look: how it looks: `unanswered`, `answered`, or the action of the answer.
        shows_answer: the answer stands below it, as nothing above it has all of it.
        settings: what the server says of a model's text beside the messages.
        roots: those that a client has; None where the answer isn't a list of them.
    """

    key: str
    definition: Mapping[str, Any]
    kind: str
    asks_for: str
    message: str
    answer: Any
    look: str
    outcome: str
    shows_answer: bool
    fields: tuple[FormField, ...]
    settings: Mapping[str, Any]
    model_notes: Sequence[str]
    roots: Sequence[Mapping[str, Any]] | None


def questions_of(turn: Turn) -> Iterator[ShownQuestion]:
    """Yield the questions of a turn."""
    answers: Mapping[str, Any] = turn.answered or {}
    for key, request in turn.input_requests.items():
        given = [answers[key]] if key in answers else []
        yield _question(key, request, given, is_listed=turn.dialect == ARRAY)


def _question(
    key: str, request: InputRequest, given: list[Any], *, is_listed: bool
) -> ShownQuestion:
    definition, answer = request.definition, given[0] if given else None
    members = answer if isinstance(answer, dict) else {}
    action, roots = members.get("action"), members.get("roots")
    known = action if isinstance(action, str) and action in _ACTIONS else ""
    is_refusal = isinstance(answer, dict) and answer.keys() == {"error"}
    is_told = known or "value" in members or request.kind in {"sampling", "roots"}
    outcome = "Refused with an error" if is_refusal else _ACTIONS.get(known, "Answered")
    is_list = isinstance(roots, list) and all(isinstance(each, dict) for each in roots)
    shown_apart = {"systemPrompt", "messages"}
    return ShownQuestion(
        key=key,
        definition=definition,
        kind="form" if is_listed else request.kind,
        asks_for=_KINDS.get(request.kind, request.kind),
        message="\n".join(message_lines(request)),
        answer=answer,
        look=(known or "answered") if given else "unanswered",
        outcome=outcome if given else "No answer",
        shows_answer=bool(given) and (is_refusal or not is_told),
        fields=(_listed_field(definition, answer),)
        if is_listed
        else form_fields(definition.get("requestedSchema"), members.get("content")),
        settings={name: each for name, each in definition.items() if name not in shown_apart},
        model_notes=[f"{at}: {members[at]}" for at in ("model", "stopReason") if at in members],
        roots=roots if is_list else None,
    )


def unasked_in(turn: Turn) -> dict[str, Any]:
    """Return what a turn answers without being asked."""
    answers: Mapping[str, Any] = turn.answered or {}
    return {key: value for key, value in answers.items() if key not in turn.input_requests}


def form_fields(schema: Any, content: Any) -> tuple[FormField, ...]:
    """Return the fields of a form, those that the schema lacks after all others.

    Args:
        schema: the `requestedSchema` of an elicitation, whatever it is.
        content: what was answered; no object where nothing was.
    """
    members = schema if isinstance(schema, dict) else {}
    properties, required = members.get("properties"), members.get("required")
    properties = properties if isinstance(properties, dict) else {}
    required = required if isinstance(required, list) else []
    answers = content if isinstance(content, dict) else {}
    fields = [
        _field(name, definition, answers, ("required",) if name in required else ())
        for name, definition in properties.items()
    ]
    unasked = [name for name in answers if name not in properties]
    fields += [_field(name, {}, answers, ("not in the schema",)) for name in unasked]
    return tuple(fields)


def _listed_field(definition: Mapping[str, Any], answer: Any) -> FormField:
    """Return the one field of a question in the dialect that lists them."""
    key, kind = str(definition.get("id", "")), definition.get("kind")
    answers = {key: answer["value"]} if isinstance(answer, dict) and "value" in answer else {}
    is_optional = definition.get("required", True) is False
    helps = () if is_optional else ("required",)
    return _field(key, {**definition, "type": kind}, answers, helps)


def _field(
    name: str, definition: Any, answers: Mapping[str, Any], helps: tuple[str, ...]
) -> FormField:
    facts = definition if isinstance(definition, dict) else {}
    given = [answers[name]] if name in answers else []
    value = _text(given[0]) if given else ""
    choices, is_several = _choices(facts, given)
    title, description, kind = (facts.get(each) for each in ("title", "description", "type"))
    hints = [kind] if isinstance(kind, str) and kind not in {"string", "boolean", "array"} else []
    hints += [f"{words} {_text(facts[limit])}" for limit, words in _LIMITS if limit in facts]
    is_check = kind == "boolean" and all(isinstance(each, bool) for each in given)
    is_long = "\n" in value or len(value) > _LONGEST_LINE
    return FormField(
        name=name,
        label=title if isinstance(title, str) and title else name,
        description=description if isinstance(description, str) else "",
        kind=("choices" if is_several else "choice")
        if choices
        else "check"
        if is_check
        else "lines"
        if is_long
        else "one line",
        helps=(*hints, *helps),
        choices=choices,
        value=value,
    )


def _choices(facts: Mapping[str, Any], given: list[Any]) -> tuple[tuple[Choice, ...], bool]:
    """Return the choices of a field, and whether it takes several."""
    is_several = facts.get("type") == "array" and isinstance(facts.get("items"), dict)
    options = [(_text(value), title) for value, title in titled_choices(facts)]
    if not options:
        return (), is_several
    if given and isinstance(given[0], list):
        given = given[0]
    chosen = [_text(each) for each in given]
    choices = [Choice(label, option in chosen) for option, label in options]
    # What was answered is shown, also where it was none of the choices.
    offered = {option for option, _ in options}
    choices += [Choice(text, is_chosen=True) for text in chosen if text not in offered]
    return tuple(choices), is_several


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)
