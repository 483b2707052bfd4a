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
    """Return those interactions of some that others can't be without, which are none of them."""
    needed: set[int] = set()
    waiting = [each for each in cassette.interactions if each.number not in numbers]
    by_number = {interaction.number: interaction for interaction in cassette.interactions}
    while waiting:
        for number in _needs(waiting.pop()):
            if number in numbers and number not in needed:
                needed.add(number)
                waiting.append(by_number[number])
    return needed


def _needs(interaction: RecordedInteraction) -> Iterator[int]:
    """Yield the interactions that have the asks of an interaction."""
    if interaction.branch is not None:
        yield interaction.branch.of
    for turn in interaction.pushed_turns:
        for request in turn.asked:
            if request.interaction is not None:
                yield request.interaction


def without_interactions(cassette: Cassette, numbers: Collection[int]) -> Cassette:
    """Return a cassette without some interactions; nothing that stays is changed but its number."""
    kept = [each for each in cassette.interactions if each.number not in numbers]
    renumbered = {interaction.number: at for at, interaction in enumerate(kept, start=1)}
    interactions = [_renumbered(interaction, renumbered) for interaction in kept]
    return replace(cassette, interactions=tuple(interactions))


def _renumbered(
    interaction: RecordedInteraction, numbers: Mapping[int, int]
) -> RecordedInteraction:
    branch = interaction.branch
    if branch is not None:
        branch = branch._replace(of=numbers[branch.of])

    def asked_by(request: PushedRequest) -> PushedRequest:
        place = request.interaction
        return request if place is None else replace(request, interaction=numbers[place])

    def turn_of(turn: PushedTurn) -> PushedTurn:
        return replace(turn, asked=tuple(map(asked_by, turn.asked)))

    return replace(
        interaction,
        number=numbers[interaction.number],
        branch=branch,
        pushed_turns=tuple(map(turn_of, interaction.pushed_turns)),
    )
