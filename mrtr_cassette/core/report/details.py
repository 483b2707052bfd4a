"""What is on a cassette, call by call, as values; `text`, `page` and programs show them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from mrtr_cassette.core.cassette.model import VERSION
from mrtr_cassette.core.cassette.recorded import (
    Branch,
    Cassette,
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
    TaskStep,
    TaskTurn,
    task_turns,
)
from mrtr_cassette.core.cassette.sessions import listens, opened_session
from mrtr_cassette.core.protocol.calls import Call, session_of
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message
from mrtr_cassette.core.protocol.messages import Via, last_response, messages_in
from mrtr_cassette.core.protocol.methods import CANCEL_TASK, GET_TASK, UPDATE_TASK
from mrtr_cassette.core.protocol.tasks import TaskState, key_names, polled_state
from mrtr_cassette.core.secrets.sealed import PLACEHOLDER
from mrtr_cassette.core.wire.http import ANSWERED_BY_HEADER, End, Response
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.errors import counted, printable, shorten

_CLIENT_INFO = "io.modelcontextprotocol/clientInfo"


@dataclass(frozen=True, slots=True)
class Turn:
    """One elicitation turn of an interaction: what the server asked, what the client answered.

    Attributes:
        answers_json: canonical JSON text of each answer, by key; None where the client never
            answered.
        dialect: in which spelling the server asked; None where it pushed requests.
        via: `result` where the response to the call asked, `push` where the server sent requests
            of its own, whose keys are ours, such as `elicitation-1`, `task` where the state of its
            task asked; a key that has the task's id is called `task:1` and so on.
        answered_by: who answered in the client's place, such as `rule 1`; else None.
        answered_after_ms: how long the server waited for the answers; None where none came.
    """

    input_requests: Mapping[str, InputRequest]
    answers_json: Mapping[str, str] | None
    dialect: str | None
    has_request_state: bool
    via: Via = "result"
    answered_by: str | None = None
    answered_after_ms: float | None = None

    @property
    def asked(self) -> Mapping[str, str]:
        """What the server asked, as the message shown to the user, by key."""
        return {key: request.message for key, request in self.input_requests.items()}

    @property
    def answered(self) -> Mapping[str, Any] | None:
        """What the client answered, as JSON, by key; None where it never did.

        Where it posted an error, the answer is an object with nothing but `error`.
        """
        if self.answers_json is None:
            return None
        return {key: json.loads(text) for key, text in self.answers_json.items()}


class FinalResponse(NamedTuple):
    """The last response of a call: its result or error as parsed JSON, or the text of its body."""

    kind: Literal["result", "failed result", "error", "text", "nothing"]
    value: Any


class SentNotification(NamedTuple):
    """A notification on a call's own stream, and when it came after the recording began."""

    at_ms: float
    method: str
    params: Mapping[str, Any]


class Stretch(NamedTuple):
    """Time in which a call waited for the server, or for whoever answers the server's questions."""

    whose: Literal["server", "person"]
    start_ms: float
    end_ms: float


class TaskStage(NamedTuple):
    """A state of a call's task, or what the client did to it: `answered` or `cancel`."""

    status: str
    message: str = ""
    polls: int = 1


@dataclass(frozen=True, slots=True)
class Interaction:
    """One logical call on a cassette.

    Attributes:
        arguments_json: canonical JSON text of its arguments; None where it had none.
        ended: how it ended, such as `HTTP 200, result`.
        is_orphan: its first request continues a state that no recorded ask issued.
        size_bytes: bytes of its final response.
        duration_ms: how long its own exchanges took, without the time between them; of a task, how
            long it was at work.
        method: its JSON-RPC method, or the HTTP method and path.
        name: of the tool or prompt, the URI of the resource, or an empty string.
        parameters: its arguments, or the other params of a method that names nothing, or None.
        notifications: what the server sent meanwhile on the call's own streams.
        stretches: its own time, in order.
        listens: it is a stream that tells what other calls caused.
        task: what became of the task that the server made of it, in order.
    """

    number: int
    call: str
    arguments_json: str | None
    turns: tuple[Turn, ...]
    ended: str
    branch: Branch | None
    is_orphan: bool
    size_bytes: int
    duration_ms: int
    method: str
    name: str
    parameters: Any
    client: str
    session: str
    final: FinalResponse
    notifications: tuple[SentNotification, ...]
    stretches: tuple[Stretch, ...]
    listens: bool
    task: tuple[TaskStage, ...] = ()

    @property
    def arguments(self) -> Any:
        """Its arguments as JSON; None where it had none."""
        return None if self.arguments_json is None else json.loads(self.arguments_json)


@dataclass(frozen=True, slots=True)
class CassetteDetails:
    """A cassette; its upstream has no credentials, and texts are as they were recorded."""

    cassette: str
    version: int
    upstream: str
    transport: str
    request_state: str
    recorded_at: str
    tool: str
    redacts: bool
    seals_answers: bool
    interactions: tuple[Interaction, ...]


def arguments_json(call: Call) -> str | None:
    """Return the canonical text of a call's arguments, or None where it has none."""
    params = call.arguments
    arguments = params.get("arguments") if isinstance(params, dict) else None
    return None if arguments is None or not call.is_rpc else canonical(arguments)


def details_of(cassette: Cassette) -> CassetteDetails:
    """Return what is on a cassette."""
    streamed = _streamed_responses(cassette.interactions)
    return CassetteDetails(
        cassette.path,
        VERSION,
        cassette.upstream,
        cassette.transport,
        cassette.request_state,
        cassette.recorded_at,
        cassette.tool,
        any(map(_is_redacted, cassette.interactions)),
        cassette.seals_answers,
        tuple(_interaction(each, streamed) for each in cassette.interactions),
    )


def _interaction(recorded: RecordedInteraction, streamed: _Streamed) -> Interaction:
    first = recorded.exchanges[0]
    call = first.call
    chain = recorded.exchanges[recorded.shared :]
    stretches = tuple(_stretches(recorded))
    duration_ms = sum(round(each.ended_ms - each.started_ms) for each in chain)
    if recorded.steps:
        waits = (each for each in stretches if each.whose == "server")
        duration_ms = sum(round(each.end_ms - each.start_ms) for each in waits)
        ended, final, size = _ending_of_task(recorded)
    else:
        ended, final, size = _ending(recorded.exchanges[-1], streamed)
    return Interaction(
        number=recorded.number,
        call=call.title,
        arguments_json=arguments_json(call),
        turns=tuple(_turns(recorded)),
        ended=ended,
        branch=recorded.branch,
        is_orphan=recorded.is_orphan,
        size_bytes=size,
        duration_ms=duration_ms,
        method=call.method or call.title,
        name=call.name,
        parameters=_parameters(call),
        client=_client(call),
        session=session_of(first.request) or opened_session(first.response),
        final=final,
        notifications=tuple(each for exchange in chain for each in _notifications(exchange)),
        stretches=stretches,
        listens=listens(call, first.response),
        task=tuple(map(_stage, recorded.steps)),
    )


def _stage(step: TaskStep) -> TaskStage:
    if step.state is not None:
        return stage_of(step.state, step.polls)
    did = {UPDATE_TASK: "answered", CANCEL_TASK: "cancel"}
    return TaskStage(did.get(step.exchange.call.method, "error"), polls=step.polls)


def stage_of(state: TaskState, polls: int = 1) -> TaskStage:
    """Return a state of a task, which so many polls got, as it is told."""
    message = state.tree.get("statusMessage")
    return TaskStage(state.status, message if isinstance(message, str) else "", polls)


def _is_redacted(recorded: RecordedInteraction) -> bool:
    parts = []
    for request, response in ((each.request, each.response) for each in recorded.own):
        headers = (*request.headers, *(() if response is None else response.headers))
        body = request.body + (b"" if response is None else response.body)
        parts += [request.target, *(value for _, value in headers), body.decode(errors="replace")]
    return PLACEHOLDER.search("\n".join(parts)) is not None


def _parameters(call: Call) -> Any:
    message = call.message
    if message is None or not call.is_rpc:
        return None
    parameters: Any = {key: value for key, value in message.params.items() if key != "_meta"}
    if call.name:
        parameters = parameters.get("arguments")
    return parameters or None


def _client(call: Call) -> str:
    message = call.message
    if message is None:
        return ""
    info = message.meta.get(_CLIENT_INFO) or message.params.get("clientInfo")
    if not isinstance(info, dict):
        return ""
    facts = (info.get("title") or info.get("name"), info.get("version"))
    return " ".join(fact for fact in facts if isinstance(fact, str))


def _notifications(exchange: RecordedExchange) -> Iterator[SentNotification]:
    response = exchange.response
    for located in () if response is None else messages_in(response):
        message = located.message
        if message.kind is Kind.NOTIFICATION and response is not None:
            at_ms = response.pieces[located.piece].at_ms
            yield SentNotification(at_ms, message.method, message.params)


# Turns and time


def _turns(recorded: RecordedInteraction) -> Iterator[Turn]:
    for turn in recorded.turns:
        if isinstance(turn, PushedTurn):
            yield _pushed_turn(turn)
            continue
        if isinstance(turn, TaskTurn):
            yield _task_turn(turn, recorded)
            continue
        exchange, ask, retry = turn
        yield Turn(
            _printable_requests(ask.input_requests),
            None if turn.given is None else _printable_answers(turn.given),
            ask.dialect,
            ask.request_state is not None,
            "result",
            None if retry is None else retry.request.header(ANSWERED_BY_HEADER) or None,
            None if retry is None else max(0.0, retry.started_ms - exchange.ended_ms),
        )


def _pushed_turn(turn: PushedTurn) -> Turn:
    answers, waiting = turn.given, _waiting(turn)
    return Turn(
        _printable_requests(turn.requests),
        None if answers is None else _printable_answers(answers),
        None,
        has_request_state=False,
        via="push",
        answered_after_ms=None if waiting is None else waiting.end_ms - waiting.start_ms,
    )


def _task_turn(turn: TaskTurn, recorded: RecordedInteraction) -> Turn:
    names = key_names(turn.requests, recorded.task_id)
    requests = {names[key]: request for key, request in turn.requests.items()}
    given = {names[key]: answer for key, answer in (turn.given or {}).items()}
    updates = [recorded.steps[at].exchange for at in turn.answered]
    sources = (each.request.header(ANSWERED_BY_HEADER) for each in updates)
    asked_ms = recorded.steps[turn.asked].exchange.ended_ms
    return Turn(
        _printable_requests(requests),
        None if turn.given is None else _printable_answers(given),
        None,
        has_request_state=False,
        via="task",
        answered_by=next(filter(None, sources), None),
        answered_after_ms=max(0.0, updates[0].started_ms - asked_ms) if updates else None,
    )


def _printable_requests(requests: Mapping[str, InputRequest]) -> dict[str, InputRequest]:
    return {
        printable(key): InputRequest(
            printable(request.kind), printable(request.message), request.definition
        )
        for key, request in requests.items()
    }


def _printable_answers(answers: Mapping[str, Any]) -> dict[str, str]:
    return {printable(key): canonical(value, without_null=True) for key, value in answers.items()}


def _stretches(recorded: RecordedInteraction) -> Iterator[Stretch]:
    exchanges, shared = recorded.exchanges, recorded.shared
    for position in range(shared, len(exchanges)):
        exchange = exchanges[position]
        ask = exchanges[position - 1].ask if position > shared else None
        # An ask without requests for input makes the client call again and asks no person.
        if ask is not None and ask.input_requests:
            asked_ms = exchanges[position - 1].ended_ms
            yield _stretch("person", asked_ms, exchange.started_ms)
        at_ms = exchange.started_ms
        for turn in recorded.pushed_turns:
            waiting = _waiting(turn) if turn.position == position else None
            if waiting is not None:
                yield _stretch("server", at_ms, waiting.start_ms)
                yield waiting
                at_ms = waiting.end_ms
        yield _stretch("server", at_ms, exchange.ended_ms)
    yield from _stretches_of_task(recorded)


def _stretches_of_task(recorded: RecordedInteraction) -> Iterator[Stretch]:
    at_ms = recorded.exchanges[-1].ended_ms
    for turn in task_turns(recorded.steps):
        if turn.answered:
            asked, answered = (recorded.steps[at].exchange for at in (turn.asked, turn.answered[0]))
            yield _stretch("server", at_ms, asked.ended_ms)
            yield _stretch("person", asked.ended_ms, answered.started_ms)
            at_ms = answered.started_ms
    if recorded.steps:
        yield _stretch("server", at_ms, recorded.steps[-1].exchange.ended_ms)


def _stretch(whose: Literal["server", "person"], start_ms: float, end_ms: float) -> Stretch:
    # A client may send its answers before a response that has asked has ended.
    return Stretch(whose, start_ms, max(start_ms, end_ms))


def _waiting(turn: PushedTurn) -> Stretch | None:
    if not turn.answers:
        return None
    asked_ms = min(_pushed_ms(pushed.exchange, pushed.piece) for pushed in turn.asked)
    return _stretch("person", asked_ms, max(each.exchange.started_ms for each in turn.answers))


def _pushed_ms(exchange: RecordedExchange, piece: int) -> float:
    response = exchange.response
    return exchange.started_ms if response is None else response.pieces[piece].at_ms


# Endings


class _StreamedResponse(NamedTuple):
    """A response on the listening stream of an interaction, after so many requests had arrived."""

    message: Message
    interaction: int
    after: int


_Streamed = Mapping[tuple[str, str | None], Sequence[_StreamedResponse]]
"""The responses that listening streams carry, by session and id."""


def _streamed_responses(interactions: Iterable[RecordedInteraction]) -> _Streamed:
    """Find the responses to other requests, which only streams that a GET opened carry.

    Source: MCP 2025-11-25, "Resumability and Redelivery"; MCP 2024-11-05, "HTTP with SSE".
    """
    found: dict[tuple[str, str | None], list[_StreamedResponse]] = defaultdict(list)
    for interaction in interactions:
        for exchange in interaction.own:
            response = exchange.response
            if exchange.request.method != "GET" or response is None:
                continue
            session = session_of(exchange.request) or opened_session(response)
            for located in messages_in(response):
                if located.message.kind is Kind.RESPONSE:
                    after = response.pieces[located.piece].after
                    streamed = _StreamedResponse(located.message, interaction.number, after)
                    found[session, located.message.id].append(streamed)
    return found


def _streamed_response_to(
    exchange: RecordedExchange, streamed: _Streamed
) -> _StreamedResponse | None:
    message = exchange.call.message
    if not streamed or message is None or message.kind is not Kind.REQUEST:
        return None
    # A client may use an id again, so what came before the call is none of its responses.
    responses = streamed.get((session_of(exchange.request), message.id), ())
    return next((each for each in responses if each.after >= (exchange.number or 0)), None)


def _own_response(exchange: RecordedExchange) -> Message | None:
    if exchange.response is None or exchange.call.message is None:
        return None
    return last_response(exchange.response)


def final_of(method: str, response: Response | None) -> FinalResponse:
    """Return what the response to a call of a method says, or the last state of its task."""
    message = None if response is None else last_response(response)
    state = polled_state(message) if method == GET_TASK else None
    members = {} if message is None else message.tree if state is None else state.response
    return _outcome(members)[1] if members else FinalResponse("nothing", None)


def _ending(last: RecordedExchange, streamed: _Streamed) -> tuple[str, FinalResponse, int]:
    """Return how the call with this last exchange ended, in words, its response, and its size."""
    final, size = FinalResponse("nothing", None), 0
    if last.ask is not None:
        return "abandoned: the last ask has no answer", final, size
    response, message = last.response, _own_response(last)
    elsewhere = _streamed_response_to(last, streamed) if message is None else None
    facts = ["no response"]
    if response is not None:
        facts = [] if response.is_lines else [f"HTTP {response.status}"]
    if elsewhere is not None:
        words, final = _outcome(elsewhere.message.tree)
        size = len(elsewhere.message.raw)
        facts.append(f"{words} on the stream of #{elsewhere.interaction}")
    elif message is not None:
        words, final = _outcome(message.tree)
        size = len(message.raw)
        facts.append(words)
    # The messages of a stream are told one by one.
    elif response is not None and response.body and not response.is_framed:
        final, size = FinalResponse("text", _text_of(response.body)), len(response.body)
    if response is not None:
        if response.is_lines:
            facts.append(counted(len(response.pieces), "line"))
        elif response.is_event_stream:
            facts.append(f"stream of {counted(len(response.pieces), 'event')}")
        if response.end is End.OPEN:
            facts.append("still open when the recording ended")
        if response.end is End.BROKEN:
            facts.append("broken off by the upstream")
    return ", ".join(facts), final, size


def _ending_of_task(recorded: RecordedInteraction) -> tuple[str, FinalResponse, int]:
    """Return how the call's task ended, as far as that was recorded; as `_ending`."""
    response = recorded.ending.rpc_response
    state = polled_state(response)
    if response is None or state is None:
        return _ending(recorded.ending, {})
    if not state.is_over:
        what = "the last ask has no answer" if state.input_requests else "its task was at work"
        return f"abandoned: {what}", FinalResponse("nothing", None), 0
    if not state.response:
        return f"task {state.status}", FinalResponse("nothing", None), len(response.raw)
    words, final = _outcome(state.response)
    return f"task {state.status}, {words}", final, len(response.raw)


def _outcome(members: Mapping[str, Any]) -> tuple[str, FinalResponse]:
    error, result = members.get("error"), members.get("result")
    if isinstance(error, dict):
        code, text = canonical(error.get("code")), canonical(error.get("message"))
        return f"error {code} {shorten(text)}", FinalResponse("error", error)
    if "error" in members:
        return "result", FinalResponse("error", error)
    if isinstance(result, dict) and result.get("isError") is True:
        return "result with isError", FinalResponse("failed result", result)
    return "result", FinalResponse("result", result)


def _text_of(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        return f"({counted(len(body), 'byte')} that are no text)"
