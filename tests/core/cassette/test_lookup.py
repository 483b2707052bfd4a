from __future__ import annotations

import json
from typing import Any

import pytest
from builders import post, retry, tool, with_id
from hypothesis import given
from hypothesis import strategies as st
from messages import NO, YES, Json

from mrtr_cassette.core.cassette.lookup import (
    CallerValues,
    LookupKey,
    caller_values,
    digest_and_values_of_body,
    digest_without_caller_values,
    lookup_key,
)
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, TOKEN_PATH, message_in
from mrtr_cassette.core.secrets.names import sealed_hash, sha256_of
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.core.wire.pointers import pointer_path

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
OTHER = {"action": "accept", "content": {"ok": False}}


def key_of(request: bytes | Request, *ignored: str) -> LookupKey:
    """Return the lookup key of a request."""
    request = request if isinstance(request, Request) else post(request)
    return lookup_key(
        read_call(request), [pointer_path(pointer) for pointer in ignored]
    )


def test_retry_is_told_apart_by_its_answers_and_its_state() -> None:
    """A retry is the same call as the first request, and another for each answer and each state."""
    requests = [
        CALL,
        retry(CALL, {"a": YES}),
        retry(CALL, {"a": NO}),
        retry(CALL, {"b": YES}),
        retry(CALL, {"a": YES}, state=STATE),
        retry(CALL, {"a": YES}, state=f"{STATE}-2"),
        retry(CALL, state=STATE),
    ]

    keys = [key_of(request) for request in requests]

    assert {key.call for key in keys} == {key_of(CALL).call}
    assert len(set(keys)) == len(requests)
    assert key_of(with_id(retry(CALL, {"a": YES}), "another")) == keys[1]


@pytest.mark.parametrize(
    ("state", "sha256"),
    [
        (STATE, sha256_of(STATE)),
        (sealed_hash(STATE), sha256_of(STATE)),
        (sealed_hash(STATE).replace(":", "%3A"), sha256_of(STATE)),
        ("", sha256_of("")),
    ],
)
def test_state_is_compared_by_hash(state: str, sha256: str) -> None:
    """A sealed hash is compared as the state that it stands for."""
    assert key_of(retry(CALL, state=state)).state == sha256


@pytest.mark.parametrize(
    ("answers", "other"),
    [
        ({"a": {"value": 1}}, [{"id": "a", "value": 1}]),
        ({}, []),
        ({"": "x"}, "x"),
        ([{"id": "", "value": 1}], [{"value": 1}]),
    ],
)
def test_shape_of_answers_counts(answers: Json, other: Json) -> None:
    """A map is neither an array of the same answers, nor anything else."""
    assert key_of(retry(CALL, answers)) != key_of(retry(CALL, other))
    assert key_of(retry(CALL, answers, state=STATE)) != key_of(
        retry(CALL, other, state=STATE)
    )


# What differs every time

SPELLED = b'{"jsonrpc":"2.0","id":%b,"method":"tools/call","params":{"name":"a","_meta":{%b}}}'


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","method":"m","params":{"id":1}}',
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"id":1}}',
        b'{"jsonrpc":"2.0","\\u0069d":1,"method":"m","params":{"id":2}}',
        b'{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"progressToken":2}}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\\"id\\"","b":"\\"id"}}',
    ],
)
def test_what_may_be_another_member_is_not_cut(body: bytes) -> None:
    """Where the key stands for something else too, a glance is not enough."""
    message = message_in(body)

    assert message is not None
    assert digest_without_caller_values(message) is None
    assert caller_values(message) == CallerValues(
        message.spelled(ID_PATH), message.spelled(TOKEN_PATH)
    )


@pytest.mark.parametrize(
    "value", [b"01", b"1.0", b'"\n"', b'"\xff"', b'"\\n"', b"null", b"[1]", b'"a"b']
)
def test_what_is_no_plain_value_is_not_cut(value: bytes) -> None:
    """An id that is no JSON, or that has more than one spelling, is not cut out at a glance."""
    assert digest_and_values_of_body(SPELLED % (value, b"")) is None


@pytest.mark.parametrize(
    ("params", "token"),
    [
        (b'{"_meta":{"progressToken":1.50}}', b"1.50"),
        (b'{"_meta":{"progressToken":1},"_meta":{"progressToken":2}}', b"2"),
        (b'{"_meta":{"progressToken":null}}', None),
        (b'{"_meta":{"progressToken":true}}', None),
        (b'{"_meta":{"progressToken":{"a":1}}}', None),
        (b'{"_meta":{"progressToken":1},"_meta":{}}', None),
        (b'{"_meta":{"progressToken":1},"_meta":null}', None),
    ],
)
def test_token_is_an_effective_string_or_number(
    params: bytes, token: bytes | None
) -> None:
    """A token of another type, or one that a duplicate key overrules, is nobody's to echo."""
    message = message_in(b'{"jsonrpc":"2.0","id":1,"method":"m","params":%b}' % params)

    assert caller_values(message) == CallerValues(b"1", token)


names = st.sampled_from(["id", "progressToken", "a", "name", "_meta", "params"])
inner = st.one_of(
    st.integers(-3, 3), st.sampled_from(["id", '"id":1', "x", "progressToken"])
)
members = st.dictionaries(
    names, st.one_of(inner, st.dictionaries(names, inner)), max_size=4
)
values = st.one_of(st.integers(-3, 99), st.sampled_from(["", "x", "id"]))


@given(members, values, values, st.sampled_from(["with", "without"]))
def test_bodies_with_the_same_rest_are_the_same_call(
    params: dict[str, Any], identity: int | str, new_identity: int | str, token: str
) -> None:
    """A body that has a digest and one with the same rest ask for the same."""
    has_token = token == "with"
    if has_token:
        params = {**params, "_meta": {"progressToken": identity}}

    tree = {"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": params}
    body = json.dumps(tree).encode()
    message = message_in(body)

    assert message is not None

    cut = digest_and_values_of_body(body)
    if cut is None or digest_without_caller_values(message) is None:
        return

    assert cut[1] == caller_values(message)

    if has_token:
        params = {**params, "_meta": {"progressToken": new_identity}}

    again = json.dumps({**tree, "id": new_identity, "params": params}).encode()
    cut_again = digest_and_values_of_body(again)

    assert cut_again is not None
    assert cut_again[0] == cut[0]

    first = read_call(Request("POST", "/", (), body))
    second = read_call(Request("POST", "/", (), again))

    assert lookup_key(first) == lookup_key(second)
    assert first.traits() == second.traits()
    assert cut_again[1] == caller_values(second.message)
