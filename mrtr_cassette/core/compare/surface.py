"""The capabilities that a server lists, and which of their changes matter.

Additions and optional members are information; anything removed, newly required or reworded counts.
The order of a list means nothing.
"""
# Source: MCP 2026-07-28, "Discovery", "Tools", "Prompts", "Resources".

from __future__ import annotations

from typing import Any, Final

from mrtr_cassette.core.compare.values import (
    Change,
    IndexPair,
    matching_places,
    pairs_by_place,
)
from mrtr_cassette.core.wire.jsonbytes import canonical

_NAME_MEMBERS: Final = ("uri", "uriTemplate", "name")
"""Members that identify an item in two lists; the first one found counts."""

SERVER_INFO_MEMBERS: Final = frozenset(
    {"serverInfo", "io.modelcontextprotocol/serverInfo"}
)
_INPUT_SCHEMA: Final = "inputSchema"
_REQUIRED: Final = "required"
_DESCRIBING_KEYWORDS: Final = frozenset(
    {"$comment", "$schema", "default", "deprecated", "description", "examples", "title"}
)
"""Keywords of JSON Schema that refuse no value."""

_KEYWORDS_ALLOWING_MORE: Final = frozenset(
    {"$defs", "anyOf", "definitions", "enum", "oneOf", "properties", "type"}
)
"""Keywords of JSON Schema below which an addition allows more values."""


def pairs_by_name(recorded: list[Any], received: list[Any]) -> list[IndexPair]:
    """Pair the items of two lists by their names, or without names by their places."""
    old_names = list(map(_name_of_item, recorded))
    new_names = list(map(_name_of_item, received))
    if None in old_names or None in new_names:
        return pairs_by_place(recorded, received)

    partners = dict(matching_places(enumerate(old_names), enumerate(new_names)))
    pairs: list[IndexPair] = []
    first_place_by_name: dict[str | None, int] = {}
    for index, name in enumerate(old_names):
        pairs.append((index, partners.get(index)))
        first_place_by_name.setdefault(name, index)

    paired_places = set(partners.values())
    for index, name in enumerate(new_names):
        if index in paired_places:
            continue

        # A second one under a recorded name may be called in the place of the first.
        pairs.append((first_place_by_name.get(name), index))

    return pairs


def _name_of_item(item: Any) -> str | None:
    """Return the name of an item of a list; None if it has none."""
    if isinstance(item, list):
        return None
    if not isinstance(item, dict):
        return canonical(item)

    for member in _NAME_MEMBERS:
        if member in item:
            name = item[member]
            return name if isinstance(name, str) else None

    return None


def offers_more(change: Change, steps: tuple[str, ...]) -> bool:
    """Tell whether a server offers more, or demands less, by a change at the place of `steps`."""
    if not SERVER_INFO_MEMBERS.isdisjoint(steps):
        return change.received is not None and steps[-1] != "name"
    if change.received is None:
        return _INPUT_SCHEMA in steps and _REQUIRED in steps[-2:]
    if change.recorded is not None:
        return steps[-1] == _REQUIRED and change.received == "false"

    if "arguments" in steps:
        # An argument of a prompt, or a member of one.
        demand_in_json = '"required":true'
        if steps[-1] == _REQUIRED:
            demand_in_json = "true"

        return demand_in_json not in change.received

    if steps[2:3] == ("execution",):
        # A tool that can be called as a task only (MCP 2025-11-25, "Tasks").
        return f'"{_REQUIRED}"' not in change.received

    return _allows_more(steps)


def _allows_more(steps: tuple[str, ...]) -> bool:
    """Tell whether an addition refuses nothing: outside an input's schema, or as a choice in it."""
    if _INPUT_SCHEMA not in steps:
        return True

    steps_in_schema = steps[steps.index(_INPUT_SCHEMA) + 1 :]
    if not steps_in_schema or steps_in_schema[-1] in _DESCRIBING_KEYWORDS:
        return True

    return len(steps_in_schema) > 1 and steps_in_schema[-2] in _KEYWORDS_ALLOWING_MORE
