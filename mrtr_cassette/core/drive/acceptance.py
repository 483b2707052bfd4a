"""Which responses of a live server are taken into the cassette that it was held to.

Rule: a response is taken whole, so only where all of its changes are accepted. Errors and changed
rounds are never accepted by their verdict alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from mrtr_cassette.core.compare.accepting import TakenResponse, why_not_taken
from mrtr_cassette.core.compare.changes import Change, Verdict
from mrtr_cassette.core.drive.verification import Verified
from mrtr_cassette.core.exchange.recorded import Cassette, RecordedInteraction
from mrtr_cassette.core.secrets.surrogates import sha256_of

ACCEPTABLE: Final[tuple[Verdict, ...]] = (
    "text-changed",
    "shape-changed",
    "surface-changed",
    "question-changed",
)
"""The verdicts that can be accepted wherever they are found."""

_NOT_COMPARED: Final = frozenset({"skipped", "not-reached", "unstable"})


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """One response of a live server that could stand in the cassette.

    Attributes:
        number: number of its interaction.
        call: how messages name it.
        turn: the turn that it asks, from 1; 0 for the final response.
        changes: where it differs, information included.
        taken: the response and its place.
        problem: why it can't be taken, or None.
    """

    number: int
    call: str
    turn: int
    changes: tuple[Change, ...]
    taken: TakenResponse | None
    problem: str | None

    @property
    def counting(self) -> tuple[Change, ...]:
        """The changes that are more than information."""
        return tuple(change for change in self.changes if not change.is_information)

    @property
    def goes_on(self) -> bool:
        """Whether the conversation goes on when it is taken, and has not been followed so far."""
        return (
            self.taken is not None
            and self.taken.position + 1 < len(self.taken.interaction.exchanges)
            and self.taken.live.ask is not None
            and any(change.verdict == "question-changed" for change in self.changes)
        )


def proposals(cassette: Cassette, verified: Iterable[Verified]) -> list[Proposal]:
    """Return what could be taken, in the order of the cassette.

    Args:
        cassette: the cassette as its file has it.
    """
    proposed: list[Proposal] = []
    for each in sorted(verified, key=lambda each: each.planned.interaction.number):
        if each.verdict not in _NOT_COMPARED:
            proposed += _proposals_of(cassette, each)
    return proposed


def _proposals_of(cassette: Cassette, verified: Verified) -> Iterator[Proposal]:
    interaction = cassette.interactions[verified.planned.interaction.number - 1]
    states = {sha256_of(live): recorded for live, recorded in verified.states}
    turns = dict.fromkeys(change.turn for change in verified.changes)
    for turn in turns:
        changes = tuple(change for at, change in verified.changes if at == turn)
        position = _position_of(interaction, turn)
        taken: TakenResponse | None = None
        problem: str | None = "the server pushed it, as part of another response"
        if position is not None:
            problem = "the live server gave no response"
            if position < len(verified.live):
                taken = TakenResponse(interaction, position, verified.live[position], states)
                problem = why_not_taken(taken, cassette)
        call = verified.planned.label
        yield Proposal(interaction.number, call, turn, changes, taken, problem)


def _position_of(interaction: RecordedInteraction, turn: int) -> int | None:
    """Return which exchange asks in a turn; None where that was pushed."""
    last = len(interaction.exchanges) - 1
    if turn == 0:
        return last
    positions = (at for at in range(last + 1) if interaction.asking_turn(at) == turn)
    return next(positions, None)


def accepted_by_verdict(proposed: Iterable[Proposal], verdicts: Collection[str]) -> list[Proposal]:
    """Return the proposals that are taken because of the verdicts of their changes."""
    return [
        each
        for each in proposed
        if each.problem is None
        and any(change.verdict in verdicts for change in each.changes)
        and all(change.verdict in verdicts for change in each.counting)
    ]
