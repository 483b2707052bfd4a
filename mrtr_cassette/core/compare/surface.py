"""What a server says that it can do: which changes of its lists matter.

What is added or optional is information; what is gone, newly required or says something else is
not. The order of a list means nothing.
"""
# Source: MCP 2026-07-28, "Discovery", "Tools", "Prompts", "Resources".

from __future__ import annotations

from typing import Any, Final

from mrtr_cassette.core.compare.values import Change, Pair, by_place, matches
from mrtr_cassette.core.wire.jsonbytes import canonical

_NAMES: Final = ("uri", "uriTemplate", "name")
"""Members by which an item of a list is the same one in another list; the first counts."""
SERVER_INFO: Final = frozenset({"serverInfo", "io.modelcontextprotocol/serverInfo"})
_INPUT: Final = "inputSchema"
_REQUIRED: Final = "required"
_ONLY_DESCRIBES: Final = frozenset(
    {"$comment", "$schema", "default", "deprecated", "description", "examples", "title"}
)
"""Keywords of JSON Schema that refuse no value."""
_ALTERNATIVES: Final = frozenset(
    (name,) for name in ("$defs", "anyOf", "definitions", "enum", "oneOf", "properties", "type")
)
"""Keywords of JSON Schema below which something more allows more."""


def by_name(recorded: list[Any], received: list[Any]) -> list[Pair]:
    """Pair the items of two lists by their names, or without names by their places."""
    old, new = ([_name_of(item) for item in items] for items in (recorded, received))
    if None in old or None in new:
        return by_place(recorded, received)
    partners = dict(matches(old, new))
    pairs: list[Pair] = [(index, partners.get(index)) for index in range(len(old))]
    for index in sorted(set(range(len(new))).difference(partners.values())):
        # A second one under a recorded name may be called in the place of the first.
        namesake = old.index(new[index]) if new[index] in old else None
        pairs.append((namesake, index))
    return pairs


def _name_of(item: Any) -> str | None:
    if not isinstance(item, dict | list):
        return canonical(item)
    names = [item[name] for name in _NAMES if name in item] if isinstance(item, dict) else []
    return names[0] if names and isinstance(names[0], str) else None


def is_offer(change: Change, steps: tuple[str, ...]) -> bool:
    """Tell whether a server offers more, or demands less, in a change at the place of `steps`."""
    if not SERVER_INFO.isdisjoint(steps):
        return change.received is not None and steps[-1] != "name"
    if change.received is None:
        return _INPUT in steps and _REQUIRED in steps[-2:]
    if change.recorded is not None:
        return steps[-1] == _REQUIRED and change.received == "false"
    if "arguments" in steps:
        # An argument of a prompt, or what is said of one.
        demand = "true" if steps[-1] == _REQUIRED else '"required":true'
        return demand not in change.received
    if steps[2:3] == ("execution",):
        # A tool that can be called as a task only (MCP 2025-11-25, "Tasks").
        return f'"{_REQUIRED}"' not in change.received
    schema = steps[steps.index(_INPUT) + 1 :] if _INPUT in steps else ()
    return not schema or schema[-1] in _ONLY_DESCRIBES or schema[-2:-1] in _ALTERNATIVES
