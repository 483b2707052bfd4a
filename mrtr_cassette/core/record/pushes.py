"""Assign server-pushed requests to calls and turns; track the unanswered ones.

A push in a call's own stream belongs to that call. One on a listening stream belongs to the call
that is pending in its session; where there is none or more than one, to the stream itself. A turn
begins with the first push after all pushes before it were answered. Sessions never touch each
other, whatever ids they share.
Source: MCP 2025-11-25, "Elicitation", "Sampling", "Roots"; docs/matching.md, "Linking".
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain
from typing import Generic, NamedTuple, TypeVar

from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.protocol.jsonrpc import Message
from mrtr_cassette.core.record.history import Moment, SessionFacts

C = TypeVar("C")
P = TypeVar("P")

_KINDS = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
_PLAIN_NAME = re.compile("[A-Za-z0-9_-]{1,64}")


@dataclass(slots=True, eq=False)
class OpenTurn(Generic[P]):
    """Pushed requests that were open together, and the answers to them."""

    owner: int
    """Number of the exchange in whose interaction they are asked."""
    asked: list[P] = field(default_factory=list)
    answers: list[tuple[int, int]] = field(default_factory=list)
    """Of each answer, the place of the request in `asked`, and the exchange that posted it."""
    _counts: Counter[str] = field(default_factory=Counter)

    def key_for(self, method: str) -> str:
        """Return the key of one more request."""
        kind = _KINDS.get(method)
        if kind is None:
            name = method.rpartition("/")[2]
            kind = name if _PLAIN_NAME.fullmatch(name) else "request"
        self._counts[kind] += 1
        return f"{kind}-{self._counts[kind]}"


class PushTurns(Generic[C, P]):
    """The turns of pushed requests, fed with calls, pushes, answers and ends in their order.

    It is fed while a recording runs, and again when its journal is published.
    """

    def __init__(self) -> None:
        self._pending: dict[str, dict[int, tuple[str | None, C]]] = {}
        self._turns: dict[int, OpenTurn[P]] = {}
        self._open: dict[tuple[str, str | None], deque[tuple[OpenTurn[P], int]]] = {}

    def begun(self, session: str, number: int, identity: str | None, call: C) -> None:
        """Take a call, which has the canonical text of its id."""
        self._pending.setdefault(session, {})[number] = identity, call

    def pushed(
        self, session: str, number: int, identity: str | None, *, shared: bool
    ) -> tuple[OpenTurn[P], C | None]:
        """Take a request that the server pushed; the caller appends to what the turn asked.

        Args:
            session: that of the exchange in whose response the request stands.
            number: this exchange, or the one that it resumes.
            identity: canonical text of the request's id.
            shared: the response is a stream that tells what other requests caused.

        Returns:
            the turn; and the pending call that it belongs to, where that is not the exchange.
        """
        pending = self._pending.get(session)
        call: C | None = None
        if shared and pending and len(pending) == 1:
            ((number, (_, call)),) = pending.items()
            shared = False
        turn = self._turns.get(number)
        # On a stream that calls share, whether requests overlap is chance.
        if turn is None or shared or len(turn.answers) == len(turn.asked):
            turn = self._turns[number] = OpenTurn(number)
        self._open.setdefault((session, identity), deque()).append((turn, len(turn.asked)))
        return turn, call

    def is_open(self, session: str, identity: str | None) -> bool:
        """Tell whether a pushed request with an id waits for its answer."""
        return (session, identity) in self._open

    def answered(self, session: str, identity: str | None, number: int) -> P | None:
        """Take a response that the client posted; return the oldest request with its id."""
        waiting = self._open.get((session, identity))
        if waiting is None:
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
    """The request of that exchange."""
    key: str
    """Our name for it within its turn."""
    request: InputRequest
    message: Message


class LinkedPush(NamedTuple):
    """A pushed request of a journal: our name for it, its exchange and the piece that ends it."""

    key: str
    number: int
    piece: int


LinkedTurn = OpenTurn[LinkedPush]


def link_pushes(
    facts: Mapping[int, SessionFacts], ends: Mapping[int, Moment]
) -> dict[int, list[LinkedTurn]]:
    """Return the turns of a recording in order, by the exchange that was pending meanwhile."""
    pushing = {each.session for each in facts.values() if each.pushes}
    machine: PushTurns[None, LinkedPush] = PushTurns()
    turns: dict[int, list[LinkedTurn]] = {}
    own = {number: each for number, each in facts.items() if each.session in pushing}
    for _, _, _, what, number, at in sorted(_events(own, ends)):
        exchange = facts[number]
        session = exchange.session
        if what is _What.PUSH:
            push = exchange.pushes[at]
            owner = number if exchange.resumes is None else exchange.resumes
            turn, _ = machine.pushed(session, owner, push.id, shared=exchange.listens)
            if not turn.asked:
                turns.setdefault(turn.owner, []).append(turn)
            turn.asked.append(LinkedPush(turn.key_for(push.method), number, push.piece))
        elif what is _What.END:
            machine.ended(session, number)
        elif exchange.posted_id is not None:
            machine.answered(session, exchange.posted_id, number)
        elif exchange.request_id is not None and not exchange.listens:
            machine.begun(session, number, exchange.request_id, None)
    for turn in chain.from_iterable(turns.values()):
        # In which order they were posted means nothing.
        turn.answers.sort()
    return turns


class _What(IntEnum):
    """What happens; of several things at one moment, the smaller one comes first."""

    REQUEST = 0
    PUSH = 1
    END = 2


_Event = tuple[int, bool, float, _What, int, int]


def _events(facts: Mapping[int, SessionFacts], ends: Mapping[int, Moment]) -> Iterator[_Event]:
    """Yield what happens in sessions, so that it can be sorted: when, what, where."""
    for number, each in facts.items():
        # Whatever came after this request has a later time.
        yield number, False, 0.0, _What.REQUEST, number, -1
        yield ends[number].after, True, ends[number].at_ms, _What.END, number, -1
        for at, push in enumerate(() if each.posted_id is not None else each.pushes):
            yield push.moment.after, True, push.moment.at_ms, _What.PUSH, number, at
