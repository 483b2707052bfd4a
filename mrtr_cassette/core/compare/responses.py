"""What differs between two responses to the same call."""
# Source: MCP 2026-07-28, "Discovery", "Tools", "Prompts", "Resources".

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from mrtr_cassette.core.cassette.recorded import PushedTurn, RecordedExchange
from mrtr_cassette.core.compare.values import (
    Change,
    Pair,
    by_place,
    change_of,
    is_below,
    matches,
    pinned,
    value_changes,
)
from mrtr_cassette.core.protocol.dialect import (
    INPUT_REQUESTS,
    REQUEST_STATE,
    RESULT_TYPE,
    InputRequest,
    spelled_requests,
)
from mrtr_cassette.core.protocol.jsonrpc import SUBSCRIPTION_ID, Kind, Message
from mrtr_cassette.core.protocol.messages import messages_in
from mrtr_cassette.core.protocol.methods import CALL_TOOL, GET_TASK, TASK_VALUES, method_of
from mrtr_cassette.core.protocol.tasks import (
    TASK,
    TaskState,
    created_task,
    key_names,
    notified_state,
    polled_state,
)
from mrtr_cassette.core.secrets.sealed import reveal_in_json, without_numbers
from mrtr_cassette.core.wire.http import (
    EVENT_STREAM,
    SESSION_HEADER,
    End,
    Response,
    kept_response_headers,
)
from mrtr_cassette.core.wire.jsonbytes import MemberPath, canonical, parse
from mrtr_cassette.core.wire.pointers import ABSENT, ANY, escape_pointer, pointer_path
from mrtr_cassette.errors import NotJsonError

ASKS: Final = f"/{INPUT_REQUESTS}"
"""Pointer to what a server asks."""
NO_STATES: Final[Mapping[str, str]] = {}
TRACE_MEMBERS: Final = ("baggage", "traceparent", "tracestate")
"""Members of `_meta` that tell a trace, which is another one in every run."""

_SURROGATE = re.compile(
    rb"(mrtr-state)(?::|%3A)[0-9a-f]{16}(?::|%3A)[0-9]{1,9}((?::|%3A)[0-9]{1,9})"
    rb"|(mrtr-session|mrtr-event|mrtr-elicitation)(?:(?::|%3A)[0-9]{1,9}){1,2}"
    rb"|(mrtr-task)(?::|%3A)[0-9a-f]{16}(?::|%3A)[0-9]{1,9}"
    rb"|(sha256)(?::|%3A)[0-9a-f]{64}"
)
"""A surrogate, or a hash of the id of an event: another one in each recording."""
_VOLATILE: Final[frozenset[MemberPath]] = frozenset(
    {
        ("ttlMs",),
        ("nextCursor",),
        (REQUEST_STATE,),
        ("_meta", SUBSCRIPTION_ID),
        ("_meta", "io.modelcontextprotocol/related-task", "taskId"),
        *(("_meta", name) for name in TRACE_MEMBERS),
    }
)
"""Places in any result whose values nobody fixes."""
_VOLATILE_OF_MESSAGES: Final[frozenset[MemberPath]] = frozenset(
    {
        ("params", "elicitationId"),
        ("params", "requestId"),
        *(("params", "_meta", name) for name in (SUBSCRIPTION_ID, "progressToken", *TRACE_MEMBERS)),
        *(("params", name) for name in TASK_VALUES),
    }
)
_VOLATILE_OF_ASKS: Final[frozenset[MemberPath]] = frozenset(
    {
        (ANY, "params", "elicitationId"),
        *((ANY, "params", "_meta", name) for name in ("progressToken", *TRACE_MEMBERS)),
    }
)
_VALUE_IS_VOLATILE: Final = frozenset({SESSION_HEADER, "retry-after"})
_NOT_COMPARED: Final = frozenset(
    {"content-encoding", "server", "x-powered-by", "x-accel-buffering"}
)
"""The header that depends on what the client accepts; those of whatever runs the server."""
_TASK: Final = "#task"
"""Beside a result: how the task ended that has it."""
_ENDINGS: Final = frozenset({"/#error", "/#error/code", "/isError", f"/{_TASK}/status"})
"""Where it stands that a call failed."""
_OWN_ID: Final = "mrtr-elicitation"
"""Stands for an id that a server made up; one that is shorter may be a word, and counts."""


def response_changes(
    recorded: RecordedExchange, live: RecordedExchange, states: Mapping[str, str] = NO_STATES
) -> list[Change]:
    """Return where two responses to the same call differ, and all that came with them.

    Two asks are the same question only if no change is `question-changed`; a question that only
    has another key is `key-changed`. `live` has the form in which it is or would be recorded;
    `states` has the recorded request state or session id by the SHA-256 of the live one, so that
    what repeats them is the same in every run.
    """
    old, new = recorded.response, live.response
    if old is None or new is None:
        statuses = [ABSENT if each is None else each.status for each in (old, new)]
        return [] if old is new else [change_of("shape-changed", "/#status", *statuses)]
    if recorded.request.body == live.request.body and old.is_same_as(new):
        return []
    if (recorded.ask is None) != (live.ask is None):
        return [round_change(asked_question(recorded), asked_question(live))]
    before, after = _read(recorded, old, states), _read(live, new, states)
    left_out = {"#end"} if End.OPEN in (old.end, new.end) else set()
    left_out |= {"#status", "#headers"} if old.is_lines or new.is_lines else set()
    if _ending_of(before) != _ending_of(after):
        # Of what else differs between a result and an error, nothing is to be told.
        told = {"#error", "#status", "#headers", "#end", "#messages", "#result", _TASK}
        told |= set() if "#error" in {*before, *after} else {RESULT_TYPE}
        left_out |= {*before, *after} - told
    # Of responses without end one may have fewer messages.
    common = min(len(before["#messages"]), len(after["#messages"])) if "#end" in left_out else None
    for tree in (before, after):
        tree["#messages"] = tree["#messages"][:common]
        for name in left_out & tree.keys():
            del tree[name]
    names: dict[str, str] = {}
    if recorded.ask is not None:
        names = renamed_keys(before[INPUT_REQUESTS], after[INPUT_REQUESTS])
        after[INPUT_REQUESTS] = with_recorded_keys(after[INPUT_REQUESTS], names)
    is_surface = method_of(recorded.call.method).describes_server
    changes = value_changes(before, after, "", _by_name if is_surface else by_place)
    return _key_changes(names) + [_judged(change, is_surface=is_surface) for change in changes]


def _ending_of(said: Mapping[str, Any]) -> tuple[object, ...]:
    return "#error" in said, said.get(_TASK, {}).get("status"), said.get(RESULT_TYPE) == TASK


def question_changes(recorded: Any, received: Any) -> list[Change]:
    """Return where two values of `inputRequests` differ: what is asked under each key.

    Of pushed requests, such a value has the `method` and the `params` of each by our key.
    """
    names = renamed_keys(recorded, received)
    same_keys = with_recorded_keys(pinned_question(received), names)
    changes = value_changes(pinned_question(recorded), same_keys, ASKS)
    changed = [change._replace(verdict="question-changed") for change in changes]
    return _key_changes(names) + changed


def _key_changes(names: Mapping[str, str]) -> list[Change]:
    return [
        change_of("key-changed", f"{ASKS}/{escape_pointer(key)}", key, name)
        for key, name in names.items()
    ]


def renamed_keys(recorded: Any, received: Any) -> dict[str, str]:
    """Return the keys that equal questions have now, by the recorded ones, but for equal keys.

    These are two values of `inputRequests`: an object, or in the array dialect an array.
    """
    old, new = (_by_key(pinned_question(question)) for question in (recorded, received))
    gone, added = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    pairs = matches([old[key] for key in gone], [new[key] for key in added])
    return {gone[at_old]: added[at_new] for at_old, at_new in pairs}


def _by_key(question: Any) -> dict[str, str]:
    if isinstance(question, dict):
        return {key: canonical(request) for key, request in question.items()}
    return {item["id"]: canonical({**item, "id": ""}) for item in question}


def changed_keys(changes: Iterable[Change]) -> dict[str, str]:
    """Return the keys of today by the recorded ones, as changes of a response tell them."""
    texts = (change[2:4] for change in changes if change.verdict == "key-changed")
    return {json.loads(old or ""): json.loads(new or "") for old, new in texts}


def with_recorded_keys(value: Any, names: Mapping[str, str]) -> Any:
    """Return what has members by key, or items by `id`, with the recorded keys, as `renamed_keys`.

    Questions have these forms, and answers too.
    """
    recorded = {new: old for old, new in names.items()}
    if not names or not isinstance(value, dict | list):
        return value
    if isinstance(value, dict):
        return {recorded.get(key, key): inner for key, inner in value.items()}
    return [{**item, "id": recorded.get(item["id"], item["id"])} for item in value]


def round_change(recorded: Any, received: Any) -> Change:
    """Return the change that there is a question more or less; the other one is `ABSENT`."""
    return change_of("rounds-changed", ASKS, recorded, received)


def asked_question(exchange: RecordedExchange) -> Any:
    """Return what a response asks, as `question_changes` takes it; `ABSENT` where it doesn't."""
    if exchange.ask is None:
        return ABSENT
    return comparable_tree(exchange.ask.message.raw)["result"].get(INPUT_REQUESTS, {})


def pushed_question(turn: PushedTurn) -> dict[str, Any]:
    """Return what the server asked in a pushed turn, as `question_changes` takes it."""
    return {each.key: pushed_value(each.message.raw) for each in turn.asked}


def pushed_value(raw: bytes, states: Mapping[str, str] = NO_STATES) -> dict[str, Any]:
    """Return what a pushed request asks, as in a value of `inputRequests`."""
    tree = comparable_tree(raw, states)
    return {name: tree[name] for name in ("method", "params") if name in tree}


def task_question(requests: Mapping[str, InputRequest], task_id: str) -> dict[str, Any]:
    """Return what a task asks, as `question_changes` takes it."""
    spelled: dict[str, Any] = spelled_requests(requests)
    return comparable_by_key(spelled, key_names(requests, task_id))


def comparable_by_key(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return what has members by the keys of questions, by their names."""
    renamed = {names.get(key, key): value for key, value in values.items()}
    tree: dict[str, Any] = comparable_tree(canonical(renamed).encode())
    return tree


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
    return identity if isinstance(identity, str) and len(identity) >= len(_OWN_ID) else None


def _without_own_id(request: Any) -> Any:
    identity = elicitation_id(request)
    if identity is None:
        return request
    return parse(canonical(request).replace(canonical(identity)[1:-1], _OWN_ID).encode())


def outcome_value(exchange: RecordedExchange) -> Any:
    """Return what a last response came to: its result or error, or what it says instead."""
    if exchange.response is None:
        return None
    said = _read(exchange, exchange.response, NO_STATES)
    if "#error" in said:
        return {"error": said["#error"]}
    result = {name: said[name] for name in said if not name.startswith("#")}
    return result or said.get("#body") or said["#messages"] or said["#status"]


def comparable_tree(raw: bytes, states: Mapping[str, str] = NO_STATES) -> Any:
    """Return a JSON text as a value in which nothing differs that stands for a secret."""
    return parse(_comparable(raw, states))


def comparable_text(text: str) -> str:
    """Return a text in which nothing differs that stands for a secret."""
    raw = text.encode("utf-8", "surrogatepass")
    return _comparable(raw, NO_STATES).decode("utf-8", "surrogatepass")


def _comparable(raw: bytes, states: Mapping[str, str]) -> bytes:
    return without_numbers(_SURROGATE.sub(rb"\1\2\3\4\5", reveal_in_json(raw, states)))


def _read(
    exchange: RecordedExchange, response: Response, states: Mapping[str, str]
) -> dict[str, Any]:
    request = exchange.call.message
    messages = [located.message for located in messages_in(response)]
    own = _own(messages, request)
    token = None if request is None else request.progress_token
    said: dict[str, Any] = {
        "#status": response.status,
        "#headers": _headers(response),
        "#end": response.end.value,
        "#messages": [
            _message(comparable_tree(each.raw, states), token, notified_state(each))
            for each in messages
            if each is not own and each.kind is not Kind.REQUEST
        ],
    }
    tree = {} if own is None else comparable_tree(own.raw, states)
    if created_task(request, own) is not None:
        # Of its state nothing counts but the one in which it ends.
        return {**said, RESULT_TYPE: TASK}
    method = method_of(exchange.call.method)
    state = polled_state(own) if method.name == GET_TASK else None
    if state is not None:
        method = method_of(CALL_TOOL)
        told = ("status", "statusMessage") if state.is_over else ("status",)
        said[_TASK] = {name: state.tree[name] for name in told if name in state.tree}
        tree = {name: tree["result"][name] for name in state.response}
        if state.input_requests:
            said[INPUT_REQUESTS] = task_question(state.input_requests, state.id)
    if "error" in tree:
        return {**said, "#error": _pinned_error(tree["error"])}
    result = tree.get("result", {})
    if not isinstance(result, dict):
        return {**said, "#result": result}
    if "result" in tree:
        # Members whose absence means a value.
        result = {"isError": False, RESULT_TYPE: "complete", **result}
    elif not messages and response.body and not response.is_framed:
        try:
            said["#body"] = comparable_tree(response.body, states)
        except NotJsonError:
            said["#body"] = _comparable(response.body, states).decode("utf-8", "replace")
    result = pinned(result, _VOLATILE | method.volatile)
    if exchange.ask is not None:
        result[INPUT_REQUESTS] = pinned_question(result.get(INPUT_REQUESTS))
    return {**said, **result}


def _pinned_error(error: Any) -> Any:
    """Return an error in which ids of the URLs that it asks for are the same each time.

    Source: MCP 2025-11-25, Elicitation, "URL Elicitation Required Error".
    """
    data = error.get("data") if isinstance(error, dict) else None
    asked = data.get("elicitations") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(asked, list):
        return error
    questions = pinned_question({str(at): {"params": each} for at, each in enumerate(asked)})
    return {**error, "data": {**data, "elicitations": [*questions.values()]}}


def _own(messages: list[Message], request: Message | None) -> Message | None:
    if request is None or request.kind is not Kind.REQUEST:
        return None
    responses = [each for each in messages if each.kind is Kind.RESPONSE]
    own = [each for each in responses if each.id == request.id]
    return next(iter(own or [each for each in responses if each.id is None]), None)


def _headers(response: Response) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in kept_response_headers(response.headers):
        key = name.lower()
        if key not in _NOT_COMPARED:
            same = "" if key in _VALUE_IS_VOLATILE else value
            headers[key] = f"{headers[key]}, {same}" if key in headers else same
    return headers


def _message(tree: dict[str, Any], token: str | None, task: TaskState | None) -> dict[str, Any]:
    kept = {key: value for key, value in tree.items() if key not in ("id", "jsonrpc")}
    params = kept["params"] = pinned(kept, _VOLATILE_OF_MESSAGES).get("params")
    if isinstance(params, dict) and "progressToken" in params:
        is_own = token is None or canonical(params["progressToken"]) == token
        params["progressToken"] = "the request's" if is_own else "another request's"
    if task is not None and task.input_requests:
        params[INPUT_REQUESTS] = task_question(task.input_requests, task.id)
    if "result" in kept:
        kept["result"] = pinned(kept["result"], _VOLATILE)
    return {key: value for key, value in kept.items() if value is not None}


def _judged(change: Change, *, is_surface: bool) -> Change:
    pointer, steps = change.pointer, pointer_path(change.pointer)
    values = change.recorded or "", change.received or ""
    verdict, is_information = change.verdict, False
    # The recorded answer repeats a state.
    if is_below(pointer, ASKS) or (pointer == f"/{REQUEST_STATE}" and change.received is None):
        verdict = "question-changed"
    elif pointer in _ENDINGS or (pointer == "/#status" and any(it >= "400" for it in values)):
        verdict = "error-changed"
    elif pointer in ("/#status", "/#end", f"/{RESULT_TYPE}") or (
        pointer == "/#headers/content-type" and any(EVENT_STREAM in value for value in values)
    ):
        verdict = "shape-changed"
    elif (is_surface and not pointer.startswith("/#")) or not _SERVER_INFO.isdisjoint(steps):
        verdict, is_information = "surface-changed", _is_information(change, steps)
    return change._replace(verdict=verdict, is_information=is_information)


# What a server says that it can do: what is added or optional is information; what is gone, newly
# required or says something else is not. The order of a list means nothing.

_NAMES: Final = ("uri", "uriTemplate", "name")
"""Members by which an item of a list is the same one in another list; the first counts."""
_SERVER_INFO: Final = frozenset({"serverInfo", "io.modelcontextprotocol/serverInfo"})
_INPUT: Final = "inputSchema"
_REQUIRED: Final = "required"
_ONLY_DESCRIBES: Final = frozenset(
    ["$comment", "$id", "$schema", "default", "deprecated", "description", "examples", "title"]
)
"""Keywords of JSON Schema that refuse no value."""
_ALTERNATIVES: Final = frozenset(
    (step,) for step in ("$defs", "anyOf", "definitions", "enum", "oneOf", "properties", "type")
)
"""Keywords of JSON Schema below which something more allows more."""


def _by_name(recorded: list[Any], received: list[Any]) -> list[Pair]:
    old, new = ([_name_of(item) for item in items] for items in (recorded, received))
    if None in old or None in new:
        return by_place(recorded, received)
    partners = dict(matches(old, new))
    added = sorted(set(range(len(new))).difference(partners.values()))
    both = [Pair(index, partners.get(index)) for index in range(len(old))]
    return both + [Pair(None, index) for index in added]


def _name_of(item: Any) -> str | None:
    if not isinstance(item, dict | list):
        return canonical(item)
    names = [item[name] for name in _NAMES if name in item] if isinstance(item, dict) else []
    return names[0] if names and isinstance(names[0], str) else None


def _is_information(change: Change, steps: tuple[str, ...]) -> bool:
    """Tell whether a server offers more, or demands less."""
    if not _SERVER_INFO.isdisjoint(steps):
        return change.received is not None and steps[-1] != "name"
    if change.received is None:
        return _INPUT in steps and _REQUIRED in steps[-2:]
    if change.recorded is not None:
        return steps[-1] == _REQUIRED and change.received == "false"
    if "arguments" in steps:
        # An argument of a prompt, or what is said of one.
        demand = "true" if steps[-1] == _REQUIRED else '"required":true'
        return demand not in change.received
    if steps[2:3] == ("execution",):
        # A tool that can be called as a task only (MCP 2025-11-25, "Tasks").
        return f'"{_REQUIRED}"' not in change.received
    schema = steps[steps.index(_INPUT) + 1 :] if _INPUT in steps else ()
    return not schema or schema[-1] in _ONLY_DESCRIBES or schema[-2:-1] in _ALTERNATIVES
