"""What a server says that it can do: lists, discovery, `initialize`.

Rule: what is added or optional is information; what is gone, newly required or says something else
is not. The order of a list means nothing.
Source: MCP 2026-07-28, "Discovery", "Tools", "Prompts", "Resources".
"""

from __future__ import annotations

from typing import Any, Final

from mrtr_cassette.core.compare.changes import Change
from mrtr_cassette.core.compare.pairing import Pair, matches
from mrtr_cassette.core.compare.values import by_place, value_changes
from mrtr_cassette.core.wire.jsonbytes import canonical
from mrtr_cassette.core.wire.pointers import pointer_path, value_at

_SURFACES: Final = frozenset(
    {
        "initialize",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "server/discover",
        "tools/list",
    }
)
_NAMES: Final = ("uri", "uriTemplate", "name")
"""Members by which an item of a list is the same one in another list; the first counts."""
_SERVER_INFO: Final = frozenset({"serverInfo", "io.modelcontextprotocol/serverInfo"})
_INPUT: Final = "inputSchema"
_REQUIRED: Final = "required"
_SCHEMAS: Final = frozenset({_INPUT, "outputSchema"})
_ANNOTATIONS: Final = frozenset({"$comment", "$id", "$schema", "examples", "title"})
"""Keywords of JSON Schema that nothing depends on."""
_ONLY_DESCRIBES: Final = _ANNOTATIONS | {"default", "deprecated", "description"}
"""Keywords of JSON Schema that refuse no value."""
_ALTERNATIVES: Final = frozenset(
    {"$defs", "anyOf", "definitions", "enum", "oneOf", "properties", "type"}
)
"""Keywords of JSON Schema below which something more allows more."""


def is_surface(method: str) -> bool:
    """Tell whether the result of a method says what the server can do."""
    return method in _SURFACES


def surface_changes(recorded: Any, received: Any) -> list[Change]:
    """Return where two results differ that say what a server can do."""
    changes = [as_surface(change) for change in value_changes(recorded, received, "", _by_name)]
    return [
        change._replace(is_information=False) if _is_second(change, received) else change
        for change in changes
    ]


def as_surface(change: Change) -> Change:
    """Return a change as one of what a server says of itself."""
    return change._replace(verdict="surface-changed", is_information=_is_information(change))


def is_about_server(change: Change) -> bool:
    """Tell whether a change in any result is in what the server says of itself."""
    return not _SERVER_INFO.isdisjoint(pointer_path(change.pointer)) if change.pointer else False


def _by_name(recorded: list[Any], received: list[Any]) -> list[Pair]:
    """Pair items by their names, and texts and numbers as those of sets; others by their place."""
    old, new = ([_name_of(item) for item in items] for items in (recorded, received))
    if None in old or None in new:
        return by_place(recorded, received)
    partners = dict(matches(old, new))
    added = set(range(len(new))).difference(partners.values())
    return [
        *(Pair(index, partners.get(index)) for index in range(len(old))),
        *(Pair(None, index) for index in sorted(added)),
    ]


def _is_second(change: Change, received: Any) -> bool:
    """Tell whether what is added is an item under a name that another item of its list has."""
    if change.recorded is not None or not change.pointer:
        return False
    *path, last = pointer_path(change.pointer)
    items = value_at(received, tuple(path))
    if not isinstance(items, list) or not isinstance(items[int(last)], dict):
        return False
    name = _name_of(items[int(last)])
    return name is not None and [_name_of(item) for item in items].count(name) > 1


def _name_of(item: Any) -> str | None:
    if not isinstance(item, dict | list):
        return canonical(item)
    names = [item[name] for name in _NAMES if name in item] if isinstance(item, dict) else []
    return names[0] if names and isinstance(names[0], str) else None


def _is_information(change: Change) -> bool:
    steps = pointer_path(change.pointer) if change.pointer else ()
    about_server = [index for index, step in enumerate(steps) if step in _SERVER_INFO]
    if about_server:
        inner = steps[about_server[0] + 1 :]
        return change.received is not None and inner != ("name",)
    if change.recorded is None:
        return not _demands_more(steps, change.received or "")
    if change.received is None:
        is_optional_now = _INPUT in steps and _REQUIRED in steps[-2:]
        return is_optional_now or (_is_in_schema(steps) and steps[-1] in _ANNOTATIONS)
    return steps[-1:] == (_REQUIRED,) and change.received == "false"


def _is_in_schema(steps: tuple[str, ...]) -> bool:
    return bool(_SCHEMAS.intersection(steps[:-1])) and steps[-2:-1] != ("properties",)


def _demands_more(steps: tuple[str, ...], added: str) -> bool:
    """Tell whether something that is added makes a call fail that worked before."""
    if "arguments" in steps:
        # An argument of a prompt, or what is said of one.
        return '"required":true' in added or (steps[-1] == _REQUIRED and added == "true")
    if steps[2:3] == ("execution",):
        # A tool that can be called as a task only (MCP 2025-11-25, "Tasks").
        return f'"{_REQUIRED}"' in added
    if _INPUT not in steps or steps[-1] == _INPUT:
        return False
    inner = steps[steps.index(_INPUT) + 1 :]
    within = inner[-2] if len(inner) > 1 else ""
    return within not in _ALTERNATIVES and inner[-1] not in _ONLY_DESCRIBES
