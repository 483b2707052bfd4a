"""What stands for a secret: `<rule:TOKEN>`, and in a cassette `<rule:1>`.

For a number of JSON it is `<rule-number:1>`, as a number and a text are not the same question.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import AnyStr, Final, overload

from mrtr_cassette.core.secrets.rules import RULE_NAMES

_NUMBER: Final = "-number"
_NAME = "|".join((*sorted(map(re.escape, RULE_NAMES), key=len, reverse=True), r"custom-\d+"))
_RULE = rf"(?:{_NAME})(?:{_NUMBER})?"
LONGEST_TOKEN: Final = 200
_PLACED = rf"[A-Za-z0-9_.-]{{1,{LONGEST_TOKEN}}}"
_BEGINNINGS = {"<": "<", "%3": "%3[Cc]", "u003": r"\\{1,8}u003[cC]"}
"""How a placeholder begins, by what a text has that has one which begins so.

Clients that echo one may escape it: Go and .NET write `\\u003c` for `<` in JSON.
"""
_REST = rf"(?P<rule>{_RULE})(?::|%3[Aa])(?P<token>{_PLACED})(?:>|%3[Ee]|\\{{1,8}}u003[eE])"
PLACEHOLDER: Final = re.compile(f"(?:{'|'.join(_BEGINNINGS.values())}){_REST}", re.ASCII)
_BY_MARK = {
    mark: re.compile(f"{beginning}{_REST}", re.ASCII) for mark, beginning in _BEGINNINGS.items()
}
"""The same for each beginning, which is found much faster by itself."""
_WITHOUT_NUMBER = re.compile(rf"<(?:{_NAME})({_NUMBER})?>", re.ASCII)
_WHOLE_PLACED = re.compile(_PLACED)


def rule_of_number(rule: str) -> str:
    """Return what a rule is called where it finds a number of JSON."""
    return f"{rule}{_NUMBER}"


def placeholder(rule: str, token: str) -> str:
    """Return what stands for a secret.

    Raises:
        ValueError: the token is no 1 to 200 letters, digits, `_`, `-` and `.`.
    """
    if not _WHOLE_PLACED.fullmatch(token):
        raise ValueError(f"{token!r} can't stand in a placeholder")
    return f"<{rule}:{token}>"


@overload
def renumber(raw: bytes, number: Callable[[str, str], int | str | None]) -> bytes: ...
@overload
def renumber(raw: str, number: Callable[[str, str], int | str | None]) -> str: ...
def renumber(raw: bytes | str, number: Callable[[str, str], int | str | None]) -> bytes | str:
    """Put numbers in the place of the tokens of placeholders: `<rule:TOKEN>` to `<rule:1>`.

    Args:
        raw: any bytes or text; what has the form of a placeholder but not the name of a rule stays.
        number: returns the number, or another token, for a rule and a token, or None for text that
            only looks like a placeholder and stays; it is asked from left to right.
    """
    if isinstance(raw, bytes):
        return renumber(raw.decode("latin-1"), number).encode("latin-1")
    if not any(mark in raw for mark in _BEGINNINGS):
        return raw

    def numbered(match: re.Match[str]) -> str:
        first, last = match.start("token"), match.end("token")
        new = number(match["rule"], match["token"])
        if new is None:
            return match[0]
        return f"{raw[match.start() : first]}{new}{raw[last : match.end()]}"

    return PLACEHOLDER.sub(numbered, raw)


def placeholders_in(text: str) -> Iterator[re.Match[str]]:
    """Yield the placeholders in a text."""
    return PLACEHOLDER.finditer(text)


def without_rules(text: str) -> str:
    """Return a text without numbers in which a placeholder doesn't tell its rule either.

    It still tells whether it stands for a number.
    """
    return _WITHOUT_NUMBER.sub(r"<\1>", text)


def without_numbers(text: AnyStr) -> AnyStr:
    """Return a text in which a placeholder tells the rule, but not which of its secrets it is."""
    if isinstance(text, bytes):
        # Placeholders are ASCII; whatever else the bytes are, Latin-1 gives them back.
        return without_numbers(text.decode("latin-1")).encode("latin-1")
    for mark, pattern in _BY_MARK.items():
        if mark in text:
            text = pattern.sub(r"<\g<rule>>", text)
    return text
