from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrtr_cassette.core.exchange.caller_values import (
    CallerValues,
    caller_values,
    can_be_cut,
    cut_body,
)
from mrtr_cassette.core.exchange.lookup import lookup_key
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, TOKEN_PATH, classify
from mrtr_cassette.core.wire.http import Request

CALL = b'{"jsonrpc":"2.0","id":%b,"method":"tools/call","params":{"name":"a","_meta":{%b}}}'


@pytest.mark.parametrize("identity", [b"7", b"-1", b'"call-1"', b'""'])
@pytest.mark.parametrize("token", [None, b"7", b'"t"'])
def test_own_values_are_cut_out(identity: bytes, token: bytes | None) -> None:
    """Requests that differ in id and progress token only have the same rest, and their own values."""
    meta = b"" if token is None else b'"progressToken":%b'
    one, other = CALL % (identity, meta and meta % token), CALL % (b"99", meta and meta % b"98")
    cut, other_cut = cut_body(one), cut_body(other)

    assert cut is not None
    assert other_cut is not None
    assert cut[0] == other_cut[0]
    assert cut[1] == CallerValues(identity, token) == caller_values(classify(one))


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
    message = classify(body)

    assert message is not None
    assert not can_be_cut(message)
    assert caller_values(message) == CallerValues(
        message.spelled(ID_PATH), message.spelled(TOKEN_PATH)
    )


@pytest.mark.parametrize(
    "value", [b"01", b"1.0", b'"\n"', b'"\xff"', b'"\\n"', b"null", b"[1]", b'"a"b']
)
def test_what_is_no_plain_value_is_not_cut(value: bytes) -> None:
    """An id that is no JSON, or that has more than one spelling, is not cut out at a glance."""
    assert cut_body(CALL % (value, b"")) is None


@pytest.mark.parametrize(
    ("params", "token"),
    [
        (b'{"_meta":{"progressToken":1.50}}', b"1.50"),
        (b'{"_meta":{"progressToken":1},"_meta":{"progressToken":2}}', b"2"),
        (b'{"_meta":{"progressToken":null}}', None),
        (b'{"_meta":{"progressToken":true}}', None),
        (b'{"_meta":{"progressToken":{"a":1}}}', None),
        (b'{"_meta":{"progressToken":[1]}}', None),
        (b'{"_meta":{"progressToken":1},"_meta":{}}', None),
        (b'{"_meta":{"progressToken":1},"_meta":null}', None),
    ],
)
def test_token_is_an_effective_string_or_number(params: bytes, token: bytes | None) -> None:
    """A token of another type, or one that a duplicate key overrules, is nobody's to echo."""
    message = classify(b'{"jsonrpc":"2.0","id":1,"method":"m","params":%b}' % params)

    assert caller_values(message) == CallerValues(b"1", token)


members = st.dictionaries(
    st.sampled_from(["id", "progressToken", "a", "name", "_meta", "params"]),
    st.recursive(
        st.one_of(st.integers(-3, 3), st.sampled_from(["id", '"id":1', "x", "progressToken"])),
        lambda inner: st.one_of(
            st.lists(inner, max_size=2),
            st.dictionaries(st.sampled_from(["id", "progressToken", "a"]), inner, max_size=2),
        ),
        max_leaves=4,
    ),
    max_size=4,
)
values = st.one_of(st.integers(-3, 99), st.sampled_from(["", "x", "id"]))


@given(members, values, values, st.sampled_from(["with", "without"]))
def test_bodies_with_the_same_rest_are_the_same_call(
    params: dict[str, Any], one: int | str, other: int | str, token: str
) -> None:
    """A body that `can_be_cut` and one with the same rest ask for the same."""
    has_token = token == "with"
    if has_token:
        params = {**params, "_meta": {"progressToken": one}}
    tree = {"jsonrpc": "2.0", "id": one, "method": "tools/call", "params": params}
    body = json.dumps(tree).encode()
    message = classify(body)
    assert message is not None
    cut = cut_body(body)
    if cut is None or not can_be_cut(message):
        return
    assert cut[1] == caller_values(message)
    token_spelled = None if message.progress_token is None else message.spelled(TOKEN_PATH)
    assert cut[1] == CallerValues(message.spelled(ID_PATH), token_spelled)
    if has_token:
        params = {**params, "_meta": {"progressToken": other}}
    again = json.dumps({**tree, "id": other, "params": params}).encode()
    cut_again = cut_body(again)
    assert cut_again is not None
    assert cut_again[0] == cut[0]
    first, second = (read_call(Request("POST", "/", (), raw)) for raw in (body, again))
    assert lookup_key(first) == lookup_key(second)
    assert first.traits == second.traits
    assert cut_again[1] == caller_values(second.message)
