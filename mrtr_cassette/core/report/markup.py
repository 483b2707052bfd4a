"""Recorded values on a page: made visible, in short, and with marks where a secret stood.

Rule: every value of a template is text, which the template escapes; only `recorded` makes markup.
Source: MCP 2026-07-28, `ContentBlock`, `SamplingMessage`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from markupsafe import Markup, escape

from mrtr_cassette.core.report.details import Interaction, Turn
from mrtr_cassette.core.report.wording import json_text
from mrtr_cassette.core.secrets.sealed import PLACEHOLDER, SEALED_ANSWER
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.errors import counted, printable, shorten

LONGEST_TEXT: Final = 20_000
"""Characters of one value: a page has to stay quick, and `inspect` shows the rest."""
_SHOWN_ARGUMENTS: Final = 90
_TAB: Final = 4
_REPLACED: Final = re.compile(
    rf"(?P<redacted>{re.sub(r'[?]P<[a-z]+>', '?:', PLACEHOLDER.pattern)})"
    rf"|(?P<sealed>{SEALED_ANSWER.pattern}|mrtr-(?:state|session|event):[0-9a-f:]+"
    r"|sha256:[0-9a-f]{64})",
    re.ASCII,
)
"""What stands in a cassette for something else: for a secret, or for what is sealed."""
_MARK: Final = Markup('<mark class="{}" title="{}">{}</mark>')
_TITLES: Final = {
    "redacted": "A secret stood here; the cassette has a placeholder.",
    "sealed": "Sealed: the cassette has a surrogate or a hash.",
}


def plain(value: Any) -> str:
    """Return a value as text with nothing that is invisible or turns it round; markup as it is."""
    if isinstance(value, Markup):
        return value
    text = "" if value is None else str(value)
    if text.isprintable():
        return text
    return "\n".join(printable(line.expandtabs(_TAB)) for line in text.split("\n"))


def recorded(text: str) -> Markup:
    """Return a recorded text as HTML in which what stands for something else is marked."""
    if isinstance(text, Markup):
        return text
    parts: list[Markup] = []
    end = 0
    for match in _REPLACED.finditer(text):
        kind = match.lastgroup or "redacted"
        parts.append(escape(plain(text[end : match.start()])))
        parts.append(_MARK.format(kind, _TITLES[kind], plain(match[0])))
        end = match.end()
    return Markup("").join([*parts, escape(plain(text[end:]))])


def replaced_in(text: str) -> str:
    """Say what in a text stands for something else: `redacted`, `sealed`, or an empty string."""
    match = _REPLACED.search(text)
    return "" if match is None else match.lastgroup or "redacted"


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
    return [*map(_content_block, content if isinstance(content, list) else [content])]


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
        texts = [
            f"{name}: {value if isinstance(value, str) else canonical(value)}"
            for name, value in parameters.items()
        ]
        return shorten(", ".join(texts), _SHOWN_ARGUMENTS)
    return "" if parameters is None else shorten(canonical(parameters), _SHOWN_ARGUMENTS)


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


def ending(interaction: Interaction) -> tuple[str, str]:
    """Return in short how a call ended, and how that looks."""
    match interaction.final.kind:
        case "result":
            return "result", "good"
        case "failed result":
            return "tool error", "bad"
        case "error":
            error = interaction.final.value
            code = canonical(error.get("code")) if isinstance(error, dict) else ""
            return f"error {code}", "bad"
        case _:
            is_cut = bool(interaction.turns) and interaction.turns[-1].answers_json is None
            return interaction.ended.partition(",")[0], "bad" if is_cut else ""


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
