"""Changes that people read as one: of all items of a list, of a name, or said again in a text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mrtr_cassette.core.compare.values import (
    TEXT_STEP,
    Change,
    common_pointer,
    is_below,
    without_indices,
)
from mrtr_cassette.core.wire.pointers import ANY, pointer_path

_STRUCTURED: Final = "/structuredContent"
_TEXTS: Final = f"/content/{ANY}/text"


@dataclass(frozen=True, slots=True)
class Fold:
    """Changes with one verdict that are told as one.

    Attributes:
        pointer: their place, in which `*` stands for indices that differ.
        changes: in order, one for each index.
        renamed_to: the new member that has the values of the one that is missing; or empty.
        repeated_at: where a text of the result says the same again; or empty.
    """

    pointer: str
    changes: tuple[Change, ...]
    renamed_to: str = ""
    repeated_at: str = ""

    @property
    def first(self) -> Change:
        """The first of its changes."""
        return self.changes[0]

    @property
    def is_uniform(self) -> bool:
        """Whether all of its changes have the same values."""
        return len({(change.recorded, change.received) for change in self.changes}) == 1


def folded(changes: Iterable[Change]) -> list[Fold]:
    """Return changes of one response in their order, with those as one that people read as one."""
    groups: dict[object, list[Change]] = {}
    for change in changes:
        place = without_indices(change.pointer) if change.places > 1 else change.pointer
        kind = change.recorded is None, change.received is None
        key = (place, change.verdict, change.is_information, kind)
        groups.setdefault(key, []).append(change)
    folds = [
        Fold(common_pointer([change.pointer for change in group]), tuple(group))
        for group in groups.values()
    ]
    return _without_repetitions(_with_renames(folds))


def _with_renames(folds: Sequence[Fold]) -> list[Fold]:
    kept: list[Fold] = []
    added = [fold for fold in folds if fold.first.recorded is None]
    for fold in folds:
        new = next((each for each in added if _is_renamed(fold, each)), None)
        if new is not None:
            added.remove(new)
        name = "" if new is None else pointer_path(new.pointer)[-1]
        kept.append(replace(fold, renamed_to=name))
    return [fold for fold in kept if fold.first.recorded is not None or fold in added]


def _is_renamed(gone: Fold, new: Fold) -> bool:
    """Tell whether a member that is new has everywhere the value of one that is missing there."""
    if gone.first.received is not None or gone.pointer[-1:].isdigit():
        return False
    old = [(change.pointer.rpartition("/")[0], change.recorded) for change in gone.changes]
    now = [(change.pointer.rpartition("/")[0], change.received) for change in new.changes]
    return old == now


def _without_repetitions(folds: Sequence[Fold]) -> list[Fold]:
    """Leave out the changes of texts that repeat the structured content, as those of tools do."""
    texts = [fold for fold in folds if is_below(fold.pointer, _TEXTS)]
    kept: list[Fold] = []
    for fold in folds:
        same = next((text for text in texts if _repeats(text, fold)), None)
        if same is not None:
            texts.remove(same)
        kept.append(replace(fold, repeated_at="" if same is None else same.pointer))
    return [fold for fold in kept if fold in texts or not is_below(fold.pointer, _TEXTS)]


def _repeats(text: Fold, whole: Fold) -> bool:
    if not is_below(whole.pointer, _STRUCTURED):
        return False
    _, is_json, within = text.pointer.partition(TEXT_STEP)
    if not is_json:
        said = [[*map(_as_text, change[2:4])] for change in text.changes]
        return said == [[*map(_as_text, change[2:4])] for change in whole.changes]
    is_same_place = whole.pointer.endswith(within) and text.renamed_to == whole.renamed_to
    same = [change[2:4] for change in whole.changes]
    return is_same_place and [change[2:4] for change in text.changes] == same


def _as_text(value: str | None) -> str | None:
    return json.loads(value) if value is not None and value.startswith('"') else value
