"""What differs between two responses to the same call, or between two asks.

Rule: what is volatile is so by its place, never by its look. Whether it is there counts all the
same.
Source: docs/diff.md, "What counts".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.compare.changes import Change, Verdict
from mrtr_cassette.core.compare.pairing import paired
from mrtr_cassette.core.compare.surface import (
    as_surface,
    is_about_server,
    is_surface,
    surface_changes,
)
from mrtr_cassette.core.compare.values import ABSENT, ANY, change_of, pinned, value_changes
from mrtr_cassette.core.exchange.pushed import message_of
from mrtr_cassette.core.exchange.recorded import PushedTurn, RecordedExchange
from mrtr_cassette.core.protocol.dialect import INPUT_REQUESTS, REQUEST_STATE, RESULT_TYPE
from mrtr_cassette.core.protocol.jsonrpc import SUBSCRIPTION_ID, Kind, Message
from mrtr_cassette.core.protocol.messages import messages_in
from mrtr_cassette.core.secrets.placeholders import without_numbers
from mrtr_cassette.core.secrets.surrogates import reveal_in_json
from mrtr_cassette.core.wire.http import SESSION_HEADER, End, Response, kept_response_headers
from mrtr_cassette.core.wire.jsonbytes import MemberPath, canonical, parse
from mrtr_cassette.errors import NotJsonError

NO_STATES: Final[Mapping[str, str]] = {}

_SURROGATE = re.compile(
    rb"(mrtr-state)(?::|%3A)[0-9a-f]{16}(?::|%3A)[0-9]{1,9}((?::|%3A)[0-9]{1,9})"
    rb"|(mrtr-session|mrtr-event|mrtr-elicitation)(?:(?::|%3A)[0-9]{1,9}){1,2}"
)
"""A surrogate; which interaction, session and event it is of depends on what else was recorded."""
TRACE_MEMBERS: Final = ("baggage", "traceparent", "tracestate")
"""Members of `_meta` that tell a trace, which is another one in every run."""
_ANNOTATED: Final[tuple[MemberPath, ...]] = (
    ("content", ANY),
    ("content", ANY, "resource"),
    ("contents", ANY),
    ("messages", ANY, "content"),
    ("messages", ANY, "content", "resource"),
    ("resourceTemplates", ANY),
    ("resources", ANY),
)
_TASK_VALUES: Final = ("createdAt", "lastUpdatedAt", "taskId")
_VOLATILE: Final[frozenset[MemberPath]] = frozenset(
    {
        ("ttlMs",),
        ("nextCursor",),
        (REQUEST_STATE,),
        ("_meta", SUBSCRIPTION_ID),
        ("_meta", "io.modelcontextprotocol/related-task", "taskId"),
        *(("_meta", name) for name in TRACE_MEMBERS),
        *((*place, "annotations", "lastModified") for place in _ANNOTATED),
        *(("task", name) for name in _TASK_VALUES),
    }
)
"""Places in a result whose values nobody fixes."""
_VOLATILE_OF_TASKS: Final = _VOLATILE | {
    path for name in _TASK_VALUES for path in ((name,), ("tasks", ANY, name))
}
_VOLATILE_OF_MESSAGES: Final[frozenset[MemberPath]] = frozenset(
    {
        ("params", "elicitationId"),
        ("params", "requestId"),
        *(("params", "_meta", name) for name in (SUBSCRIPTION_ID, "progressToken", *TRACE_MEMBERS)),
        *(("params", name) for name in _TASK_VALUES),
    }
)
_VOLATILE_OF_ASKS: Final[frozenset[MemberPath]] = frozenset(
    {
        (ANY, "params", "elicitationId"),
        *((ANY, "params", "_meta", name) for name in ("progressToken", *TRACE_MEMBERS)),
    }
)
_NEGOTIATED: Final = frozenset({"content-encoding"})
"""Headers that depend on what the client accepts."""
_VALUE_IS_VOLATILE: Final = frozenset({SESSION_HEADER, "retry-after"})
_OWN_ID: Final = "mrtr-elicitation"
_SHORTEST_ID: Final = len(_OWN_ID)
"""Characters of an id that is looked for in other texts; what is shorter may be a word."""


def changes_of_ask(
    recorded: RecordedExchange, live: RecordedExchange, states: Mapping[str, str] = NO_STATES
) -> list[Change]:
    """Return where two asks differ; only if none is `question-changed`, they are the same question.

    Args:
        live: the other one, in the form in which it is or would be recorded.
        states: the recorded request state or session id by the SHA-256 of the live one, so that a
            question that repeats them is the same one in every run.
    """
    if _is_identical(recorded, live):
        return []
    old, new = _asking_result(recorded, states), _asking_result(live, states)
    changes = question_changes(old.pop(INPUT_REQUESTS, None), new.pop(INPUT_REQUESTS, None))
    for change in _changes_of_values(old, new, ""):
        is_needed = change.pointer == f"/{REQUEST_STATE}" and change.received is None
        changes.append(change._replace(verdict="question-changed") if is_needed else change)
    return changes


def question_changes(recorded: Any, received: Any) -> list[Change]:
    """Return where two values of `inputRequests` differ: what is asked under each key.

    Of pushed requests, such a value has the `method` and the `params` of each by our key.
    """
    old, new = pinned_question(recorded), pinned_question(received)
    changes = value_changes(old, new, f"/{INPUT_REQUESTS}")
    return [change._replace(verdict="question-changed") for change in changes]


def pinned_question(question: Any) -> Any:
    """Return a value of `inputRequests` that is the same wherever the same is asked."""
    question = question or {}
    if isinstance(question, dict):
        question = {key: _without_own_id(request) for key, request in question.items()}
    return pinned(question, _VOLATILE_OF_ASKS)


def elicitation_id(request: Any) -> str | None:
    """Return the id that a server gave to a request for input, if it is one that is made up."""
    params = request.get("params") if isinstance(request, dict) else None
    identity = params.get("elicitationId") if isinstance(params, dict) else None
    return identity if isinstance(identity, str) and len(identity) >= _SHORTEST_ID else None


def _without_own_id(request: Any) -> Any:
    """Return a request for input in which its own id is the same wherever it repeats it."""
    identity = elicitation_id(request)
    return request if identity is None else _replaced(request, identity)


def _replaced(value: Any, text: str) -> Any:
    if isinstance(value, str):
        return value.replace(text, _OWN_ID)
    if isinstance(value, list):
        return [_replaced(item, text) for item in value]
    if isinstance(value, dict):
        return {key: _replaced(item, text) for key, item in value.items()}
    return value


def changes_of_result(
    recorded: RecordedExchange, live: RecordedExchange, states: Mapping[str, str] = NO_STATES
) -> list[Change]:
    """Return where the last responses to the same call differ, and all that came with them.

    The arguments are those of `changes_of_ask`; neither response asks.
    """
    if _is_identical(recorded, live):
        return []
    old, new = _read(recorded, states), _read(live, states)
    return [*_changes_beside(old, new), *_changes_of_outcome(old, new, recorded.call.method)]


def changes_beside(
    recorded: RecordedExchange, live: RecordedExchange, states: Mapping[str, str] = NO_STATES
) -> list[Change]:
    """Return where two responses differ beside their results: status, headers, other messages.

    The arguments are those of `changes_of_ask`. What the server pushed for input is no part of it.
    """
    if _is_identical(recorded, live):
        return []
    return _changes_beside(_read(recorded, states), _read(live, states))


def _is_identical(recorded: RecordedExchange, live: RecordedExchange) -> bool:
    """Tell, quickly, whether two exchanges are the same bytes, as most of two cassettes are."""
    old, new = recorded.response, live.response
    if old is None or new is None:
        return False
    return recorded.request.body == live.request.body and old.is_same_as(new)


def pushed_question(turn: PushedTurn) -> dict[str, Any]:
    """Return what the server asked in a pushed turn, as `question_changes` takes it."""
    return {each.key: pushed_value(message_of(each).raw) for each in turn.asked}


def pushed_value(raw: bytes, states: Mapping[str, str] = NO_STATES) -> dict[str, Any]:
    """Return what a pushed request asks, as in a value of `inputRequests`."""
    tree = comparable_tree(raw, states)
    return {name: tree[name] for name in ("method", "params") if name in tree}


def asked_question(exchange: RecordedExchange) -> Any:
    """Return what the response of an exchange asks, as `question_changes` takes it."""
    return _asking_result(exchange, NO_STATES).get(INPUT_REQUESTS, {})


def outcome_value(exchange: RecordedExchange) -> Any:
    """Return what a last response came to: its result or error, or what it says instead."""
    said = _read(exchange, NO_STATES)
    if said.error is not ABSENT:
        return {"error": said.error}
    if said.result is not ABSENT:
        return said.result
    if said.body is not ABSENT or said.response is None:
        return said.body
    return said.others or said.response.status


class _Said(NamedTuple):
    """A response, read, in a form in which two of them can be compared.

    Attributes:
        response: the response; None where none began.
        result: the result of the call, or `ABSENT`.
        error: its error, or `ABSENT`.
        others: all other messages but requests.
        token: canonical text of the progress token of the request, or None.
        body: what it says that is no message, as JSON or else as text; or `ABSENT`.
    """

    response: Response | None
    result: Any
    error: Any
    others: list[Any]
    body: Any
    token: str | None = None


def _asking_result(exchange: RecordedExchange, states: Mapping[str, str]) -> dict[str, Any]:
    """Return the result that asks; empty where the response doesn't."""
    ask = exchange.ask
    return {} if ask is None else {**comparable_tree(ask.message.raw, states)["result"]}


def _read(exchange: RecordedExchange, states: Mapping[str, str]) -> _Said:
    response = exchange.response
    if response is None:
        return _Said(None, ABSENT, ABSENT, [], ABSENT)
    messages = [located.message for located in messages_in(response)]
    request = exchange.call.message
    message = _own(messages, request)
    others = [
        comparable_tree(each.raw, states)
        for each in messages
        if each is not message and each.kind is not Kind.REQUEST
    ]
    tree = {} if message is None else comparable_tree(message.raw, states)
    body: Any = ABSENT
    if not messages and response.body and not response.is_framed:
        try:
            body = comparable_tree(response.body, states)
        except NotJsonError:
            body = _comparable(response.body, states).decode("utf-8", "replace")
    result, error = tree.get("result", ABSENT), tree.get("error", ABSENT)
    token = None if request is None else request.progress_token
    return _Said(response, result, error, others, body, token)


def _own(messages: list[Message], request: Message | None) -> Message | None:
    """Return the response to a request; a server that could not read it responds without id."""
    if request is None or request.kind is not Kind.REQUEST:
        return None
    responses = [each for each in messages if each.kind is Kind.RESPONSE]
    own = [each for each in responses if each.id == request.id]
    return next(iter(own or [each for each in responses if each.id is None]), None)


def comparable_tree(raw: bytes, states: Mapping[str, str] = NO_STATES) -> Any:
    """Return a JSON text as a value in which nothing differs that stands for a secret."""
    return parse(_comparable(raw, states))


def comparable_text(text: str) -> str:
    """Return a text in which nothing differs that stands for a secret."""
    return _comparable(text.encode("utf-8", "surrogatepass"), NO_STATES).decode(
        "utf-8", "surrogatepass"
    )


def _comparable(raw: bytes, states: Mapping[str, str]) -> bytes:
    raw = _SURROGATE.sub(rb"\1\2\3", reveal_in_json(raw, states))
    return without_numbers(raw)


def _changes_of_outcome(old: _Said, new: _Said, method: str) -> list[Change]:
    if (old.error is ABSENT) != (new.error is ABSENT):
        return [change_of("error-changed", "/#error", old.error, new.error)]
    changes = [
        change._replace(verdict="error-changed") if change.pointer == "/#error/code" else change
        for change in value_changes(old.error, new.error, "/#error")
    ]
    changes += value_changes(old.body, new.body, "/#body")
    before, after = _with_defaults(old.result), _with_defaults(new.result)
    if is_surface(method):
        return changes + surface_changes(pinned(before, _VOLATILE), pinned(after, _VOLATILE))
    return changes + _changes_of_values(before, after, method)


def _changes_of_values(old: Any, new: Any, method: str) -> list[Change]:
    places = _VOLATILE_OF_TASKS if method.startswith("tasks/") else _VOLATILE
    changes = []
    for change in value_changes(pinned(old, places), pinned(new, places)):
        if change.pointer == "/isError":
            changes.append(change._replace(verdict="error-changed"))
        else:
            changes.append(as_surface(change) if is_about_server(change) else change)
    return changes


def _with_defaults(result: Any) -> Any:
    """Return a result with the members whose absence means a value."""
    if not isinstance(result, dict):
        return result
    return {"isError": False, RESULT_TYPE: "complete", **result}


def _changes_beside(old: _Said, new: _Said) -> list[Change]:
    if old.response is None or new.response is None:
        statuses = [
            ABSENT if each.response is None else each.response.status for each in (old, new)
        ]
        is_same = old.response is new.response
        return [] if is_same else [change_of("shape-changed", "/#status", *statuses)]
    ends = old.response.end, new.response.end
    is_whole = End.OPEN not in ends
    changes = []
    if not (old.response.is_lines or new.response.is_lines):
        changes += _changes_of_head(old.response, new.response)
    if is_whole and ends[0] is not ends[1]:
        changes.append(change_of("shape-changed", "/#end", ends[0].value, ends[1].value))
    return changes + _changes_of_messages(old, new, is_whole=is_whole)


def _changes_of_head(old: Response, new: Response) -> list[Change]:
    changes = []
    if old.status != new.status:
        is_error = max(old.status, new.status) >= 400
        verdict: Verdict = "error-changed" if is_error else "shape-changed"
        changes.append(change_of(verdict, "/#status", old.status, new.status))
    before, after = _headers(old), _headers(new)
    if old.is_event_stream != new.is_event_stream:
        types = [each.pop("content-type", ABSENT) for each in (before, after)]
        changes.append(change_of("shape-changed", "/#headers/content-type", *types))
    return changes + value_changes(before, after, "/#headers")


def _headers(response: Response) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    for name, value in kept_response_headers(response.headers):
        key = name.lower()
        if key not in _NEGOTIATED:
            same = "" if key in _VALUE_IS_VOLATILE else value
            headers[key] = f"{headers[key]}, {same}" if key in headers else same
    return headers


def _changes_of_messages(before: _Said, after: _Said, *, is_whole: bool) -> list[Change]:
    """Return where the other messages of two responses differ.

    Args:
        is_whole: both responses have ended; else one may have fewer messages.
    """
    old, new = ([_message(each, side.token) for each in side.others] for side in (before, after))
    keys = ([(canonical(tree), tree.get("method")) for tree in side] for side in (old, new))
    changes = []
    for at_old, at_new in paired(*keys):
        if is_whole or None not in (at_old, at_new):
            changes += value_changes(
                ABSENT if at_old is None else old[at_old],
                ABSENT if at_new is None else new[at_new],
                f"/#messages/{at_new if at_old is None else at_old}",
            )
    return changes


def _message(tree: dict[str, Any], token: str | None) -> dict[str, Any]:
    """Return a message as it is compared, in the response to a request with a progress token."""
    kept = {key: value for key, value in tree.items() if key not in ("id", "jsonrpc")}
    params = kept["params"] = pinned(kept, _VOLATILE_OF_MESSAGES).get("params")
    if isinstance(params, dict) and "progressToken" in params:
        is_own = token is None or canonical(params["progressToken"]) == token
        params["progressToken"] = "the request's" if is_own else "another request's"
    if "result" in kept:
        kept["result"] = pinned(kept["result"], _VOLATILE)
    return {key: value for key, value in kept.items() if value is not None}
