"""All that was said in a call, one thing below the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mrtr_cassette.core.report.details import FinalResponse, InteractionDetails, Said
from mrtr_cassette.core.view.markup import Markup, element, joined, recorded
from mrtr_cassette.core.view.questions import turn_section
from mrtr_cassette.core.view.timeline import shown_time
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

SHOWN: Final = "i"
"""What the ids of the shown cassette's calls begin with."""
GONE: Final = "o"
"""The same of calls that only the other cassette has."""
_FEW_SAID: Final = 4


def final_chip(details: InteractionDetails) -> Markup:
    """Return in short how a call ended."""
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


def conversation(
    details: InteractionDetails, branches: Sequence[InteractionDetails] = (), prefix: str = SHOWN
) -> list[Markup]:
    """Return all that was said in a call.

    Args:
        branches: the calls that share an ask with it and answer it in another way.
        prefix: what its ids on the page begin with.
    """
    interaction = details.interaction
    place = f"{prefix}{interaction.number}"
    parts = [_request(details, place)]
    if interaction.branch is not None:
        of, shared = interaction.branch
        link = element("a", f"#{of}", href=f"#i{of}t{shared}") if prefix == SHOWN else f"#{of}"
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
        parts.append(turn_section(turn, f"{place}t{at}", at, answering_ms))
        sharing = [each for each in branches if each.interaction.branch == (interaction.number, at)]
        if sharing:
            parts.append(_side_by_side([details, *sharing], at))
    if details.said:
        parts.append(_said(details.said))
    parts.append(_final(details))
    return parts


def _request(details: InteractionDetails, place: str) -> Markup:
    heading = element("h4", element("a", "The client calls", href=f"#{place}"))
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
        element("h5", "In ", link, " ", final_chip(details)),
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
