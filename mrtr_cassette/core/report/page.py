"""A cassette as one HTML file, which needs no other file and makes no request."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from jinja2 import DictLoader, Environment, StrictUndefined, Template
from markupsafe import Markup, escape

from mrtr_cassette.core.answers.forms import titled_choices
from mrtr_cassette.core.cassette.recorded import VERSION, Cassette, RecordedInteraction
from mrtr_cassette.core.compare.conversations import IgnoredFor, cassette_comparison
from mrtr_cassette.core.compare.values import Change
from mrtr_cassette.core.protocol.dialect import question_kind
from mrtr_cassette.core.report.comparison import difference_summary, shown_values
from mrtr_cassette.core.report.coverage import answer_counts, coverage_of
from mrtr_cassette.core.report.details import Interaction, details_of, redactions_of
from mrtr_cassette.core.report.runs import MissReport, ReplayReport
from mrtr_cassette.core.report.text import (
    PAGE_START,
    json_text,
    message_lines_for_person,
    outcome_line,
)
from mrtr_cassette.core.secrets.names import Ref, as_bytes, split_at_refs
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.core.wire.pointers import Difference, members_of
from mrtr_cassette.errors import counted, printable, shorten

_MOST_OPEN_CALLS: Final = 10
"""Calls that asked, up to which a page opens them."""

_PIECES_AT_ONCE: Final = 1000
"""Pieces of a template that are written together."""

TEMPLATES: Final = ("page.html", "call.html", "turn.html", "values.html")


class Assets(NamedTuple):
    """The texts of a page: style, script, and the sources of `TEMPLATES`."""

    style: str
    script: str
    templates: tuple[str, ...]


def cassette_page(
    cassette: Cassette,
    assets: Assets,
    replay: ReplayReport | None,
    first: Cassette | None,
    ignored_for: IgnoredFor,
) -> Iterator[str]:
    """Yield the page of a cassette in pieces, with a replay or an earlier cassette beside it."""
    details = details_of(cassette)
    calls = details.interactions
    branches: dict[int, list[Interaction]] = defaultdict(list)
    sessions: dict[str, list[Interaction]] = defaultdict(list)
    for call in calls:
        sessions[call.session].append(call)
        if call.branch is not None:
            branches[call.branch.of].append(call)

    outcomes = {}
    if replay is not None:
        # A test has them in the order of the calls, which an edited file may not have.
        outcomes = {outcome.number: outcome for outcome in replay.interactions}

    facts: dict[str, Any] = {"comparison": None, "earlier": (), "changed": {}}
    if first is not None:
        comparison = cassette_comparison(first, cassette, ignored_for)
        facts["comparison"] = comparison
        facts["earlier"] = details_of(first).interactions
        facts["changed"] = {
            pair.received: pair for pair in comparison.differing_interactions
        }

    stream = _compiled_template(assets.templates).stream(
        cassette=cassette,
        version=VERSION,
        calls=calls,
        replay=replay,
        start=Markup(PAGE_START),  # noqa: S704  all three are ours
        style=Markup(assets.style),  # noqa: S704
        script=Markup(assets.script),  # noqa: S704
        sessions=sessions,
        spans=call_spans_on_axes(cassette.interactions, sessions),
        branches=branches,
        outcomes=outcomes,
        misses_near=_misses_by_nearest_interaction(replay),
        covered=coverage_of([details]),
        is_redacted=bool(redactions_of(cassette)),
        opens=sum(bool(call.turns) for call in calls) <= _MOST_OPEN_CALLS,
        **facts,
    )

    stream.enable_buffering(_PIECES_AT_ONCE)
    return stream


def _misses_by_nearest_interaction(
    replay: ReplayReport | None,
) -> Mapping[int, Sequence[tuple[int, MissReport]]]:
    """Return the misses of a replay and their numbers, by the interaction that is nearest."""
    misses: dict[int, list[tuple[int, MissReport]]] = defaultdict(list)
    if replay is not None:
        for number, miss in enumerate(replay.misses, start=1):
            if miss.nearest is not None:
                misses[miss.nearest.interaction].append((number, miss))

    return misses


@cache
def _compiled_template(texts: tuple[str, ...]) -> Template:
    """Compile the template of a page; all other templates are used by it."""
    # The indentation of a template is for those who read it. Every value is text, which the
    # template escapes; only `_recorded_markup` makes markup.
    sources = {}
    for name, text in zip(TEMPLATES, texts, strict=True):
        sources[name] = "".join(map(str.strip, text.splitlines()))

    environment = Environment(
        loader=DictLoader(sources),
        autoescape=True,
        finalize=_printable_text,
        undefined=StrictUndefined,
    )

    environment.globals |= {"counted": counted, "LONGEST_TEXT": _LONGEST_TEXT}
    environment.filters |= {
        "answer_counts": answer_counts,
        "canonical": canonical,
        "conclusion": difference_summary,
        "difference": _readable_difference,
        "fields": form_fields,
        "image_url": image_url,
        "is_app": is_app,
        "json": json_text,
        "kind_noun": _kind_noun,
        "listed_field": _listed_field,
        "message": message_lines_for_person,
        "outcome": outcome_line,
        "recorded": _recorded_markup,
        "shorten": shorten,
        "source": _csp_source,
        "time": _duration_text,
    }

    return environment.get_template("page.html")


def _kind_noun(kind: str) -> str:
    """Return what a server asks for, in words if they are known."""
    return question_kind(kind).noun or kind


def _csp_source(content: str) -> Markup:
    """Return the source expression of CSP that permits a text in the page."""
    digest = b64encode(hashlib.sha256(content.encode()).digest()).decode()
    return Markup(f"'sha256-{digest}'")  # noqa: S704  its letters are those of Base64


def _readable_difference(change: Change) -> Difference:
    """Return a change for the page, with both values as people read them."""
    return Difference(change.pointer, *shown_values(change))


def _duration_text(duration_ms: float) -> str:
    """Return a duration for people: in milliseconds if it is below a second, else in seconds."""
    if duration_ms < 1000:
        return f"{duration_ms:.0f} ms"
    return f"{duration_ms / 1000:.1f} s"


# The calls of a session on a common axis of time


class CallSpan(NamedTuple):
    """The place of a call on the axis of its session, in percent of its length.

    Attributes:
        left: where it begins.
        per_ms: how much of the axis a millisecond is.
        beside: the numbers of the calls that it overlapped.
    """

    left: float
    per_ms: float
    beside: tuple[int, ...] = ()


def call_spans_on_axes(
    recorded: Sequence[RecordedInteraction],
    sessions: Mapping[str, Sequence[Interaction]],
) -> dict[int, CallSpan]:
    """Place each call on its axis; time in which no call was under way is left out."""
    spans: dict[int, CallSpan] = {}
    for calls in sessions.values():
        # A stream that only listens counts only if there is nothing else.
        timed_calls = [call for call in calls if not call.listens] or calls
        spans |= _spans_on_axis(recorded, timed_calls)
        per_ms = spans[timed_calls[0].number].per_ms
        for call in calls:
            spans.setdefault(call.number, CallSpan(0.0, per_ms))

    return spans


def _spans_on_axis(
    recorded: Sequence[RecordedInteraction], calls: Iterable[Interaction]
) -> dict[int, CallSpan]:
    """Place calls one after another, and note which of them overlap."""
    left_ms_by_number: dict[int, float] = {}
    calls_beside: dict[int, list[int]] = {}
    end_count_by_pending_call: dict[int, int] = {}
    axis_origin = 0.0
    axis_end_ms = 0.0

    def request_number_of(call: Interaction) -> int:
        return recorded[call.number - 1].unshared_exchanges[0].number or 0

    for call in sorted(calls, key=request_number_of):
        exchanges = recorded[call.number - 1].unshared_exchanges
        first_exchange = exchanges[0]
        arrived_count = request_number_of(call)
        # Order is a count, which is exact where times are rounded.
        for earlier_number, until in list(end_count_by_pending_call.items()):
            if until < arrived_count:
                del end_count_by_pending_call[earlier_number]

        if not end_count_by_pending_call:
            axis_origin = first_exchange.started_ms - axis_end_ms

        left_ms = first_exchange.started_ms - axis_origin
        left_ms_by_number[call.number] = left_ms
        calls_beside[call.number] = [*end_count_by_pending_call]
        for earlier_number in end_count_by_pending_call:
            calls_beside[earlier_number].append(call.number)

        end_count_by_pending_call[call.number] = max(
            exchange.ended_after or -1 for exchange in exchanges
        )
        axis_end_ms = max(axis_end_ms, left_ms + call.duration_ms + call.person_ms)

    per_ms = 100 / max(axis_end_ms, 1.0)
    spans = {}
    for number, left_ms in left_ms_by_number.items():
        spans[number] = CallSpan(left_ms * per_ms, per_ms, tuple(calls_beside[number]))

    return spans


# Recorded values

_LONGEST_TEXT: Final = 20_000
"""Characters of one value: a page has to stay quick, and `inspect` shows the rest."""

_LARGEST_IMAGE: Final = 4_000_000
"""Characters in base64 of a picture that is shown."""

_IMAGE_TYPE: Final = re.compile(r"image/[a-z0-9.+-]+")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_TAB_COLUMNS: Final = 4
_PLACEHOLDER_MARK: Final = Markup(
    '<mark title="A placeholder: the original is not in the cassette.">{}</mark>'
)


def _printable_text(value: Any) -> str:
    """Return a template's value as printable text, markup as it is, and an empty text for None."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return ""

    text = str(value)
    if text.isprintable():
        return text

    return "\n".join(
        printable(line.expandtabs(_TAB_COLUMNS)) for line in text.split("\n")
    )


def _recorded_markup(text: str) -> Markup:
    """Return a recorded text with its stand-ins marked."""
    if isinstance(text, Markup):
        return text

    markup_parts = []
    for part in split_at_refs(as_bytes(text)):
        if isinstance(part, Ref):
            markup_parts.append(_PLACEHOLDER_MARK.format(part.raw.decode()))
        else:
            markup_parts.append(
                escape(_printable_text(part.decode("utf-8", "surrogatepass")))
            )

    return Markup("").join(markup_parts)


def is_app(content: Mapping[str, Any]) -> bool:
    """Tell whether content of a resource is a page of the extension Apps."""
    if not isinstance(content.get("text"), str):
        return False

    is_html = str(content.get("mimeType")).startswith("text/html")
    return is_html and str(content.get("uri")).startswith("ui://")


def image_url(content: Mapping[str, Any]) -> str:
    """Return a `data:` URL of a picture in a result; an empty text for other content."""
    kind = content.get("mimeType")
    data = content.get("data", content.get("blob"))
    if not isinstance(kind, str) or not isinstance(data, str):
        return ""
    if len(data) > _LARGEST_IMAGE or not _IMAGE_TYPE.fullmatch(kind):
        return ""
    if _BASE64.fullmatch(data):
        return f"data:{kind};base64,{data}"

    return ""


# Forms

_SHOWN_APART: Final = frozenset(
    {"description", "id", "message", "required", "title", "kind"}
)


class FormField(NamedTuple):
    """A field of a form, with its choices and whether each was chosen, and the value put in."""

    label: str
    description: str
    helps: tuple[str, ...]
    choices: tuple[tuple[str, bool], ...]
    takes_several: bool
    value: str


def form_fields(schema: Any, content: Any) -> list[FormField]:
    """Return the fields of a `requestedSchema` with their answers.

    Answers to fields that are not in the schema come last.
    """
    members = members_of(schema)
    answers = members_of(content)
    properties = members_of(members.get("properties"))
    required = members.get("required")
    if not isinstance(required, list):
        required = []

    fields = []
    for name, definition in properties.items():
        helps = []
        if name in required:
            helps = ["required"]

        fields.append(_form_field(name, definition, answers, helps))

    for name in answers:
        if name not in properties:
            fields.append(_form_field(name, {}, answers, ["not in the schema"]))

    return fields


def _listed_field(definition: Mapping[str, Any], answer: Any) -> FormField:
    """Return the field of a request in the array dialect, with its answer."""
    key = str(definition.get("id", ""))
    answers = {}
    if "value" in members_of(answer):
        answers[key] = answer["value"]

    helps = []
    if definition.get("required", True) is not False:
        helps = ["required"]

    return _form_field(
        key, {**definition, "type": definition.get("kind", "string")}, answers, helps
    )


def _form_field(
    name: str, definition: Any, answers: Mapping[str, Any], helps: Sequence[str]
) -> FormField:
    """Return a field with its limits, choices and answer."""
    facts = members_of(definition)
    title = facts.get("title")
    description = facts.get("description")
    limits = []
    for member, value in facts.items():
        if member not in _SHOWN_APART and not isinstance(value, dict | list):
            limits.append(f"{member}: {_form_value_text(value)}")

    return FormField(
        label=title if isinstance(title, str) and title else name,
        description=description if isinstance(description, str) else "",
        helps=(*limits, *helps),
        choices=_field_choices(facts, answers.get(name, [])),
        takes_several=facts.get("type") == "array",
        value=_form_value_text(answers[name]) if name in answers else "",
    )


def _field_choices(
    definition: Mapping[str, Any], answer: Any
) -> tuple[tuple[str, bool], ...]:
    """Return the choices of a field, and whether each is in the answer."""
    options = [
        (_form_value_text(value), label) for value, label in titled_choices(definition)
    ]
    if definition.get("type") == "boolean":
        options = [("true", "yes"), ("false", "no")]

    if not options:
        return ()

    chosen_values = answer if isinstance(answer, list) else [answer]
    texts = list(map(_form_value_text, chosen_values))
    labels = dict(options)
    for text in texts:
        if text not in labels:
            # An answer is shown even if it is not one of the choices.
            options.append((text, text))

    return tuple([(label, option in texts) for option, label in options])


def _form_value_text(value: Any) -> str:
    """Return a value of a form as text: a string as it is, anything else as JSON."""
    return value if isinstance(value, str) else json_text(value)
