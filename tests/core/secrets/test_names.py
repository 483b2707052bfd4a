from __future__ import annotations

import pytest
from core.secrets.planted import fill

from mrtr_cassette.core.secrets.rules import (
    AMBIGUOUS,
    ENDINGS,
    NAMES,
    builtin_rule_of,
    by_ending,
)

UUID = "3f2b8c1e-9d47-4c55-8a1b-0e6f7d2c9a10"
RANDOM = fill(22)
TEMPLATES = ["{{ token }}", "${TOKEN}", "<token>", "[a1b2c3d4]", "%(token1)s"]
"""What stands for a value that is put in later is no secret under any name."""


def test_a_name_is_ambiguous_or_not() -> None:
    """No name is both, and each ending is a name."""
    assert not set(AMBIGUOUS) & set(NAMES)
    assert not [name for name in AMBIGUOUS if builtin_rule_of(name)]
    assert set(ENDINGS) <= set(NAMES)


@pytest.mark.parametrize(
    ("name", "alone", "in_query", "beside", "never"),
    [
        ("code", [RANDOM, UUID], ["a" * 6 + "0b" * 5], ["made-up1"], ["US", "404", "ERR_TLS"]),
        (
            "token",
            [RANDOM],
            ["abc12345"],
            [],
            ["abc123", "NaN", "0xdAC17F958D2ee523a2206206"],
        ),
        ("devicecode", [RANDOM], ["SM-G991B"], ["letters"], ["abc", "a b c d"]),
        ("assertion", [RANDOM], ["a" * 6 + "0b" * 5], ["letters"], ["x should equal y"]),
        ("signature", [], [RANDOM], [fill(16)], ["zz", "def run(self)", "a.b.c"]),
        ("csrf", [fill(16)], ["abc12345"], [], ["true", "disabled"]),
        (
            "pwd",
            ["made", "a1b2", "123456", "$ecret1"],
            [],
            [],
            ["/home/me", "C:\\a", "~/a", "$PWD", "abc"],
        ),
        (
            "pass",
            ["hunter2", "p@ssword", "a!bcde"],
            [],
            ["letmein"],
            ["true", "passed", "none"],
        ),
        ("pin", ["1234", "123456789012"], [], [], ["13", "PA13", "1234567890123", "12.5", "١٢٣٤"]),
        (
            "auth",
            ["bm9ib2R5Om1hZGUtdXA=", "YTphYmM="],
            [],
            [],
            ["oauth2", "bm9ib2R5", "bearer", "0Om1hZGU", "wrKz", "https://example.com/"],
        ),
        ("otp", ["123456", "a1b2c3d4"], [], [], ["27", "R16B03", "27.1.2", "enabled"]),
    ],
)
def test_value_decides_what_an_ambiguous_name_means(
    name: str, alone: list[str], in_query: list[str], beside: list[str], never: list[str]
) -> None:
    """What counts alone counts in a query too, and what never counts does so nowhere."""
    ambiguous = AMBIGUOUS[name]
    in_a_query = [*alone, *in_query]

    assert [value for value in in_a_query if not ambiguous.in_query(value)] == []
    assert [value for value in alone if not ambiguous.alone(value)] == []
    assert [value for value in [*in_query, *beside] if ambiguous.alone(value)] == []
    assert [value for value in beside if not ambiguous.beside(value)] == []
    for counts in (ambiguous.alone, ambiguous.in_query, ambiguous.beside):
        assert [value for value in (*never, *TEMPLATES) if counts(value)] == []


@pytest.mark.parametrize(
    "value", ["first-pass", "step-2", "2nd-pass", "95%", "12.5ms", "p95=30ms", "Great!", "a/b.c:d"]
)
def test_results_of_a_test_are_no_passwords(value: str) -> None:
    """A word, a figure or a step under `pass` is no secret."""
    assert not AMBIGUOUS["pass"].alone(value)


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("LINEAR_TOKEN", "token"),
        ("x-vault-token", "token"),
        ("STRIPE_SECRET", "secret"),
        ("SMTP_PASS", "password"),
        ("NEXT_PAGE_TOKEN", ""),
        ("X-Next-Token", ""),
        ("next_token", ""),
        ("COMPASS", ""),
        ("TOKEN", ""),
    ],
)
def test_last_word_of_a_variable_or_a_header_tells(name: str, rule: str) -> None:
    """Names in other spellings have such endings for harmless things, as cursors have."""
    known = by_ending(name)

    assert ("" if known is None else known.rule) == rule
