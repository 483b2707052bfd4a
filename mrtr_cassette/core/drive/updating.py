"""New responses in a cassette, accepted from a live server."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Final, NamedTuple

from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.edited import with_recorded_times
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    PushedRequest,
    PushedTurn,
    RecordedExchange,
    RecordedInteraction,
    TaskStep,
)
from mrtr_cassette.core.cassette.sessions import opened_session
from mrtr_cassette.core.cassette.texts import with_texts
from mrtr_cassette.core.cassette.transports import response_over_http
from mrtr_cassette.core.compare.responses import changed_keys, comparable_text
from mrtr_cassette.core.compare.values import Change, Verdict
from mrtr_cassette.core.drive.kept_names import KeptNames
from mrtr_cassette.core.drive.live_session import OWN_ID, with_body
from mrtr_cassette.core.drive.script import LivePair
from mrtr_cassette.core.drive.verification import (
    Accepts,
    VerifiedInteraction,
    after_stray,
)
from mrtr_cassette.core.protocol.dialect import with_answer_keys
from mrtr_cassette.core.protocol.jsonrpc import (
    ID_PATH,
    Kind,
    Located,
    messages_in,
    splice_pieces,
)
from mrtr_cassette.core.protocol.methods import CANCEL_TASK, GET_TASK, PING
from mrtr_cassette.core.protocol.tasks import polled_state
from mrtr_cassette.core.secrets.names import (
    occurrence_in,
    reveal,
    sha256_of,
    state_surrogate,
)
from mrtr_cassette.core.wire.jsonbytes import Span, canonical, find_spans

_INTERNAL_ERROR: Final = -32603


class TakenResponse(NamedTuple):
    """A live response, and the recorded exchange that gets it.

    Attributes:
        names: the new keys of its questions by the recorded ones; None for one that is gone.
        retry: the recorded exchange whose request answers it.
        keys: the recorded keys of a task's questions by the live ones.
        pushed: the recorded requests in whose places the server pushes others.
    """

    base: RecordedExchange
    live: RecordedExchange
    names: Mapping[str, str | None] = {}
    retry: RecordedExchange | None = None
    keys: Mapping[str, str] = {}
    pushed: tuple[PushedRequest | None, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """One response of a live server that could stand in the cassette, or a whole conversation.

    Attributes:
        turns: the turns that differ, from 1, or 0 for the final response.
        states: the recorded request state or session id by the SHA-256 of the live one.
        course: what it becomes if it has more or fewer turns, or another order: recorded exchanges,
            of which the pushed requests have the places in the live responses.
    """

    number: int
    call: str
    turns: tuple[int, ...]
    changes: tuple[Change, ...]
    problem: str | None = None
    taken: tuple[TakenResponse, ...] = ()
    states: Mapping[str, str] = field(default_factory=dict)
    course: RecordedInteraction | None = None

    @property
    def turn(self) -> int:
        """The first turn that differs."""
        return self.turns[0]

    @property
    def counting(self) -> tuple[Change, ...]:
        """The changes that are more than information."""
        return tuple(change for change in self.changes if not change.is_information)

    @property
    def ends_open(self) -> bool:
        """Whether the conversation ends at a question for which no answer is recorded."""
        if self.course is None:
            return False
        live = self.taken[-1].live
        state = polled_state(live.rpc_response)
        is_asked = live.ask is not None or live.rpc_response is None
        return is_asked or (state is not None and bool(state.input_requests))

    @property
    def is_breakdown(self) -> bool:
        """Whether the live server failed by itself, which says nothing of what it would say."""
        if not self.taken:
            return False
        live = self.taken[-1].live
        error = live.rpc_members.get("error")
        code = error.get("code") if isinstance(error, dict) else None
        is_down = live.response is not None and live.response.status >= 500
        return code == _INTERNAL_ERROR or is_down


def accepted(data: bytes, cassette: Cassette, proposed: Collection[Proposal]) -> bytes:
    """Return the file of a cassette with responses of a live server in it.

    The recorded answers get the keys that equal questions have now. A conversation that takes
    another course has the requests that answer its questions now, and ends where it ends now.
    """
    new = _new_exchanges(KeptNames(data), proposed)
    courses = {proposal.number: proposal.course for proposal in proposed}
    interactions = []
    for recorded in cassette.interactions:
        course = courses.get(recorded.number)
        if course is not None:
            _number(course, new)
            for exchange in course.exchanges:
                new[exchange] = _after_answers(exchange, course.pushed_turns, new)
        interactions.append(course or recorded)
    return dump(replace(cassette, interactions=tuple(interactions)).with_exchanges(new))


def _new_exchanges(
    kept: KeptNames, proposed: Collection[Proposal]
) -> dict[RecordedExchange, RecordedExchange]:
    """Return what becomes of the recorded exchanges."""
    new: dict[RecordedExchange, RecordedExchange] = {}
    for proposal in proposed:
        for response in proposal.taken:
            new[response.base] = _as_recorded(response, proposal.states, kept)
    for proposal in proposed:
        for response in proposal.taken:
            retry = response.retry
            if response.names and retry is not None:
                body = with_answer_keys(retry.request.body, response.names)
                request = with_body(retry.request, body)
                new[retry] = replace(new.get(retry, retry), request=request)
    return new


def _number(
    interaction: RecordedInteraction, new: dict[RecordedExchange, RecordedExchange]
) -> None:
    """Let the exchanges of a conversation that takes another course come in its order."""
    ordered: list[RecordedExchange] = []
    for position, exchange in enumerate(interaction.exchanges):
        ordered.append(exchange)
        for turn in interaction.pushed_turns:
            if turn.position == position:
                ordered += [answer.exchange for answer in turn.answers]
    numbers = sorted(
        exchange.number for exchange in ordered if exchange.number is not None
    )
    if len(numbers) == len(ordered):
        for exchange, number in zip(ordered, numbers, strict=True):
            if exchange.number != number:
                new[exchange] = replace(new.get(exchange, exchange), number=number)


def _after_answers(
    exchange: RecordedExchange,
    turns: Iterable[PushedTurn],
    new: Mapping[RecordedExchange, RecordedExchange],
) -> RecordedExchange:
    """Return a new exchange in whose response nothing comes before what the server waited for."""
    changed = new[exchange]
    response = changed.response
    answered: dict[int, int] = {}
    for turn in turns:
        answers = [new.get(answer.exchange, answer.exchange) for answer in turn.answers]
        last = turn.asked[-1]
        if last.exchange is exchange:
            answered[last.piece] = max(
                [answer.number or 0 for answer in answers], default=0
            )
    if response is None or not answered or changed.number is None:
        return changed
    arrived = changed.number
    pieces = []
    for place, piece in enumerate(response.pieces):
        pieces.append(piece._replace(after=arrived))
        arrived = max(arrived, answered.get(place, 0))
    ended_after = max(arrived, changed.ended_after or 0)
    return replace(
        changed,
        response=replace(response, pieces=tuple(pieces)),
        ended_after=ended_after,
    )


def _as_recorded(
    taken: TakenResponse, states: Mapping[str, str], kept: KeptNames
) -> RecordedExchange:
    """Return a recorded exchange with a live response that has the recorded names and keys."""
    recorded = taken.base
    live = taken.live
    keys = []
    for live_key, name in taken.keys.items():
        revealed_key = reveal(canonical(live_key), states.get)
        keys.append((revealed_key.encode(), canonical(name).encode()))

    def revealed(raw: bytes, _header: str) -> bytes:
        raw = reveal(raw, states.get)
        for key, name in keys:
            raw = raw.replace(key, name)
        return raw

    response = live.response
    if response is not None:
        pieces = splice_pieces(response.pieces, _push_ids(taken))
        live = replace(live, response=replace(response, pieces=pieces))
    live = with_texts(live, revealed)
    kept.keep(recorded, live)
    response = kept.in_kept(live, recorded).response
    if response is None:
        raise AssertionError("unreachable because what has no response is not taken")
    issued = recorded.issued_sha256
    if (recorded.ask is None) is not (live.ask is None):
        issued = live.issued_sha256
    return replace(
        recorded, response=with_recorded_times(recorded, response), issued_sha256=issued
    )


def _push_ids(taken: TakenResponse) -> Iterator[tuple[Span, bytes]]:
    """Yield where the server's requests have their ids, and the ids to which the answers are."""
    for request, now in zip(taken.pushed, _pushed_in(taken.live), strict=False):
        identity = None if request is None else request.message.spelled(ID_PATH)
        span = now.in_body(find_spans(now.message.raw, [ID_PATH])[ID_PATH][-1])
        if identity is not None and span is not None:
            yield span, identity


def _pushed_in(exchange: RecordedExchange) -> list[Located]:
    """Return the questions that a response has."""
    located = () if exchange.response is None else messages_in(exchange.response)
    requests = [each for each in located if each.message.kind is Kind.REQUEST]
    return [request for request in requests if request.message.method != PING]


ACCEPTABLE: Final[tuple[Verdict, ...]] = (
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
_NOT_COMPARED: Final = frozenset({"skipped", "not-reached", "unstable"})
Choose = Callable[[Sequence[Proposal]], Sequence[Proposal]]
"""Returns which of the proposals are accepted."""


def accepting(cassette: Cassette, choose: Choose) -> Accepts:
    """Return what tells while a conversation is repeated whether a turn of it is accepted."""

    def accepts(verified: VerifiedInteraction, turn: int) -> bool:
        proposed = _proposals_of(cassette, verified)
        return any(turn in proposal.turns for proposal in choose(proposed))

    return accepts


def proposals(
    cassette: Cassette, verified: Iterable[VerifiedInteraction]
) -> list[Proposal]:
    """Return what could be taken into a cassette, in its order, as its file has it."""
    proposed: list[Proposal] = []
    for interaction in sorted(verified, key=lambda verified: verified.number):
        if interaction.verdict not in _NOT_COMPARED:
            proposed += _proposals_of(cassette, interaction)
    return proposed


def _proposals_of(cassette: Cassette, verified: VerifiedInteraction) -> list[Proposal]:
    interaction = cassette.interactions[verified.number - 1]
    states = {sha256_of(live): recorded for live, recorded in verified.states}
    # The conversation was repeated over the transport of the live server.
    sent = _responses(verified.planned.interaction)
    places = dict(zip(sent, _responses(interaction), strict=False))
    pairs = []
    for pair in verified.pairs:
        live = (
            response_over_http(pair.live) if cassette.transport == "http" else pair.live
        )
        pairs.append(pair._replace(recorded=places[pair.recorded], live=live))
    changed = tuple(dict.fromkeys(change.turn for change in verified.changes))
    if not changed:
        return []
    lives = [pair.live for pair in pairs]
    is_task = any(live.created_task for live in lives)
    is_pushed = any(
        _pushed_in(exchange) for exchange in (*interaction.exchanges, *lives)
    )
    if pairs and (verified.is_rerouted or is_pushed or is_task):
        return [_Rerouted(cassette, verified, pairs, states).proposal()]
    return [_turn_proposal(cassette, verified, turn, pairs, states) for turn in changed]


def _turn_proposal(
    cassette: Cassette,
    verified: VerifiedInteraction,
    turn: int,
    pairs: Sequence[LivePair],
    states: Mapping[str, str],
) -> Proposal:
    """Return the proposal of the response that asks a turn, or of the final one."""
    interaction = cassette.interactions[verified.number - 1]
    changes = tuple(change for at, change in verified.changes if at == turn)
    exchanges = interaction.exchanges
    asking = {
        interaction.asking_turn(at): exchanges[at] for at in range(len(exchanges))
    }
    recorded = interaction.ending if turn == 0 else asking.get(turn)
    pair = next((pair for pair in reversed(pairs) if pair.recorded is recorded), None)
    taken: tuple[TakenResponse, ...] = ()
    if verified.after is not None:
        problem: str | None = after_stray(verified.after)
    elif recorded is None:
        problem = "the server asks it on another stream: record it again"
    elif pair is None or pair.live.response is None:
        problem = "the live server gave no response"
    else:
        retry = _retry_to(interaction, recorded)
        response, problems = _taken(recorded, pair, changes, retry)
        taken = (response,)
        problem = next(iter(problems), None)
    return Proposal(
        verified.number, verified.call, (turn,), changes, problem, taken, states
    )


def _taken(
    base: RecordedExchange,
    pair: LivePair,
    changes: Sequence[Change],
    retry: RecordedExchange | None,
) -> tuple[TakenResponse, list[str]]:
    """Return a live response as it is taken, and what speaks against it."""
    names = _new_keys(pair.recorded, pair.live, changes)
    problems = [*_objections(base, pair.live)]
    if retry is not None:
        problems += _objections_to_ask(pair.recorded, pair.live, names)
    return TakenResponse(base, pair.live, names, retry, pair.keys), problems


def _pushed_by_name(
    interaction: RecordedInteraction,
) -> dict[tuple[int, str], PushedRequest]:
    """Return the requests that the server pushed, by their turns and keys."""
    found: dict[tuple[int, str], PushedRequest] = {}
    for number, turn in interaction.numbered_turns.items():
        found |= {(number, request.key): request for request in turn.asked}
    return found


class _Rerouted:
    """The proposal of a conversation that took another course than the recorded one."""

    def __init__(
        self,
        cassette: Cassette,
        verified: VerifiedInteraction,
        pairs: Sequence[LivePair],
        states: Mapping[str, str],
    ) -> None:
        self._cassette = cassette
        self._interaction = cassette.interactions[verified.number - 1]
        self._verified = verified
        self._changes = tuple([change for _, change in verified.changes])
        self._polled = [pair for pair in pairs if pair.recorded.call.method == GET_TASK]
        self._called = [pair for pair in pairs if pair not in self._polled]
        self._states = dict(states)
        self._taken: list[TakenResponse] = []
        self._problems: list[str] = []

    def proposal(self) -> Proposal:
        """Return it."""
        verified = self._verified
        if verified.after is not None:
            self._problems.append(after_stray(verified.after))
        self._take_calls()
        exchanges = tuple([response.base for response in self._taken])
        steps = self._take_steps() if self._taken[-1].live.created_task else ()
        turns = self._take_pushed_turns()
        course = replace(
            self._interaction, exchanges=exchanges, pushed_turns=turns, steps=steps
        )
        return Proposal(
            verified.number,
            verified.call,
            tuple(dict.fromkeys(change.turn for change in verified.changes)),
            self._changes,
            next(iter(self._problems), None),
            tuple(self._taken),
            self._states,
            course=course,
        )

    def _take_calls(self) -> None:
        """Take the responses to the call, of which each answers the one before it."""
        cassette, interaction = self._cassette, self._interaction
        base: RecordedExchange | None = interaction.exchanges[0]
        for pair in self._called:
            if base is None:
                break
            retry = None
            if pair is not self._called[-1]:
                retry = _retry_to(interaction, pair.recorded)
            response, problems = _taken(base, pair, self._changes, retry)
            self._taken.append(response)
            self._problems += problems
            base = retry
        if any(_sharing(cassette, exchange) > 1 for exchange in interaction.exchanges):
            self._problems.append(
                "other branches answer a question of it: record it again"
            )
        last = self._taken[-1].live
        if last.ask is not None and last.issued_sha256 is not None:
            name = _new_state(cassette, interaction)
            self._states |= {last.issued_sha256: name}
            if cassette.request_state == "verbatim":
                self._problems.append(
                    "its request states are kept as they are: record it again"
                )

    def _take_steps(self) -> tuple[TaskStep, ...]:
        """Take the states of the task; return the recorded steps that stay."""
        bases = [pair.recorded for pair in (*self._called, *self._polled)]
        if not self._interaction.task_id:
            self._problems.append(
                "the server makes a task of the call now: record it again"
            )
        elif len(set(bases)) < len(bases):
            self._problems.append(
                "the task tells in parts what it asks: record it again"
            )
        answered = set[str]()
        for pair in self._polled:
            self._taken.append(TakenResponse(pair.recorded, pair.live, keys=pair.keys))
            answered.update(pair.keys.values())
        steps = []
        for step in self._interaction.steps:
            answers = step.exchange.call.answers
            given = set() if answers is None else {*(answers.input_responses or ())}
            is_cancelled = step.exchange.call.method == CANCEL_TASK
            if is_cancelled or given - answered not in (given, set()):
                self._problems.append(
                    "its client answers it otherwise: record it again"
                )
            if step.exchange in bases or step.is_at_work or given & answered:
                steps.append(step)
        return tuple(steps)

    def _take_pushed_turns(self) -> tuple[PushedTurn, ...]:
        """Return the turns that the server pushes now, with the recorded answers.

        The responses get the recorded requests in whose places these come.
        """
        interaction = self._interaction
        asked = _pushed_by_name(interaction)
        recorded = interaction.numbered_turns
        waiting = iter(self._verified.pushes)
        is_unheard = False
        turns = []
        for position, response in enumerate(self._taken):
            located = _pushed_in(response.live)
            rows = list(zip(located, waiting, strict=False))
            is_unheard = is_unheard or len(rows) < len(located)
            olds = tuple([asked.get((push.turn, push.name)) for _, push in rows])
            self._taken[position] = response._replace(pushed=olds)
            for number, group in groupby(rows, lambda row: row[1].turn):
                requests = []
                for request, push in group:
                    key = push.name or push.key
                    requests.append(PushedRequest(key, response.base, request.piece))
                names = {asking.key for asking in requests}
                given = recorded[number].answers if number in recorded else ()
                answers = tuple([answer for answer in given if answer.key in names])
                turns.append(PushedTurn(position, tuple(requests), answers))
        streams = {request.exchange for request in asked.values()}
        is_unheard = is_unheard or self._verified.planned.part == "listening"
        if is_unheard or next(waiting, None) or not streams <= {*interaction.exchanges}:
            self._problems.append(
                "the server pushed a question elsewhere: record it again"
            )
        return tuple(turns)


def _new_keys(
    recorded: RecordedExchange, live: RecordedExchange, changes: Iterable[Change]
) -> dict[str, str | None]:
    """Return the new keys of a live ask by the recorded ones; None for a question that is gone."""
    names: dict[str, str | None] = {}
    names.update(changed_keys(changes))
    if recorded.ask is not None and live.ask is not None:
        asked = {comparable_text(key) for key in live.ask.input_requests}
        for key in recorded.ask.input_requests:
            if key not in names and comparable_text(key) not in asked:
                names[key] = None
    return names


def _retry_to(
    interaction: RecordedInteraction, asking: RecordedExchange
) -> RecordedExchange | None:
    """Return the exchange whose request answers another one of the same interaction."""
    for recorded, retry in pairwise(interaction.exchanges):
        if recorded is asking:
            return retry
    return None


def _sharing(cassette: Cassette, exchange: RecordedExchange) -> int:
    """Return how many interactions have an exchange."""
    return sum(
        exchange in interaction.exchanges for interaction in cassette.interactions
    )


def _new_state(cassette: Cassette, interaction: RecordedInteraction) -> str:
    """Return the name of a state that a turn of an interaction has now."""
    call = interaction.exchanges[0].call
    digest = sha256_of("\n".join(call.key()))
    turn = len(interaction.exchanges) + 1
    occurrences = [0]
    for other in cassette.interactions:
        for exchange in other.exchanges:
            issued = None if exchange.ask is None else exchange.ask.request_state
            occurrence = None if issued is None else occurrence_in(issued)
            if occurrence is None:
                continue
            if other is interaction:
                return state_surrogate(digest, occurrence, turn)
            occurrences.append(occurrence)
    return state_surrogate(digest, max(occurrences) + interaction.number, turn)


def _responses(interaction: RecordedInteraction) -> list[RecordedExchange]:
    return [*interaction.exchanges, *(step.exchange for step in interaction.steps)]


def accepted_by_verdict(
    proposed: Iterable[Proposal], verdicts: Collection[str]
) -> list[Proposal]:
    """Return the proposals that are taken because of the verdicts of their changes."""
    return [
        each
        for each in proposed
        if each.problem is None
        and not each.is_breakdown
        and any(change.verdict in verdicts for change in each.changes)
        and all(change.verdict in verdicts for change in each.counting)
    ]


def _objections(recorded: RecordedExchange, live: RecordedExchange) -> Iterator[str]:
    if bool(opened_session(recorded.response)) != bool(opened_session(live.response)):
        yield "a session came or went: record it again"
    body = b"" if live.response is None else live.response.body
    if not {*OWN_ID.findall(body)} <= {*OWN_ID.findall(recorded.request.body)}:
        yield "it repeats the id that another request of this comparison had"
    if recorded.rpc_response is None and live.rpc_response is not None:
        yield "its response stands in what resumed its stream: record it again"


def _objections_to_ask(
    recorded: RecordedExchange,
    live: RecordedExchange,
    names: Mapping[str, str | None],
) -> Iterator[str]:
    old = recorded.ask
    new = live.ask
    if old is None or new is None:
        return
    if (old.request_state is None) != (new.request_state is None):
        yield "a request state came or went, which the recorded answer has to repeat"
    if old.dialect != new.dialect:
        yield f"the server asks in the dialect {new.dialect}, and the answer is in {old.dialect}"
    unanswered = {*new.input_requests} - {*old.input_requests, *names.values()}
    if unanswered:
        yield f"no answer is recorded for {', '.join(sorted(unanswered))}"
