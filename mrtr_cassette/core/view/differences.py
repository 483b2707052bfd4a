"""What a page notes of a call: a miss near it, or what differs in another cassette.

Rule: both questions of a changed turn are drawn as forms, as that is how people compare them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from mrtr_cassette.core.compare.cassettes import CassetteComparison, InteractionComparison
from mrtr_cassette.core.compare.conversations import Stage
from mrtr_cassette.core.report.comparison import shown_values
from mrtr_cassette.core.report.details import CassetteDetails, InteractionDetails
from mrtr_cassette.core.report.misses import MissReport
from mrtr_cassette.core.wire.pointers import Difference

_STAGES: Final = {
    "request": "The request",
    "ask": "The question",
    "answer": "The answer",
    "result": "The result",
}


@dataclass(frozen=True, slots=True)
class Earlier:
    """The cassette that another one is compared with.

    Attributes:
        details: all that it has.
        comparison: what differs between it and the other one.
    """

    details: CassetteDetails
    comparison: CassetteComparison


class TurnColumn(NamedTuple):
    """The turn of one of two calls: before or after, the call, the turn's number and its id."""

    side: str
    details: InteractionDetails
    turn: int
    place: str


class ChangedStage(NamedTuple):
    """What differs at one point of a call.

    Attributes:
        columns: the turns to draw beside each other.
        caption: of a table of what differs; empty where only one of the two has this.
        differences: the rows of the table.
    """

    columns: Sequence[TurnColumn] = ()
    caption: str = ""
    differences: Sequence[Difference] = ()


class Note(NamedTuple):
    """What a page says of a call before anything else.

    Attributes:
        label: the note in short, for the row.
        kind: how the label looks.
        number: of the miss, or of the call.
        miss: the request that was missed.
        first: how the cassette is named that lacks the call.
        earlier: the number of the call there.
        stages: what differs.
    """

    label: str
    kind: str
    number: int
    miss: MissReport | None = None
    first: str = ""
    earlier: int = 0
    stages: Sequence[ChangedStage] = ()


def notes_of(
    misses: Sequence[MissReport], earlier: Earlier | None, later: CassetteDetails
) -> dict[int, list[Note]]:
    """Return what is noted of the calls of a cassette, by number."""
    notes: dict[int, list[Note]] = defaultdict(list)
    for at, miss in enumerate(misses, start=1):
        if miss.nearest is not None:
            notes[miss.nearest.interaction].append(Note(f"miss: {miss.reason}", "bad", at, miss))
    if earlier is None:
        return notes
    old = {each.interaction.number: each for each in earlier.details.interactions}
    new = {each.interaction.number: each for each in later.interactions}
    for each in earlier.comparison.interactions:
        number = each.received
        if number is None or each.mark == "=":
            continue
        if each.recorded is None:
            first = earlier.comparison.recorded
            notes[number].append(Note("added", "good", number, first=first))
        else:
            stages = tuple(_changed_stages(each.stages, old[each.recorded], new[number]))
            notes[number].append(
                Note(each.verdict, "bad", number, earlier=each.recorded, stages=stages)
            )
    return notes


def stage_words(each: InteractionComparison) -> list[str]:
    """Return where a changed call differs."""
    return [f"{_STAGES[it.kind].lower()}{_of_turn(it)}" for it in each.stages if it.mark != "="]


def _of_turn(stage: Stage) -> str:
    return f" of turn {stage.turn}" if stage.turn else ""


def _changed_stages(
    stages: Sequence[Stage], old: InteractionDetails, new: InteractionDetails
) -> Iterator[ChangedStage]:
    """Yield what differs; the turns of both are counted on the way."""
    place = f"c{new.interaction.number}"
    at_old = at_new = 0
    for stage in stages:
        columns = []
        if stage.kind == "ask":
            at_old += stage.mark != "+"
            at_new += stage.mark != "-"
            if stage.mark != "+":
                columns.append(TurnColumn("before", old, at_old, f"{place}a{at_old}"))
            if stage.mark != "-":
                columns.append(TurnColumn("after", new, at_new, f"{place}b{at_new}"))
        if stage.mark == "~":
            verdicts = ", ".join(dict.fromkeys(change.verdict for change in stage.changes))
            rows = [Difference(change.pointer, *shown_values(change)) for change in stage.changes]
            yield ChangedStage(columns, f"{_STAGES[stage.kind]}{_of_turn(stage)}: {verdicts}", rows)
        elif stage.mark != "=":
            yield ChangedStage(columns)
