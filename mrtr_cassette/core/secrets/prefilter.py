"""What a text has to be searched for: a look from afar, which most texts pass by.

Owns: telling by literals, quickly, which shapes and names of secrets a text may have.
Does not own: the shapes and names (`rules`), the search (`redact`).
Law: what a search by all rules would find, a search by the plan finds too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from mrtr_cassette.core.secrets.escapes import long_words
from mrtr_cassette.core.secrets.rules import NAMES, Rule

_HINTS = (
    *("pass", "pwd", "secret", "token", "key", "auth"),
    *("cookie", "credential", "signature", "assertion", "verifier"),
)
"""Each name has one of them."""

_ESCAPED_ASCII = re.compile(
    rb"\\u00(?:2[0dDeE]|3[0-9aA]|4[0-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aAeE])"
    rb"|%(?:2[dDeE]|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aAeE])"
)
"""Escapes of characters that need none: a marker may be spelled with them."""

_GOES_ON = r"[a-z0-9]*+(?:\\*+[\"'])?(?:\s|\\++[nrt])*+(?:[:=])(?!\s*+\{)"
"""How a folded text goes on after a name that is given a value, which is no object."""

_LOWER = bytes(range(256)).lower()
_LONG = 20
"""Letters, digits, `_`, `.` and `-` that a token has at least."""


class Plan(NamedTuple):
    """What a text has to be searched for.

    Attributes:
        rules: shapes that may be in it.
        stems: parts of the folded names of secrets that are in it.
    """

    rules: tuple[Rule, ...]
    stems: tuple[str, ...]


class Planner:
    """Looks at texts from afar."""

    def __init__(
        self, rules: Sequence[Rule], custom: Sequence[Rule], keys: Collection[str]
    ) -> None:
        """Work out what to look for.

        Args:
            rules: those of the table that are on.
            custom: a user's own, which every text is searched for.
            keys: further names, folded.
        """
        self._rules, self._custom, self._keys = rules, custom, keys
        self._shapes = [
            (place, rule.markers) for place, rule in enumerate(rules) if not rule.is_prefixed
        ]
        self._tokens = [
            (place, tuple(marker.encode() for marker in rule.markers))
            for place, rule in enumerate(rules)
            if rule.is_prefixed
        ]
        every = {marker: None for _, markers in self._shapes for marker in markers}
        # A marker with a hint in it can only stand where the hint does.
        self._shape_markers = tuple(m for m in every if not any(hint in m for hint in _HINTS))
        self._hinted_markers = tuple(m for m in every if m not in self._shape_markers)
        beginnings = b"|".join(
            re.escape(marker) for _, markers in self._tokens for marker in markers
        )
        # An escape before the token, `\n` or `%20`, leaves its last characters at the word's start.
        self._begins = re.compile(
            rb"(?:[bfnrt]|u[0-9a-fA-F]{4}|[0-9a-fA-F]{2})?(?:%s)" % (beginnings or rb"(?!)")
        )
        self._begins_inside = re.compile(rb"[_.-](?:%s)" % (beginnings or rb"(?!)"))
        stems = {*NAMES, *keys}
        self._stems = {
            # What isn't ASCII may be spelled in many ways, so it is always taken to be there.
            (stem if stem.isascii() else ""): re.compile(
                stem + _GOES_ON if stem.isascii() else "", re.ASCII
            )
            for stem in stems
            if not any(other != stem and other in stem for other in stems)
        }
        self._hints = (*_HINTS, *(key if key.isascii() else "" for key in keys))

    def plan(self, raw: bytes) -> Plan | None:
        """Tell what to search for; None where there is nothing."""
        if (b"\\u00" in raw or b"%" in raw) and _ESCAPED_ASCII.search(raw):
            return Plan((*self._custom, *self._rules), tuple(self._stems))
        # A literal is found faster in text than in bytes.
        folded = raw.translate(_LOWER, b"_-").decode("latin-1")
        # Nearly every request has a progress token, which would pass for a hint.
        hinting = folded if self._keys else folded.replace("progresstoken", "")
        stems: tuple[str, ...] = ()
        active = [marker for marker in self._shape_markers if marker in folded]
        if [hint for hint in self._hints if hint in hinting]:
            active += [marker for marker in self._hinted_markers if marker in folded]
            is_plain = b"%" not in raw
            stems = tuple(
                stem
                for stem, assigned in self._stems.items()
                if stem in folded and not (is_plain and assigned.search(folded) is None)
            )
        likely = set()
        if active:
            likely = {place for place, ms in self._shapes if not set(ms).isdisjoint(active)}
        for word in long_words(raw, _LONG):
            if self._begins.match(word) or self._begins_inside.search(word):
                likely |= {place for place, ms in self._tokens if any(m in word for m in ms)}
        if not (likely or stems or self._custom):
            return None
        rules = (self._rules[place] for place in sorted(likely))
        return Plan((*self._custom, *rules), stems)
