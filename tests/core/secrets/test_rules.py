from __future__ import annotations

import pytest

from mrtr_cassette.core.secrets.names import AMBIGUOUS
from mrtr_cassette.core.secrets.rules import CUSTOM_KEY, ActiveRules, Name, RedactionRules
from mrtr_cassette.core.secrets.shapes import RULES
from mrtr_cassette.core.secrets.surrogates import sealed_hash


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


def test_active_rules_are_the_table_and_the_users_own() -> None:
    """What a user disables is missing, and what a user adds is there under its own rule."""
    rules = RedactionRules(("x+",), ("Licence-Key", "password"), ("github", "passwd", "cookie"))
    active = ActiveRules(rules)

    assert active.disabled == {"github", "cookie"}
    assert {rule.name for rule in RULES} - {rule.name for rule in active.shapes} == {"github"}
    assert [rule.name for rule in active.custom] == ["custom-1"]
    names = ("licenceKey", "password", "passwd", "set-cookie", "secret", "colour", "x" * 99)
    assert [active.name(name).rule for name in names] == [
        CUSTOM_KEY,
        CUSTOM_KEY,
        "",
        "",
        "secret",
        "",
        "",
    ]


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
    assert not rules_of().may_match(raw)
    assert rules_of().plan(raw) == ((), False)


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
    assert rules_of().may_match(raw)
    assert {rule.name for rule in rules_of().plan(raw).rules} == rules


def test_names_count_where_they_are_given_values() -> None:
    """A name counts where a value follows it, in any spelling."""
    for raw in (b'{"DB_Password": "x"}', b"api-key=x", b'{\\"secret\\" :\\n 1}'):
        assert rules_of().may_match(raw)
        assert rules_of().plan(raw) == ((), True)


@pytest.mark.parametrize("raw", [b'"\\u0067hp_"', b"%67hp_", b'"\\u0022password\\u0022"', b"%2567"])
def test_escapes_may_spell_anything(raw: bytes) -> None:
    """A text with escapes of ASCII may contain anything."""
    assert rules_of().may_match(raw)


def test_what_a_user_adds_is_always_searched_for() -> None:
    """A user's pattern has no markers, and a name that isn't ASCII has many spellings."""
    assert rules_of(patterns=("x+",)).may_match(b"text")
    assert [rule.name for rule in rules_of(patterns=("x+",)).plan(b"text").rules] == ["custom-1"]
    assert rules_of(keys=("ключ",)).may_match(b"text")
    assert rules_of(keys=("ключ",)).plan(b"text").has_names
    assert rules_of(keys=("progressToken",)).may_match(b'{"progressToken":"x"}')


def test_what_sealing_has_put_somewhere_is_no_reason_to_search() -> None:
    """A body of a sealed conversation is not searched for its hashes and surrogates."""
    hashed = f'{{"requestState":"{sealed_hash("state")}"}}'
    assert not rules_of().may_match(hashed.encode())
    assert not rules_of().may_match(b'{"requestState":"mrtr-state:0123456789abcdef:1:1"}')
    assert rules_of().may_match(f"1/1234567890123456:{'0123456789abcdef' * 2}".encode())


@pytest.mark.parametrize(
    "raw",
    [b'{"requestState":"x"}', b'{"inputRequests":{}}', b'"\\u0001"', b"a ghp_" + b"a" * 30],
)
def test_text_with_a_state_or_an_ask_is_not_plain(raw: bytes) -> None:
    """Plain is what has nothing to read and nothing to take out."""
    assert not rules_of().is_plain(raw)
    assert rules_of().is_plain(b'{"text":"some words, and 5"}')
    assert not rules_of(patterns=("x+",)).is_plain(b"text")
    assert not rules_of(keys=("ключ",)).is_plain(b"text")


def test_disabled_rules_are_not_searched_for() -> None:
    """A rule that is switched off is in no plan, even if no other rule remains."""
    nothing = rules_of(disabled=(*{rule.name for rule in RULES}, "url-password"))

    assert not nothing.may_match(b"https://a:b@c.example")
    assert rules_of().may_match(b"https://a:b@c.example")
    assert not nothing.may_match(b"a ghp_" + b"a" * 30)
    assert nothing.plan(b"password=x") == ((), True)
