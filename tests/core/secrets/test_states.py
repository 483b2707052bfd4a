from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus, unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mrtr_cassette.core.secrets.credentials import KnownStates
from mrtr_cassette.core.secrets.sealed import as_recorded, find_states, seal_states, sealed_hash


def sealed(raw: bytes, *states: str, most: int = 256) -> bytes:
    """Replace states that are known."""
    known = KnownStates(most)
    for state in states:
        known.remember(state)
    return known.seal(raw)


@pytest.mark.parametrize(("state", "is_found"), [("c" * 23, False), ("c" * 24, True)])
def test_short_state_is_left_where_it_may_be_a_word(state: str, is_found: bool) -> None:  # noqa: FBT001
    """A state that may be an ordinary word is not looked for in other text."""
    assert (
        sealed(f'"is {state}"'.encode(), state) == f'"is {sealed_hash(state)}"'.encode()
    ) is is_found


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


@example(f"begin{'9' * 24}\\", 0, False, "", "0")
@given(STATES, st.integers(0, 2), st.booleans(), st.text(max_size=4), st.text(max_size=4))
def test_known_state_is_found_in_every_layer(
    state: str,
    layers: int,
    ensure_ascii: bool,  # noqa: FBT001
    before: str,
    after: str,
) -> None:
    """However deep in strings of JSON a state is repeated, it is replaced and the rest stays."""
    text, expected = before + state + after, before + sealed_hash(state) + after
    for _ in range(layers):
        text = json.dumps(text, ensure_ascii=ensure_ascii)
        expected = json.dumps(expected, ensure_ascii=ensure_ascii)

    raw = text.encode("utf-8", "surrogatepass")
    assert sealed(raw, state) == expected.encode("utf-8", "surrogatepass")


@given(STATES, st.sampled_from(["", "/", "/:", "~!*'()"]), st.booleans())
def test_known_state_is_found_in_a_url(state: str, safe: str, plus: bool) -> None:  # noqa: FBT001
    """However a state is percent-encoded, it is replaced by its percent-encoded sealed_hash."""
    spelled = quote_plus(state, safe) if plus else quote(state, safe)

    target = sealed(f"/x?state={spelled}&y=%20".encode(), state).decode()

    assert unquote(target) == f"/x?state={sealed_hash(state)}&y= "


_RUN = st.text(alphabet="ab", min_size=5, max_size=20)
_STATES = st.lists(
    st.lists(_RUN, min_size=1, max_size=4).map("+".join), min_size=1, max_size=8, unique=True
)


@given(states=_STATES, most=st.integers(1, 8), data=st.data())
def test_states_are_found_as_if_each_were_looked_for(
    states: list[str], most: int, data: st.DataObject
) -> None:
    """Whatever stands around and between them, the longest is replaced first."""
    parts = st.sampled_from(states) | st.text(alphabet="ab. ", max_size=20)
    raw = "".join(data.draw(st.lists(parts, max_size=8))).encode()
    expected = raw
    for state in sorted(states[-most:], key=len, reverse=True):
        expected = sealed(expected, state)
    assert sealed(raw, *states, most=most) == expected


# The states that are known


def test_only_the_last_states_are_known() -> None:
    """The oldest state is forgotten when there are too many; the others are still replaced."""
    states = [f"{number}-state-of-a-conversation-{number}" for number in range(3)]
    shortish = '"' * 30
    known = KnownStates(most=3)
    for state in (states[0], shortish, states[1], states[1], states[2]):
        known.remember(state)

    assert len(known) == 3
    assert list(known) == [shortish, states[1], states[2]]
    assert states[0] not in known
    assert known.seal_text(" ".join(states)) == (
        f"{states[0]} {sealed_hash(states[1])} {sealed_hash(states[2])}"
    )
    assert known.seal_text(shortish) == sealed_hash(shortish)
    known.remember("another-state-of-a-conversation")
    assert known.seal_text(shortish) == shortish


def test_state_of_a_live_server_is_replaced_as_the_recorded_one() -> None:
    """A state that a live server issued again gets the sealed hash of the recorded one."""
    known = KnownStates()
    known.remember("issued-by-the-live-server", "recorded-before")

    assert known.seal(b"is issued-by-the-live-server") == (
        b"is " + sealed_hash("recorded-before").encode()
    )
