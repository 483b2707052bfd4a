from __future__ import annotations

import pytest

from mrtr_cassette.core.secrets.rules import (
    AMBIGUOUS,
    CUSTOM_KEY,
    ActiveRules,
    Name,
    RedactionRules,
)


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ({"patterns": ("(",)}, "'\\('.*no regular expression"),
        ({"patterns": ("a", "b*")}, "'b\\*'.*empty"),
        ({"patterns": ("a{99999999999999999999}",)}, "'a\\{9+\\}'.*larger than 1000"),
        ({"patterns": ("a{1001}",)}, "no regular expression: invalid repetition size"),
        ({"patterns": ("(?<=a)b",)}, "looked at without being matched"),
        ({"patterns": ("(a)\\1",)}, "no regular expression: invalid escape sequence"),
        ({"patterns": ("\ud800",)}, "half of a surrogate pair"),
        ({"patterns": ("(" * 500 + "a*" + ")" * 500,)}, "empty"),
        ({"patterns": ("(" * 20_000 + "a" + ")" * 20_000,)}, "more than 1000 groups"),
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


def test_ambiguous_names_can_be_switched_off() -> None:
    """A name alone, or all those of a rule."""
    assert rules_of().name("PIN").ambiguous == AMBIGUOUS["pin"]
    assert rules_of(disabled=("Pin",)).name("pin").tells_nothing
    without = rules_of(disabled=("password",))
    assert without.name("pin").tells_nothing
    assert without.name("code").ambiguous == AMBIGUOUS["code"]
    assert rules_of(keys=("pin",)).name("pin") == Name("pin", CUSTOM_KEY, None)


def rules_of(**rules: tuple[str, ...]) -> ActiveRules:
    """Return the rules of a recording."""
    return ActiveRules(RedactionRules(**rules))
