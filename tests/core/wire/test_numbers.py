from __future__ import annotations

import pytest

from mrtr_cassette.core.wire.jsonbytes import Number, canonical_number, read_fraction, read_integer
from mrtr_cassette.errors import NotJsonError


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("7", "7"),
        ("-7", "-7"),
        ("0", "0"),
        ("-0", "0"),
        ("0.0e99", "0"),
        ("1e2", "100"),
        ("-1.50", "-1.5"),
        ("1e19", "1" + "0" * 19),
        ("1e20", "1e20"),
        ("123456789012345678901", "123456789012345678901e0"),
        ("1e400", "1e400"),
        ("1e-400", "1e-400"),
        ("0.001", "0.001"),
        ("1E-3", "0.001"),
        ("12.5e1", "125"),
        ("1e-20", "0." + "0" * 19 + "1"),
        ("1e-21", "1e-21"),
        ("0.123456789012345678901", "123456789012345678901e-21"),
    ],
)
def test_canonical_number_is_exact(text: str, spelled: str) -> None:
    """A number is written by its exact decimal value, whatever its size."""
    assert canonical_number(text) == spelled


def test_canonical_number_of_something_else_is_refused() -> None:
    """A text that is no number has no canonical spelling."""
    with pytest.raises(ValueError, match="one"):
        canonical_number("one")


def test_numbers_that_fit_are_read_as_they_are() -> None:
    """An integer of up to 18 digits is one; all other numbers keep their spelling."""
    assert [read_integer("-7"), read_integer("9" * 18)] == [-7, int("9" * 18)]
    assert read_integer("9" * 19) == Number("9" * 19)
    assert read_fraction("1.50") == Number("1.50")
    with pytest.raises(NotJsonError):
        read_fraction("1e" + "9" * 5_000)
