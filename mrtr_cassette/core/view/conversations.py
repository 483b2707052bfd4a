"""A call on a page: a row with its time, and all that was said below it.

Owns: rows, their time lines, branches side by side, and the final response.
Does not own: turns (`questions`), what is noted of a call (`notes`), the page (`page`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mrtr_cassette.core.report.details import FinalResponse, InteractionDetails, Said
from mrtr_cassette.core.report.summary import InteractionOutcome, Outcome
from mrtr_cassette.core.view.markup import Markup, element, joined, recorded
from mrtr_cassette.core.view.questions import turn_section
from mrtr_cassette.core.view.timeline import Axis, shown_time
from mrtr_cassette.core.view.values import (
    chip,
    content_blocks,
    facts_list,
    folded,
    json_block,
    members,
    message_bubble,
    text_block,
)
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.errors import counted, shorten

_LANE_HEIGHT: Final = 16
_LEAST_WIDTH: Final = 0.6
"""In percent of the axis; what is shorter could not be seen."""
_SHOWN_ARGUMENTS: Final = 90
_FEW_SAID: Final = 4


def row(
    details: InteractionDetails,
    axis: Axis,
    branches: Sequence[InteractionDetails],
    outcome: InteractionOutcome | None,
    notes: Sequence[Markup],
) -> Markup:
    """Return the row of a call.

    Args:
        details: the call.
        axis: the time axis of its session.
        branches: the calls that share an ask with it and answer it in another way.
        outcome: what became of it in a replay, or None where there was none.
        notes: what is said of it before anything else, such as misses near it.
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
        element("div", _chips(details, branches, outcome, has_notes=bool(notes)), class_="chips"),
        _lane(details, axis),
    )
    body = element("div", notes, _body(details, branches), class_="flow")
    marks = _marks(details, branches, outcome, has_notes=bool(notes))
    return element(
        "li",
        element("details", summary, body, id=f"i{interaction.number}", open=bool(notes)),
        class_="call",
        data_is=" ".join(marks),
    )


def _marks(
    details: InteractionDetails,
    branches: Sequence[InteractionDetails],
    outcome: InteractionOutcome | None,
    *,
    has_notes: bool,
) -> list[str]:
    """Return by what a reader may pick out a row."""
    marks = {
        "asks": bool(details.interaction.turns),
        "branches": bool(branches) or details.interaction.branch is not None,
        "fails": details.final.kind in {"error", "failed result"},
        "noted": has_notes,
        "unplayed": outcome is not None and outcome.outcome is not Outcome.PLAYED,
    }
    return [name for name, applies in marks.items() if applies]


def _chips(
    details: InteractionDetails,
    branches: Sequence[InteractionDetails],
    outcome: InteractionOutcome | None,
    *,
    has_notes: bool,
) -> list[Markup]:
    interaction = details.interaction
    chips = []
    if has_notes:
        chips.append(chip("look here", "bad"))
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
    chips.append(_final_chip(details))
    return chips


def _final_chip(details: InteractionDetails) -> Markup:
    interaction = details.interaction
    match details.final.kind:
        case "result":
            return chip("result", "good")
        case "failed result":
            return chip("tool error", "bad")
        case "error":
            error = details.final.value
            code = canonical(error.get("code")) if isinstance(error, dict) else ""
            return chip(f"error {code}", "bad")
        case _:
            is_cut = bool(interaction.turns) and interaction.turns[-1].answers_json is None
            return chip(interaction.ended.partition(",")[0], "bad" if is_cut else "")


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
    drawing = element(
        "svg",
        bars,
        width="100%",
        height=_LANE_HEIGHT,
        role="img",
        aria_label=words,
    )
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


# What was said


def _body(details: InteractionDetails, branches: Sequence[InteractionDetails]) -> list[Markup]:
    interaction = details.interaction
    number = interaction.number
    parts = [_request(details)]
    if interaction.branch is not None:
        of, shared = interaction.branch
        link = element("a", f"#{of}", href=f"#i{of}t{shared}")
        words = [
            "Shares the question of turn ",
            str(shared),
            " with ",
            link,
            ", and answers it differently.",
        ]
        parts.append(element("p", words, class_="note"))
    if interaction.is_orphan:
        words = ["Continues a request state that no recorded question issued."]
        parts.append(element("p", words, class_="note"))
    times = details.answering_ms
    for at, (turn, answering_ms) in enumerate(zip(interaction.turns, times, strict=True), start=1):
        parts.append(turn_section(turn, f"i{number}t{at}", at, answering_ms))
        sharing = [each for each in branches if each.interaction.branch == (number, at)]
        if sharing:
            parts.append(_side_by_side([details, *sharing], at))
    if details.said:
        parts.append(_said(details.said))
    parts.append(_final(details))
    return parts


def _request(details: InteractionDetails) -> Markup:
    number = details.interaction.number
    heading = element("h4", element("a", "The client calls", href=f"#i{number}"))
    facts: list[tuple[str, str | Markup]] = [
        ("call", element("code", recorded(f"{details.method} {details.name}".rstrip())))
    ]
    if details.client:
        facts.append(("client", details.client))
    shown = None if details.parameters is None else members(details.parameters)
    return element("section", heading, facts_list(facts), shown, class_="sent")


def _said(said: Sequence[Said]) -> Markup:
    items = element(
        "ol",
        [
            element(
                "li",
                element("small", f"at {shown_time(each.at_ms)}"),
                " ",
                element("code", recorded(each.method)),
                " ",
                recorded(shorten(canonical(dict(each.params)))),
            )
            for each in said
        ],
        class_="said",
    )
    heading = f"Meanwhile the server sends {counted(len(said), 'notification')}"
    content = items if len(said) <= _FEW_SAID else folded("Show", items)
    return element("section", element("h4", heading), content, class_="meanwhile")


def _side_by_side(calls: Sequence[InteractionDetails], turn: int) -> Markup:
    """Return the answers of calls that share an ask, and what came of each."""
    columns = [_branch_column(each, turn) for each in calls]
    return element(
        "section",
        element("h4", f"Answers to turn {turn}, side by side"),
        element("div", columns, class_="columns"),
        class_="branches",
    )


def _branch_column(details: InteractionDetails, turn: int) -> Markup:
    interaction = details.interaction
    answers: Mapping[str, Any] = interaction.turns[turn - 1].answered or {}
    further = len(interaction.turns) - turn
    facts: list[tuple[str, str | Markup]] = [
        (key, _answer_words(answer)) for key, answer in answers.items()
    ]
    facts.append(("then", f"{counted(further, 'further turn')}" if further else "no further turn"))
    link = element("a", f"#{interaction.number}", href=f"#i{interaction.number}")
    return element(
        "article",
        element("h5", "In ", link, " ", _final_chip(details)),
        facts_list(facts),
        _outline(details.final),
    )


def _answer_words(answer: Any) -> str:
    if not isinstance(answer, dict) or not isinstance(answer.get("action"), str):
        return shorten(canonical(answer))
    content = answer.get("content")
    return (
        answer["action"] if content is None else f"{answer['action']} {shorten(canonical(content))}"
    )


def _outline(final: FinalResponse) -> Markup | None:
    """Return what a reader recognises a result by."""
    value = final.value
    if (
        final.kind in {"result", "failed result"}
        and isinstance(value, dict)
        and value.get("content")
    ):
        return content_blocks(value["content"])
    return None if final.kind == "nothing" else json_block(value)


def _final(details: InteractionDetails) -> Markup:
    final = details.final
    kind = "bad" if final.kind in {"error", "failed result"} else "good"
    heading = element("h4", _FINAL_WORDS[final.kind])
    if final.kind == "nothing":
        kind = ""
        content: Markup | None = None
    elif final.kind == "text":
        kind, content = "", text_block(str(final.value))
    elif final.kind == "error":
        content = json_block(final.value)
    else:
        content = _result(final.value)
    ended = element("p", recorded(details.interaction.ended), class_="ended")
    return element("section", heading, content, ended, class_=f"final {kind}".rstrip())


_FINAL_WORDS: Final = {
    "result": "The server's result",
    "failed result": "The server's result: the tool failed",
    "error": "The server's error",
    "text": "The response",
    "nothing": "How it ended",
}


def _result(result: Any) -> Markup:
    if not isinstance(result, dict):
        return json_block(result)
    shown = (result.get(name) for name in ("content", "contents"))
    parts = [content_blocks(content) for content in shown if content]
    if isinstance(result.get("messages"), list):
        parts += [
            message_bubble(str(each.get("role")), each.get("content"))
            for each in result["messages"]
            if isinstance(each, dict)
        ]
    if "structuredContent" in result:
        parts.append(json_block(result["structuredContent"]))
    if not parts:
        return json_block(result)
    return joined(parts, folded("The whole result as JSON", json_block(result)))
