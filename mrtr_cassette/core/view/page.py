"""A cassette as one HTML file, which needs nothing else and asks nobody for anything.

Rule: the policy allows the one style and the one script of the page, by hash, and nothing else. The
page is whole without the script, which only finds and opens what is there. Nothing on it can be
sent or followed: fields are disabled, a recorded URL is a text.
Source: W3C Content Security Policy Level 3; MCP and house words: docs/glossary.md.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

from jinja2 import DictLoader, Environment, StrictUndefined, Template
from markupsafe import Markup

from mrtr_cassette.core.report.comparison import conclusion
from mrtr_cassette.core.report.details import CassetteDetails, InteractionDetails
from mrtr_cassette.core.report.summary import ReplayReport
from mrtr_cassette.core.report.wording import json_text
from mrtr_cassette.core.view import questions, text, timeline, values
from mrtr_cassette.core.view.differences import Earlier, notes_of, stage_words
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.errors import counted, shorten

GENERATOR: Final = "mrtr-cassette view"
"""What a page says of itself; nothing else is ever overwritten by one."""
START: Final = (
    f'<!doctype html>\n<html lang="en"><head><meta name="generator" content="{GENERATOR}">'
)
TEMPLATES: Final = ("page.html", "call.html", "turn.html", "values.html")
_END_OF_CALL: Final = "</details></li>"


class Assets(NamedTuple):
    """What a page is made with.

    Attributes:
        style: it is written into the page.
        script: so is this.
        templates: the texts of `TEMPLATES`.
    """

    style: str
    script: str
    templates: tuple[str, ...]


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
    """Yield a page in pieces, of which each but the last ends with a call."""
    interactions = view.details.interactions
    misses = view.replay.misses if view.replay is not None else ()
    branches: dict[int, list[InteractionDetails]] = defaultdict(list)
    for each in interactions:
        if each.interaction.branch is not None:
            branches[each.interaction.branch.of].append(each)
    pieces: list[str] = []
    for piece in _template(assets.templates).generate(
        view=view,
        start=Markup(START),  # noqa: S704  all three are ours
        style=Markup(assets.style),  # noqa: S704
        script=Markup(assets.script),  # noqa: S704
        misses=misses,
        notes=notes_of(misses, view.earlier, view.details),
        sessions=timeline.timelines(interactions),
        branches=branches,
        outcomes={each.number: each for each in view.replay.interactions} if view.replay else {},
        gone=_gone(view.earlier),
    ):
        pieces.append(piece)
        if piece.endswith(_END_OF_CALL):
            yield "".join(pieces)
            pieces.clear()
    yield "".join([*pieces, "\n"])


def _gone(earlier: Earlier | None) -> list[InteractionDetails]:
    """Return the calls that only the earlier cassette has."""
    if earlier is None:
        return []
    numbers = {each.recorded for each in earlier.comparison.interactions if each.received is None}
    return [each for each in earlier.details.interactions if each.interaction.number in numbers]


@cache
def _template(texts: tuple[str, ...]) -> Template:
    """Return the template of a page; its indentation is for those who read it."""
    lines = {
        name: "".join(line.strip() for line in source.splitlines())
        for name, source in zip(TEMPLATES, texts, strict=True)
    }
    environment = Environment(
        loader=DictLoader(lines), autoescape=True, finalize=text.plain, undefined=StrictUndefined
    )
    environment.globals["counted"] = counted
    environment.filters |= {
        "answers": values.answers_in_short,
        "arguments": values.arguments_in_short,
        "bars": timeline.bars,
        "blocks": values.content_blocks,
        "canonical": canonical,
        "conclusion": conclusion,
        "cut": values.cut,
        "ending": values.ending,
        "json": json_text,
        "marks": values.marks,
        "name": _name,
        "questions": questions.questions_of,
        "recorded": text.recorded,
        "replaced": text.replaced_in,
        "scalars": values.scalars_of,
        "sharing": values.sharing,
        "shorten": shorten,
        "source": _source,
        "stages": stage_words,
        "time": timeline.shown_time,
        "unasked": questions.unasked_in,
        "unplayed": values.unplayed,
        "waiting": timeline.waiting_in_words,
    }
    return environment.get_template("page.html")


def _source(content: str) -> Markup:
    """Return how the policy allows a style or a script."""
    digest = b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return Markup(f"'sha256-{digest}'")  # noqa: S704  its letters are those of Base64


def _name(path: str) -> str:
    return path.rpartition("/")[2]
