"""Accept new responses of a live server into a cassette."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Final, NamedTuple

from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    PushedRequest,
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
    TaskStep,
)
from mrtr_cassette.core.cassette.sessions import opened_session
from mrtr_cassette.core.cassette.texts import exchange_with_changed_texts
from mrtr_cassette.core.cassette.transports import response_over_http
from mrtr_cassette.core.compare.responses import (
    comparable_text,
    renamed_keys_in_changes,
)
from mrtr_cassette.core.compare.values import Change, Verdict
from mrtr_cassette.core.drive.kept_names import (
    KeptNames,
    name_of_new_state,
    text_change_to_recorded_names,
    with_times_of,
)
from mrtr_cassette.core.drive.live_session import GENERATED_ID, with_body
from mrtr_cassette.core.drive.script import LivePair, LivePush, without_turn_numbers
from mrtr_cassette.core.drive.verification import (
    Accepts,
    VerifiedInteraction,
    why_not_compared_after,
)
from mrtr_cassette.core.protocol.calls import NO_SESSION
from mrtr_cassette.core.protocol.dialect import with_answer_keys
from mrtr_cassette.core.protocol.jsonrpc import (
    ID_PATH,
    Kind,
    LocatedMessage,
    messages_in,
    splice_pieces,
)
from mrtr_cassette.core.protocol.methods import PING
from mrtr_cassette.core.wire.jsonbytes import Span, find_spans
from mrtr_cassette.core.wire.pointers import members_of

ACCEPTABLE_VERDICTS: Final[tuple[Verdict, ...]] = (
    "text-changed",
    "shape-changed",
    "surface-changed",
    "key-changed",
    "error-changed",
    "refused",
    "rounds-changed",
    "question-changed",
)
"""The verdicts that can be accepted."""

_UNCOMPARED_VERDICTS: Final = frozenset({"skipped", "not-reached", "unstable"})
_INTERNAL_ERROR: Final = -32603
_LOWEST_SERVER_ERROR: Final = 500
"""The lowest HTTP status of a server that failed."""


class TakenResponse(NamedTuple):
    """A live response, and the recorded exchange whose response it replaces.

    Attributes:
        new_keys: the new keys of its questions by the recorded ones; None for a question that is
            gone.
        retry: the recorded exchange whose request answers it.
        recorded_keys: the recorded keys of a task's questions by the live ones.
        replacing: requests that the server pushes in it, and the recorded ones that they replace.
    """

    recorded: RecordedExchange
    live: RecordedExchange
    new_keys: Mapping[str, str | None] = {}
    retry: RecordedExchange | None = None
    recorded_keys: Mapping[str, str] = {}
    replacing: tuple[tuple[LocatedMessage, PushedRequest], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A live response that can replace a recorded one, or a whole conversation that can.

    Attributes:
        turns: the turns that differ, from 1, or 0 for the final response.
        problem: why it can't be accepted; None if it can.
        recorded_by_live_hash: the recorded request state or session id by the SHA-256 of the live
            one.
        course: what the interaction becomes if it has more or fewer turns, or another order. Its
            exchanges are the recorded ones; its pushed requests have the places that they have in
            the live responses.
    """

    number: int
    call: str
    turns: tuple[int, ...]
    changes: tuple[Change, ...]
    problem: str | None = None
    taken: tuple[TakenResponse, ...] = ()
    recorded_by_live_hash: Mapping[str, str] = field(default_factory=dict)
    course: RecordedInteraction | None = None

    @property
    def first_turn(self) -> int:
        """The first turn that differs."""
        return self.turns[0]

    @property
    def counting_changes(self) -> tuple[Change, ...]:
        """The changes that are more than information."""
        counting_changes = []
        for change in self.changes:
            if not change.is_information:
                counting_changes.append(change)

        return tuple(counting_changes)

    @property
    def verdicts(self) -> set[Verdict]:
        """The verdicts of these changes."""
        return {change.verdict for change in self.counting_changes}

    @property
    def ends_at_question(self) -> bool:
        """Whether it ends at a question that was not pushed, for which no answer is recorded."""
        if self.course is None:
            return False

        last_live = self.taken[-1].live
        if last_live.ask is not None:
            return True

        state = last_live.polled_state
        return state is not None and bool(state.input_requests)

    @property
    def is_breakdown(self) -> bool:
        """Whether the live server broke down, which is hardly what it is meant to say."""
        if not self.taken:
            return False

        last_live = self.taken[-1].live
        status = 0 if last_live.response is None else last_live.response.status
        if status >= _LOWEST_SERVER_ERROR:
            return True

        error = members_of(last_live.rpc_members.get("error"))
        return error.get("code") == _INTERNAL_ERROR


ChooseProposals = Callable[[Sequence[Proposal]], Sequence[Proposal]]
"""Returns which of the proposals are accepted."""


def turn_accepter(cassette: Cassette, choose: ChooseProposals) -> Accepts:
    """Return a function that tells, during a conversation, whether a turn of it is accepted."""

    def accepts_turn(verified: VerifiedInteraction, turn: int) -> bool:
        chosen_proposals = choose(_proposals_of(cassette, verified))
        return any(turn in proposal.turns for proposal in chosen_proposals)

    return accepts_turn


def accepted_by_verdict(
    proposed: Iterable[Proposal], verdicts: Collection[str]
) -> list[Proposal]:
    """Return the proposals that are accepted because of the verdicts of their changes."""
    return [
        proposal
        for proposal in proposed
        if _is_accepted_by_verdicts(proposal, verdicts)
    ]


def _is_accepted_by_verdicts(proposal: Proposal, verdicts: Collection[str]) -> bool:
    """Tell whether a proposal can be accepted, and its changes have these verdicts."""
    if proposal.problem is not None or proposal.is_breakdown:
        return False
    if not proposal.verdicts <= set(verdicts):
        return False
    return any(change.verdict in verdicts for change in proposal.changes)


def proposals_for_cassette(
    cassette: Cassette, verified: Iterable[VerifiedInteraction]
) -> list[Proposal]:
    """Return all that can be accepted into a cassette, in the order of the verdicts."""
    proposed = []
    for interaction in verified:
        if interaction.verdict not in _UNCOMPARED_VERDICTS:
            proposed += _proposals_of(cassette, interaction)

    return proposed


def _proposals_of(cassette: Cassette, verified: VerifiedInteraction) -> list[Proposal]:
    """Return a proposal for each turn that differs, or one for the whole conversation."""
    if not verified.changes:
        return []

    repetition = _repetition_in_cassette(cassette, verified)
    if _is_accepted_only_as_whole(repetition):
        return [_ConversationProposal(repetition).whole_proposal()]

    return [_turn_proposal(repetition, turn) for turn in repetition.differing_turns]


class _RepeatedConversation(NamedTuple):
    """A conversation that was repeated with the live server, as it would be in the cassette.

    Attributes:
        pairs: the live responses, each with the cassette's exchange that it corresponds to.
    """

    cassette: Cassette
    interaction: RecordedInteraction
    verified: VerifiedInteraction
    pairs: Sequence[LivePair]

    @property
    def differing_turns(self) -> tuple[int, ...]:
        """The turns that differ."""
        return tuple(dict.fromkeys(turn for turn, _ in self.verified.changes))


def _repetition_in_cassette(
    cassette: Cassette, verified: VerifiedInteraction
) -> _RepeatedConversation:
    """Return a repeated conversation with the live responses as the cassette would have them."""
    interaction = cassette.interactions[verified.number - 1]
    # The conversation was repeated over the transport of the live server.
    repeated_exchanges = _exchanges_with_steps(verified.planned.interaction)
    exchanges_in_file = _exchanges_with_steps(interaction)
    recorded_by_repeated = dict(
        zip(repeated_exchanges, exchanges_in_file, strict=False)
    )
    pairs = []
    for pair in verified.findings.response_pairs:
        live = pair.live
        if cassette.transport == "http":
            live = response_over_http(live)

        replaced = recorded_by_repeated[pair.recorded]
        pairs.append(pair._replace(recorded=replaced, live=live))

    return _RepeatedConversation(cassette, interaction, verified, pairs)


def _exchanges_with_steps(interaction: RecordedInteraction) -> list[RecordedExchange]:
    """Return the exchanges of an interaction, then those of the steps of its task."""
    exchanges = list(interaction.exchanges)
    for step in interaction.steps:
        exchanges.append(step.exchange)

    return exchanges


def _is_accepted_only_as_whole(repetition: _RepeatedConversation) -> bool:
    """Tell whether a conversation can't be accepted turn by turn."""
    if not repetition.pairs:
        return False
    if repetition.verified.findings.takes_other_course:
        return True

    for pair in repetition.pairs:
        if pair.live.ends_elsewhere:
            return True
        if _questions_pushed_in(pair.live):
            return True

    for exchange in repetition.interaction.exchanges:
        if _questions_pushed_in(exchange):
            return True

    return False


# One turn


def _turn_proposal(repetition: _RepeatedConversation, turn: int) -> Proposal:
    """Return the proposal of the response that asks a turn, or of the final one."""
    verified = repetition.verified
    changes = []
    for changed_turn, change in verified.changes:
        if changed_turn == turn:
            changes.append(change)

    proposal = Proposal(
        verified.number,
        verified.call,
        (turn,),
        tuple(changes),
        recorded_by_live_hash=verified.findings.recorded_by_live_hash,
    )

    if verified.diverged_call_number is not None:
        return replace(
            proposal, problem=why_not_compared_after(verified.diverged_call_number)
        )

    recorded = _exchange_that_asks_turn(repetition.interaction, turn)
    if recorded is None:
        asked_on_other_stream = "the server asks it on another stream: record it again"
        return replace(proposal, problem=asked_on_other_stream)

    last_pair = None
    for pair in repetition.pairs:
        if pair.recorded is recorded:
            last_pair = pair

    if last_pair is None or last_pair.live.response is None:
        return replace(proposal, problem="the live server gave no response")

    retry = _retry_that_answers(repetition.interaction, recorded)
    taken_response = _taken_response(recorded, last_pair, changes, retry)
    problem = next(_objections_to_taking(taken_response, recorded), None)

    return replace(proposal, problem=problem, taken=(taken_response,))


def _exchange_that_asks_turn(
    interaction: RecordedInteraction, turn: int
) -> RecordedExchange | None:
    """Return the exchange whose response asks a turn, or ends the call for turn 0."""
    if turn == 0:
        return interaction.ending_exchange

    for position, exchange in enumerate(interaction.exchanges):
        if interaction.asking_turn(position) == turn:
            return exchange

    return None


def _retry_that_answers(
    interaction: RecordedInteraction, asking_exchange: RecordedExchange
) -> RecordedExchange | None:
    """Return the exchange whose request answers another one of the same interaction."""
    for recorded, retry in pairwise(interaction.exchanges):
        if recorded is asking_exchange:
            return retry

    return None


def _taken_response(
    replaced: RecordedExchange,
    pair: LivePair,
    changes: Iterable[Change],
    retry: RecordedExchange | None,
) -> TakenResponse:
    """Return a live response as it is accepted in place of a recorded one."""
    new_keys = _new_keys_by_recorded(pair.recorded, pair.live, changes)
    return TakenResponse(replaced, pair.live, new_keys, retry, pair.keys)


def _new_keys_by_recorded(
    recorded: RecordedExchange, live: RecordedExchange, changes: Iterable[Change]
) -> dict[str, str | None]:
    """Return the new keys of a live ask by the recorded ones; None for a question that is gone."""
    new_keys: dict[str, str | None] = {}
    new_keys.update(renamed_keys_in_changes(changes))
    if recorded.ask is None or live.ask is None:
        return new_keys

    asked_texts = set(map(comparable_text, live.ask.input_requests))
    for key in recorded.ask.input_requests:
        if key not in new_keys and comparable_text(key) not in asked_texts:
            new_keys[key] = None

    return new_keys


def _objections_to_taking(
    taken_response: TakenResponse, recorded: RecordedExchange
) -> Iterator[str]:
    """Yield why a live response can't be accepted, which corresponds to a recorded one."""
    yield from _objections_to_response(taken_response.recorded, taken_response.live)
    if taken_response.retry is not None:
        yield from _objections_to_ask(
            recorded, taken_response.live, taken_response.new_keys
        )


def _objections_to_response(
    replaced: RecordedExchange, live: RecordedExchange
) -> Iterator[str]:
    """Yield why a live response can't replace a recorded one."""
    opened_before = opened_session(replaced.response) != NO_SESSION
    opens_now = opened_session(live.response) != NO_SESSION
    if opened_before != opens_now:
        yield "a session came or went: record it again"

    repeated_ids: set[bytes] = set()
    if live.response is not None:
        body = live.response.body
        repeated_ids.update(GENERATED_ID.findall(body))

    recorded_ids = set(GENERATED_ID.findall(replaced.request.body))
    if not repeated_ids <= recorded_ids:
        yield "it repeats the id that another request of this comparison had"

    if replaced.rpc_response is None and live.rpc_response is not None:
        yield "its response is in a resumed stream: record it again"


def _objections_to_ask(
    recorded: RecordedExchange,
    live: RecordedExchange,
    new_keys: Mapping[str, str | None],
) -> Iterator[str]:
    """Yield why the recorded answer doesn't fit a live ask."""
    recorded_ask = recorded.ask
    live_ask = live.ask
    if recorded_ask is None or live_ask is None:
        return

    had_state = recorded_ask.request_state is not None
    has_state = live_ask.request_state is not None
    if had_state != has_state:
        yield "a request state came or went, which the recorded answer has to repeat"

    asked_in = live_ask.dialect
    answered_in = recorded_ask.dialect
    if asked_in != answered_in:
        yield f"the server asks in the dialect {asked_in}, and the answer is in {answered_in}"

    answered_keys = {*recorded_ask.input_requests, *new_keys.values()}
    unanswered_keys = set(live_ask.input_requests) - answered_keys
    if unanswered_keys:
        yield f"no answer is recorded for {', '.join(sorted(unanswered_keys))}"


# A whole conversation

_PushedInResponse = tuple[LocatedMessage, LivePush]
"""A request that is pushed in a live response, and the recorded question that it asks."""

_UNRECORDED_TURN: Final = PushedTurn(0, (), ())
"""Stands for a turn that was not recorded."""


class _ConversationProposal:
    """Collects the proposal of a conversation that is accepted as a whole."""

    def __init__(self, repetition: _RepeatedConversation) -> None:
        self._repetition = repetition
        self._interaction = repetition.interaction
        self._changes = without_turn_numbers(repetition.verified.changes)
        self._call_pairs: list[LivePair] = []
        """The responses to the call and to its retries."""
        self._poll_pairs: list[LivePair] = []
        """The states of the task that the call has become."""
        for pair in repetition.pairs:
            if pair.recorded.call.is_poll:
                self._poll_pairs.append(pair)
            else:
                self._call_pairs.append(pair)

        self._recorded_by_live_hash = repetition.verified.findings.recorded_by_live_hash
        self._taken_responses: list[TakenResponse] = []
        self._objections: list[str] = []
        """Why it can't be accepted; the first one is told."""

    def whole_proposal(self) -> Proposal:
        """Return the proposal."""
        verified = self._repetition.verified
        if verified.diverged_call_number is not None:
            self._objections.append(
                why_not_compared_after(verified.diverged_call_number)
            )

        self._take_call_responses()
        self._object_to_unanswered_last_push()
        exchanges = tuple([response.recorded for response in self._taken_responses])
        self._object_to_other_branches()
        self._name_state_of_last_question()
        steps: tuple[TaskStep, ...] = ()
        if self._taken_responses[-1].live.ends_elsewhere:
            self._object_to_replaced_task()
            steps = self._take_task_states()

        course = replace(
            self._interaction,
            exchanges=exchanges,
            pushed_turns=self._take_pushed_turns(),
            steps=steps,
        )
        return Proposal(
            verified.number,
            verified.call,
            self._repetition.differing_turns,
            tuple(self._changes),
            next(iter(self._objections), None),
            tuple(self._taken_responses),
            self._recorded_by_live_hash,
            course,
        )

    def _take_call_responses(self) -> None:
        """Take the responses to the call and to its retries."""
        replaced: RecordedExchange | None = self._interaction.exchanges[0]
        for pair in self._call_pairs:
            if replaced is None:
                return

            retry = None
            if pair is not self._call_pairs[-1]:
                retry = _retry_that_answers(self._interaction, pair.recorded)

            taken_response = _taken_response(replaced, pair, self._changes, retry)
            self._taken_responses.append(taken_response)
            self._objections += _objections_to_taking(taken_response, pair.recorded)
            replaced = retry

    def _object_to_unanswered_last_push(self) -> None:
        """Object if it ends at a pushed question without a recorded answer: none can be added."""
        pushes = self._repetition.verified.findings.pushes
        is_left = self._taken_responses[-1].live.rpc_response is None
        if is_left and pushes and not pushes[-1].recorded_key:
            self._objections.append(
                "the server pushes a question without a recorded answer: record it again"
            )

    def _object_to_other_branches(self) -> None:
        """Object if another interaction has some of the exchanges too."""
        numbers_with_branches = set()
        for interaction in self._repetition.cassette.interactions:
            if interaction.branch is not None:
                numbers_with_branches |= {
                    interaction.number,
                    interaction.branch.of,
                }

        if self._interaction.number in numbers_with_branches:
            self._objections.append(
                "other branches answer a question of it: record it again"
            )

    def _name_state_of_last_question(self) -> None:
        """Give the state of a question that ends the conversation a name."""
        last = self._taken_responses[-1].live
        if last.ask is None or last.issued_sha256 is None:
            return

        cassette = self._repetition.cassette
        name = name_of_new_state(cassette, self._interaction)
        self._recorded_by_live_hash[last.issued_sha256] = name
        if cassette.request_state == "verbatim":
            self._objections.append(
                "its request states are kept as they are: record it again"
            )

    def _object_to_replaced_task(self) -> None:
        """Object if the states of the task can't replace the recorded ones."""
        recorded = self._replaced_exchanges
        if not self._interaction.created_task_id:
            self._objections.append(
                "the server makes a task of the call now: record it again"
            )
        elif len(set(recorded)) < len(recorded):
            self._objections.append("the task asks in several parts: record it again")

    @property
    def _replaced_exchanges(self) -> list[RecordedExchange]:
        """The recorded exchanges whose responses are replaced."""
        return [pair.recorded for pair in self._repetition.pairs]

    def _take_task_states(self) -> tuple[TaskStep, ...]:
        """Take the states of the task; return the recorded steps that stay."""
        asked_keys: set[str] = set()
        for pair in self._poll_pairs:
            response = TakenResponse(pair.recorded, pair.live, recorded_keys=pair.keys)
            self._taken_responses.append(response)
            asked_keys.update(pair.keys.values())

        replaced_exchanges = self._replaced_exchanges
        steps = []
        for step in self._interaction.steps:
            answered_keys = _keys_answered_by(step)
            is_needed = not answered_keys.isdisjoint(asked_keys)
            is_answered_in_part = is_needed and not answered_keys <= asked_keys
            if step.is_cancellation or is_answered_in_part:
                self._objections.append(
                    "its client answers it differently: record it again"
                )

            is_at_work = step.state is not None and step.state.is_at_work
            if step.exchange in replaced_exchanges or is_at_work or is_needed:
                steps.append(step)

        return tuple(steps)

    def _take_pushed_turns(self) -> tuple[PushedTurn, ...]:
        """Return the turns that the server pushes now, with the recorded answers."""
        pushes = iter(self._repetition.verified.findings.pushes)
        pushes_elsewhere = self._asks_on_other_streams
        turns: list[PushedTurn] = []
        for position, response in enumerate(self._taken_responses):
            located = _questions_pushed_in(response.live)
            pushed_messages = list(zip(located, pushes, strict=False))
            if len(pushed_messages) < len(located):
                pushes_elsewhere = True

            turns += self._pushed_turns_at(position, pushed_messages)

        if pushes_elsewhere or next(pushes, None) is not None:
            self._objections.append(
                "the server pushed a question elsewhere: record it again"
            )

        return tuple(turns)

    @property
    def _asks_on_other_streams(self) -> bool:
        """Whether the server pushes or pushed something on another stream than the call's."""
        if self._repetition.verified.planned.part == "listening":
            return True
        return bool(self._interaction.asking_interactions)

    def _pushed_turns_at(
        self, position: int, pushed_messages: Iterable[_PushedInResponse]
    ) -> list[PushedTurn]:
        """Return the turns of the requests that are pushed in the response at a position.

        The response gets those that take the places of recorded ones.
        """
        response = self._taken_responses[position]
        turns = []
        replaced_requests: list[tuple[LocatedMessage, PushedRequest]] = []
        for number, group in groupby(pushed_messages, _turn_of_push):
            recorded = self._interaction.numbered_turns.get(number, _UNRECORDED_TURN)
            recorded_by_key = {
                request.key: request for request in recorded.pushed_requests
            }
            pushed_requests = []
            for located, push in group:
                key = push.recorded_key or push.live_key
                pushed_requests.append(
                    PushedRequest(key, response.recorded, located.piece)
                )
                if push.recorded_key in recorded_by_key:
                    replaced_requests.append(
                        (located, recorded_by_key[push.recorded_key])
                    )

            keys = {request.key for request in pushed_requests}
            answers = [answer for answer in recorded.answers if answer.key in keys]
            turns.append(PushedTurn(position, tuple(pushed_requests), tuple(answers)))

        self._taken_responses[position] = response._replace(
            replacing=tuple(replaced_requests)
        )
        return turns


def _turn_of_push(pushed: _PushedInResponse) -> int:
    """Return the recorded turn that asks the same as a pushed request, or else a new turn."""
    _, push = pushed
    return push.turn


def _questions_pushed_in(exchange: RecordedExchange) -> list[LocatedMessage]:
    """Return the questions that the server pushed in a response."""
    if exchange.response is None:
        return []

    pushed_messages = []
    for located in messages_in(exchange.response):
        message = located.message
        if message.kind is Kind.REQUEST and message.method != PING:
            pushed_messages.append(located)

    return pushed_messages


def _keys_answered_by(step: TaskStep) -> set[str]:
    """Return the keys of the questions that a step of a task answers."""
    answers = step.exchange.call.answers
    if answers is None:
        return set()
    return set(answers.input_responses or ())


# The new file

_NewExchanges = dict[RecordedExchange, RecordedExchange]
"""The recorded exchanges that change, and what becomes of them."""


def updated_cassette_file(
    data: bytes, cassette: Cassette, proposed: Collection[Proposal]
) -> bytes:
    """Return the file of a cassette with the accepted responses of a live server in it.

    The recorded answers get the keys that equal questions have now. A conversation that takes
    another course has the requests that answer its questions now, and ends where it ends now.
    """
    new_exchanges = _with_live_responses(KeptNames(data), proposed)
    _give_answers_new_keys(proposed, new_exchanges)
    courses = {proposal.number: proposal.course for proposal in proposed}
    interactions = []
    for recorded in cassette.interactions:
        course = courses.get(recorded.number)
        if course is None:
            interactions.append(recorded)
            continue

        _number_exchanges_in_order(course, new_exchanges)
        for exchange in course.exchanges:
            new_exchanges[exchange] = _exchange_after_answers(
                exchange, course.pushed_turns, new_exchanges
            )

        interactions.append(course)

    changed_cassette = replace(cassette, interactions=tuple(interactions))
    return dump(changed_cassette.with_exchanges(new_exchanges))


def _with_live_responses(
    kept_names: KeptNames, proposed: Iterable[Proposal]
) -> _NewExchanges:
    """Return the recorded exchanges that get new responses, and the same with these."""
    new_exchanges: _NewExchanges = {}
    for proposal in proposed:
        for response in proposal.taken:
            recorded = _updated_exchange(
                response, proposal.recorded_by_live_hash, kept_names
            )
            new_exchanges[response.recorded] = recorded

    return new_exchanges


def _give_answers_new_keys(proposed: Iterable[Proposal], new: _NewExchanges) -> None:
    """Give the recorded answers the keys under which the server asks now."""
    for proposal in proposed:
        for response in proposal.taken:
            retry = response.retry
            if response.new_keys and retry is not None:
                body = with_answer_keys(retry.request.body, response.new_keys)
                request = with_body(retry.request, body)
                new_retry = new.get(retry, retry)
                new[retry] = replace(new_retry, request=request)


def _number_exchanges_in_order(course: RecordedInteraction, new: _NewExchanges) -> None:
    """Number the exchanges of a conversation that takes another course in its order."""
    ordered_exchanges = []
    for position, exchange in enumerate(course.exchanges):
        ordered_exchanges.append(exchange)
        for turn in course.pushed_turns:
            if turn.position == position:
                ordered_exchanges += [answer.exchange for answer in turn.answers]

    numbers = []
    for exchange in ordered_exchanges:
        if exchange.number is None:
            return

        numbers.append(exchange.number)

    for exchange, number in zip(ordered_exchanges, sorted(numbers), strict=True):
        if exchange.number != number:
            new_exchange = new.get(exchange, exchange)
            new[exchange] = replace(new_exchange, number=number)


def _exchange_after_answers(
    exchange: RecordedExchange, turns: Iterable[PushedTurn], new: _NewExchanges
) -> RecordedExchange:
    """Return a new exchange in whose response all comes after the answers it depends on."""
    new_exchange = new[exchange]
    response = new_exchange.response
    last_answer_by_piece = _last_answers_by_piece(exchange, turns, new)
    if response is None or new_exchange.number is None or not last_answer_by_piece:
        return new_exchange

    arrived_count = new_exchange.number
    pieces = []
    for place, piece in enumerate(response.pieces):
        pieces.append(piece._replace(arrived_count=arrived_count))
        arrived_count = max(arrived_count, last_answer_by_piece.get(place, 0))

    ended_after = max(arrived_count, new_exchange.ended_after or 0)
    response = replace(response, pieces=tuple(pieces))
    return replace(new_exchange, response=response, ended_after=ended_after)


def _last_answers_by_piece(
    exchange: RecordedExchange, turns: Iterable[PushedTurn], new: _NewExchanges
) -> dict[int, int]:
    """Return the number of the last answer to each turn, by the piece with its last question."""
    last_answer_by_piece: dict[int, int] = {}
    for turn in turns:
        last_question = turn.pushed_requests[-1]
        if last_question.exchange is exchange:
            numbers = [0]
            for answer in turn.answers:
                new_exchange = new.get(answer.exchange, answer.exchange)
                numbers.append(new_exchange.number or 0)

            last_answer_by_piece[last_question.piece_index] = max(numbers)

    return last_answer_by_piece


def _updated_exchange(
    taken_response: TakenResponse,
    recorded_by_live_hash: Mapping[str, str],
    kept_names: KeptNames,
) -> RecordedExchange:
    """Return a recorded exchange with a live response that has the recorded names and keys."""
    recorded_exchange = taken_response.recorded
    with_names = text_change_to_recorded_names(
        taken_response.recorded_keys, recorded_by_live_hash
    )
    live = exchange_with_changed_texts(
        _with_recorded_push_ids(taken_response), with_names
    )
    kept_names.keep_names(recorded_exchange, live)
    response = kept_names.with_kept_names(live, recorded_exchange).response
    if response is None:
        raise AssertionError("unreachable because what has no response is not taken")

    issued_sha256 = recorded_exchange.issued_sha256
    asked_before = recorded_exchange.ask is not None
    asks_now = live.ask is not None
    if asked_before != asks_now:
        issued_sha256 = live.issued_sha256

    response = with_times_of(recorded_exchange, response)
    return replace(recorded_exchange, response=response, issued_sha256=issued_sha256)


def _with_recorded_push_ids(taken_response: TakenResponse) -> RecordedExchange:
    """Return the live exchange, in which pushed requests have the ids that are answered."""
    response = taken_response.live.response
    if response is None:
        return taken_response.live

    pieces = splice_pieces(response.pieces, _recorded_push_ids(taken_response))
    response = replace(response, pieces=pieces)
    return replace(taken_response.live, response=response)


def _recorded_push_ids(taken_response: TakenResponse) -> Iterator[tuple[Span, bytes]]:
    """Yield where pushed requests have their ids, and the recorded ids."""
    for located, recorded in taken_response.replacing:
        identity = recorded.message.spelled_id
        _, place = find_spans(located.message.raw, [ID_PATH])[-1]
        span = located.in_body(place)
        if identity is not None and span is not None:
            yield span, identity
