"""Whether an answer fits the request for input that it answers, before anything is sent.

Rule: an answer is a value as it goes on the wire: of a form or a URL an `ElicitResult`, of sampling
and roots the result, in the array dialect an object with a `value`.
Source: MCP 2026-07-28, `ElicitResult`, `CreateMessageResult`, `ListRootsResult`; docs/answers.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mrtr_cassette.core.answers.schemas import problem_of_value, type_name
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.wire.pointers import escape_pointer

ACTIONS: Final = ("accept", "decline", "cancel")
ELICITATIONS: Final = frozenset({"form", "url"})
"""The kinds of requests that an `ElicitResult` answers."""
RESULTS: Final = frozenset({"sampling", "roots"})
"""Those that a result of their own answers."""
VALUES: Final = frozenset({"string", "number", "integer", "boolean"})
"""Those of the array dialect, which a value answers."""


def problem_of(request: InputRequest, answer: Any) -> str | None:
    """Return why an answer doesn't fit the request that it answers; None where it does."""
    if request.kind in ELICITATIONS and not request.takes_value:
        return _problem_of_elicitation(request, answer)
    if not isinstance(answer, dict) or (request.takes_value and "value" not in answer):
        wanted = "an object with a `value`" if request.takes_value else "an object"
        return f"is {type_name(answer)}, and not {wanted}"
    if request.takes_value:
        return problem_of_value(answer["value"], value_schema(request))
    if request.kind == "roots":
        return _problem_of_roots(answer.get("roots"))
    # Of a kind that no revision has, only the server knows what it wants.
    return _problem_of_sampling(answer) if request.kind == "sampling" else None


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
    problems = {
        name: "is required and missing" for name in required_in(request) if name not in content
    } | {
        name: problem
        for name in fields
        if name in content and (problem := problem_of_value(content[name], fields[name]))
    }
    return "; ".join(f"/{escape_pointer(name)} {problems[name]}" for name in problems) or None


def _problem_of_roots(roots: Any) -> str | None:
    if not isinstance(roots, list):
        return "has no `roots` that is a list"
    uris = [each.get("uri") if isinstance(each, dict) else None for each in roots]
    if not all(isinstance(uri, str) and uri.startswith("file://") for uri in uris):
        return "has a root without a `uri` that begins with file://"
    return None


def _problem_of_sampling(answer: Mapping[str, Any]) -> str | None:
    if answer.get("role") not in ("user", "assistant"):
        return "has no `role` that is user or assistant"
    if not isinstance(answer.get("content"), dict | list):
        return "has no `content` that is an object or a list"
    return None if isinstance(answer.get("model"), str) else "has no `model` that is a text"


def fields_of(request: InputRequest) -> Mapping[str, Any]:
    """Return the schemas of a form's fields by name; none for what is no form."""
    schema = request.definition.get("requestedSchema") if request.kind == "form" else None
    fields = schema.get("properties") if isinstance(schema, Mapping) else None
    return fields if isinstance(fields, Mapping) else {}


def required_in(request: InputRequest) -> list[str]:
    """Return the names of the fields that a form requires."""
    schema = request.definition.get("requestedSchema")
    required = schema.get("required") if isinstance(schema, Mapping) else None
    return (
        [each for each in required if isinstance(each, str)] if isinstance(required, list) else []
    )


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
