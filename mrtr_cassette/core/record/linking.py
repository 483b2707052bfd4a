"""Link answers to asks: retries to input-required results, posted answers to pushed requests.

A retry is joined by request state; without one, by call and keys; otherwise it begins an
interaction of its own. Arrival order never outranks a state, so parallel identical calls don't mix.
What names a task is joined to the call that created it.
A push in a call's own stream belongs to that call. One on a listening stream belongs to the call
that is pending in its session; where there is none or more than one, to the stream itself.
Source: MCP 2025-11-25, "Elicitation", "Sampling", "Roots"; docs/matching.md, "Linking".
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from sys import intern
from typing import Generic, NamedTuple, TypeVar

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.cassette.sessions import ends_session, is_answered, listens, opened_session
from mrtr_cassette.core.protocol.calls import NO_SESSION, Call, session_of
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message, ask_in, completed_by
from mrtr_cassette.core.protocol.methods import GET_TASK, PING, TASK_STEPS, method_of
from mrtr_cassette.core.protocol.tasks import named_task, polled_state
from mrtr_cassette.core.secrets.sealed import sha256_of
from mrtr_cassette.core.wire.http import Piece, Response
from mrtr_cassette.core.wire.jsonbytes import canonical

P = TypeVar("P")


# What linking needs of an exchange. What has happened is counted in requests that had arrived; the
# clock only tells apart what happened between two of them.


class Moment(NamedTuple):
    """When something happened: how many requests had arrived, and milliseconds since the begin."""

    after: int
    at_ms: float


NEVER = Moment(2**53, 0.0)


class Push(NamedTuple):
    """A request that the server sent of itself, with its id as clients compare it."""

    id: str
    method: str
    piece: int
    """Index of the piece of the response that completes it."""
    moment: Moment


class TaskFacts(NamedTuple):
    """The task that a request polls, updates or cancels, by the hash of its id.

    `got` is the same for polls that say the same, and empty where there was no response.
    """

    sha256: str
    is_poll: bool = False
    got: str = ""
    is_over: bool = False


NO_TASK = TaskFacts("")


@dataclass(frozen=True, slots=True)
class ExchangeFacts:
    """Facts about one exchange that linking and ordering need; ids are as clients compare them."""

    session: str = NO_SESSION
    """The session's id, as the journal has it."""
    listens: bool = False
    """Its response tells what other requests caused."""
    request_id: str | None = None
    posted_id: str | None = None
    """That of the JSON-RPC response that the request is."""
    pushes: tuple[Push, ...] = ()
    responses: tuple[tuple[str, Moment], ...] = ()
    """The id of each JSON-RPC response to another request, and when it came."""
    ended: Moment = NEVER
    """When the response ended; never where it says no more than that the request has arrived, and
    the response comes on a listening stream."""
    is_answered: bool = True
    """Its response has the response to the request."""
    resumes: int | None = None
    """Number of the call whose stream it resumes."""
    call: str = ""
    """The hash of its call key."""
    caller: str = ""
    """Session and client, as far as a request tells."""
    client: str = ""
    """Which program asks: it answers nothing that another program was asked."""
    answered_keys: frozenset[str] | None = None
    """The keys of a retry's `inputResponses`; None where the request is no retry."""
    echoed: str | None = None
    """Hash of the request state that it echoes."""
    asked_keys: frozenset[str] | None = None
    """The keys of an ask's `inputRequests`; None where the response is no ask."""
    issued: tuple[str, ...] = ()
    """Hashes by which a retry may echo the state that the ask issued, if it issued one: an earlier
    cassette issues another state on replay than the server did."""
    asked: Moment = NEVER
    """When the ask was whole: only later requests can answer it."""
    creates_task: bool = False
    """The response creates a task, by whose id, hashed, it is `issued`."""
    task: TaskFacts = NO_TASK


def facts_of(exchange: RecordedExchange, call: Call, resumes: int | None = None) -> ExchangeFacts:
    """Return the facts about an exchange with this call, which may resume a call's stream."""
    request, response, message = exchange.request, exchange.response, call.message
    ask = None if response is None else ask_in(message, response)
    session = session_of(request)
    opened = NO_SESSION if session else opened_session(response)
    is_listening = ask is None and resumes is None and listens(call, response)
    has_others = is_listening or resumes is not None
    pushes, responses = _said(response, has_others=has_others)
    kind, identity = (None, "") if message is None else (message.kind, message.same_id)
    is_accepted = kind is Kind.REQUEST and response is not None and response.only_accepts
    ended = Moment(exchange.ended_after or exchange.number or 0, exchange.ended_ms)
    return ExchangeFacts(
        session=intern(session or opened),
        listens=is_listening,
        request_id=identity if kind is Kind.REQUEST else None,
        posted_id=identity if kind is Kind.RESPONSE else None,
        pushes=pushes,
        responses=responses,
        ended=NEVER if is_accepted else ended,
        # What is no stream is the response to its request.
        is_answered=not is_accepted
        and (response is None or not response.is_framed or is_answered(response)),
        resumes=resumes,
        call=intern(sha256_of("\n".join(call.key()))),
        caller=intern(call.caller),
        client=intern(call.client),
        answered_keys=frozenset(call.answers.input_responses or ()) if call.answers else None,
        echoed=exchange.echoed_sha256 if call.answers else None,
        asked_keys=None if ask is None else frozenset(ask.input_requests),
        issued=() if exchange.issued_sha256 is None else (exchange.issued_sha256,),
        asked=_moment_of(response.pieces[ask.piece]) if response and ask else NEVER,
        creates_task=exchange.created_task is not None,
        task=_task_of(exchange, call),
    )


def _task_of(exchange: RecordedExchange, call: Call) -> TaskFacts:
    identity = named_task(call.message) if call.method in TASK_STEPS else None
    if identity is None:
        return NO_TASK
    sha256 = exchange.echoed_sha256 or sha256_of(identity)
    message, response = exchange.rpc_response, exchange.response
    if call.method != GET_TASK or response is None:
        return TaskFacts(sha256, is_poll=call.method == GET_TASK)
    state = polled_state(message)
    error = canonical(None if message is None else message.tree.get("error"))
    got = f"{response.status} {error}" if state is None else state.digest
    # Another recording has another id.
    got = got.replace(canonical(identity)[1:-1], "<task>")
    return TaskFacts(sha256, True, sha256_of(got), state is not None and state.is_over)


def _moment_of(piece: Piece) -> Moment:
    return Moment(piece.after, piece.at_ms)


def _said(
    response: Response | None, *, has_others: bool
) -> tuple[tuple[Push, ...], tuple[tuple[str, Moment], ...]]:
    """Return what a stream pushes, and what it says in response to other requests."""
    pushes: list[Push] = []
    responses: list[tuple[str, Moment]] = []
    for index, piece in enumerate(response.pieces if response and response.is_framed else ()):
        # On the stream of a call, what has an id and no method is the response to the call.
        if b'"id"' in piece.raw and (has_others or b'"method"' in piece.raw):
            message = completed_by(response, index) if response else None
            identity = None if message is None else message.same_id
            if message is None or identity is None:
                continue
            if message.kind is Kind.RESPONSE and has_others:
                responses.append((identity, _moment_of(piece)))
            elif message.kind is Kind.REQUEST and message.method != PING:
                name = intern(message.method)
                pushes.append(Push(intern(identity), name, index, _moment_of(piece)))
    return tuple(pushes), tuple(responses)


# The ends of sessions


def streams_of_closing(
    exchanges: Mapping[int, RecordedExchange], facts: Mapping[int, ExchangeFacts]
) -> list[int]:
    """Return the streams that clients tried to open or to resume while they ended their session.

    Whether a client comes back before its DELETE, after it, or not at all is chance.
    """
    ended = {
        facts[number].session
        for number, each in exchanges.items()
        if ends_session(each.request, each.response)
    } - {NO_SESSION}
    last: dict[str, int] = {}
    sought: set[str] = set()
    again: list[int] = []
    for number, each in facts.items():
        request, response = exchanges[number].request, exchanges[number].response
        if each.session not in ended or request.method == "DELETE":
            continue
        is_again = each.session in sought
        if each.resumes is not None:
            is_again = facts[each.resumes].is_answered
        elif request.method == "GET":
            sought.add(each.session)
        is_silent = response is None or response.status >= 400
        if response is not None and response.is_event_stream:
            is_silent = b"jsonrpc" not in response.body
        if request.method == "GET" and is_again and is_silent:
            again.append(number)
        else:
            last[each.session] = number
    return [number for number in again if number > last[facts[number].session]]


# Retries and asks


@dataclass(slots=True, eq=False)
class LinkedInteraction:
    """The exchanges of one interaction, by number, from the first request to the last response."""

    numbers: list[int]
    branch_of: LinkedInteraction | None = None
    """The interaction whose first exchanges these are too."""
    shared: int = 0
    """How many exchanges are shared with that interaction."""
    is_orphan: bool = False
    """It begins with a retry that answers no recorded ask."""
    steps: dict[int, int] = field(default_factory=dict)
    """What came of the task that the last response creates, and how many polls got the same."""

    @property
    def own(self) -> list[int]:
        """The exchanges that no other interaction had before."""
        return self.numbers[self.shared :]


class _Ask(NamedTuple):
    """An ask in its interaction; `position` counts the exchanges up to and with it."""

    facts: ExchangeFacts
    interaction: LinkedInteraction
    position: int

    @property
    def is_answered(self) -> bool:
        """Whether its interaction goes on."""
        return self.position < len(self.interaction.numbers)


class _Asks:
    """All asks so far, by call, and by the state that a retry echoes or else the client."""

    def __init__(self) -> None:
        self._by_place: dict[tuple[str, str], list[_Ask]] = {}

    def add(self, ask: _Ask) -> None:
        """Take an ask."""
        facts = ask.facts
        for place in [f"state {state}" for state in facts.issued] or [f"client {facts.client}"]:
            self._by_place.setdefault((facts.call, place), []).append(ask)

    def answered_by(self, number: int, facts: ExchangeFacts) -> _Ask | None:
        """Return the ask that a retry answers.

        Equal asks come from servers that keep no state, or the same one for all. Of these the open
        ones come first, the caller's own before others, then the oldest; then the last of those
        that have an answer.
        """
        keys, place = facts.answered_keys or frozenset(), (facts.call, f"client {facts.client}")
        if facts.echoed is not None:
            keys, place = frozenset(), (facts.call, f"state {facts.echoed}")
        known = self._by_place.get(place, [])
        whole = [
            ask
            for ask in known
            if ask.facts.asked.after < number and keys <= (ask.facts.asked_keys or frozenset())
        ]
        ask = min(
            (ask for ask in whole if not ask.is_answered),
            key=lambda ask: (ask.facts.caller != facts.caller, ask.facts.asked.after),
            default=whole[-1] if whole else None,
        )
        if ask is not None:
            asked = ask.facts.asked_keys
            # A further one with the same keys and an answer would never be chosen.
            known = [it for it in known if not (it.is_answered and it.facts.asked_keys == asked)]
            self._by_place[place] = [*(it for it in known if it is not ask), ask]
        return ask


def link(
    exchanges: Mapping[int, ExchangeFacts],
    earlier: Sequence[LinkedInteraction] = (),
    earlier_facts: Mapping[int, ExchangeFacts] | None = None,
) -> list[LinkedInteraction]:
    """Return the interactions that begin here, by their first requests; earlier ones may grow.

    Polls of a task that got nothing new are in none of them.
    """
    before = earlier_facts or {}
    asks = _Asks()
    for each in earlier:
        for position, number in enumerate(each.own, start=each.shared + 1):
            if before[number].asked_keys is not None:
                asks.add(_Ask(before[number], each, position))
    tasks = {sha256: each for each in earlier for sha256 in _created_by(before[each.numbers[-1]])}
    steps: dict[LinkedInteraction, list[int]] = {}
    interactions: list[LinkedInteraction] = []
    for number, facts in exchanges.items():
        if facts.task.sha256 in tasks:
            steps.setdefault(tasks[facts.task.sha256], []).append(number)
            continue
        is_retry = facts.answered_keys is not None
        ask = asks.answered_by(number, facts) if is_retry else None
        if ask is not None and not ask.is_answered:
            interaction = ask.interaction
            interaction.numbers.append(number)
        else:
            interaction = LinkedInteraction([number], is_orphan=is_retry)
            if ask is not None:
                parent, shared = ask.interaction, ask.position
                numbers = [*parent.numbers[:shared], number]
                interaction = LinkedInteraction(numbers, parent, shared, parent.is_orphan)
            interactions.append(interaction)
        if facts.asked_keys is not None:
            asks.add(_Ask(facts, interaction, len(interaction.numbers)))
        tasks |= dict.fromkeys(_created_by(facts), interaction)
    every = {**before, **exchanges} if steps else exchanges
    for interaction, numbers in steps.items():
        _add_steps(interaction, numbers, every)
    interactions.sort(key=lambda interaction: (interaction.numbers[0], interaction.own[0]))
    return interactions


def _created_by(facts: ExchangeFacts) -> tuple[str, ...]:
    return facts.issued if facts.creates_task else ()


def _add_steps(
    interaction: LinkedInteraction, numbers: Iterable[int], facts: Mapping[int, ExchangeFacts]
) -> None:
    """Add to a task what clients did to it, in the order in which they did it and saw states."""

    def moment(number: int) -> Moment:
        return facts[number].ended if facts[number].task.is_poll else Moment(number, -1.0)

    steps = interaction.steps
    polled = [number for number in steps if facts[number].task.is_poll]
    for number in sorted(numbers, key=moment):
        task, last = facts[number].task, facts[polled[-1]].task if polled else NO_TASK
        if not task.is_poll:
            steps[number] = 1
        elif task.got and task.got == last.got:
            steps[polled[-1]] += 1
        elif task.got and not last.is_over:
            steps[number] = 1
            polled.append(number)


# Pushed requests and posted answers

_PLAIN_NAME = re.compile("[A-Za-z0-9_-]{1,64}")


@dataclass(slots=True, eq=False)
class PushTurn(Generic[P]):
    """Pushed requests that were open together, and the answers to them."""

    owner: int
    """Number of the exchange in whose interaction they are asked."""
    asked: list[P] = field(default_factory=list)
    answers: list[tuple[int, int]] = field(default_factory=list)
    """Of each answer, the place of the request in `asked`, and the exchange that posted it."""
    _counts: Counter[str] = field(default_factory=Counter)

    def key_for(self, method: str) -> str:
        """Return the key of one more request."""
        kind = method_of(method).asks_for
        if not kind:
            name = method.rpartition("/")[2]
            kind = name if _PLAIN_NAME.fullmatch(name) else "request"
        self._counts[kind] += 1
        return f"{kind}-{self._counts[kind]}"


class PushTurns(Generic[P]):
    """The turns of pushed requests, fed with calls, pushes, answers and ends in their order.

    A turn begins with the first push after all pushes before it were answered. Sessions never touch
    each other, whatever ids they share. It is fed while a recording runs, and again when its
    journal is published. Identities are canonical texts of ids.
    """

    def __init__(self) -> None:
        self._pending: dict[str, dict[int, tuple[str | None, Call | None]]] = {}
        self._turns: dict[int, PushTurn[P]] = {}
        self._open: dict[tuple[str, str | None], deque[tuple[PushTurn[P], int]]] = {}
        self._pinged: set[tuple[str, str | None]] = set()

    def begun(
        self, session: str, number: int, identity: str | None, call: Call | None = None
    ) -> None:
        """Take a call."""
        self._pending.setdefault(session, {})[number] = identity, call

    def pushed(
        self, session: str, number: int, identity: str | None, *, shared: bool
    ) -> tuple[PushTurn[P], Call | None]:
        """Take a request that the server pushed; the caller appends to what the turn asked.

        It stands in the response to `number`, or in one that resumes it, which is `shared` where it
        tells what other requests caused. Returns also the pending call that it belongs to, where
        that is another one.
        """
        pending = self._pending.get(session)
        call: Call | None = None
        if shared and pending and len(pending) == 1:
            ((number, (_, call)),) = pending.items()
            shared = False
        turn = self._turns.get(number)
        # On a stream that calls share, whether requests overlap is chance.
        if turn is None or shared or len(turn.answers) == len(turn.asked):
            turn = self._turns[number] = PushTurn(number)
        self._open.setdefault((session, identity), deque()).append((turn, len(turn.asked)))
        return turn, call

    def pinged(self, session: str, identity: str | None) -> None:
        """Take a ping, which asks nothing."""
        self._pinged.add((session, identity))

    def is_open(self, session: str, identity: str | None) -> bool:
        """Tell whether a pushed request, or a ping, waits for its answer."""
        place = session, identity
        return place in self._open or place in self._pinged

    def answered(self, session: str, identity: str | None, number: int) -> P | None:
        """Take a response that the client posted; return the oldest request with its id."""
        waiting = self._open.get((session, identity))
        if waiting is None:
            self._pinged.discard((session, identity))
            return None
        turn, place = waiting.popleft()
        if not waiting:
            del self._open[session, identity]
        turn.answers.append((place, number))
        return turn.asked[place]

    def responded(self, session: str, identity: str | None) -> None:
        """Take the response to a call, on whatever stream it came."""
        pending = self._pending.get(session, {})
        for number, (own, _) in pending.items():
            if own == identity:
                del pending[number]
                return

    def ended(self, session: str, number: int, *, goes_on: bool = False) -> None:
        """Take the end of a response; where it was accepted only, the call goes on."""
        if self._turns:
            self._turns.pop(number, None)
        if not goes_on and (pending := self._pending.get(session)):
            pending.pop(number, None)


class OpenPush(NamedTuple):
    """A pushed request that waits for its answer."""

    exchange: int
    """Number of the exchange in whose interaction it is asked."""
    call: Call
    key: str
    """Our name for it within its turn."""
    request: InputRequest
    message: Message


LinkedTurn = PushTurn[tuple[str, int, int]]
"""A turn of a journal: of each request its key, its exchange and the piece that ends it."""

# What happens in a session; of several things at one moment, the smaller one comes first.
_REQUEST, _PUSH, _RESPONSE, _END = range(4)


def link_pushes(facts: Mapping[int, ExchangeFacts]) -> dict[int, list[LinkedTurn]]:
    """Return the turns of a recording in order, by the exchange that was pending meanwhile."""
    pushing = {each.session for each in facts.values() if each.pushes}
    events: list[tuple[int, bool, float, int, int, int]] = []
    for number, each in facts.items():
        if each.session in pushing:
            # Whatever came after this request has a later time.
            events.append((number, False, 0.0, _REQUEST, number, 0))
            events.append((each.ended.after, True, each.ended.at_ms, _END, number, 0))
            for at, (_, moment) in enumerate(each.responses):
                events.append((moment.after, True, moment.at_ms, _RESPONSE, number, at))
            for at, push in enumerate(() if each.posted_id is not None else each.pushes):
                events.append((push.moment.after, True, push.moment.at_ms, _PUSH, number, at))
    machine = PushTurns[tuple[str, int, int]]()
    turns: dict[int, list[LinkedTurn]] = {}
    for _, _, _, what, number, at in sorted(events):
        exchange = facts[number]
        session = exchange.session
        if what == _PUSH:
            push = exchange.pushes[at]
            owner = number if exchange.resumes is None else exchange.resumes
            turn, _ = machine.pushed(session, owner, push.id, shared=exchange.listens)
            if not turn.asked:
                turns.setdefault(turn.owner, []).append(turn)
            turn.asked.append((turn.key_for(push.method), number, push.piece))
        elif what == _RESPONSE:
            machine.responded(session, exchange.responses[at][0])
        elif what == _END:
            machine.ended(session, number)
        elif exchange.posted_id is not None:
            machine.answered(session, exchange.posted_id, number)
        elif exchange.request_id is not None and not exchange.listens:
            machine.begun(session, number, exchange.request_id)
    for turn in chain.from_iterable(turns.values()):
        # In which order they were posted means nothing.
        turn.answers.sort()
    return turns
