from __future__ import annotations

from urllib.parse import quote

import pytest
from core.secrets.planted import fill

from mrtr_cassette.core.secrets.rules import ActiveRules, RedactionRules
from mrtr_cassette.core.secrets.text_search import TextSearch
from mrtr_cassette.core.secrets.url_search import (
    FORM_QUERY,
    URL_QUERY,
    Query,
    credentials_in,
    inner_urls,
    secrets_in_query,
    urls_in,
)

SEARCH = TextSearch(ActiveRules(RedactionRules()))

TOKEN = fill(24)


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("see https://a.example/b?c=d, and http://b.", ["https://a.example/b?c=d", "http://b"]),
        ("://a x://b", ["x://b"]),
        ("<https://a.example/(b)>", ["https://a.example/(b"]),
        ("x" * 40 + "://a.example", []),
        ("https://a.example/?u=https://b.example", ["https://a.example/?u=https://b.example"]),
    ],
)
def test_urls_are_found_by_their_schemes(text: str, urls: list[str]) -> None:
    """A URL ends where a reader would end it."""
    assert [text[start:end] for start, end in urls_in(text)] == urls


@pytest.mark.parametrize(
    ("url", "inner"),
    [
        ("https://a.example/?u=b", []),
        ("https://a.example/?u=https://b.example/c", ["https://b.example/c"]),
        (
            "https://a.example/?u=http://b.example&v=ws://c.example/d",
            ["http://b.example&v=", "ws://c.example/d"],
        ),
    ],
)
def test_urls_within_a_url_reach_to_the_next(url: str, inner: list[str]) -> None:
    """Each is searched as a URL of its own, however many stand in a row."""
    text = f"see {url} there"
    spans = inner_urls(text, 4, 4 + len(url))
    assert [text[start:end] for start, end in spans] == inner


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
    assert [text[start:end] for start, end in credentials_in(text)] == secrets


@pytest.mark.parametrize(
    ("url", "query", "secrets"),
    [
        ("/a?api_key=x%20y&b=c#password=z", URL_QUERY, ["x y", "z"]),
        ("/a?api%5Fkey=x", URL_QUERY, ["x"]),
        ("password=x+y&a=%7B%22secret%22%3A1%7D", FORM_QUERY, ["x y", "1"]),
        ("/a?pass=letmein&pin=12", URL_QUERY, []),
        ("/a?pass=letmein&user=b&pin=1234", URL_QUERY, ["letmein", "1234"]),
        ("/a?code=made-up1&code=made-up2", URL_QUERY, []),
        ("/a?code=made-up1&state=b", URL_QUERY, ["made-up1"]),
        ("/a?token=abc&page_token=" + TOKEN, URL_QUERY, []),
        ("/a?q=" + TOKEN, URL_QUERY, []),
        ("/a?d={%22secret%22:1}&e={a&f=[1]", URL_QUERY, ["1"]),
    ],
)
def test_parameters_are_searched(url: str, query: Query, secrets: list[str]) -> None:
    """A parameter's name, and the names of others, tell what its value is."""
    assert [finding.plain for finding in secrets_in_query(url, query, SEARCH, 3)] == secrets


def test_parameter_is_found_if_it_is_escaped_up_to_five_times() -> None:
    """Each escape hides what it spells from the one before (docs/security.md)."""
    spelled = "api_key=made-up/1"
    for _ in range(5):
        spelled = quote(spelled, safe="")
        found = SEARCH.in_value(f"https://a.example/?u={spelled}")

        assert [finding.plain for finding in found] == ["made-up/1"]
