"""Values with something in every place, made of their types, and the members of what JSON they become."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

ANY_KEY = "*"
"""The key of a mapping whose keys are data."""

_PLAIN = {bool: True, bytes: b"{}", float: 1.0, int: 1, str: "text", Any: "text"}

Sample = TypeVar("Sample")


def sample(wanted: Callable[..., Sample]) -> Sample:
    """Return a value of a class, with a value in each field, and one item in each collection."""
    made: Sample = _sample(wanted)
    return made


def _sample(wanted: Any) -> Any:
    """Return a value of a type."""
    if wanted in _PLAIN:
        return _PLAIN[wanted]

    kind = get_origin(wanted)
    parts = [part for part in get_args(wanted) if part not in (NoneType, Ellipsis)]
    if kind is Literal:
        return parts[0]
    if kind in (Union, UnionType):
        return _sample(parts[0])

    if isinstance(kind, type) and issubclass(kind, Collection):
        item = _sample(parts[-1])
        return {ANY_KEY: item} if issubclass(kind, Mapping) else (item,)

    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return next(iter(wanted))

    hints = get_type_hints(wanted, vars(sys.modules[wanted.__module__]))
    if is_dataclass(wanted):
        names = [field.name for field in fields(wanted) if field.init]
    else:
        names = list(wanted._fields)

    return wanted(**{name: _sample(hints[name]) for name in names})


def members(
    value: Any, keys_are_data: Collection[str] = (), path: str = ""
) -> Iterator[str]:
    """Yield the path of every member of JSON; items of a list are `[]`, and keys that are data `*`."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from members(item, keys_are_data, f"{path}[]")
    elif isinstance(value, Mapping):
        _, _, last = path.rpartition(".")
        for name, member in value.items():
            shown = ANY_KEY if last in keys_are_data else name
            place = f"{path}.{shown}" if path else shown
            yield place
            yield from members(member, keys_are_data, place)
