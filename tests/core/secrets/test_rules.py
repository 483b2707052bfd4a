from __future__ import annotations

import pytest
from core.secrets.planted import GITHUB

from mrtr_cassette.core.secrets.rules import (
    AMBIGUOUS,
    CUSTOM_KEY,
    ENDINGS,
    NAMES,
    RULES,
    ActiveRules,
    Name,
    RedactionRules,
    Rule,
    matches_whole,
)


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ({"patterns": ("(",)}, "'\\('.*no regular expression"),
        ({"patterns": ("a", "b*")}, "'b\\*'.*empty"),
        ({"patterns": ("a{1001}",)}, "no regular expression: invalid repetition size"),
        ({"patterns": ("(?<=a)b",)}, "looked at without being matched"),
        ({"patterns": ("(a)\\1",)}, "no regular expression: invalid escape sequence"),
        ({"patterns": ("\ud800",)}, "half of a surrogate pair"),
        ({"patterns": ("(" * 500 + "a*" + ")" * 500,)}, "empty"),
        ({"keys": ("",)}, "''"),
        ({"keys": ("-_",)}, "'-_'"),
        ({"disabled": ("passwort",)}, "'passwort'.*api-key, .*password"),
        ({"disabled": ("token", "custom-1")}, "'custom-1'"),
        ({"disabled": ("cursor",)}, "'cursor'"),
    ],
)
def test_rules_that_cannot_be_meant_are_refused(
    rules: dict[str, tuple[str, ...]], named: str
) -> None:
    """The message names what is wrong."""
    with pytest.raises(ValueError, match=named):
        RedactionRules(**rules)


def test_a_name_is_ambiguous_or_not() -> None:
    """No name is both, and each ending is a name."""
    assert not [name for name in AMBIGUOUS if name in NAMES or name.endswith(ENDINGS)]
    assert set(ENDINGS) <= set(NAMES)


def test_ambiguous_names_can_be_switched_off() -> None:
    """A name alone, or all those of a rule."""
    assert rules_of().name("PIN") == AMBIGUOUS["pin"]
    assert rules_of(disabled=("Pin",)).name("pin") is None
    without = rules_of(disabled=("password",))
    assert without.name("pin") is None
    assert without.name("code") == AMBIGUOUS["code"]
    assert rules_of(keys=("pin",)).name("pin") == Name(CUSTOM_KEY)


def rules_of(**rules: tuple[str, ...]) -> ActiveRules:
    """Return the rules of a recording."""
    return ActiveRules(RedactionRules(**rules))


# Shapes

BY_NAME = {rule.name: rule for rule in RULES}


def found(rule: Rule, text: str) -> list[str]:
    """Return what a rule finds in a text."""
    raw = text.encode("utf-8", "surrogatepass")
    return [raw[start:end].decode("utf-8", "surrogatepass") for start, end in rule.spans(raw)]


@pytest.mark.parametrize("between", [" ", "\n", "é🔑", "\ud800", '"', ","])
def test_token_begins_after_what_is_no_letter(between: str) -> None:
    """What ends one token may begin the next one, and no offset is lost to characters."""
    text = f"é{GITHUB}{between}{GITHUB}"

    assert found(BY_NAME["github"], text) == [GITHUB, GITHUB]
    assert found(BY_NAME["github"], f"x{GITHUB}") == []


@pytest.mark.parametrize(
    ("pattern", "text", "secrets"),
    [
        (r"EMP-\d+", "EMP-1 EMP-2", ["EMP-1", "EMP-2"]),
        (r"x(y)?", "x xy", ["y"]),
        (r"(?s)b.*", "a" * 10_000 + "b" * 10_000, ["b" * 10_000]),
        (r"[à-ü]+", "abc äöü", ["äöü"]),
        (r"a$", "aaa", ["a"]),
        (r"\b", "a b", []),
        (r"x", "", []),
    ],
)
def test_pattern_of_a_user_finds_all_matches(pattern: str, text: str, secrets: list[str]) -> None:
    """Group 1 is the secret if there is one, however far the match is from the last one."""
    assert found(Rule("custom-1", pattern, is_custom=True), text) == secrets


def test_pattern_is_for_the_whole_text() -> None:
    """Characters count, and not bytes."""
    assert matches_whole("gr.n", "grün")
    assert not matches_whole("b.d", "abcde")
