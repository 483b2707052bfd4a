"""Link posted answers to requests that the server pushed, and form turns of them.

A push in a call's own stream belongs to that call. One on a listening stream belongs to the only
call that is pending in its session; with no pending call, or several, it belongs to the stream.
Source: MCP 2025-11-25, "Elicitation", "Sampling", "Roots"; docs/matching.md, "Linking".
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.protocol.jsonrpc import Message
from mrtr_cassette.core.protocol.methods import method_of
from mrtr_cassette.core.record.linking import ExchangeFacts, Moment

P = TypeVar("P")

_PLAIN_NAME = re.compile("[A-Za-z0-9_-]{1,64}")


@dataclass(slots=True, eq=False)
class PushTurn(Generic[P]):
    """Pushed requests that were open together, and the answers to them."""

    owner_number: int
    """Number of the exchange in whose interaction they are asked."""

    pushes: list[P] = field(default_factory=list)
    answers: list[tuple[int, int]] = field(default_factory=list)
    """For each answer, the request's index in `asked`, and the exchange that posted it."""

    _count_by_kind: Counter[str] = field(default_factory=Counter)

    def key_for(self, method: str) -> str:
        """Return the key of one more request."""
        kind = method_of(method).asks_for
        if not kind:
            last_part_of_method = method.rpartition("/")[2]
            kind = (
                last_part_of_method
                if _PLAIN_NAME.fullmatch(last_part_of_method)
                else "request"
            )

        self._count_by_kind[kind] += 1
        return f"{kind}-{self._count_by_kind[kind]}"


class PushTurns(Generic[P]):
    """The turns of pushed requests, fed with calls, pushes, answers and ends in their order.

    A turn begins with the first push after all pushes before it were answered. Sessions are kept
    apart, whatever ids they share. It is fed while a recording runs, and again when its journal is
    published. Identities are canonical texts of ids.
    """

    def __init__(self) -> None:
        self._pending_calls: dict[str, dict[int, tuple[str | None, Call | None]]] = {}
        self._turn_by_owner: dict[int, PushTurn[P]] = {}
        self._open_pushes: dict[
            tuple[str, str | None], deque[tuple[PushTurn[P], int]]
        ] = {}
        self._open_pings: set[tuple[str, str | None]] = set()

    def begin_call(
        self,
        session: str,
        number: int,
        request_id: str | None,
        call: Call | None = None,
    ) -> None:
        """Take a call."""
        self._pending_calls.setdefault(session, {})[number] = (request_id, call)

    def add_push(
        self, session: str, number: int, push_id: str | None, *, is_shared: bool
    ) -> tuple[PushTurn[P], Call | None]:
        """Take a request that the server pushed; the caller appends to what the turn asked.

        It came in the response to `number`, or in one that resumes it. `is_shared` tells whether
        stream carries what other requests caused. Returns also the pending call that the request
        belongs to, if that is another one.
        """
        call: Call | None = None
        pending_calls = self._pending_calls.get(session)
        if is_shared and pending_calls and len(pending_calls) == 1:
            number = next(iter(pending_calls))
            _, call = pending_calls[number]
            is_shared = False

        turn = self._turn_by_owner.get(number)
        # On a stream that calls share, it is chance whether requests overlap.
        if turn is None or is_shared or len(turn.answers) == len(turn.pushes):
            turn = PushTurn(number)
            self._turn_by_owner[number] = turn

        waiting_pushes = self._open_pushes.setdefault((session, push_id), deque())
        waiting_pushes.append((turn, len(turn.pushes)))
        return turn, call

    def add_ping(self, session: str, ping_id: str | None) -> None:
        """Take a ping, which asks nothing."""
        self._open_pings.add((session, ping_id))

    def is_open(self, session: str, push_id: str | None) -> bool:
        """Return whether a pushed request, or a ping, waits for its answer."""
        session_and_id = (session, push_id)
        return session_and_id in self._open_pushes or session_and_id in self._open_pings

    def close_answered_push(
        self, session: str, push_id: str | None, number: int
    ) -> P | None:
        """Take a response that the client posted; return the oldest request with its id."""
        waiting_pushes = self._open_pushes.get((session, push_id))
        if waiting_pushes is None:
            self._open_pings.discard((session, push_id))
            return None

        turn, index = waiting_pushes.popleft()
        if not waiting_pushes:
            del self._open_pushes[session, push_id]

        turn.answers.append((index, number))
        return turn.pushes[index]

    def end_answered_call(self, session: str, request_id: str | None) -> None:
        """Take the response to a call, on whatever stream it came."""
        pending_calls = self._pending_calls.get(session, {})
        for number, (pending_id, _) in pending_calls.items():
            if pending_id == request_id:
                del pending_calls[number]
                return

    def end_response(
        self, session: str, number: int, *, call_goes_on: bool = False
    ) -> None:
        """Take the end of a response; the call goes on if the response only accepted it."""
        if self._turn_by_owner:
            self._turn_by_owner.pop(number, None)

        pending_calls = self._pending_calls.get(session)
        if pending_calls and not call_goes_on:
            pending_calls.pop(number, None)


class OpenPush(NamedTuple):
    """A pushed request that waits for its answer."""

    exchange_number: int
    """Number of the exchange in whose interaction it is asked."""

    call: Call
    key: str
    """Our name for it within its turn."""

    request: InputRequest
    message: Message


class LinkedPush(NamedTuple):
    """A pushed request of a journal."""

    key: str
    exchange_number: int
    piece_index: int
    """Index of the piece of the exchange's response that completes it."""


class _SessionEventKind(IntEnum):
    """What happened in a session; of several things at one moment, the smaller comes first."""

    REQUEST = 0
    PUSH = 1
    RESPONSE = 2
    END = 3


class _SessionEvent(NamedTuple):
    """Something that happened in a session; events sort in the order of the conversation.

    A request comes before everything that came after it, whatever the clock says.
    """

    arrived_count: int
    came_later: bool
    at_ms: float
    kind: _SessionEventKind
    number: int
    position: int = 0
    """Which of the exchange's pushes or responses it is."""


def link_pushes(
    facts: Mapping[int, ExchangeFacts],
) -> dict[int, list[PushTurn[LinkedPush]]]:
    """Return the turns of a recording in order, by the exchange that was pending meanwhile."""
    push_turns = PushTurns[LinkedPush]()
    turns: dict[int, list[PushTurn[LinkedPush]]] = {}
    for event in _events_with_pushes(facts):
        number = event.number
        exchange_facts = facts[number]
        session = exchange_facts.session
        if event.kind is _SessionEventKind.PUSH:
            turn = _turn_with_added_push(
                push_turns, exchange_facts, number, event.position
            )
            if len(turn.pushes) == 1:
                turns.setdefault(turn.owner_number, []).append(turn)
        elif event.kind is _SessionEventKind.RESPONSE:
            request_id, _ = exchange_facts.responses[event.position]
            push_turns.end_answered_call(session, request_id)
        elif event.kind is _SessionEventKind.END:
            push_turns.end_response(session, number)
        elif exchange_facts.answered_push_id is not None:
            push_turns.close_answered_push(
                session, exchange_facts.answered_push_id, number
            )
        elif exchange_facts.request_id is not None and exchange_facts.can_be_asked:
            push_turns.begin_call(session, number, exchange_facts.request_id)

    for turns_of_owner in turns.values():
        for turn in turns_of_owner:
            # The order in which answers were posted means nothing.
            turn.answers.sort()

    return turns


def _turn_with_added_push(
    push_turns: PushTurns[LinkedPush],
    exchange_facts: ExchangeFacts,
    number: int,
    position: int,
) -> PushTurn[LinkedPush]:
    """Return the turn to which a request has been added that an exchange's response pushes."""
    push = exchange_facts.pushes[position]
    owner_number = number
    if exchange_facts.resumed_call_number is not None:
        owner_number = exchange_facts.resumed_call_number

    turn, _ = push_turns.add_push(
        exchange_facts.session,
        owner_number,
        push.id,
        is_shared=exchange_facts.is_listening,
    )
    key = turn.key_for(push.method)
    turn.pushes.append(LinkedPush(key, number, push.piece_index))

    return turn


def _events_with_pushes(facts: Mapping[int, ExchangeFacts]) -> list[_SessionEvent]:
    """Return what happened, in order, in the sessions in which the server pushed requests."""
    sessions_with_pushes = set()
    for exchange_facts in facts.values():
        if exchange_facts.pushes:
            sessions_with_pushes.add(exchange_facts.session)

    events: list[_SessionEvent] = []
    for number, exchange_facts in facts.items():
        if exchange_facts.session in sessions_with_pushes:
            events.extend(_session_events_in_exchange(number, exchange_facts))

    return sorted(events)


def _session_events_in_exchange(
    number: int, exchange_facts: ExchangeFacts
) -> Iterator[_SessionEvent]:
    """Yield what happened in one exchange, in any order."""

    def later_event(
        moment: Moment, kind: _SessionEventKind, position: int = 0
    ) -> _SessionEvent:
        return _SessionEvent(
            moment.arrived_count, True, moment.at_ms, kind, number, position
        )

    yield _SessionEvent(number, False, 0.0, _SessionEventKind.REQUEST, number)
    yield later_event(exchange_facts.end_moment, _SessionEventKind.END)
    for index, (_, moment) in enumerate(exchange_facts.responses):
        yield later_event(moment, _SessionEventKind.RESPONSE, index)

    if exchange_facts.answered_push_id is None:
        for index, push in enumerate(exchange_facts.pushes):
            yield later_event(push.moment, _SessionEventKind.PUSH, index)
