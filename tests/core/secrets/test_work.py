"""What the search for secrets costs, counted in steps, whatever it searches."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from adversarial import OF_BODIES, ByLength, assert_linear, of_rules, steps
from patience import seconds

from mrtr_cassette.core.secrets.credentials import KnownStates
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.rules import RedactionRules
from mrtr_cassette.core.secrets.sealed import find_states

REDACTOR = Redactor(RedactionRules(), lambda _rule, _secret: "T")
LENGTH = 12_000
"""Bytes; steps are counted for a text of this length and for one that is four times as long."""


def assert_linear_by_length(run: Callable[[bytes], object], text: ByLength) -> None:
    """Check that the steps of a search grow with the length of a text only."""
    assert_linear(run, text(LENGTH), text(4 * LENGTH))


@pytest.mark.parametrize(("name", "text"), list(of_rules()), ids=lambda value: str(value)[:40])
def test_each_rule_takes_steps_in_proportion(name: str, text: ByLength) -> None:
    """No text makes a rule begin again and again at what it has looked at."""
    assert name
    assert_linear_by_length(lambda raw: REDACTOR.body(raw, "text/plain"), text)


@pytest.mark.parametrize("name", OF_BODIES)
def test_each_body_takes_steps_in_proportion(name: str) -> None:
    """The search takes steps in proportion to the length, in whatever layer secrets stand."""
    content_type, text = OF_BODIES[name]

    assert_linear_by_length(lambda raw: REDACTOR.body(raw, content_type), text)


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


def test_many_states_in_one_body_are_found_in_proportion() -> None:
    """States under their name are found in one walk."""
    assert_linear_by_length(
        find_states, lambda length: b'{"requestState":"abc"}\n' * (length // 22)
    )
