"""What differs between two cassettes.

Rule: interactions belong together by call and occurrence, those with the same answers first. Each
is read once, so the work grows with the size of the files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from mrtr_cassette.core.compare.changes import Change, Verdict, heaviest
from mrtr_cassette.core.compare.conversations import Mark, Side, Stage, side_of, stages_of
from mrtr_cassette.core.compare.pairing import Pair, in_order, matches
from mrtr_cassette.core.compare.responses import comparable_text
from mrtr_cassette.core.exchange.recorded import Cassette


@dataclass(frozen=True, slots=True)
class InteractionComparison:
    """One interaction of two cassettes, or of one of them.

    Attributes:
        recorded: its number in the first one; None where that lacks it.
        received: its number in the second one; None where that lacks it.
        call: what was called, such as `tools/call "deploy"`.
        is_moved: it has another place among those that both have.
        stages: the request, each ask and answer, and the result.
    """

    recorded: int | None
    received: int | None
    call: str
    is_moved: bool
    stages: tuple[Stage, ...]

    @property
    def mark(self) -> Mark:
        """Which of the two have it, and whether it is the same."""
        if self.recorded is None or self.received is None:
            return "+" if self.recorded is None else "-"
        return "=" if self.verdict == "same" else "~"

    @property
    def verdict(self) -> Verdict:
        """The verdict on it."""
        changes = [change for stage in self.stages for change in stage.changes]
        verdict = heaviest(changes)
        is_whole = self.recorded is not None and self.received is not None
        return verdict if is_whole or verdict != "same" else "shape-changed"


@dataclass(frozen=True, slots=True)
class CassetteComparison:
    """Two cassettes, compared.

    Attributes:
        recorded: how messages name the first file.
        received: how messages name the second file.
        interactions: all of both, in the order of the second; what only the first has stands where
            it stood.
    """

    recorded: str
    received: str
    interactions: tuple[InteractionComparison, ...]

    @property
    def changes(self) -> list[Change]:
        """All changes, information included."""
        stages = (stage for each in self.interactions for stage in each.stages)
        return [change for stage in stages for change in stage.changes]

    @property
    def verdict(self) -> Verdict:
        """The heaviest of all verdicts."""
        return heaviest(self.changes)

    @property
    def is_same(self) -> bool:
        """Whether nothing that counts differs; the order of interactions doesn't count."""
        return all(each.mark == "=" for each in self.interactions)

    @property
    def counts(self) -> Counter[Mark]:
        """How many interactions have each mark."""
        return Counter(each.mark for each in self.interactions)


def compared(
    recorded: Cassette, received: Cassette, ignored: Collection[str] = ()
) -> CassetteComparison:
    """Compare two cassettes; at the ignored pointers, and below them, nothing counts."""
    old, new = (list(_sides_of(side)) for side in (recorded, received))
    partners = _partners(old, new)
    kept = in_order(partners)
    moved = set(partners).difference(kept)
    interactions = [
        InteractionComparison(
            None if at_old is None else old[at_old].interaction.number,
            None if at_new is None else new[at_new].interaction.number,
            str((old if at_new is None else new)[(at_old if at_new is None else at_new) or 0].call),
            (at_old, at_new) in moved,
            tuple(
                stages_of(
                    None if at_old is None else old[at_old],
                    None if at_new is None else new[at_new],
                    ignored,
                )
            ),
        )
        for at_old, at_new in _in_both(kept, partners, len(old), len(new))
    ]
    return CassetteComparison(recorded.path, received.path, tuple(interactions))


def _sides_of(cassette: Cassette) -> Iterator[Side]:
    """Read its interactions; a page is told by the one whose cursor its request has."""
    pages: dict[tuple[str, str, str | None], int] = {}
    for interaction in cassette.interactions:
        call, issued = interaction.exchanges[0].call, interaction.exchanges[-1].next_cursor
        page = pages.get((call.endpoint, call.method, call.cursor), 0)
        if issued is not None:
            pages[call.endpoint, call.method, issued] = page + 1
        yield side_of(interaction, page)


def _partners(old: Sequence[Side], new: Sequence[Side]) -> list[tuple[int, int]]:
    """Return which interactions belong together: by call and answers, then by call alone."""
    old_keys, new_keys = ([_keys_of(side) for side in sides] for sides in (old, new))
    old_left, new_left = list(range(len(old))), list(range(len(new)))
    partners: list[tuple[int, int]] = []
    for level in range(_LEVELS):
        pairs = matches(
            [old_keys[index][level] for index in old_left],
            [new_keys[index][level] for index in new_left],
        )
        partners += [(old_left[at_old], new_left[at_new]) for at_old, at_new in pairs]
        taken_old, taken_new = {at_old for at_old, _ in pairs}, {at_new for _, at_new in pairs}
        old_left = [index for at, index in enumerate(old_left) if at not in taken_old]
        new_left = [index for at, index in enumerate(new_left) if at not in taken_new]
    return sorted(partners)


_LEVELS = 3


def _keys_of(side: Side) -> tuple[object, object, object]:
    """Return what an interaction is found by, the strictest first."""
    key = side.call
    # The path of a server may be another one; other HTTP traffic is nothing but its path.
    endpoint = "" if key.method else comparable_text(key.endpoint)
    texts = comparable_text(key.name), comparable_text(key.arguments)
    call = (endpoint, key.method, *texts, side.page)
    return (key.endpoint, call, side.answers), (call, side.answers), call


def _in_both(
    kept: Sequence[tuple[int, int]],
    partners: Sequence[tuple[int, int]],
    old_count: int,
    new_count: int,
) -> Iterator[Pair]:
    """Yield all interactions of both, in the order of the second one."""
    partner_of = {new: old for old, new in partners}
    has_partner = {old for old, _ in partners}
    at_old = at_new = 0
    for old, new in [*kept, (old_count, new_count)]:
        yield from (Pair(index, None) for index in range(at_old, old) if index not in has_partner)
        yield from (Pair(partner_of.get(index), index) for index in range(at_new, new))
        if new < new_count:
            yield Pair(old, new)
        at_old, at_new = old + 1, new + 1
