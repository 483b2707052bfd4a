"""What differs between two responses, conversations and cassettes."""
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
_NOT_COMPARED: Final = VALIDATING_HEADERS | {
    "content-encoding",
    "server",
    "x-powered-by",
    "x-accel-buffering",
}
"""What a server makes up anew, what depends on the client, and what says who runs the server."""
_TASK: Final = "#task"
"""Beside a result: how the task ended that has it."""
_ENDINGS: Final = frozenset({"/#error", "/#error/code", "/isError", f"/{_TASK}/status"})
"""Where it stands that a call failed."""
_QUESTION_IDS: Final = re.compile(rb'"elicitationId"\s*:\s*"([^"\\]{16,})"')


def question_ids(raw: bytes) -> list[bytes]:
    """Return the ids that a server has made up for questions; one that reads as words counts."""
    found = _QUESTION_IDS.findall(raw)
    return [identity for identity in found if not reads_as_words(identity.decode("latin-1"))]


# Two responses


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
    one, other = ((each.status, each.end, each.headers, each.body) for each in (old, new))
    if recorded.request.body == live.request.body and one == other:
        return []
    if recorded.ask is None and live.ask is not None:
        return [round_change(ABSENT, asked_question(live))]
    if recorded.ask is not None and live.ask is None:
        return [unasked_change(recorded, live)]
    before, after = _read(recorded, old, states), _read(live, new, states)
    left_out = {"#end"} if End.OPEN in (old.end, new.end) else set()
    left_out |= {"#status", "#headers"} if old.is_lines or new.is_lines else set()
    if _ending_of(before) != _ending_of(after):
        # Of what else differs between a result and an error, nothing is to be told.
        told = {"#error", "#status", "#headers", "#end", "#messages", "#result", _TASK}
        told |= set() if "#error" in {*before, *after} else {RESULT_TYPE}
        left_out |= {*before, *after} - told
    if old.is_lines or new.is_lines:
        drop_strays(recorded.call.method, before["#messages"], after["#messages"])
    # Of responses without end one may have fewer messages.
    common = min(len(before["#messages"]), len(after["#messages"])) if "#end" in left_out else None
    for tree in (before, after):
        tree["#messages"] = tree["#messages"][:common]
        for name in left_out & tree.keys():
            del tree[name]
    judged = _judged_changes(recorded, before, after)
    if is_failure(recorded) or not is_failure(live):
        return judged
    return list(_refusals(judged, recorded, live))


def _judged_changes(
    recorded: RecordedExchange, before: dict[str, Any], after: dict[str, Any]
) -> list[Change]:
    """Return where two responses differ as they were read, each place with its verdict."""
    names: dict[str, str] = {}
    if recorded.ask is not None:
        names = renamed_keys(before[INPUT_REQUESTS], after[INPUT_REQUESTS])
        after[INPUT_REQUESTS] = with_recorded_keys(after[INPUT_REQUESTS], names)
    is_surface = method_of(recorded.call.method).describes_server
    changes = value_changes(before, after, "", by_name if is_surface else by_place)
    return _key_changes(names) + [_judged(change, is_surface=is_surface) for change in changes]


def _refusals(
    changes: Iterable[Change], recorded: RecordedExchange, live: RecordedExchange
) -> Iterator[Change]:
    """Yield the changes that count where a call fails now, with the whole result and the error.

    Of what else differs between a result and an error, nothing is to be told.
    """
    for change in changes:
        if change.verdict == "error-changed" and change.pointer == "/#status":
            yield change._replace(verdict="refused")
        elif change.verdict == "error-changed":
            outcomes = outcome_value(recorded), outcome_value(live)
            yield change_of("refused", change.pointer, *outcomes)
        elif change.pointer.startswith("/#"):
            yield change


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


def unasked_change(recorded: RecordedExchange, live: RecordedExchange) -> Change:
    """Return the change that a response asks nothing; where it is an error, the question met it."""
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
    """Return what a response asks, as `question_changes` takes it; `ABSENT` where it doesn't."""
    if exchange.ask is None:
        return ABSENT
    return comparable_tree(exchange.ask.message.raw)["result"].get(INPUT_REQUESTS, {})


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
    return pinned(question or {}, _VOLATILE_OF_ASKS)


def outcome_value(exchange: RecordedExchange) -> Any:
    """Return what a last response came to: its result or error, or what it says instead."""
    if exchange.response is None:
        return None
    said = _read(exchange, exchange.response, NO_STATES)
    if "#error" in said:
        return {"error": said["#error"]}
    result = {name: said[name] for name in said if not name.startswith("#")}
    return result or said.get("#body") or said["#messages"] or said["#status"]


def said_value(exchange: RecordedExchange) -> Any:
    """Return all that a response says: what it asks, its result or its error."""
    if exchange.ask is None:
        return outcome_value(exchange)
    return {INPUT_REQUESTS: asked_question(exchange)}


def comparable_tree(raw: bytes, states: Mapping[str, str] = NO_STATES) -> Any:
    """Return a JSON text as a value in which nothing differs that stands for a secret."""
    return parse_tolerantly(_comparable(raw, states))


def comparable_text(text: str, states: Mapping[str, str] = NO_STATES) -> str:
    """Return a text in which nothing differs that stands for a secret."""
    raw = text.encode("utf-8", "surrogatepass")
    return _comparable(raw, states).decode("utf-8", "surrogatepass")


def _comparable(raw: bytes, states: Mapping[str, str]) -> bytes:
    for identity in question_ids(raw):
        raw = raw.replace(identity, b"mrtr-elicitation")
    return without_numbers(_SURROGATE.sub(rb"\1\2\3\4\5", reveal_in_json(raw, states)))


def _read(
    exchange: RecordedExchange, response: Response, states: Mapping[str, str]
) -> dict[str, Any]:
    request, messages = exchange.call.message, messages_in(response)
    located = _own(messages, request)
    own = None if located is None else located.message
    token = None if request is None else request.progress_token
    said: dict[str, Any] = {
        "#status": response.status,
        "#headers": _headers(response),
        "#end": response.end.value,
        "#messages": [
            _message(comparable_tree(each.message.raw, states), token, each.message)
            for each in messages
            if each is not located and each.message.kind is not Kind.REQUEST
        ],
    }
    tree = {} if own is None else comparable_tree(own.raw, states)
    drop_null_outcome(tree)
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
        return {**said, "#error": tree["error"]}
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


def _own(messages: Sequence[Located], request: Message | None) -> Located | None:
    """Return the response to a request; a server that could not read it responds without its id."""
    if request is None or request.kind is not Kind.REQUEST:
        return None
    responses = [each for each in messages if each.message.kind is Kind.RESPONSE]
    ids = (request.same_id, None)
    found = (each for identity in ids for each in responses if each.message.same_id == identity)
    return next(found, None)


def _headers(response: Response) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in kept_response_headers(response.headers):
        key = name.lower()
        if key not in _NOT_COMPARED:
            same = "" if key in _VALUE_IS_VOLATILE else value
            headers[key] = f"{headers[key]}, {same}" if key in headers else same
    return headers


def _message(tree: dict[str, Any], token: str | None, message: Message) -> dict[str, Any]:
    kept = {key: value for key, value in tree.items() if key not in ("id", "jsonrpc")}
    params = kept["params"] = pinned(kept, _VOLATILE_OF_MESSAGES).get("params")
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
    elif (is_surface and not pointer.startswith("/#")) or not SERVER_INFO.isdisjoint(steps):
        verdict, is_information = "surface-changed", is_offer(change, steps)
    return change._replace(verdict=verdict, is_information=is_information)


# Two conversations, and two cassettes

Mark = Literal["=", "~", "-", "+"]
"""Both have it and it is the same, both have it and it differs, only the first, only the second."""
StageKind = Literal["ask", "answer", "result"]
IgnoredFor = Callable[[Call], Collection[str]]
"""Returns the JSON Pointers that don't count in a call: in what it says, and in what it gets."""

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


@dataclass(frozen=True, slots=True)
class InteractionComparison:
    """One interaction of two cassettes, or of one of them.

    Attributes:
        request: where the arguments of a call that only the second has differ from those of one by
            its name that only the first has.
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
        if self.recorded is None or self.received is None:
            return "+" if self.recorded is None else "-"
        return "=" if self.verdict == "same" else "~"

    @property
    def verdict(self) -> Verdict:
        """The heaviest of its changes."""
        verdict = heaviest(change for stage in self.stages for change in stage.changes)
        is_whole = self.recorded is not None and self.received is not None
        return verdict if is_whole or verdict != "same" else "shape-changed"


@dataclass(frozen=True, slots=True)
class CassetteComparison:
    """Two cassettes, compared."""

    recorded: str
    received: str
    interactions: tuple[InteractionComparison, ...]

    @property
    def changes(self) -> list[Change]:
        """All changes, information included."""
        stages = (stage for each in self.interactions for stage in each.stages)
        return [change for stage in stages for change in stage.changes]

    @property
    def verdict(self) -> Verdict:
        """The heaviest of all changes."""
        return heaviest(self.changes)

    @property
    def is_same(self) -> bool:
        """Whether nothing that counts differs; the order of interactions doesn't count."""
        return all(each.mark == "=" for each in self.interactions)

    @property
    def counts(self) -> Counter[Mark]:
        """How many interactions have each mark."""
        return Counter(each.mark for each in self.interactions)


def compared(
    recorded: Cassette, received: Cassette, ignored_for: IgnoredFor = ignores_nothing
) -> CassetteComparison:
    """Compare two cassettes; at the ignored pointers, and below them, nothing counts.

    Interactions belong together by call and occurrence, those with the same answers first.
    """
    old, new = (list(_sides_of(cassette, ignored_for)) for cassette in (recorded, received))
    interactions = []
    partners = _partners(old, new)
    namesakes = _namesakes(partners, old, new)
    for at_old, at_new, is_moved in _aligned(partners, len(old), len(new)):
        before = None if at_old is None else old[at_old]
        after = None if at_new is None else new[at_new]
        sides = [side for side in (before, after) if side is not None]
        if len(sides) == 1 and only_logs(sides[0].interaction.exchanges[0]):
            continue
        call, ignored = next((it.call, it.pointers) for it in (after, before) if it is not None)
        one, other = (None if it is None else it.interaction.number for it in (before, after))
        stages = tuple(_stages_of(before, after, ignored))
        namesake = None if at_new is None else namesakes.get(at_new)
        request = () if namesake is None else _request_differences(namesake, new[at_new or 0])
        interactions.append(InteractionComparison(one, other, str(call), is_moved, stages, request))
    return CassetteComparison(recorded.path, received.path, tuple(interactions))


def held_to(
    recorded: Cassette, repeated: Cassette, ignored_for: IgnoredFor, *, is_part: bool
) -> CassetteComparison:
    """Compare a cassette with what happened when its calls, or a part of them, were made again.

    A call that was made once more than recorded may be the same as any recorded one, and a call of
    a part as any that is not the same as another: which of several it was can't be told.
    """
    comparison = compared(recorded, repeated, ignored_for)
    same = {each.recorded for each in comparison.interactions if each.mark == "="}

    def nearest(each: InteractionComparison) -> InteractionComparison:
        if each.received is None or each.mark == "=" or (each.mark == "~" and not is_part):
            return each
        made = replace(repeated, interactions=(repeated.interactions[each.received - 1],))
        for other in recorded.interactions:
            if each.mark == "+" or other.number not in same:
                pair = compared(replace(recorded, interactions=(other,)), made, ignored_for)
                if pair.is_same:
                    same.add(other.number)
                    return pair.interactions[0]
        return each

    found = [nearest(each) for each in comparison.interactions]
    counting = tuple(each for each in found if each.mark != "-" or not is_part)
    return replace(comparison, interactions=counting)


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


def _sides_of(cassette: Cassette, ignored_for: IgnoredFor) -> Iterator[_Side]:
    pages: dict[tuple[str, str, str | None], int] = {}
    for interaction in without_pongs(in_conversation_order(cassette.interactions)):
        call, issued = interaction.exchanges[0].call, interaction.exchanges[-1].next_cursor
        page = pages.get((call.endpoint, call.method, call.cursor), 0)
        if issued is not None:
            pages[call.endpoint, call.method, issued] = page + 1
        pointers = ignored_for(call)
        ignored = tuple(map(pointer_path, pointers))
        turns = list(_turns_of(interaction, ignored))
        key = call.key((*ignored, ("cursor",)) if page else ignored)
        given = [_given(interaction.exchanges[0], ignored), *(turn.answers for turn in turns)]
        answers = tuple("" if each is ABSENT else canonical(each) for each in given)
        # The path of a server may be another one; other HTTP traffic is nothing but its path.
        endpoint = "" if key.method else comparable_text(key.endpoint)
        texts = comparable_text(key.name), comparable_text(key.arguments)
        same_call = (endpoint, key.method, *texts, page)
        keys = (key.endpoint, same_call, answers), (same_call, answers), same_call
        yield _Side(interaction, turns, key, keys, pointers)


def _turns_of(interaction: RecordedInteraction, ignored: Collection[MemberPath]) -> Iterator[_Turn]:
    for turn in interaction.turns:
        if isinstance(turn, PushedTurn):
            messages = {each.key: each.message for each in turn.asked}
            pings = {key for key, message in messages.items() if message.method == PING}
            asked = {key: pushed_value(messages[key].raw) for key in messages.keys() - pings}
            counting = [each for each in turn.answers if each.key not in pings]
            posted = {each.key: _posted(each.exchange, ignored) for each in counting}
            if asked:
                yield _Turn(asked, posted or ABSENT, None)
        elif isinstance(turn, ResultTurn):
            answers = ABSENT if turn.retry is None else _given(turn.retry, ignored)
            yield _Turn(asked_question(turn.exchange), answers, turn.exchange)
        else:
            task = interaction.task_id
            names = key_names(turn.requests, task)
            given = turn.given and _without_null(comparable_by_key(turn.given, names))
            yield _Turn(task_question(turn.requests, task), given or ABSENT, None)


def _given(retry: RecordedExchange, ignored: Collection[MemberPath]) -> Any:
    if retry.call.answers is None:
        return ABSENT
    text = answers_text(retry.request.body)
    answers = {} if text is None else _without_null(comparable_tree(text))
    return without_paths({INPUT_RESPONSES: answers}, ignored).get(INPUT_RESPONSES, {})


def _posted(exchange: RecordedExchange, ignored: Collection[MemberPath]) -> Any:
    message = exchange.call.message
    tree = {} if message is None else comparable_tree(message.raw)
    drop_null_outcome(tree)
    if "result" in tree:
        return without_paths(_without_null(tree["result"]), ignored)
    return _without_null({"error": tree.get("error")})


def _without_null(value: Any) -> Any:
    return parse(canonical(value, without_null=True).encode())


def _partners(old: Sequence[_Side], new: Sequence[_Side]) -> dict[int, int]:
    """Return the index of the old interaction for that of a new one."""
    partners: dict[int, int] = {}
    for level in range(3):
        taken = set(partners.values())
        old_left = [index for index in range(len(old)) if index not in taken]
        new_left = [index for index in range(len(new)) if index not in partners]
        found = matches(
            [old[index].keys[level] for index in old_left],
            [new[index].keys[level] for index in new_left],
        )
        partners |= {new_left[at_new]: old_left[at_old] for at_old, at_new in found}
    return partners


def _namesakes(
    partners: Mapping[int, int], old: Sequence[_Side], new: Sequence[_Side]
) -> dict[int, _Side]:
    """Return, for new interactions without a partner, old ones without one of the same name."""
    paired_old = set(partners.values())
    unpaired: dict[tuple[str, str], list[_Side]] = defaultdict(list)
    for index, side in enumerate(old):
        if index not in paired_old:
            unpaired[side.call.method, side.call.name].append(side)
    found: dict[int, _Side] = {}
    for index, side in enumerate(new):
        namesakes = unpaired.get((side.call.method, side.call.name))
        if index not in partners and namesakes:
            found[index] = namesakes.pop(0)
    return found


def _request_differences(old: _Side, new: _Side) -> tuple[Difference, ...]:
    ignored = tuple(map(pointer_path, new.pointers))
    before, after = (
        without_paths(side.interaction.exchanges[0].call.arguments, ignored) for side in (old, new)
    )
    is_json = not isinstance(before, bytes) and not isinstance(after, bytes)
    return tuple(differences(before, after)) if is_json else ()


def _aligned(
    partners: Mapping[int, int], old_count: int, new_count: int
) -> Iterator[tuple[int | None, int | None, bool]]:
    """Yield the indices that belong together, in the order of both; and whether they moved."""
    with_partner = set(partners.values())
    kept = in_order(sorted((old, new) for new, old in partners.items()))
    at_old = at_new = 0
    for old, new in [*kept, (old_count, new_count)]:
        yield from ((at, None, False) for at in range(at_old, old) if at not in with_partner)
        yield from ((partners.get(at), at, at in partners) for at in range(at_new, new))
        if new < new_count:
            yield old, new, False
        at_old, at_new = old + 1, new + 1


def _stages_of(old: _Side | None, new: _Side | None, ignored: Collection[str]) -> Iterator[Stage]:
    def stage(kind: StageKind, turn: int | None, changes: Sequence[Change], mark: Mark) -> Stage:
        counting = tuple(without_ignored(changes, ignored))
        if mark == "~" and heaviest(counting) == "same":
            mark = "="
        return Stage(kind, turn, mark, counting)

    turns = [[] if side is None else side.turns for side in (old, new)]
    questions = [[canonical(pinned_question(turn.question)) for turn in its] for its in turns]
    verdict: Verdict = "shape-changed" if old is None or new is None else "rounds-changed"
    for at_old, at_new in paired(*questions):
        number = ((at_new if at_old is None else at_old) or 0) + 1
        before = _NO_TURN if at_old is None else turns[0][at_old]
        after = _NO_TURN if at_new is None else turns[1][at_new]
        mark: Mark = "+" if at_old is None else "-" if at_new is None else "~"
        asked, answered = _turn_changes(before, after, verdict)
        yield stage("ask", number, asked, mark)
        if (before.answers, after.answers) != (ABSENT, ABSENT):
            yield stage("answer", number, answered, mark)
    first, last = (
        None if side is None or side.interaction.is_open else side.interaction.ending
        for side in (old, new)
    )
    if first is not None and last is not None:
        yield stage("result", None, response_changes(first, last), "~")
    elif first is not None or last is not None:
        outcomes = [ABSENT if each is None else outcome_value(each) for each in (first, last)]
        change = change_of("shape-changed", "", *outcomes)
        yield stage("result", None, [change], "+" if first is None else "-")


def _turn_changes(old: _Turn, new: _Turn, verdict: Verdict) -> tuple[list[Change], list[Change]]:
    """Return where the questions of two turns differ, and where their answers do."""
    if _NO_TURN in (old, new):
        asked = [change_of(verdict, ASKS, old.question, new.question)]
        return asked, [change_of(verdict, _ANSWERS, old.answers, new.answers)]
    if old.exchange is not None and new.exchange is not None:
        asked = response_changes(old.exchange, new.exchange)
    else:
        asked = question_changes(old.question, new.question)
    received = with_recorded_keys(new.answers, renamed_keys(old.question, new.question))
    return asked, value_changes(old.answers, received, _ANSWERS)
