"""Header values by what they mean, whichever way a client spells them."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Final

from mrtr_cassette.core.wire.http import decoded_header
from mrtr_cassette.core.wire.jsonbytes import canonical, parse
from mrtr_cassette.errors import NotJsonError

PARAMETER_PREFIX: Final = "mcp-param-"
_NAME_HEADER: Final = "mcp-name"
_QUOTED_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_LIST_ITEM: Final = re.compile(rf'(?:[^",]|{_QUOTED_STRING})+')
_ITEM_PART: Final = re.compile(rf'(?:[^";]|{_QUOTED_STRING})+')
_DECIMAL_NUMBER: Final = re.compile(
    r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII
)
_FULL_WEIGHT: Final = Decimal(1)

MediaRange = tuple[str, ...]
"""A type of media, and its parameters in alphabetical order."""


def media_ranges(accept: str) -> frozenset[tuple[MediaRange, Decimal]]:
    """Return the types of media that an `Accept` names, each with its weight."""
    found: dict[MediaRange, Decimal] = {}
    for item in _LIST_ITEM.findall(accept):
        parts = [part.strip() for part in _ITEM_PART.findall(item)]
        weight = _FULL_WEIGHT
        parameters = []
        for part in parts[1:]:
            name, _, value = part.partition("=")
            name = name.strip().lower()
            value = value.strip().strip('"')
            if name == "q":
                weight = _weight_of_q(value)
            elif name:
                parameters.append(f"{name}={value}")

        if parts and parts[0]:
            found[parts[0].lower(), *sorted(parameters)] = weight

    return frozenset(found.items())


def _weight_of_q(text: str) -> Decimal:
    """Return the weight that a `q` gives; the full weight if it is no finite number."""
    try:
        weight = Decimal(text)
    except InvalidOperation:
        return _FULL_WEIGHT

    return weight if weight.is_finite() else _FULL_WEIGHT


def meaning_of(name: str, value: str) -> str:
    """Return the text, or the number, that a header says, by its lower-case name.

    MCP has names and arguments in headers, where any text may be spelled in base64.
    """
    is_parameter = name.startswith(PARAMETER_PREFIX)
    if not is_parameter and name != _NAME_HEADER:
        return value

    decoded = decoded_header(value)
    text = value if decoded is None else decoded
    if not is_parameter or not _DECIMAL_NUMBER.fullmatch(text):
        return text

    try:
        return canonical(parse(text.encode()))
    except NotJsonError:
        return text
