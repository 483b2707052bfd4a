"""A turn on a page: each question as the form that it is, with its answer in it.

Rule: nothing on the page can be sent or followed: fields are disabled, a recorded URL is a text.
Source: MCP 2026-07-28, "Elicitation", "Sampling", "Roots".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mrtr_cassette.core.protocol.dialect import ARRAY, InputRequest
from mrtr_cassette.core.report.inspection import Turn
from mrtr_cassette.core.report.review import message_lines
from mrtr_cassette.core.view.forms import FormField, form_fields, listed_field
from mrtr_cassette.core.view.markup import Markup, element, joined, recorded, replaced_in
from mrtr_cassette.core.view.timeline import shown_time
from mrtr_cassette.core.view.values import (
    chip,
    facts_list,
    folded,
    json_block,
    message_bubble,
    text_block,
)

_ACTIONS: Final = {"accept": "accepted", "decline": "declined", "cancel": "cancelled"}
_KINDS: Final = {
    "form": "a form",
    "url": "a visit to a URL",
    "sampling": "a model's text",
    "roots": "the client's roots",
}
_FEW_CHOICES: Final = 6
"""So many choices are drawn beside each other, more of them as a list that opens."""


def turn_section(turn: Turn, place: str, number: int, answering_ms: float | None) -> Markup:
    """Return a turn.

    Args:
        place: its id on the page, such as `i2t1`.
        answering_ms: how long it waited for its answers, or None.
    """
    answers = None if turn.answered is None else dict(turn.answered)
    chips = [chip("via: push" if turn.via == "push" else "via: result")]
    if turn.has_request_state:
        chips.append(chip("request state", "sealed"))
    if turn.dialect == ARRAY:
        chips.append(chip("array dialect"))
    if turn.answered_by is not None:
        chips.append(chip(f"by the recording proxy: {turn.answered_by}", "person"))
    if answering_ms is not None:
        chips.append(chip(f"answered after {shown_time(answering_ms)}", "person"))
    elif answers is None:
        chips.append(chip("not answered", "bad"))
    questions = [
        _question(f"{place}q{at}", key, request, turn.dialect, answers)
        for at, (key, request) in enumerate(turn.input_requests.items(), start=1)
    ]
    if not questions:
        words = "The server asks for nothing but the same call again, with its request state."
        questions = [element("p", words, class_="note")]
    unasked = {
        key: value for key, value in (answers or {}).items() if key not in turn.input_requests
    }
    if unasked:
        questions.append(folded("Answered without being asked", json_block(unasked)))
    heading = element("h4", element("a", f"Turn {number}", href=f"#{place}"), ": the server asks")
    head = element("div", heading, chips, class_="head")
    return element("section", head, questions, class_="turn", id=place)


def _question(
    place: str,
    key: str,
    request: InputRequest,
    dialect: str | None,
    answers: Mapping[str, Any] | None,
) -> Markup:
    is_answered = answers is not None and key in answers
    answer = answers[key] if answers is not None and is_answered else None
    legend = element(
        "legend",
        element("b", recorded(key)),
        element("span", f" asks for {_KINDS.get(request.kind, request.kind)}"),
    )
    message = "\n".join(message_lines(request))
    words = element("p", recorded(message), class_="message") if message else None
    return element(
        "fieldset",
        legend,
        words,
        _drawn(place, request, dialect, answer),
        _outcome(answer, request.kind, is_answered=is_answered),
        class_=f"question {_answer_class(answer, is_answered=is_answered)}",
        disabled=True,
    )


def _drawn(place: str, request: InputRequest, dialect: str | None, answer: Any) -> Markup | None:
    """Return what a question asks for, and what was answered."""
    definition = request.definition
    content = answer.get("content") if isinstance(answer, dict) else None
    if dialect == ARRAY:
        return _field(f"{place}f1", listed_field(definition, answer))
    match request.kind:
        case "form":
            fields = form_fields(definition.get("requestedSchema"), content)
            return joined([_field(f"{place}f{at}", each) for at, each in enumerate(fields, 1)])
        case "url":
            return facts_list([("opens", element("code", recorded(str(definition.get("url")))))])
        case "sampling":
            return _sampling(definition, answer)
        case "roots":
            return _roots(answer)
        case _:
            return json_block(dict(definition))


# Forms


def _field(place: str, field: FormField) -> Markup:
    helps = [*field.hints]
    if field.is_required:
        helps.append("required")
    if not field.is_asked:
        helps.append("not in the schema")
    replaced = replaced_in(field.value)
    if replaced:
        helps.append(replaced)
    notes = [
        element("span", recorded(field.description), class_="description")
        if field.description
        else None,
        element("small", recorded(", ".join(helps)), class_=replaced or None) if helps else None,
    ]
    if field.kind in {"choice", "choices"} and len(field.choices) <= _FEW_CHOICES:
        return element(
            "div",
            element("span", recorded(field.label), class_="label", id=f"{place}l"),
            element("div", _buttons(place, field), class_="buttons"),
            notes,
            role="group",
            aria_labelledby=f"{place}l",
            class_="field",
        )
    label = element("label", recorded(field.label), for_=place, class_="label")
    if field.kind == "check":
        return element("div", _control(place, field), label, notes, class_="field check")
    return element("div", label, _control(place, field), notes, class_="field")


def _buttons(place: str, field: FormField) -> list[Markup]:
    kind = "radio" if field.kind == "choice" else "checkbox"
    return [
        element(
            "label",
            element("input", type=kind, name=place, checked=choice.is_chosen, disabled=True),
            element("span", recorded(choice.label)),
        )
        for choice in field.choices
    ]


def _control(place: str, field: FormField) -> Markup:
    if field.kind == "check":
        return element(
            "input", type="checkbox", id=place, checked=field.value == "true", disabled=True
        )
    if field.kind in {"choice", "choices"}:
        options = [
            element("option", choice.label, selected=choice.is_chosen) for choice in field.choices
        ]
        if not any(choice.is_chosen for choice in field.choices):
            options.insert(0, element("option", "(nothing chosen)", selected=True))
        is_several = field.kind == "choices"
        return element("select", options, id=place, multiple=is_several, disabled=True)
    if field.kind == "long":
        # The parser takes a line end away that stands first.
        text = f"\n{field.value}"
        rows = min(field.value.count("\n") + 2, 12)
        return element("textarea", text, id=place, rows=rows, disabled=True)
    return element("input", type="text", id=place, value=field.value, disabled=True)


# Sampling and roots


def _sampling(definition: Mapping[str, Any], answer: Any) -> Markup:
    system, messages = definition.get("systemPrompt"), definition.get("messages")
    told = {"systemPrompt", "messages"}
    rest = {name: value for name, value in definition.items() if name not in told}
    prompts = messages if isinstance(messages, list) else []
    bubbles = [
        message_bubble(str(each.get("role")), each.get("content"))
        if isinstance(each, dict)
        else json_block(each)
        for each in prompts
    ]
    if system is not None:
        bubbles.insert(0, message_bubble("system", str(system)))
    if isinstance(answer, dict) and "content" in answer:
        notes = [f"{name}: {answer[name]}" for name in ("model", "stopReason") if name in answer]
        role = str(answer.get("role", "assistant"))
        bubbles.append(
            element("div", message_bubble(role, answer["content"], *notes), class_="sampled")
        )
    elif answer is not None:
        bubbles.append(json_block(answer))
    settings = folded("What else the server says of it", json_block(rest)) if rest else None
    return joined(bubbles, settings)


def _roots(answer: Any) -> Markup | None:
    roots = answer.get("roots") if isinstance(answer, dict) else None
    if not isinstance(roots, list) or not all(isinstance(each, dict) for each in roots):
        return None if answer is None else json_block(answer)
    if not roots:
        return element("p", "The client has none.", class_="note")
    return facts_list(
        (str(root.get("name") or "root"), element("code", recorded(str(root.get("uri")))))
        for root in roots
    )


# How it was answered


def _answer_class(answer: Any, *, is_answered: bool) -> str:
    if not is_answered:
        return "unanswered"
    action = answer.get("action") if isinstance(answer, dict) else None
    return str(action) if action in _ACTIONS else "answered"


def _outcome(answer: Any, kind: str, *, is_answered: bool) -> Markup:
    """Return how a question was answered, the way it stands under the form."""
    if not is_answered:
        return element("p", "No answer", class_="outcome")
    if isinstance(answer, dict) and answer.keys() == {"error"}:
        return joined(element("p", "Refused with an error", class_="outcome"), json_block(answer))
    action = answer.get("action") if isinstance(answer, dict) else None
    if action in _ACTIONS:
        return element("p", _ACTIONS[str(action)].capitalize(), class_="outcome")
    outcome = element("p", "Answered", class_="outcome")
    if kind in {"sampling", "roots"} or (isinstance(answer, dict) and "value" in answer):
        return outcome
    shown = text_block(answer) if isinstance(answer, str) else json_block(answer)
    return joined(outcome, shown)
