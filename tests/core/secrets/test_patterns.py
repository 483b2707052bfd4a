"""Facts about regular expressions by RE2."""

from __future__ import annotations

import pytest

from mrtr_cassette.core.secrets.shapes import refusal_of, searches


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("a+", ""),
        ("(", "missing ): ("),
        ("a{100000}", "a repetition is larger than 1000"),
        ("(?=a)", "invalid perl operator: (?="),
        ("\ud800", "it has half of a surrogate pair"),
    ],
)
def test_pattern_is_taken_or_refused_with_the_reason(pattern: str, reason: str) -> None:
    """RE2's own words say what it refuses."""
    assert refusal_of(pattern) == reason


def test_pattern_is_searched_or_the_whole_text() -> None:
    """Characters count, and not bytes."""
    assert searches("b.d", "abcde")
    assert not searches("b.d", "abcde", is_whole=True)
    assert searches("gr.n", "grün", is_whole=True)
