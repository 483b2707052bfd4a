"""Which secrets are known: by their shapes, by their names, and by what a user changes about both.

Owns: the checks of a user's own rules, and telling which rules a text needs.
Does not own: the shapes (`shapes`), the names (`names`), where a text contains them (`text_search`,
`json_search`).
Rule: a secret is known by its own shape or by the name that it stands under, never because it looks
random: hashes, cursors and nonces are what requests are told apart by.
Source: the providers' own descriptions of their tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

import re2

from mrtr_cassette.core.protocol.dialect import INPUT_REQUESTS, REQUEST_STATE
from mrtr_cassette.core.secrets import blobs
from mrtr_cassette.core.secrets.names import (
    AMBIGUOUS,
    ENDING_MARKER,
    MARKER,
    NAMES,
    AmbiguousName,
    builtin_rule_of,
    by_ending,
    fold,
)
from mrtr_cassette.core.secrets.patterns import quiet_options, refusal_of, searches
from mrtr_cassette.core.secrets.shapes import (
    RULES,
    Rule,
    custom_rule,
)
from mrtr_cassette.errors import shorten

CREDENTIALS: Final = "url-password"
"""The rule of what stands before a URL's host."""
CREDENTIALS_MARKER: Final = r"(?::|%3a)(?:\\*/|%2f){2}[^\s\"'<>]*(?:@|%40)"
"""Matches in a folded text where something may stand there."""
CUSTOM_KEY: Final = "custom-key"
"""The rule of the names that a user added."""

_NAME, _ESCAPE, _BLOB, _CREDENTIALS, _READ = -1, -2, -3, -4, -5
"""What a marker stands for that is none of a shape; the last is of no secret."""
_IS_READ = rf"{REQUEST_STATE}|{INPUT_REQUESTS}|\\u"
"""The name of a state or of what is asked, or an escape in which one may be spelled."""
_ESCAPED = r"\\u00[2-7]|%(?:2[5dDeE]|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aAeE])"
"""An escape of what may be part of a marker or of a name, or of a quote in JSON."""
_IS_ASSIGNED = (
    r"[a-z0-9]*(?:(?:\\*[\"'])?(?:\s|\\+[nrt]|\+)*[:=]\s*(?:[^\s{]|$|\{[^{}]*value\\*[\"'])"
    r"|\\*[\"'](?:\s|\\+[nrt])*[,}]|\\*[\"']?(?:\s|\\+[nrt])+value|%)"
)
"""What follows, in a folded text, a name that is given a value: a plain one, or one in an object
that calls it `value`. The name may be a value itself, of an object that has the other beside it.
"""
_TOKEN = re.compile(r"(\(\?:|[()|*+?$]|\{[0-9,]+\})|\^|\\.|\[\^?(?:\\.|[^\]\\])*\]|.")
"""In a regular expression what stands for a character, and in group 1 what doesn't."""
_LONGEST_NAME = 64
"""Characters of a name that is remembered."""
RULE_NAMES: Final = {rule.name for rule in RULES} | set(NAMES.values()) | {CREDENTIALS, CUSTOM_KEY}


@dataclass(frozen=True)
class RedactionRules:
    """What a user changes about redaction.

    Attributes:
        patterns: further regular expressions in RE2's syntax; group 1, where there is one, is the
            secret. The nth is the rule `custom-n`. They see the text of one JSON string at a time.
        keys: further member names whose values are secrets.
        disabled: rules, or member names, that are switched off.

    Raises:
        ValueError: RE2 refuses a pattern, or it matches the empty text, a key has no letter, or
            something disabled doesn't exist.
    """

    patterns: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the rules."""
        for pattern in self.patterns:
            reason = _why_refused(pattern)
            if reason:
                raise ValueError(f"redaction pattern {shorten(repr(pattern))} {reason}")
        for key in self.keys:
            if not fold(key):
                raise ValueError(f"redaction key {key!r} names no member")
        for name in self.disabled:
            if name not in RULE_NAMES and not _is_builtin(fold(name)):
                raise ValueError(
                    f"redaction rule {shorten(repr(name))} does not exist; the rules are "
                    f"{', '.join(sorted(RULE_NAMES - {CUSTOM_KEY}))}"
                )


BUILT_IN: Final = RedactionRules()
"""The rules that nobody has changed."""


def _why_refused(pattern: str) -> str:
    """Return what is wrong with a user's pattern, or an empty string."""
    reason = refusal_of(pattern)
    if reason.startswith("invalid perl operator"):
        reason += ", as nothing can be looked at without being matched (a group is the secret)"
    if reason:
        return f"is no regular expression: {reason}"
    return "matches the empty text" if searches(pattern, "") else ""


def _is_builtin(folded: str) -> bool:
    return folded in AMBIGUOUS or bool(builtin_rule_of(folded))


class Name(NamedTuple):
    """What the name of a value tells.

    Attributes:
        folded: the name, folded.
        rule: the rule that makes the value a secret, whatever it is, or an empty string.
        ambiguous: what the value has to be if it is a secret, or None.
    """

    folded: str
    rule: str
    ambiguous: AmbiguousName | None

    @property
    def tells_nothing(self) -> bool:
        """Whether a value under the name is like any other."""
        return not self.rule and self.ambiguous is None


NO_NAME: Final = Name("", "", None)


class SearchPlan(NamedTuple):
    """What a text may contain.

    Attributes:
        rules: shapes.
        has_names: something may stand under the name of a secret.
    """

    rules: tuple[Rule, ...]
    has_names: bool


class ActiveRules:
    """The rules of one recording: the table without what is disabled, and the user's own.

    Attributes:
        shapes: rows of the table.
        custom: the user's patterns.
        keys: the user's member names, folded.
        disabled: names of the rules that are switched off.
    """

    def __init__(self, rules: RedactionRules) -> None:
        """Apply what a user changes to the table."""
        self.disabled = set(rules.disabled) & RULE_NAMES
        self.shapes = tuple(rule for rule in RULES if rule.name not in self.disabled)
        self.custom = tuple(
            custom_rule(number, pattern) for number, pattern in enumerate(rules.patterns, start=1)
        )
        self.keys = {fold(key) for key in rules.keys}
        # Other text than ASCII has many spellings.
        self._has_ascii_keys = all(key.isascii() for key in self.keys)
        self._disabled_names = {fold(name) for name in rules.disabled if name not in RULE_NAMES}
        self._known_name = lru_cache(maxsize=1024)(self._name)

    def may_match(self, raw: bytes) -> bool:
        """Tell whether there may be a secret in a body, in whatever layer of it."""
        if self.custom or not self._has_ascii_keys:
            return True
        return any(row != _READ for row in self._markers(raw))

    def is_plain(self, raw: bytes) -> bool:
        """Tell whether a body has no secret, no state and no ask, in whatever layer of it."""
        is_known = not self.custom and self._has_ascii_keys
        return is_known and not self._markers(raw)

    def plan(self, raw: bytes) -> SearchPlan:
        """Return what a text with its escapes undone may contain."""
        marked = self._markers(raw)
        likely = (self.shapes[row] for row in sorted(marked) if row >= 0)
        has_names = _NAME in marked or not self._has_ascii_keys
        return SearchPlan((*self.custom, *likely), has_names)

    @cached_property
    def _markers(self) -> _Markers:
        """The markers of shapes and of names, which are looked for in one walk."""
        names = {*NAMES, *filter(str.isascii, self.keys)}
        stems = [name for name in names if not any(n != name and n in name for n in names)]
        named = "|".join(sorted(re2.escape(stem) for stem in stems))
        folded = [(f"(?:{named}){_IS_ASSIGNED}", _NAME), (MARKER, _NAME)]
        if CREDENTIALS not in self.disabled:
            folded.append((CREDENTIALS_MARKER, _CREDENTIALS))
        markers = [(_ESCAPED, _ESCAPE), (blobs.MARKER, _BLOB), (_IS_READ, _READ)]
        markers.append((blobs.QUERY_MARKER, _BLOB))
        markers.append((ENDING_MARKER, _NAME))
        for row, rule in enumerate(self.shapes):
            (folded if rule.is_folded else markers).extend((each, row) for each in rule.markers)
        return _Markers([*markers, *((_in_any_spelling(each), row) for each, row in folded)])

    def name(self, name: str) -> Name:
        """Return what a name tells about its value."""
        # Most names come again; a long one is none.
        return self._known_name(name) if len(name) <= _LONGEST_NAME else self._name(name)

    def _name(self, name: str) -> Name:
        folded = fold(name)
        if folded in self.keys:
            return Name(folded, CUSTOM_KEY, None)
        if folded in self._disabled_names:
            return Name(folded, "", None)
        rule = builtin_rule_of(folded)
        ambiguous = AMBIGUOUS.get(folded) or (None if rule else by_ending(name))
        if ambiguous is not None and ambiguous.rule in self.disabled:
            ambiguous = None
        return Name(folded, "" if rule in self.disabled else rule, ambiguous)


def _in_any_spelling(pattern: str) -> str:
    """Return a pattern for folded text as one for the text itself: `api_key` is like `apikey`."""
    return "(?i)" + _TOKEN.sub(lambda token: token[1] or f"(?:{token[0]}[_-]*)", pattern)


class _Markers:
    """Tells in one walk through a text which of many patterns it contains."""

    def __init__(self, markers: Sequence[tuple[str, int]]) -> None:
        """Compile the patterns, each of which comes with what it stands for."""
        self._rows = [row for _, row in markers]
        self._set = re2.Set.SearchSet(quiet_options())
        for marker, _ in markers:
            self._set.Add(marker.encode())
        self._set.Compile()

    def __call__(self, raw: bytes) -> set[int]:
        """Return what the patterns stand for that a text contains."""
        return {self._rows[index] for index in self._set.Match(raw) or ()}
