"""What a call is given: method and name, and arguments of the types that its tool declares."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mrtr_cassette.core.answers.pairs import WrittenPair, read_pairs
from mrtr_cassette.core.protocol.calls import NAMED_BY
from mrtr_cassette.errors import UsageError

_METHODS: Final = frozenset(
    {
        *NAMED_BY,
        "completion/complete",
        "logging/setLevel",
        "ping",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "server/discover",
        "tools/list",
    }
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be called.

    Attributes:
        method: of JSON-RPC.
        name: the tool's or prompt's name, or the resource's URI; empty for any other method.
        pairs: its arguments, or for any other method the params.
    """

    method: str
    name: str
    pairs: tuple[WrittenPair, ...]

    def params(self, input_schema: Any = None) -> dict[str, Any]:
        """Return the params; a text is read as the type that a tool's schema declares."""
        fields = input_schema.get("properties") if isinstance(input_schema, Mapping) else None
        fields = fields if isinstance(fields, Mapping) else {}
        values = {pair.name: pair.read_as(fields.get(pair.name)) for pair in self.pairs}
        if not self.name:
            return values
        params: dict[str, Any] = {NAMED_BY[self.method]: self.name}
        return params | {"arguments": values} if values else params


def wanted_of(words: Sequence[str]) -> Wanted:
    """Return what is to be called: a tool, or a method and what it names, and the arguments.

    Raises:
        UsageError: a word is missing or is no argument.
    """
    if not words:
        raise UsageError("there is nothing to call", hint="name a tool, or a method")
    first, *rest = words
    if first not in _METHODS:
        return Wanted("tools/call", first, read_pairs(rest, "argument"))
    if first not in NAMED_BY:
        return Wanted(first, "", read_pairs(rest, "argument"))
    if not rest:
        raise UsageError(f"{first} needs what it names", hint=f"write {first} NAME")
    pairs = read_pairs(rest[1:], "argument")
    if first == "resources/read" and pairs:
        raise UsageError("resources/read takes no arguments")
    return Wanted(first, rest[0], pairs)


def tool_named(name: str, tools: Iterable[Any]) -> Mapping[str, Any]:
    """Return a tool of a server's list.

    Raises:
        UsageError: it has none of this name.
    """
    by_name = {each["name"]: each for each in tools if isinstance(each, Mapping) and "name" in each}
    if name in by_name:
        tool: Mapping[str, Any] = by_name[name]
        return tool
    nearest = difflib.get_close_matches(name, [str(each) for each in by_name], n=1)
    listed = ", ".join(str(each) for each in by_name) or "none"
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"it has {listed}"
    raise UsageError(f"the server has no tool {name!r}", hint=hint)
