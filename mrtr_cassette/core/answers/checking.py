"""Whether an answer fits the request for input that it answers, before anything is sent.

Rule: an answer is a value as it goes on the wire: of a form or a URL an `ElicitResult`, of sampling
and roots the result, in the array dialect an object with a `value`.
Source: MCP 2026-07-28, `ElicitResult`, `CreateMessageResult`, `ListRootsResult`; docs/answers.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mrtr_cassette.core.answers.schemas import Problem, problems_of, type_name
from mrtr_cassette.core.protocol.dialect import InputRequest

ACTIONS: Final = ("accept", "decline", "cancel")
ELICITATIONS: Final = frozenset({"form", "url"})
"""The kinds of requests that an `ElicitResult` answers."""
RESULTS: Final = frozenset({"sampling", "roots"})
"""Those that a result of their own answers."""
VALUES: Final = frozenset({"string", "number", "integer", "boolean"})
"""Those of the array dialect, which a value answers."""
_ROOTS: Final = {
    "type": "object",
    "required": ["roots"],
    "properties": {
        "roots": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["uri"],
                "properties": {
                    "uri": {"type": "string", "pattern": "^file://"},
                    "name": {"type": "string"},
                },
            },
        }
    },
}
_SAMPLING: Final = {
    "type": "object",
    "required": ["role", "content", "model"],
    "properties": {
        "role": {"enum": ["user", "assistant"]},
        "content": {"type": ["object", "array"]},
        "model": {"type": "string"},
        "stopReason": {"type": "string"},
    },
}


def problem_of(request: InputRequest, answer: Any) -> str | None:
    """Return why an answer doesn't fit the request that it answers; None where it does."""
    if request.takes_value:
        if not isinstance(answer, dict) or "value" not in answer:
            return f"is {type_name(answer)}, and not an object with a `value`"
        problems = problems_of(answer["value"], value_schema(request))
    elif request.kind in ELICITATIONS:
        return _problem_of_elicitation(request, answer)
    elif request.kind in RESULTS:
        problems = problems_of(answer, _ROOTS if request.kind == "roots" else _SAMPLING)
    else:
        # Of a kind that no revision has, only the server knows what it wants.
        return None if isinstance(answer, dict) else f"is {type_name(answer)}, and not an object"
    return _text(problems)


def _problem_of_elicitation(request: InputRequest, answer: Any) -> str | None:
    action = answer.get("action") if isinstance(answer, dict) else None
    if action not in ACTIONS:
        return "has no `action` that is accept, decline or cancel"
    content = answer.get("content")
    if action != "accept" or request.kind == "url":
        what = "an accepted URL" if action == "accept" else f"a {action}"
        return None if content is None else f"has content, and {what} has none"
    return _text(problems_of({} if content is None else content, form_schema(request)))


def _text(problems: list[Problem]) -> str | None:
    texts = [f"{pointer} {text}".strip() for pointer, text in problems]
    return "; ".join(texts) or None


def form_schema(request: InputRequest) -> Mapping[str, Any]:
    """Return the schema of a form's content."""
    schema = request.definition.get("requestedSchema")
    fields = schema if isinstance(schema, Mapping) else {}
    return {"type": "object", **fields}


def fields_of(request: InputRequest) -> Mapping[str, Any]:
    """Return the schemas of a form's fields by name; none for what is no form."""
    fields = form_schema(request).get("properties") if request.kind == "form" else None
    return fields if isinstance(fields, Mapping) else {}


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
