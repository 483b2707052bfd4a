"""Which turns the requests are that a server pushed, and which posted response answers which.

Rule: two sessions never touch each other, whatever ids they share. The work is linear in what was
recorded.
Source: docs/cassette-format.md, "Questions that a server pushed".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain
from typing import NamedTuple

from mrtr_cassette.core.record.history import Moment, Push, SessionFacts
from mrtr_cassette.core.record.open_pushes import TurnKeys


class LinkedPush(NamedTuple):
    """A pushed request in its turn.

    Attributes:
        key: our name for it.
        number: the exchange in whose response it stands.
        piece: index of the piece of that response that completes it.
    """

    key: str
    number: int
    piece: int


class LinkedAnswer(NamedTuple):
    """A posted answer in its turn.

    Attributes:
        key: that of the pushed request.
        number: the exchange that posted it.
    """

    key: str
    number: int


@dataclass(slots=True)
class LinkedTurn:
    """Pushed requests that were open together, and the answers to them.

    Attributes:
        asked: the requests, as the server sent them.
        answers: in the order of the requests: in which order they were posted means nothing.
    """

    asked: list[LinkedPush] = field(default_factory=list)
    answers: list[LinkedAnswer] = field(default_factory=list)

    def order_answers(self) -> None:
        """Put the answers in the order of the requests."""
        places = {push.key: place for place, push in enumerate(self.asked)}
        self.answers.sort(key=lambda answer: places[answer.key])


class LinkedPushes(NamedTuple):
    """What became of the pushed requests of a recording.

    Attributes:
        turns: by the number of the exchange that was pending, the turns in order.
        posted: the exchanges that posted an answer to any of them.
    """

    turns: Mapping[int, list[LinkedTurn]]
    posted: frozenset[int]


def link_pushes(facts: Mapping[int, SessionFacts], ends: Mapping[int, Moment]) -> LinkedPushes:
    """Return the turns of the pushed requests of a recording.

    Args:
        facts: its exchanges by number, in arrival order.
        ends: when each was over.
    """
    pushing = {each.session for each in facts.values() if each.pushes}
    if not pushing:
        return LinkedPushes({}, frozenset())
    sessions = {session: _Session() for session in pushing}
    own = {number: each for number, each in facts.items() if each.session in pushing}
    for _, _, what, number, push in sorted(_events(own, ends), key=_order):
        session, exchange = sessions[facts[number].session], facts[number]
        if push is not None:
            session.pushed(number, push, exchange)
        elif what is _What.END:
            session.pending.pop(number, None)
        elif exchange.posted_id is not None:
            session.posted(number, exchange.posted_id)
        elif exchange.request_id is not None and not exchange.listens:
            session.pending[number] = None
    turns = {number: turns for each in sessions.values() for number, turns in each.turns.items()}
    for turn in chain.from_iterable(turns.values()):
        turn.order_answers()
    return LinkedPushes(
        dict(sorted(turns.items())),
        frozenset(
            answer.number for each in turns.values() for turn in each for answer in turn.answers
        ),
    )


class _What(IntEnum):
    """What happens; of several things at one moment, the smaller one comes first."""

    REQUEST = 0
    PUSH = 1
    END = 2


_Event = tuple[int, float, _What, int, Push | None]


def _events(facts: Mapping[int, SessionFacts], ends: Mapping[int, Moment]) -> Iterator[_Event]:
    """Yield what happens in sessions: after how many requests, when, what, in which exchange."""
    for number, each in facts.items():
        # Whatever came after this request has a later time.
        yield number, 0.0, _What.REQUEST, number, None
        yield *ends[number], _What.END, number, None
        for push in () if each.posted_id is not None else each.pushes:
            yield *push.moment, _What.PUSH, number, push


def _order(event: _Event) -> tuple[int, bool, float, _What, int, int]:
    after, at_ms, what, number, push = event
    return after, what is not _What.REQUEST, at_ms, what, number, -1 if push is None else push.piece


class _Session:
    """One session while its history is told.

    Attributes:
        pending: the calls that have no response yet.
        turns: the turns so far, by the exchange that was pending.
    """

    def __init__(self) -> None:
        self.pending: dict[int, None] = {}
        self.turns: dict[int, list[LinkedTurn]] = {}
        self._unanswered: dict[str, deque[tuple[_OpenTurn, str]]] = {}
        self._open: dict[int, _OpenTurn] = {}

    def pushed(self, number: int, push: Push, exchange: SessionFacts) -> None:
        """Take a request that the server pushed."""
        owner = number if exchange.resumes is None else exchange.resumes
        if exchange.listens and len(self.pending) == 1:
            (owner,) = self.pending
        opened = self._open.get(owner)
        # On a stream that calls share, whether requests overlap is chance.
        is_nobodys = exchange.listens and owner == number
        if opened is None or is_nobodys or not opened.keys.unanswered:
            opened = self._open[owner] = _OpenTurn(LinkedTurn(), TurnKeys())
            self.turns.setdefault(owner, []).append(opened.turn)
        key = opened.keys.key_for(push.method)
        opened.turn.asked.append(LinkedPush(key, number, push.piece))
        self._unanswered.setdefault(push.id, deque()).append((opened, key))

    def posted(self, number: int, identity: str) -> None:
        """Take a response that the client posted; it answers the oldest request with this id."""
        unanswered = self._unanswered.get(identity)
        if unanswered:
            opened, key = unanswered.popleft()
            opened.turn.answers.append(LinkedAnswer(key, number))
            opened.keys.unanswered -= 1


class _OpenTurn(NamedTuple):
    """A turn that may go on."""

    turn: LinkedTurn
    keys: TurnKeys
