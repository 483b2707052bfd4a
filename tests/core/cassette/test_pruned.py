"""Facts about cassettes of which some interactions are taken out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from builders import cassette_of, loaded, retry, tool
from messages import NO, YES, asks, text

from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.cassette.recorded import (
    Cassette,
    numbers_needed_by_others,
    without_interactions,
)
from mrtr_cassette.core.replay.player import Player

TESTS = Path(__file__).parents[2]
FILES = sorted(
    [
        *TESTS.parent.glob("cassettes/*.json"),
        *TESTS.glob("data/frozen/v*/*.cassette.json"),
    ]
)


VARIABLE_REFERENCE = re.compile(rb'"(of|interaction)": \d+')


def interactions_of(cassette: Cassette) -> list[bytes]:
    """Return the text of each interaction in its file, but for the numbers of others."""
    text = (
        dump(cassette)
        .partition(b'"interactions": [')[2]
        .partition(b'\n  ],\n  "recording"')[0]
    )
    return VARIABLE_REFERENCE.sub(b"", text).split(b",\n    {")


@pytest.mark.parametrize(
    "path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_what_stays_is_as_it_was(path: Path) -> None:
    """Whichever is taken out, the others have the same lines, load by their digests, and play."""
    cassette = load(path.read_bytes(), str(path))
    before = interactions_of(cassette)
    for number in range(2, len(before) + 1):
        if numbers_needed_by_others(cassette, {number}):
            continue

        rest = without_interactions(cassette, {number})

        assert interactions_of(rest) == before[: number - 1] + before[number:]

        again = load(dump(rest), "pruned.json")

        assert len(Player(again).entries.by_interaction) == len(before) - 1


def test_an_interaction_that_others_need_is_named() -> None:
    """A branch needs the one that has its question."""
    call = tool("deploy")
    answers = [(retry(call, {"a": answer}), text("done")) for answer in (YES, NO)]
    cassette = loaded(cassette_of((call, asks("a")), *answers), "c.json")

    assert [interaction.branch for interaction in cassette.interactions] == [
        None,
        (1, 1),
    ]
    assert numbers_needed_by_others(cassette, {1}) == {1}
    assert (
        numbers_needed_by_others(cassette, {2})
        == numbers_needed_by_others(cassette, {1, 2})
        == set()
    )

    (kept,) = without_interactions(cassette, {2}).interactions

    assert kept.number == 1
