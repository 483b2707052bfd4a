"""Places that don't count when a live server is compared with a recording, by call.

They are written by users, or learned from two live responses to the same call. A learned pointer is
exact, and hides nothing that was the same in both.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.compare.responses import response_changes
from mrtr_cassette.core.compare.values import ORDER, Change, is_below
from mrtr_cassette.core.drive.verification import VerifiedInteraction
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.wire.jsonbytes import parse

_TABLE: Final = "ignore"
_MEMBERS: Final = frozenset({"call", "pointers"})


@dataclass(frozen=True, slots=True)
class IgnoredPlaces:
    """JSON Pointers that don't count in results of the calls that match a pattern."""

    call: str
    pointers: tuple[str, ...]


def call_name(call: Call) -> str:
    """Return what names a call in the file."""
    return f"{call.method} {call.name}" if call.name else call.method


def ignored_in(rules: Sequence[IgnoredPlaces], call: Call) -> tuple[str, ...]:
    """Return the pointers that don't count in what a call gets."""
    names = (call.method, call.name, call_name(call))
    matching = [rule for rule in rules if any(fnmatchcase(name, rule.call) for name in names)]
    return tuple(pointer for rule in matching for pointer in rule.pointers)


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
    return [_read_rule(rule, f"[[{_TABLE}]] {number}") for number, rule in enumerate(rules, 1)]


def _read_rule(rule: Any, where: str) -> IgnoredPlaces:
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


class Learned(NamedTuple):
    """One place that differs by itself, and why it is not left out; None where it is."""

    pointer: str
    reason: str | None = None


def learned(
    first: VerifiedInteraction, second: VerifiedInteraction, known: Collection[str] = ()
) -> list[Learned]:
    """Return what differs between two live runs of the same conversation, but at `known`."""
    if len(first.live) != len(second.live):
        return [Learned("", "the server asks more questions in one run than in the other")]
    pairs = zip(first.live, second.live, strict=True)
    places: dict[str, Learned] = {}
    for change in (change for pair in pairs for change in response_changes(*pair)):
        pointer = change.pointer
        if not (change.is_information or any(is_below(pointer, outer) for outer in known)):
            places.setdefault(pointer, Learned(pointer, _why_not(change)))
    return list(places.values())


def _why_not(change: Change) -> str | None:
    """Return what leaving a place out would also hide, or None."""
    if change.verdict in ("question-changed", "rounds-changed"):
        return "a question that differs is never answered"
    if change.recorded is None or change.received is None:
        return "it is there in one of two responses, and what it is would be hidden"
    if change.verdict != "text-changed":
        return "not only its value differs"
    before, after = (parse(text.encode()) for text in (change.recorded, change.received))
    if change.pointer.endswith(ORDER) or not isinstance(before, str):
        return None
    words, others = before.split(), after.split()
    stable = [word for word in words if word in others and any(map(str.isalnum, word))]
    # A single word is a value as a whole.
    if stable and not len(words) == len(others) == 1:
        return f"the words {' '.join(stable)!r} in it are the same, and would be hidden"
    return None
