"""What a call is given as `name=text` or `name:=json`, and which tool or method it names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.answers.schemas import value_of_text
from mrtr_cassette.core.protocol.calls import NAMED_BY
from mrtr_cassette.core.wire.jsonbytes import parse
from mrtr_cassette.errors import NotJsonError, UsageError

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


class WrittenPair(NamedTuple):
    """A name and what it stands for.

    Attributes:
        name: the name.
        value: the text after `=`, or the value after `:=`.
        is_json: the value was written as JSON.
    """

    name: str
    value: Any
    is_json: bool

    def read_as(self, schema: Any) -> Any:
        """Return the value; a text is read as the type that the schema has."""
        return self.value if self.is_json else value_of_text(self.value, schema)


def read_pairs(texts: Iterable[str], what: str) -> tuple[WrittenPair, ...]:
    """Read pairs, which messages call by `what`.

    Raises:
        UsageError: a text is none, its JSON can't be read, or a name comes twice.
    """
    pairs: dict[str, WrittenPair] = {}
    for text in texts:
        pair = _read(text, what)
        if pair.name in pairs:
            raise UsageError(f"{what} {pair.name!r} is given twice")
        pairs[pair.name] = pair
    return tuple(pairs.values())


def _read(text: str, what: str) -> WrittenPair:
    name, separator, value = text.partition("=")
    is_json = name.endswith(":")
    name = name.removesuffix(":") if is_json else name
    # The text itself may be a secret.
    if not separator or not name:
        shown = repr(name) if name else "an empty text"
        raise UsageError(
            f"{what}: {shown} has no name and value", hint="write name=text or name:=json"
        )
    if not is_json:
        return WrittenPair(name, value, is_json)
    try:
        return WrittenPair(name, parse(value.encode("utf-8", "surrogatepass")), is_json)
    except NotJsonError:
        raise UsageError(
            f"{what} {name!r}: what follows := is no JSON",
            hint=f"a text is written {name}=text, and JSON in quotes of the shell",
        ) from None


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
