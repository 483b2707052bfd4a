"""Recorded values as a page shows them: parts of a message, and calls in short.

Source: MCP 2026-07-28, `ContentBlock`, `SamplingMessage`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from mrtr_cassette.core.report.details import InteractionDetails
from mrtr_cassette.core.report.inspection import Turn
from mrtr_cassette.core.report.summary import InteractionOutcome, Outcome
from mrtr_cassette.core.report.wording import json_text
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.errors import counted, shorten

LONGEST_TEXT: Final = 20_000
"""Characters of one value: a page has to stay quick, and `inspect` shows the rest."""
_SHOWN_ARGUMENTS: Final = 90


def cut(text: str) -> str:
    """Return a text that a page can hold."""
    return shorten(text, LONGEST_TEXT)


def scalars_of(value: Any) -> list[tuple[str, str]] | None:
    """Return an object of scalars as names and texts; None for any other value."""
    if not isinstance(value, Mapping):
        return None
    if any(isinstance(each, dict | list) for each in value.values()):
        return None
    texts = [
        (name, each if isinstance(each, str) else json_text(each)) for name, each in value.items()
    ]
    is_short = all("\n" not in text and len(text) <= LONGEST_TEXT for _, text in texts)
    return texts if is_short else None


def content_blocks(content: Any) -> list[tuple[str, Any]]:
    """Return the content of a result or a message: `text`, `binary`, `uri` or `json`, and what."""
    return [
        _content_block(block) for block in (content if isinstance(content, list) else [content])
    ]


def _content_block(block: Any) -> tuple[str, Any]:
    if isinstance(block, str):
        return "text", block
    if not isinstance(block, dict):
        return "json", block
    text, data, uri = block.get("text"), block.get("data", block.get("blob")), block.get("uri")
    kind = block.get("mimeType") or block.get("type") or "data"
    if isinstance(text, str):
        return "text", text
    if isinstance(data, str):
        return "binary", f"{kind}, about {counted(len(data) * 3 // 4, 'byte')}"
    if isinstance(block.get("resource"), dict):
        return _content_block(block["resource"])
    return ("uri", uri) if isinstance(uri, str) else ("json", block)


def arguments_in_short(parameters: Any) -> str:
    """Return the arguments of a call in one line."""
    if isinstance(parameters, dict):
        text = ", ".join(f"{name}: {_in_line(value)}" for name, value in parameters.items())
    else:
        text = "" if parameters is None else canonical(parameters)
    return shorten(text, _SHOWN_ARGUMENTS)


def _in_line(value: Any) -> str:
    return value if isinstance(value, str) else canonical(value)


def ending(details: InteractionDetails) -> tuple[str, str]:
    """Return in short how a call ended, and how that looks."""
    interaction = details.interaction
    match details.final.kind:
        case "result":
            return "result", "good"
        case "failed result":
            return "tool error", "bad"
        case "error":
            error = details.final.value
            code = canonical(error.get("code")) if isinstance(error, dict) else ""
            return f"error {code}", "bad"
        case _:
            is_cut = bool(interaction.turns) and interaction.turns[-1].answers_json is None
            return interaction.ended.partition(",")[0], "bad" if is_cut else ""


def answers_in_short(turn: Turn) -> Iterator[tuple[str, str]]:
    """Yield each answer of a turn in one line."""
    for key, answer in (turn.answered or {}).items():
        action = answer.get("action") if isinstance(answer, dict) else None
        if not isinstance(action, str):
            yield key, shorten(canonical(answer))
        elif answer.get("content") is None:
            yield key, action
        else:
            yield key, f"{action} {shorten(canonical(answer['content']))}"


def sharing(
    branches: Sequence[InteractionDetails], details: InteractionDetails, turn: int
) -> list[InteractionDetails]:
    """Return the branches that share the ask of this turn."""
    number = details.interaction.number
    return [each for each in branches if each.interaction.branch == (number, turn)]


def unplayed(outcome: InteractionOutcome) -> str:
    """Say what became of a call that a replay didn't play, or not wholly."""
    return "never played" if outcome.outcome is Outcome.UNPLAYED else outcome.outcome.value


def marks(
    details: InteractionDetails,
    branches: Sequence[InteractionDetails],
    outcome: InteractionOutcome | None,
    notes: Sequence[object],
) -> list[str]:
    """Return by what a reader may pick out a call."""
    found = {
        "asks": bool(details.interaction.turns),
        "branches": bool(branches) or details.interaction.branch is not None,
        "fails": details.final.kind in {"error", "failed result"},
        "noted": bool(notes),
        "unplayed": outcome is not None and outcome.outcome is not Outcome.PLAYED,
    }
    return [name for name, applies in found.items() if applies]
