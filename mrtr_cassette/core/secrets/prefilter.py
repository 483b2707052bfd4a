"""A quick check that rules out most texts and most rules before the search for secrets.

Owns: telling, by literals, which shapes and names of secrets a text may contain.
Does not own: the shapes and names (`rules`), the search (`text_search`).
Rule: a search by the plan finds whatever a search by all rules would find.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mrtr_cassette.core.secrets.escapes import long_words
from mrtr_cassette.core.secrets.rules import NAMES, ActiveRules, Rule

_HINTS = (
    *("pass", "pwd", "secret", "token", "key", "auth"),
    *("cookie", "credential", "signature", "assertion", "verifier"),
)
"""Each name contains one of them."""

_ESCAPED_ASCII = re.compile(
    rb"\\u00(?:2[0dDeE]|3[0-9aA]|4[0-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aAeE])"
    rb"|%(?:2[dDeE]|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aAeE])"
)
"""Escapes of characters that need none; they may spell a marker."""

_IS_ASSIGNED = r"[a-z0-9]*+(?:\\*+[\"'])?(?:\s|\\++[nrt])*+(?:[:=])(?!\s*+\{)"
"""What follows, in a folded text, a name that is given a value other than an object."""

_LOWER = bytes(range(256)).lower()
_LONG = 20
"""The least number of letters, digits, `_`, `.` and `-` of a token."""


class SearchPlan(NamedTuple):
    """What a text has to be searched for.

    Attributes:
        rules: shapes that it may contain.
        stems: parts of folded names of secrets that it contains.
    """

    rules: tuple[Rule, ...]
    stems: tuple[str, ...]


class Prefilter:
    """Tells quickly what a text may contain."""

    def __init__(self, rules: ActiveRules) -> None:
        """Prepare the literals of the rules; every text is searched for a user's own patterns."""
        self._rules, self._custom, self._keys = rules.shapes, rules.custom, rules.keys
        self._shapes = [
            (place, rule.markers) for place, rule in enumerate(rules.shapes) if not rule.is_prefixed
        ]
        self._tokens = [
            (place, tuple(marker.encode() for marker in rule.markers))
            for place, rule in enumerate(rules.shapes)
            if rule.is_prefixed
        ]
        markers = {marker: None for _, markers in self._shapes for marker in markers}
        # A marker that contains a hint can only stand where the hint does.
        self._shape_markers = tuple(m for m in markers if not any(hint in m for hint in _HINTS))
        self._hinted_markers = tuple(m for m in markers if m not in self._shape_markers)
        beginnings = b"|".join(
            re.escape(marker) for _, markers in self._tokens for marker in markers
        )
        # Of an escape before the token, `\n` or `%20`, the last characters begin the word.
        self._begins = re.compile(
            rb"(?:[bfnrt]|u[0-9a-fA-F]{4}|[0-9a-fA-F]{2})?(?:%s)" % (beginnings or rb"(?!)")
        )
        self._begins_inside = re.compile(rb"[_.-](?:%s)" % (beginnings or rb"(?!)"))
        stems = {*NAMES, *self._keys}
        self._stems = {
            # Other text than ASCII has many spellings, so every text is taken to contain it.
            (stem if stem.isascii() else ""): re.compile(
                stem + _IS_ASSIGNED if stem.isascii() else "", re.ASCII
            )
            for stem in stems
            if not any(other != stem and other in stem for other in stems)
        }
        self._hints = (*_HINTS, *(key if key.isascii() else "" for key in self._keys))

    def plan(self, raw: bytes) -> SearchPlan | None:
        """Return what to search for; None for a text without any secret."""
        if (b"\\u00" in raw or b"%" in raw) and _ESCAPED_ASCII.search(raw):
            return SearchPlan((*self._custom, *self._rules), tuple(self._stems))
        # A search for a literal is faster in text than in bytes.
        folded = raw.translate(_LOWER, b"_-").decode("latin-1")
        # Nearly every request has a progress token, which contains a hint.
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
        return SearchPlan((*self._custom, *rules), stems)
