"""What is a secret in which text, told by the interface of the redactor."""

from __future__ import annotations

import base64
import json

import pytest
from core.secrets.planted import BASIC, JUDGED, armoured

from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import AMBIGUOUS, RedactionRules


def secrets_of(text: str, kind: str = "text") -> list[tuple[str, str]]:
    """Return rule and secret of all that is replaced in a text, in order, each once."""
    asked: list[tuple[str, str]] = []

    def remember(rule: str, secret: str) -> str:
        asked.append((rule, secret))
        return "T"

    redactor = Redactor(RedactionRules(), remember)
    match kind:
        case "target":
            redactor.target(text)
        case "form":
            redactor.body(text.encode(), "application/x-www-form-urlencoded")
        case "stream":
            redactor.body(text.encode(), "text/event-stream")
        case _:
            redactor.body(text.encode(), "application/json")
    return list(dict.fromkeys(asked))


@pytest.mark.parametrize(("kind", "secrets", "text"), JUDGED)
def test_secrets_are_told_from_what_stands_around_them(
    kind: str, secrets: list[str], text: str
) -> None:
    """Names, companions and places decide, in JSON and however deep in strings of JSON."""
    for _ in range(4 if kind == "json" else 1):
        assert [secret for _, secret in secrets_of(text, kind)] == secrets
        text = json.dumps({"text": text})


@pytest.mark.parametrize(
    "value", ["{{ token }}", "${TOKEN}", "<token>", "[a1b2c3d4]", "%(token1)s"]
)
def test_templates_are_no_secrets(value: str) -> None:
    """What stands for a value that is put in later is no secret under an ambiguous name."""
    text = json.dumps({**dict.fromkeys(AMBIGUOUS, value), "user": "u", "grant_type": "code"})

    assert secrets_of(text) == []


ENV = "HOST=db.example.com\nDB_PASSWORD=made-up\n"
DOCKER = json.dumps({"auths": {"registry.example.com": {"auth": BASIC}}})


@pytest.mark.parametrize(
    ("template", "inner"),
    [
        ('{"a":"%s"}', ENV),
        ("apiVersion: v1\ndata:\n  .dockerconfigjson: %s\n", DOCKER),
        ("users:\n- user:\n    client-key-data: %s\n", armoured("PRIVATE")),
        ("config=%s", armoured("RSA PRIVATE")),
    ],
)
def test_text_in_base64_is_a_secret_if_it_contains_one(template: str, inner: str) -> None:
    """It is replaced as a whole, wherever it stands; other base64 stays."""
    spelled = base64.b64encode(inner.encode()).decode()
    public = base64.b64encode(b"some words, and no more of them").decode()

    assert [secret for _, secret in secrets_of(template % spelled)] == [spelled]
    assert secrets_of(template % public) == []
