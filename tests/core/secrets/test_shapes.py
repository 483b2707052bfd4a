from __future__ import annotations

import pytest

from mrtr_cassette.core.secrets.shapes import RULES, Rule, custom_rule, searches

BY_NAME = {rule.name: rule for rule in RULES}
GITHUB = "ghp" + "_" + "a1" * 16


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
    assert found(custom_rule(1, pattern), text) == secrets


def test_pattern_is_searched_or_the_whole_text() -> None:
    """Characters count, and not bytes."""
    assert searches("b.d", "abcde")
    assert not searches("b.d", "abcde", is_whole=True)
    assert searches("gr.n", "grün", is_whole=True)
