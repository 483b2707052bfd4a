"""Searching large texts in pieces, so that other threads can go on meanwhile.

Owns: how much is worked on at once, and finding matches across the borders of pieces.
Does not own: what is searched for, and the pieces of JSON (`large_json`).
Rule: no call of C works on more than a piece at a time, as Python lets another thread run between
its own instructions only. What is found is what one search through the whole text finds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import AnyStr, Final

PIECE: Final = 64 * 1024
"""Characters that are worked on at once."""
LARGE: Final = 17 * PIECE
"""Characters above which a text is worked on in pieces: up to 1 MiB, and what stands around it, any
JSON is read in 20 ms."""


def matches(
    pattern: re.Pattern[AnyStr],
    text: AnyStr,
    longest: int,
    *,
    large: int = LARGE,
    piece: int = PIECE,
) -> Iterator[re.Match[AnyStr]]:
    """Return all matches of a pattern, none of which is empty, as `finditer` does.

    Args:
        pattern: what is looked for.
        text: the text.
        longest: characters that a match has at most, with what follows it and is looked at.
        large: characters up to which a text is searched in one go.
        piece: characters of a larger one in which matches are looked for at once.
    """
    if len(text) <= large:
        return pattern.finditer(text)
    return _in_pieces(pattern, text, longest, piece)


def _in_pieces(
    pattern: re.Pattern[AnyStr], text: AnyStr, longest: int, piece: int
) -> Iterator[re.Match[AnyStr]]:
    at = 0
    while at < len(text):
        border = at + piece
        for match in pattern.finditer(text, at, border + longest):
            if match.start() >= border:
                break
            yield match
            at = match.end()
        at = max(at, border)


def substituted(
    pattern: re.Pattern[str],
    new: Callable[[re.Match[str]], str] | str,
    text: str,
    longest: int,
    *,
    large: int = LARGE,
    piece: int = PIECE,
) -> str:
    """Return a text with the matches of a pattern replaced, as `sub` does."""
    if len(text) <= large:
        return pattern.sub(new, text)
    parts: list[str] = []
    at = 0
    for match in _in_pieces(pattern, text, longest, piece):
        replaced = match.expand(new) if isinstance(new, str) else new(match)
        parts += (text[at : match.start()], replaced)
        at = match.end()
    parts.append(text[at:])
    return "".join(parts)


def run_end(pattern: re.Pattern[AnyStr], text: AnyStr, at: int, piece: int = PIECE) -> int:
    """Return where the characters end that a pattern of a repeated class matches from an offset."""
    while True:
        match = pattern.match(text, at, at + piece)
        end = at if match is None else match.end()
        if end < at + piece:
            return end
        at = end
