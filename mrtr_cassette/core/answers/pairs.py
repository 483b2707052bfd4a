"""What somebody writes as `name=text` or `name:=json`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from mrtr_cassette.core.answers.schemas import value_of_text
from mrtr_cassette.core.wire.jsonbytes import parse
from mrtr_cassette.errors import NotJsonError, UsageError


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
