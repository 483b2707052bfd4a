"""Places that differ by themselves: the file that names them, and how they are learned."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple

from mrtr_cassette.core.compare.conversations import response_changes
from mrtr_cassette.core.compare.values import ORDER, Change, without_ignored
from mrtr_cassette.core.drive.verification import VerifiedInteraction
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.wire.jsonbytes import parse

_TABLE: Final = "ignore"


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
    rules = tree.pop(_TABLE, [])
    if tree or not isinstance(rules, list):
        raise ValueError(f"it may have tables [[{_TABLE}]] only")
    return [_read_rule(rule, f"[[{_TABLE}]] {number}") for number, rule in enumerate(rules, 1)]


def _read_rule(rule: Any, where: str) -> IgnoredPlaces:
    call, pointers = "*", None
    if isinstance(rule, dict) and rule.keys() <= {"call", "pointers"}:
        call, pointers = rule.get("call", call), rule.get("pointers")
    are_pointers = isinstance(pointers, list) and all(str(each)[:1] == "/" for each in pointers)
    if not (pointers and are_pointers and isinstance(call, str)):
        needed = "`pointers`, a list of JSON Pointers, which begin with a slash"
        raise ValueError(f"{where} has {needed}, may have `call`, a text, and nothing else")
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
    if len(first.pairs) != len(second.pairs):
        return [Learned("", "the server asks more questions in one run than in the other")]
    pairs = [(one.live, other.live) for one, other in zip(first.pairs, second.pairs, strict=True)]
    changes = [change for pair in pairs for change in response_changes(*pair)]
    places: dict[str, Learned] = {}
    for change in without_ignored(changes, known):
        if not change.is_information:
            places.setdefault(change.pointer, Learned(change.pointer, _why_not(change)))
    return list(places.values())


def _why_not(change: Change) -> str | None:
    if change.verdict in ("question-changed", "rounds-changed"):
        return "a question that differs is never answered"
    if change.verdict != "text-changed":
        return "not only its value differs, and what it is would be hidden"
    before, after = (parse((it or "").encode()) for it in (change.recorded, change.received))
    if change.pointer.endswith(ORDER) or not isinstance(before, str):
        return None
    words, others = before.split(), after.split()
    stable = [word for word in words if word in others and any(map(str.isalnum, word))]
    # A single word is a value as a whole.
    if stable and not len(words) == len(others) == 1:
        return f"the words {' '.join(stable)!r} in it are the same, and would be hidden"
    return None
