from __future__ import annotations

import pytest
from builders import (
    changed,
    get,
    notification,
    post,
    retry,
    rpc,
    tool,
    with_id,
    with_meta,
    with_token,
)
from messages import CAPABILITIES_KEY, CLIENT_KEY, NO, VERSION_KEY, YES, compact

from mrtr_cassette.core.cassette.lookup import lookup_key
from mrtr_cassette.core.protocol.calls import CallKey, is_read_only, read_call
from mrtr_cassette.core.secrets.sealed import sha256_of
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.core.wire.jsonbytes import MemberPath

DEPLOY = tool("deploy", env="prod", replicas=3)


def key(request: bytes | Request, *ignored: MemberPath) -> CallKey:
    """Return the call key of a request."""
    return read_call(post(request) if isinstance(request, bytes) else request).key(ignored)


def test_key_names_the_call() -> None:
    """A key has endpoint, method, name and arguments, and reads as a person would say it."""
    assert key(DEPLOY) == (
        "POST /mcp",
        "tools/call",
        "deploy",
        '{"arguments":{"env":"prod","replicas":3}}',
    )
    assert str(key(DEPLOY)) == 'tools/call "deploy"'
    assert str(key(rpc("tools/list"))) == "tools/list"
    assert str(key(get("/mcp?x=1"))) == "GET /mcp?x=1"
    assert key(rpc("resources/read", {"uri": "file:///a"})).name == "file:///a"
    assert key(rpc("prompts/get", {"name": "p"})).name == "p"
    assert key(rpc("other", {"name": "p"})).name == ""


@pytest.mark.parametrize(
    "request_",
    [
        with_id(DEPLOY, "a"),
        with_token(DEPLOY, 7),
        with_meta(DEPLOY, traceparent="00-1", clientInfo={"name": "x"}),
        retry(DEPLOY, {"ok": YES}, state="S"),
        tool("deploy", replicas=3, env="prod"),
        DEPLOY.replace(b"3", b"3.0"),
        DEPLOY.replace(b"3", b"0.3e1"),
        DEPLOY.replace(b",", b" ,\n\t"),
        DEPLOY.replace(b'"prod"', b'"\\u0070rod"'),
        DEPLOY.replace(b'"env"', b'"env":"test","env"'),
    ],
)
def test_key_is_the_same_for_the_same_call(request_: bytes) -> None:
    """Id, `_meta`, answers, state and spelling don't count towards the key."""
    assert key(request_) == key(DEPLOY)


@pytest.mark.parametrize(
    "request_",
    [
        tool("deploy", env="test", replicas=3),
        tool("deploy", env="prod", replicas="3"),
        tool("deploy", env="prod", replicas=3, dry=None),
        tool("deploy", env="prod"),
        tool("undeploy", env="prod", replicas=3),
        tool("Deploy", env="prod", replicas=3),
        changed(DEPLOY, "method", to="prompts/get"),
        changed(DEPLOY, "params", "extra", to=1),
        changed(DEPLOY, "params", "name", to=5),
        post(DEPLOY, target="/other"),
        post(DEPLOY, target="/mcp?x=1"),
        Request("PUT", "/mcp", (), DEPLOY),
    ],
)
def test_key_differs_for_another_call(request_: bytes | Request) -> None:
    """Endpoint, method, name and every value of the arguments count towards the key."""
    assert key(request_) != key(DEPLOY)


def test_arguments_of_a_named_call_may_be_absent_empty_or_null() -> None:
    """Absent, empty and null `arguments` are the same; anything else is not."""
    absent = key(rpc("tools/call", {"name": "a"}))

    assert key(tool("a")) == absent
    assert key(rpc("tools/call", {"name": "a", "arguments": None})) == absent
    others: list[object] = [[], "", 0, False, {"x": None}]
    for other in others:
        assert key(rpc("tools/call", {"name": "a", "arguments": other})) != absent


def test_all_params_of_an_unnamed_call_count() -> None:
    """Where a method has no name, all of `params` is compared."""
    listed = key(rpc("tools/list", {"cursor": "1"}))

    assert key(rpc("tools/list", {"cursor": "2"})) != listed
    assert key(rpc("tools/list")) == key(rpc("tools/list", {}))
    assert key(rpc("tools/list", {"arguments": {}})) != key(rpc("tools/list"))


def test_cancelling_is_the_same_call_whatever_it_cancels() -> None:
    """The id that a cancellation names is the caller's own, and its reason is not."""
    one = notification("notifications/cancelled", requestId=1, reason="r")

    assert key(notification("notifications/cancelled", requestId="x", reason="r")) == key(one)
    assert key(notification("notifications/cancelled", requestId=1, reason="s")) != key(one)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (b'[{"a":1}]', b'[ {"a": 1.0} ]', True),
        (b'[{"a":1}]', b'[{"a":2}]', False),
        (b"\xff\x00", b"\xff\x00", True),
        (b"\xff\x00", b"\xff\x01", False),
        (b"", b" ", False),
        (b"hello", b'"hello"', False),
        (b"", b'""', False),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', b'{"jsonrpc":"2.0","id":2,"result":{}}', False),
        (b"[1e" + b"9" * 5_000 + b"]", b"[1e" + b"9" * 5_001 + b"]", False),
    ],
)
def test_opaque_bodies_are_compared_whole(one: bytes, other: bytes, same: bool) -> None:  # noqa: FBT001
    """A body that is no call is compared as JSON where it is JSON, else by its bytes."""
    assert (key(one) == key(other)) is same


def test_ignored_members_are_no_part_of_the_key() -> None:
    """What is ignored doesn't count; where nothing else is left, the arguments are empty."""
    at: MemberPath = ("arguments", "at")
    one, other = (tool("log", at=at_, text="x") for at_ in (1, 2))

    assert key(one) != key(other)
    assert key(one, at) == key(other, at)
    assert (
        key(tool("log", at=1), at)
        == key(tool("log"), at)
        == key(rpc("tools/call", {"name": "log"}), at)
    )
    assert key(tool("log", at=1, text="x"), at) != key(tool("log", at=1, text="y"), at)
    assert key(rpc("m", {"arguments": {"at": 1}}), at) != key(rpc("m"), at)


def test_retry_is_a_request_with_answers_or_state() -> None:
    """Only requests have answers; what a client posts as a response has none."""
    assert read_call(post(retry(DEPLOY, {"ok": YES}))).answers is not None
    assert read_call(post(DEPLOY)).answers is None
    assert read_call(post(notification("n", requestState="S"))).answers is None
    assert read_call(post(b"opaque")).answers is None
    assert read_call(get("/mcp")).answers is None


def test_slot_holds_state_by_hash_and_answers_by_value() -> None:
    """A retry is found by its call, the hash of its state and its canonical answers."""
    found = lookup_key(read_call(post(retry(DEPLOY, {"b": 1.0, "a": None}, state="S"))))

    assert found == (key(DEPLOY), sha256_of("S"), '{"inputResponses":{"b":1}}')
    assert lookup_key(read_call(post(DEPLOY))) == (key(DEPLOY), None, None)


def test_empty_answers_equal_none_beside_a_state() -> None:
    """With a state an empty map of answers equals none; alone it makes the retry."""

    def slot(request: bytes) -> object:
        return lookup_key(read_call(post(request)))

    assert slot(retry(DEPLOY, {}, state="S")) == slot(retry(DEPLOY, state="S"))
    assert slot(retry(DEPLOY, {"a": None}, state="S")) == slot(retry(DEPLOY, state="S"))
    assert slot(retry(DEPLOY, {})) != slot(DEPLOY)


def test_ignored_answers_are_no_part_of_the_slot() -> None:
    """An ignored answer doesn't count, in both spellings of answers."""
    ignored: list[MemberPath] = [("inputResponses", "summary")]

    def slot(answers: object) -> object:
        return lookup_key(read_call(post(retry(DEPLOY, answers, state="S"))), ignored)

    assert slot({"summary": 1, "ok": YES}) == slot({"summary": 2, "ok": YES})
    assert slot({"summary": 1, "ok": YES}) != slot({"summary": 1, "ok": NO})
    assert slot([{"id": "summary", "value": 1}]) == slot([{"id": "summary", "value": 2}])


def test_null_answer_equals_an_absent_one() -> None:
    """A member of the answers that is null equals an absent one, at any depth, in both spellings."""

    def slot(answers: object) -> object:
        return lookup_key(read_call(post(retry(DEPLOY, answers))))

    assert slot({"a": {"content": None, "action": "x"}}) == slot({"a": {"action": "x"}, "b": None})
    assert slot([{"id": "a", "value": None}]) == slot([{"id": "a"}])
    assert slot({"a": [None]}) != slot({"a": []})


FULL = with_meta(
    DEPLOY,
    **{
        "progressToken": 1,
        CAPABILITIES_KEY: {"elicitation": {}},
        VERSION_KEY: "2026-07-28",
        CLIENT_KEY: {"name": "c"},
        "traceparent": "00-1",
    },
)


@pytest.mark.parametrize(
    ("trait", "other"),
    [
        ("session", post(FULL, ("Mcp-Session-Id", "s"))),
        ("session", post(FULL, target="/mcp?session_id=mrtr-session:1")),
        ("is_authorized", post(FULL, ("authorization", ""))),
        ("empty_members", post(changed(FULL, "params", "name", to=""))),
        ("empty_members", post(changed(FULL, "params", "arguments", to={}))),
        ("empty_members", post(changed(FULL, "params", "arguments", to=None))),
        ("has_progress_token", post(FULL.replace(b"progressToken", b"x"))),
        ("capabilities", post(FULL.replace(b"elicitation", b"sampling"))),
        ("protocol_version", post(FULL.replace(b"2026-07-28", b"2027-01-01"))),
        ("protocol_version", post(FULL, ("MCP-Protocol-Version", "2026-07-28"))),
        ("further_headers", post(FULL, ("Mcp-Name", "deploy"))),
        ("further_headers", post(FULL, ("MCP-Param-Region", "eu"))),
        ("further_headers", post(FULL, ("Access-Control-Request-Method", "POST"))),
        ("accept", post(FULL, ("Accept", "text/event-stream"))),
    ],
)
def test_trait_tells_equal_calls_apart(trait: str, other: Request) -> None:
    """Each trait changes with what a server may answer differently by, and only it does."""
    one, two = read_call(post(FULL)).traits, read_call(other).traits
    assert one.has_progress_token

    assert [name for name in one._fields if getattr(one, name) != getattr(two, name)] == [trait]


INITIALIZE = rpc(
    "initialize",
    {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c"}, "x": 1},
)


def test_initialize_has_its_client_as_traits() -> None:
    """Version and capabilities are traits, the client is the caller, and the rest is the key."""
    call = read_call(post(INITIALIZE))
    other = read_call(
        post(
            rpc(
                "initialize",
                {"protocolVersion": "2024-11-05", "capabilities": {"roots": {}}, "x": 1},
            )
        )
    )

    assert call.key() == other.key()
    assert call.key().arguments == '{"x":1}'
    assert (call.traits.capabilities, call.traits.protocol_version) == ("{}", '"2025-11-25" ')
    assert other.traits.protocol_version == '"2024-11-05" '
    assert call.caller == ' {"clientInfo":{"name":"c"}}' != other.caller


def test_headers_that_the_user_named_are_a_trait() -> None:
    """They are compared by name and value, in any order and spelling of the name."""
    headers = (("X-B", "2"), ("x-a", "1"), ("X-C", "3"))
    call = read_call(post(FULL, *headers))

    assert call.traits.named_headers == ()
    assert call.traits_with({"x-a", "x-b"}).named_headers == (("x-a", "1"), ("x-b", "2"))
    assert call.traits_with(()) == call.traits == call.traits_with({"x-d"})


@pytest.mark.parametrize(
    ("headers", "contradiction"),
    [
        ((), ""),
        ((("Mcp-Method", "tools/call"), ("Mcp-Name", "deploy")), ""),
        ((("Mcp-Name", "=?base64?ZGVwbG95?="),), ""),
        ((("Mcp-Method", "tools/list"),), "Mcp-Method: tools/list"),
        ((("Mcp-Method", "tools/call"), ("mcp-name", "drop")), "Mcp-Name: drop"),
        ((("Mcp-Name", "=?base64?ZHJvcA==?="),), "Mcp-Name: =?base64?ZHJvcA==?="),
    ],
)
def test_header_that_contradicts_the_body_makes_another_key(
    headers: tuple[tuple[str, str], ...], contradiction: str
) -> None:
    """A server refuses such a request, so it is not the same call."""
    call = read_call(post(DEPLOY, *headers))

    assert call.contradiction == contradiction
    assert (call.key() == key(DEPLOY)) is (not contradiction)


def test_traits_ignore_what_varies_between_runs() -> None:
    """The token's value, client and trace make no trait; client and the like make the caller."""
    again = changed(with_token(FULL, "other"), "params", "_meta", "traceparent", to="00-2")
    stranger = changed(again, "params", "_meta", CLIENT_KEY, to={"name": "d"})
    one, two, three = (read_call(post(request)) for request in (FULL, again, stranger))

    assert one.traits == two.traits == three.traits
    assert one.caller == two.caller != three.caller
    assert (one.client, three.client) == ('{"name":"c"}', '{"name":"d"}')
    assert read_call(post(DEPLOY)).client == read_call(get("/mcp")).client == ""
    assert read_call(post(FULL, ("Mcp-Session-Id", "s"))).caller != one.caller


@pytest.mark.parametrize(
    ("method", "reads"),
    [
        ("server/discover", True),
        ("tools/list", True),
        ("resources/templates/list", True),
        ("initialize", True),
        ("resources/read", True),
        ("ping", True),
        ("tools/call", False),
        ("subscriptions/listening", False),
        ("list", False),
    ],
)
def test_reading_methods_change_nothing(method: str, reads: bool) -> None:  # noqa: FBT001
    """Methods that only read are known by name, or by their ending in `/list`."""
    assert is_read_only(method) is reads


def answered(result: object) -> bytes:
    """Return a posted answer."""
    return compact({"jsonrpc": "2.0", "id": 7, "result": result})


def test_null_in_a_posted_answer_is_as_good_as_absent() -> None:
    """Some clients write null where others leave a member out, in any depth of an answer."""
    declined = answered({"action": "decline"})

    assert key(declined) == key(answered({"action": "decline", "content": None}))
    assert key(declined) != key(answered({"action": "cancel"}))
    assert key(answered({"a": {"b": None}})) == key(answered({"a": {}}))


def test_ignored_member_of_a_posted_answer_is_named_from_its_result() -> None:
    """A pointer that leaves out a value begins at the result, and an error has none."""
    at = ("content", "at")
    early, late = (answered({"action": "accept", "content": {"at": each}}) for each in (1, 2))
    error = compact({"jsonrpc": "2.0", "id": 7, "error": {"code": -1, "message": "no"}})

    assert key(early) != key(late)
    assert key(early, at) == key(late, at)
    assert key(early, ("result",)) != key(late, ("result",))
    assert key(error, at) == key(error)
