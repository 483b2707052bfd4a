from __future__ import annotations

import pytest

from mrtr_cassette.core.secrets.rules import ActiveRules, RedactionRules
from mrtr_cassette.core.secrets.text_search import FORM_QUERY, URL_QUERY, TextSearch

RULES = ActiveRules(RedactionRules(patterns=(r"EMP-(\d+)?",), keys=("licence",)))
SEARCH = TextSearch(RULES)
TOKEN = "ghp_" + "a1" * 16


def found(findings: list) -> list[tuple[str, str]]:
    """Return rule and secret of each finding."""
    return [(finding.rule, finding.plain) for finding in findings]


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        (f"is {TOKEN}.", [("github", TOKEN)]),
        ("EMP-12 EMP-", [("custom-1", "12")]),
        ("DB_PASSWORD=hunter2", [("password", "hunter2")]),
        ('api_key: "a b"', []),
        ('"api_key": "a b"', [("api-key", "a b")]),
        ("password: hunter22", [("password", "hunter22")]),
        ("password: enter", []),
        ("password=$PASSWORD", []),
        ("token: none", []),
        ('password="a\\\\" b', [("password", "a")]),
        ('"password"="a\nb"', []),
        ("password='x", [("password", "x")]),
        ("password=" + "x" * 2048, [("password", "x" * 2048)]),
        ("password=" + "x" * 2049, []),
        ('password="' + "x" * 2049 + '"', []),
        ("password=a(b)", []),
        ("password=password=password=x y", [("password", "password=password=x")]),
        ("<password:1>", []),
        ("https://a.example/?api_key=x&b=EMP-7", [("api-key", "x"), ("custom-1", "7")]),
        ("https://a.example/?n=%7B%22password%22%3A%22x%22%7D", [("password", "x")]),
        (f"https://a.example/{TOKEN.replace('_', '%5F')}", [("github", TOKEN)]),
        ("https://a.example/?u=https%3A%2F%2Fb.example%2F%3Fapi_key%3Dy", [("api-key", "y")]),
    ],
)
def test_text_is_searched_in_all_its_layers(text: str, findings: list[tuple[str, str]]) -> None:
    """Shapes, names that are given values, and URLs are searched, with their escapes undone."""
    assert found(SEARCH.in_text(text)) == findings


def test_whole_text_may_be_a_url_or_a_form() -> None:
    """Of a target or a form the names and values are known without a scheme."""
    assert found(SEARCH.in_text("/a?password=x%20y", query=URL_QUERY)) == [("password", "x y")]
    assert found(SEARCH.in_text("password=x+y&a=b", query=FORM_QUERY)) == [("password", "x y")]
    assert found(SEARCH.in_text("/a?password=x", depth=0, query=URL_QUERY)) == []


@pytest.mark.parametrize(
    ("rule", "value", "findings"),
    [
        ("authorization", "Bearer abc", [("bearer", "abc")]),
        ("authorization", "Digest abc", [("authorization", "abc")]),
        ("password", "", []),
        ("password", TOKEN, [("github", TOKEN)]),
        ("custom-key", TOKEN, [("custom-key", TOKEN)]),
        ("password", "<password:1>", []),
        ("cookie", "sha256:" + "0" * 64, []),
        ("", '{"password":"x"}', [("password", "x")]),
        ("", '"{\\"password\\":1}"', [("password", "1")]),
        ("", '"a" "password=x"', [("password", "x")]),
    ],
)
def test_member_is_a_secret_by_its_rule(
    rule: str, value: str, findings: list[tuple[str, str]]
) -> None:
    """A value under a secret's name is one, by its shape's rule if it has one; others are texts."""
    assert found(SEARCH.in_member(rule, value)) == findings


def test_search_may_be_one_by_shapes_only() -> None:
    """Where names don't count, a value under a secret's name is a text like any other."""
    by_shape = TextSearch(RULES, by_name=False)

    assert by_shape.rule_of("password") == ""
    assert SEARCH.rule_of("licence") == "custom-key"
    assert by_shape.in_text("password=hunter2") == []
