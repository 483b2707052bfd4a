"""Filters let through whatever matches, and each row of the table is searched in linear time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest
from core.secrets.planted import IN_CONTEXT, JUDGED, SHAPES
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.secrets.rules import (
    AMBIGUOUS_NAMES,
    NAME_ENDINGS,
    RULE_BY_NAME,
    RULES,
    ActiveRules,
    RedactionRules,
)
from mrtr_cassette.core.secrets.shapes import Rule, whole_matcher

KEYS = ("user.name", "api2key", "ключ")
ACTIVE = ActiveRules(RedactionRules())
WITH_KEYS = ActiveRules(RedactionRules(keys=KEYS))
SECRETS = [secret for _, secret in SHAPES]
SECRETS += [text.format(secret) for _, secret, text in IN_CONTEXT]
SECRETS += [text for _, _, text in JUDGED]
SIGNS = [
    *" \n\t\"'\\=:<>&?@/-_.,;{}()[]",
    '\\"',
    "=>",
    "\\n",
    "é",
    "\ud800",
    "--",
    "://",
]
SPELLED = [
    "password",
    "API_KEY",
    "se-cret",
    "_token",
    "user_name",
    "КЛЮЧ",
    "\\u043aлюч",
]
TEXTS = st.lists(
    st.sampled_from(
        [*SECRETS, *SECRETS, *SIGNS, *SIGNS, *SPELLED, *RULE_BY_NAME, *AMBIGUOUS_NAMES]
    )
    | st.text(max_size=3),
    max_size=8,
).map(lambda parts: "".join(parts).encode("utf-8", "surrogatepass").decode("latin-1"))


@given(TEXTS)
def test_filters_let_through_whatever_matches(text: str) -> None:
    """A filter saves a search, and hides no secret; a longer text has the same ones."""
    long_text = text + " " * (1 << 16)
    matched = [rule for rule in RULES if any(rule.secret_spans(text))]

    assert set(matched) <= set(ACTIVE.likely_rules(text)) & set(
        ACTIVE.likely_rules(long_text)
    )
    assert not matched or ACTIVE.may_find_secrets(text)


def spelled(name: str) -> str:
    """Return a pattern for a name that may have a separator between any two characters."""
    chars = []
    for char in name:
        plain = re.escape(char.encode().decode("latin-1"))
        upper = re.escape(char.upper().encode().decode("latin-1"))
        escaped = "|".join(rf"\\+u{ord(case):04x}" for case in (char, char.upper()))
        chars.append(plain if char.isascii() else f"(?:{plain}|{upper}|{escaped})")

    return "[_-]?".join(chars)


def plain_search(keys: Sequence[str]) -> re.Pattern[str]:
    """Return the one pattern that says which names are looked for, however slow it is."""
    ends = "|".join(map(spelled, [*NAME_ENDINGS, *keys]))
    whole = "|".join(
        map(spelled, {*RULE_BY_NAME, *AMBIGUOUS_NAMES, "pw"}.difference(NAME_ENDINGS))
    )
    names = rf"(?:{ends})|(?:\b|[_-]|\\[nrt])(?:{whole})"

    return re.compile(rf"(?ai)(?:{names})()(\\{{0,15}}[\"'])?\s{{0,64}}(?:=>|[:=])")


PLAIN = {ACTIVE: plain_search(()), WITH_KEYS: plain_search(KEYS)}


@given(TEXTS, st.sampled_from([ACTIVE, WITH_KEYS]))
def test_names_before_signs_are_found_as_by_one_plain_pattern(
    text: str, rules: ActiveRules
) -> None:
    """The search from the ends of names yields what the obvious pattern matches, and no more."""
    expected = []
    for match in PLAIN[rules].finditer(text):
        quote_end = max(match.end(2), match.end(1))
        expected.append((match.start(), match.end(1), quote_end, match.end()))

    assert list(rules.names_before_signs(text)) == expected
    assert not expected or (rules.may_have_names(text) and rules.may_find_secrets(text))


# The form of the table's patterns

Chars = frozenset[str]
ALL: Chars = frozenset(map(chr, range(256)))


def chars_of(pattern: str) -> Chars:
    """Return the characters that a pattern for one matches."""
    compiled = re.compile(pattern, re.ASCII | re.DOTALL)
    return frozenset(char for char in ALL if compiled.fullmatch(char))


CATEGORIES = {
    codes.CATEGORY_WORD: chars_of(r"\w"),
    codes.CATEGORY_NOT_WORD: chars_of(r"\W"),
    codes.CATEGORY_DIGIT: chars_of(r"\d"),
    codes.CATEGORY_SPACE: chars_of(r"\s"),
    codes.CATEGORY_NOT_SPACE: chars_of(r"\S"),
}
REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
EMPTY = (codes.AT, codes.ASSERT, codes.ASSERT_NOT)


def set_of(items: Sequence[Any]) -> Chars:
    """Return the characters of a set in brackets."""
    found: set[str] = set()
    for op, value in items:
        if op is codes.LITERAL:
            found.add(chr(value))
        elif op is codes.RANGE:
            found.update(map(chr, range(value[0], value[1] + 1)))
        elif op is codes.CATEGORY:
            found |= CATEGORIES[value]

    return ALL - found if items[0][0] is codes.NEGATE else frozenset(found)


def first_of(parts: Sequence[Any]) -> tuple[Chars, bool]:
    """Return the characters that parts of a pattern may begin with, and whether they may be empty."""
    found: Chars = frozenset()
    for op, value in parts:
        is_empty = False
        if op is codes.LITERAL:
            first = frozenset({chr(value), chr(value).swapcase()})
        elif op is codes.NOT_LITERAL:
            first = ALL - {chr(value)}
        elif op is codes.IN:
            first = set_of(value)
        elif op is codes.BRANCH:
            branches = [first_of(branch) for branch in value[1]]
            first = frozenset().union(*[branch[0] for branch in branches])
            is_empty = any(branch[1] for branch in branches)
        elif op is codes.SUBPATTERN:
            first, is_empty = first_of(value[-1])
        elif op in REPEATS:
            first, is_empty = first_of(value[2])
            is_empty = is_empty or value[0] == 0
        else:
            assert op in EMPTY
            first = frozenset()
            is_empty = True

        found |= first
        if not is_empty:
            return found, False

    return found, True


def loose_repeats(
    parts: Sequence[Any], after: Chars = frozenset()
) -> Iterator[tuple[Chars, Chars]]:
    """Yield what is repeated without a limit, with what may follow, where that matters."""
    for index, (op, value) in enumerate(parts):
        follows, is_empty = first_of(parts[index + 1 :])
        if is_empty:
            # Nothing that is only optional makes a search go back.
            follows = follows | after if after else after

        if op is codes.BRANCH:
            for branch in value[1]:
                yield from loose_repeats(branch, follows)
        elif op is codes.SUBPATTERN:
            yield from loose_repeats(value[-1], follows)
        elif op in REPEATS:
            repeated, _ = first_of(value[2])
            if value[1] is codes.MAXREPEAT and op is not codes.POSSESSIVE_REPEAT:
                yield repeated, follows

            yield from loose_repeats(value[2], follows)


GREEDY_TAG = chars_of("[^<>]")
"""What tags consist of: each is looked through once from its end, as none begins in another."""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_no_row_can_backtrack_far(rule: Rule) -> None:
    """What may follow a repetition without a limit is nothing that it repeats."""
    for pattern in filter(None, (rule.pattern, rule.searched_parts)):
        tree = parser.parse(pattern, re.ASCII)
        for repeated, follows in loose_repeats(list(tree)):
            assert repeated == GREEDY_TAG or repeated.isdisjoint(follows), pattern


# Patterns of users


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "unclosed group"),
        ("(?<=a)b", "look-around"),
        (r"(a)\1", "backreferences"),
        ("\ud800", "half of a surrogate pair"),
    ],
)
def test_pattern_for_whole_texts_is_refused(pattern: str, reason: str) -> None:
    """The reason is one of the engine's."""
    with pytest.raises(ValueError, match=reason):
        whole_matcher(pattern)


def test_pattern_is_for_the_whole_text() -> None:
    """Characters count, and not bytes."""
    assert whole_matcher("gr.n")("grün")
    assert not whole_matcher("b.d")("abcde")
