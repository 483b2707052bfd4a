"""A call as a row of a session: what it was, how it ended, and when it waited for whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mrtr_cassette.core.report.details import InteractionDetails
from mrtr_cassette.core.report.summary import InteractionOutcome, Outcome
from mrtr_cassette.core.view.conversations import SHOWN, conversation, final_chip
from mrtr_cassette.core.view.markup import Markup, element, recorded
from mrtr_cassette.core.view.notes import Note
from mrtr_cassette.core.view.timeline import Axis, shown_time
from mrtr_cassette.core.view.values import chip
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.errors import counted, shorten

_LANE_HEIGHT: Final = 16
_LEAST_WIDTH: Final = 0.6
"""In percent of the axis; what is shorter could not be seen."""
_SHOWN_ARGUMENTS: Final = 90


def row(
    details: InteractionDetails,
    axis: Axis | None,
    branches: Sequence[InteractionDetails] = (),
    outcome: InteractionOutcome | None = None,
    notes: Sequence[Note] = (),
    prefix: str = SHOWN,
) -> Markup:
    """Return the row of a call.

    Args:
        axis: the time axis of its session; None where its time is not shown.
        branches: the calls that share an ask with it and answer it in another way.
        outcome: what became of it in a replay, or None where there was none.
        notes: what is said of it before anything else, such as misses near it.
        prefix: what its ids on the page begin with.
    """
    interaction = details.interaction
    arguments = "" if details.parameters is None else canonical(details.parameters)
    if isinstance(details.parameters, dict):
        pairs = [
            f"{name}: {value if isinstance(value, str) else canonical(value)}"
            for name, value in details.parameters.items()
        ]
        arguments = ", ".join(pairs)
    title = element(
        "h3",
        element("span", f"#{interaction.number}", class_="number"),
        " ",
        element("span", recorded(details.method), class_="method"),
        [" ", element("b", recorded(details.name))] if details.name else None,
    )
    summary = element(
        "summary",
        element(
            "div",
            title,
            element("p", recorded(shorten(arguments, _SHOWN_ARGUMENTS)), class_="arguments"),
            class_="what",
        ),
        element("div", _chips(details, branches, outcome, notes), class_="chips"),
        None if axis is None else _lane(details, axis),
    )
    body = element(
        "div",
        [note.content for note in notes],
        conversation(details, branches, prefix),
        class_="flow",
    )
    marks = _marks(details, branches, outcome, notes)
    return element(
        "li",
        element("details", summary, body, id=f"{prefix}{interaction.number}", open=bool(notes)),
        class_="call",
        data_is=" ".join(marks),
    )


def _marks(
    details: InteractionDetails,
    branches: Sequence[InteractionDetails],
    outcome: InteractionOutcome | None,
    notes: Sequence[Note],
) -> list[str]:
    """Return by what a reader may pick out a row."""
    marks = {
        "asks": bool(details.interaction.turns),
        "branches": bool(branches) or details.interaction.branch is not None,
        "fails": details.final.kind in {"error", "failed result"},
        "noted": bool(notes),
        "unplayed": outcome is not None and outcome.outcome is not Outcome.PLAYED,
    }
    return [name for name, applies in marks.items() if applies]


def _chips(
    details: InteractionDetails,
    branches: Sequence[InteractionDetails],
    outcome: InteractionOutcome | None,
    notes: Sequence[Note],
) -> list[Markup]:
    interaction = details.interaction
    chips = [chip(note.label, note.kind) for note in notes]
    if outcome is not None and outcome.outcome is not Outcome.PLAYED:
        word = "never played" if outcome.outcome is Outcome.UNPLAYED else outcome.outcome.value
        chips.append(chip(word, "bad"))
    if interaction.turns:
        chips.append(chip(counted(len(interaction.turns), "turn"), "person"))
    if branches:
        chips.append(chip(f"{len(branches) + 1} branches"))
    if interaction.branch is not None:
        chips.append(chip(f"branch of #{interaction.branch.of}"))
    if interaction.is_orphan:
        chips.append(chip("orphan", "bad"))
    chips.append(final_chip(details))
    return chips


# Time


def _lane(details: InteractionDetails, axis: Axis) -> Markup:
    """Return when a call waited for the server, and when for a person."""
    bars = [_bar(axis, *each) for each in details.stretches]
    totals = {
        whose: sum(each.end_ms - each.start_ms for each in details.stretches if each.whose == whose)
        for whose in ("server", "person")
    }
    words = f"server {shown_time(totals['server'])}"
    if any(each.whose == "person" for each in details.stretches):
        words += f", person {shown_time(totals['person'])}"
    drawing = element("svg", bars, width="100%", height=_LANE_HEIGHT, role="img", aria_label=words)
    return element("div", drawing, element("small", words), class_="lane")


def _bar(axis: Axis, whose: str, start_ms: float, end_ms: float) -> Markup:
    start = min(axis.position(start_ms), 100 - _LEAST_WIDTH)
    width = max(axis.position(end_ms) - start, _LEAST_WIDTH)
    return element(
        "rect",
        x=f"{start:.2f}%",
        y=2,
        width=f"{width:.2f}%",
        height=_LANE_HEIGHT - 4,
        class_=f"{whose}-time",
    )
