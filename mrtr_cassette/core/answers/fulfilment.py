"""Answering what a call is asked, round by round, from sources that are tried in order."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.answers.forms import (
    ELICITATIONS,
    RESULTS,
    Asked,
    elicited,
    is_required,
    problem_of,
    with_defaults,
)
from mrtr_cassette.core.answers.written import AnswersFile, GivenAnswers
from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.drive.conversation import Answered, AskedOtherwise, LiveAsk, NeedsAnswers
from mrtr_cassette.core.protocol.dialect import (
    DIALECTS,
    INPUT_RESPONSES,
    RESULT_TYPE,
    InputRequest,
    answers_in,
    input_request,
    write_answers,
)
from mrtr_cassette.core.protocol.jsonrpc import Message, Via
from mrtr_cassette.core.protocol.methods import GET_TASK, LIST_ROOTS
from mrtr_cassette.core.protocol.tasks import TaskState, key_names, polled_state
from mrtr_cassette.core.secrets.sealed import sha256_of
from mrtr_cassette.core.wire.jsonbytes import canonical, find_spans, parse, to_json
from mrtr_cassette.errors import NotJsonError

_ALL_KINDS: Final = ELICITATIONS | RESULTS
LARGEST_REPLY: Final = 16 * 1024 * 1024
"""Bytes of a reply; sampled images are large, and nothing else is."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Who answers: the call's own answers, an answers file, and perhaps a person."""

    given: GivenAnswers = field(default_factory=GivenAnswers)
    file: AnswersFile = field(default_factory=AnswersFile)
    has_person: bool = False

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of requests that a client with these sources declares.

        Without any it declares all, as a server never asks what is not declared, and what it asks
        is to be shown.
        """
        kinds = self.file.kinds() | self.given.kinds
        return _ALL_KINDS if self.has_person or not kinds else _ALL_KINDS & kinds


Step = bytes | tuple[str, InputRequest] | float
"""What is waited for: the endpoint's reply to a body, or why there is none; a person's answer to a
form, a URL or a value, with its key, or None; or some seconds."""


class Answer(NamedTuple):
    """An answer, and who gave it: `call`, `rule 3`, `rest`, `person` or `otherwise`."""

    value: Any
    answered_by: str


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A request for input has no answer, so nothing is answered; `detail` says why.

    `example` has names and values by which the call could answer it itself; `is_fault` says that a
    source answers it wrongly.
    """

    asked: Asked
    key: str
    detail: str
    example: Mapping[str, Any] = field(default_factory=dict)
    is_fault: bool = False


class _FaultError(Exception):
    """A source answers a request wrongly; with the key, and what is wrong."""


Fulfilment = Generator[Step, Any, Mapping[str, Answer] | Unanswered]
"""One ask on its way to its answers by key, from which optional ones may be missing."""


def fulfilment(asked: Asked, sources: Sources) -> Fulfilment:
    """Answer an ask from sources; whoever has to be waited for is yielded.

    The call's own answers come first, then rules, endpoint, person, and what happens otherwise. A
    source that answers wrongly is a fault; the next one is not asked in its place.
    """
    try:
        answers = yield from _answers(asked, sources)
    except _FaultError as fault:
        key, detail = fault.args
        return Unanswered(asked, key, detail, is_fault=True)
    given, action = sources.given, sources.file.otherwise
    for key, request in asked.requests.items():
        can_refuse = request.kind in ELICITATIONS and not request.takes_value
        if key not in answers and can_refuse and action != "fail":
            answers[key] = Answer(elicited(action), "otherwise")
        elif key not in answers and is_required(request):
            detail = "nothing answers it"
            number = asked.number_of(key)
            if spent := given.spent_name(key, request, asked.requests, number):
                detail += f": the answer {spent!r} is for one question, and was given before"
            example = given.example_for(key, request, asked.requests, number)
            return Unanswered(asked, key, detail, example)
    # As the server asked, not as the sources came.
    return {key: answers[key] for key in asked.requests if key in answers}


def _answers(asked: Asked, sources: Sources) -> Generator[Step, Any, dict[str, Answer]]:
    answers: dict[str, Answer] = {}
    given, requests = sources.given, asked.requests

    def take(key: str, answer: Any, source: str) -> None:
        answer = with_defaults(requests[key], answer)
        problem = problem_of(requests[key], answer)
        if problem is not None:
            raise _FaultError(key, f"the answer ({source}) doesn't fit: {problem}")
        answers[key] = Answer(answer, source)

    def missing() -> dict[str, InputRequest]:
        return {key: each for key, each in requests.items() if key not in answers}

    own = {}
    for number, (key, request) in enumerate(requests.items(), start=asked.first):
        own[key] = given.answer_to(key, request, requests, number)
    for key, request in requests.items():
        if own[key] is not None:
            take(key, own[key], "call")
        elif (rule := sources.file.rule_for(asked, key, request)) is not None:
            take(key, rule[1].answer(), f"rule {rule[0]}")
    if missing() and sources.file.rest is not None:
        part = replace(asked, requests=missing())
        found = _read_reply(part, (yield to_json(part.data()).encode()))
        if isinstance(found, str):
            raise _FaultError(next(iter(missing())), f"the endpoint gives no answer: {found}")
        for key, answer in found.items():
            take(key, answer, "rest")
    for key, request in missing().items() if sources.has_person else ():
        can_type = request.takes_value or request.kind in ELICITATIONS
        answer = (yield (key, request)) if can_type else None
        if answer is not None:
            take(key, answer, "person")
    return answers


def _read_reply(asked: Asked, reply: bytes | str) -> Mapping[str, Any] | str:
    """Return the answers of an endpoint's reply by key, or why it gives none."""
    if isinstance(reply, str):
        return reply
    try:
        tree = parse(reply)
    except NotJsonError:
        return "its reply is no JSON"
    answers = answers_in(tree) if isinstance(tree, dict) else None
    if answers is None or answers.input_responses is None:
        return f"its reply has no `{INPUT_RESPONSES}`"
    twice = _given_twice(reply, tree)
    if twice is not None:
        return f"it has {twice} twice"
    unknown = [key for key in answers.input_responses if key not in asked.requests]
    return f"it answers {unknown[0]!r}, which was not asked" if unknown else answers.input_responses


def _given_twice(reply: bytes, tree: Mapping[str, Any]) -> str | None:
    """Return what a reply has more than once, or None."""
    responses = tree[INPUT_RESPONSES]
    if isinstance(responses, list):
        keys = [repr(item.get("id")) for item in responses]
        return next((key for key in keys if keys.count(key) > 1), None)
    paths = [(INPUT_RESPONSES,), *((INPUT_RESPONSES, key) for key in responses)]
    for path, spans in find_spans(reply, paths).items():
        if len(spans) > 1:
            return f"`{INPUT_RESPONSES}`" if len(path) == 1 else repr(path[1])
    return None


# Rounds

# As in the TypeScript SDK's client (pull request 2313 of modelcontextprotocol/typescript-sdk).
MOST_ROUNDS: Final = 10
PACE_S: Final = 0.25
"""Seconds before a retry that has nothing to answer, so that no server is asked without a pause."""
_ASKING: Final = frozenset(dialect.result_type for dialect in DIALECTS if dialect.result_type)


class LeavesToSources:
    """The script of a call whose every question is for the sources."""

    def answer(self, ask: LiveAsk) -> Answered | NeedsAnswers | AskedOtherwise:
        """Leave it to them; a task that is only created asks nothing."""
        is_created = ask.task is not None and not ask.task_keys
        return Answered(None) if is_created else NeedsAnswers(ask)


@dataclass(frozen=True, slots=True)
class CallTurn:
    """One turn of a call, with requests, answers as on the wire and who answered, each by key."""

    number: int
    via: Via
    requests: Mapping[str, InputRequest]
    answers: Mapping[str, Any]
    answered_by: Mapping[str, str]
    state_sha256: str | None


@dataclass(slots=True)
class Rounds:
    """The rounds of one call; what nobody may answer, or more rounds than allowed, end it."""

    sources: Sources
    turns: list[CallTurn] = field(default_factory=list)
    unanswered: Unanswered | None = None
    overrun: bool = False

    def answer(self, ask: LiveAsk) -> Generator[Step, Any, Answered | None]:
        """Take an ask; return the answer to send, or None if the call ends here."""
        if ask.turn > MOST_ROUNDS:
            self.overrun = True
        if self.overrun or self.unanswered is not None:
            return None
        requests, names = _requests_of(ask)
        if not requests:
            yield PACE_S
        call = ask.call or ask.exchange.call
        arguments = None if call.message is None else call.message.params.get("arguments")
        first = 1 + sum(len(turn.requests) for turn in self.turns)
        asked = Asked(call.method, call.name, arguments, ask.turn, requests, first)
        outcome = yield from fulfilment(asked, self.sources)
        answers = {} if isinstance(outcome, Unanswered) else outcome
        values = {key: answer.value for key, answer in answers.items()}
        state = ask.request_state
        self.turns.append(
            CallTurn(
                ask.turn,
                "task" if ask.task is not None else "result" if ask.push is None else "push",
                requests,
                values,
                {key: answer.answered_by for key, answer in answers.items()},
                None if state is None else sha256_of(state),
            )
        )
        if isinstance(outcome, Unanswered):
            if ask.push is not None and ask.push.method == LIST_ROOTS and not outcome.is_fault:
                # It is about the client, whatever call is pending.
                return refused(ask.push)
            self.unanswered = outcome
            return None
        return _spelled(ask, values, names, has_requests=bool(requests))


def _spelled(
    ask: LiveAsk, values: Mapping[str, Any], names: Mapping[str, str], *, has_requests: bool
) -> Answered:
    """Return answers by key in the form in which the server takes them."""
    if ask.push is not None:
        return Answered(to_json(values[ask.key]).encode())
    if ask.task is not None:
        given = {key: values[name] for key, name in names.items() if name in values}
        return Answered(write_answers(DIALECTS[0].name, given) if given else None)
    live = ask.exchange.ask
    if live is None or not has_requests:
        return Answered(None)
    return Answered(write_answers(live.dialect, values))


def _requests_of(ask: LiveAsk) -> tuple[Mapping[str, InputRequest], Mapping[str, str]]:
    """Return the requests for input of an ask, by key, and for a task its own keys with these."""
    if ask.push is not None:
        return {ask.key: input_request(ask.push.method, ask.push.params)}, {}
    if ask.task is not None:
        new = {key: ask.task.input_requests[key] for key in ask.task_keys.values()}
        # A key may have the task's id, which is nobody's business.
        names = key_names(new, ask.task.id)
        return {name: new[key] for key, name in names.items()}, names
    return {} if ask.exchange.ask is None else ask.exchange.ask.input_requests, {}


def refused(push: Message) -> Answered:
    """Return the answer to what is pushed, is not about the call, and nobody answers."""
    error = {"code": -32601, "message": f"nobody answers {push.method}"}
    return Answered(canonical(error).encode(), "error")


def outcome_of(method: str, exchange: RecordedExchange) -> Mapping[str, Any]:
    """Return what a call came to, by its last response: its `result`, or its `error`."""
    state = _ended_task(method, exchange)
    return exchange.rpc_members if state is None else state.response


def _ended_task(method: str, exchange: RecordedExchange) -> TaskState | None:
    is_of_task = exchange.call.method == GET_TASK != method
    return polled_state(exchange.rpc_response) if is_of_task else None


def fault_of(method: str, exchange: RecordedExchange) -> str | None:
    """Return why the last response of a call is no outcome; None where it is one."""
    state = _ended_task(method, exchange)
    if state is not None and not state.response:
        why = state.tree.get("statusMessage")
        return f"its task ended as {state.status}" + (f": {why}" if why else "")
    members = exchange.rpc_members
    if not members:
        status = 0 if exchange.response is None else exchange.response.status
        return f"the response is no JSON-RPC response (HTTP {status})"
    result = members.get("result")
    if isinstance(result, dict) and result.get(RESULT_TYPE) in _ASKING:
        return "the server asks for input in a form that nobody can read"
    return None
