from __future__ import annotations

import pytest

from mrtr_cassette.core.secrets.prefilter import Prefilter, SearchPlan
from mrtr_cassette.core.secrets.rules import RULES, ActiveRules, RedactionRules


def plan(raw: bytes, **rules: tuple[str, ...]) -> SearchPlan | None:
    """Return what a text has to be searched for."""
    return Prefilter(ActiveRules(RedactionRules(**rules))).plan(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":7}}}',
        b"passwords are asked for",
        b'{"password":{"type":"string"}}',
        b"ghp_tooshort",
        b"task-abcdefghijklmnopqrstuvwxyz",
    ],
)
def test_most_texts_are_not_searched(raw: bytes) -> None:
    """Where neither a shape nor a name can be, there is nothing to search for."""
    assert plan(raw) is None


@pytest.mark.parametrize(
    ("raw", "rules"),
    [
        (b"a ghp_" + b"a" * 30, {"github"}),
        (b"a\\nghp_" + b"a" * 30, {"github"}),
        (b"x_ghp_" + b"a" * 30, {"github"}),
        (b"-----BEGIN PRIVATE KEY-----", {"private-key"}),
        (b"https://discord.com/api/webhooks/1/x", {"webhook"}),
    ],
)
def test_text_is_searched_for_the_shapes_that_it_may_contain(raw: bytes, rules: set[str]) -> None:
    """Only rules with a marker in the text are tried."""
    found = plan(raw)

    assert found is not None
    assert {rule.name for rule in found.rules} == rules


def test_text_is_searched_for_the_names_that_it_gives_values() -> None:
    """A name counts where a value follows it, in any spelling."""
    found = plan(b'{"DB_Password": "x"}')

    assert found is not None
    assert found.stems == ("password",)


@pytest.mark.parametrize("raw", [b'"\\u0067hp_"', b"%67hp_"])
def test_escapes_may_spell_anything(raw: bytes) -> None:
    """A text with needless escapes is searched for everything."""
    found = plan(raw)

    assert found is not None
    assert found.rules == RULES
    assert "password" in found.stems


def test_what_a_user_adds_is_always_searched_for() -> None:
    """A user's pattern has no markers, and a name that isn't ASCII has many spellings."""
    found = plan(b"text", patterns=("x+",))
    assert found is not None
    assert [rule.name for rule in found.rules] == ["custom-1"]

    found = plan(b"text", keys=("ключ",))
    assert found is not None
    assert "" in found.stems


def test_progress_token_is_searched_for_if_a_user_names_it() -> None:
    """A user's own name may be the one that the quick check leaves out."""
    found = plan(b'{"progressToken":"x"}', keys=("progressToken",))

    assert found is not None
    assert "progresstoken" in found.stems


def test_disabled_rules_are_not_searched_for() -> None:
    """A rule that is switched off is in no plan, even if no rule with a prefix remains."""
    names = tuple({rule.name for rule in RULES if rule.is_prefixed} | {"bearer"})

    assert plan(b"a ghp_" + b"a" * 30, disabled=names) is None
