"""Differences between two responses to the same call."""
# Source: MCP 2026-07-28, "Discovery", "Tools", "Prompts", "Resources".

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from mrtr_cassette.core.cassette.recorded import (
    RecordedExchange,
    RecordedInteraction,
    RecordedTurn,
    in_conversation_order,
)
from mrtr_cassette.core.compare.surface import (
    SERVER_INFO_MEMBERS,
    offers_more,
    pairs_by_name,
)
from mrtr_cassette.core.compare.values import (
    Change,
    Verdict,
    change_of,
    is_below,
    matching_places,
    pairs_by_place,
    value_changes,
    with_pinned_places,
)
from mrtr_cassette.core.protocol.calls import session_of
from mrtr_cassette.core.protocol.dialect import (
    INPUT_REQUESTS,
    REQUEST_STATE,
    RESULT_TYPE,
    InputRequest,
    spelled_requests,
)
from mrtr_cassette.core.protocol.jsonrpc import (
    SUBSCRIPTION_ID,
    Kind,
    LocatedMessage,
    Message,
    drop_null_outcome,
    messages_in,
    server_message,
)
from mrtr_cassette.core.protocol.methods import (
    CALL_TOOL,
    LOG,
    PING,
    RELATED_TASK,
    TASK_VALUES,
    method_of,
)
from mrtr_cassette.core.protocol.origins import without_local_ports
from mrtr_cassette.core.protocol.tasks import (
    TASK,
    TaskState,
    created_task,
    notified_state,
    polled_state,
    stable_key_names,
)
from mrtr_cassette.core.secrets.names import (
    ANSWER,
    STATE,
    Ref,
    placeholder_without_token,
    reveal_states,
    with_changed_refs,
)
from mrtr_cassette.core.secrets.sealed import reads_as_words
from mrtr_cassette.core.wire.http import (
    EVENT_STREAM,
    SESSION_HEADER,
    VALIDATING_HEADERS,
    End,
    Response,
    header_value,
    kept_response_headers,
    opens_channel,
)
from mrtr_cassette.core.wire.jsonbytes import (
    MemberPath,
    canonical,
    parse,
    parse_tolerantly,
)
from mrtr_cassette.core.wire.pointers import (
    ABSENT,
    ANY,
    escape_pointer,
    members_of,
    pointer_path,
)
from mrtr_cassette.errors import NotJsonError

ASKS_POINTER: Final = f"/{INPUT_REQUESTS}"
"""Pointer to what a server asks."""

States = Mapping[str, str]
"""The recorded request states and session ids by the SHA-256 of the live ones."""

NO_STATES: Final[States] = {}
Members = dict[str, Any]
"""The members of a JSON object; of a response that was read, with all else under `#` names."""

TRACE_MEMBERS: Final = ("baggage", "traceparent", "tracestate")
"""Members of `_meta` that name a trace, which differs in every run."""


def _member_paths(outer: MemberPath, *names: str) -> set[MemberPath]:
    """Return the paths of some members of one object."""
    return {(*outer, name) for name in names}


_VOLATILE_IN_RESULTS: Final = frozenset(
    {RELATED_TASK}
    | _member_paths((), "ttlMs", "nextCursor", REQUEST_STATE)
    | _member_paths(("_meta",), SUBSCRIPTION_ID, *TRACE_MEMBERS)
)
"""Places in any result whose values vary from run to run."""

_VOLATILE_OF_MESSAGES: Final = frozenset(
    _member_paths(("params",), "elicitationId", "requestId", *TASK_VALUES)
    | _member_paths(
        ("params", "_meta"), SUBSCRIPTION_ID, "progressToken", *TRACE_MEMBERS
    )
)
_VOLATILE_OF_ASKS: Final = frozenset(
    _member_paths((ANY, "params"), "elicitationId")
    | _member_paths((ANY, "params", "_meta"), "progressToken", *TRACE_MEMBERS)
)
_VOLATILE_HEADERS: Final = frozenset({SESSION_HEADER, "retry-after"})
_IGNORED_HEADERS: Final = VALIDATING_HEADERS | {
    "content-encoding",
    "server",
    "x-powered-by",
    "x-accel-buffering",
}
"""Headers that vary from run to run, depend on the client, or name the server's software."""

_TASK_MEMBER: Final = "#task"
"""Beside a result: how the call ended, if its response does not say it."""

TASK_POINTER: Final = f"/{_TASK_MEMBER}"
"""Pointer to that."""

_FAILURE_POINTERS: Final = frozenset(
    {"/#error", "/#error/code", "/isError", f"/{_TASK_MEMBER}/status"}
)
"""Places that say that a call failed."""

_SHAPE_POINTERS: Final = frozenset({"/#status", "/#end", f"/{RESULT_TYPE}"})
_QUESTION_IDS: Final = re.compile(rb'"elicitationId"\s*:\s*"([^"\\]{16,})"')


def question_ids(raw: bytes) -> list[bytes]:
    """Return the ids that a server has made up for questions, without those that read as words."""
    ids = []
    for identity in _QUESTION_IDS.findall(raw):
        if not reads_as_words(identity.decode("latin-1")):
            ids.append(identity)

    return ids


# Two responses


def response_changes(
    recorded: RecordedExchange,
    live: RecordedExchange,
    states: States = NO_STATES,
    *,
    is_at_start: bool = False,
) -> list[Change]:
    """Return the differences of two responses to the same call, and of all that came with them.

    Two asks are the same question only if no change is `question-changed`; a question that only
    has another key is `key-changed`. `live` has the form in which it is or would be recorded;
    `states` has the recorded request state or session id by the SHA-256 of the live one, so that
    texts that repeat them are the same in every run. A server on pipes that `is_at_start` may log
    what belongs to no call.
    """
    old_response = recorded.response
    new_response = live.response
    if old_response is None or new_response is None:
        return _changes_of_missing_response(old_response, new_response)
    is_same_request = recorded.request.body == live.request.body
    if is_same_request and _is_same_response(old_response, new_response):
        return []
    if (recorded.ask is None) != (live.ask is None):
        return [_ask_change(recorded, live)]

    old_members = _compared_members(recorded, old_response, states)
    new_members = _compared_members(live, new_response, states)
    if old_response.is_lines or new_response.is_lines:
        drop_unrelated_messages(
            recorded.call.method,
            old_members["#messages"],
            new_members["#messages"],
            is_at_start=is_at_start,
        )

    _drop_incomparable_members(old_response, new_response, old_members, new_members)
    changes = _changes_with_verdicts(recorded, old_members, new_members)
    if is_failure(live) and not is_failure(recorded):
        return list(_changes_to_failure(changes, recorded, live))

    return changes


def _ask_change(recorded: RecordedExchange, live: RecordedExchange) -> Change:
    """Return the change that only one of two responses asks something."""
    if live.ask is None:
        return unasked_change(asked_question(recorded), live)
    return round_change(ABSENT, asked_question(live))


def _changes_of_missing_response(
    old: Response | None, new: Response | None
) -> list[Change]:
    """Return the change that only one of two responses is there."""
    if old is None and new is None:
        return []

    old_status = ABSENT if old is None else old.status
    new_status = ABSENT if new is None else new.status
    return [change_of("shape-changed", "/#status", old_status, new_status)]


def _is_same_response(old: Response, new: Response) -> bool:
    """Tell whether two responses are the same, but for where their pieces end."""
    is_same_body = old.end == new.end and old.body == new.body
    return is_same_body and old.status == new.status and old.headers == new.headers


def _drop_incomparable_members(
    old: Response, new: Response, old_members: Members, new_members: Members
) -> None:
    """Drop the members of two responses that can't be compared with each other."""
    incomparable_names: set[str] = set()
    if old.is_lines or new.is_lines:
        incomparable_names |= {"#status", "#headers"}

    if _ending_of_call(old_members) != _ending_of_call(new_members):
        # A result and an error have no other members to compare.
        all_names = {*old_members, *new_members}
        kept_names = {
            "#error",
            "#status",
            "#headers",
            "#end",
            "#messages",
            "#result",
            _TASK_MEMBER,
        }
        if "#error" not in all_names:
            kept_names.add(RESULT_TYPE)

        incomparable_names |= all_names - kept_names

    if End.OPEN in (old.end, new.end):
        incomparable_names.add("#end")
        # One of two responses without an end may have fewer messages.
        common_count = min(len(old_members["#messages"]), len(new_members["#messages"]))
        del old_members["#messages"][common_count:]
        del new_members["#messages"][common_count:]

    for name in incomparable_names:
        old_members.pop(name, None)
        new_members.pop(name, None)


def _changes_with_verdicts(
    recorded: RecordedExchange, old_members: Members, new_members: Members
) -> list[Change]:
    """Return the differences of two responses that were read, each with its verdict."""
    new_keys: dict[str, str] = {}
    # Beside an error nothing else is compared.
    if recorded.ask is not None and INPUT_REQUESTS in old_members:
        questions = new_members[INPUT_REQUESTS]
        new_keys = renamed_keys(old_members[INPUT_REQUESTS], questions)
        new_members[INPUT_REQUESTS] = with_recorded_keys(questions, new_keys)

    is_surface = method_of(recorded.call.method).describes_server
    pair_items = pairs_by_name if is_surface else pairs_by_place
    changes = _key_changes(new_keys)
    for change in value_changes(old_members, new_members, "", pair_items):
        changes.append(_change_with_verdict(change, is_surface=is_surface))

    return changes


def _changes_to_failure(
    changes: Iterable[Change], recorded: RecordedExchange, live: RecordedExchange
) -> Iterator[Change]:
    """Yield the changes that count if a call fails now, with the whole result and the error.

    Any other difference between a result and an error is left out.
    """
    for change in changes:
        if change.verdict != "error-changed":
            if change.pointer.startswith("/#"):
                yield change
        elif change.pointer == "/#status":
            yield change._replace(verdict="refused")
        else:
            recorded_outcome = outcome_value(recorded)
            live_outcome = outcome_value(live)
            yield change_of("refused", change.pointer, recorded_outcome, live_outcome)


def _ending_of_call(members: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the facts that say how a call ended."""
    status = members.get(_TASK_MEMBER, {}).get("status")
    return "#error" in members, status, members.get(RESULT_TYPE) == TASK


def question_changes(recorded: Any, received: Any) -> list[Change]:
    """Return the differences of two values of `inputRequests`, that is of the questions by key.

    For pushed requests, such a value has the `method` and the `params` of each by our key.
    """
    new_keys = renamed_keys(recorded, received)
    under_recorded_keys = with_recorded_keys(pinned_question(received), new_keys)
    changes = _key_changes(new_keys)
    for change in value_changes(
        pinned_question(recorded), under_recorded_keys, ASKS_POINTER
    ):
        changes.append(change._replace(verdict="question-changed"))

    return changes


def _key_changes(new_keys: Mapping[str, str]) -> list[Change]:
    """Return the changes of questions that only have another key."""
    changes = []
    for recorded_key, new_key in new_keys.items():
        pointer = f"{ASKS_POINTER}/{escape_pointer(recorded_key)}"
        changes.append(change_of("key-changed", pointer, recorded_key, new_key))

    return changes


def renamed_keys(recorded: Any, received: Any) -> dict[str, str]:
    """Return the keys that equal questions have now, by the recorded ones, but for equal keys.

    These are two values of `inputRequests`: an object, or in the array dialect an array.
    """
    old_questions = _questions_by_key(pinned_question(recorded))
    new_questions = _questions_by_key(pinned_question(received))
    for key in old_questions.keys() & new_questions.keys():
        del old_questions[key]
        del new_questions[key]

    return dict(
        matching_places(sorted(old_questions.items()), sorted(new_questions.items()))
    )


def _questions_by_key(question: Any) -> dict[str, str]:
    """Return the JSON of each question by its key."""
    if isinstance(question, dict):
        return {key: canonical(request) for key, request in question.items()}

    questions = {}
    for item in question:
        questions[item["id"]] = canonical({**item, "id": ""})

    return questions


def renamed_keys_in_changes(changes: Iterable[Change]) -> dict[str, str]:
    """Return today's keys by the recorded ones, from the changes of a response."""
    new_key_by_recorded = {}
    for change in changes:
        if change.verdict == "key-changed":
            recorded_key = json.loads(change.recorded or "")
            new_key_by_recorded[recorded_key] = json.loads(change.received or "")

    return new_key_by_recorded


def with_recorded_keys(value: Any, names: Mapping[str, str]) -> Any:
    """Return questions or answers with the recorded keys, by the names of `renamed_keys`.

    They are members by key, or items with an `id`.
    """
    if not names or not isinstance(value, dict | list):
        return value

    recorded_key_by_new = {new: recorded for recorded, new in names.items()}
    if isinstance(value, dict):
        return _members_under_keys(value, recorded_key_by_new)

    items_with_recorded_ids = []
    for item in value:
        new_key = item["id"]
        items_with_recorded_ids.append(
            {**item, "id": recorded_key_by_new.get(new_key, new_key)}
        )

    return items_with_recorded_ids


def _members_under_keys(
    members: Mapping[str, Any], names: Mapping[str, str]
) -> Members:
    """Return members under other keys, as far as these have others."""
    return {names.get(key, key): member for key, member in members.items()}


def round_change(recorded: Any, received: Any) -> Change:
    """Return the change that there is a question more or less; a missing one is `ABSENT`."""
    return change_of("rounds-changed", ASKS_POINTER, recorded, received)


def unasked_change(question: Any, live: RecordedExchange) -> Change:
    """Return the change that a response came in place of a question; an error refuses it."""
    if not is_failure(live):
        return round_change(question, ABSENT)
    return change_of("refused", "", {INPUT_REQUESTS: question}, outcome_value(live))


def is_failure(exchange: RecordedExchange) -> bool:
    """Tell whether a call ended with an error: of the protocol, of its tool, or of HTTP."""
    response = exchange.response
    if response is None or exchange.ask is not None:
        return False

    members = members_of(outcome_value(exchange))
    if "error" in members or members.get("isError") is True:
        return True

    return not response.is_lines and response.status >= 400


def asked_question(exchange: RecordedExchange) -> Any:
    """Return the question of a response for `question_changes`; `ABSENT` if it asks nothing."""
    if exchange.ask is None:
        return ABSENT

    tree = comparable_tree(exchange.ask.message.raw)
    return tree["result"].get(INPUT_REQUESTS, {})


def question_of(turn: RecordedTurn) -> Any:
    """Return what a recorded turn asks for `question_changes`; a ping asks nothing."""
    if turn.via == "task":
        return comparable_by_key(spelled_requests(turn.requests), turn.names_by_key)
    if turn.pushed_turn is None:
        return asked_question(turn.asking_exchange)

    asked = {}
    for request in turn.pushed_turn.pushed_requests:
        if request.message.method != PING:
            asked[request.key] = pushed_value(request.message.raw)

    return asked


def pushed_value(raw: bytes, states: States = NO_STATES) -> Members:
    """Return the question of a pushed request, as in a value of `inputRequests`."""
    tree = comparable_tree(raw, states)
    members = {}
    for name in ("method", "params"):
        if name in tree:
            members[name] = tree[name]

    return members


def polled_questions(requests: Mapping[str, InputRequest], task_id: str) -> Members:
    """Return the questions of a task for `question_changes`."""
    spelled_questions: Members = spelled_requests(requests)
    return comparable_by_key(spelled_questions, stable_key_names(requests, task_id))


def comparable_by_key(
    values: Mapping[str, Any], question_names: Mapping[str, str]
) -> Members:
    """Return values by the names of the questions in place of their keys."""
    renamed_text = canonical(_members_under_keys(values, question_names))
    tree: Members = comparable_tree(renamed_text.encode())
    return tree


def pinned_question(question: Any) -> Any:
    """Return a value of `inputRequests` that is the same for all equal questions."""
    return with_pinned_places(question or {}, _VOLATILE_OF_ASKS)


def outcome_value(exchange: RecordedExchange) -> Any:
    """Return the outcome of a last response: its result or error, or else its body or messages."""
    if exchange.response is None:
        return None

    members = _compared_members(exchange, exchange.response, NO_STATES)
    if "#error" in members:
        return {"error": members["#error"]}

    result_members = {}
    for name, value in members.items():
        if not name.startswith("#"):
            result_members[name] = value

    return (
        result_members
        or members.get("#body")
        or members["#messages"]
        or members["#status"]
    )


def whole_response_value(exchange: RecordedExchange) -> Any:
    """Return the whole message of a response: its question, its result or its error."""
    if exchange.ask is None:
        return outcome_value(exchange)
    return {INPUT_REQUESTS: asked_question(exchange)}


def comparable_tree(raw: bytes, states: States = NO_STATES) -> Any:
    """Return a JSON text as a value in which all stand-ins for secrets are the same."""
    return parse_tolerantly(_comparable_bytes(raw, states))


def comparable_text(text: str, states: States = NO_STATES) -> str:
    """Return a text in which all stand-ins for secrets are the same."""
    raw = text.encode("utf-8", "surrogatepass")
    return _comparable_bytes(raw, states).decode("utf-8", "surrogatepass")


def _comparable_bytes(raw: bytes, states: States) -> bytes:
    """Return bytes in which all stand-ins for secrets, and ids of questions, are the same."""
    for identity in question_ids(raw):
        raw = raw.replace(identity, b"mrtr-elicitation")

    return with_changed_refs(reveal_states(raw, states.get), _stable_part_of_ref)


def _stable_part_of_ref(ref: Ref) -> Ref | bytes | None:
    """Return what a reference has in every recording: its kind, and of a state the turn."""
    if ref.is_secret:
        return placeholder_without_token(ref)
    if ref.kind == ANSWER:
        return None
    if ref.kind == STATE:
        return ref._replace(parts=ref.parts[2:])

    return ref._replace(parts=())


def _compared_members(
    exchange: RecordedExchange, response: Response, states: States
) -> Members:
    """Read a response for comparing: the members of its result, and all else under `#` names."""
    request = exchange.call.message
    messages = messages_in(response)
    located = _response_to(messages, request)
    members: Members = {
        "#status": response.status,
        "#headers": _compared_headers(response),
        "#end": response.end.value,
        "#messages": _messages_beside(messages, located, request, states),
    }

    response_message = None
    tree: Members = {}
    if located is not None:
        response_message = located.message
        tree = comparable_tree(response_message.raw, states)

    drop_null_outcome(tree)
    if created_task(request, response_message) is not None:
        # Of its state only the one in which it ends counts.
        return {**members, RESULT_TYPE: TASK}

    method = method_of(exchange.call.method)
    task_state = None
    if exchange.call.is_poll:
        task_state = polled_state(response_message)

    if task_state is not None:
        # It has the result of the call that has become the task.
        method = method_of(CALL_TOOL)
        members |= _task_members(task_state)
        tree = {name: tree["result"][name] for name in task_state.response}

    if "error" in tree:
        return {**members, "#error": tree["error"]}

    has_messages = messages or response.is_message_stream
    if "result" not in tree and response.body and not has_messages:
        members["#body"] = _comparable_body(response, states)

    return {**members, **_result_members(exchange, tree, method.volatile)}


def _result_members(
    exchange: RecordedExchange, tree: Mapping[str, Any], volatile: Iterable[MemberPath]
) -> Members:
    """Return the members of a result that are compared."""
    result = tree.get("result", {})
    if not isinstance(result, dict):
        return {"#result": result}

    if "result" in tree:
        # Members whose absence means a value.
        result = {"isError": False, RESULT_TYPE: "complete", **result}

    result = with_pinned_places(result, _VOLATILE_IN_RESULTS.union(volatile))
    if exchange.ask is not None:
        result[INPUT_REQUESTS] = pinned_question(result.get(INPUT_REQUESTS))

    return dict(result)


def _response_to(
    messages: Sequence[LocatedMessage], request: Message | None
) -> LocatedMessage | None:
    """Return the response to a request; a server that could not read it responds without its id."""
    if request is None or request.kind is not Kind.REQUEST:
        return None

    response = None
    for located in messages:
        message = located.message
        if message.kind is not Kind.RESPONSE:
            continue
        if message.comparable_id == request.comparable_id:
            return located

        if message.comparable_id is None and response is None:
            response = located

    return response


def _messages_beside(
    messages: Sequence[LocatedMessage],
    response: LocatedMessage | None,
    request: Message | None,
    states: States,
) -> list[Members]:
    """Return the messages of a response besides the response itself."""
    token_of_request = None
    if request is not None:
        token_of_request = request.progress_token

    messages_beside = []
    for located in messages:
        message = located.message
        if located is not response and message.kind is not Kind.REQUEST:
            tree = comparable_tree(message.raw, states)
            messages_beside.append(_compared_message(tree, token_of_request, message))

    return messages_beside


def _task_members(state: TaskState) -> Members:
    """Return the members that are compared of the last state of a task."""
    member_names = ["status"]
    if state.is_over:
        member_names.append("statusMessage")

    task = {}
    for name in member_names:
        if name in state.tree:
            task[name] = state.tree[name]

    members: Members = {_TASK_MEMBER: task}
    if state.input_requests:
        members[INPUT_REQUESTS] = polled_questions(state.input_requests, state.id)

    return members


def _comparable_body(response: Response, states: States) -> Any:
    """Return a body that is no message: as a value if it is valid JSON, otherwise as a text."""
    body = _comparable_bytes(response.body, states).decode("utf-8", "backslashreplace")
    text = without_local_ports(body)
    try:
        return parse(text.encode())
    except NotJsonError:
        return text


def _compared_headers(response: Response) -> dict[str, str]:
    """Return the headers that are compared, by their names in lower case."""
    headers = kept_response_headers(response.headers)
    compared_headers = {}
    for name, _ in headers:
        lower_name = name.lower()
        if lower_name in _VOLATILE_HEADERS:
            compared_headers[lower_name] = ""
        elif lower_name not in _IGNORED_HEADERS:
            value = header_value(headers, lower_name)
            compared_headers[lower_name] = without_local_ports(value)

    return compared_headers


def _compared_message(
    tree: Members, token_of_request: str | None, message: Message
) -> Members:
    """Return the members of a message that are compared."""
    compared_members = with_pinned_places(tree, _VOLATILE_OF_MESSAGES)
    compared_members.pop("id", None)
    compared_members.pop("jsonrpc", None)
    params = compared_members.get("params")
    if isinstance(params, dict) and "progressToken" in params:
        token = canonical(params["progressToken"])
        params["progressToken"] = "another request's"
        if token_of_request is None or token == token_of_request:
            params["progressToken"] = "the request's"

    task = notified_state(message)
    if task is not None and task.input_requests:
        params[INPUT_REQUESTS] = polled_questions(task.input_requests, task.id)

    if "result" in compared_members:
        compared_members["result"] = with_pinned_places(
            compared_members["result"], _VOLATILE_IN_RESULTS
        )

    return {key: value for key, value in compared_members.items() if value is not None}


def _change_with_verdict(change: Change, *, is_surface: bool) -> Change:
    """Return a change of a response with its verdict."""
    verdict = _verdict_of_place(change)
    if verdict is not None:
        return change._replace(verdict=verdict)

    steps = pointer_path(change.pointer)
    is_in_surface = is_surface and not change.pointer.startswith("/#")
    if is_in_surface or not SERVER_INFO_MEMBERS.isdisjoint(steps):
        return change._replace(
            verdict="surface-changed", is_information=offers_more(change, steps)
        )

    return change


def _verdict_of_place(change: Change) -> Verdict | None:
    """Return the verdict on a change by its place, and for some by its values; else None."""
    pointer = change.pointer
    present_values = [value for value in (change.recorded, change.received) if value]
    # The recorded answer repeats a state.
    is_lost_state = pointer == f"/{REQUEST_STATE}" and change.received is None
    if is_lost_state or is_below(pointer, ASKS_POINTER):
        return "question-changed"

    is_refused = pointer == "/#status" and max(present_values) >= "400"
    if is_refused or pointer in _FAILURE_POINTERS:
        return "error-changed"

    is_framing = pointer == "/#headers/content-type" and EVENT_STREAM in "".join(
        present_values
    )
    if is_framing or pointer in _SHAPE_POINTERS:
        return "shape-changed"

    return None


# Messages of a server on pipes that name no request: they come before any response by chance

_MEMBERS_NAMING_REQUEST: Final = frozenset({"progressToken", "requestId", "taskId"})
"""Members of a notification's params that name the request or task it is about."""


def drop_unrelated_messages(
    method: str, recorded: list[Any], live: list[Any], *, is_at_start: bool
) -> None:
    """Drop messages that may be about an earlier call over a pipe, if one run has more of them.

    Log messages before or during the first call, or of the server's own accord, belong to no call.
    If both runs have as many, their order means nothing.
    """
    if method_of(method).listens:
        return

    if not method or method_of(method).describes_server or is_at_start:
        _drop_messages(recorded, _is_log)
        _drop_messages(live, _is_log)

    if not method:
        return

    if sum(map(_is_of_no_request, recorded)) == sum(map(_is_of_no_request, live)):
        live[:] = _unrelated_at_recorded_places(recorded, live)
        return

    _drop_messages(recorded, _is_of_no_request)
    _drop_messages(live, _is_of_no_request)


def _unrelated_at_recorded_places(
    recorded: Sequence[Any], live: Sequence[Any]
) -> list[Any]:
    """Return live messages; notifications of no request stand where equal ones were recorded."""
    related_messages = [message for message in live if not _is_of_no_request(message)]
    unplaced_unrelated = list(filter(_is_of_no_request, live))
    equal_live_messages = []
    for message in filter(_is_of_no_request, recorded):
        equal_message = None
        if message in unplaced_unrelated:
            equal_message = unplaced_unrelated.pop(unplaced_unrelated.index(message))

        equal_live_messages.append(equal_message)

    placed_messages = []
    for message in recorded:
        if not _is_of_no_request(message):
            placed_messages += related_messages[:1]
            del related_messages[:1]
            continue

        live_message = equal_live_messages.pop(0)
        if live_message is None:
            live_message = unplaced_unrelated.pop(0)

        placed_messages.append(live_message)

    return placed_messages + related_messages


def first_calls_on_pipes(interactions: Sequence[RecordedInteraction]) -> set[int]:
    """Return the numbers of the first calls of sessions over pipes: the server may still start."""
    first_call_by_session: dict[str, int] = {}
    for interaction in in_conversation_order(interactions):
        first_exchange = interaction.exchanges[0]
        call = first_exchange.call
        is_call = first_exchange.request.is_line and call.depends_on_writes
        if is_call and not method_of(call.method).describes_server:
            session = session_of(first_exchange.request)
            first_call_by_session.setdefault(session, interaction.number)

    return set(first_call_by_session.values())


def _drop_messages(
    messages: list[Any], is_dropped: Callable[[Mapping[str, Any]], bool]
) -> None:
    """Remove from a list, in place, the messages for which a function returns True."""
    messages[:] = [message for message in messages if not is_dropped(message)]


def _is_log(message: Mapping[str, Any]) -> bool:
    """Tell whether a message is a line of the server's log."""
    return message.get("method") == LOG


def _is_of_no_request(message: Mapping[str, Any]) -> bool:
    """Tell whether a notification names no request and no task."""
    params = message.get("params") or ()
    return "method" in message and _MEMBERS_NAMING_REQUEST.isdisjoint(params)


def only_logs(exchange: RecordedExchange) -> bool:
    """Tell whether it is the beginning of a pipe on which a server only logs."""
    response = exchange.response
    is_beginning = exchange.request.is_line and opens_channel(exchange.request)
    if response is None or not is_beginning:
        return False

    for piece in response.pieces:
        message = server_message(piece.raw)
        if message is None or message.method != LOG:
            return False

    return True
