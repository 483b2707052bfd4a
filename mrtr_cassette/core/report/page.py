"""A cassette as one HTML file, which needs nothing else and asks nobody for anything."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from jinja2 import DictLoader, Environment, StrictUndefined, Template
from markupsafe import Markup, escape

from mrtr_cassette.core.answers.forms import titled_choices
from mrtr_cassette.core.cassette.model import VERSION
from mrtr_cassette.core.cassette.recorded import Cassette, RecordedInteraction
from mrtr_cassette.core.compare.conversations import IgnoredFor, compared, ignores_nothing
from mrtr_cassette.core.compare.values import Change
from mrtr_cassette.core.report.comparison import conclusion, shown_values
from mrtr_cassette.core.report.details import Interaction, details_of
from mrtr_cassette.core.report.runs import MissReport, ReplayReport
from mrtr_cassette.core.report.text import json_text, message_lines, outcome_line
from mrtr_cassette.core.report.timeline import spans_of
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
_PIECES: Final = 1000
"""Pieces of a template that are written together."""
TEMPLATES: Final = ("page.html", "call.html", "turn.html", "values.html")


class Assets(NamedTuple):
    """The texts that a page is made of: style and script as they are, and each of `TEMPLATES`."""

    style: str
    script: str
    templates: tuple[str, ...]


def page(
    cassette: Cassette,
    assets: Assets,
    replay: ReplayReport | None = None,
    first: Cassette | None = None,
    ignored_for: IgnoredFor = ignores_nothing,
) -> Iterator[str]:
    """Yield the page of a cassette in pieces, with what a replay or an earlier cassette adds."""
    calls = details_of(cassette).interactions
    branches: dict[int, list[Interaction]] = defaultdict(list)
    sessions: dict[str, list[Interaction]] = defaultdict(list)
    for each in calls:
        sessions[each.session].append(each)
        if each.branch is not None:
            branches[each.branch.of].append(each)
    misses: dict[int, list[tuple[int, MissReport]]] = defaultdict(list)
    for number, miss in enumerate(replay.misses if replay else (), start=1):
        if miss.nearest is not None:
            misses[miss.nearest.interaction].append((number, miss))
    comparison = None if first is None else compared(first, cassette, ignored_for)
    both = () if comparison is None else comparison.interactions
    stream = _template(assets.templates).stream(
        cassette=cassette,
        version=VERSION,
        calls=calls,
        replay=replay,
        comparison=comparison,
        earlier=() if first is None else details_of(first).interactions,
        start=Markup(START),  # noqa: S704  all three are ours
        style=Markup(assets.style),  # noqa: S704
        script=Markup(assets.script),  # noqa: S704
        sessions=sessions,
        spans=spans_of(cassette.interactions, sessions),
        branches=branches,
        misses_near=misses,
        changed={each.received: each for each in both if each.mark != "="},
        is_redacted=any(map(_is_redacted, cassette.interactions)),
        opens=sum(bool(each.turns) for each in calls) <= _MOST_OPEN,
    )
    stream.enable_buffering(_PIECES)
    return stream


def _is_redacted(recorded: RecordedInteraction) -> bool:
    return any(PLACEHOLDER.search(repr((it.request, it.response))) for it in recorded.own)


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
        "canonical": canonical,
        "conclusion": conclusion,
        "difference": _difference,
        "fields": form_fields,
        "image_url": image_url,
        "is_app": is_app,
        "json": json_text,
        "listed_field": _listed_field,
        "message": message_lines,
        "outcome": outcome_line,
        "recorded": _recorded,
        "shorten": shorten,
        "source": _source,
        "time": _time,
    }
    return environment.get_template("page.html")


def _source(content: str) -> Markup:
    digest = b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return Markup(f"'sha256-{digest}'")  # noqa: S704  its letters are those of Base64


def _difference(change: Change) -> Difference:
    return Difference(change.pointer, *shown_values(change))


def _time(duration_ms: float) -> str:
    return f"{duration_ms:.0f} ms" if duration_ms < 1000 else f"{duration_ms / 1000:.1f} s"


# Recorded values

_LONGEST_TEXT: Final = 20_000
"""Characters of one value: a page has to stay quick, and `inspect` shows the rest."""
_LARGEST_IMAGE: Final = 4_000_000
"""Characters in base64 of a picture that is shown."""
_IMAGE: Final = re.compile(r"image/[a-z0-9.+-]+")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_TAB: Final = 4
_REPLACED: Final = re.compile(
    rf"({re.sub(r'[?]P<[a-z]+>', '?:', PLACEHOLDER.pattern)}|{SEALED_ANSWER.pattern}"
    r"|mrtr-(?:state|session|event|task):[0-9a-f:]+|sha256:[0-9a-f]{64})",
    re.ASCII,
)
"""What stands in a cassette for something else: for a secret, or for what is sealed."""
_MARK: Final = Markup('<mark title="This stands for what is not in the cassette.">{}</mark>')


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
    parts = enumerate(map(_plain, _REPLACED.split(text)))
    return Markup("").join(_MARK.format(part) if at % 2 else escape(part) for at, part in parts)


def is_app(content: Mapping[str, Any]) -> bool:
    """Tell whether content of a resource is a page of the extension Apps."""
    uri, kind, text = (content.get(name) for name in ("uri", "mimeType", "text"))
    is_html = isinstance(kind, str) and kind.startswith("text/html")
    return is_html and isinstance(text, str) and isinstance(uri, str) and uri.startswith("ui://")


def image_url(content: Mapping[str, Any]) -> str:
    """Return a `data:` URL of a picture that a result brings; an empty text for what is none."""
    kind, data = content.get("mimeType"), content.get("data", content.get("blob"))
    if not isinstance(kind, str) or not isinstance(data, str):
        return ""
    is_shown = len(data) <= _LARGEST_IMAGE and _IMAGE.fullmatch(kind) and _BASE64.fullmatch(data)
    return f"data:{kind};base64,{data}" if is_shown else ""


# Forms

_SHOWN_APART: Final = frozenset({"description", "id", "message", "required", "title", "kind"})


class FormField(NamedTuple):
    """A field of a form, with its choices and whether each was chosen, and what was put in."""

    label: str
    description: str
    helps: tuple[str, ...]
    choices: tuple[tuple[str, bool], ...]
    takes_several: bool
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
    return _field(key, {**definition, "type": definition.get("kind", "string")}, answers, helps)


def _field(
    name: str, definition: Any, answers: Mapping[str, Any], helps: tuple[str, ...]
) -> FormField:
    facts = definition if isinstance(definition, dict) else {}
    given = [answers[name]] if name in answers else []
    title, description, kind = (facts.get(each) for each in ("title", "description", "type"))
    options = [(_text(value), label) for value, label in titled_choices(facts)]
    if kind == "boolean":
        options = [("true", "yes"), ("false", "no")]
    chosen = given[0] if given and isinstance(given[0], list) else given
    texts = [_text(each) for each in chosen] if options else []
    # What was answered is shown, also where it was none of the choices.
    options += [(text, text) for text in texts if text not in dict(options)]
    limits = [
        f"{member}: {_text(value)}"
        for member, value in facts.items()
        if member not in _SHOWN_APART and not isinstance(value, dict | list)
    ]
    return FormField(
        label=title if isinstance(title, str) and title else name,
        description=description if isinstance(description, str) else "",
        helps=(*limits, *helps),
        choices=tuple((label, option in texts) for option, label in options),
        takes_several=kind == "array",
        value=_text(given[0]) if given else "",
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)
