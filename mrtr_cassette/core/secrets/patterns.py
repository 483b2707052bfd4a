"""Regular expressions by RE2, which takes time in proportion to the text, whatever the pattern."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import re2

_HUGE_REPETITION = re.compile(r"(?<!\\)\{\d{5,}(?:,\d*)?\}|(?<!\\)\{\d*,\d{5,}\}")
"""A repetition whose count is so large that RE2 takes it for plain text."""


@lru_cache(maxsize=512)
def compiled(pattern: str, *, is_text: bool = False) -> Any:
    """Compile a pattern by RE2.

    Args:
        pattern: the pattern.
        is_text: it speaks of characters; otherwise of bytes, which is all that ASCII needs.

    Raises:
        re2.error: RE2 refuses it.
        UnicodeEncodeError: it has a lone surrogate.
    """
    return re2.compile(pattern.encode(), quiet_options(is_text=is_text))


def quiet_options(*, is_text: bool = False) -> Any:
    """Return RE2's options: nothing is logged, and automata have room for all rules of ours."""
    options = re2.Options()
    options.log_errors = False
    if not is_text:
        options.encoding = re2.Options.Encoding.LATIN1
        options.max_mem = 64 << 20
    return options


def refusal_of(pattern: str) -> str:
    """Return why a user's pattern is no regular expression, or an empty string."""
    if _HUGE_REPETITION.search(pattern):
        return "a repetition is larger than 1000"
    try:
        compiled(pattern, is_text=True)
    except UnicodeEncodeError:
        return "it has half of a surrogate pair"
    except re2.error as error:
        return str(error.args[0].decode("utf-8", "replace"))
    return ""


def searches(pattern: str, text: str, *, is_whole: bool = False) -> bool:
    """Tell whether what a user's pattern matches is in a text, or is the whole of it."""
    regex = compiled(pattern, is_text=True)
    raw = text.encode("utf-8", "replace")
    return (regex.fullmatch(raw) if is_whole else regex.search(raw)) is not None
