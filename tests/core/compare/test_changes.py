from __future__ import annotations

from typing import get_args

import pytest

from mrtr_cassette.core.compare.changes import (
    VERDICTS,
    Change,
    Verdict,
    check_pointers,
    heaviest,
    is_below,
    without_ignored,
)
from mrtr_cassette.errors import UsageError


def test_every_verdict_has_a_weight() -> None:
    """The order of verdicts names each of them once."""
    assert get_args(Verdict) == VERDICTS


def test_the_heaviest_change_decides() -> None:
    """What is information doesn't count, and without changes all is the same."""
    text, shape = (Change(kind, "/a", "1", "2") for kind in VERDICTS[3:5])
    added = Change("surface-changed", "/tools/1", None, "{}", is_information=True)

    assert heaviest([]) == heaviest([added]) == "same"
    assert heaviest([shape, text, added]) == "shape-changed"
    assert heaviest([text, Change("question-changed", "", "1", "2"), shape]) == "question-changed"


@pytest.mark.parametrize(
    ("pointer", "outer", "is_hidden"),
    [
        ("/a", "/a", True),
        ("/a/b", "/a", True),
        ("/a/b", "", True),
        ("/ab", "/a", False),
        ("/a", "/a/b", False),
        ("/content/0/text#json/total", "/content/0/text", True),
        ("/content/0/text#json/total", "/content/0/text#json", True),
        ("/content/0/text#json/total", "/content/0/text#json/to", False),
        ("/content/0/text#jsonl", "/content/0/text", False),
        ("/#headers/vary", "/#headers", True),
    ],
)
def test_a_pointer_hides_what_is_below_it(pointer: str, outer: str, *, is_hidden: bool) -> None:
    """A place is below another one if all of that one's steps lead to it."""
    assert is_below(pointer, outer) is is_hidden
    change = Change("text-changed", pointer, "1", "2")
    assert without_ignored([change], [outer]) == ([] if is_hidden else [change])
    assert without_ignored([change], ["/other", outer]) == ([] if is_hidden else [change])


def test_what_is_no_pointer_is_refused() -> None:
    """A pointer begins with a slash; the error names it."""
    check_pointers(["/a", "/#headers/vary"])
    for wrong in ("a", ""):
        with pytest.raises(UsageError, match=f"ignore '{wrong}' is no JSON Pointer"):
            check_pointers(["/a", wrong])


def test_a_change_is_a_difference_with_a_verdict() -> None:
    """Without its verdict a change is a difference as other reports have it."""
    assert Change("text-changed", "/a", "1", None).difference == ("/a", "1", None)
