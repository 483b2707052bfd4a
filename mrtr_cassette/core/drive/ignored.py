"""What is left out when a live server is compared with a recording: places, by call.

Rule: a file that can't be read as one is an error; nothing is ignored by mistake.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from json.encoder import encode_basestring
from typing import Any, Final

from mrtr_cassette.core.protocol.calls import Call

_TABLE: Final = "ignore"
_MEMBERS: Final = frozenset({"call", "pointers"})


@dataclass(frozen=True, slots=True)
class IgnoredPlaces:
    """Places that don't count in what some calls get.

    Attributes:
        call: a pattern of the method, the name, or both; `*` stands for every call.
        pointers: JSON Pointers into the result.
    """

    call: str
    pointers: tuple[str, ...]

    def concerns(self, call: Call) -> bool:
        """Tell whether these places are places in what a call gets."""
        names = (call.method, call.name, call_name(call))
        return any(fnmatchcase(name, self.call) for name in names)


def call_name(call: Call) -> str:
    """Return what names a call in the file."""
    return f"{call.method} {call.name}" if call.name else call.method


def ignored_in(rules: Sequence[IgnoredPlaces], call: Call) -> tuple[str, ...]:
    """Return the pointers that don't count in what a call gets."""
    return tuple(pointer for rule in rules if rule.concerns(call) for pointer in rule.pointers)


def read_ignored(text: str) -> list[IgnoredPlaces]:
    """Read the file.

    Raises:
        ValueError: it is none; the text says where and why.
    """
    tree = tomllib.loads(text)
    unknown = [name for name in tree if name != _TABLE]
    if unknown:
        raise ValueError(f"it has {unknown[0]!r}, and may have [[{_TABLE}]] only")
    rules = tree.get(_TABLE, [])
    if not isinstance(rules, list):
        raise ValueError(f"{_TABLE!r} is one table; write [[{_TABLE}]]")  # noqa: TRY004
    return [_read_rule(rule, number) for number, rule in enumerate(rules, start=1)]


def _read_rule(rule: Any, number: int) -> IgnoredPlaces:
    where = f"[[{_TABLE}]] {number}"
    unknown = [name for name in rule if name not in _MEMBERS] if isinstance(rule, dict) else ["?"]
    if unknown:
        raise ValueError(f"{where} has {unknown[0]!r}, and may have call and pointers only")
    call, pointers = rule.get("call", "*"), rule.get("pointers")
    if not isinstance(call, str):
        raise ValueError(f"{where}: call is no text")  # noqa: TRY004
    if not isinstance(pointers, list) or not pointers:
        raise ValueError(f"{where}: pointers is no list of JSON Pointers")
    for pointer in pointers:
        if not isinstance(pointer, str) or not pointer.startswith("/"):
            raise ValueError(f"{where}: {pointer!r} is no JSON Pointer, which begins with a slash")
    return IgnoredPlaces(call, tuple(pointers))


def write_ignored(text: str, call: str, pointers: Collection[str]) -> str:
    """Return the file with more places; what stands in it stays, comments too."""
    lines = ",\n".join(f"  {encode_basestring(pointer)}" for pointer in pointers)
    gap = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    rule = f"[[{_TABLE}]]\ncall = {encode_basestring(call)}\npointers = [\n{lines},\n]\n"
    return f"{text}{gap}{rule}"
