"""Link retries to the asks that they answer, and steps of a task to the call that created it.

A retry is joined by request state; without one, by call and keys; otherwise it begins an
interaction of its own. Arrival order never outranks a state, so parallel identical calls don't mix.
What happened is counted in requests that had arrived; the clock only separates two things that
happened between the same two requests. Ids are spelled as clients compare them.
Source: docs/matching.md, "Linking".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from sys import intern
from typing import NamedTuple

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.cassette.sessions import (
    ends_session,
    has_rpc_response,
    is_listening_stream,
    session_of_exchange,
)
from mrtr_cassette.core.protocol.calls import NO_SESSION, Call, CallKey
from mrtr_cassette.core.protocol.dialect import InputRequired
from mrtr_cassette.core.protocol.jsonrpc import Ask, Kind, Message, message_completed_by
from mrtr_cassette.core.protocol.methods import PING, method_of
from mrtr_cassette.core.protocol.tasks import polled_state
from mrtr_cassette.core.secrets.names import sha256_of
from mrtr_cassette.core.wire.http import End, Piece, Response
from mrtr_cassette.core.wire.jsonbytes import canonical

# Facts about one exchange


class Moment(NamedTuple):
    """When something happened: how many requests had arrived, and milliseconds since the start."""

    arrived_count: int
    at_ms: float


NEVER = Moment(2**53, 0.0)
_BEFORE_ALL_OF_ITS_COUNT = -1.0
"""Milliseconds that sort a request before all else that came when as many had arrived."""


class Push(NamedTuple):
    """A request that the server sent on its own initiative."""

    id: str
    method: str
    piece_index: int
    """Index of the piece of the response that completes it."""

    moment: Moment


class TaskFacts(NamedTuple):
    """The task that a request polls, updates or cancels, by the hash of its id.

    `polled_sha256` is the same for polls with the same result, and empty without a response.
    """

    sha256: str
    is_poll: bool = False
    polled_sha256: str = ""
    is_over: bool = False


NO_TASK = TaskFacts("")


@dataclass(frozen=True, slots=True)
class ExchangeFacts:
    """Facts about one exchange."""

    session: str
    """The session's id, as written in the journal."""

    is_listening: bool
    """Its response carries messages that other requests caused."""

    request_id: str | None
    answered_push_id: str | None
    """Id of the JSON-RPC response that the client posted with this request."""

    pushes: tuple[Push, ...]
    responses: tuple[tuple[str, Moment], ...]
    """The id of each JSON-RPC response to another request, and when it came."""

    end_moment: Moment
    """When the response ended; never if it only accepts the request, and the JSON-RPC response
    comes on a listening stream."""

    is_answered: bool
    """Its response contains the JSON-RPC response to the request."""

    resumed_call_number: int | None
    """Number of the call whose stream it resumes."""

    call_sha256: str
    """The hash of its call key."""

    caller: str
    """Session and client, as far as a request tells."""

    client: str
    """The program that asks; it never answers an ask that another program received."""

    answered_keys: frozenset[str] | None
    """The keys of a retry's `inputResponses`; None if the request is not a retry."""

    echoed_hash: str | None
    """Hash of the request state that it echoes."""

    asked_keys: frozenset[str] | None
    """The keys of an ask's `inputRequests`; None if the response is not an ask."""

    issued_hashes: tuple[str, ...]
    """Hashes by which a retry may echo the state that the ask issued. An earlier cassette issues
    another state on replay than the server did."""

    asked_moment: Moment
    """When the ask was complete; only later requests can answer it."""

    creates_task: bool
    """The response creates a task; `issued` then has the hash of the task's id."""

    task: TaskFacts

    @property
    def can_be_asked(self) -> bool:
        """Whether what the server pushes on another stream may be asked for it."""
        # A step of a task is no call of its own, to which turns could belong.
        return not self.is_listening and not self.task.sha256


def facts_of(
    exchange: RecordedExchange, resumed_call_number: int | None = None
) -> ExchangeFacts:
    """Return the facts about an exchange, which may resume the stream of a call."""
    call = exchange.call
    response = exchange.response
    answered_keys = None
    echoed_hash = None
    if call.answers:
        answered_keys = frozenset(call.answers.input_responses or ())
        echoed_hash = exchange.echoed_sha256

    issued_hashes: tuple[str, ...] = ()
    if exchange.issued_sha256 is not None:
        issued_hashes = (exchange.issued_sha256,)

    ask = exchange.ask
    is_of_call = ask is not None or resumed_call_number is not None
    is_listening = not is_of_call and is_listening_stream(call, response)
    pushes: tuple[Push, ...] = ()
    responses: tuple[tuple[str, Moment], ...] = ()
    if response is not None and response.is_message_stream:
        is_shared = is_listening or resumed_call_number is not None
        pushes, responses = _pushes_and_responses_in(response, is_shared=is_shared)

    end_moment, has_response = _end_and_completeness_of_response(exchange)
    return ExchangeFacts(
        session=intern(session_of_exchange(exchange)),
        is_listening=is_listening,
        request_id=_id_if_kind(call.message, Kind.REQUEST),
        answered_push_id=_id_if_kind(call.message, Kind.RESPONSE),
        pushes=pushes,
        responses=responses,
        end_moment=end_moment,
        is_answered=has_response,
        resumed_call_number=resumed_call_number,
        call_sha256=intern(sha256_of("\n".join(call.key()))),
        caller=intern(call.caller),
        client=intern(call.client),
        answered_keys=answered_keys,
        echoed_hash=echoed_hash,
        asked_keys=None if ask is None else frozenset(ask.input_requests),
        issued_hashes=issued_hashes,
        asked_moment=_moment_of_ask(ask, response),
        creates_task=exchange.ends_elsewhere,
        task=_task_facts_of(exchange),
    )


def _id_if_kind(message: Message | None, kind: Kind) -> str | None:
    """Return the id of a message of a kind, as equal ids have it; None for any other."""
    if message is None or message.kind is not kind:
        return None
    return message.comparable_id


def _task_facts_of(exchange: RecordedExchange) -> TaskFacts:
    """Return what an exchange tells of the task that its request names."""
    call = exchange.call
    task_id = call.named_task_id if method_of(call.method).is_step else None
    if task_id is None:
        return NO_TASK

    task_hash = exchange.echoed_sha256 or sha256_of(task_id)
    is_poll = call.is_poll
    response = exchange.response
    if not is_poll or response is None:
        return TaskFacts(task_hash, is_poll=is_poll)

    message = exchange.rpc_response
    if message is None and response.end is End.OPEN:
        # The client left before the state had come.
        return TaskFacts(task_hash, is_poll=True)

    state = polled_state(message)
    if state is None:
        error = None
        if message is not None:
            error = message.tree.get("error")

        poll_outcome = f"{response.status} {canonical(error)}"
        is_over = False
    else:
        poll_outcome = state.digest
        is_over = state.is_over

    # The id is another one in each recording.
    poll_outcome = poll_outcome.replace(canonical(task_id)[1:-1], "<task>")
    return TaskFacts(
        task_hash, is_poll=True, polled_sha256=sha256_of(poll_outcome), is_over=is_over
    )


def _end_and_completeness_of_response(
    exchange: RecordedExchange,
) -> tuple[Moment, bool]:
    """Return when a response ended, and whether it has the one to its JSON-RPC request."""
    response = exchange.response
    moment = Moment(exchange.ended_after or exchange.number or 0, exchange.ended_ms)
    if response is None:
        return moment, True
    if response.is_acknowledgement and exchange.call.kind is Kind.REQUEST:
        return NEVER, False

    return moment, not response.is_message_stream or has_rpc_response(response)


def _moment_of_piece(piece: Piece) -> Moment:
    return Moment(piece.arrived_count, piece.at_ms)


def _moment_of_ask(ask: Ask | None, response: Response | None) -> Moment:
    """Return when an ask was complete; never if a response asks nothing."""
    if ask is None or response is None:
        return NEVER
    return _moment_of_piece(response.pieces[ask.piece])


def _pushes_and_responses_in(
    response: Response, *, is_shared: bool
) -> tuple[tuple[Push, ...], tuple[tuple[str, Moment], ...]]:
    """Return the requests that a stream pushes, and its responses to other requests than its own.

    It is shared if it carries what other requests caused.
    """
    pushes: list[Push] = []
    responses: list[tuple[str, Moment]] = []
    for index, piece in enumerate(response.pieces):
        # In the stream of a call, a message with an id and no method is the response to the call.
        is_of_interest = is_shared or b'"method"' in piece.raw
        if b'"id"' not in piece.raw or not is_of_interest:
            continue

        message = message_completed_by(response, index)
        if message is None or message.comparable_id is None:
            continue

        message_id = message.comparable_id
        moment = _moment_of_piece(piece)
        if message.kind is Kind.REQUEST and message.method != PING:
            method = intern(message.method)
            pushes.append(Push(intern(message_id), method, index, moment))
        elif message.kind is Kind.RESPONSE and is_shared:
            responses.append((message_id, moment))

    return tuple(pushes), tuple(responses)


# The ends of sessions


def streams_opened_while_closing(
    exchanges: Mapping[int, RecordedExchange], facts: Mapping[int, ExchangeFacts]
) -> list[int]:
    """Return the streams that clients tried to open or to resume while they ended their session.

    It is chance whether a client comes back before its DELETE, after it, or not at all.
    """
    ended_sessions = set()
    for number, exchange in exchanges.items():
        if ends_session(exchange.request, exchange.response):
            ended_sessions.add(facts[number].session)

    ended_sessions.discard(NO_SESSION)
    last_number_by_session: dict[str, int] = {}
    sessions_with_stream: set[str] = set()
    reopened_streams: list[int] = []
    for number, exchange_facts in facts.items():
        session = exchange_facts.session
        method = exchanges[number].request.method
        if session not in ended_sessions or method == "DELETE":
            continue

        is_reopening = False
        if method == "GET":
            is_reopening = _reopens_stream(exchange_facts, facts, sessions_with_stream)

        if is_reopening and _has_no_message(exchanges[number].response):
            reopened_streams.append(number)
        else:
            last_number_by_session[session] = number

    streams_after_last_request = []
    for number in reopened_streams:
        if number > last_number_by_session[facts[number].session]:
            streams_after_last_request.append(number)

    return streams_after_last_request


def _reopens_stream(
    get_facts: ExchangeFacts,
    facts: Mapping[int, ExchangeFacts],
    sessions_with_stream: set[str],
) -> bool:
    """Tell whether a GET seeks a stream that is over; note that its session has a stream."""
    if get_facts.resumed_call_number is not None:
        return facts[get_facts.resumed_call_number].is_answered

    is_reopening = get_facts.session in sessions_with_stream
    sessions_with_stream.add(get_facts.session)
    return is_reopening


def _has_no_message(response: Response | None) -> bool:
    """Tell whether a response has no message."""
    if response is None:
        return True
    if response.is_event_stream:
        return b"jsonrpc" not in response.body
    return response.status >= 400


# Retries and asks


@dataclass(slots=True, eq=False)
class LinkedInteraction:
    """The exchanges of one interaction, by number, from the first request to the last response."""

    exchange_numbers: list[int]
    branch_of: LinkedInteraction | None = None
    """The interaction that has the first exchanges too."""

    shared_count: int = 0
    """How many exchanges are shared with that interaction."""

    is_orphan: bool = False
    """It begins with a retry that answers no recorded ask."""

    poll_counts_by_step: dict[int, int] = field(default_factory=dict)
    """Steps of the task that the last response creates, and how many polls got the same."""

    @property
    def unshared_numbers(self) -> list[int]:
        """The exchanges that no other interaction had before."""
        return self.exchange_numbers[self.shared_count :]


class _Ask(NamedTuple):
    """An ask in its interaction; `position` counts the exchanges up to and with it."""

    facts: ExchangeFacts
    interaction: LinkedInteraction
    position: int

    @property
    def is_answered(self) -> bool:
        """Whether its interaction goes on."""
        exchange_count = len(self.interaction.exchange_numbers)
        return self.position < exchange_count


class _Asks:
    """All asks so far, by call, and by the state that a retry echoes or else the client."""

    def __init__(self) -> None:
        self._asks_by_call_and_mark: dict[tuple[str, str], list[_Ask]] = {}

    def add_ask(self, ask: _Ask) -> None:
        """Take an ask."""
        facts = ask.facts
        marks = [f"state {state_hash}" for state_hash in facts.issued_hashes]
        if not marks:
            marks = [f"client {facts.client}"]

        for mark in marks:
            self._asks_by_call_and_mark.setdefault(
                (facts.call_sha256, mark), []
            ).append(ask)

    def ask_answered_by(self, number: int, facts: ExchangeFacts) -> _Ask | None:
        """Return the ask that a retry answers.

        Equal asks come from servers that keep no state, or the same one for all. Of these the open
        ones come first, the caller's before those of others, then the oldest; then the last of
        those that have an answer.
        """
        if facts.echoed_hash is None:
            call_and_mark = (facts.call_sha256, f"client {facts.client}")
            answered_keys = facts.answered_keys or frozenset()
        else:
            call_and_mark = (facts.call_sha256, f"state {facts.echoed_hash}")
            answered_keys = frozenset()

        asks_with_mark = self._asks_by_call_and_mark.get(call_and_mark, [])
        candidates: list[_Ask] = []
        for ask in asks_with_mark:
            has_keys = answered_keys <= (ask.facts.asked_keys or frozenset())
            if has_keys and ask.facts.asked_moment.arrived_count < number:
                candidates.append(ask)

        if not candidates:
            return None

        chosen_ask = _oldest_open_ask(candidates, facts.caller) or candidates[-1]
        self._asks_by_call_and_mark[call_and_mark] = _asks_with_chosen_last(
            asks_with_mark, chosen_ask
        )
        return chosen_ask


def _oldest_open_ask(asks: Iterable[_Ask], caller: str) -> _Ask | None:
    """Return the oldest ask without an answer, one of this caller if there is any."""

    def callers_own_first_then_oldest(ask: _Ask) -> tuple[bool, int]:
        return (ask.facts.caller != caller, ask.facts.asked_moment.arrived_count)

    unanswered = [ask for ask in asks if not ask.is_answered]
    return min(unanswered, key=callers_own_first_then_oldest, default=None)


def _asks_with_chosen_last(asks: Iterable[_Ask], chosen_ask: _Ask) -> list[_Ask]:
    """Return asks with the chosen one last, without those that would never be chosen any more.

    These have an answer, and the same keys as the chosen one.
    """
    remaining_asks: list[_Ask] = []
    for ask in asks:
        has_same_keys = ask.facts.asked_keys == chosen_ask.facts.asked_keys
        is_outranked = ask.is_answered and has_same_keys
        if ask is not chosen_ask and not is_outranked:
            remaining_asks.append(ask)

    remaining_asks.append(chosen_ask)
    return remaining_asks


def linked_interactions(
    exchanges: Mapping[int, ExchangeFacts],
    earlier: Sequence[LinkedInteraction],
    earlier_facts: Mapping[int, ExchangeFacts],
) -> list[LinkedInteraction]:
    """Return the interactions that begin here, by their first requests; earlier ones may grow.

    Polls of a task that got nothing new are in none of them.
    """
    builder = _InteractionBuilder(earlier_facts)
    for interaction in earlier:
        builder.add_earlier_interaction(interaction)

    for number, facts in exchanges.items():
        builder.add_exchange(number, facts)

    return builder.new_interactions()


class _InteractionBuilder:
    """The interactions of a recording while its exchanges are taken in their order."""

    def __init__(self, facts: Mapping[int, ExchangeFacts]) -> None:
        self._facts = dict(facts)
        self._asks = _Asks()
        self._task_owners: dict[str, LinkedInteraction] = {}
        self._steps_by_interaction: dict[LinkedInteraction, list[int]] = {}
        self._interactions: list[LinkedInteraction] = []

    def add_earlier_interaction(self, interaction: LinkedInteraction) -> None:
        """Take an interaction of an earlier recording."""
        first_position = interaction.shared_count + 1
        numbers = interaction.unshared_numbers
        for position, number in enumerate(numbers, start=first_position):
            facts = self._facts[number]
            if facts.asked_keys is not None:
                self._asks.add_ask(_Ask(facts, interaction, position))

        last_facts = self._facts[interaction.exchange_numbers[-1]]
        if last_facts.creates_task:
            self._note_task_owner(last_facts, interaction)

    def add_exchange(self, number: int, facts: ExchangeFacts) -> None:
        """Take the next exchange."""
        self._facts[number] = facts
        task_owner = self._task_owners.get(facts.task.sha256)
        if task_owner is not None:
            self._steps_by_interaction.setdefault(task_owner, []).append(number)
            return

        interaction = _interaction_of_exchange(number, facts, self._asks)
        is_new = len(interaction.unshared_numbers) == 1
        if is_new:
            self._interactions.append(interaction)

        if facts.asked_keys is not None:
            self._asks.add_ask(
                _Ask(facts, interaction, len(interaction.exchange_numbers))
            )

        if facts.creates_task:
            self._note_task_owner(facts, interaction)

    def _note_task_owner(
        self, facts: ExchangeFacts, interaction: LinkedInteraction
    ) -> None:
        """Take the task that the response of an interaction creates."""
        for sha256 in facts.issued_hashes:
            self._task_owners[sha256] = interaction

    def new_interactions(self) -> list[LinkedInteraction]:
        """Return the interactions that begin here, by their first requests."""
        for interaction, step_numbers in self._steps_by_interaction.items():
            _add_task_steps(interaction, step_numbers, self._facts)

        def first_and_own_number(interaction: LinkedInteraction) -> tuple[int, int]:
            return interaction.exchange_numbers[0], interaction.unshared_numbers[0]

        return sorted(self._interactions, key=first_and_own_number)


def _interaction_of_exchange(
    number: int, facts: ExchangeFacts, asks: _Asks
) -> LinkedInteraction:
    """Return the interaction that an exchange goes on with, or a new one that it begins."""
    if facts.answered_keys is None:
        return LinkedInteraction([number])

    ask = asks.ask_answered_by(number, facts)
    if ask is None:
        return LinkedInteraction([number], is_orphan=True)

    asking_interaction = ask.interaction
    if not ask.is_answered:
        asking_interaction.exchange_numbers.append(number)
        return asking_interaction

    branch_numbers = [*asking_interaction.exchange_numbers[: ask.position], number]
    return LinkedInteraction(
        branch_numbers, asking_interaction, ask.position, asking_interaction.is_orphan
    )


def _add_task_steps(
    interaction: LinkedInteraction,
    step_numbers: Iterable[int],
    facts: Mapping[int, ExchangeFacts],
) -> None:
    """Add to a task what clients did to it, in the order in which they did it and saw states."""

    def moment_of_step(number: int) -> Moment:
        if facts[number].task.is_poll:
            return facts[number].end_moment
        return Moment(number, _BEFORE_ALL_OF_ITS_COUNT)

    poll_counts = interaction.poll_counts_by_step
    poll_numbers = [number for number in poll_counts if facts[number].task.is_poll]
    for number in sorted(step_numbers, key=moment_of_step):
        task = facts[number].task
        if not task.is_poll:
            poll_counts[number] = 1
            continue

        last_poll = facts[poll_numbers[-1]].task if poll_numbers else NO_TASK
        if task.polled_sha256 and task.polled_sha256 == last_poll.polled_sha256:
            poll_counts[poll_numbers[-1]] += 1
        elif task.polled_sha256 and not last_poll.is_over:
            poll_counts[number] = 1
            poll_numbers.append(number)


class LiveAsks:
    """The unanswered asks without state that a live server has made in this run.

    Their answers could be confused with answers to a recorded ask of the same call, which may have
    asked something else.
    """

    def __init__(self) -> None:
        self._open_ask_keys: dict[CallKey, list[frozenset[str]]] = {}
        """The keys of their questions."""

    def add_ask(self, call: Call, ask: InputRequired) -> None:
        """Take what a live server asked during a call."""
        if ask.request_state is None:
            keys = frozenset(ask.input_requests)
            open_asks = self._open_ask_keys.setdefault(call.key(), [])
            open_asks.append(keys)

    def close_answered_ask(self, call: Call) -> bool:
        """Tell whether a request may answer one of them, which is no longer open then."""
        answers = call.answers
        if answers is None or answers.request_state is not None:
            return False

        open_asks = self._open_ask_keys.get(call.key(), [])
        answered_keys = set(answers.input_responses or ())
        for keys in open_asks:
            if answered_keys <= keys:
                open_asks.remove(keys)
                return True

        return False
