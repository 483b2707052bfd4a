"""What the search for secrets costs, counted in steps, whatever it searches.

Each rule of the table has adversarial texts of its own: parts of a token of it, repeated, so that a
match begins everywhere and ends nowhere. Those of bodies are what has stood an event loop still.
"""

from __future__ import annotations

import base64
import json
import random
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from core.secrets.planted import IN_CONTEXT, SHAPES
from patience import seconds

from mrtr_cassette.core.secrets.credentials import KnownStates
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.secrets.sealed import find_states

REDACTOR = Redactor(RedactionRules(), lambda _rule, _secret: "T")
ByLength = Callable[[int], bytes]
LENGTH = 12_000
"""Bytes; steps are counted for a text of this length and for one that is four times as long."""
FIXED_STEPS = 10_000
"""Steps of a search that don't depend on the length of a text."""


def steps(run: Callable[[], object]) -> int:
    """Return how many lines are run and how many functions are called, Python's own included."""
    count = 0

    def traced(_frame: FrameType, _event: str, _what: Any) -> Any:
        nonlocal count
        count += 1
        return traced

    def profiled(_frame: FrameType, event: str, _what: Any) -> None:
        nonlocal count
        count += event == "c_call"

    before = sys.gettrace(), sys.getprofile()
    sys.setprofile(profiled)
    sys.settrace(traced)
    try:
        run()
    finally:
        sys.settrace(before[0])
        sys.setprofile(before[1])
    return count


def assert_linear(run: Callable[[bytes], object], text: ByLength) -> None:
    """Check that four times the text takes at most four times the steps, and a little."""
    run(text(LENGTH))  # automata are built once

    few = steps(lambda: run(text(LENGTH)))
    assert steps(lambda: run(text(4 * LENGTH))) <= 5 * few + FIXED_STEPS


def repeated(piece: str, end: str = "") -> ByLength:
    """Return a text of a given length that consists of one piece."""
    return lambda length: ((piece * (length // len(piece) + 1))[:length] + end).encode()


def near_misses(secret: str) -> Iterator[tuple[str, ByLength]]:
    """Yield what begins like a secret everywhere and is none, or is one everywhere."""
    yield "beginning", repeated(secret[: min(len(secret) // 2, 12)])
    yield "secret", repeated(secret + " ")


def of_rules() -> Iterator[tuple[str, ByLength]]:
    """Yield the adversarial texts of each rule, by name."""
    for number, (rule, secret) in enumerate(SHAPES):
        for name, text in near_misses(secret):
            yield f"{rule} {number} {name}", text
    for number, (rule, secret, text) in enumerate(IN_CONTEXT):
        for name, made in near_misses(text.format(secret)):
            yield f"{rule} context {number} {name}", made


def _base64url(length: int) -> bytes:
    return base64.urlsafe_b64encode(random.Random(1).randbytes(length))[:length]


def _prose(length: int) -> bytes:
    words = (
        "the quick brown fox jumps over the lazy dog and runs through the key-value store of a task"
    )
    chosen = random.Random(1).choices(words.split(), k=length // 4)
    return " ".join(chosen)[:length].encode()


def _filled(begin: str, piece: str, end: str) -> ByLength:
    return lambda length: (begin + piece * (length // len(piece)) + end).encode()


def _nested(length: int) -> bytes:
    text = '{"apiKey":"x"}'
    while len(text) < length // 2:
        text = json.dumps([text])
    return text.encode()


def _different_keys(length: int) -> bytes:
    keys = ",".join(f'"a{number:015}":1' for number in range(length // 20))
    return f'{{{keys},"apiKey":"x"}}'.encode()


def _blobs(length: int) -> bytes:
    text = b'{"blob":"cGFzc3dvcmQ9bWFkZS11cA=="}'
    while len(text) < length // 2:
        text = b'{"blob":"%s"}' % base64.b64encode(text)
    return text


OF_BODIES: dict[str, tuple[str, ByLength]] = {
    "prose": ("text/plain", _prose),
    "base64url": ("text/plain", _base64url),
    "base64url in JSON": (
        "application/json",
        lambda length: b'{"blob":"%s","apiKey":"x"}' % _base64url(length),
    ),
    "numbers beside a name": ("application/json", _filled('{"apiKey":"x","n":[', "0,", "0]}")),
    "literals beside a name": ("application/json", _filled('{"apiKey":"x","n":[', "true,", "0]}")),
    "short URLs": ("text/plain", repeated("http://a.example/?a=%20&apiKey=b ")),
    "short strings": ("application/json", _filled('["apiKey=x"', ',"http://a.b/%41"', "]")),
    "parameters": ("application/x-www-form-urlencoded", repeated("a=b%20c&apiKey=d&")),
    "deep JSON": ("application/json", _filled("", '{"a":[', '{"apiKey":"x"}')),
    "data lines": ("text/event-stream", _filled("", "data: apiKey=x\n", "\n\n")),
    "events": ("text/event-stream", repeated('data: {"apiKey":"x"}\n\n')),
    "dashes": ("text/plain", _filled("apiKey=x", "-", "")),
    "names": ("text/plain", repeated("password=")),
    "quoted names": ("text/plain", repeated('"password":\'')),
    "escapes": ("application/json", _filled('{"password":"', "\\u0061", '"}')),
    "backslashes": ("application/json", _filled('["', '\\\\\\"', 'password=x"]')),
    "percent": ("text/plain", _filled("http://a.example/?password=", "%25", "")),
    "messages": ("application/json", repeated('{"id":1,"apiKey":"x"}\n')),
    "spaces": ("text/plain", _filled("password", " ", "= x")),
    "nested strings": ("application/json", _nested),
    "credentials": ("text/plain", repeated("://a:b@c/d")),
    "slashes after a colon": ("text/plain", _filled("http://a:b", "/c", "@d.example")),
    "hosts after a colon": ("text/plain", _filled("http://a:b", "@c/", "@d.example")),
    "a database after a colon": ("text/plain", _filled("mysql://a:b", "@c/", "@d.example")),
    "names and values": ("text/plain", repeated("- name: PASSWORD\n  value: letters\n")),
    "values in settings": ("text/plain", repeated("value: a\n")),
    "tokens before hosts": ("text/plain", repeated("http://Fake0NotReal1Made@a.example ")),
    "settings": ("text/plain", repeated("api_key = made\npassword: hunter2\n")),
    "one long setting": ("text/plain", _filled("password: ", "a1", "\n")),
    "indented settings": ("text/plain", repeated(" password:\t")),
    "keys": ("application/json", _filled('{"a":"apiKey=x"', ',"key that is long":1', "}")),
    "keys with digits": (
        "application/json",
        _different_keys,
    ),
    "keys with secrets": ("application/json", _filled('{"a":1', ',"api_key=b":1', "}")),
    "values in doubt": ("application/json", _filled('{"user":1', ',"pass":"letmein"', "}")),
    "values without a companion": ("application/json", _filled("{", '"pass":"letmein",', '"a":1}')),
    "companions": (
        "application/json",
        _filled("{", '"user":"a","email":"b",', '"pass":"letmein"}'),
    ),
    "parameters in doubt": ("application/x-www-form-urlencoded", repeated("pass=letmein&user=a&")),
    "blobs": ("application/json", _filled("[", '{"blob":"cGFzc3dvcmQ9bWFkZS11cA=="},', "1]")),
    "one blob": (
        "application/json",
        lambda length: b'{"blob":"%s"}' % base64.b64encode(_prose(length * 3 // 4)),
    ),
    "blob of names": (
        "application/json",
        lambda length: b'{"blob":"%s"}' % base64.b64encode(b"password=a " * (length // 16)),
    ),
    "blobs in blobs": ("application/json", _blobs),
    "placeholders": ("text/plain", _filled("", "<password:x>", "password=")),
    "ids": ("application/json", _filled("{", '"id":"é",', '"password":"x"}')),
    "percent twice": ("text/plain", repeated("%2570assword%253Dx ")),
    "percent of percent": ("text/plain", repeated("%25252525")),
    "encoded URLs": ("text/plain", repeated("http%253A%252F%252Fa%253Ab%2540c ")),
    "fields of HTML": ("text/html", repeated('<input type="hidden" name="password" ')),
    "values of HTML": ("text/html", repeated('<input name="password" value="a"> ')),
}
"""Bodies by name, each with its media type."""


@pytest.mark.parametrize(("name", "text"), list(of_rules()), ids=lambda value: str(value)[:40])
def test_each_rule_takes_steps_in_proportion(name: str, text: ByLength) -> None:
    """No text makes a rule begin again and again at what it has looked at."""
    assert name
    assert_linear(lambda raw: REDACTOR.body(raw, "text/plain"), text)


@pytest.mark.parametrize("name", OF_BODIES)
def test_each_body_takes_steps_in_proportion(name: str) -> None:
    """The search takes steps in proportion to the length, in whatever layer secrets stand."""
    content_type, text = OF_BODIES[name]

    assert_linear(lambda raw: REDACTOR.body(raw, content_type), text)


@pytest.mark.parametrize("pattern", ["(?s)a.*b|a", "(a+)+$", "(?:a|aa)*c|a", "a*a*a*a*b|aa"])
@pytest.mark.timeout(seconds(60))
def test_no_pattern_of_a_user_hangs(pattern: str) -> None:
    """Whatever a pattern looks at before it settles for a short match, the search goes on."""
    redactor = Redactor(RedactionRules(patterns=(pattern,)), lambda _rule, _secret: "T")

    assert b"a" not in redactor.body(b"a" * 5_000, "text/plain").replace(b"custom-1", b"")


# States


@pytest.mark.timeout(seconds(60))
def test_many_states_are_looked_for_in_one_walk() -> None:
    """All states are looked for in the layers of a text, which are made once."""
    many, one = KnownStates(), KnownStates()
    for number in range(256):
        many.remember("=" * 24 + "/" * number)
    one.remember("=" * 24)
    raw = b"\\u003d%3d" * 10_000

    assert steps(lambda: many.seal(raw)) <= 2 * steps(lambda: one.seal(raw))


def test_states_that_are_nowhere_cost_nothing() -> None:
    """A text in which no known state stands is searched as fast for 256 of them as for one."""
    many, one = KnownStates(), KnownStates()
    for number in range(256):
        many.remember(f"{number:03}.{'state' * 30}{number:03}")
    one.remember("1." + "another" * 20)
    raw = b'{"protocolVersion": "2026-07-28", "clientCapabilities": {}, "name": "deploy"}'

    assert many.seal(raw) is raw
    assert steps(lambda: many.seal(raw)) == steps(lambda: one.seal(raw))


def test_many_states_in_one_body_are_found_in_proportion() -> None:
    """States under their name are found in one walk."""
    assert_linear(find_states, lambda length: b'{"requestState":"abc"}\n' * (length // 22))
