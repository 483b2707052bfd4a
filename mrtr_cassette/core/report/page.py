"""A cassette as one HTML file, which needs nothing else and asks nobody for anything.

Rule: the policy allows the one style and the one script of the page, by hash, and nothing else. The
page is whole without the script, which only finds and opens what is there. Nothing on it can be
sent or followed: fields are disabled, a recorded URL is a text.
Source: W3C Content Security Policy Level 3; MCP and house words: docs/glossary.md.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

from jinja2 import DictLoader, Environment, StrictUndefined, Template
from markupsafe import Markup

from mrtr_cassette.core.compare.conversations import (
    CassetteComparison,
    InteractionComparison,
    Stage,
)
from mrtr_cassette.core.report import forms, markup
from mrtr_cassette.core.report.comparison import conclusion, shown_values
from mrtr_cassette.core.report.details import CassetteDetails, Interaction, Stretch
from mrtr_cassette.core.report.misses import MissReport
from mrtr_cassette.core.report.runs import InteractionOutcome, Outcome, ReplayReport
from mrtr_cassette.core.report.wording import json_text
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.core.wire.pointers import Difference
from mrtr_cassette.errors import counted, shorten

GENERATOR: Final = "mrtr-cassette view"
"""What a page says of itself; nothing else is ever overwritten by one."""
START: Final = (
    f'<!doctype html>\n<html lang="en"><head><meta name="generator" content="{GENERATOR}">'
)
TEMPLATES: Final = ("page.html", "call.html", "turn.html", "values.html")
_END_OF_CALL: Final = "</details></li>"


class Assets(NamedTuple):
    """The texts that a page is made of: style and script as they are, and each of `TEMPLATES`."""

    style: str
    script: str
    templates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Earlier:
    """The cassette that another one is compared with."""

    details: CassetteDetails
    comparison: CassetteComparison


@dataclass(frozen=True, slots=True)
class View:
    """What a page shows: a cassette, and what a replay or another cassette adds to it."""

    details: CassetteDetails
    replay: ReplayReport | None = None
    earlier: Earlier | None = None


def page(view: View, assets: Assets) -> Iterator[str]:
    """Yield a page in pieces, of which each but the last ends with a call."""
    interactions = view.details.interactions
    misses = view.replay.misses if view.replay is not None else ()
    branches: dict[int, list[Interaction]] = defaultdict(list)
    for each in interactions:
        if each.branch is not None:
            branches[each.branch.of].append(each)
    pieces: list[str] = []
    for piece in _template(assets.templates).generate(
        view=view,
        start=Markup(START),  # noqa: S704  all three are ours
        style=Markup(assets.style),  # noqa: S704
        script=Markup(assets.script),  # noqa: S704
        misses=misses,
        notes=_notes(misses, view),
        sessions=timelines(interactions),
        branches=branches,
        outcomes={each.number: each for each in view.replay.interactions} if view.replay else {},
        gone=_gone(view.earlier),
    ):
        pieces.append(piece)
        if piece.endswith(_END_OF_CALL):
            yield "".join(pieces)
            pieces.clear()
    yield "".join([*pieces, "\n"])


def _gone(earlier: Earlier | None) -> list[Interaction]:
    """Return the calls that only the earlier cassette has."""
    if earlier is None:
        return []
    numbers = {each.recorded for each in earlier.comparison.interactions if each.received is None}
    return [each for each in earlier.details.interactions if each.number in numbers]


@cache
def _template(texts: tuple[str, ...]) -> Template:
    """Return the template of a page; its indentation is for those who read it."""
    lines = {
        name: "".join(line.strip() for line in source.splitlines())
        for name, source in zip(TEMPLATES, texts, strict=True)
    }
    environment = Environment(
        loader=DictLoader(lines),
        autoescape=True,
        finalize=markup.plain,
        undefined=StrictUndefined,
    )
    environment.globals["counted"] = counted
    environment.filters |= {
        "answers": markup.answers_in_short,
        "arguments": markup.arguments_in_short,
        "bars": _bars,
        "blocks": markup.content_blocks,
        "canonical": canonical,
        "conclusion": conclusion,
        "cut": markup.cut,
        "ending": markup.ending,
        "json": json_text,
        "marks": _marks,
        "name": _name,
        "questions": forms.questions_of,
        "recorded": markup.recorded,
        "replaced": markup.replaced_in,
        "scalars": markup.scalars_of,
        "sharing": _sharing,
        "shorten": shorten,
        "source": _source,
        "stages": _stage_words,
        "time": markup.shown_time,
        "unasked": forms.unasked_in,
        "waiting": _waiting_in_words,
    }
    return environment.get_template("page.html")


def _source(content: str) -> Markup:
    """Return how the policy allows a style or a script."""
    digest = b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return Markup(f"'sha256-{digest}'")  # noqa: S704  its letters are those of Base64


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _sharing(branches: Sequence[Interaction], call: Interaction, turn: int) -> list[Interaction]:
    """Return the branches that share the ask of this turn."""
    return [each for each in branches if each.branch == (call.number, turn)]


def _marks(
    call: Interaction,
    branches: Sequence[Interaction],
    outcome: InteractionOutcome | None,
    notes: Sequence[Note],
) -> list[str]:
    """Return by what a reader may pick out a call."""
    found = {
        "asks": bool(call.turns),
        "branches": bool(branches) or call.branch is not None,
        "fails": call.final.kind in {"error", "failed result"},
        "noted": bool(notes),
        "unplayed": outcome is not None and outcome.outcome is not Outcome.PLAYED,
    }
    return [name for name, applies in found.items() if applies]


# Misses and differences

_STAGES: Final = {
    "request": "The request",
    "ask": "The question",
    "answer": "The answer",
    "result": "The result",
}


class TurnColumn(NamedTuple):
    """The turn of one of two compared calls: `before` or `after`, its number and its id."""

    side: str
    call: Interaction
    turn: int
    place: str


class ChangedStage(NamedTuple):
    """What differs at one point of a call: turns beside each other, and a table of differences."""

    columns: Sequence[TurnColumn] = ()
    caption: str = ""
    differences: Sequence[Difference] = ()


class Note(NamedTuple):
    """What a page says of a call before anything else: a miss near it, or what differs.

    Attributes:
        label: the note in short, for the row; `kind` is how it looks.
        number: of the miss, or of the call.
        first: the cassette that lacks the call.
        earlier: the number of the call there.
    """

    label: str
    kind: str
    number: int
    miss: MissReport | None = None
    first: str = ""
    earlier: int = 0
    stages: Sequence[ChangedStage] = ()


def _notes(misses: Sequence[MissReport], view: View) -> dict[int, list[Note]]:
    """Return what is noted of the calls of a cassette, by number."""
    notes: dict[int, list[Note]] = defaultdict(list)
    for at, miss in enumerate(misses, start=1):
        if miss.nearest is not None:
            notes[miss.nearest.interaction].append(Note(f"miss: {miss.reason}", "bad", at, miss))
    earlier = view.earlier
    if earlier is None:
        return notes
    old = {each.number: each for each in earlier.details.interactions}
    new = {each.number: each for each in view.details.interactions}
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


def _stage_words(each: InteractionComparison) -> list[str]:
    """Return where a changed call differs."""
    return [f"{_STAGES[it.kind].lower()}{_of_turn(it)}" for it in each.stages if it.mark != "="]


def _of_turn(stage: Stage) -> str:
    return f" of turn {stage.turn}" if stage.turn else ""


def _changed_stages(
    stages: Sequence[Stage], old: Interaction, new: Interaction
) -> Iterator[ChangedStage]:
    """Yield what differs; the turns of both are counted on the way."""
    place = f"c{new.number}"
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


# Time

_LONG_IDLE: Final = 0.1
"""Idle time of more than this part of the busy time is cut."""
_CUT: Final = 0.025
"""What a cut is as wide as, as a part of the busy time."""
_LEAST_WIDTH: Final = 0.6
"""In percent of the axis; what is shorter could not be seen."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A time axis from 0 to 100, linear between two moments (in ms) in which something goes on."""

    moments: tuple[float, ...]
    positions: tuple[float, ...]
    cuts: tuple[float, ...]
    busy_ms: float

    def position(self, at_ms: float) -> float:
        """Return where a moment stands; one beyond the axis stands at its end."""
        index = bisect_right(self.moments, at_ms)
        if index in {0, len(self.moments)}:
            return 0.0 if index == 0 else 100.0
        start, end = self.moments[index - 1 : index + 1]
        low, high = self.positions[index - 1 : index + 1]
        return low + (high - low) * (at_ms - start) / (end - start)


def axis_of(stretches: Iterable[Stretch]) -> Axis:
    """Return the axis for what was under way."""
    busy: list[list[float]] = []
    for stretch in sorted(stretches, key=lambda each: each.start_ms):
        if busy and stretch.start_ms <= busy[-1][1]:
            busy[-1][1] = max(busy[-1][1], stretch.end_ms)
        else:
            busy.append([stretch.start_ms, stretch.end_ms])
    busy_ms = sum(end - start for start, end in busy)
    moments: list[float] = []
    places: list[float] = []
    cuts: list[float] = []
    place = 0.0
    for start, end in busy:
        idle = start - moments[-1] if moments else 0.0
        if idle > busy_ms * _LONG_IDLE:
            idle = busy_ms * _CUT
            cuts.append(place + idle / 2)
        place += idle
        moments += [start, end]
        places += [place, place + end - start]
        place = places[-1]
    scale = 100 / (place or 1.0)
    positions = tuple(each * scale for each in places)
    return Axis(tuple(moments), positions, tuple(each * scale for each in cuts), busy_ms)


class SessionTimeline(NamedTuple):
    """The calls of one session in the order of the file, and the axis for their time."""

    session: str
    client: str
    interactions: tuple[Interaction, ...]
    axis: Axis


def timelines(interactions: Sequence[Interaction]) -> list[SessionTimeline]:
    """Return the sessions of a cassette, in the order in which they began."""
    by_session: dict[str, list[Interaction]] = {}
    for each in interactions:
        by_session.setdefault(each.session, []).append(each)
    found = []
    for session, calls in by_session.items():
        client = next((each.client for each in calls if each.client), "")
        # The time of streams that only listen counts only where there is nothing else.
        timed = [each for each in calls if not each.listens and each.stretches] or calls
        axis = axis_of(stretch for each in timed for stretch in each.stretches)
        found.append(SessionTimeline(session, client, tuple(calls), axis))
    return found


def _bars(call: Interaction, axis: Axis) -> Iterator[tuple[str, str, str]]:
    """Yield whom a call waited for, where on the axis that begins, and how wide it is."""
    for whose, start_ms, end_ms in call.stretches:
        start = min(axis.position(start_ms), 100 - _LEAST_WIDTH)
        width = max(axis.position(end_ms) - start, _LEAST_WIDTH)
        yield whose, f"{start:.2f}", f"{width:.2f}"


def _waiting_in_words(call: Interaction) -> str:
    """Say how long a call waited for the server, and how long for a person."""
    totals = {"server": 0.0}
    for whose, start_ms, end_ms in call.stretches:
        totals[whose] = totals.get(whose, 0.0) + end_ms - start_ms
    return ", ".join(f"{whose} {markup.shown_time(total)}" for whose, total in totals.items())
