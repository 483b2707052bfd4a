from __future__ import annotations

import hashlib
import json

import pytest

from mrtr_cassette.core.seal import (
    KnownState,
    placeholder,
    reveal,
    reveal_text,
    seal_broken,
    session_surrogate,
    sha256_of,
    state_surrogate,
)

STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJl"


def test_hash_is_that_of_the_text() -> None:
    """A state is hashed as UTF-8, lone surrogates included."""
    assert sha256_of("é") == hashlib.sha256("é".encode()).hexdigest()
    assert len(sha256_of("\ud800")) == 64
    assert placeholder("é") == f"sha256:{sha256_of('é')}"


@pytest.mark.parametrize(
    "state",
    [
        STATE,
        '{"step": 1, "of": "twenty-four"}',
        "é" * 24,
        '{"é/": "quotes and accents"}',
        "line\nbreak and some more text",
        "\ud800" * 24,
    ],
    ids=["plain", "json", "accents", "both", "control", "surrogates"],
)
def test_long_state_is_replaced_in_every_spelling(state: str) -> None:
    """A state is found with and without ASCII escapes, inside other text too."""
    escaped = json.dumps({"log": f"state is {state}!"}).encode()
    plain = json.dumps({"log": state}, ensure_ascii=False).encode("utf-8", "surrogatepass")

    assert (
        KnownState(state).seal(escaped) == b'{"log": "state is %s!"}' % placeholder(state).encode()
    )
    assert KnownState(state).seal(plain) == b'{"log": "%s"}' % placeholder(state).encode()


def test_state_with_escaped_slashes_is_replaced() -> None:
    r"""A state is found where its slashes are spelled `\/`, as PHP spells them."""
    state = "ab/cd/" * 8
    raw = json.dumps({"log": state}).replace("/", "\\/").encode()

    assert b"cd" not in KnownState(state).seal(raw).replace(placeholder(state).encode(), b"")


def test_short_state_is_left_where_it_may_be_a_word() -> None:
    """A state that may be an ordinary word is not looked for in other text."""
    raw = b'"the call is confirmed"'

    assert KnownState("confirmed").seal(raw) == raw
    assert not KnownState("confirmed").is_searched

    longer = raw.replace(b"confirmed", b"c" * 24)
    assert KnownState("c" * 24).seal(longer) == raw.replace(
        b"confirmed", placeholder("c" * 24).encode()
    )


def test_state_in_json_inside_a_string_is_replaced() -> None:
    """A state is found in text that is JSON itself, as logs and tool results often are."""
    state = '{"step": "1/2", "of": "\u00e9\u00e9\u00e9"}'
    nested = json.dumps({"text": json.dumps({"log": state})}).encode()

    sealed = KnownState(state).seal(nested)

    assert json.loads(json.loads(sealed)["text"]) == {"log": placeholder(state)}


@pytest.mark.parametrize(
    ("raw", "sealed", "state"),
    [
        (b'{"requestState":"abc', b'{"requestState":"%s', "abc"),
        (b'{"requestState" : "abc","x":1', b'{"requestState" : "%s","x":1', "abc"),
        (b'{"requestState":"a\\"b\\\\","x', b'{"requestState":"%s","x', 'a\\"b\\\\'),
        (b'{"requestState":"', None, None),
        (b'{"requestState":5', None, None),
        (b"<html>", None, None),
    ],
)
def test_state_of_an_ask_that_broke_off_is_replaced(
    raw: bytes, sealed: bytes | None, state: str | None
) -> None:
    """In a body that can't be read, what stands under `requestState` is taken for one."""
    expected = raw if sealed is None or state is None else sealed % placeholder(state).encode()

    assert seal_broken(raw) == (expected, state)


def test_sealed_state_is_not_sealed_again() -> None:
    """What stands under `requestState` and is a placeholder already stays one."""
    raw = b'{"requestState":"%s"' % placeholder("abc").encode()

    assert seal_broken(raw)[0] == raw


def test_placeholder_gives_way_to_its_surrogate() -> None:
    """Placeholders with a surrogate are replaced, and others stay."""
    known, other = placeholder("known"), placeholder("other")
    surrogates = {sha256_of("known"): "S1"}

    assert reveal(f"<{known}|{other}>".encode(), surrogates.get) == f"<S1|{other}>".encode()
    assert reveal_text(f"<{known}|{other}>", surrogates.get) == f"<S1|{other}>"


def test_surrogate_depends_on_call_occurrence_and_turn() -> None:
    """The same place in a conversation has the same surrogate, and another place another."""
    one = state_surrogate("call", 1, 1)

    assert one == state_surrogate("call", 1, 1)
    assert (
        len(
            {
                one,
                *(
                    state_surrogate(*place)
                    for place in (("other", 1, 1), ("call", 2, 1), ("call", 1, 2))
                ),
            }
        )
        == 4
    )
    assert session_surrogate(1) != session_surrogate(2)


def test_surrogate_of_a_call_with_a_lone_surrogate_is_derived() -> None:
    """A call whose name is no Unicode text has a surrogate like any other."""
    assert state_surrogate("tools/call\n\ud800", 1, 1).startswith("mrtr-state:")
