"""What differs between two cassettes, on the page of the later one.

Rule: both questions of a changed turn are drawn as forms, as that is how people compare them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from mrtr_cassette.core.compare.cassettes import CassetteComparison, InteractionComparison
from mrtr_cassette.core.compare.conversations import Stage
from mrtr_cassette.core.report.comparison import conclusion, shown_values
from mrtr_cassette.core.report.details import CassetteDetails, InteractionDetails
from mrtr_cassette.core.view.conversations import GONE, SHOWN
from mrtr_cassette.core.view.markup import Markup, element, recorded
from mrtr_cassette.core.view.notes import Note
from mrtr_cassette.core.view.questions import turn_section
from mrtr_cassette.core.view.values import chip, difference_table
from mrtr_cassette.core.wire.pointers import Difference

_KINDS: Final = {"~": "bad", "-": "bad", "+": "good"}
_WORDS: Final = {"~": "differs", "-": "only in the first", "+": "only in the second"}
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


def differences_section(comparison: CassetteComparison) -> Markup:
    """Return a list of the calls that differ, each with a link to it."""
    items = [_item(each) for each in comparison.interactions if each.mark != "="]
    heading = element("h2", "Differences" if items else "No differences")
    return element(
        "section",
        heading,
        element("p", recorded(conclusion(comparison)), class_="note"),
        element("ul", items, class_="changes") if items else None,
        class_=f"panel {'bad' if items else 'good'}",
        id="differences",
    )


def _item(each: InteractionComparison) -> Markup:
    number = each.recorded if each.received is None else each.received
    place = f"{GONE if each.received is None else SHOWN}{number}"
    changed = [
        f"{_STAGES[stage.kind].lower()}{f' of turn {stage.turn}' if stage.turn else ''}"
        for stage in each.stages
        if stage.mark != "=" and each.mark == "~"
    ]
    return element(
        "li",
        element("code", each.mark, class_="mark"),
        " ",
        element("a", f"#{number}", href=f"#{place}"),
        " ",
        recorded(each.call),
        " ",
        chip(each.verdict if each.mark == "~" else _WORDS[each.mark], _KINDS[each.mark]),
        f" {', '.join(changed)}" if changed else None,
    )


def difference_notes(earlier: Earlier, later: CassetteDetails) -> dict[int, Note]:
    """Return what differs of the later cassette's calls, by number."""
    old = {each.interaction.number: each for each in earlier.details.interactions}
    new = {each.interaction.number: each for each in later.interactions}
    notes = {}
    for each in earlier.comparison.interactions:
        if each.received is None or each.mark == "=":
            continue
        if each.recorded is None:
            words = element("p", "This call is not in ", recorded(earlier.comparison.recorded), ".")
            notes[each.received] = Note("added", "good", element("article", words, class_="change"))
        else:
            article = _article(each, old[each.recorded], new[each.received])
            notes[each.received] = Note(each.verdict, "bad", article)
    return notes


def _article(
    each: InteractionComparison, old: InteractionDetails, new: InteractionDetails
) -> Markup:
    heading = element("h4", f"Differs from #{each.recorded} of the first cassette")
    parts = list(_changed_stages(each.stages, old, new))
    return element("article", heading, parts, class_="change", id=f"c{each.received}")


def _changed_stages(
    stages: tuple[Stage, ...], old: InteractionDetails, new: InteractionDetails
) -> Iterator[Markup]:
    """Yield what differs; the turns of both are counted on the way."""
    place = f"c{new.interaction.number}"
    at_old = at_new = 0
    for stage in stages:
        if stage.kind == "ask":
            at_old += stage.mark != "+"
            at_new += stage.mark != "-"
        if stage.mark == "=":
            continue
        if stage.kind == "ask":
            columns = []
            if stage.mark != "+":
                columns.append(_column("before", old, at_old, f"{place}a{at_old}"))
            if stage.mark != "-":
                columns.append(_column("after", new, at_new, f"{place}b{at_new}"))
            yield element("div", columns, class_="columns")
        if stage.mark == "~":
            yield _table(stage)


def _column(words: str, details: InteractionDetails, turn: int, place: str) -> Markup:
    interaction = details.interaction
    drawn = turn_section(interaction.turns[turn - 1], place, turn, details.answering_ms[turn - 1])
    return element("div", element("p", words, class_="side"), drawn, class_=words)


def _table(stage: Stage) -> Markup:
    differences = [Difference(change.pointer, *shown_values(change)) for change in stage.changes]
    turn = f" of turn {stage.turn}" if stage.turn else ""
    verdicts = ", ".join(dict.fromkeys(change.verdict for change in stage.changes))
    return difference_table(f"{_STAGES[stage.kind]}{turn}: {verdicts}", differences, "now")
