from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.secrets.names import (
    compared_sha256,
    occurrence_in,
    renumber_secrets,
    reveal_states,
    sealed_hash,
    session_surrogate,
    sha256_of,
    state_surrogate,
    without_numbers,
    without_rules,
)
from mrtr_cassette.core.secrets.sealed import find_states, find_task_ids, seal_states

# Placeholders


def test_tokens_become_numbers() -> None:
    """Each placeholder of a rule that exists gets its number, spelled as it was."""
    asked = []

    def number(rule: str, token: str) -> int:
        asked.append((rule, token))
        return len(asked)

    raw = b"\xff<password:ab-1> %3Cjwt:x%3E %3cjwt%3Ax%3e <custom-12:z> <custom-key:k> <div:1> <password:> <password>"

    assert renumber_secrets(raw, number) == (
        b"\xff<password:1> %3Cjwt:2%3E %3cjwt%3A3%3e <custom-12:4> <custom-key:5> <div:1> <password:> <password>"
    )
    assert (
        " ".join(map("=".join, asked))
        == "password=ab-1 jwt=x jwt=x custom-12=z custom-key=k"
    )


def test_numbers_can_be_left_out() -> None:
    """Which secret of a rule it was doesn't show, nor how the placeholder was spelled."""
    assert (
        without_numbers('"\\u003cjwt:1\\u003e \\\\u003Cjwt:2\\\\u003E"')
        == '"<jwt> <jwt>"'
    )

    assert without_numbers(
        "<password:1> %3Cpassword:T%3E %3Cjwt%3A2%3E <div:1> <custom-2:x>"
    ) == ("<password> <password> <jwt> <div:1> <custom-2>")
    assert without_rules("<jwt> <custom-2> <div>") == "<> <> <div>"


def test_placeholder_without_a_number_keeps_its_token() -> None:
    """It may be text that only looks like a placeholder."""
    raw = "<jwt:a> é <jwt:b>"

    assert (
        renumber_secrets(raw, lambda _rule, token: 1 if token == "b" else None)
        == "<jwt:a> é <jwt:1>"
    )


@pytest.mark.parametrize("opening", ["<", "%3C", "%3c", "\\u003c", "\\\\u003C"])
@pytest.mark.parametrize("closing", [">", "%3E", "\\u003e"])
def test_placeholder_is_found_in_each_spelling(opening: str, closing: str) -> None:
    """Both ends may be escaped, each in its own way."""
    text = f"a{opening}jwt:5{closing}b{opening}div:5{closing}"

    assert without_numbers(text) == f"a<jwt>b{opening}div:5{closing}"
    assert renumber_secrets(text, lambda _rule, _token: 7) == text.replace(
        "jwt:5", "jwt:7"
    )


def test_numbers_can_be_left_out_of_bytes() -> None:
    """Bytes that are no text stay as they are."""
    assert (
        without_numbers(b"\xff\xc3<jwt:1>\x80 %3Cjwt:2%3E")
        == b"\xff\xc3<jwt>\x80 <jwt>"
    )


# Surrogates


def test_hash_is_that_of_the_text() -> None:
    """A state is hashed as UTF-8, lone surrogates included."""
    assert sha256_of("é") == hashlib.sha256("é".encode()).hexdigest()
    assert len(sha256_of("\ud800")) == 64
    assert sealed_hash("é") == f"sha256:{sha256_of('é')}"


def test_what_a_client_sends_is_sealed_as_it_was_recorded() -> None:
    """A state and its sealed hash are compared alike."""
    assert (
        compared_sha256("abc")
        == compared_sha256(sealed_hash("abc"))
        == sha256_of("abc")
    )


def test_sealed_hash_is_replaced_by_its_surrogate() -> None:
    """Sealed hashes with a surrogate are replaced, and others stay."""
    known = sealed_hash("known")
    unknown = sealed_hash("other")
    surrogates = {sha256_of("known"): "S1"}
    sealed = f"<{known}|{unknown}>"
    revealed = f"<S1|{unknown}>"

    assert reveal_states(sealed.encode(), surrogates.get) == revealed.encode()
    assert reveal_states(sealed, surrogates.get) == revealed

    in_url = known.replace(":", "%3A")

    assert reveal_states(f"?s={in_url}", {sha256_of("known"): "S:1"}.get) == "?s=S%3A1"


def test_surrogate_tells_call_occurrence_and_turn() -> None:
    """Another place in a conversation has another surrogate, which tells its occurrence."""
    call = sha256_of("call")
    another = sha256_of("other")
    surrogates = [
        state_surrogate(call, 1, 1),
        state_surrogate(another, 1, 1),
        state_surrogate(call, 12, 1),
        state_surrogate(call, 1, 2),
        state_surrogate(call, 1, 1),
    ]

    assert len({*surrogates}) == 4
    assert [*map(occurrence_in, surrogates)] == [1, 1, 12, 1, 1]
    assert occurrence_in(surrogates[0] + "x") is None
    assert occurrence_in(sealed_hash("call")) is None
    assert session_surrogate(1) != session_surrogate(2)


def test_recorded_states_stand_in_json_as_json() -> None:
    """A state may be any text, such as JSON with quotes."""
    raw = b'{"state":"sha256:%b","url":"?s=sha256:%b"}' % (b"a" * 64, b"b" * 64)

    assert reveal_states(raw, {"a" * 64: '{"n":1}'}.get) == (
        b'{"state":"{\\"n\\":1}","url":"?s=sha256:%b"}' % (b"b" * 64)
    )


# States


@pytest.mark.parametrize(
    ("raw", "sealed", "states"),
    [
        (
            b'{"result":{"requestState":"abc"}}',
            b'{"result":{"requestState":"<abc>"}}',
            ["abc"],
        ),
        (
            b'[{"params":{"requestState":"a"}},{"result":{"requestState":"b"}}]',
            None,
            ["a", "b"],
        ),
        (
            b'{"result":{"requestState":"a"}}\n{"params":{"requestState":"b"}}\n',
            None,
            ["a", "b"],
        ),
        (
            b'{"result":{"requestState":"a\\"\\u00e9","x":"\xc3\xa9"}}',
            None,
            ['a"\u00e9'],
        ),
        # A member of another object is a state only where it repeats one that is no word.
        (b'{"params":{"arguments":{"requestState":"abc"}}}', None, []),
        (b'{"requestState":"abc"}', None, []),
        (
            b'{"result":{"requestState":"x1y2z","n":"{\\"requestState\\":\\"x1y2z\\"}"}}',
            None,
            ["x1y2z"] * 2,
        ),
        (
            b'{"result":{"requestState":"word","n":{"requestState":"word"}}}',
            None,
            ["word"],
        ),
        # What is no JSON is searched.
        (b'{"requestState":"abc', b'{"requestState":"<abc>', ["abc"]),
        (b'{"requestState" : "abc","x":1', b'{"requestState" : "<abc>","x":1', ["abc"]),
        (
            b'{"requestState":"a\\"b\\\\","x',
            b'{"requestState":"<a\\"b\\\\>","x',
            ['a"b\\'],
        ),
        (b'<p>{"requestState": "abc"}', b'<p>{"requestState": "<abc>"}', ["abc"]),
        (b'\xff"requestState":"a" "requestState":"b"', None, ["a", "b"]),
        (b'"[{\\"requestState\\":\\"a\\"}', b'"[{\\"requestState\\":\\"<a>\\"}', ["a"]),
        (b'{"result":{"requestState":""}}', b'{"result":{"requestState":"<>"}}', [""]),
        (b'{"requestState":"\\u0061/\xc3\xa9"', None, ["a/\xe9"]),
        # Where a message has it, its name and what is around it may be spelled in any way.
        (
            b'{"params":{"x":NaN,\n"requestState":\n"abc"}}',
            b'{"params":{"x":NaN,\n"requestState":\n"<abc>"}}',
            ["abc"],
        ),
        (
            b'{"result":{"requestState"/*x*/:"abc",}}',
            b'{"result":{"requestState"/*x*/:"<abc>",}}',
            ["abc"],
        ),
        (
            b'{"result":{"request\\u0053tate":"abc"}}',
            b'{"result":{"request\\u0053tate":"<abc>"}}',
            ["abc"],
        ),
        (b'{"params":{"request\\u0053tate":5,"x":NaN}}', None, []),
        (b'{"requestState":5', None, []),
        (b'{"requestState":["a"]}', None, []),
        (b'{"requestState":{"type":"string"}}', None, []),
        (b'["requestState","a"]', None, []),
        (b'{"a":"requestState","b":"requestState: x"}', None, []),
        (b"<html>", None, []),
    ],
)
def test_state_is_what_stands_under_its_name(
    raw: bytes, sealed: bytes | None, states: list[str]
) -> None:
    """A state is found where MCP has it, and at any depth in what broke off and is no JSON."""
    assert [place.state for place in find_states(raw)] == states

    if sealed is not None:
        assert seal_states(raw, lambda state: f"<{state}>") == sealed

    assert seal_states(raw, lambda state: state) == raw, (
        "a state that stays, as it is spelled"
    )


def test_ids_of_tasks_are_found_where_mcp_has_them() -> None:
    """A client may listen to several; what a tool calls so is another value, as short ones are."""
    raw = b'{"params": {"arguments": {"taskId": "1"}, "notifications": {"taskIds": ["1","x", "2"]}}}'

    assert [place.state for place in find_task_ids(raw, {"1", "2"})] == ["1", "2"]
    assert (
        find_task_ids(b'{"result": {"structuredContent": {"taskId": "1"}}}', {"1"})
        == []
    )


MEMBERS = st.sampled_from(["requestState", "taskId", "n"])
VALUES = st.recursive(
    st.sampled_from(["s-1", "s-2", 'q"1', '{"requestState": "s-1"}', 7]),
    lambda inner: st.dictionaries(MEMBERS, inner, max_size=3),
    max_leaves=6,
)


@given(
    params=VALUES,
    result=VALUES,
    known=st.sets(st.sampled_from(["s-1", "s-2"])),
)
def test_states_don_t_depend_on_how_a_message_is_searched(
    params: Any, result: Any, known: set[str]
) -> None:
    """A member with an escape, which rules out the short way, changes no other member."""
    message = {"jsonrpc": "2.0", "id": 1, "params": params, "result": result}
    raw = json.dumps(message).encode()
    escaped = raw[:-1] + rb', "note": "\u0020"}'

    assert find_states(raw, known) == find_states(escaped, known)
