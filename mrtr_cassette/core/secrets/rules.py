"""Which secrets are known: by their shapes, by their names, and by what a user changes about both.

A secret is known by its own shape or by the name that it stands under, never because it looks
random: hashes, cursors and nonces are what requests are told apart by.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

import re2

from mrtr_cassette.core.secrets.names import (
    AMBIGUOUS,
    NAMES,
    AmbiguousName,
    builtin_rule_of,
    by_ending,
    fold,
)
from mrtr_cassette.core.secrets.patterns import compiled, quiet_options, refusal_of, searches
from mrtr_cassette.core.secrets.shapes import (
    RULES,
    Rule,
    custom_rule,
)
from mrtr_cassette.errors import shorten

CREDENTIALS: Final = "url-password"
"""The rule of what stands before a URL's host."""
CREDENTIALS_MARKER: Final = r"://[^\s\"'<>\\]*@"
"""Matches in a folded text where something may stand there."""
CUSTOM_KEY: Final = "custom-key"
"""The rule of the names that a user added."""

_ESCAPED = r"\\(?:/|u00[2-7])"
"""An escape of what may be part of a name or of a secret, or of a quote in JSON."""
_BASE64 = r"(?:^|[^A-Za-z0-9+/_-])[C-Za-fw-z0-9][A-Za-z0-9+/_-]{10}"
"""Text in base64 begins with ASCII or the first byte of a character; PNG and JPEG don't."""
PLACEHOLDER_MARKER = r"(?:<|%3[cC]|u003[cC])[a-z0-9-]+(?::|%3[aA])"
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


class Mark:
    """What a text may contain besides the shapes of the table, as numbers beside theirs."""

    NAME = -1
    ESCAPE = -2
    PERCENT = -3
    CREDENTIALS = -4
    PLACEHOLDER = -5
    BASE64 = -6


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

    def marks(self, raw: bytes) -> set[int]:
        """Return what a text may contain: rows of the table, and marks."""
        marked = self._markers(raw)
        if not self._has_ascii_keys:
            marked.add(Mark.NAME)
        return marked

    def likely(self, marks: Collection[int]) -> Iterator[Rule]:
        """Yield the shapes that a text may contain."""
        return (self.shapes[row] for row in sorted(marks) if row >= 0)

    @cached_property
    def named(self) -> Any:
        """Finds what may be the end of a secret's name, and what gives it a value.

        Groups are the name's end, the quote after it, and the sign that gives it a value.
        """
        closing = r"(\\{0,15}[\"'])?"
        return compiled(
            rf"(?i)({self._stems})"
            rf"(?:{closing}\s{{0,64}}(=>|[:=])|{closing}\s{{0,64}}[,}}|;]| ?[\t\r\n])"
        )

    @property
    def _stems(self) -> str:
        """The names, in any spelling, without those that end with another one of them."""
        names = {*NAMES, *AMBIGUOUS, "pw", *self.keys}
        ends = [name for name in names if not any(n != name and name.endswith(n) for n in names)]
        return "|".join("[_-]?".join(map(_spelled, name)) for name in sorted(ends))

    @cached_property
    def _markers(self) -> _Markers:
        """The markers of shapes and of names, which are looked for in one walk."""
        named = rf"(?i)(?:{self._stems})(?:\\*[\"'])?(?:\s|\\+[nrt]|[:=,}}|;])"
        markers = [
            (named, Mark.NAME),
            (_ESCAPED, Mark.ESCAPE),
            ("%[0-7][0-9A-Fa-f]", Mark.PERCENT),
            (PLACEHOLDER_MARKER, Mark.PLACEHOLDER),
            (_BASE64, Mark.BASE64),
        ]
        if CREDENTIALS not in self.disabled:
            markers.append((CREDENTIALS_MARKER, Mark.CREDENTIALS))
        for row, rule in enumerate(self.shapes):
            markers += [(each, row) for each in rule.markers]
        return _Markers(markers)

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


def _spelled(char: str) -> str:
    """Return a pattern for a character of a name: other text than ASCII has many spellings."""
    if char.isascii():
        return str(re2.escape(char))
    each = {char.lower(), char.upper()}
    escaped = "|".join(rf"\\+u(?i:{ord(c):04x})" for c in each if len(c) == 1)
    in_bytes = "|".join("".join(f"\\x{byte:02x}" for byte in c.encode()) for c in each)
    return f"(?:{in_bytes}|{escaped})"


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
