from __future__ import annotations

import pytest

from mrtr_cassette.core.secrets.rules import (
    CUSTOM_KEY,
    RULES,
    ActiveRules,
    RedactionRules,
    builtin_rule_of,
    fold,
)


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ({"patterns": ("(",)}, "'\\('.*no regular expression"),
        ({"patterns": ("a", "b*")}, "'b\\*'.*empty"),
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


def test_spellings_of_a_name_fold_to_one() -> None:
    """Case, hyphens and underscores don't count in a name."""
    names = ("api_key", "api-key", "apiKey", "API_KEY")

    assert {fold(name) for name in names} == {"apikey"}


@pytest.mark.parametrize(
    ("folded", "rule"),
    [
        ("password", "password"),
        ("dbpassword", "password"),
        ("passwordhint", ""),
        ("awssecretaccesskey", "secret"),
        ("mainapikey", "api-key"),
        ("token", ""),
        ("", ""),
    ],
)
def test_name_has_the_rule_of_its_longest_ending(folded: str, rule: str) -> None:
    """A name has its own rule, or that of the longest ending that makes it a secret's name."""
    assert builtin_rule_of(folded) == rule


def test_active_rules_are_the_table_and_the_users_own() -> None:
    """What a user disables is missing, and what a user adds is there under its own rule."""
    rules = RedactionRules(("x+",), ("Licence-Key", "password"), ("github", "passwd", "cookie"))
    active = ActiveRules(rules)

    assert active.disabled == {"github", "cookie"}
    assert {rule.name for rule in RULES} - {rule.name for rule in active.shapes} == {"github"}
    assert [rule.name for rule in active.custom] == ["custom-1"]
    names = ("licenceKey", "password", "passwd", "set-cookie", "secret", "colour")
    assert [active.rule_of(name) for name in names] == [
        CUSTOM_KEY,
        CUSTOM_KEY,
        "",
        "",
        "secret",
        "",
    ]
