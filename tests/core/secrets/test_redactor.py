"""What is a secret in which text, told by the interface of the redactor."""

from __future__ import annotations

import base64
import json

import pytest
from core.secrets.planted import BASIC, armoured, fill

from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules

TOKEN = fill(24)


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
    return asked


@pytest.mark.parametrize(
    ("text", "secrets"),
    [
        ("https://nobody:made-up@a.example/b", ["made-up"]),
        ("redis://:made-up@127.0.0.1:6379", ["made-up"]),
        ("postgres://app:m@de@db/app", ["m@de"]),
        ("postgres://app:m@de/up@db.example.com/app", ["m@de/up"]),
        ("postgres://app:made/up@db:5432/app", ["made/up"]),
        ("postgres://app:made?up#1@localhost", ["made?up#1"]),
        ("postgres://app:pw@db/app?email=a@b.example", ["pw"]),
        ("mysql://app:m@d/e@up@db/app", ["m@d/e@up"]),
        ("redis://app:1/made@db/0 mongodb+srv://app:a/b@db", ["1/made", "a/b"]),
        ("amqp://${USER}:${PASSWORD}@mq amqp://guest@mq amqp://mq/a:b@c", []),
        ("https://s3cr3tT0k3n@a.example https://web3developer@a.example", ["s3cr3tT0k3n"]),
        ("https://" + "letters" * 4 + "@a.example", ["letters" * 4]),
        ("https://u:p@a.example/@scope/b@c.example", ["p"]),
        (f"https://{TOKEN}@a.example", [TOKEN]),
        (f"https://{TOKEN}:@a.example", [TOKEN]),
        (f"https://{TOKEN}:x-oauth-basic@a.example", [TOKEN]),
        (f"https://{TOKEN}:made-up@a.example", ["made-up"]),
        ("a://b:c@d.example e://f:g@h.example", ["c", "g"]),
        ("https://a.example/?u=https://b:c@d.example", ["c"]),
        ("https://nobody@a.example ssh://git@a.example/b", []),
        ("http://localhost:8080/a:b@c.example", []),
        ("https://a.example:443/@user?x=a@b.example", []),
        ("https://a.example/x:y@b.example", []),
        ("https://u:${PASSWORD}@a.example https://u:{{a}}@b", []),
        ("docker://alpine:3.19@sha256:0123", []),
        ("file://c:/pictures/a@2x.png file://a:b/c@v1.2", []),
        ("https://u:@a.example https://:@a.example https://@a.example", []),
        ("https:// https://a", []),
        ("http://[::1]:8080/x?y=a@b.example", []),
        ("redis://localhost:6379/0?owner=a@b.example", []),
    ],
)
def test_passwords_are_read_as_people_write_them(text: str, secrets: list[str]) -> None:
    """A password may have an `@` or a `/`, and a port, a path and a template are none."""
    assert [secret for _, secret in secrets_of(text)] == secrets


@pytest.mark.parametrize(
    ("text", "kind", "secrets"),
    [
        ("/a?api_key=x%20y&b=c#password=z", "target", ["x y", "z"]),
        ("/a?api%5Fkey=x", "target", ["x"]),
        ("password=x+y&a=%7B%22secret%22%3A1%7D", "form", ["x y", "1"]),
        ("/a?pass=letmein&pin=12", "target", []),
        ("/a?pass=letmein&user=b&pin=1234", "target", ["letmein", "1234"]),
        ("/a?code=made-up1&code=made-up2", "target", []),
        ("/a?code=made-up1&state=b", "target", ["made-up1"]),
        (f"/a?token=abc&page_token={TOKEN}", "target", []),
        (f"/a?q={TOKEN}", "target", []),
        ("/a?d={%22secret%22:1}&e={a&f=[1]", "target", ["1"]),
        (f"https://a.example/?key={TOKEN}&z=1 /b?code={TOKEN}", "text", [TOKEN, TOKEN]),
        ("https://a.example/?key=home&code=US&key=2026-11-23", "text", []),
    ],
)
def test_parameters_are_searched(text: str, kind: str, secrets: list[str]) -> None:
    """A parameter's name, and the names of others, tell what its value is."""
    assert [secret for _, secret in secrets_of(text, kind)] == secrets


@pytest.mark.parametrize(
    ("text", "secrets"),
    [
        ('{"p\\u0061ssword":"se\\ncret"}', ["se\ncret"]),
        ('{"secret":12.5,"other":7}', ["12.5"]),
        ('{"secret":["a",["b"],{"c":"d"},5]}', ["a"]),
        ('{"secret":{"c":"d"},"x":"y"}', []),
        ('{"dependentRequired":{"secret":["other"]},"secret":"a"}', ["a"]),
        ('{"secret":[\n  "a",\n  "b"\n]}', ["a", "b"]),
        ('{"secret":["a", \\"b"]} {"secret":[\'c\']}', ["a"]),
        ('{"secret":true}', []),
        ('{"name":"secret","value":"a"}', ["a"]),
        ('[{"id":"secret","type":"b","value":5},{"id":"b","value":"a"}]', ["5"]),
        ('{"name":"secret","other":"a"}', []),
        ('{"secret":{"type":"a","value":"b"}}', ["b"]),
        ('{"secret":{"a":{"value":"b"}}}', []),
        ('["name","secret","value","a"]', []),
        ('{"secret":1, 2,-3e5\n,"password":4}', ["1", "4"]),
        ('{}}{"secret":"a"}', ["a"]),
        ('{"secret":"cut o', ["cut o"]),
        ('{"user password":"a b","\\u0022secret":"x"}', ["a b", "x"]),
        ('{"pin":"1234","code":1234}', ["1234"]),
        ('{"pin":1234,"otp":4321}', ["4321"]),
        ('{"pin":1234,"user":"u"}', ["1234"]),
        ('{"pass":"letmein"}', []),
        ('{"pass":"let\\u006dein","user":"u"}', ["letmein"]),
        ('{"pass":"letmein","a":{"user":"u"}}', []),
        ('{"user":"u","a":{"b":{}},"pass":"letmein"}', ["letmein"]),
        ('{"user":"u","pass":"letmein', ["letmein"]),
        ('{"user":"u","pass":"pass"}', []),
        ('{"user":"u","email":"e","pass":"letmein","pin":1234}', ["letmein", "1234"]),
        ('[{"name":"pin","value":"1234"},{"pin":{"value":"1234"}}]', ["1234"]),
        (f'{{"token":"{fill(16)}","auth":"{fill(20)}"}}', [fill(16), fill(20)]),
        (f'{{"progressToken":"{TOKEN}","tokens":"{TOKEN}","author":"{TOKEN}"}}', []),
        ('{"a":"{\\u0022password\\u0022:\\u0022x y\\u0022}"}', ["x y"]),
    ],
)
def test_values_are_found_by_their_names(text: str, secrets: list[str]) -> None:
    """A name makes strings and numbers directly under it secrets, also those in an array."""
    assert [secret for _, secret in secrets_of(text)] == secrets
    nested = [secret for _, secret in secrets_of(json.dumps({"text": text}))]
    assert nested == secrets
    assert [secret for _, secret in secrets_of(json.dumps(json.dumps([text])))] == secrets


@pytest.mark.parametrize(
    ("text", "secrets"),
    [
        ("DB_PASSWORD=hunter2", ["hunter2"]),
        ('api_key: "a b"', []),
        ("password: hunter22", ["hunter22"]),
        ("password: enter", []),
        ("password=$PASSWORD", []),
        ("token: none", []),
        ("password='x", ["x"]),
        ("password=a(b)", []),
        ("password=password=password=x y", ["password=password=x"]),
    ],
)
def test_values_are_found_in_settings_and_prose(text: str, secrets: list[str]) -> None:
    """What a name is given in other text is a secret unless it is known to be none."""
    for _ in range(4):
        assert [secret for _, secret in secrets_of(text)] == secrets
        text = json.dumps({"text": text})


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


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"curl --cookie sid={TOKEN} https://a.example", f"sid={TOKEN}"),
        ("ALTER ROLE app WITH PASSWORD 'made up';", "made up"),
        (f"EAA{'Gm0PX4ZCpsBAKZCZBZA1Z'[:18]}{'Fake0NotReal' * 10}", None),
        (
            "https://6fa459ea-ee8a-3ca4-894e-db77e160355e@a.example/1",
            "6fa459ea-ee8a-3ca4-894e-db77e160355e",
        ),
        ("user\tpassword\nnobody\thunter2\n", "hunter2"),
    ],
)
def test_secrets_of_commands_tables_and_statements(text: str, secret: str | None) -> None:
    """What people paste has its secrets where its format says, as text and in JSON."""
    secret = text if secret is None else secret
    assert [found for _, found in secrets_of(text)] == [secret]
    assert [found for _, found in secrets_of(json.dumps({"text": text}))] == [secret]


@pytest.mark.parametrize(
    "text",
    [
        "mysql -p app; docker run -p 8080:80 nginx; ssh -p 2222 host; redis-cli -a; tar -pxf a",
        "curl -b cookies.txt https://a.example; curl -b jar https://a.example",
        "id,password_hash,name\n1,2,3\n",
        "Enter user, password, and host\nthen press enter, wait, and go\n",
        "aws configure set region eu-west-1",
        "IDENTIFIED BY PASSWORD; identified by '?' and identified by '${PW}'",
        "| field | type |\n|---|---|\n| password | string |\n",
    ],
)
def test_other_commands_and_tables_stay(text: str) -> None:
    """The same options mean other things to other commands."""
    assert secrets_of(text) == secrets_of(json.dumps({"text": text})) == []
