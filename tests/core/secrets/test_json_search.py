from __future__ import annotations

import pytest

from mrtr_cassette.core.secrets.escapes import Finding, json_tokens
from mrtr_cassette.core.secrets.json_search import secrets_in_json, without_exempt
from mrtr_cassette.core.secrets.names import AMBIGUOUS
from mrtr_cassette.core.secrets.rules import Name


class Search:
    """Takes values under `key` for secrets, and elsewhere the letter `x`."""

    def __init__(self, shortest: int = 0) -> None:
        self.shortest = shortest

    def name(self, name: str) -> Name:
        """Return what a name tells."""
        return Name(name, "rule" if name == "key" else "", AMBIGUOUS.get(name))

    def in_key(self, key: str, depth: int) -> list[Finding]:
        """Return what is `x` in a name of several letters."""
        return self.in_member("", key, depth) if len(key) > 1 else []

    def in_blob(self, value: str, depth: int) -> list[Finding]:
        """Return all of what may be base64."""
        assert depth == 3
        return [Finding(0, len(value), "blob", value)]

    def in_member(self, rule: str, value: str, depth: int) -> list[Finding]:
        """Return the whole value, or what is `x` in it."""
        assert depth == 3
        if rule:
            return [Finding(0, len(value), rule, value)]
        return [Finding(at, at + 1, "x", "x") for at, char in enumerate(value) if char == "x"]


def found(text: str, shortest: int = 0) -> list[tuple[str, str]]:
    """Return rule and spelling of what is found in JSON."""
    findings = secrets_in_json(json_tokens(text), Search(shortest), 3)
    kept = without_exempt(text, findings)
    return [(finding.rule, text[finding.start : finding.end]) for finding in kept]


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        ('{"key":"secret","other":"axb"}', [("rule", "secret"), ("x", "x")]),
        ('{"k\\u0065y":"se\\ncret"}', [("rule", "se\\ncret")]),
        ('{"key":12.5,"other":7}', [("rule-number", "12.5")]),
        ('{"key":["a",["b"],{"c":"d"},5]}', [("rule", "a")]),
        ('{"key":{"c":"d"},"x":"y"}', []),
        ('{"dependentRequired":{"key":["other"]},"key":"a"}', [("rule", "a")]),
        ('{"dependencies":{"key":"other"}}', []),
        ('{"key":true}', []),
        ('{"name":"key","value":"a"}', [("rule", "a")]),
        ('[{"id":"key","type":"b","value":5},{"id":"b","value":"a"}]', [("rule-number", "5")]),
        ('{"name":"key","other":"a"}', []),
        ('{"key":{"type":"a","value":"b"}}', [("rule", "b")]),
        ('{"key":[{"name":"a","value":"b"}],"value":"c"}', [("rule", "b")]),
        ('{"key":{"a":{"value":"b"}}}', []),
        ('["name","key","value","a"]', []),
        ('{"key":1, 2,-3e5\n,"key":4}', [("rule-number", "1"), ("rule-number", "4")]),
        ('["key","x"]', [("x", "x")]),
        ('["x":"key"', [("x", "x")]),
        ('{}}{"key":"a"}', [("rule", "a")]),
        ('{"key":"cut o', [("rule", "cut o")]),
        ('{"axb":1,"a\\u0078b":1,"axb":2}', [("x", "x"), ("x", "\\u0078"), ("x", "x")]),
        (
            '{"blob":"a\\nb","data":["x"],"key":{"data":"c"}}',
            [("blob", "a\\nb"), ("x", "x"), ("blob", "c")],
        ),
        ('{"pin":"1234","code":1234}', [("password", "1234")]),
        ('{"pin":1234,"otp":4321}', [("password-number", "4321")]),
        ('{"pin":1234,"user":"u"}', [("password-number", "1234")]),
        ('{"pass":"letmein"}', []),
        ('{"pass":"let\\u006dxin","user":"u"}', [("password", "let\\u006dxin")]),
        ('{"pass":"letmexn","a":{"user":"u"}}', [("x", "x")]),
        ('{"pass":["letmein"],"user":"u"}', []),
        ('{"user":"u","pass":"letmein', [("password", "letmein")]),
        ('{"user":"u","pass":"pass"}', []),
        (
            '{"user":"u","email":"e","pass":"letmein","pin":1234}',
            [("password", "letmein"), ("password-number", "1234")],
        ),
        ('[{"name":"pin","value":"1234"},{"pin":{"value":"1234"}}]', [("password", "1234")] * 2),
    ],
)
def test_values_are_found_by_their_names(text: str, findings: list[tuple[str, str]]) -> None:
    """A name makes strings and numbers directly under it secrets, also those in an array."""
    assert found(text) == findings


def test_short_strings_are_searched_by_name_only() -> None:
    """A string too short for any rule is searched only under a secret's name."""
    assert found('{"a":"x","key":"a","b":"abcx"}', shortest=4) == [("rule", "a"), ("x", "x")]


@pytest.mark.parametrize(
    ("text", "findings"),
    [
        ('{"id":"x","params":{"_meta":{"progressToken":"x"},"requestState":"x","a":"x"}}', 1),
        ('{"id":["x"]}', 1),
        ('{"id":"x"}{"id":"x"}, {"id":"x","x":"x"}', 1),
        ('{"é":"é","id":"x","result":{"requestState":"x","a":"éxé"}}', 1),
        ('\ufeff {"id":"x"', 1),
        ('{"a":{"id":"x"}}', 1),
    ],
)
def test_ids_and_states_are_exempt_in_their_places(text: str, findings: int) -> None:
    """Replay handles ids, tokens and states by itself, where they stand in a whole message."""
    assert len(found(text)) == findings
