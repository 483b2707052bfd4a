"""Numbers of JSON: read without losing anything, compared by their exact decimal value.

Source: RFC 8259, section 6; docs/matching.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mrtr_cassette.errors import NotJsonError

_NUMBER = re.compile(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?")
_PLAIN_INTEGER = re.compile(r"-?(?:[1-9]\d{0,17}|0)")
_LONGEST_PLAIN = 20
"""Numbers are written out up to this many digits in the canonical form; others get an exponent."""


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number as it was spelled; no `str`, so that nothing confuses `5` with `"5"`."""

    text: str


def read_integer(text: str) -> int | Number:
    """Read an integer: of up to 18 digits as `int`."""
    return int(text) if _PLAIN_INTEGER.fullmatch(text) else Number(text)


def read_fraction(text: str) -> Number:
    """Read a number with a fraction or an exponent.

    Raises:
        NotJsonError: the exponent has more digits than Python converts.
    """
    try:
        canonical_number(text)
    except ValueError as error:
        # What can't be compared can't be matched.
        raise NotJsonError(str(error)) from None
    return Number(text)


def canonical_number(text: str) -> str:
    """Return the canonical spelling of a JSON number: `1`, `1.0` and `1e0` give `1`.

    Raises:
        ValueError: the exponent has more digits than Python converts.
    """
    if _PLAIN_INTEGER.fullmatch(text):
        return "0" if text == "-0" else text
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(text)
    sign, whole, fraction, exponent_text = match.groups()
    fraction = fraction or ""
    digits = (whole + fraction).lstrip("0")
    exponent = int(exponent_text or 0) - len(fraction) + len(digits)
    digits = digits.rstrip("0")
    if not digits:
        return "0"
    exponent -= len(digits)
    if 0 <= exponent <= _LONGEST_PLAIN - len(digits):
        return f"{sign}{digits}{'0' * exponent}"
    if -_LONGEST_PLAIN <= exponent < 0 and len(digits) <= _LONGEST_PLAIN:
        padded = digits.rjust(1 - exponent, "0")
        return f"{sign}{padded[:exponent]}.{padded[exponent:]}"
    return f"{sign}{digits}e{exponent}"
