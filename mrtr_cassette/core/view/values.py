"""Recorded values on a page: JSON, the parts of a message, tables of differences.

Source: MCP 2026-07-28, `ContentBlock`, `SamplingMessage`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from mrtr_cassette.core.report.wording import json_text
from mrtr_cassette.core.view.markup import Markup, element, joined, recorded
from mrtr_cassette.core.wire.pointers import Difference
from mrtr_cassette.errors import counted, shorten

LONGEST_TEXT: Final = 20_000
"""Characters of one value: a page has to stay quick, and `inspect` shows the rest."""


def text_block(text: str) -> Markup:
    """Return a text of several lines."""
    return element("pre", recorded(shorten(text, LONGEST_TEXT)))


def json_block(value: Any) -> Markup:
    """Return a JSON value, indented."""
    return element("pre", recorded(shorten(json_text(value), LONGEST_TEXT)), class_="json")


def folded(summary: str, content: Markup) -> Markup:
    """Return what a reader may open."""
    return element("details", element("summary", summary), content, class_="fold")


def chip(text: str, kind: str = "") -> Markup:
    """Return a short fact."""
    return element("span", text, class_=f"chip {kind}".rstrip())


def facts_list(facts: Iterable[tuple[str, str | Markup]]) -> Markup:
    """Return names and values; a text is a recorded one."""
    return element(
        "dl",
        [
            element(
                "div",
                element("dt", name),
                element("dd", value if isinstance(value, Markup) else recorded(value)),
            )
            for name, value in facts
        ],
        class_="facts",
    )


def members(value: Any) -> Markup:
    """Return an object of scalars as names and values, and any other value as JSON."""
    if isinstance(value, Mapping) and not any(
        isinstance(each, dict | list) for each in value.values()
    ):
        texts = [
            (name, each if isinstance(each, str) else json_text(each))
            for name, each in value.items()
        ]
        if all("\n" not in text and len(text) <= LONGEST_TEXT for _, text in texts):
            return facts_list(texts)
    return json_block(value)


def content_blocks(content: Any) -> Markup:
    """Return the content of a result or a message: one block, or several."""
    blocks = content if isinstance(content, list) else [content]
    return joined([_content_block(block) for block in blocks])


def _content_block(block: Any) -> Markup:
    if isinstance(block, str):
        return text_block(block)
    if not isinstance(block, dict):
        return json_block(block)
    text, data, uri = block.get("text"), block.get("data", block.get("blob")), block.get("uri")
    kind = block.get("mimeType") or block.get("type") or "data"
    if isinstance(text, str):
        return text_block(text)
    if isinstance(data, str):
        size = counted(len(data) * 3 // 4, "byte")
        return element("p", recorded(f"{kind}, about {size}"), class_="binary")
    if isinstance(block.get("resource"), dict):
        return _content_block(block["resource"])
    return (
        json_block(block)
        if not isinstance(uri, str)
        else element("p", element("code", recorded(uri)))
    )


def message_bubble(role: str, content: Any, *notes: str) -> Markup:
    """Return one message of a conversation with a model."""
    return element(
        "div",
        element("p", element("b", role), [chip(note) for note in notes], class_="role"),
        content_blocks(content),
        class_=f"bubble {'assistant' if role == 'assistant' else 'user'}",
    )


def difference_table(caption: str, differences: Sequence[Difference], other: str) -> Markup:
    """Return where two values differ, side by side.

    Args:
        differences: by JSON Pointer; an absent value reads as nothing.
        other: what the value is called that is not the recorded one.
    """
    return element(
        "table",
        element("caption", caption),
        element(
            "thead",
            element(
                "tr", [element("th", name, scope="col") for name in ("where", "recorded", other)]
            ),
        ),
        element("tbody", [_difference_row(each) for each in differences]),
        class_="differences",
    )


def _difference_row(difference: Difference) -> Markup:
    cells = [
        element("td", element("em", "nothing"))
        if value is None
        else element("td", element("code", recorded(value)), class_=side)
        for side, value in (("old", difference.recorded), ("new", difference.received))
    ]
    where = element("th", element("code", recorded(difference.pointer or "/")), scope="row")
    return element("tr", where, cells)
