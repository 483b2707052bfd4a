from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.wire.pieces import LARGE, PIECE, matches, run_end, substituted

TEXTS = st.text("ab<>1 ")
PATTERNS = [
    re.compile(each) for each in (r"<[ab1]{1,4}>", r"(?<!a)b{1,3}", r"a|ab", "1{2,3}+(?=<)")
]
LONGEST = 6
PIECES = st.integers(1, 9)


@pytest.mark.parametrize("pattern", PATTERNS)
@given(text=TEXTS, piece=PIECES)
def test_matches_are_those_of_the_whole_text(
    pattern: re.Pattern[str], text: str, piece: int
) -> None:
    """Wherever pieces end, each match is found once, and with what stands around it."""
    found = matches(pattern, text, LONGEST, large=0, piece=piece)
    assert [match.span() for match in found] == [each.span() for each in pattern.finditer(text)]
    for new in (r"[\g<0>]", lambda match: f"{match[0]}{match[0]}"):
        replaced = substituted(pattern, new, text, LONGEST, large=0, piece=piece)
        assert replaced == pattern.sub(new, text) == substituted(pattern, new, text, LONGEST)


@given(TEXTS, PIECES)
def test_a_run_ends_where_it_ends_in_one_go(text: str, piece: int) -> None:
    """A run of characters of a class goes on behind a piece."""
    run = re.compile("[ab]*+")
    for at in range(len(text)):
        match = run.match(text, at)
        assert match is not None
        assert run_end(run, text, at, piece) == match.end()


def test_no_search_looks_at_more_than_a_piece() -> None:
    """What is looked at is as long as the text and the borders of its pieces."""
    looked_at = []

    class Pattern:
        def finditer(self, text: str, at: int, end: int) -> list[re.Match[str]]:
            looked_at.append(min(end, len(text)) - at)
            return []

    list(matches(Pattern(), "a" * (LARGE + 1), 10))  # type: ignore[arg-type]
    assert max(looked_at) == PIECE + 10
    assert sum(looked_at) <= LARGE + 1 + 10 * len(looked_at)
