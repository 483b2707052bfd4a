from __future__ import annotations

from base64 import b64encode

import pytest

from mrtr_cassette.core.secrets.rules import ActiveRules, RedactionRules
from mrtr_cassette.core.secrets.text_search import TextSearch
from mrtr_cassette.core.secrets.url_search import FORM_QUERY, URL_QUERY

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
        (f"https://a.example/{TOKEN.replace('_', '%25255F')}", [("github", TOKEN)]),
        ("password%3Dx%20y", [("password", "x")]),
        ("https://a:b%40c@d.example", [("url-password", "b@c")]),
        ("user: a\npassword: hunter2\n", [("password", "hunter2")]),
        ("- password: p@ss(word)  # his\r\n", [("password", "p@ss(word)")]),
        ("DB_PASSWORD: letters", [("password", "letters")]),
        ("  password: 12345678\n", [("password", "12345678")]),
        ("api_key = ab{c\n", [("api-key", "ab{c")]),
        ("secret: letters\n", []),
        ("secret: 1234\n", []),
        ("password: sha256\n", []),
        ("password:hunter2\n", [("password", "hunter2")]),
        ("secret:hunter2\n", []),
        ("- name: DB_PASSWORD\n  value: letters\n", [("password", "letters")]),
        ("- name: DB_HOST\n  value: letters\n", []),
        ("/reset?token=s3cr3tT0k", [("token", "s3cr3tT0k")]),
        ("the token=s3cr3tT0k", []),
        ("password = get()\n", []),
        ("password: |\n  text", []),
        ("password=a&b=c\n", [("password", "a")]),
        ("he said password: hunter2 to me", []),
        ("pin: 1234\n", [("password", "1234")]),
        ("code: 1234567890123456789012\n", []),
        ("https://a.example/?pin=1234", [("password", "1234")]),
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
        ("", '"{\\"password\\":1}"', [("password-number", "1")]),
        ("", '"a" "password=x"', [("password", "x")]),
    ],
)
def test_member_is_a_secret_by_its_rule(
    rule: str, value: str, findings: list[tuple[str, str]]
) -> None:
    """A value under a secret's name is one, by its shape's rule if it has one; others are texts."""
    assert found(SEARCH.in_member(rule, value)) == findings


def test_names_of_members_are_searched() -> None:
    """A user's pattern counts in a name with a digit only."""
    assert found(SEARCH.in_key(TOKEN)) == [("github", TOKEN)]
    assert found(SEARCH.in_key("EMP-7")) == [("custom-1", "7")]
    assert found(TextSearch(ActiveRules(RedactionRules(patterns=("a",)))).in_key("abc")) == []
    assert found(TextSearch(ActiveRules(RedactionRules())).in_key("api_key=a")) == [
        ("api-key", "a")
    ]


def test_text_in_base64_is_a_secret_if_it_contains_one() -> None:
    """Other base64 is searched like any text."""
    blob = b64encode(b"some text\npassword=made-up\n").decode()

    assert found(SEARCH.in_blob(blob)) == [("password", blob)]
    assert found(SEARCH.in_blob(blob, depth=0)) == []
    assert found(SEARCH.in_blob(b64encode(b"some text and no more").decode())) == []
    assert found(SEARCH.in_blob(TOKEN)) == [("github", TOKEN)]


def test_passwords_of_urls_can_be_switched_off() -> None:
    """They are no row of the table, and have a rule as others do."""
    search = TextSearch(ActiveRules(RedactionRules(disabled=("url-password",))))

    assert search.in_text("https://a:b@c.example") == []


def test_search_may_be_one_by_shapes_only() -> None:
    """Where names don't count, a value under a secret's name is a text like any other."""
    by_shape = TextSearch(RULES, by_name=False)

    assert by_shape.name("password").tells_nothing
    assert SEARCH.name("licence").rule == "custom-key"
    assert by_shape.in_text("password=hunter2") == []
