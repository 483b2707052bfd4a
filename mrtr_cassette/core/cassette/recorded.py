"""What was recorded, as values: exchanges, interactions, a whole cassette."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, TypeVar

from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.protocol.dialect import InputRequest, input_request
from mrtr_cassette.core.protocol.jsonrpc import (
    Ask,
    LocatedMessage,
    Message,
    Via,
    ask_in,
    message_completed_by,
    response_to,
)
from mrtr_cassette.core.protocol.methods import CANCEL_TASK, UPDATE_TASK
from mrtr_cassette.core.protocol.tasks import (
    TaskState,
    created_task,
    created_task_id,
    polled_state,
    stable_key_names,
)
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.wire.http import (
    CONDITIONAL_STATUSES,
    REFUSED,
    Request,
    Response,
    named_by_user,
)
from mrtr_cassette.core.wire.pointers import members_of

VERSION: Final = 1
"""The version of the format of cassettes."""

SCHEMA_ID: Final = "urn:mrtr-cassette:cassette:1"
RequestState = Literal["sealed", "verbatim"]
Transport = Literal["http", "stdio"]


class RecordedBy(NamedTuple):
    """The id of the recorder that saw an exchange, and its number in arrival order there."""

    recorder: str
    number: int


class RecorderFacts(NamedTuple):
    """One of the recorders whose exchanges are in a recording."""

    id: str
    wall_ms: float
    """Its wall clock when it began, in milliseconds since 1970."""

    offset_ms: float = 0
    """When it began, on the common time of the exchanges of all recorders."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordedExchange:
    """One request and its response; `number` is its place in arrival order, from 1.

    The hashes are of the raw request states that the response issued and the request carried.
    `ended_after` tells how many requests had arrived when the response ended, and `played_writes`
    which earlier writes a run that appends had played since its last request.
    """

    number: int | None
    request: Request
    response: Response | None
    started_ms: float
    ended_ms: float
    issued_sha256: str | None = None
    echoed_sha256: str | None = None
    ended_after: int | None = None
    recorded_by: RecordedBy | None = None
    played_writes: tuple[int, ...] = ()
    digests: tuple[tuple[str, str], ...] = ()
    """Announced digests of texts that sealing changed, and those of the texts as sealed."""

    @property
    def call(self) -> Call:
        """The request, read."""
        return read_call(self.request)

    @property
    def ask(self) -> Ask | None:
        """How its response asks for input; None if it doesn't."""
        if self.response is None:
            return None
        return ask_in(self.call.message, self.response)

    @property
    def located_response(self) -> LocatedMessage | None:
        """The JSON-RPC response to its request, and its place; or None."""
        if self.response is None:
            return None
        return response_to(self.call.message, self.response)

    @property
    def rpc_response(self) -> Message | None:
        """The JSON-RPC response to its request, or None."""
        located = self.located_response
        return None if located is None else located.message

    @property
    def rpc_members(self) -> Mapping[str, Any]:
        """The members of the JSON-RPC response to its request; none if there is no response."""
        response = self.rpc_response
        return {} if response is None else response.tree

    @property
    def result_members(self) -> dict[str, Any]:
        """The members of the result that its request got; none if that is no object."""
        return members_of(self.rpc_members.get("result"))

    @property
    def is_refused(self) -> bool:
        """Whether the server refused its request, by the HTTP status or by a JSON-RPC error."""
        if self.response is None:
            return False
        if self.response.status >= REFUSED:
            return True
        if b'"error"' not in self.response.body:
            return False

        return self.rpc_members.get("error") is not None

    @property
    def is_about_cached_copy(self) -> bool:
        """Whether its response says nothing to a client without a copy of an earlier one."""
        if self.response is None:
            return False
        return self.response.status in CONDITIONAL_STATUSES

    @property
    def created_task(self) -> TaskState | None:
        """The task that its response creates; None if it creates none."""
        return created_task(self.call.message, self.rpc_response)

    @property
    def ends_elsewhere(self) -> bool:
        """Whether its response creates a task, with which the call goes on until it ends."""
        return self.created_task is not None

    @property
    def created_task_id(self) -> str | None:
        """The id of the task that its response creates, as either version of MCP has it."""
        return created_task_id(self.call.message, self.rpc_response)

    @property
    def polled_state(self) -> TaskState | None:
        """The state of a task that its response tells; None if it is no poll, and for an error."""
        if not self.call.is_poll:
            return None
        return polled_state(self.rpc_response)

    @property
    def next_cursor(self) -> str | None:
        """The cursor that its response, a page of a list, issued for the next one; or None."""
        cursor = self.result_members.get("nextCursor")
        return cursor if isinstance(cursor, str) else None


@dataclass(frozen=True, slots=True, eq=False)
class PushedRequest:
    """A request that the server pushed, in the response to the call or in a listening stream."""

    key: str
    exchange: RecordedExchange
    """The exchange whose response contains it."""

    piece_index: int
    """The index of the piece that completes it."""

    interaction: int | None = None
    """The interaction that the exchange ends; None for the pending call's own."""

    @property
    def message(self) -> Message:
        """The request as a JSON-RPC message."""
        response = self.exchange.response
        message = None
        if response is not None:
            message = message_completed_by(response, self.piece_index)

        if message is None:
            raise AssertionError(
                "unreachable because a pushed request is a message of a response"
            )

        return message

    @property
    def pushed_ms(self) -> float:
        """When it came."""
        response = self.exchange.response
        if response is None:
            return self.exchange.started_ms
        return response.pieces[self.piece_index].at_ms

    @property
    def asked_input(self) -> InputRequest:
        """What it asks."""
        message = self.message
        return input_request(message.method, message.params)


@dataclass(frozen=True, slots=True, eq=False)
class PostedAnswer:
    """The exchange in which a client posted the response to the pushed request with this key."""

    key: str
    exchange: RecordedExchange


def posted_answer_value(response: Message | None) -> Any:
    """Return the result of a posted response, or an object with its error."""
    if response is None:
        return {"error": None}
    if "result" in response.tree:
        return response.tree["result"]
    return {"error": response.tree.get("error")}


@dataclass(frozen=True, slots=True, eq=False)
class PushedTurn:
    """Pushed requests that were open together, while the exchange at a position was pending."""

    position: int
    pushed_requests: tuple[PushedRequest, ...]
    answers: tuple[PostedAnswer, ...]

    @property
    def requests(self) -> dict[str, InputRequest]:
        """What the server asked, by key."""
        return {request.key: request.asked_input for request in self.pushed_requests}

    @property
    def given_answers(self) -> dict[str, Any] | None:
        """What the client answered, by key; None if it never answered."""
        given_answers = {}
        for answer in self.answers:
            given_answers[answer.key] = posted_answer_value(
                answer.exchange.call.message
            )

        return given_answers or None


def _recorded_turn_of_pushed_one(number: int, pushed_turn: PushedTurn) -> RecordedTurn:
    """Return the turn that the server asks by requests of its own."""
    return RecordedTurn(
        number,
        "push",
        pushed_turn.requests,
        pushed_turn.given_answers,
        {request.key: request.key for request in pushed_turn.pushed_requests},
        pushed_turn.pushed_requests[0].exchange,
        min(request.pushed_ms for request in pushed_turn.pushed_requests),
        tuple([answer.exchange for answer in pushed_turn.answers]),
        pushed_turn,
    )


class ExchangePlace(NamedTuple):
    """The place of an exchange in its cassette."""

    interaction: int
    turn: int = 0
    """The turn that its request answers; 0: the first request."""

    answer: int | None = None
    """Index of a posted answer of its turn."""

    step: int | None = None
    """Index of a step of the task."""


class Branch(NamedTuple):
    """The interaction and its turn whose ask another interaction answers in another way."""

    of: int
    turn: int


@dataclass(frozen=True, slots=True, eq=False)
class RecordedTurn:
    """One turn of an interaction, by whatever way the server asks.

    Attributes:
        number: its number among the turns of the interaction, from 1.
        requests: what the server asked, by key.
        given_answers: what the client answered, by key; None if it never answered.
        names_by_key: the keys as they are in every recording, by the recorded ones.
        asking_exchange: the exchange whose response asks, or asks first.
        asked_ms: when the server asked.
        answering_exchanges: the exchanges whose requests answer.
        pushed_turn: the turn as it was pushed; None if the server asked in another way.
    """

    number: int
    via: Via
    requests: Mapping[str, InputRequest]
    given_answers: Mapping[str, Any] | None
    names_by_key: Mapping[str, str]
    asking_exchange: RecordedExchange
    asked_ms: float
    answering_exchanges: tuple[RecordedExchange, ...]
    pushed_turn: PushedTurn | None = None

    @property
    def ask(self) -> Ask | None:
        """The response to the call that asks; None if the server asked in another way."""
        if self.via == "result":
            return self.asking_exchange.ask
        return None

    @property
    def is_posted(self) -> bool:
        """Whether each answer is posted alone, as the response to a request of the server."""
        return self.via == "push"

    @property
    def request_groups(self) -> tuple[Mapping[str, InputRequest], ...]:
        """The requests that are answered together, by key."""
        if not self.is_posted:
            return (self.requests,)
        return tuple([{key: request} for key, request in self.requests.items()])

    def is_key_from_server(self, key: str) -> bool:
        """Tell whether the server chose a key, and asks under it in every run."""
        return not self.is_posted and self.names_by_key[key] == key


@dataclass(frozen=True, slots=True, eq=False)
class TaskStep:
    """The first of the `poll_count` that got a state of a task, an update, or a cancellation."""

    exchange: RecordedExchange
    poll_count: int = 1

    @property
    def state(self) -> TaskState | None:
        """The state that a poll got; None for an update, a cancellation and an error."""
        return self.exchange.polled_state

    @property
    def is_update(self) -> bool:
        """Whether the client answers the task in it."""
        return self.exchange.call.method == UPDATE_TASK

    @property
    def is_cancellation(self) -> bool:
        """Whether the client cancels the task in it."""
        return self.exchange.call.method == CANCEL_TASK


@dataclass(slots=True, eq=False)
class TaskTurn:
    """Requests for input that a state of a task shows for the first time, and their answers.

    Attributes:
        asking_step: the index of the step that shows the requests.
        answering_steps: the indexes of the updates that answer them.
    """

    asking_step: int
    requests: Mapping[str, InputRequest]
    answering_steps: list[int] = field(default_factory=list)
    given_answers: dict[str, Any] = field(default_factory=dict)


class InteractionPlace(NamedTuple):
    """An interaction by its number in its own file, which is only named beside other files."""

    number: int
    file: str = ""

    def __str__(self) -> str:
        """Return it as messages name it."""
        return self.named_with("")

    def named_with(self, call: str) -> str:
        """Return it as messages name it with its call."""
        name = f"#{self.number} {call}".rstrip()
        if self.file:
            return f"{name} in {self.file}"
        return name


@dataclass(frozen=True, slots=True, eq=False)
class RecordedInteraction:
    """One logical call: its exchanges from the first request to the last response.

    Each of `exchanges` answers, in its request, the ask of the one before it; posted answers are
    in `pushed_turns`. A branch shares the first exchanges with the interaction that it parts from.
    If the last response creates a task, `steps` has what came of it.
    """

    number: int
    exchanges: tuple[RecordedExchange, ...]
    branch: Branch | None
    is_orphan: bool
    pushed_turns: tuple[PushedTurn, ...] = ()
    steps: tuple[TaskStep, ...] = ()
    file_place: InteractionPlace | None = None
    """Its place if several files are played together."""

    @property
    def place(self) -> InteractionPlace:
        """Its number in its own file."""
        return self.file_place or InteractionPlace(self.number)

    @property
    def shared_count(self) -> int:
        """How many of `exchanges` it shares with the interaction that it parts from."""
        if self.branch is None:
            return 0

        turn = self.branch.turn
        return turn - sum(number < turn for number in self.numbered_turns)

    @property
    def placed_exchanges(self) -> tuple[tuple[RecordedExchange, ExchangePlace], ...]:
        """The exchanges that no earlier interaction has, and their places; posted answers last."""
        exchanges_and_places = []
        shared_count = self.shared_count
        for position in range(shared_count, len(self.exchanges)):
            place = ExchangePlace(self.number, self.asking_turn(position - 1))
            exchanges_and_places.append((self.exchanges[position], place))

        for number, turn in self.numbered_turns.items():
            if turn.position < shared_count:
                continue

            for index, answer in enumerate(turn.answers):
                place = ExchangePlace(self.number, number, answer=index)
                exchanges_and_places.append((answer.exchange, place))

        for index, step in enumerate(self.steps):
            place = ExchangePlace(self.number, step=index)
            exchanges_and_places.append((step.exchange, place))

        return tuple(exchanges_and_places)

    @property
    def unshared_exchanges(self) -> tuple[RecordedExchange, ...]:
        """The exchanges that no earlier interaction has, in the order of their places."""
        shared_count = self.shared_count
        posted_exchanges: list[RecordedExchange] = []
        for turn in self.pushed_turns:
            if turn.position >= shared_count:
                posted_exchanges += [answer.exchange for answer in turn.answers]

        steps = [step.exchange for step in self.steps]
        return (*self.exchanges[shared_count:], *posted_exchanges, *steps)

    @property
    def turns(self) -> Iterator[RecordedTurn]:
        """Its turns, in the order in which their asks came."""
        number = 0
        for position in range(len(self.exchanges)):
            # The server pushes while a request is pending, and a response that asks ends that.
            for pushed_turn in self.pushed_turns:
                if pushed_turn.position == position:
                    number += 1
                    yield _recorded_turn_of_pushed_one(number, pushed_turn)

            ask = self.exchanges[position].ask
            if ask is not None:
                number += 1
                yield self._result_turn(number, position, ask)

        for turn in task_turns(self.steps):
            number += 1
            yield self._task_turn(number, turn)

    def _result_turn(self, number: int, position: int, ask: Ask) -> RecordedTurn:
        """Return the turn that a response to the call asks."""
        asking_exchange = self.exchanges[position]
        answering_exchanges = self.exchanges[position + 1 : position + 2]
        given_answers: Mapping[str, Any] | None = None
        if answering_exchanges and answering_exchanges[0].call.answers is not None:
            given_answers = answering_exchanges[0].call.answers.input_responses or {}

        return RecordedTurn(
            number,
            "result",
            ask.input_requests,
            given_answers,
            {key: key for key in ask.input_requests},
            asking_exchange,
            asking_exchange.ended_ms,
            answering_exchanges,
        )

    def _task_turn(self, number: int, turn: TaskTurn) -> RecordedTurn:
        """Return the turn that a state of the task asks."""
        asking_exchange = self.steps[turn.asking_step].exchange
        return RecordedTurn(
            number,
            "task",
            turn.requests,
            turn.given_answers or None,
            stable_key_names(turn.requests, self.created_task_id),
            asking_exchange,
            asking_exchange.ended_ms,
            tuple([self.steps[step].exchange for step in turn.answering_steps]),
        )

    @property
    def created_task_id(self) -> str:
        """The id of the task that its last response creates; empty if it creates none."""
        task = self.exchanges[-1].created_task
        return "" if task is None else task.id

    @property
    def ending_exchange(self) -> RecordedExchange:
        """The exchange whose response says how the call ended, as far as it was recorded."""
        for step in reversed(self.steps):
            if step.exchange.call.is_poll:
                return step.exchange

        return self.exchanges[-1]

    @property
    def is_open(self) -> bool:
        """Whether its client left before it ended: before an answer, or the end of its task."""
        if not self.steps:
            is_question = self.exchanges[-1].ask is not None
            return is_question or bool(self.created_task_id)

        state = self.last_state
        return state is not None and not state.is_over

    @property
    def last_state(self) -> TaskState | None:
        """The last state of its task; None if nothing came of one."""
        if not self.steps:
            return None
        return polled_state(self.ending_exchange.rpc_response)

    @property
    def passing_poll_failures(self) -> int:
        """How many polls of its task got no state while its client polled on."""
        failures = 0
        passing_failures = 0
        for step in self.steps:
            if not step.exchange.call.is_poll:
                continue

            if step.state is None:
                failures += step.poll_count
            else:
                passing_failures = failures

        return passing_failures

    def asking_turn(self, position: int) -> int:
        """Return the number of the turn that the response of one of `exchanges` asks; 0 for -1."""
        # What was pushed while its request was pending comes before it.
        pushed = [turn for turn in self.pushed_turns if turn.position <= position]
        return position + 1 + len(pushed)

    @property
    def asking_interactions(self) -> tuple[int, ...]:
        """The interactions on whose streams the server asks for it, and not in its own."""
        numbers = []
        for turn in self.pushed_turns:
            for request in turn.pushed_requests:
                if request.interaction is not None:
                    numbers.append(request.interaction)

        return tuple(numbers)

    @property
    def numbered_turns(self) -> dict[int, PushedTurn]:
        """The pushed turns by their numbers among all turns."""
        turns = enumerate(self.pushed_turns, start=1)
        return {turn.position + pushed_number: turn for pushed_number, turn in turns}


@dataclass(frozen=True, slots=True)
class Cassette:
    """A recording, loaded; `path` is the file's, as messages show it."""

    path: str
    upstream: str = ""
    request_state: RequestState = "sealed"
    redaction: RedactionRules | None = None
    seals_answers: bool = False
    recorded_at: str = ""
    tool: str = ""
    interactions: tuple[RecordedInteraction, ...] = ()
    transport: Transport = "http"
    client: str | None = None
    command: str | None = None
    """Starts the server, if the recorder of a URL did that; a server on pipes is `upstream`."""

    recorders: tuple[RecorderFacts, ...] = ()
    values: tuple[str, ...] = ()
    """The names of the values to which its texts refer."""

    @property
    def server(self) -> str:
        """The recorded server, as its user named it: by the command that starts it, or its URL."""
        return self.command or self.upstream

    @property
    def exchanges(self) -> Iterator[RecordedExchange]:
        """The exchanges of all interactions, each once."""
        for interaction in self.interactions:
            yield from interaction.unshared_exchanges

    @property
    def exchanges_by_arrival(self) -> list[RecordedExchange]:
        """The exchanges of all interactions in the order in which their requests arrived."""
        return sorted(self.exchanges, key=lambda exchange: exchange.number or 0)

    @property
    def kept_headers(self) -> frozenset[str]:
        """The lower-case names of headers that were kept because a user named them."""
        names: set[str] = set()
        for exchange in self.exchanges:
            names |= named_by_user(exchange.request.headers)

        return frozenset(names)

    @property
    def highest_number(self) -> int:
        """The highest number of an exchange."""
        numbers = [exchange.number or 0 for exchange in self.exchanges]
        return max(numbers, default=0)

    def with_exchanges(
        self, changed_exchanges: Mapping[RecordedExchange, RecordedExchange]
    ) -> Cassette:
        """Return the same with other exchanges in the place of some, wherever they are."""
        if not changed_exchanges:
            return self

        interactions = []
        for interaction in self.interactions:
            interactions.append(
                _interaction_with_exchanges(interaction, changed_exchanges)
            )

        return replace(self, interactions=tuple(interactions))


def _interaction_with_exchanges(
    interaction: RecordedInteraction,
    changed_exchanges: Mapping[RecordedExchange, RecordedExchange],
) -> RecordedInteraction:
    """Return an interaction with other exchanges in the place of some, in its turns too."""
    exchanges = [
        changed_exchanges.get(exchange_before, exchange_before)
        for exchange_before in interaction.exchanges
    ]
    turns = []
    for turn in interaction.pushed_turns:
        pushed_requests = _parts_with_exchanges(turn.pushed_requests, changed_exchanges)
        answers = _parts_with_exchanges(turn.answers, changed_exchanges)
        turns.append(PushedTurn(turn.position, pushed_requests, answers))

    return replace(
        interaction,
        exchanges=tuple(exchanges),
        pushed_turns=tuple(turns),
        steps=_parts_with_exchanges(interaction.steps, changed_exchanges),
    )


_Part = TypeVar("_Part", PushedRequest, PostedAnswer, TaskStep)
"""A part of an interaction that names the exchange in which it is."""


def _parts_with_exchanges(
    parts: Iterable[_Part],
    changed_exchanges: Mapping[RecordedExchange, RecordedExchange],
) -> tuple[_Part, ...]:
    """Return parts of an interaction with other exchanges in the place of some."""
    changed_parts = []
    for part in parts:
        exchange = changed_exchanges.get(part.exchange, part.exchange)
        changed_parts.append(replace(part, exchange=exchange))

    return tuple(changed_parts)


def task_turns(steps: Sequence[TaskStep]) -> list[TaskTurn]:
    """Return the turns of a task; an answer belongs to the turn that asks for its key."""
    turns: list[TaskTurn] = []
    turn_by_key: dict[str, TaskTurn] = {}
    for index, step in enumerate(steps):
        requests: Mapping[str, InputRequest] = {}
        state = step.state
        if state is not None:
            requests = state.input_requests

        new_keys = [key for key in requests if key not in turn_by_key]
        if new_keys:
            turn = TaskTurn(index, {key: requests[key] for key in new_keys})
            turns.append(turn)
            turn_by_key |= dict.fromkeys(new_keys, turn)

        answers = step.exchange.call.answers
        if answers is None or answers.input_responses is None:
            continue

        for key, answer in answers.input_responses.items():
            if key in turn_by_key:
                turn = turn_by_key[key]
                turn.given_answers[key] = answer
                if index not in turn.answering_steps[-1:]:
                    turn.answering_steps.append(index)

    return turns


def in_conversation_order(
    interactions: Iterable[RecordedInteraction],
) -> list[RecordedInteraction]:
    """Return interactions in the order in which their first requests came.

    An edited file, or one that was recorded over, may have another order. Interactions without
    numbers, which were written by hand, come last.
    """
    return sorted(interactions, key=first_exchange_number)


def first_exchange_number(interaction: RecordedInteraction) -> float:
    """Return the lowest number of an interaction's own exchanges; infinity without any."""
    lowest_number = float("inf")
    for exchange in interaction.unshared_exchanges:
        if exchange.number is not None:
            lowest_number = min(lowest_number, exchange.number)

    return lowest_number


def run_number_by_recorder(
    by_arrival: Iterable[RecordedExchange], recorders: Iterable[RecorderFacts]
) -> dict[str, int]:
    """Return the number of the run to which each recorder belongs, from 0.

    Recorders that were merged are of one run.
    """
    appended = {recorder.id for recorder in recorders if not recorder.offset_ms}
    run_by_recorder: dict[str, int] = {}
    run_number = 0
    highest_end = 0
    for exchange in by_arrival:
        number = exchange.number or 0
        recorded_by = exchange.recorded_by
        if recorded_by is not None and recorded_by.recorder not in run_by_recorder:
            # A run that was appended is timed anew, and came when all else was over.
            is_after_all_else = number > highest_end > 0
            if is_after_all_else and recorded_by.recorder in appended:
                run_number += 1

            run_by_recorder[recorded_by.recorder] = run_number

        highest_end = max(highest_end, number, exchange.ended_after or 0)

    return run_by_recorder


# Taking interactions out of a recording


def numbers_needed_by_others(cassette: Cassette, numbers: Collection[int]) -> set[int]:
    """Return the numbered interactions without which the remaining ones can't be."""
    needed = set()
    remaining_interactions = _interactions_without(cassette, numbers)
    by_number = {call.number: call for call in cassette.interactions}
    while remaining_interactions:
        for number in numbers_of_needed_interactions(remaining_interactions.pop()):
            if number in numbers and number not in needed:
                needed.add(number)
                remaining_interactions.append(by_number[number])

    return needed


def numbers_of_needed_interactions(interaction: RecordedInteraction) -> Iterator[int]:
    """Yield the interactions that have the asks of an interaction."""
    if interaction.branch is not None:
        yield interaction.branch.of

    yield from interaction.asking_interactions


def without_interactions(cassette: Cassette, numbers: Collection[int]) -> Cassette:
    """Return a cassette without some interactions; nothing that stays is changed but its number."""
    remaining_interactions = _interactions_without(cassette, numbers)
    new_numbers = {}
    for number, interaction in enumerate(remaining_interactions, start=1):
        new_numbers[interaction.number] = number

    interactions = [
        with_new_numbers(interaction, new_numbers)
        for interaction in remaining_interactions
    ]
    return replace(cassette, interactions=tuple(interactions))


def _interactions_without(
    cassette: Cassette, numbers: Collection[int]
) -> list[RecordedInteraction]:
    """Return the interactions of a cassette that don't have these numbers."""
    interactions = cassette.interactions
    return [
        interaction for interaction in interactions if interaction.number not in numbers
    ]


def with_new_numbers(
    interaction: RecordedInteraction, numbers: Mapping[int, int]
) -> RecordedInteraction:
    """Return an interaction with new numbers for itself and for those that it refers to."""
    branch = interaction.branch
    if branch is not None:
        branch = branch._replace(of=numbers[branch.of])

    pushed_turns = []
    for turn in interaction.pushed_turns:
        pushed_requests = [
            _pushed_request_with_new_number(request, numbers)
            for request in turn.pushed_requests
        ]
        pushed_turns.append(replace(turn, pushed_requests=tuple(pushed_requests)))

    return replace(
        interaction,
        number=numbers[interaction.number],
        branch=branch,
        pushed_turns=tuple(pushed_turns),
    )


def _pushed_request_with_new_number(
    request: PushedRequest, numbers: Mapping[int, int]
) -> PushedRequest:
    """Return a pushed request with the new number of the interaction that it names, if any."""
    if request.interaction is None:
        return request
    return replace(request, interaction=numbers[request.interaction])
