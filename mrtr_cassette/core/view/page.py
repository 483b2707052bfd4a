"""A cassette as one HTML file, which needs nothing else and asks nobody for anything.

Rule: the policy allows the one style and the one script of the page, by hash, and nothing else. The
page is whole without the script, which only finds and opens what is there.
Source: W3C Content Security Policy Level 3; MCP and house words: docs/glossary.md.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from mrtr_cassette.core.report.details import CassetteDetails, InteractionDetails
from mrtr_cassette.core.report.summary import ReplayReport
from mrtr_cassette.core.view.conversations import GONE
from mrtr_cassette.core.view.differences import Earlier, difference_notes, differences_section
from mrtr_cassette.core.view.markup import Markup, element, joined, recorded
from mrtr_cassette.core.view.notes import Note, miss_note, misses_section
from mrtr_cassette.core.view.rows import row
from mrtr_cassette.core.view.timeline import SessionTimeline, shown_time, timelines
from mrtr_cassette.core.view.values import chip, facts_list
from mrtr_cassette.errors import counted

GENERATOR: Final = "mrtr-cassette view"
"""What a page says of itself; nothing else is ever overwritten by one."""
START: Final = (
    f'<!doctype html>\n<html lang="en"><head><meta name="generator" content="{GENERATOR}">'
)

_FILTERS: Final = {
    "": "all calls",
    "asks": "calls that ask",
    "fails": "errors",
    "branches": "branches",
    "noted": "differences and misses",
    "unplayed": "never played",
}
_HEIGHT: Final = 18


_HATCH: Final = element(
    "svg",
    element(
        "defs",
        element(
            "pattern",
            element("rect", width=6, height=6),
            element("line", x1=0, y1=0, x2=0, y2=6),
            id="hatch",
            width=6,
            height=6,
            patternUnits="userSpaceOnUse",
            patternTransform="rotate(45)",
        ),
    ),
    width=0,
    height=0,
    class_="defs",
    aria_hidden="true",
)
"""The pattern of a person's time."""


class Assets(NamedTuple):
    """What a page has besides its text: both are written into it."""

    style: str
    script: str


@dataclass(frozen=True, slots=True)
class View:
    """What a page shows.

    Attributes:
        details: the cassette.
        replay: what a replay of it came to, or None.
        earlier: the cassette that it is compared with, or None.
    """

    details: CassetteDetails
    replay: ReplayReport | None = None
    earlier: Earlier | None = None


def page(view: View, assets: Assets) -> Iterator[str]:
    """Yield a page in pieces."""
    misses = view.replay.misses if view.replay is not None else ()
    yield START
    yield joined(
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(assets)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{_title(view)} - mrtr-cassette"),
    )
    # Both are ours; an element would escape them.
    yield f"<style>{assets.style}</style></head><body>"
    yield element("a", "Skip to the calls", href="#calls", class_="skip")
    yield _HATCH
    yield _header(view)
    yield _toolbar()
    yield '<main id="calls">'
    yield misses_section(misses) or ""
    notes: dict[int, list[Note]] = defaultdict(list)
    for number, miss in enumerate(misses, start=1):
        if miss.nearest is not None:
            notes[miss.nearest.interaction].append(miss_note(miss, number))
    earlier = view.earlier
    if earlier is not None:
        yield differences_section(earlier.comparison)
        for number, note in difference_notes(earlier, view.details).items():
            notes[number].append(note)
    yield from _sessions(view, notes)
    if earlier is not None:
        yield from _gone(earlier)
    yield "</main>"
    yield _footer(view)
    yield f"<script>{assets.script}</script></body></html>\n"


def _gone(earlier: Earlier) -> Iterator[Markup | str]:
    """Yield the calls that only the earlier cassette has."""
    numbers = {each.recorded for each in earlier.comparison.interactions if each.received is None}
    gone = [each for each in earlier.details.interactions if each.interaction.number in numbers]
    if gone:
        heading = element("h2", "Only in ", recorded(earlier.comparison.recorded))
        rows = [row(each, None, prefix=GONE) for each in gone]
        yield element(
            "section",
            element("div", heading, class_="session-head"),
            element("ol", rows, class_="calls"),
            class_="session",
        )


def _policy(assets: Assets) -> str:
    style, script = (_source(text) for text in assets)
    return (
        f"default-src 'none'; style-src {style}; script-src {script}; "
        "base-uri 'none'; form-action 'none'"
    )


def _source(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _title(view: View) -> str:
    names = [_name(view.details.inspection.cassette)]
    if view.earlier is not None:
        names.insert(0, _name(view.earlier.comparison.recorded))
    return " and ".join(names)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _header(view: View) -> Markup:
    details = view.details
    inspection = details.inspection
    calls = inspection.interactions
    turns = sum(len(each.turns) for each in calls)
    asking = sum(bool(each.turns) for each in calls)
    chips = [
        chip(counted(len(calls), "call")),
        chip(f"{counted(turns, 'turn')} in {counted(asking, 'call')}", "person"),
    ]
    branches = sum(each.branch is not None for each in calls)
    if branches:
        chips.append(chip(f"{branches} answered again in another way"))
    chips.append(chip(f"request states {inspection.request_state}", "sealed"))
    if details.redacts:
        chips.append(chip("known secrets redacted", "redacted"))
    if details.seals_answers:
        chips.append(chip("answers sealed", "sealed"))
    if view.earlier is not None:
        same = view.earlier.comparison.counts["="]
        name = _name(view.earlier.comparison.recorded)
        words = f"{same} of {counted(len(calls), 'call')} as in {name}"
        chips.append(element("a", chip(words, "good"), href="#differences"))
    if view.replay is not None:
        played = len(calls) - len(view.replay.incomplete)
        chips.append(chip(f"replay played {played} of {len(calls)}", "good"))
        if view.replay.misses:
            words = f"missed {counted(len(view.replay.misses), 'request')}"
            chips.append(element("a", chip(words, "bad"), href="#misses"))
    facts = facts_list(
        [
            ("recorded from", inspection.upstream),
            ("over", "pipes" if details.transport == "stdio" else "HTTP"),
            ("at", inspection.recorded_at),
            ("by", inspection.tool),
            ("file", inspection.cassette),
        ]
    )
    return element(
        "header",
        element("p", "mrtr-cassette", class_="brand"),
        element("h1", recorded(_title(view))),
        element("div", chips, class_="chips"),
        facts,
    )


def _toolbar() -> Markup:
    """Return what only works with the script, which shows it."""
    options = [element("option", words, value=value) for value, words in _FILTERS.items()]
    return element(
        "search",
        element(
            "label", "Search ", element("input", type="search", id="query", autocomplete="off")
        ),
        element("label", "Show ", element("select", options, id="filter")),
        element("button", "Open all", type="button", id="open-all"),
        element("button", "Close all", type="button", id="close-all"),
        element("output", id="found", for_="query filter"),
        class_="toolbar",
        aria_label="Find calls",
        hidden=True,
    )


def _sessions(view: View, notes: dict[int, list[Note]]) -> Iterator[Markup | str]:
    interactions = view.details.interactions
    branches: dict[int, list[InteractionDetails]] = defaultdict(list)
    for each in interactions:
        if each.interaction.branch is not None:
            branches[each.interaction.branch.of].append(each)
    outcomes = {}
    if view.replay is not None:
        outcomes = {each.number: each for each in view.replay.interactions}
    if not interactions:
        yield element("p", "Nothing was recorded.", class_="note")
    for at, session in enumerate(timelines(interactions), start=1):
        yield f'<section class="session" aria-labelledby="s{at}">'
        yield _session_head(session, at)
        yield '<ol class="calls">'
        for each in session.interactions:
            number = each.interaction.number
            yield row(
                each,
                session.axis,
                branches.get(number, ()),
                outcomes.get(number),
                notes.get(number, ()),
            )
        yield "</ol></section>"


def _session_head(session: SessionTimeline, number: int) -> Markup:
    name = (
        ["Session ", recorded(session.session)] if session.session else ["Calls without a session"]
    )
    chips = [chip(counted(len(session.interactions), "call"))]
    if session.client:
        chips.insert(0, chip(session.client))
    cuts = [
        element("line", x1=f"{at:.2f}%", x2=f"{at:.2f}%", y1=0, y2=_HEIGHT, class_="cut")
        for at in session.axis.cuts
    ]
    words = f"{shown_time(session.axis.busy_ms)} in all"
    if cuts:
        words += f", idle time cut {counted(len(cuts), 'time')}"
    scale = element(
        "svg",
        element("line", x1="0", x2="100%", y1=_HEIGHT - 1, y2=_HEIGHT - 1, class_="axis"),
        cuts,
        width="100%",
        height=_HEIGHT,
        aria_hidden="true",
    )
    legend = element(
        "p",
        element("span", class_="key server-time", aria_hidden="true"),
        " server ",
        element("span", class_="key person-time", aria_hidden="true"),
        " person",
        class_="legend",
    )
    title = element("div", element("h2", name, id=f"s{number}"), chips, class_="what")
    return element(
        "div", title, legend, element("div", scale, element("small", words), class_="lane"),
        class_="session-head",
    )  # fmt: skip


def _footer(view: View) -> Markup:
    inspection = view.details.inspection
    keys = element(
        "p",
        [
            joined(element("kbd", key), f" {what}. ")
            for key, what in (
                ("/", "searches"),
                ("j", "goes to the next call"),
                ("k", "to the one before"),
                ("Enter", "opens or closes it"),
            )
        ],
        element(
            "label", element("input", type="checkbox", id="keys", checked=True), " use these keys"
        ),
        class_="keys",
        hidden=True,
    )
    version = f"Cassette format version {inspection.version}. This page asks nobody for anything."
    return element("footer", keys, element("p", version))
