from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.secrets.sealed import as_recorded, find_states, seal_states


@pytest.mark.parametrize(
    ("raw", "sealed", "states"),
    [
        (b'{"requestState":"abc"}', b'{"requestState":"<abc>"}', ["abc"]),
        (b'[{"requestState":"a"},[{"requestState":"b"}]]', None, ["a", "b"]),
        (b'{"requestState":"a\\"\\u00e9","x":"\xc3\xa9"}', None, ['a"\u00e9']),
        (b'{"\xc3\xa9":"\xc3\xa9","request\\u0053tate":"\xc3\xa9"}', None, ["\u00e9"]),
        (b'"{\\"requestState\\":\\"a\\"}"', b'"{\\"requestState\\":\\"<a>\\"}"', ["a"]),
        (b'["[\\"{\\\\\\"requestState\\\\\\":\\\\\\"a\\\\\\"}\\"]"]', None, ["a"]),
        (b'{"requestState":"abc', b'{"requestState":"<abc>', ["abc"]),
        (b'{"requestState" : "abc","x":1', b'{"requestState" : "<abc>","x":1', ["abc"]),
        (b'{"requestState":"a\\"b\\\\","x', b'{"requestState":"<a\\"b\\\\>","x', ['a"b\\']),
        (b'<p>{"requestState": "abc"}', b'<p>{"requestState": "<abc>"}', ["abc"]),
        (b'\xff"requestState":"a" "requestState":"b"', None, ["a", "b"]),
        (b'{"requestState":""}', b'{"requestState":"<>"}', [""]),
        (b'{"requestState":5', None, []),
        (b'{"requestState":["a"]}', None, []),
        (b'{"requestState":{"type":"string"}}', None, []),
        (b'["requestState","a"]', None, []),
        (b'{"a":"requestState","b":"requestState: x"}', None, []),
        (b"<html>", None, []),
        (rb'log: {"requestState":"a"} "requestState\" or \u0072', rb'log: {"requestState":"<a>"} "requestState\" or \u0072', ["a"]),
    ],
)  # fmt: skip
def test_state_is_what_stands_under_its_name(
    raw: bytes, sealed: bytes | None, states: list[str]
) -> None:
    """A state is found at any depth, in what broke off and what is no JSON, and nothing else is."""
    assert [place.state for place in find_states(raw)] == states
    if sealed is not None:
        assert seal_states(raw, lambda state: f"<{state}>") == sealed
    assert seal_states(raw, lambda state: state).count(b"requestState") == raw.count(
        b"requestState"
    )


# Laws

STATES = st.text('aZ9"\\/é🔑\n +=%{', min_size=24, max_size=30).map(lambda text: f"begin{text}")
PLAIN = st.none() | st.integers() | st.text(max_size=5)


def with_states(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Make JSON values with states in some members, also in JSON in a string."""
    return st.recursive(
        inner | PLAIN,
        lambda deeper: (
            st.lists(deeper, max_size=3)
            | st.dictionaries(st.text(max_size=3), deeper, max_size=3)
            | st.dictionaries(st.just("requestState"), STATES, min_size=1)
            | deeper.map(lambda value: json.dumps([value]))
        ),
        max_leaves=8,
    )


@given(
    with_states(STATES.map(lambda state: {"x": 1, "requestState": state})),
    st.sampled_from(
        [
            lambda value: json.dumps(value).encode(),
            lambda value: json.dumps(value, ensure_ascii=False, indent=1).encode(),
            lambda value: json.dumps([value]).replace("/", "\\/").replace("S", "\\u0053").encode(),
            lambda value: (json.dumps(value) + "\n" + json.dumps([value])).encode(),
        ]
    ),
)
def test_no_state_under_its_name_survives(value: Any, spell: Callable[[Any], bytes]) -> None:
    """Wherever a state stands in JSON, it is gone, the rest stays, and sealing again is no change."""
    raw = spell(value)
    states = [place.state for place in find_states(raw)]

    sealed = seal_states(raw, as_recorded)

    assert seal_states(sealed, as_recorded) == sealed
    assert [as_recorded(state) for state in states] == [
        place.state for place in find_states(sealed)
    ]
    assert b"begin" not in sealed
    assert seal_states(raw, lambda state: state).count(b"begin") == raw.count(b"begin")
