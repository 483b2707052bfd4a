"""Facts about users' functions: what they see of a request, and what they may change of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from builders import post, retry, rpc, tool
from hypothesis import given
from hypothesis import strategies as st
from messages import YES

from mrtr_cassette.core.protocol.hooks import (
    ClientRequest,
    MatchHook,
    RecordHook,
    request_for_hooks,
)
from mrtr_cassette.core.wire.http import Request, line_request
from mrtr_cassette.errors import HookError

CALL = tool("create", id="a", at=1)
TEXTS = st.text(max_size=5)
LEAVES = st.none() | st.booleans() | st.integers() | TEXTS
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=8
)


def kept(function: Any, request: Request) -> Request:
    """Return what a cassette has of a request."""
    changed = RecordHook(function).request_after_hook(request)
    assert changed is not None
    return changed


def test_a_function_sees_a_call_and_not_its_transport() -> None:
    """Arguments and answers are plain values, of whatever method; answers to pushes are not seen."""
    answered = request_for_hooks(post(retry(CALL, {"k": YES}, state="s")))
    expected = ClientRequest("tools/call", "create", {"id": "a", "at": 1}, {"k": YES})

    assert answered == expected
    assert replace(expected, answers=None) == request_for_hooks(
        line_request(CALL + b"\n")
    )

    params = {"uri": "file:///a", "_meta": {"progressToken": 1}, "n": 1.5}
    listed = request_for_hooks(post(rpc("resources/read", params)))

    assert listed == ClientRequest("resources/read", "file:///a", {"n": 1.5})
    assert listed.body == rpc("resources/read", params)
    assert request_for_hooks(post(b'{"jsonrpc":"2.0","id":1,"result":{}}')) is None
    assert request_for_hooks(post(b"[%b]" % CALL)) is None


@given(VALUES, VALUES, st.sampled_from(["arguments", "inputResponses"]))
def test_only_changed_values_are_written_anew(old: Any, new: Any, member: str) -> None:
    """Whatever stands at a place becomes what the function puts there, and all else keeps its bytes."""
    begins = b'{ "jsonrpc":"2.0", "id" : 1,"method":"tools/call","params":{"name":"t", '
    spelled = b'"%b": {"kept":[1.0, "\\u00e9"], "k" :' % member.encode()
    ends = b' , "end":1e0 }, "_meta":{"a" : 1}}}\n'
    body = begins + spelled + json.dumps(old).encode() + ends

    def changed(request: ClientRequest) -> ClientRequest:
        values = request.arguments if request.answers is None else request.answers
        values["k"] = new
        return request

    sent = kept(changed, post(body, ("Mcp-Param-k", "x"))).body

    assert sent.startswith(begins + spelled)
    assert sent.endswith(ends)

    value = json.loads(sent)["params"][member]["k"]

    assert json.dumps(value) == json.dumps(json.loads(json.dumps(new)))

    if json.dumps(old) == json.dumps(new):
        assert sent == body


def test_a_header_that_repeats_an_argument_goes_with_it() -> None:
    """Where arguments change, no header has the ones before."""
    request = post(CALL, ("Mcp-Param-Id", "a"), ("Mcp-Method", "tools/call"))

    def without(call: ClientRequest) -> ClientRequest:
        return replace(call, arguments={**call.arguments, "id": "b"})

    headers = kept(without, request).headers

    assert headers == post(b"", ("Mcp-Method", "tools/call")).headers
    assert kept(lambda call: call, request) is request


def raising(*_: ClientRequest) -> Any:
    """Fail as a function does that expects an argument."""
    raise KeyError("id")


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (raising, r"raising raised KeyError at line \d+ of test_hooks.py: 'id'"),
        (lambda _: 3, "<lambda> returned 3, and not a request or None"),
        (lambda call: replace(call, name="x"), "changed more than values of"),
        (lambda call: replace(call, answers={}), "changed more than values of"),
        (lambda call: replace(call, arguments={"id": {1}, "at": 1}), "is no JSON: "),
        (lambda _: call_of("tools/list"), "changed more than values of"),
    ],
)  # fmt: skip
def test_what_goes_wrong_has_the_name_of_the_function(
    function: Any, problem: str
) -> None:
    """The error says which function it was, and where it raised."""
    with pytest.raises(HookError, match=f"before_record: .*{problem}"):
        RecordHook(function).request_after_hook(post(CALL))


def call_of(method: str, **params: Any) -> ClientRequest:
    """Return a request as a function sees it."""
    request = request_for_hooks(post(rpc(method, params)))
    assert request is not None
    return request


def test_members_that_are_not_there_can_not_be_changed() -> None:
    """What would need another spelling of the params is refused with its place."""
    hook = RecordHook(lambda call: replace(call, arguments={"cursor": "c"}))
    with pytest.raises(HookError, match="changed /params, whose members stay"):
        hook.request_after_hook(post(rpc("tools/list", {})))

    with pytest.raises(HookError, match="changed /params/arguments, whose members"):
        hook.request_after_hook(post(rpc("tools/call", {"name": "t"})))


def test_a_match_is_true_or_false() -> None:
    """A function that forgets to return says nothing."""
    with pytest.raises(HookError, match="match: forgets returned None, and not True"):
        MatchHook(forgets).matches(post(CALL), post(CALL))

    same = MatchHook(lambda recorded, received: recorded.name == received.name)

    assert same.matches(post(CALL), post(tool("create")))
    assert not same.matches(post(CALL), post(tool("delete")))
    assert not same.matches(post(b"[]"), post(b"[]"))


def forgets(recorded: ClientRequest, received: ClientRequest) -> Any:
    """Forget to return what was found out."""
    _ = recorded.arguments["id"] == received.arguments["id"]
