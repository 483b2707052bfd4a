"""The details of a cassette: its calls one by one, and the placeholders of its secrets."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from mrtr_cassette.core.cassette.recorded import (
    VERSION,
    Branch,
    Cassette,
    InteractionPlace,
    RecordedExchange,
    RecordedInteraction,
    RecordedTurn,
    TaskStep,
    in_conversation_order,
)
from mrtr_cassette.core.cassette.sessions import (
    is_listening_stream,
    session_of_exchange,
)
from mrtr_cassette.core.protocol.calls import Call, session_of
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.protocol.jsonrpc import (
    Kind,
    Message,
    Via,
    last_response,
    messages_in,
)
from mrtr_cassette.core.protocol.tasks import TaskState, polled_state
from mrtr_cassette.core.secrets.names import plain_rule, secrets_in
from mrtr_cassette.core.wire.http import ANSWERED_BY_HEADER, End, Response
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.core.wire.pointers import without_null_members
from mrtr_cassette.errors import counted, printable, shorten

_CLIENT_INFO = "io.modelcontextprotocol/clientInfo"


@dataclass(frozen=True, slots=True)
class Turn:
    """One elicitation turn of an interaction: the server's questions and the client's answers.

    Attributes:
        answers_json: canonical JSON text of each answer, by key; None if the client never
            answered.
        dialect: in which spelling the server asked; None if it pushed requests.
        via: `result` if the response to the call asked, `push` if the server sent requests of its
            own, whose keys are ours, such as `elicitation-1`, `task` if the state of its task
            asked; a key that has the task's id is called `task:1` and so on.
        answered_by: who answered in the client's place, such as `rule 1`; else None.
        answered_after_ms: how long the server waited for the answers; None if none came.
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
        """The messages shown to the user, by key."""
        return {key: request.message for key, request in self.input_requests.items()}

    @property
    def answered(self) -> Mapping[str, Any] | None:
        """The client's answers, as JSON, by key; None if it never answered.

        If it posted an error, the answer is an object with nothing but `error`.
        """
        if self.answers_json is None:
            return None
        return {key: json.loads(text) for key, text in self.answers_json.items()}


class FinalResponse(NamedTuple):
    """The last response of a call: its result or error as parsed JSON, or its body as text."""

    kind: Literal["result", "failed result", "error", "text", "nothing"]
    value: Any


_NO_RESPONSE: Final = FinalResponse("nothing", None)
END_WORDS: Final = {
    End.OPEN: "open until its client left or the recording ended",
    End.BROKEN: "broken off by the upstream",
}


@dataclass(frozen=True, slots=True)
class Interaction:
    """One logical call on a cassette.

    Attributes:
        place: its number in its own file.
        arguments_json: canonical JSON text of its arguments; None if it had none.
        ended: how it ended, such as `HTTP 200, result`.
        is_orphan: its first request continues an ask that was not recorded.
        size_bytes: bytes of its final response.
        duration_ms: how long its client waited for the server.
        person_ms: how long the server waited for answers to its questions.
        method: its JSON-RPC method, or the HTTP method and path.
        name: of the tool or prompt, the URI of the resource, or an empty string.
        parameters: its arguments, or the other params of a method that names nothing, or None.
        notifications: those that the server sent meanwhile on the call's own streams.
        listens: it is a stream on which the server tells of other calls.
        task: the states of the task that the server made of it, and the client's steps
            (`answered`, `answer refused`, `cancel`, `cancel refused`), in order.
    """

    number: int
    place: InteractionPlace
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
        """Its arguments as JSON; None if it had none."""
        return None if self.arguments_json is None else json.loads(self.arguments_json)


@dataclass(frozen=True, slots=True)
class CassetteDetails:
    """A cassette, call by call; texts are as they were recorded."""

    recorded: Cassette
    interactions: tuple[Interaction, ...]
    version: int = VERSION


def arguments_json(call: Call) -> str | None:
    """Return the canonical text of a call's arguments, or None if it has none."""
    params = call.arguments
    if not call.is_rpc or not isinstance(params, dict):
        return None

    arguments = params.get("arguments")
    if arguments is None:
        return None

    return canonical(arguments)


def details_of(cassette: Cassette) -> CassetteDetails:
    """Return the details of a cassette, in the order of the conversation."""
    streamed_responses = _responses_on_streams(cassette.interactions)
    calls = []
    for recorded in in_conversation_order(cassette.interactions):
        calls.append(_interaction_details(recorded, streamed_responses))

    return CassetteDetails(cassette, tuple(calls))


def _interaction_details(
    recorded: RecordedInteraction, streamed_responses: _StreamedResponses
) -> Interaction:
    """Return the details of one interaction."""
    first_exchange = recorded.exchanges[0]
    call = first_exchange.call
    turns = tuple(map(_turn_details, recorded.turns))
    person_ms = _answer_waits_ms(recorded, turns)
    ending_words, final, size = _interaction_ending(recorded, streamed_responses)

    return Interaction(
        number=recorded.number,
        place=recorded.place,
        call=call.title,
        arguments_json=arguments_json(call),
        turns=turns,
        ended=ending_words,
        branch=recorded.branch,
        is_orphan=recorded.is_orphan,
        size_bytes=size,
        duration_ms=round(_waited_for_server_ms(recorded, person_ms)),
        person_ms=round(sum(person_ms.values())),
        method=call.method or call.title,
        name=call.name,
        parameters=_call_parameters(call),
        client=_client_name(call),
        session=session_of_exchange(first_exchange),
        final=final,
        notifications=tuple(_notifications_of_unshared_exchanges(recorded)),
        listens=is_listening_stream(call, first_exchange.response),
        task=tuple(map(_task_step_words, recorded.steps)),
    )


def _notifications_of_unshared_exchanges(
    recorded: RecordedInteraction,
) -> Iterator[Message]:
    """Yield the notifications in an interaction's responses that no earlier interaction has."""
    for exchange in recorded.exchanges[recorded.shared_count :]:
        if exchange.response is None:
            continue

        for located in messages_in(exchange.response):
            if located.message.kind is Kind.NOTIFICATION:
                yield located.message


def _task_step_words(step: TaskStep) -> str:
    """Return a step of a task in words."""
    if step.state is not None:
        return task_words(step.state, step.poll_count)
    if not step.is_update and not step.is_cancellation:
        return "error"

    words = "answer" if step.is_update else "cancel"
    if step.exchange.is_refused:
        return f"{words} refused"
    return "answered" if step.is_update else words


def task_words(state: TaskState, polls: int = 1) -> str:
    """Return a state of a task and its polls, such as `working: half done (3 polls)`."""
    words = state.status
    message = state.tree.get("statusMessage")
    if isinstance(message, str):
        words += f": {message}"

    shown = printable(shorten(" ".join(words.split())))
    if polls > 1:
        return f"{shown} ({polls} polls)"

    return shown


def _call_parameters(call: Call) -> Any:
    """Return the arguments of a call, or the params of a method that names nothing."""
    message = call.message
    if message is None or not call.is_rpc:
        return None
    if call.name:
        return message.params.get("arguments") or None

    params = dict(message.params)
    params.pop("_meta", None)
    return params or None


def _client_name(call: Call) -> str:
    """Return the name and the version that a client gives itself, if any."""
    message = call.message
    if message is None:
        return ""

    info = message.meta.get(_CLIENT_INFO) or message.params.get("clientInfo")
    if not isinstance(info, dict):
        return ""

    facts = []
    for fact in (info.get("title") or info.get("name"), info.get("version")):
        if isinstance(fact, str):
            facts.append(fact)

    return " ".join(facts)


# Turns and time


def _turn_details(recorded: RecordedTurn) -> Turn:
    """Return the details of one turn."""
    requests = {}
    for key, request in recorded.requests.items():
        kind = printable(request.kind)
        message = printable(request.message)
        shown = InputRequest(kind, message, request.definition)
        requests[printable(recorded.names_by_key[key])] = shown

    answers = None
    if recorded.given_answers is not None:
        answers = {}
        for key, answer in recorded.given_answers.items():
            name = recorded.names_by_key.get(key, key)
            answers[printable(name)] = canonical(without_null_members(answer))

    ask = recorded.ask
    answered_by = None
    for exchange in recorded.answering_exchanges:
        answered_by = answered_by or exchange.request.header(ANSWERED_BY_HEADER) or None

    return Turn(
        requests,
        answers,
        None if ask is None else ask.dialect,
        ask is not None and ask.request_state is not None,
        recorded.via,
        answered_by,
        _answered_after_ms(recorded),
    )


def _answered_after_ms(turn: RecordedTurn) -> float | None:
    """Return how long the server waited for the answers; None if none came."""
    if not turn.answering_exchanges:
        return None

    # A client may send its answers before a response that has asked has ended.
    answered_ms = max(exchange.started_ms for exchange in turn.answering_exchanges)
    return max(0.0, answered_ms - turn.asked_ms)


def _answer_waits_ms(
    recorded: RecordedInteraction, turns: Sequence[Turn]
) -> dict[Via, float]:
    """Return how long the server waited for answers, by the way in which it asked."""
    if recorded.branch is not None:
        turns = turns[recorded.branch.turn :]

    waits: dict[Via, float] = {"result": 0.0, "push": 0.0, "task": 0.0}
    for turn in turns:
        # An ask without requests for input makes the client call again and asks no person.
        if turn.input_requests:
            waits[turn.via] += turn.answered_after_ms or 0

    return waits


def _waited_for_server_ms(
    recorded: RecordedInteraction, person_ms: Mapping[Via, float]
) -> float:
    """Return how long the client waited for the server while the server waited for nobody."""
    unshared_exchanges = recorded.exchanges[recorded.shared_count :]
    busy_ms = 0.0
    for exchange in unshared_exchanges:
        busy_ms += exchange.ended_ms - exchange.started_ms

    if recorded.steps:
        task_end_ms = recorded.steps[-1].exchange.ended_ms
        busy_ms += task_end_ms - unshared_exchanges[-1].ended_ms

    return max(0.0, busy_ms - person_ms["push"] - person_ms["task"])


# Endings

_StreamedResponses = Mapping[tuple[str, str | None], Sequence[tuple[int, int, Message]]]
"""The responses that listening streams carry, by session and id.

Each has the interaction of its stream, and how many requests had arrived before it.
"""


def _responses_on_streams(
    interactions: Iterable[RecordedInteraction],
) -> _StreamedResponses:
    """Find the responses to other requests, which only streams that a GET opened carry.

    Source: MCP 2025-11-25, "Resumability and Redelivery"; MCP 2024-11-05, "HTTP with SSE".
    """
    streamed_responses: dict[tuple[str, str | None], list[tuple[int, int, Message]]] = (
        defaultdict(list)
    )
    for interaction in interactions:
        for exchange in interaction.unshared_exchanges:
            response = exchange.response
            if exchange.request.method != "GET" or response is None:
                continue

            session = session_of_exchange(exchange)
            for located in messages_in(response):
                if located.message.kind is Kind.RESPONSE:
                    arrived_count = response.pieces[located.piece].arrived_count
                    streamed = interaction.number, arrived_count, located.message
                    streamed_responses[session, located.message.comparable_id].append(
                        streamed
                    )

    return streamed_responses


def final_response_of(call: Call, response: Response | None) -> FinalResponse:
    """Return the outcome of a call, or the last state of its task."""
    if response is None:
        return _NO_RESPONSE

    message = last_response(response)
    state = polled_state(message) if call.is_poll else None
    if message is None:
        return _NO_RESPONSE

    return _final_response_in(message.tree if state is None else state.response)


class _CallEnding(NamedTuple):
    """How a call ended, in words, its final response, and the size of that response."""

    words: str
    final: FinalResponse
    size: int = 0


def _interaction_ending(
    recorded: RecordedInteraction, streamed_responses: _StreamedResponses
) -> _CallEnding:
    """Return how an interaction ended, its final response, and the size of that."""
    last_exchange = recorded.ending_exchange
    response = last_exchange.response
    message = None
    # A server may refuse a request without saying its id.
    if response is not None and last_exchange.call.message is not None:
        message = last_response(response)

    state = recorded.last_state
    if recorded.is_open:
        return _CallEnding(_why_abandoned(last_exchange, state), _NO_RESPONSE)

    if state is not None:
        response_ending = _response_outcome(message, state)
        facts = filter(None, [f"task {state.status}", response_ending.words])
        return response_ending._replace(words=", ".join(facts))

    place_in_stream = ""
    if message is None:
        message, place_in_stream = _response_on_other_stream(
            last_exchange, streamed_responses
        )

    response_ending = _response_outcome(message)
    if response_ending.words:
        response_ending = response_ending._replace(
            words=response_ending.words + place_in_stream
        )
    # The messages of a stream are told one by one.
    elif response is not None and response.body and not response.is_message_stream:
        final = FinalResponse("text", _body_as_text(response.body))
        response_ending = _CallEnding("", final, len(response.body))

    facts = filter(None, _response_facts(response, response_ending.words))
    return response_ending._replace(words=", ".join(facts))


def _why_abandoned(last_exchange: RecordedExchange, state: TaskState | None) -> str:
    """Return why a call has no end, in words."""
    is_task_asking = state is not None and bool(state.input_requests)
    if last_exchange.ask is not None or is_task_asking:
        return "abandoned: the last ask has no answer"
    return "abandoned: its task was at work"


def _response_facts(response: Response | None, words: str) -> Iterator[str]:
    """Yield status, outcome and form of a response, in words."""
    if response is None:
        yield "no response"
        yield words
        return

    if not response.is_lines:
        yield f"HTTP {response.status}"

    yield words
    if response.is_lines:
        yield counted(len(response.pieces), "line")
    elif response.is_event_stream:
        yield f"stream of {counted(len(response.pieces), 'event')}"

    yield END_WORDS.get(response.end, "")


def _response_on_other_stream(
    exchange: RecordedExchange, streamed_responses: _StreamedResponses
) -> tuple[Message | None, str]:
    """Return the response to a request that came on another stream, and words for its place."""
    request = exchange.call.message
    if request is None or request.kind is not Kind.REQUEST:
        return None, ""

    candidates = streamed_responses.get(
        (session_of(exchange.request), request.comparable_id), ()
    )
    for stream, arrived_count, answer in candidates:
        # A client may use an id again: responses from before the call are not its own.
        if arrived_count >= (exchange.number or 0):
            return answer, f" on the stream of #{stream}"

    return None, ""


def _response_outcome(
    message: Message | None, state: TaskState | None = None
) -> _CallEnding:
    """Return the outcome that a response tells, or the last state of a task in it."""
    if message is None:
        return _CallEnding("", _NO_RESPONSE)

    response_members = message.tree if state is None else state.response
    if not response_members:
        return _CallEnding("", _NO_RESPONSE, len(message.raw))

    final = _final_response_in(response_members)
    outcome_words = "result"
    if final.kind == "failed result":
        outcome_words = "result with isError"

    error = response_members.get("error")
    if isinstance(error, dict):
        text = shorten(canonical(error.get("message")))
        outcome_words = f"error {canonical(error.get('code'))} {text}"

    return _CallEnding(outcome_words, final, len(message.raw))


def _final_response_in(members: Mapping[str, Any]) -> FinalResponse:
    """Return the final response among the members of a message or of a task's state."""
    if not members:
        return _NO_RESPONSE
    if "error" in members:
        return FinalResponse("error", members["error"])

    result = members.get("result")
    if isinstance(result, dict) and result.get("isError") is True:
        return FinalResponse("failed result", result)

    return FinalResponse("result", result)


def _body_as_text(body: bytes) -> str:
    """Return a body as text, or in words how many bytes it has that are not text."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return f"({counted(len(body), 'byte')} that are not text)"


# Secrets


_MOST_CALLS: Final = 10
"""Calls that a line names."""


class RedactedCall(NamedTuple):
    """An interaction in which something was replaced."""

    interaction: int
    call: str


@dataclass(frozen=True, slots=True)
class Redaction:
    """In how many places secrets of one rule were replaced, and in which calls."""

    rule: str
    count: int
    calls: tuple[RedactedCall, ...]


def redactions_of(
    recorded: Cassette, earlier: Cassette | None = None
) -> tuple[Redaction, ...]:
    """Return the replaced secrets by rule, without those that an earlier recording has already."""
    counts = _placeholder_counts(recorded)
    if earlier is not None:
        counts -= _placeholder_counts(earlier)

    count_by_rule: Counter[str] = Counter()
    calls_by_rule: dict[str, list[RedactedCall]] = {}
    for (rule, number), count in counts.items():
        count_by_rule[rule] += count
        call = recorded.interactions[number - 1].exchanges[0].call.title
        calls_by_rule.setdefault(rule, []).append(RedactedCall(number, printable(call)))

    redactions = []
    for rule, call_counts in calls_by_rule.items():
        redactions.append(Redaction(rule, count_by_rule[rule], tuple(call_counts)))

    return tuple(redactions)


def _placeholder_counts(cassette: Cassette) -> Counter[tuple[str, int]]:
    """Count placeholders by rule and number of the interaction."""
    counts: Counter[tuple[str, int]] = Counter()
    for interaction in cassette.interactions:
        for exchange in interaction.unshared_exchanges:
            for secret in secrets_in(_whole_text_of(exchange)):
                counts[plain_rule(secret.kind), interaction.number] += 1

    return counts


def _whole_text_of(exchange: RecordedExchange) -> str:
    """Return all texts of an exchange that redaction changes."""
    request = exchange.request
    response = exchange.response
    headers = request.headers
    bodies = request.body
    if response is not None:
        headers += response.headers
        bodies += b"\n" + response.body

    texts = [request.target]
    for _, value in headers:
        texts.append(value)

    return "\n".join([*texts, bodies.decode("latin-1")])


def redaction_lines(redactions: Iterable[Redaction]) -> list[str]:
    """Return a line for people about each rule."""
    lines = []
    for redaction in redactions:
        shown = _calls_in_words(redaction.calls[:_MOST_CALLS])
        further_count = len(redaction.calls) - _MOST_CALLS
        if further_count > 0:
            shown += f"; and {further_count} more"

        lines.append(f"redacted: {redaction.rule} ×{redaction.count} ({shown})")

    return lines


def _calls_in_words(calls: Sequence[RedactedCall]) -> str:
    """Return calls in a line; equal calls are named once, after all their numbers."""
    numbers_by_call: dict[str, list[str]] = {}
    for number, call in calls:
        numbers_by_call.setdefault(call, []).append(f"#{number}")

    texts = []
    for call, call_numbers in numbers_by_call.items():
        texts.append(f"{', '.join(call_numbers)} {call}")

    return "; ".join(texts)
