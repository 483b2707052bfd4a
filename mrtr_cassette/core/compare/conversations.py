"""Differences between two responses, conversations and cassettes."""
# Source: MCP 2026-07-28, "Discovery", "Tools", "Prompts", "Resources".

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
    ResultTurn,
    in_conversation_order,
)
from mrtr_cassette.core.cassette.sessions import without_pongs
from mrtr_cassette.core.compare.strays import drop_strays, only_logs
from mrtr_cassette.core.compare.surface import SERVER_INFO, by_name, is_offer
from mrtr_cassette.core.compare.values import (
    Change,
    Verdict,
    by_place,
    change_of,
    heaviest,
    in_order,
    is_below,
    matches,
    paired,
    pinned,
    value_changes,
    without_ignored,
)
from mrtr_cassette.core.protocol.calls import Call, CallKey
from mrtr_cassette.core.protocol.dialect import (
    INPUT_REQUESTS,
    INPUT_RESPONSES,
    REQUEST_STATE,
    RESULT_TYPE,
    InputRequest,
    answers_text,
    spelled_requests,
)
from mrtr_cassette.core.protocol.jsonrpc import (
    SUBSCRIPTION_ID,
    Kind,
    Located,
    Message,
    drop_null_outcome,
    messages_in,
)
from mrtr_cassette.core.protocol.methods import CALL_TOOL, GET_TASK, PING, TASK_VALUES, method_of
from mrtr_cassette.core.protocol.tasks import (
    TASK,
    TaskState,
    created_task,
    key_names,
    notified_state,
    polled_state,
)
from mrtr_cassette.core.secrets.sealed import reads_as_words, reveal_in_json, without_numbers
from mrtr_cassette.core.wire.http import (
    EVENT_STREAM,
    SESSION_HEADER,
    VALIDATING_HEADERS,
    End,
    Response,
    kept_response_headers,
)
from mrtr_cassette.core.wire.jsonbytes import MemberPath, canonical, parse, parse_tolerantly
from mrtr_cassette.core.wire.pointers import (
    ABSENT,
    ANY,
    Difference,
    differences,
    escape_pointer,
    pointer_path,
    without_paths,
)
from mrtr_cassette.errors import NotJsonError

ASKS: Final = f"/{INPUT_REQUESTS}"
"""Pointer to what a server asks."""
NO_STATES: Final[Mapping[str, str]] = {}
TRACE_MEMBERS: Final = ("baggage", "traceparent", "tracestate")
"""Members of `_meta` that name a trace, which differs in every run."""

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
"""Places in any result whose values vary from run to run."""
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
_NOT_COMPARED: Final = VALIDATING_HEADERS | {
    "content-encoding",
    "server",
    "x-powered-by",
    "x-accel-buffering",
}
"""Headers that vary from run to run, depend on the client, or name the server's software."""
_TASK: Final = "#task"
"""Beside a result: how the task ended that has it."""
_ENDINGS: Final = frozenset({"/#error", "/#error/code", "/isError", f"/{_TASK}/status"})
"""Places that say that a call failed."""
_OF_SHAPE: Final = frozenset({"/#status", "/#end", f"/{RESULT_TYPE}"})
_QUESTION_IDS: Final = re.compile(rb'"elicitationId"\s*:\s*"([^"\\]{16,})"')


def question_ids(raw: bytes) -> list[bytes]:
    """Return the ids that a server has made up for questions, without those that read as words."""
    found = _QUESTION_IDS.findall(raw)
    return [identity for identity in found if not reads_as_words(identity.decode("latin-1"))]


# Two responses


def response_changes(
    recorded: RecordedExchange, live: RecordedExchange, states: Mapping[str, str] = NO_STATES
) -> list[Change]:
    """Return the differences of two responses to the same call, and of all that came with them.

    Two asks are the same question only if no change is `question-changed`; a question that only
    has another key is `key-changed`. `live` has the form in which it is or would be recorded;
    `states` has the recorded request state or session id by the SHA-256 of the live one, so that
    texts that repeat them are the same in every run.
    """
    old = recorded.response
    new = live.response
    if old is None or new is None:
        return _missing_response(old, new)
    if recorded.request.body == live.request.body and _is_same_response(old, new):
        return []
    if recorded.ask is None and live.ask is not None:
        return [round_change(ABSENT, asked_question(live))]
    if recorded.ask is not None and live.ask is None:
        return [unasked_change(recorded, live)]
    before = _read(recorded, old, states)
    after = _read(live, new, states)
    if old.is_lines or new.is_lines:
        drop_strays(recorded.call.method, before["#messages"], after["#messages"])
    _drop_incomparable(old, new, before, after)
    changes = _judged_changes(recorded, before, after)
    if is_failure(recorded) or not is_failure(live):
        return changes
    return list(_refusals(changes, recorded, live))


def _missing_response(old: Response | None, new: Response | None) -> list[Change]:
    if old is not None:
        return [change_of("shape-changed", "/#status", old.status, ABSENT)]
    if new is not None:
        return [change_of("shape-changed", "/#status", ABSENT, new.status)]
    return []


def _is_same_response(old: Response, new: Response) -> bool:
    is_same_body = old.end == new.end and old.body == new.body
    return is_same_body and old.status == new.status and old.headers == new.headers


def _drop_incomparable(
    old: Response, new: Response, before: dict[str, Any], after: dict[str, Any]
) -> None:
    left_out = set()
    if old.is_lines or new.is_lines:
        left_out |= {"#status", "#headers"}
    if _ending_of(before) != _ending_of(after):
        # A result and an error have no other members to compare.
        members = {*before, *after}
        told = {"#error", "#status", "#headers", "#end", "#messages", "#result", _TASK}
        if "#error" not in members:
            told.add(RESULT_TYPE)
        left_out |= members - told
    if End.OPEN in (old.end, new.end):
        left_out.add("#end")
        # One of two responses without an end may have fewer messages.
        common = min(len(before["#messages"]), len(after["#messages"]))
        del before["#messages"][common:]
        del after["#messages"][common:]
    for name in left_out:
        before.pop(name, None)
        after.pop(name, None)


def _judged_changes(
    recorded: RecordedExchange, before: dict[str, Any], after: dict[str, Any]
) -> list[Change]:
    """Return the differences of two responses that were read, each with its verdict."""
    names: dict[str, str] = {}
    if recorded.ask is not None:
        names = renamed_keys(before[INPUT_REQUESTS], after[INPUT_REQUESTS])
        after[INPUT_REQUESTS] = with_recorded_keys(after[INPUT_REQUESTS], names)
    is_surface = method_of(recorded.call.method).describes_server
    pair_items = by_name if is_surface else by_place
    changes = _key_changes(names)
    for change in value_changes(before, after, "", pair_items):
        changes.append(_judged(change, is_surface=is_surface))
    return changes


def _refusals(
    changes: Iterable[Change], recorded: RecordedExchange, live: RecordedExchange
) -> Iterator[Change]:
    """Yield the changes that count if a call fails now, with the whole result and the error.

    Any other difference between a result and an error is left out.
    """
    for change in changes:
        if change.verdict == "error-changed" and change.pointer == "/#status":
            yield change._replace(verdict="refused")
        elif change.verdict == "error-changed":
            result = outcome_value(recorded)
            yield change_of("refused", change.pointer, result, outcome_value(live))
        elif change.pointer.startswith("/#"):
            yield change


def _ending_of(members: Mapping[str, Any]) -> tuple[object, ...]:
    status = members.get(_TASK, {}).get("status")
    return "#error" in members, status, members.get(RESULT_TYPE) == TASK


def question_changes(recorded: Any, received: Any) -> list[Change]:
    """Return the differences of two values of `inputRequests`, that is of the questions by key.

    For pushed requests, such a value has the `method` and the `params` of each by our key.
    """
    names = renamed_keys(recorded, received)
    same_keys = with_recorded_keys(pinned_question(received), names)
    changes = _key_changes(names)
    for change in value_changes(pinned_question(recorded), same_keys, ASKS):
        changes.append(change._replace(verdict="question-changed"))
    return changes


def _key_changes(names: Mapping[str, str]) -> list[Change]:
    changes = []
    for key, name in names.items():
        changes.append(change_of("key-changed", f"{ASKS}/{escape_pointer(key)}", key, name))
    return changes


def renamed_keys(recorded: Any, received: Any) -> dict[str, str]:
    """Return the keys that equal questions have now, by the recorded ones, but for equal keys.

    These are two values of `inputRequests`: an object, or in the array dialect an array.
    """
    old = _by_key(pinned_question(recorded))
    new = _by_key(pinned_question(received))
    gone = sorted(old.keys() - new.keys())
    added = sorted(new.keys() - old.keys())
    names = {}
    for at_old, at_new in matches(list(map(old.get, gone)), list(map(new.get, added))):
        names[gone[at_old]] = added[at_new]
    return names


def _by_key(question: Any) -> dict[str, str]:
    if isinstance(question, dict):
        return {key: canonical(request) for key, request in question.items()}
    return {item["id"]: canonical({**item, "id": ""}) for item in question}


def changed_keys(changes: Iterable[Change]) -> dict[str, str]:
    """Return today's keys by the recorded ones, from the changes of a response."""
    keys = {}
    for change in changes:
        if change.verdict == "key-changed":
            keys[json.loads(change.recorded or "")] = json.loads(change.received or "")
    return keys


def with_recorded_keys(value: Any, names: Mapping[str, str]) -> Any:
    """Return questions or answers with the recorded keys, by the names of `renamed_keys`.

    They are members by key, or items with an `id`.
    """
    if not names or not isinstance(value, dict | list):
        return value
    recorded = {new: old for old, new in names.items()}
    if isinstance(value, dict):
        return {recorded.get(key, key): inner for key, inner in value.items()}
    return [{**item, "id": recorded.get(item["id"], item["id"])} for item in value]


def round_change(recorded: Any, received: Any) -> Change:
    """Return the change that there is a question more or less; a missing one is `ABSENT`."""
    return change_of("rounds-changed", ASKS, recorded, received)


def unasked_change(recorded: RecordedExchange, live: RecordedExchange) -> Change:
    """Return the change that a response asks nothing; an error refuses the question."""
    question = asked_question(recorded)
    if not is_failure(live):
        return round_change(question, ABSENT)
    return change_of("refused", "", {INPUT_REQUESTS: question}, outcome_value(live))


def is_failure(exchange: RecordedExchange) -> bool:
    """Tell whether a call ended with an error: of the protocol, of its tool, or of HTTP."""
    response = exchange.response
    if response is None or exchange.ask is not None:
        return False
    value = outcome_value(exchange)
    if isinstance(value, dict) and ("error" in value or value.get("isError") is True):
        return True
    return not response.is_lines and response.status >= 400


def asked_question(exchange: RecordedExchange) -> Any:
    """Return the question of a response for `question_changes`; `ABSENT` if it asks nothing."""
    if exchange.ask is None:
        return ABSENT
    return comparable_tree(exchange.ask.message.raw)["result"].get(INPUT_REQUESTS, {})


def pushed_value(raw: bytes, states: Mapping[str, str] = NO_STATES) -> dict[str, Any]:
    """Return the question of a pushed request, as in a value of `inputRequests`."""
    tree = comparable_tree(raw, states)
    return {name: tree[name] for name in ("method", "params") if name in tree}


def task_question(requests: Mapping[str, InputRequest], task_id: str) -> dict[str, Any]:
    """Return the questions of a task for `question_changes`."""
    spelled: dict[str, Any] = spelled_requests(requests)
    return comparable_by_key(spelled, key_names(requests, task_id))


def comparable_by_key(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return values by the names of the questions in place of their keys."""
    renamed = {names.get(key, key): value for key, value in values.items()}
    tree: dict[str, Any] = comparable_tree(canonical(renamed).encode())
    return tree


def pinned_question(question: Any) -> Any:
    """Return a value of `inputRequests` that is the same for all equal questions."""
    return pinned(question or {}, _VOLATILE_OF_ASKS)


def outcome_value(exchange: RecordedExchange) -> Any:
    """Return the outcome of a last response: its result or error, or else its body or messages."""
    if exchange.response is None:
        return None
    members = _read(exchange, exchange.response, NO_STATES)
    if "#error" in members:
        return {"error": members["#error"]}
    result = {name: value for name, value in members.items() if not name.startswith("#")}
    return result or members.get("#body") or members["#messages"] or members["#status"]


def said_value(exchange: RecordedExchange) -> Any:
    """Return the whole message of a response: its question, its result or its error."""
    if exchange.ask is None:
        return outcome_value(exchange)
    return {INPUT_REQUESTS: asked_question(exchange)}


def comparable_tree(raw: bytes, states: Mapping[str, str] = NO_STATES) -> Any:
    """Return a JSON text as a value in which all stand-ins for secrets are the same."""
    return parse_tolerantly(_comparable(raw, states))


def comparable_text(text: str, states: Mapping[str, str] = NO_STATES) -> str:
    """Return a text in which all stand-ins for secrets are the same."""
    raw = text.encode("utf-8", "surrogatepass")
    return _comparable(raw, states).decode("utf-8", "surrogatepass")


def _comparable(raw: bytes, states: Mapping[str, str]) -> bytes:
    for identity in question_ids(raw):
        raw = raw.replace(identity, b"mrtr-elicitation")
    return without_numbers(_SURROGATE.sub(rb"\1\2\3\4\5", reveal_in_json(raw, states)))


def _read(
    exchange: RecordedExchange, response: Response, states: Mapping[str, str]
) -> dict[str, Any]:
    """Read a response for comparing: the members of its result, and all else under `#` names."""
    request = exchange.call.message
    messages = messages_in(response)
    located = _response_to(messages, request)
    members: dict[str, Any] = {
        "#status": response.status,
        "#headers": _headers(response),
        "#end": response.end.value,
        "#messages": _messages_beside(messages, located, request, states),
    }
    message = None
    tree: dict[str, Any] = {}
    if located is not None:
        message = located.message
        tree = comparable_tree(message.raw, states)
    drop_null_outcome(tree)
    if created_task(request, message) is not None:
        # Of its state only the one in which it ends counts.
        return {**members, RESULT_TYPE: TASK}
    method = method_of(exchange.call.method)
    state = None
    if method.name == GET_TASK:
        state = polled_state(message)
    if state is not None:
        method = method_of(CALL_TOOL)
        members |= _task_members(state)
        tree = {name: tree["result"][name] for name in state.response}
    if "error" in tree:
        return {**members, "#error": tree["error"]}
    result = tree.get("result", {})
    if not isinstance(result, dict):
        return {**members, "#result": result}
    if "result" in tree:
        # Members whose absence means a value.
        result = {"isError": False, RESULT_TYPE: "complete", **result}
    elif not messages and response.body and not response.is_framed:
        members["#body"] = _body_of(response, states)
    result = pinned(result, _VOLATILE | method.volatile)
    if exchange.ask is not None:
        result[INPUT_REQUESTS] = pinned_question(result.get(INPUT_REQUESTS))
    return {**members, **result}


def _response_to(messages: Sequence[Located], request: Message | None) -> Located | None:
    """Return the response to a request; a server that could not read it responds without its id."""
    if request is None or request.kind is not Kind.REQUEST:
        return None
    response = None
    for located in messages:
        message = located.message
        if message.kind is not Kind.RESPONSE:
            continue
        if message.same_id == request.same_id:
            return located
        if message.same_id is None and response is None:
            response = located
    return response


def _messages_beside(
    messages: Sequence[Located],
    response: Located | None,
    request: Message | None,
    states: Mapping[str, str],
) -> list[dict[str, Any]]:
    token = None
    if request is not None:
        token = request.progress_token
    found = []
    for located in messages:
        message = located.message
        if located is not response and message.kind is not Kind.REQUEST:
            found.append(_message(comparable_tree(message.raw, states), token, message))
    return found


def _task_members(state: TaskState) -> dict[str, Any]:
    told = ["status"]
    if state.is_over:
        told.append("statusMessage")
    task = {name: state.tree[name] for name in told if name in state.tree}
    members: dict[str, Any] = {_TASK: task}
    if state.input_requests:
        members[INPUT_REQUESTS] = task_question(state.input_requests, state.id)
    return members


def _body_of(response: Response, states: Mapping[str, str]) -> Any:
    try:
        return comparable_tree(response.body, states)
    except NotJsonError:
        return _comparable(response.body, states).decode("utf-8", "replace")


def _headers(response: Response) -> dict[str, str]:
    values: dict[str, list[str]] = defaultdict(list)
    for name, value in kept_response_headers(response.headers):
        key = name.lower()
        if key not in _NOT_COMPARED:
            values[key].append("" if key in _VALUE_IS_VOLATILE else value)
    return {key: ", ".join(parts) for key, parts in values.items()}


def _message(tree: dict[str, Any], token: str | None, message: Message) -> dict[str, Any]:
    kept = {key: value for key, value in tree.items() if key not in ("id", "jsonrpc")}
    params = pinned(kept, _VOLATILE_OF_MESSAGES).get("params")
    kept["params"] = params
    if isinstance(params, dict) and "progressToken" in params:
        is_own = token is None or canonical(params["progressToken"]) == token
        params["progressToken"] = "the request's" if is_own else "another request's"
    task = notified_state(message)
    if task is not None and task.input_requests:
        params[INPUT_REQUESTS] = task_question(task.input_requests, task.id)
    if "result" in kept:
        kept["result"] = pinned(kept["result"], _VOLATILE)
    return {key: value for key, value in kept.items() if value is not None}


def _judged(change: Change, *, is_surface: bool) -> Change:
    pointer = change.pointer
    if _is_of_question(change):
        return change._replace(verdict="question-changed")
    if pointer in _ENDINGS or (pointer == "/#status" and _is_failing_status(change)):
        return change._replace(verdict="error-changed")
    if pointer in _OF_SHAPE or (pointer == "/#headers/content-type" and _is_of_stream(change)):
        return change._replace(verdict="shape-changed")
    steps = pointer_path(pointer)
    is_in_result = not pointer.startswith("/#")
    if (is_surface and is_in_result) or not SERVER_INFO.isdisjoint(steps):
        return change._replace(verdict="surface-changed", is_information=is_offer(change, steps))
    return change


def _is_of_question(change: Change) -> bool:
    # The recorded answer repeats a state.
    is_state_gone = change.pointer == f"/{REQUEST_STATE}" and change.received is None
    return is_state_gone or is_below(change.pointer, ASKS)


def _is_failing_status(change: Change) -> bool:
    return max(change.recorded or "", change.received or "") >= "400"


def _is_of_stream(change: Change) -> bool:
    return EVENT_STREAM in f"{change.recorded} {change.received}"


# Two conversations, and two cassettes

Mark = Literal["=", "~", "-", "+"]
"""Both have it and it is the same, both have it and it differs, only the first, only the second."""
StageKind = Literal["ask", "answer", "result"]
IgnoredFor = Callable[[Call], Collection[str]]
"""Returns the JSON Pointers that don't count in a call: in its request, and in its response."""

_ANSWERS = f"/{INPUT_RESPONSES}"


def ignores_nothing(_call: Call) -> Collection[str]:
    """Return no pointers: everything counts in a call."""
    return ()


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a conversation, compared."""

    kind: StageKind
    turn: int | None
    mark: Mark
    changes: tuple[Change, ...]

    @property
    def counting(self) -> list[Change]:
        """The changes that are more than information."""
        return [change for change in self.changes if not change.is_information]


def _changes_in(stages: Iterable[Stage]) -> Iterator[Change]:
    for stage in stages:
        yield from stage.changes


@dataclass(frozen=True, slots=True)
class InteractionComparison:
    """One interaction of two cassettes, or of one of them.

    Attributes:
        request: if only the second has the call, the differences of its arguments from a call
            with its name that only the first has.
    """

    recorded: int | None
    received: int | None
    call: str
    is_moved: bool
    stages: tuple[Stage, ...]
    request: tuple[Difference, ...] = ()

    @property
    def mark(self) -> Mark:
        """Which of the two have it, and whether it is the same."""
        if self.recorded is None:
            return "+"
        if self.received is None:
            return "-"
        if self.verdict == "same":
            return "="
        return "~"

    @property
    def verdict(self) -> Verdict:
        """The heaviest of its changes."""
        verdict = heaviest(_changes_in(self.stages))
        is_whole = self.recorded is not None and self.received is not None
        if verdict == "same" and not is_whole:
            return "shape-changed"
        return verdict


@dataclass(frozen=True, slots=True)
class CassetteComparison:
    """Two cassettes, compared."""

    recorded: str
    received: str
    interactions: tuple[InteractionComparison, ...]

    @property
    def changes(self) -> list[Change]:
        """All changes, information included."""
        changes: list[Change] = []
        for interaction in self.interactions:
            changes += _changes_in(interaction.stages)
        return changes

    @property
    def verdict(self) -> Verdict:
        """The heaviest of all changes."""
        return heaviest(self.changes)

    @property
    def is_same(self) -> bool:
        """Whether nothing that counts differs; the order of interactions doesn't count."""
        return all(interaction.mark == "=" for interaction in self.interactions)

    @property
    def counts(self) -> Counter[Mark]:
        """How many interactions have each mark."""
        return Counter(interaction.mark for interaction in self.interactions)


def compared(
    recorded: Cassette, received: Cassette, ignored_for: IgnoredFor = ignores_nothing
) -> CassetteComparison:
    """Compare two cassettes; at the ignored pointers, and below them, nothing counts.

    Interactions belong together by call and occurrence, those with the same answers first.
    """
    old = list(_sides_of(recorded, ignored_for))
    new = list(_sides_of(received, ignored_for))
    partners = _partners(old, new)
    namesakes = _namesakes(partners, old, new)
    interactions = []
    for pair in _aligned(partners, old, new):
        if not pair.only_logs:
            interactions.append(_interaction_of(pair, namesakes))
    return CassetteComparison(recorded.path, received.path, tuple(interactions))


def _interaction_of(pair: _SidePair, namesakes: Mapping[int, _Side]) -> InteractionComparison:
    old = pair.old
    new = pair.new
    request: tuple[Difference, ...] = ()
    if new is not None and new.number in namesakes:
        request = _request_differences(namesakes[new.number], new)
    side = pair.sides[0]
    stages = [_without_ignored(stage, side.pointers) for stage in _stages_of(old, new)]
    call = str(side.call)
    numbers = (old and old.number, new and new.number)
    return InteractionComparison(*numbers, call, pair.is_moved, tuple(stages), request)


def held_to(
    recorded: Cassette, repeated: Cassette, ignored_for: IgnoredFor, *, is_part: bool
) -> CassetteComparison:
    """Compare a cassette with a run in which its calls, or a part of them, were made again.

    A call that was made once more than recorded may be the same as any recorded one, and a call of
    a part as any that is not the same as another: nobody can tell which of several it was.
    """
    comparison = compared(recorded, repeated, ignored_for)
    same = {pair.recorded for pair in comparison.interactions if pair.mark == "="}
    made = {interaction.number: interaction for interaction in repeated.interactions}
    found = []
    for pair in comparison.interactions:
        candidates: tuple[RecordedInteraction, ...] = ()
        if pair.mark == "+":
            candidates = recorded.interactions
        elif pair.mark == "~" and is_part:
            left = [call for call in recorded.interactions if call.number not in same]
            candidates = tuple(left)
        elif pair.mark == "-" and is_part:
            continue
        equal = None
        if candidates and pair.received is not None:
            single = replace(repeated, interactions=(made[pair.received],))
            equal = _equal_pair(replace(recorded, interactions=candidates), single, ignored_for)
        if equal is not None:
            same.add(equal.recorded)
        found.append(equal or pair)
    return replace(comparison, interactions=tuple(found))


def _equal_pair(
    recorded: Cassette, made: Cassette, ignored_for: IgnoredFor
) -> InteractionComparison | None:
    """Return the comparison of a single call with the first equal one of a cassette."""
    for interaction in recorded.interactions:
        comparison = compared(replace(recorded, interactions=(interaction,)), made, ignored_for)
        if comparison.is_same:
            return comparison.interactions[0]
    return None


class _Turn(NamedTuple):
    """One turn of an interaction."""

    question: Any
    answers: Any
    exchange: RecordedExchange | None


_NO_TURN = _Turn(ABSENT, ABSENT, None)


class _Side(NamedTuple):
    """One interaction as a comparison reads it; `keys` find its partner, the strictest first."""

    interaction: RecordedInteraction
    turns: list[_Turn]
    call: CallKey
    keys: tuple[object, object, object]
    pointers: Collection[str]

    @property
    def number(self) -> int:
        return self.interaction.number


class _SidePair(NamedTuple):
    """Two interactions that belong together, or one without a partner."""

    old: _Side | None
    new: _Side | None
    is_moved: bool = False

    @property
    def sides(self) -> list[_Side]:
        """Those that it has, the new one first."""
        return [side for side in (self.new, self.old) if side is not None]

    @property
    def only_logs(self) -> bool:
        """Whether it is one side alone, on which a server only logs."""
        sides = self.sides
        return len(sides) == 1 and only_logs(sides[0].interaction.exchanges[0])


def _sides_of(cassette: Cassette, ignored_for: IgnoredFor) -> Iterator[_Side]:
    pages: dict[tuple[str, str, str | None], int] = {}
    for interaction in without_pongs(in_conversation_order(cassette.interactions)):
        call = interaction.exchanges[0].call
        issued = interaction.exchanges[-1].next_cursor
        page = pages.get((call.endpoint, call.method, call.cursor), 0)
        if issued is not None:
            pages[call.endpoint, call.method, issued] = page + 1
        pointers = ignored_for(call)
        ignored = [pointer_path(pointer) for pointer in pointers]
        turns = list(_turns_of(interaction, ignored))
        given = _given(interaction.exchanges[0], ignored)
        if page:
            ignored.append(("cursor",))
        key = call.key(tuple(ignored))
        answers = [given, *(turn.answers for turn in turns)]
        texts = tuple("" if value is ABSENT else canonical(value) for value in answers)
        yield _Side(interaction, turns, key, _keys_of(key, page, texts), pointers)


def _keys_of(key: CallKey, page: int, answers: tuple[str, ...]) -> tuple[object, object, object]:
    # The path of a server may be another one; other HTTP traffic is nothing but its path.
    endpoint = ""
    if not key.method:
        endpoint = comparable_text(key.endpoint)
    name = comparable_text(key.name)
    same_call = (endpoint, key.method, name, comparable_text(key.arguments), page)
    return (key.endpoint, same_call, answers), (same_call, answers), same_call


def _turns_of(interaction: RecordedInteraction, ignored: Collection[MemberPath]) -> Iterator[_Turn]:
    for turn in interaction.turns:
        if isinstance(turn, PushedTurn):
            pushed = _pushed_turn(turn, ignored)
            if pushed.question:
                yield pushed
        elif isinstance(turn, ResultTurn):
            answers = ABSENT
            if turn.retry is not None:
                answers = _given(turn.retry, ignored)
            yield _Turn(asked_question(turn.exchange), answers, turn.exchange)
        else:
            task = interaction.task_id
            answers = ABSENT
            if turn.given:
                names = key_names(turn.requests, task)
                answers = _without_null(comparable_by_key(turn.given, names))
            yield _Turn(task_question(turn.requests, task), answers or ABSENT, None)


def _pushed_turn(turn: PushedTurn, ignored: Collection[MemberPath]) -> _Turn:
    """Return the questions of pushed requests and their answers, without pings."""
    asked = {}
    for request in turn.asked:
        if request.message.method != PING:
            asked[request.key] = pushed_value(request.message.raw)
    posted = {}
    for answer in turn.answers:
        if answer.key in asked:
            posted[answer.key] = _posted(answer.exchange, ignored)
    return _Turn(asked, posted or ABSENT, None)


def _given(retry: RecordedExchange, ignored: Collection[MemberPath]) -> Any:
    if retry.call.answers is None:
        return ABSENT
    answers = {}
    text = answers_text(retry.request.body)
    if text is not None:
        answers = _without_null(comparable_tree(text))
    return without_paths({INPUT_RESPONSES: answers}, ignored).get(INPUT_RESPONSES, {})


def _posted(exchange: RecordedExchange, ignored: Collection[MemberPath]) -> Any:
    message = exchange.call.message
    tree: dict[str, Any] = {}
    if message is not None:
        tree = comparable_tree(message.raw)
    drop_null_outcome(tree)
    if "result" in tree:
        return without_paths(_without_null(tree["result"]), ignored)
    return _without_null({"error": tree.get("error")})


def _without_null(value: Any) -> Any:
    return parse(canonical(value, without_null=True).encode())


def _partners(old: Sequence[_Side], new: Sequence[_Side]) -> dict[int, int]:
    """Return the index of the old interaction by the index of the new one."""
    partners: dict[int, int] = {}
    for level in range(3):
        taken = set(partners.values())
        old_left = [index for index in range(len(old)) if index not in taken]
        new_left = [index for index in range(len(new)) if index not in partners]
        old_keys = [old[index].keys[level] for index in old_left]
        new_keys = [new[index].keys[level] for index in new_left]
        for at_old, at_new in matches(old_keys, new_keys):
            partners[new_left[at_new]] = old_left[at_old]
    return partners


def _namesakes(
    partners: Mapping[int, int], old: Sequence[_Side], new: Sequence[_Side]
) -> dict[int, _Side]:
    """Return old interactions without a partner by the numbers of new ones of the same name."""
    taken = set(partners.values())
    unpaired: dict[tuple[str, str], list[_Side]] = defaultdict(list)
    for index, side in enumerate(old):
        if index not in taken:
            unpaired[side.call.method, side.call.name].append(side)
    found: dict[int, _Side] = {}
    for index, side in enumerate(new):
        namesakes = unpaired[side.call.method, side.call.name]
        if index not in partners and namesakes:
            found[side.number] = namesakes.pop(0)
    return found


def _request_differences(old: _Side, new: _Side) -> tuple[Difference, ...]:
    ignored = [pointer_path(pointer) for pointer in new.pointers]
    before = without_paths(old.interaction.exchanges[0].call.arguments, ignored)
    after = without_paths(new.interaction.exchanges[0].call.arguments, ignored)
    if isinstance(before, bytes) or isinstance(after, bytes):
        return ()
    return tuple(differences(before, after))


def _aligned(
    partners: Mapping[int, int], old: Sequence[_Side], new: Sequence[_Side]
) -> Iterator[_SidePair]:
    """Yield the sides that belong together, in the order of both cassettes."""
    with_partner = set(partners.values())
    kept = in_order(sorted((at_old, at_new) for at_new, at_old in partners.items()))
    next_old = 0
    next_new = 0
    for at_old, at_new in [*kept, (len(old), len(new))]:
        for index in range(next_old, at_old):
            if index not in with_partner:
                yield _SidePair(old[index], None)
        for index in range(next_new, at_new):
            partner = partners.get(index)
            if partner is None:
                yield _SidePair(None, new[index])
            else:
                yield _SidePair(old[partner], new[index], is_moved=True)
        if at_new < len(new):
            yield _SidePair(old[at_old], new[at_new])
        next_old = at_old + 1
        next_new = at_new + 1


def _without_ignored(stage: Stage, ignored: Collection[str]) -> Stage:
    changes = tuple(without_ignored(stage.changes, ignored))
    mark = stage.mark
    if mark == "~" and heaviest(changes) == "same":
        mark = "="
    return replace(stage, changes=changes, mark=mark)


def _stages_of(old: _Side | None, new: _Side | None) -> Iterator[Stage]:
    verdict: Verdict = "rounds-changed"
    if old is None or new is None:
        verdict = "shape-changed"
    old_questions = _question_texts(old)
    new_questions = _question_texts(new)
    for at_old, at_new in paired(old_questions, new_questions):
        before = _turn_at(old, at_old)
        after = _turn_at(new, at_new)
        position = at_new if at_old is None else at_old
        number = 1 + (position or 0)
        mark = _mark_of(at_old, at_new)
        asked, answered = _turn_changes(before, after, verdict)
        yield Stage("ask", number, mark, tuple(asked))
        if before.answers is not ABSENT or after.answers is not ABSENT:
            yield Stage("answer", number, mark, tuple(answered))
    last = _last_of(old)
    live = _last_of(new)
    if last is not None and live is not None:
        yield Stage("result", None, "~", tuple(response_changes(last, live)))
    elif last is not None:
        change = change_of("shape-changed", "", outcome_value(last), ABSENT)
        yield Stage("result", None, "-", (change,))
    elif live is not None:
        change = change_of("shape-changed", "", ABSENT, outcome_value(live))
        yield Stage("result", None, "+", (change,))


def _question_texts(side: _Side | None) -> list[str]:
    if side is None:
        return []
    return [canonical(pinned_question(turn.question)) for turn in side.turns]


def _turn_at(side: _Side | None, index: int | None) -> _Turn:
    if side is None or index is None:
        return _NO_TURN
    return side.turns[index]


def _last_of(side: _Side | None) -> RecordedExchange | None:
    """Return the last exchange of an interaction that has ended."""
    if side is None or side.interaction.is_open:
        return None
    return side.interaction.ending


def _mark_of(old: object, new: object) -> Mark:
    if old is None:
        return "+"
    if new is None:
        return "-"
    return "~"


def _turn_changes(old: _Turn, new: _Turn, verdict: Verdict) -> tuple[list[Change], list[Change]]:
    """Return the differences of the questions of two turns, and of their answers."""
    if _NO_TURN in (old, new):
        asked = [change_of(verdict, ASKS, old.question, new.question)]
        return asked, [change_of(verdict, _ANSWERS, old.answers, new.answers)]
    if old.exchange is not None and new.exchange is not None:
        asked = response_changes(old.exchange, new.exchange)
    else:
        asked = question_changes(old.question, new.question)
    received = with_recorded_keys(new.answers, renamed_keys(old.question, new.question))
    return asked, value_changes(old.answers, received, _ANSWERS)
