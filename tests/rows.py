"""Calls on a page, as rows of elements."""

from __future__ import annotations

from builders import Step, cassette_of, loaded
from pages import Node, assert_readable, parsed

from mrtr_cassette.core.report.details import detailed
from mrtr_cassette.core.report.summary import InteractionOutcome, Outcome
from mrtr_cassette.core.view.markup import joined
from mrtr_cassette.core.view.notes import Note
from mrtr_cassette.core.view.rows import row
from mrtr_cassette.core.view.timeline import timelines


def rows_of(*script: Step, notes: tuple[Note, ...] = (), outcome: Outcome | None = None) -> Node:
    """Return the rows of a script."""
    calls = detailed(loaded(cassette_of(*script))).interactions
    (timeline,) = timelines(calls)
    made = []
    for each in calls:
        interaction = each.interaction
        branches = [
            other
            for other in calls
            if other.interaction.branch and other.interaction.branch.of == interaction.number
        ]
        played = None
        if outcome is not None:
            played = InteractionOutcome(interaction.number, interaction.call, outcome, 0)
        made.append(row(each, timeline.axis, branches, played, notes))
    page = parsed(joined(made))
    assert_readable(page)
    return page


def chips_of(page: Node) -> list[list[str]]:
    """Return what the rows tell in short."""
    return [
        [chip.text for chip in next(each.every("summary")).every(class_="chip")]
        for each in page.every("li", class_="call")
    ]
