"""Take interactions out of a recording."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    PushedRequest,
    PushedTurn,
    RecordedInteraction,
)


def needed_by_others(cassette: Cassette, numbers: Collection[int]) -> set[int]:
    """Return those of the numbered interactions that the remaining ones can't be without."""
    needed: set[int] = set()
    waiting = _without(cassette, numbers)
    by_number = {
        interaction.number: interaction for interaction in cassette.interactions
    }
    while waiting:
        for number in needs_of(waiting.pop()):
            if number in numbers and number not in needed:
                needed.add(number)
                waiting.append(by_number[number])

    return needed


def needs_of(interaction: RecordedInteraction) -> Iterator[int]:
    """Yield the interactions that have the asks of an interaction."""
    if interaction.branch is not None:
        yield interaction.branch.of

    for turn in interaction.pushed_turns:
        for request in turn.asked:
            if request.interaction is not None:
                yield request.interaction


def without_interactions(cassette: Cassette, numbers: Collection[int]) -> Cassette:
    """Return a cassette without some interactions; nothing that stays is changed but its number."""
    kept = _without(cassette, numbers)
    renumbered: dict[int, int] = {}
    for number, interaction in enumerate(kept, start=1):
        renumbered[interaction.number] = number

    interactions = [_renumbered(interaction, renumbered) for interaction in kept]
    return replace(cassette, interactions=tuple(interactions))


def _without(cassette: Cassette, numbers: Collection[int]) -> list[RecordedInteraction]:
    interactions = cassette.interactions
    return [kept for kept in interactions if kept.number not in numbers]


def _renumbered(
    interaction: RecordedInteraction, numbers: Mapping[int, int]
) -> RecordedInteraction:
    branch = interaction.branch
    if branch is not None:
        branch = branch._replace(of=numbers[branch.of])

    def asked_by(request: PushedRequest) -> PushedRequest:
        if request.interaction is None:
            return request
        return replace(request, interaction=numbers[request.interaction])

    def turn_of(turn: PushedTurn) -> PushedTurn:
        asked = [asked_by(request) for request in turn.asked]
        return replace(turn, asked=tuple(asked))

    pushed_turns = [turn_of(turn) for turn in interaction.pushed_turns]
    return replace(
        interaction,
        number=numbers[interaction.number],
        branch=branch,
        pushed_turns=tuple(pushed_turns),
    )
