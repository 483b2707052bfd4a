"""How servers spell "I need input", and clients the answer: a table of dialects.

Owns: recognising an ask in a result and the answers in a retry's params, and the mapping between
wire spelling (`inputRequests`) and ours (`input_requests`).
A result that no row recognises is a final result; a half-shaped one never makes a client loop.
Sources: MCP 2026-07-28, `InputRequiredResult`, and SEP-2322; docs/matching.md, "Dialects".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from mrtr_cassette.core.wire.jsonbytes import Path, canonical

RESULT_STATE: Path = ("result", "requestState")


@dataclass(frozen=True, slots=True)
class InputRequest:
    """One thing that a server asks for.

    Attributes:
        kind: `form`, `url`, `sampling`, `roots`, or the method or kind as it was spelled.
        message: what a person would read, or an empty string.
    """

    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class InputRequired:
    """What an input-required result asks for.

    Attributes:
        dialect: name of the dialect that it is spelled in.
        input_requests: what is asked, by the server's key; empty for a state-only ask.
        request_state: the opaque state as a whole, or None.
    """

    dialect: str
    input_requests: Mapping[str, InputRequest]
    request_state: str | None


@dataclass(frozen=True, slots=True)
class Answers:
    """What makes a request a retry.

    Attributes:
        input_responses: the answers by key, or None where the member is absent.
        request_state: the echoed state, or None.
    """

    input_responses: Mapping[str, Any] | None
    request_state: str | None


class Dialect(NamedTuple):
    """One spelling of an input-required result.

    Attributes:
        name: how messages and docs call it.
        result_type: the `resultType` that marks it; None where there must be none.
        read_requests: reads `inputRequests`, returning None for what has not its shape.
        needs_both: `inputRequests` must not be empty, nor `requestState`.
    """

    name: str
    result_type: str | None
    read_requests: Callable[[Any], dict[str, InputRequest] | None]
    needs_both: bool


_KINDS = {"sampling/createMessage": "sampling", "roots/list": "roots"}


def _read_map(value: Any) -> dict[str, InputRequest] | None:
    if not isinstance(value, dict):
        return None
    found: dict[str, InputRequest] = {}
    for key, request in value.items():
        method = request.get("method") if isinstance(request, dict) else None
        if not isinstance(method, str):
            return None
        params = request.get("params")
        params = params if isinstance(params, dict) else {}
        kind = _KINDS.get(method, method)
        if method == "elicitation/create":
            kind = "url" if params.get("mode") == "url" else "form"
        message = params.get("message")
        found[key] = InputRequest(kind, message if isinstance(message, str) else "")
    return found


def _read_array(value: Any) -> dict[str, InputRequest] | None:
    if not isinstance(value, list):
        return None
    found: dict[str, InputRequest] = {}
    for request in value:
        if not isinstance(request, dict):
            return None
        key, kind = request.get("id"), request.get("kind")
        description = request.get("description", "")
        required = request.get("required", True)
        if not (isinstance(key, str) and isinstance(kind, str) and isinstance(description, str)):
            return None
        if not isinstance(required, bool) or key in found:
            return None
        found[key] = InputRequest(kind, description)
    return found


DIALECTS = (
    Dialect("2026-07-28", "input_required", _read_map, needs_both=False),
    Dialect("draft", "incomplete", _read_map, needs_both=False),
    Dialect("array", None, _read_array, needs_both=True),
)


_OF_ASKS = (b"inputRequests", b"requestState", b"\\u")


def may_ask(raw: bytes) -> bool:
    """Tell, quickly, whether a body may have a result that `recognise` recognises."""
    return max(map(raw.find, _OF_ASKS)) >= 0


def recognise(result: Any) -> InputRequired | None:
    """Return what a result asks for, or None for a final result."""
    if not isinstance(result, dict):
        return None
    for dialect in DIALECTS:
        if result.get("resultType") != dialect.result_type:
            continue
        state = result.get("requestState")
        requests = result.get("inputRequests")
        asked = {} if requests is None else dialect.read_requests(requests)
        if asked is None or not (state is None or isinstance(state, str)):
            continue
        is_whole = asked and state if dialect.needs_both else asked or state is not None
        if is_whole:
            return InputRequired(dialect.name, asked, state)
    return None


def answers_in(params: Mapping[str, Any]) -> Answers | None:
    """Return the answers that make these params a retry's, or None for a first request."""
    responses = params.get("inputResponses")
    state = params.get("requestState")
    if responses is None and state is None:
        return None
    if not (state is None or isinstance(state, str)):
        # No server issues such a state; the mark keeps `5` apart from `"5"`.
        state = f"\0{canonical(state)}"
    return Answers(None if responses is None else _by_key(responses), state)


def _by_key(responses: Any) -> Mapping[str, Any]:
    """Return answers by key; what has neither shape is one answer under the empty key."""
    if isinstance(responses, dict):
        return responses
    if isinstance(responses, list):
        found = {}
        for response in responses:
            if not isinstance(response, dict) or not isinstance(response.get("id"), str):
                return {"": responses}
            found[response["id"]] = {k: v for k, v in response.items() if k != "id"}
        if len(found) == len(responses):
            return found
    return {"": responses}
