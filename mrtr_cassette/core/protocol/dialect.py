"""How servers spell "I need input", and clients the answer (MCP 2026-07-28, SEP-2322)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from mrtr_cassette.core.protocol.methods import ELICITATION, METHODS, method_of
from mrtr_cassette.core.wire.jsonbytes import (
    MemberPath,
    Span,
    canonical,
    find_spans,
    item_spans,
    parse,
    replace_members,
    spelled_at,
    splice,
    to_json,
)
from mrtr_cassette.core.wire.pointers import members_of
from mrtr_cassette.errors import NotJsonError

INPUT_REQUESTS: Final = "inputRequests"
INPUT_RESPONSES: Final = "inputResponses"
REQUEST_STATE: Final = "requestState"
RESULT_TYPE: Final = "resultType"

NO_PARAMS: Final[tuple[Any, ...]] = (None, [])
"""What some clients send where others leave the params out."""

ANSWERS_PATH: Final[MemberPath] = ("params", INPUT_RESPONSES)
ECHOED_STATE_PATH: Final[MemberPath] = ("params", REQUEST_STATE)
ISSUED_STATE_PATH: Final[MemberPath] = ("result", REQUEST_STATE)


KindName = Literal[
    "form", "url", "sampling", "roots", "string", "number", "integer", "boolean"
]
AnswerMember = Literal["action", "result", "value"]


class QuestionKind(NamedTuple):
    """A kind of request for input.

    Attributes:
        answered_by: the member of a rule in an answers file that answers it.
        noun: what it asks for, in words; empty where its name says it.
        capability: the path of the capability by which clients declare that they answer it.
        needed_members: what its result must have.
        example: an answer on the command line that fits it, if it has no fields.
    """

    name: str
    answered_by: AnswerMember = "result"
    noun: str = ""
    capability: MemberPath = ()
    needed_members: tuple[str, ...] = ()
    example: Any = "accept"


QUESTION_KINDS: Final = (
    QuestionKind("form", "action", "a form", (ELICITATION, "form")),
    QuestionKind("url", "action", "a visit to a URL", (ELICITATION, "url")),
    QuestionKind(
        "sampling",
        "result",
        "a model's text",
        ("sampling",),
        needed_members=("role", "content", "model"),
        example="text",
    ),
    QuestionKind(
        "roots",
        "result",
        "the client's roots",
        ("roots",),
        needed_members=("roots",),
        example={"roots": []},
    ),
    # Those of the array dialect
    QuestionKind("string", "value"),
    QuestionKind("number", "value"),
    QuestionKind("integer", "value"),
    QuestionKind("boolean", "value"),
)
"""The kinds that are known; a request of any other kind has its method in the place of one."""

_KINDS_BY_NAME = {kind.name: kind for kind in QUESTION_KINDS}


def question_kind(name: str) -> QuestionKind:
    """Return what is known of a kind."""
    return _KINDS_BY_NAME.get(name) or QuestionKind(name)


def _kinds_answered_by(member: AnswerMember) -> frozenset[str]:
    """Return the names of the kinds that a member of a rule answers."""
    return frozenset(kind.name for kind in QUESTION_KINDS if kind.answered_by == member)


ELICITATION_KINDS: Final = _kinds_answered_by("action")
"""The kinds of requests that an `ElicitResult` answers."""

RESULT_KINDS: Final = _kinds_answered_by("result")
"""The kinds that a result of their own answers."""

VALUE_KINDS: Final = _kinds_answered_by("value")
"""The kinds of the array dialect, which a value answers."""


@dataclass(frozen=True, slots=True)
class InputRequest:
    """One request for input.

    Attributes:
        takes_bare_value: an answer is a value, without an action beside it.
    """

    kind: str
    message: str
    definition: Mapping[str, Any] = field(
        default_factory=dict, repr=False, compare=False
    )
    takes_bare_value: bool = field(default=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class InputRequired:
    """What an input-required result asks for."""

    dialect: str
    input_requests: Mapping[str, InputRequest]
    request_state: str | None


@dataclass(frozen=True, slots=True)
class Answers:
    """What makes a request a retry."""

    input_responses: Mapping[str, Any] | None
    request_state: str | None
    shape: str = "map"


class Dialect(NamedTuple):
    """One spelling of an input-required result and of the retry that answers it."""

    name: str
    result_type: str | None
    needs_both: bool
    read_requests: Callable[[Any], dict[str, InputRequest] | None]
    write_responses: Callable[[Mapping[str, bytes]], bytes]


_METHOD_BY_CAPABILITY = {
    method.asks_for: name for name, method in METHODS.items() if method.asks_for
}
_METHOD_BY_KIND = {
    kind.name: _METHOD_BY_CAPABILITY[kind.capability[0]]
    for kind in QUESTION_KINDS
    if kind.capability
}


def input_request(method: str, params: Mapping[str, Any]) -> InputRequest:
    """Read a request for input: one of an ask, or one that a server pushes."""
    kind = method_of(method).asks_for or method
    if kind == ELICITATION:
        kind = "url" if params.get("mode") == "url" else "form"

    message = params.get("message")
    if not isinstance(message, str):
        message = ""

    return InputRequest(kind, message, params)


def spelled_requests(requests: Mapping[str, InputRequest]) -> Any:
    """Return requests for input as their server spelled them: a map, or in one dialect an array."""
    if any(request.takes_bare_value for request in requests.values()):
        return [request.definition for request in requests.values()]

    spelled_by_key = {}
    for key, request in requests.items():
        spelled_by_key[key] = {
            "method": _METHOD_BY_KIND.get(request.kind, request.kind),
            "params": request.definition,
        }

    return spelled_by_key


def read_request_map(value: Any) -> dict[str, InputRequest] | None:
    """Read `inputRequests` that are a map by key, or return None."""
    if not isinstance(value, dict):
        return None

    requests: dict[str, InputRequest] = {}
    for key, request in value.items():
        method = members_of(request).get("method")
        if not isinstance(method, str):
            return None

        requests[key] = input_request(method, members_of(request.get("params")))

    return requests


def _read_request_array(value: Any) -> dict[str, InputRequest] | None:
    """Read `inputRequests` that are an array of requests with ids, or return None."""
    if not isinstance(value, list):
        return None

    requests: dict[str, InputRequest] = {}
    for item in value:
        request = members_of(item)
        key = request.get("id")
        kind = request.get("kind")
        message = request.get("description", "")
        required = request.get("required", True)
        if not isinstance(key, str) or not isinstance(kind, str):
            return None
        if not isinstance(message, str) or not isinstance(required, bool):
            return None
        if key in requests:
            return None

        requests[key] = InputRequest(kind, message, request, takes_bare_value=True)

    return requests


def _written_answer_map(answers: Mapping[str, bytes]) -> bytes:
    """Return the `inputResponses` that are a map by key."""
    members = [to_json(key).encode() + b":" + answer for key, answer in answers.items()]
    return b"{%s}" % b",".join(members)


def _written_answer_array(answers: Mapping[str, bytes]) -> bytes:
    """Return the `inputResponses` that are an array, in which keys become ids."""
    answers_with_ids = []
    for key, answer in answers.items():
        id_member = {"id": to_json(key).encode()}
        answers_with_ids.append(replace_members(answer, (), id_member))

    return b"[%s]" % b",".join(answers_with_ids)


ARRAY_DIALECT: Final = "array"
"""The dialect in which requests for input have a kind of value, and answers are bare values."""

DIALECTS: Final = (
    Dialect(
        "2026-07-28", "input_required", False, read_request_map, _written_answer_map
    ),
    Dialect("draft", "incomplete", False, read_request_map, _written_answer_map),
    Dialect(ARRAY_DIALECT, None, True, _read_request_array, _written_answer_array),
)
_DIALECTS_BY_NAME = {dialect.name: dialect for dialect in DIALECTS}

_REQUESTS_MEMBER = INPUT_REQUESTS.encode()
_STATE_MEMBER = REQUEST_STATE.encode()


def may_ask(raw: bytes) -> bool:
    """Tell, quickly, whether a body may contain an input-required result."""
    return _REQUESTS_MEMBER in raw or _STATE_MEMBER in raw


def ask_in_result(result: Any) -> InputRequired | None:
    """Return what an input-required result asks for, or None for a final result."""
    if not isinstance(result, dict):
        return None

    for dialect in DIALECTS:
        if result.get(RESULT_TYPE) != dialect.result_type:
            continue

        ask = _ask_in_dialect(dialect, result)
        if ask is not None:
            return ask

    return None


def _ask_in_dialect(
    dialect: Dialect, result: Mapping[str, Any]
) -> InputRequired | None:
    """Return what a result asks for in a dialect, or None if it doesn't ask in that dialect."""
    state = result.get(REQUEST_STATE)
    spelled_requests = result.get(INPUT_REQUESTS)
    requests = (
        {} if spelled_requests is None else dialect.read_requests(spelled_requests)
    )
    if requests is None or not isinstance(state, str | None):
        return None
    if dialect.needs_both and not (requests and state):
        return None
    if not requests and state is None:
        return None

    return InputRequired(dialect.name, requests, state)


def answers_in(params: Mapping[str, Any]) -> Answers | None:
    """Return the answers that make these params a retry's, or None for a first request."""
    responses = params.get(INPUT_RESPONSES)
    state = params.get(REQUEST_STATE)
    if responses is None and state is None:
        return None

    if not isinstance(state, str | None):
        # No server issues such a state; the mark distinguishes `5` from `"5"`.
        state = f"\0{canonical(state)}"

    if responses is None or isinstance(responses, dict):
        return Answers(responses, state)

    answers_by_id = _answers_by_id(responses)
    if answers_by_id is None:
        return Answers({"": responses}, state, "other")

    return Answers(answers_by_id, state, "array")


def _answers_by_id(responses: Any) -> Mapping[str, Any] | None:
    """Return the answers of the array dialect by their ids; None for anything else."""
    if not isinstance(responses, list):
        return None

    answers_by_id = {}
    for response in responses:
        answer = members_of(response).copy()
        answer_id = answer.pop("id", None)
        if not isinstance(answer_id, str) or answer_id in answers_by_id:
            return None

        answers_by_id[answer_id] = answer

    return answers_by_id


def answers_text(request: bytes) -> bytes | None:
    """Return the `inputResponses` of a JSON-RPC request, all of them, as they were spelled."""
    return spelled_at(request, ANSWERS_PATH)


def with_answer_keys(request: bytes, names: Mapping[str, str | None]) -> bytes:
    """Return a retry that gives its answers under other keys, by the old ones; other bytes stay.

    An answer whose new key is None goes, but for the array dialect.
    """
    if not names:
        return request

    changed_members: dict[str, bytes | None] = {}
    for old_key, new_key in names.items():
        answer = spelled_at(request, (*ANSWERS_PATH, old_key))
        if answer is None:
            continue

        # A key that another answer gets stays.
        changed_members.setdefault(old_key, None)
        if new_key is not None:
            changed_members[new_key] = answer

    if changed_members:
        request = replace_members(request, ANSWERS_PATH, changed_members)

    replacements: list[tuple[Span, bytes]] = []
    for _, span in find_spans(request, [ANSWERS_PATH]):
        if request.startswith(b"[", span.start):
            replacements += _items_with_new_ids(request, span, names)

    return splice(request, replacements)


def _items_with_new_ids(
    request: bytes, array: Span, names: Mapping[str, str | None]
) -> Iterator[tuple[Span, bytes]]:
    """Yield the spans of an array's answers that get other ids, and their new texts."""
    for span in item_spans(request, array):
        answer = span.slice_of(request)
        old_id = members_of(parse(answer)).get("id", "")
        new_id = names.get(old_id)
        if new_id is not None:
            yield span, replace_members(answer, (), {"id": to_json(new_id).encode()})


def write_answers(dialect: str, answers: Mapping[str, Any]) -> bytes:
    """Return the `inputResponses` that give these answers.

    Raises:
        NotJsonError: an answer in the array dialect is no object.
    """
    spelled_answers = {}
    for key, answer in answers.items():
        spelled_answer = answer
        if not isinstance(answer, bytes):
            spelled_answer = to_json(answer).encode()

        spelled_answers[key] = spelled_answer

    return _DIALECTS_BY_NAME[dialect].write_responses(spelled_answers)


def write_retry(
    request: bytes, answers: bytes | None, request_state: str | None
) -> bytes:
    """Return a request as the retry that gives these answers; its other bytes stay.

    Raises:
        NotJsonError: `request` is no JSON object, or its params are none.
    """
    spelled_state = None if request_state is None else to_json(request_state).encode()
    return with_params(
        request, {INPUT_RESPONSES: answers, REQUEST_STATE: spelled_state}
    )


def with_params(request: bytes, members: Mapping[str, bytes | None]) -> bytes:
    """Give members of the params other values, or take them out; there may be no params yet.

    Raises:
        NotJsonError: `request` is no JSON object, or its params are something else.
    """
    spelled_params = spelled_at(request, ("params",))
    if spelled_params is not None and spelled_params.startswith(b"{"):
        return replace_members(request, ("params",), members)

    params = replace_members(b"{}", (), members)
    if params == b"{}":
        return request
    if spelled_params is not None and parse(spelled_params) not in NO_PARAMS:
        raise NotJsonError("params that are not an object")

    return replace_members(request, (), {"params": params})
