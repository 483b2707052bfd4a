"""Finding raw request states in all that passes, and replacing them.

Rule: nothing is read as JSON that needn't be; whatever is replaced, all other bytes stay.
Source: docs/design.md, "Sealing".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from json.encoder import encode_basestring_ascii
from typing import NamedTuple

from mrtr_cassette.core.protocol.dialect import REQUEST_STATE
from mrtr_cassette.core.secrets.decode import (
    as_text,
    flattened,
    string_end,
    undo_json,
    without_ascii_escapes,
)
from mrtr_cassette.core.secrets.known import KnownText, KnownTexts
from mrtr_cassette.core.secrets.surrogates import sealed_hash
from mrtr_cassette.core.wire.jsonbytes import (
    Span,
    splice,
)

SHORTEST_SEARCHED = 24
"""Characters from which on a state is also replaced where it stands outside `requestState`.

A shorter one may be an ordinary word (`confirmed`), which other text has in its own right.
"""

_MEMBER = REQUEST_STATE.encode()
_ESCAPED_LETTER = re.compile(rb"\\u00(?:53|6[15]|7[1-5])")
"""An escape, which JSON doesn't need, of a letter of the member's name."""
_PLACE = re.compile(rf'(\\{{0,63}})"{REQUEST_STATE}\1"\s*:\s*\1"', re.ASCII)
_PLAIN_MEMBER = re.compile(rb'"%b"[\s\x1c-\x1f]*:[\s\x1c-\x1f]*"([^"]*+)' % _MEMBER)
"""The same in ASCII without escapes."""


class StatePlace(NamedTuple):
    """A state that stands under `requestState`.

    Attributes:
        span: where its spelling stands.
        state: the state itself.
        spell: turns what replaces it into the spelling that this place needs.
    """

    span: Span
    state: str
    spell: Callable[[str], str]


def may_have_states(raw: bytes) -> bool:
    """Tell, quickly, whether `find_states` may find something."""
    return _MEMBER in raw or _has_escaped_letter(raw)


def _has_escaped_letter(raw: bytes) -> bool:
    # A single byte is found much faster than a pattern.
    return b"\\" in raw and _ESCAPED_LETTER.search(raw) is not None


def find_states(raw: bytes) -> list[StatePlace]:
    """Return the strings under `requestState`, at any depth, and in JSON in a string too.

    Args:
        raw: JSON, also several texts, or one that is cut off; in other text whatever looks like a
            member of JSON counts.
    """
    if not may_have_states(raw):
        return []
    if b"\\" not in raw and raw.isascii():
        return [
            StatePlace(Span(*match.span(1)), match[1].decode(), _spell)
            for match in _PLAIN_MEMBER.finditer(raw)
        ]
    text = raw.decode("latin-1")
    decoded = without_ascii_escapes(text) if _has_escaped_letter(raw) else None
    if decoded is not None:
        text = decoded.text
    places = []
    for match in _PLACE.finditer(flattened(text)):
        start, backslashes = match.end(), len(match[1])
        end = string_end(text, start, backslashes)
        times = (backslashes + 1).bit_length()
        state = as_text(undo_json(text[start:end], times))
        span = Span(start, end)
        if decoded is not None:
            span = Span(decoded.source(start), decoded.source(end))
        places.append(StatePlace(span, state, partial(_spell, times=times)))
    return places


def _spell(text: str, times: int = 1) -> str:
    """Spell a text inside a JSON string, or in JSON in such a string."""
    for _ in range(times):
        text = encode_basestring_ascii(text)[1:-1]
    return text


def replaced_states(
    places: Iterable[StatePlace], new: Callable[[str], str]
) -> list[tuple[Span, bytes]]:
    """Return, for `splice`, what `new` returns for the state at each place."""
    return [(place.span, place.spell(new(place.state)).encode()) for place in places]


def seal_states(raw: bytes, new: Callable[[str], str]) -> bytes:
    """Replace each state under `requestState` by what `new` returns for it."""
    return splice(raw, replaced_states(find_states(raw), new))


class KnownState(KnownText):
    """A state that was issued or echoed."""

    def __init__(self, state: str, shown_as: str | None = None) -> None:
        """Work out what to look for.

        Args:
            state: the state.
            shown_as: the recorded state in whose place a live server issued it, and whose sealed
                hash it gets; None if it is no such state.
        """
        shown = sealed_hash(state if shown_as is None else shown_as)
        super().__init__(state, shown, is_searched=len(state) >= SHORTEST_SEARCHED)


class KnownStates(KnownTexts):
    """The last states that were issued or echoed; all that passes is searched for them."""

    def __init__(self, most: int = 256) -> None:
        """Begin without any, and remember `most` at most."""
        super().__init__(most, shortest=SHORTEST_SEARCHED)

    def remember(self, state: str, shown_as: str | None = None) -> None:
        """Search for a state from now on.

        Args:
            state: the state.
            shown_as: the recorded state in whose place a live server issued it.
        """
        if state not in self:
            self.add(KnownState(state, shown_as))
