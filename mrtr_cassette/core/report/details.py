"""What is on a cassette, call by call, as values; `text`, `page` and programs show them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from mrtr_cassette.core.cassette.model import VERSION
from mrtr_cassette.core.cassette.recorded import (
    Branch,
    Cassette,
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
    TaskStep,
    TaskTurn,
    in_conversation_order,
)
from mrtr_cassette.core.cassette.sessions import listens, opened_session
from mrtr_cassette.core.protocol.calls import Call, session_of
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message, Via, last_response, messages_in
from mrtr_cassette.core.protocol.methods import CANCEL_TASK, GET_TASK, UPDATE_TASK
from mrtr_cassette.core.protocol.tasks import TaskState, key_names, polled_state
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


_NOTHING: Final = FinalResponse("nothing", None)
_ENDS: Final = {
    End.OPEN: "still open when the recording ended",
    End.BROKEN: "broken off by the upstream",
}


@dataclass(frozen=True, slots=True)
class Interaction:
    """One logical call on a cassette.

    Attributes:
        arguments_json: canonical JSON text of its arguments; None where it had none.
        ended: how it ended, such as `HTTP 200, result`.
        is_orphan: its first request continues a state that no recorded ask issued.
        size_bytes: bytes of its final response.
        duration_ms: how long its client waited for the server.
        person_ms: how long the server waited for whoever answers its questions.
        method: its JSON-RPC method, or the HTTP method and path.
        name: of the tool or prompt, the URI of the resource, or an empty string.
        parameters: its arguments, or the other params of a method that names nothing, or None.
        notifications: what the server sent meanwhile on the call's own streams.
        listens: it is a stream that tells what other calls caused.
        task: the states of the task that the server made of it, and what the client did to it
            (`answered`, `cancel`), in order.
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
    person_ms: int
    method: str
    name: str
    parameters: Any
    client: str
    session: str
    final: FinalResponse
    notifications: tuple[Message, ...]
    listens: bool
    task: tuple[str, ...] = ()

    @property
    def arguments(self) -> Any:
        """Its arguments as JSON; None where it had none."""
        return None if self.arguments_json is None else json.loads(self.arguments_json)


@dataclass(frozen=True, slots=True)
class CassetteDetails:
    """A cassette, call by call; texts are as they were recorded."""

    recorded: Cassette
    interactions: tuple[Interaction, ...]
    version: int = VERSION


def arguments_json(call: Call) -> str | None:
    """Return the canonical text of a call's arguments, or None where it has none."""
    params = call.arguments
    arguments = params.get("arguments") if isinstance(params, dict) else None
    return None if arguments is None or not call.is_rpc else canonical(arguments)


def details_of(cassette: Cassette) -> CassetteDetails:
    """Return what is on a cassette, in the order of the conversation."""
    streamed = _streamed_responses(cassette.interactions)
    ordered = in_conversation_order(cassette.interactions)
    calls = [_interaction(recorded, streamed) for recorded in ordered]
    return CassetteDetails(cassette, tuple(calls))


def _interaction(recorded: RecordedInteraction, streamed: _Streamed) -> Interaction:
    first = recorded.exchanges[0]
    call = first.call
    chain = recorded.exchanges[recorded.shared :]
    turns = tuple(_turns(recorded))
    server_ms, person_ms = _waits(recorded, turns)
    ended, final, size = _ending(recorded, streamed)
    return Interaction(
        number=recorded.number,
        call=call.title,
        arguments_json=arguments_json(call),
        turns=turns,
        ended=ended,
        branch=recorded.branch,
        is_orphan=recorded.is_orphan,
        size_bytes=size,
        duration_ms=round(server_ms),
        person_ms=round(person_ms),
        method=call.method or call.title,
        name=call.name,
        parameters=_parameters(call),
        client=_client(call),
        session=session_of(first.request) or opened_session(first.response),
        final=final,
        notifications=tuple(
            each.message
            for exchange in chain
            for each in (() if exchange.response is None else messages_in(exchange.response))
            if each.message.kind is Kind.NOTIFICATION
        ),
        listens=listens(call, first.response),
        task=tuple(map(_stage, recorded.steps)),
    )


def _stage(step: TaskStep) -> str:
    if step.state is not None:
        return task_words(step.state, step.polls)
    did = {UPDATE_TASK: "answered", CANCEL_TASK: "cancel"}
    return did.get(step.exchange.call.method, "error")


def task_words(state: TaskState, polls: int = 1) -> str:
    """Return a state of a task, which so many polls got, such as `working: half done (3 polls)`."""
    message = state.tree.get("statusMessage")
    words = f"{state.status}: {message}" if isinstance(message, str) else state.status
    shown = printable(shorten(" ".join(words.split())))
    return f"{shown} ({polls} polls)" if polls > 1 else shown


def _parameters(call: Call) -> Any:
    message = call.message
    if message is None or not call.is_rpc:
        return None
    if call.name:
        return message.params.get("arguments") or None
    return {key: value for key, value in message.params.items() if key != "_meta"} or None


def _client(call: Call) -> str:
    message = call.message
    info = message and (message.meta.get(_CLIENT_INFO) or message.params.get("clientInfo"))
    if not isinstance(info, dict):
        return ""
    facts = (info.get("title") or info.get("name"), info.get("version"))
    return " ".join(fact for fact in facts if isinstance(fact, str))


# Turns and time


def _turns(recorded: RecordedInteraction) -> Iterator[Turn]:
    for turn in recorded.turns:
        names: Mapping[str, str] = {}
        ask = None
        via: Via = "result"
        if isinstance(turn, PushedTurn):
            via = "push"
            asked_ms = min(_pushed_ms(each.exchange, each.piece) for each in turn.asked)
            answering = [each.exchange for each in turn.answers]
        elif isinstance(turn, TaskTurn):
            via, names = "task", key_names(turn.requests, recorded.task_id)
            asked_ms = recorded.steps[turn.asked].exchange.ended_ms
            answering = [recorded.steps[at].exchange for at in turn.answered]
        else:
            ask, asked_ms = turn.ask, turn.exchange.ended_ms
            answering = [] if turn.retry is None else [turn.retry]
        given, answered_ms = turn.given, max((each.started_ms for each in answering), default=None)
        sources = (each.request.header(ANSWERED_BY_HEADER) for each in answering)
        keys = {key: printable(names.get(key, key)) for key in (*turn.requests, *(given or {}))}
        requests = {
            keys[key]: InputRequest(printable(each.kind), printable(each.message), each.definition)
            for key, each in turn.requests.items()
        }
        answers = {
            keys[key]: canonical(each, without_null=True) for key, each in (given or {}).items()
        }
        yield Turn(
            requests,
            None if given is None else answers,
            None if ask is None else ask.dialect,
            ask is not None and ask.request_state is not None,
            via,
            next(filter(None, sources), None),
            # A client may send its answers before a response that has asked has ended.
            None if answered_ms is None else max(0.0, answered_ms - asked_ms),
        )


def _pushed_ms(exchange: RecordedExchange, piece: int) -> float:
    response = exchange.response
    return exchange.started_ms if response is None else response.pieces[piece].at_ms


def _waits(recorded: RecordedInteraction, turns: Sequence[Turn]) -> tuple[float, float]:
    """Return how long the client waited for the server in its own time, and for a person."""
    chain = recorded.exchanges[recorded.shared :]
    own = turns if recorded.branch is None else turns[recorded.branch.turn :]
    waits: dict[str, float] = defaultdict(float)
    for turn in own:
        # An ask without requests for input makes the client call again and asks no person.
        if turn.input_requests:
            waits[turn.via] += turn.answered_after_ms or 0
    busy_ms = sum(each.ended_ms - each.started_ms for each in chain)
    if recorded.steps:
        busy_ms += recorded.steps[-1].exchange.ended_ms - chain[-1].ended_ms
    return max(0.0, busy_ms - waits["push"] - waits["task"]), sum(waits.values())


# Endings

_Streamed = Mapping[tuple[str, str | None], Sequence[tuple[int, int, Message]]]
"""The responses that listening streams carry, by session and id.

Each has the interaction of its stream, and how many requests had arrived before it.
"""


def _streamed_responses(interactions: Iterable[RecordedInteraction]) -> _Streamed:
    """Find the responses to other requests, which only streams that a GET opened carry.

    Source: MCP 2025-11-25, "Resumability and Redelivery"; MCP 2024-11-05, "HTTP with SSE".
    """
    found: dict[tuple[str, str | None], list[tuple[int, int, Message]]] = defaultdict(list)
    for interaction in interactions:
        for exchange in interaction.own:
            response = exchange.response
            if exchange.request.method != "GET" or response is None:
                continue
            session = session_of(exchange.request) or opened_session(response)
            for located in messages_in(response):
                if located.message.kind is Kind.RESPONSE:
                    after = response.pieces[located.piece].after
                    streamed = interaction.number, after, located.message
                    found[session, located.message.same_id].append(streamed)
    return found


def final_of(method: str, response: Response | None) -> FinalResponse:
    """Return what the response to a call of a method says, or the last state of its task."""
    message = None if response is None else last_response(response)
    state = polled_state(message) if method == GET_TASK else None
    members = {} if message is None else message.tree if state is None else state.response
    return _outcome(members)[1]


def _ending(recorded: RecordedInteraction, streamed: _Streamed) -> tuple[str, FinalResponse, int]:
    """Return how a call ended, in words, its final response, and the size of that."""
    last = recorded.ending
    response, request = last.response, last.call.message
    # A server may refuse a request without saying its id.
    message = None if response is None or request is None else last_response(response)
    state = polled_state(message) if recorded.steps else None
    if recorded.is_open:
        asks = last.ask is not None or (state is not None and state.input_requests)
        what = "the last ask has no answer" if asks else "its task was at work"
        return f"abandoned: {what}", _NOTHING, 0
    if state is not None and message is not None:
        words, final = _outcome(state.response)
        return ", ".join(filter(None, [f"task {state.status}", words])), final, len(message.raw)
    facts = ["no response"]
    if response is not None:
        facts = [] if response.is_lines else [f"HTTP {response.status}"]
    where = ""
    if message is None and request is not None and request.kind is Kind.REQUEST:
        for stream, after, answer in streamed.get((session_of(last.request), request.same_id), ()):
            # A client may use an id again: what came before the call is none of its responses.
            if after >= (last.number or 0):
                message, where = answer, f" on the stream of #{stream}"
                break
    words, final = _outcome({} if message is None else message.tree)
    size = 0 if message is None else len(message.raw)
    if words:
        facts.append(f"{words}{where}")
    # The messages of a stream are told one by one.
    elif response is not None and response.body and not response.is_framed:
        final, size = FinalResponse("text", _text_of(response.body)), len(response.body)
    if response is not None:
        if response.is_lines:
            facts.append(counted(len(response.pieces), "line"))
        elif response.is_event_stream:
            facts.append(f"stream of {counted(len(response.pieces), 'event')}")
        facts += filter(None, [_ENDS.get(response.end)])
    return ", ".join(facts), final, size


def _outcome(members: Mapping[str, Any]) -> tuple[str, FinalResponse]:
    """Return what the members of a response say, in words and as a value."""
    if not members:
        return "", _NOTHING
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
