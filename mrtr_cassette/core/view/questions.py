"""The questions of a turn as a page draws them: each as the form that it is, with its answer.

Source: MCP 2026-07-28, "Elicitation", "Sampling", "Roots".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mrtr_cassette.core.protocol.dialect import ARRAY, InputRequest
from mrtr_cassette.core.report.inspection import Turn
from mrtr_cassette.core.report.review import message_lines
from mrtr_cassette.core.view.forms import FormField, form_fields, listed_field

_ACTIONS: Final = {"accept": "accepted", "decline": "declined", "cancel": "cancelled"}
_KINDS: Final = {
    "form": "a form",
    "url": "a visit to a URL",
    "sampling": "a model's text",
    "roots": "the client's roots",
}


@dataclass(frozen=True, slots=True)
class ShownQuestion:
    """A question and its answer.

    Attributes:
        key: under which the server asked.
        request: what it asked.
        is_listed: it is of the dialect that lists its questions.
        answer: what was answered, or None.
        is_answered: there is an answer, which may be null.
    """

    key: str
    request: InputRequest
    is_listed: bool
    answer: Any
    is_answered: bool

    @property
    def kind(self) -> str:
        """How it is drawn: `form`, `url`, `sampling`, `roots`, or another kind as JSON."""
        return "form" if self.is_listed else self.request.kind

    @property
    def definition(self) -> dict[str, Any]:
        """All that the server said of it."""
        return dict(self.request.definition)

    @property
    def asks_for(self) -> str:
        """What it asks for, in words."""
        return _KINDS.get(self.request.kind, self.request.kind)

    @property
    def message(self) -> str:
        """What a person reads."""
        return "\n".join(message_lines(self.request))

    @property
    def fields(self) -> tuple[FormField, ...]:
        """The fields of a form, with the answer in them."""
        if self.is_listed:
            return (listed_field(self.definition, self.answer),)
        content = self.answer.get("content") if isinstance(self.answer, dict) else None
        return form_fields(self.definition.get("requestedSchema"), content)

    @property
    def settings(self) -> dict[str, Any]:
        """What the server says of a model's text beside the messages."""
        told = {"systemPrompt", "messages"}
        return {name: value for name, value in self.definition.items() if name not in told}

    @property
    def model_notes(self) -> list[str]:
        """What a client says of the model that answered."""
        names = ("model", "stopReason")
        return [f"{name}: {self.answer[name]}" for name in names if name in self.answer]

    @property
    def roots(self) -> list[dict[str, Any]] | None:
        """The roots that a client has; None where the answer isn't a list of them."""
        roots = self.answer.get("roots") if isinstance(self.answer, dict) else None
        is_list = isinstance(roots, list) and all(isinstance(each, dict) for each in roots)
        return roots if is_list else None

    @property
    def _action(self) -> str:
        action = self.answer.get("action") if isinstance(self.answer, dict) else None
        return action if isinstance(action, str) and action in _ACTIONS else ""

    @property
    def _is_refusal(self) -> bool:
        return isinstance(self.answer, dict) and self.answer.keys() == {"error"}

    @property
    def look(self) -> str:
        """How the form looks: `unanswered`, `answered`, or the action of the answer."""
        return (self._action or "answered") if self.is_answered else "unanswered"

    @property
    def outcome(self) -> str:
        """How it was answered, in words."""
        if not self.is_answered:
            return "No answer"
        if self._is_refusal:
            return "Refused with an error"
        return _ACTIONS.get(self._action, "answered").capitalize()

    @property
    def shows_answer(self) -> bool:
        """The answer stands below it, as nothing above it has all of it."""
        if not self.is_answered or self._is_refusal:
            return self.is_answered
        has_value = isinstance(self.answer, dict) and "value" in self.answer
        return not (self._action or has_value or self.request.kind in {"sampling", "roots"})


def questions_of(turn: Turn) -> Iterator[ShownQuestion]:
    """Yield the questions of a turn."""
    answers: Mapping[str, Any] = turn.answered or {}
    for key, request in turn.input_requests.items():
        is_listed = turn.dialect == ARRAY
        yield ShownQuestion(key, request, is_listed, answers.get(key), key in answers)


def unasked_in(turn: Turn) -> dict[str, Any]:
    """Return what a turn answers without being asked."""
    answers: Mapping[str, Any] = turn.answered or {}
    return {key: value for key, value in answers.items() if key not in turn.input_requests}
