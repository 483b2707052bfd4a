"""A cassette as one HTML file, which needs nothing else and asks nobody for anything."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, NamedTuple

from jinja2 import DictLoader, Environment, StrictUndefined, Template
from markupsafe import Markup, escape

from mrtr_cassette.core.answers.checking import titled_choices
from mrtr_cassette.core.compare.conversations import CassetteComparison, InteractionComparison
from mrtr_cassette.core.compare.values import Change
from mrtr_cassette.core.report.comparison import conclusion, shown_values
from mrtr_cassette.core.report.details import CassetteDetails, Interaction, Stretch
from mrtr_cassette.core.report.misses import MissReport
from mrtr_cassette.core.report.runs import ReplayReport
from mrtr_cassette.core.report.text import json_text, message_lines, outcome_line, task_words
from mrtr_cassette.core.secrets.sealed import PLACEHOLDER, SEALED_ANSWER
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.core.wire.pointers import Difference
from mrtr_cassette.errors import counted, printable, shorten

GENERATOR: Final = "mrtr-cassette view"
"""What a page says of itself; nothing else is ever overwritten by one."""
START: Final = (
    f'<!doctype html>\n<html lang="en"><head><meta name="generator" content="{GENERATOR}">'
)
_MOST_OPEN: Final = 10
"""Calls that asked, up to which a page opens them."""
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
        misses=view.replay.misses if view.replay else (),
        notes=_notes(view),
        sessions=timelines(interactions),
        branches=branches,
        opens=sum(bool(each.turns) for each in interactions) <= _MOST_OPEN,
        outcomes={each.number: each for each in view.replay.interactions} if view.replay else {},
    ):
        pieces.append(piece)
        if piece.endswith(_END_OF_CALL):
            yield "".join(pieces)
            pieces.clear()
    yield "".join([*pieces, "\n"])


@cache
def _template(texts: tuple[str, ...]) -> Template:
    # The indentation of a template is for those who read it. Every value is text, which the
    # template escapes; only `_recorded` makes markup.
    lines = {
        name: "".join(line.strip() for line in source.splitlines())
        for name, source in zip(TEMPLATES, texts, strict=True)
    }
    environment = Environment(
        loader=DictLoader(lines), autoescape=True, finalize=_plain, undefined=StrictUndefined
    )
    environment.globals |= {"counted": counted, "LONGEST_TEXT": _LONGEST_TEXT}
    environment.filters |= {
        "bars": _bars,
        "canonical": canonical,
        "conclusion": conclusion,
        "difference": _difference,
        "fields": form_fields,
        "is_app": is_app,
        "json": json_text,
        "listed_field": _listed_field,
        "message": message_lines,
        "outcome": outcome_line,
        "pairs": _pairs,
        "recorded": _recorded,
        "replaced": _replaced_in,
        "shorten": shorten,
        "source": _source,
        "task_words": task_words,
        "time": shown_time,
        "waiting": _waiting_in_words,
    }
    return environment.get_template("page.html")


def _source(content: str) -> Markup:
    digest = b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return Markup(f"'sha256-{digest}'")  # noqa: S704  its letters are those of Base64


# Recorded values

_LONGEST_TEXT: Final = 20_000
"""Characters of one value: a page has to stay quick, and `inspect` shows the rest."""
_TAB: Final = 4
_REPLACED: Final = re.compile(
    rf"(?P<redacted>{re.sub(r'[?]P<[a-z]+>', '?:', PLACEHOLDER.pattern)})"
    rf"|(?P<sealed>{SEALED_ANSWER.pattern}|mrtr-(?:state|session|event|task):[0-9a-f:]+"
    r"|sha256:[0-9a-f]{64})",
    re.ASCII,
)
"""What stands in a cassette for something else: for a secret, or for what is sealed."""
_MARK: Final = Markup('<mark class="{}" title="{}">{}</mark>')
_TITLES: Final = {
    "redacted": "A secret stood here; the cassette has a placeholder.",
    "sealed": "Sealed: the cassette has a surrogate or a hash.",
}


def _plain(value: Any) -> str:
    if isinstance(value, Markup):
        return value
    text = "" if value is None else str(value)
    if text.isprintable():
        return text
    return "\n".join(printable(line.expandtabs(_TAB)) for line in text.split("\n"))


def _recorded(text: str) -> Markup:
    if isinstance(text, Markup):
        return text
    parts: list[Markup] = []
    end = 0
    for match in _REPLACED.finditer(text):
        kind = match.lastgroup or ""
        parts.append(escape(_plain(text[end : match.start()])))
        parts.append(_MARK.format(kind, _TITLES[kind], _plain(match[0])))
        end = match.end()
    return Markup("").join([*parts, escape(_plain(text[end:]))])


def _replaced_in(text: str) -> str:
    match = _REPLACED.search(text)
    return (match and match.lastgroup) or ""


def _pairs(value: Mapping[str, Any]) -> list[tuple[str, str]]:
    if any(isinstance(each, dict | list) for each in value.values()):
        return []
    texts = [(name, _text(each)) for name, each in value.items()]
    is_short = all("\n" not in text and len(text) <= _LONGEST_TEXT for _, text in texts)
    return texts if is_short else []


def is_app(content: Mapping[str, Any]) -> bool:
    """Tell whether content of a resource is a page of the extension Apps."""
    uri, kind, text = (content.get(name) for name in ("uri", "mimeType", "text"))
    is_html = isinstance(kind, str) and kind.startswith("text/html")
    return is_html and isinstance(text, str) and isinstance(uri, str) and uri.startswith("ui://")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)


def shown_time(duration_ms: float) -> str:
    """Return a duration as people say it."""
    if duration_ms < 1:
        return "under 1 ms"
    if duration_ms < 1000:
        return f"{duration_ms:.0f} ms"
    if duration_ms < 60_000:
        return f"{duration_ms / 1000:.1f} s"
    minutes, seconds = divmod(round(duration_ms / 1000), 60)
    return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"


# Forms

_LONGEST_LINE: Final = 80
_LIMITS: Final = {
    "minimum": "at least",
    "maximum": "at most",
    "minLength": "characters: at least",
    "maxLength": "characters: at most",
    "minItems": "choices: at least",
    "maxItems": "choices: at most",
    "format": "format",
    "pattern": "pattern",
    "default": "default",
}


class Choice(NamedTuple):
    """One of the values that a field may have; a chosen one is in the answer."""

    label: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class FormField:
    """A field of a form, with what a reader is told of it and the text that was put in."""

    name: str
    label: str
    description: str
    kind: Literal["one line", "lines", "check", "choice", "choices"]
    helps: tuple[str, ...]
    choices: tuple[Choice, ...]
    value: str


def form_fields(schema: Any, content: Any) -> list[FormField]:
    """Return the fields of a `requestedSchema` with what was answered.

    What was answered without being asked for comes last.
    """
    members = schema if isinstance(schema, dict) else {}
    properties, required = members.get("properties"), members.get("required")
    properties = properties if isinstance(properties, dict) else {}
    required = required if isinstance(required, list) else []
    answers = content if isinstance(content, dict) else {}
    fields = [
        _field(name, definition, answers, ("required",) if name in required else ())
        for name, definition in properties.items()
    ]
    unasked = [name for name in answers if name not in properties]
    return fields + [_field(name, {}, answers, ("not in the schema",)) for name in unasked]


def _listed_field(definition: Mapping[str, Any], answer: Any) -> FormField:
    key = str(definition.get("id", ""))
    answers = {key: answer["value"]} if isinstance(answer, dict) and "value" in answer else {}
    helps = () if definition.get("required", True) is False else ("required",)
    return _field(key, {**definition, "type": definition.get("kind")}, answers, helps)


def _field(
    name: str, definition: Any, answers: Mapping[str, Any], helps: tuple[str, ...]
) -> FormField:
    facts = definition if isinstance(definition, dict) else {}
    given = [answers[name]] if name in answers else []
    value = _text(given[0]) if given else ""
    choices = _choices(facts, given)
    title, description, kind = (facts.get(each) for each in ("title", "description", "type"))
    hints = [kind] if isinstance(kind, str) and kind not in {"string", "boolean", "array"} else []
    hints += [
        f"{words} {_text(facts[limit])}" for limit, words in _LIMITS.items() if limit in facts
    ]
    look: Literal["one line", "lines", "check", "choice", "choices"]
    if choices:
        is_several = kind == "array" and isinstance(facts.get("items"), dict)
        look = "choices" if is_several else "choice"
    elif kind == "boolean" and all(isinstance(each, bool) for each in given):
        look = "check"
    else:
        look = "lines" if "\n" in value or len(value) > _LONGEST_LINE else "one line"
    return FormField(
        name,
        label=title if isinstance(title, str) and title else name,
        description=description if isinstance(description, str) else "",
        kind=look,
        helps=(*hints, *helps),
        choices=choices,
        value=value,
    )


def _choices(facts: Mapping[str, Any], given: list[Any]) -> tuple[Choice, ...]:
    options = [(_text(value), title) for value, title in titled_choices(facts)]
    if not options:
        return ()
    chosen = [_text(each) for each in (given[0] if given and isinstance(given[0], list) else given)]
    choices = [Choice(label, option in chosen) for option, label in options]
    # What was answered is shown, also where it was none of the choices.
    offered = {option for option, _ in options}
    return (*choices, *(Choice(text, is_chosen=True) for text in chosen if text not in offered))


# Misses and differences


class Note(NamedTuple):
    """What a page says of a call before anything else: a miss near it, or what differs.

    `number` is that of the miss, or of the call; `first` is the cassette that lacks the call.
    """

    label: str
    kind: str
    number: int
    miss: MissReport | None = None
    first: str = ""
    change: InteractionComparison | None = None
    old: Interaction | None = None


def _notes(view: View) -> dict[int, list[Note]]:
    notes: dict[int, list[Note]] = defaultdict(list)
    for at, miss in enumerate(view.replay.misses if view.replay else (), start=1):
        if miss.nearest is not None:
            notes[miss.nearest.interaction].append(Note(f"miss: {miss.reason}", "bad", at, miss))
    if view.earlier is None:
        return notes
    comparison = view.earlier.comparison
    old = {each.number: each for each in view.earlier.details.interactions}
    for each in comparison.interactions:
        number = each.received
        if number is None or each.mark == "=":
            continue
        if each.recorded is None:
            note = Note("added", "good", number, first=comparison.recorded)
        else:
            note = Note(each.verdict, "bad", number, change=each, old=old[each.recorded])
        notes[number].append(note)
    return notes


def _difference(change: Change) -> Difference:
    return Difference(change.pointer, *shown_values(change))


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
    interactions: Sequence[Interaction]
    axis: Axis


def timelines(interactions: Sequence[Interaction]) -> Iterator[SessionTimeline]:
    """Yield the sessions of a cassette, in the order in which they began."""
    by_session: dict[str, list[Interaction]] = {}
    for each in interactions:
        by_session.setdefault(each.session, []).append(each)
    for session, calls in by_session.items():
        client = next((each.client for each in calls if each.client), "")
        # The time of streams that only listen counts only where there is nothing else.
        timed = [each for each in calls if not each.listens and each.stretches] or calls
        axis = axis_of(stretch for each in timed for stretch in each.stretches)
        yield SessionTimeline(session, client, calls, axis)


def _bars(call: Interaction, axis: Axis) -> Iterator[tuple[str, str, str]]:
    for whose, start_ms, end_ms in call.stretches:
        start = min(axis.position(start_ms), 100 - _LEAST_WIDTH)
        width = max(axis.position(end_ms) - start, _LEAST_WIDTH)
        yield whose, f"{start:.2f}", f"{width:.2f}"


def _waiting_in_words(call: Interaction) -> str:
    totals = {"server": 0.0}
    for whose, start_ms, end_ms in call.stretches:
        totals[whose] = totals.get(whose, 0.0) + end_ms - start_ms
    return ", ".join(f"{whose} {shown_time(total)}" for whose, total in totals.items())
