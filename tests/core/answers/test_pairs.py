"""Facts about what is written as a name and a text, or a name and JSON."""

from __future__ import annotations

import pytest

from mrtr_cassette.core.answers.pairs import WrittenPair, read_pairs
from mrtr_cassette.errors import UsageError


def test_text_and_json_are_told_apart() -> None:
    """What follows `=` is a text, read as its schema has it; what follows `:=` is JSON."""
    pairs = read_pairs(["a=1=2", "b:=[1]", "c=5"], "answer")
    assert pairs == (
        WrittenPair("a", "1=2", False),
        WrittenPair("b", [1], True),
        WrittenPair("c", "5", False),
    )
    assert [pair.read_as({"type": "integer"}) for pair in pairs] == ["1=2", [1], 5]


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (["confirm"], "answer: 'confirm' has no name and value; write name=text or name:=json"),
        (["=1"], "answer: an empty text has no name and value"),
        (["a=1", "a=2"], "answer 'a' is given twice"),
        (["a:=yes"], "answer 'a': what follows := is no JSON; a text is written a=text"),
    ],
)
def test_what_is_no_pair_is_refused(texts: list[str], reason: str) -> None:
    """The message names the pair and never its value."""
    with pytest.raises(UsageError) as caught:
        read_pairs(texts, "answer")
    assert reason in str(caught.value)
