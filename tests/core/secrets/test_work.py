"""The search for secrets takes steps in proportion to the text, whatever the text is.

Each text begins a match everywhere and ends none, in one of the layers that are searched.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from time import process_time

import pytest
from counting import steps

from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.secrets.sealed import find_states

REDACTOR = Redactor(RedactionRules(), lambda _rule, _secret: "T")
ByLength = Callable[[int], bytes]
LENGTH = 6_000
"""Bytes; steps are counted for a text of this length and for one that is four times as long."""

FIXED_STEPS = 10_000
"""Steps of a search that don't depend on the length of a text."""


def assert_linear(run: Callable[[bytes], object], text: ByLength) -> None:
    """Check that four times the text takes at most four times the steps, and a little."""
    run(text(LENGTH))  # automata are built once

    few = steps(lambda: run(text(LENGTH)))
    assert steps(lambda: run(text(4 * LENGTH))) <= 5 * few + FIXED_STEPS


def filled(begin: str, piece: str, end: str = "") -> ByLength:
    """Return a text of a given length whose middle consists of one piece."""
    return lambda length: (begin + piece * (length // len(piece)) + end).encode()


def nested(length: int) -> bytes:
    """Return JSON in JSON in JSON."""
    text = '{"apiKey":"x"}'
    while len(text) < length // 2:
        text = json.dumps([text])

    return text.encode()


def blobs(length: int) -> bytes:
    """Return base64 in base64 in base64."""
    text = b'{"blob":"cGFzc3dvcmQ9bWFkZS11cA=="}'
    while len(text) < length // 2:
        text = b'{"blob":"%s"}' % base64.b64encode(text)

    return text


FORM = "application/x-www-form-urlencoded"
BODIES: dict[str, tuple[str, ByLength]] = {
    "tokens": (
        "text/plain",
        filled("", "ghp_Fake0NotReal1MadeUp2Fake0NotReal1MadeUp2 "),
    ),
    "beginnings of tokens": ("text/plain", filled("", "-----BEGIN ")),
    "numbers beside a name": ("", filled('{"apiKey":"x","n":[', "0,", "0]}")),
    "short URLs": ("", filled("", "http://a.example/?a=%20&apiKey=b ")),
    "parameters": (FORM, filled("", "a=b%20c&apiKey=d&")),
    "deep JSON": ("", filled("", '{"a":[', '{"apiKey":"x"}')),
    "data lines": ("text/event-stream", filled("", "data: apiKey=x\n", "\n\n")),
    "names": ("text/plain", filled("", "password=")),
    "options that are items": (
        "",
        filled("[", '"curl","-u","--password","letters and", ', '"a:b"]'),
    ),
    "quoted names": ("text/plain", filled("", '"password":\'')),
    "backslashes": ("", filled('["', '\\\\\\"', 'password=x"]')),
    "percent": ("text/plain", filled("http://a.example/?password=", "%25")),
    "messages": ("", filled("", '{"id":1,"apiKey":"x"}\n')),
    "ids": ("", filled("{", '"id":"é",', '"password":"x"}')),
    "spaces": ("text/plain", filled("password", " ", "= x")),
    "nested strings": ("", nested),
    "hosts after a colon": ("text/plain", filled("http://a:b", "@c/", "@d.example")),
    "names and values": (
        "text/plain",
        filled("", "- name: PASSWORD\n  value: letters\n"),
    ),
    "one long setting": ("text/plain", filled("password: ", "a1", "\n")),
    "values in doubt": ("", filled('{"user":1', ',"pass":"letmein"', "}")),
    "parameters in doubt": (FORM, filled("", "pass=letmein&user=a&")),
    "blobs": ("", filled("[", '{"blob":"cGFzc3dvcmQ9bWFkZS11cA=="},', "1]")),
    "blobs in blobs": ("", blobs),
    "placeholders": ("text/plain", filled("", "<password:x>", "password=")),
    "fields of HTML": (
        "text/html",
        filled("", '<input type="hidden" name="password" '),
    ),
}
"""Bodies by name, each with its media type."""


@pytest.mark.parametrize("name", BODIES)
def test_each_body_takes_steps_in_proportion(name: str) -> None:
    """No text makes the search begin again and again at what it has looked at."""
    content_type, text = BODIES[name]

    assert_linear(lambda raw: REDACTOR.redacted_body(raw, content_type), text)


def test_names_in_one_long_line_are_searched_in_a_moment() -> None:
    """A pattern that looks at the rest of a line at each name takes no step that is counted."""
    begin = process_time()
    REDACTOR.redacted_body(b"password=" * 40_000, "text/plain")

    assert process_time() - begin < 5


def test_many_states_in_one_body_are_found_in_proportion() -> None:
    """States under their name are found in one walk."""
    assert_linear(
        find_states, lambda length: b'{"requestState":"abc"}\n' * (length // 22)
    )
