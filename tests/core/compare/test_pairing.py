from __future__ import annotations

import itertools
from time import process_time

from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.compare.pairing import in_order, matches, paired

letters = st.lists(st.sampled_from("abcAB"), max_size=12)


def keys(items: list[str]) -> list[tuple[str, str]]:
    """Return letters as they are, and without their case."""
    return [(item, item.lower()) for item in items]


def test_equal_items_are_paired_before_those_that_are_alike() -> None:
    """An item that is missing in the middle takes nothing from the ones around it."""
    pairs = paired(keys(["a", "b", "c"]), keys(["a", "c"]))
    assert pairs == [(0, 0), (1, None), (2, 1)]
    assert paired(keys(["b", "A"]), keys(["a", "b", "c"])) == [
        (None, 0),
        (0, 1),
        (1, None),
        (None, 2),
    ]
    assert paired(keys(["A", "b"]), keys(["a", "c", "b"])) == [(0, 0), (None, 1), (1, 2)]
    assert paired([], keys(["a"])) == [(None, 0)]


@given(letters, letters)
def test_every_item_is_in_one_pair_and_partners_never_cross(old: list[str], new: list[str]) -> None:
    """Both sequences come back whole and in order; partners are alike."""
    pairs = paired(keys(old), keys(new))

    assert [pair.old for pair in pairs if pair.old is not None] == list(range(len(old)))
    assert [pair.new for pair in pairs if pair.new is not None] == list(range(len(new)))
    for before, after in pairs:
        if before is not None and after is not None:
            assert old[before].lower() == new[after].lower()
    assert [pair[::-1] for pair in paired(keys(old), keys(old))] == [
        (i, i) for i in range(len(old))
    ]


@given(st.permutations(list(range(9))))
def test_the_most_are_kept_in_order(order: list[int]) -> None:
    """Of a permutation, as long a rising sequence is chosen as there is."""
    chosen = in_order(matches(range(9), order))
    longest = [1] * 9
    for end in range(9):
        for start in range(end):
            if order[start] < order[end]:
                longest[end] = max(longest[end], longest[start] + 1)

    assert len(chosen) == max(longest)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(chosen))


def test_long_sequences_cost_little() -> None:
    """Sequences in opposite order don't cost the square of their length."""
    count = 20_000
    started = process_time()
    pairs = paired([(n, 0) for n in range(count)], [(n, 0) for n in reversed(range(count))])

    assert len(pairs) >= count
    assert process_time() - started < 5
