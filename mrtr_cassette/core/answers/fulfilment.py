"""Answering what a call is asked, round by round, from sources that are tried in order."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.answers.checking import (
    ELICITATIONS,
    RESULTS,
    Asked,
    asked_in,
    elicited,
    is_required,
    problem_of,
)
from mrtr_cassette.core.answers.written import AnswersFile, GivenAnswers
from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.drive.conversation import Answered, AskedOtherwise, LiveAsk, NeedsAnswers
from mrtr_cassette.core.protocol.dialect import (
    DIALECTS,
    INPUT_REQUESTS,
    INPUT_RESPONSES,
    REQUEST_STATE,
    RESULT_TYPE,
    InputRequest,
    answers_in,
    input_request,
    write_answers,
)
from mrtr_cassette.core.protocol.jsonrpc import Message
from mrtr_cassette.core.protocol.messages import Via
from mrtr_cassette.core.protocol.methods import GET_TASK
from mrtr_cassette.core.protocol.tasks import TaskState, key_names, polled_state
from mrtr_cassette.core.secrets.sealed import sha256_of
from mrtr_cassette.core.wire.jsonbytes import canonical, find_spans, parse
from mrtr_cassette.errors import NotJsonError

_ALL_KINDS: Final = ELICITATIONS | RESULTS
LARGEST_REPLY: Final = 16 * 1024 * 1024
"""Bytes of a reply; sampled images are large, and nothing else is."""
_SHOWN: Final = {"call": "the call", "rest": "the endpoint", "person": "the person"}


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
        kinds = self.file.kinds()
        if self.given:
            kinds |= self.given.kinds
        return _ALL_KINDS if self.has_person or not kinds else _ALL_KINDS & kinds


class AskEndpoint(NamedTuple):
    """The endpoint is asked with this body; the body of its reply is sent, or why there is none."""

    body: bytes


class AskPerson(NamedTuple):
    """A person is asked one request for input; the answer is sent, or None."""

    key: str
    request: InputRequest


class Answer(NamedTuple):
    """An answer, and who gave it: `call`, `rule 3`, `rest`, `person` or `otherwise`."""

    value: Any
    answered_by: str


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A request for input has no answer, so nothing is answered; `detail` says why.

    `names` are those under which the call could answer it itself.
    """

    asked: Asked
    key: str
    detail: str
    names: tuple[str, ...] = ()


class _FaultError(Exception):
    """A source answers a request wrongly."""

    def __init__(self, key: str, detail: str) -> None:
        super().__init__(detail)
        self.key = key


Fulfilment = Generator[AskEndpoint | AskPerson, Any, Mapping[str, Answer] | Unanswered]
"""One ask on its way to its answers by key, from which optional ones may be missing."""


def fulfilment(asked: Asked, sources: Sources) -> Fulfilment:
    """Answer an ask from sources; whoever has to be waited for is yielded.

    The call's own answers come first, then rules, endpoint, person, and what happens otherwise. A
    source that answers wrongly is a fault; the next one is not asked in its place.
    """
    try:
        answers = yield from _answers_of_sources(asked, sources)
    except _FaultError as fault:
        return Unanswered(asked, fault.key, str(fault))
    for key, request in asked.requests.items():
        if key in answers:
            continue
        action = sources.file.otherwise
        if action != "fail" and request.kind in ELICITATIONS and not request.takes_value:
            answers[key] = Answer(elicited(action), "otherwise")
        elif is_required(request):
            names = sources.given.names_for(key, request, asked.requests)
            detail = "nothing answers it"
            if spent := sources.given.spent_name(key, request, asked.requests):
                detail += f": the answer {spent!r} is for one question, and was given before"
            return Unanswered(asked, key, detail, tuple(names))
    # As the server asked, not as the sources came.
    return {key: answers[key] for key in asked.requests if key in answers}


def _answers_of_sources(
    asked: Asked, sources: Sources
) -> Generator[AskEndpoint | AskPerson, Any, dict[str, Answer]]:
    answers: dict[str, Answer] = {}

    def take(key: str, answer: Any, source: str) -> None:
        problem = problem_of(asked.requests[key], answer)
        if problem is not None:
            shown = _SHOWN.get(source, source)
            raise _FaultError(key, f"the answer of {shown} doesn't fit: {problem}")
        answers[key] = Answer(answer, source)

    def missing() -> dict[str, InputRequest]:
        return {key: each for key, each in asked.requests.items() if key not in answers}

    keys = asked.requests.keys()
    given = {key: sources.given.answer_to(key, asked.requests[key], keys) for key in keys}
    for key, request in asked.requests.items():
        if given[key] is not None:
            take(key, given[key], "call")
        elif (rule := sources.file.rule_for(asked, key, request)) is not None:
            take(key, rule[1].answer(), f"rule {rule[0]}")
    if missing() and sources.file.rest is not None:
        part = asked.of(missing())
        reply = yield AskEndpoint(canonical(part.data()).encode())
        found = reply if isinstance(reply, str) else read_reply(part, reply)
        if isinstance(found, str):
            raise _FaultError(next(iter(missing())), f"the endpoint gives no answer: {found}")
        for key, answer in found.items():
            take(key, answer, "rest")
    for key, request in missing().items() if sources.has_person else ():
        answer = yield AskPerson(key, request)
        if answer is not None:
            take(key, answer, "person")
    return answers


# Replies of an endpoint


def read_reply(asked: Asked, reply: bytes) -> Mapping[str, Any] | str:
    """Return the answers of a reply by key, or why it gives none: it is wholly right or nothing."""
    try:
        tree = parse(reply)
    except NotJsonError:
        return "its reply is no JSON"
    if not isinstance(tree, dict) or tree.keys() != {INPUT_RESPONSES}:
        return f"its reply is no object with `{INPUT_RESPONSES}` and nothing else"
    answers = answers_in(tree)
    wanted = "array" if any(each.takes_value for each in asked.requests.values()) else "map"
    if answers is None or answers.shape != wanted or answers.input_responses is None:
        form = "an array of objects with `id`" if wanted == "array" else "an object of answers"
        return f"its `{INPUT_RESPONSES}` is not {form}"
    responses = answers.input_responses
    unknown = [key for key in responses if key not in asked.requests]
    if unknown:
        return f"it answers {unknown[0]!r}, which was not asked"
    keys = [(INPUT_RESPONSES, key) for key in responses]
    found = find_spans(reply, [(INPUT_RESPONSES,), *keys])
    twice = [path[-1] for path, spans in found.items() if len(spans) > 1]
    if twice:
        return f"its reply has {twice[0]!r} twice"
    missing = [
        key
        for key, request in asked.requests.items()
        if key not in responses and is_required(request)
    ]
    return f"it does not answer {missing[0]!r}" if missing else responses


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


class Pause(NamedTuple):
    """Nothing is done for so many seconds."""

    seconds: float


@dataclass(slots=True)
class Rounds:
    """The rounds of one call; what nobody may answer, or more rounds than allowed, end it."""

    sources: Sources
    turns: list[CallTurn] = field(default_factory=list)
    unanswered: Unanswered | None = None
    overrun: bool = False

    def answer(
        self, ask: LiveAsk
    ) -> Generator[Pause | AskEndpoint | AskPerson, Any, Answered | None]:
        """Take an ask; return the answer to send, or None if the call ends here."""
        if ask.turn > MOST_ROUNDS:
            self.overrun = True
            return None
        requests = requests_of(ask)
        if not requests:
            yield Pause(PACE_S)
        asked = asked_in(ask.call or ask.exchange.call, ask.turn, requests)
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
            self.unanswered = outcome
            return None
        if ask.push is not None:
            return Answered(canonical(values[ask.key]).encode())
        if ask.task is not None:
            names = key_names(_new_requests(ask), ask.task.id)
            given = {key: values[name] for key, name in names.items() if name in values}
            return Answered(write_answers(DIALECTS[0].name, given) if given else None)
        live = ask.exchange.ask
        if live is None or not requests:
            return Answered(None)
        return Answered(write_answers(live.dialect, values))


def requests_of(ask: LiveAsk) -> Mapping[str, InputRequest]:
    """Return the requests for input of an ask, by key."""
    if ask.push is not None:
        return {ask.key: input_request(ask.push.method, ask.push.params)}
    if ask.task is not None:
        # A key may have the task's id, which is nobody's business.
        new = _new_requests(ask)
        return {name: new[key] for key, name in key_names(new, ask.task.id).items()}
    return {} if ask.exchange.ask is None else ask.exchange.ask.input_requests


def _new_requests(ask: LiveAsk) -> Mapping[str, InputRequest]:
    """Return what a task asks for the first time, by the server's keys."""
    requests = {} if ask.task is None else ask.task.input_requests
    return {key: requests[key] for key in ask.task_keys.values()}


def refused(push: Message) -> Answered:
    """Return the answer to what is pushed outside of the call and nobody answers."""
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
        has_any = result.keys() & {INPUT_REQUESTS, REQUEST_STATE}
        what = "in a form that nobody can read" if has_any else "with neither requests nor state"
        return f"the server asks for input {what}"
    return None
