"""Places that differ by themselves: the file that names them, and how they are learned."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple, TypeGuard

from mrtr_cassette.core.compare.responses import response_changes
from mrtr_cassette.core.compare.values import (
    WORD_STEP,
    Change,
    changed_texts,
    changed_words,
    masks_as_places,
    without_ignored_changes,
    without_times_and_ids,
    word_places,
)
from mrtr_cassette.core.drive.script import without_turn_numbers
from mrtr_cassette.core.drive.verification import VerifiedInteraction
from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.secrets.sealed import reads_as_words
from mrtr_cassette.core.wire.pointers import without_side
from mrtr_cassette.errors import UsageError

_TABLE_NAME: Final = "ignore"
_CALLED_TWICE_ALIKE: Final = (
    "both calls of today say the same, in words: accept it if the server has changed"
)
_CALLED_ONCE: Final = (
    "it was called once, as it may change something, and the words may differ in every run: accept "
    "them if the server has changed, else write this place into the file"
)


@dataclass(frozen=True, slots=True)
class IgnoredPlaces:
    """JSON Pointers that don't count in results of the calls that match a pattern."""

    call: str
    pointers: tuple[str, ...]


def call_name(call: Call) -> str:
    """Return what names a call in the file."""
    return f"{call.method} {call.name}" if call.name else call.method


def ignored_pointers(rules: Sequence[IgnoredPlaces], call: Call) -> tuple[str, ...]:
    """Return the pointers that don't count in what a call gets."""
    names = (call.method, call.name, call_name(call))
    pointers = []
    for rule in rules:
        if any(fnmatchcase(name, rule.call) for name in names):
            for pointer in rule.pointers:
                pointers.append(without_side(pointer, "params", "result"))

    return tuple(pointers)


def read_ignored_file(text: str) -> list[IgnoredPlaces]:
    """Read the file.

    Raises:
        ValueError: it is none; the text says where and why.
    """
    tables = named_tables_in(text, _TABLE_NAME)
    return [_ignored_places_of_table(table, where) for where, table in tables]


def named_tables_in(text: str, name: str) -> list[tuple[str, Any]]:
    """Return the tables of a file that has only tables of one name, and where each is.

    Raises:
        ValueError: it has something else, or is not TOML.
    """
    tree = tomllib.loads(text)
    tables = tree.pop(name, [])
    if tree or not isinstance(tables, list):
        raise ValueError(f"it may have tables [[{name}]] only")

    named_tables = []
    for number, table in enumerate(tables, start=1):
        named_tables.append((f"[[{name}]] {number}", table))

    return named_tables


def _ignored_places_of_table(rule: Any, where: str) -> IgnoredPlaces:
    """Return the places that a table names; a `ValueError` says what is wrong with it."""
    needed_words = "`pointers`, a list of JSON Pointers, which begin with a slash"
    wrong_table = f"{where} has {needed_words}, may have `call`, a text, `masks`, and nothing else"
    if not isinstance(rule, dict) or not rule.keys() <= {"call", "pointers", "masks"}:
        raise ValueError(wrong_table)

    call = rule.get("call", "*")
    masks = rule.get("masks", [])
    pointers = rule.get("pointers")
    if "masks" in rule and "pointers" not in rule:
        pointers = []
    elif not _is_pointer_list(pointers):
        raise ValueError(wrong_table)

    if not isinstance(masks, list) or not all(isinstance(mask, str) for mask in masks):
        raise ValueError(f"{where}: `masks` is not a list of regular expressions")

    is_named = isinstance(call, str)
    if not is_named:
        raise ValueError(wrong_table)

    try:
        places = masks_as_places(masks)
    except UsageError as error:
        raise ValueError(f"{where}: {error}") from None

    return IgnoredPlaces(call, (*pointers, *places))


def _is_pointer_list(value: Any) -> TypeGuard[list[str]]:
    """Tell whether a value is a list of JSON Pointers, and not empty."""
    if not isinstance(value, list) or not value:
        return False
    return all(str(pointer).startswith("/") for pointer in value)


def ignored_file_with_places(text: str, call: str, pointers: Collection[str]) -> str:
    """Return the file with more places; what stands in it stays, comments too."""
    lines = ",\n".join(f"  {encode_basestring(pointer)}" for pointer in pointers)
    gap = ""
    if text:
        gap = "\n" if text.endswith("\n") else "\n\n"

    rule = f"[[{_TABLE_NAME}]]\ncall = {encode_basestring(call)}\npointers = [\n{lines},\n]\n"
    return f"{text}{gap}{rule}"


class LearnedPlace(NamedTuple):
    """One place that differs by itself, and why it is not left out; None where it is.

    `is_unstable`: two calls in a row differ there, and not only the recording and today's server.
    """

    pointer: str
    reason: str | None = None
    is_unstable: bool = True


def learned_places(
    first_run: VerifiedInteraction,
    second_run: VerifiedInteraction | None,
    known_places: Collection[str] = (),
) -> list[LearnedPlace]:
    """Return what differs by itself, but at `known_places`.

    That is what differs between two live runs of a conversation, if there is a second one, and what
    looks made up where the recording and the first one differ: times within one second, and what is
    the same until the server is started again, are the same in both.
    """
    places: dict[str, LearnedPlace] = {}
    if second_run is not None:
        first_pairs = first_run.findings.response_pairs
        second_pairs = second_run.findings.response_pairs
        if len(first_pairs) != len(second_pairs):
            reason = "the server asks more questions in one run than in the other"
            return [LearnedPlace("", reason)]

        for first_pair, second_pair in zip(first_pairs, second_pairs, strict=True):
            differing_places = response_changes(first_pair.live, second_pair.live)
            for change in without_ignored_changes(differing_places, known_places):
                _add_places_of_change(places, change)

    learned_pointers = [
        place.pointer for place in places.values() if place.reason is None
    ]
    reason_if_unproven = _CALLED_ONCE if second_run is None else _CALLED_TWICE_ALIKE
    for change in without_ignored_changes(
        without_turn_numbers(first_run.changes), [*known_places, *learned_pointers]
    ):
        _add_places_of_change(places, change, reason_if_unproven)

    return list(places.values())


def varying_pointers_in(
    verified: VerifiedInteraction, places: Sequence[LearnedPlace], *, is_written: bool
) -> tuple[str, ...]:
    """Return where a call differs from its recording, and will in every run.

    Two calls differ there; or, if something was written, which can't be asked twice, both values
    are times or random ids.
    """
    changes = {
        change.pointer: change for change in without_turn_numbers(verified.changes)
    }
    varying_pointers = []
    for place in places:
        change = changes.get(place.pointer.partition(WORD_STEP)[0])
        if change is None or place.reason is not None:
            continue

        if place.is_unstable or (is_written and _differs_in_times_and_ids(change)):
            varying_pointers.append(place.pointer)

    return tuple(varying_pointers)


def _differs_in_times_and_ids(change: Change) -> bool:
    """Tell whether both values of a change are the same but for times and ids."""
    if change.recorded is None or change.received is None:
        return False

    recorded = without_times_and_ids(change.recorded)
    return recorded == without_times_and_ids(change.received)


def _add_places_of_change(
    places: dict[str, LearnedPlace], change: Change, unproven: str | None = None
) -> None:
    """Add the places of a change; of one between two calls nothing is unproven."""
    if change.is_information:
        return

    reason = _why_not_left_out(change)
    if reason is None and unproven is not None and not _looks_made_up(change):
        reason = unproven

    pointers = [change.pointer]
    if reason is None:
        pointers = word_places(change)

    for pointer in pointers:
        places.setdefault(pointer, LearnedPlace(pointer, reason, unproven is None))


def _why_not_left_out(change: Change) -> str | None:
    """Return why the place of a change can't be left out; None if it can."""
    if change.verdict in ("question-changed", "rounds-changed"):
        return "a question that differs is never answered"
    if change.verdict != "text-changed":
        return "more than its value differs, which would be hidden"

    texts = changed_texts(change)
    if texts is None:
        return None

    recorded_words = texts[0].split()
    received_words = texts[1].split()
    shared_words = []
    for word in recorded_words:
        if word in received_words and any(map(str.isalnum, word)):
            shared_words.append(word)

    if shared_words and len(recorded_words) != len(received_words):
        return f"the words {' '.join(shared_words)!r} in it are the same, and would be hidden"

    return None


def _looks_made_up(change: Change) -> bool:
    """Tell whether what differs is an order, numbers, or words with digits or of no language."""
    texts = changed_texts(change)
    if texts is None:
        return (change.recorded or "") not in ("true", "false")

    recorded = texts[0].split()
    received = texts[1].split()
    places = changed_words(change) or range(min(len(recorded), len(received)))
    for place in places:
        if not (_is_made_up(recorded[place]) and _is_made_up(received[place])):
            return False

    return True


def _is_made_up(word: str) -> bool:
    """Tell whether a word has a digit or reads as no word of a language."""
    return not reads_as_words(word) or any(map(str.isdigit, word))
