"""What a page notes of a call: that a replay missed a request near it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mrtr_cassette.core.report.misses import MissReport
from mrtr_cassette.core.view.markup import Markup, element, recorded
from mrtr_cassette.core.view.values import chip, difference_table


class Note(NamedTuple):
    """What a page says of a call before anything else.

    Attributes:
        label: the note in short, for the row.
        kind: how the label looks.
        content: the note.
    """

    label: str
    kind: str
    content: Markup


def miss_note(miss: MissReport, number: int) -> Note:
    """Return a miss as a note of the call that comes nearest."""
    return Note(f"miss: {miss.reason}", "bad", miss_article(miss, number))


def miss_article(miss: MissReport, number: int, level: str = "h4") -> Markup:
    """Return a miss, with what was received beside what was recorded."""
    nearest = miss.nearest
    place = None
    if nearest is not None:
        turn = f"t{nearest.turn}" if nearest.turn else ""
        words = f"#{nearest.interaction}" + (f", turn {nearest.turn}" if nearest.turn else "")
        link = element("a", words, href=f"#i{nearest.interaction}{turn}")
        place = element("p", "Nearest recorded request: ", link, class_="nearest")
    return element(
        "article",
        element(
            level,
            element("a", f"Miss {number}", href=f"#m{number}"),
            ": ",
            recorded(miss.detail),
            " ",
            chip(miss.reason, "bad"),
        ),
        element("p", "Received: ", element("code", recorded(miss.request))),
        [element("p", "Asked: ", recorded(question)) for question in miss.questions],
        place,
        difference_table("What differs", miss.differences, "received")
        if miss.differences
        else None,
        element("ul", [element("li", recorded(fix)) for fix in miss.fixes], class_="fixes"),
        class_="miss",
        id=f"m{number}",
    )


def misses_section(misses: Sequence[MissReport]) -> Markup | None:
    """Return a list of all misses; those without a nearest call stand in it whole."""
    if not misses:
        return None
    items = []
    for number, miss in enumerate(misses, start=1):
        if miss.nearest is None:
            items.append(element("li", miss_article(miss, number, "h3")))
        else:
            link = element("a", f"Miss {number}", href=f"#m{number}")
            items.append(
                element("li", link, ": ", recorded(miss.request), " ", chip(miss.reason, "bad"))
            )
    count = len(misses)
    heading = element("h2", f"{count} {'request was' if count == 1 else 'requests were'} missed")
    return element("section", heading, element("ol", items), class_="panel bad", id="misses")
