"""What a user writes for a call: what to call, its arguments, and answers, as `name=text` pairs."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.answers.checking import (
    ACTIONS,
    ELICITATIONS,
    RESULTS,
    elicited,
    fields_of,
    sampled,
    type_of_text,
    value_of_text,
    value_schema,
)
from mrtr_cassette.core.protocol.calls import NAMED_BY
from mrtr_cassette.core.protocol.dialect import InputRequest
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
    """A name and what it stands for: the text after `=`, or the JSON value after `:=`."""

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
        pair = _read_pair(text, what)
        if pair.name in pairs:
            raise UsageError(f"{what} {pair.name!r} is given twice")
        pairs[pair.name] = pair
    return tuple(pairs.values())


def _read_pair(text: str, what: str) -> WrittenPair:
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
    """What is to be called; `name` is empty for a method that names nothing."""

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
    by_name: dict[str, Mapping[str, Any]] = {
        each["name"]: each for each in tools if isinstance(each, Mapping) and "name" in each
    }
    if name in by_name:
        return by_name[name]
    nearest = difflib.get_close_matches(name, [str(each) for each in by_name], n=1)
    listed = ", ".join(str(each) for each in by_name) or "none"
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"it has {listed}"
    raise UsageError(f"the server has no tool {name!r}", hint=hint)


class GivenAnswers:
    """The answers that a call brings itself.

    A name is a request's key, a form's field, or both with a dot between, such as `confirm.env`.
    A field's name alone answers one question: the next one may be about deleting what the first
    one was about.
    """

    def __init__(self, pairs: Iterable[WrittenPair] = ()) -> None:
        self._pairs = {pair.name: pair for pair in pairs}
        self._used: set[str] = set()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._pairs)

    @property
    def unused(self) -> list[str]:
        """The names of those that nothing was asked for."""
        return [name for name in self._pairs if name not in self._used]

    @property
    def kinds(self) -> set[str]:
        """The kinds of requests that they can answer."""
        has_results = any(isinstance(pair.value, dict) for pair in self._pairs.values())
        return {*ELICITATIONS, *RESULTS} if has_results else set(ELICITATIONS)

    def answer_to(self, key: str, request: InputRequest) -> Any:
        """Return the answer to a request; None where no name is for it."""
        own = self._pairs.get(key)
        fields = fields_of(request)
        if own is not None and isinstance(own.value, dict):
            self._used.add(key)
            return own.value
        if self.spent_name(key, request):
            return None
        names = {
            field: name
            for field in fields
            for name in (field, f"{key}.{field}")
            if name in self._pairs
        }
        if own is not None and not names and len(fields) == 1 and own.value not in ACTIONS:
            names = {next(iter(fields)): key}
        if not names:
            return None if own is None else self._whole(own, request)
        if own is not None and self._refuses(own, fields):
            self._used.add(own.name)
            return elicited(own.value)
        self._used.update(names.values())
        return elicited(
            "accept",
            {field: self._pairs[name].read_as(fields[field]) for field, name in names.items()},
        )

    def spent_name(self, key: str, request: InputRequest) -> str | None:
        """Return the name of a field that has answered another question; None without one."""
        spent = (
            field
            for field in fields_of(request)
            if field in self._used and f"{key}.{field}" not in self._pairs
        )
        return next(spent, None)

    @staticmethod
    def _refuses(own: WrittenPair, fields: Mapping[str, Any]) -> bool:
        if own.value not in ACTIONS[1:]:
            return False
        return own.name not in fields or type_of_text(fields[own.name]) != "string"

    def _whole(self, own: WrittenPair, request: InputRequest) -> Any:
        self._used.add(own.name)
        if request.takes_value:
            return {"value": own.read_as(value_schema(request))}
        if request.kind in ELICITATIONS and own.value in ACTIONS:
            return elicited(own.value)
        if request.kind == "sampling" and isinstance(own.value, str):
            return sampled(own.value)
        return own.value
