from __future__ import annotations

import re
from pathlib import Path

import pytest
from builders import (
    changed,
    get,
    notification,
    post,
    retry,
    rpc,
    tool,
    with_meta,
    with_token,
)
from messages import CAPABILITIES_KEY, CLIENT_KEY, NO, VERSION_KEY, YES, compact

from mrtr_cassette.core.cassette.lookup import lookup_key
from mrtr_cassette.core.protocol.calls import (
    CallKey,
    read_call,
    session_ids_in_target,
    session_in,
    session_of,
    without_session,
)
from mrtr_cassette.core.protocol.methods import METHODS, Method, method_of
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.core.wire.jsonbytes import MemberPath

DEPLOY = tool("deploy", env="prod", replicas=3)


def key(request: bytes | Request, *ignored: MemberPath) -> CallKey:
    """Return the call key of a request."""
    return read_call(post(request) if isinstance(request, bytes) else request).key(
        ignored
    )


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
    assert key(rpc("tasks/get", {"taskId": "t"})).name == "t"
    assert (
        key(rpc("skills/get", {"uri": "skill://a/SKILL.md"})).name
        == "skill://a/SKILL.md"
    )
    assert key(rpc("other", {"name": "p"})).name == ""


@pytest.mark.parametrize(
    "request_",
    [
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
    """Endpoint, method, name and all params count towards the key."""
    assert key(request_) != key(DEPLOY)


def call(name: str, **params: object) -> bytes:
    """Return a call of a tool with further params."""
    return rpc("tools/call", {"name": name, **params})


def cancelled(request_id: object, reason: str) -> bytes:
    """Return a cancellation."""
    return notification("notifications/cancelled", requestId=request_id, reason=reason)


def answered(result: object) -> bytes:
    """Return a posted answer."""
    return compact({"jsonrpc": "2.0", "id": 7, "result": result})


LISTED = rpc("tools/list", {"cursor": "1"})
LISTED_WITH = b'{"jsonrpc":"2.0","id":7,"method":"tools/list","params":%b}'
OTHER_WITH = LISTED_WITH.replace(b"tools", b"x")
NO_PARAMS = (
    b"null",
    b"[]",
    b"[ ]",
    b"{}",
    b'{"cursor":null}',
    b'{"cursor":null,"_meta":null}',
)
"""What clients send where others leave the params out."""

RESULT = b'{"jsonrpc":"2.0","id":%d,"result":{}}'
HUGE = b"[1e%b]"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        # Absent, empty and null `arguments` are the same; anything else is not.
        (tool("a"), call("a"), True),
        (call("a", arguments=None), call("a"), True),
        (call("a", arguments=[]), call("a"), False),
        (call("a", arguments=False), call("a"), False),
        (call("a", arguments={"x": None}), call("a"), False),
        # Where a method has no name, all of `params` is compared.
        (LISTED, rpc("tools/list", {"cursor": "2"}), False),
        (rpc("tools/list"), rpc("tools/list", {}), True),
        *[
            (LISTED_WITH % no_params, rpc("tools/list"), True)
            for no_params in NO_PARAMS
        ],
        *[(OTHER_WITH % no_params, rpc("x/list"), True) for no_params in NO_PARAMS],
        (LISTED_WITH % b'"x"', rpc("tools/list"), False),
        (rpc("x/set", {"to": None}), rpc("x/set"), False),
        # The id that a cancellation names is the caller's own, and so is its reason.
        (cancelled(1, "r"), cancelled("x", "s"), True),
        # A body that is no call is compared as JSON where it is JSON, else by its bytes.
        (b'[{"a":1}]', b'[ {"a": 1.0} ]', True),
        (b"\xff\x00", b"\xff\x01", False),
        (b"", b" ", False),
        (b"hello", b'"hello"', False),
        (RESULT % 1, RESULT % 2, False),
        (HUGE % (b"9" * 5_000), HUGE % (b"9" * 5_001), False),
        # Some clients write null where others leave a member of an answer out.
        (
            answered({"action": "decline"}),
            answered({"action": "decline", "content": None}),
            True,
        ),
        (answered({"a": {"b": None}}), answered({"a": {}}), True),
    ],
)
def test_calls_are_compared_by_what_they_mean(
    one: bytes,
    other: bytes,
    same: bool,  # noqa: FBT001
) -> None:
    """Params count by value, answers without null members, and other bodies whole."""
    assert (key(one) == key(other)) is same


AT: MemberPath = ("arguments", "at")
IN_ANSWER: MemberPath = ("content", "at")
EARLY = answered({"action": "accept", "content": {"at": 1}})
LATE = answered({"action": "accept", "content": {"at": 2}})
ERROR = compact({"jsonrpc": "2.0", "id": 7, "error": {"code": -1, "message": "no"}})


@pytest.mark.parametrize(
    ("one", "other", "ignored", "same"),
    [
        (tool("log", at=1, text="x"), tool("log", at=2, text="x"), AT, True),
        (tool("log", at=1, text="x"), tool("log", at=1, text="y"), AT, False),
        (tool("log", at=1), tool("log"), AT, True),
        (tool("log", at=1), call("log"), AT, True),
        (rpc("m", {"arguments": {"at": 1}}), rpc("m"), AT, False),
        (EARLY, LATE, IN_ANSWER, True),
        (EARLY, LATE, ("result",), False),
        (ERROR, ERROR, IN_ANSWER, True),
    ],
)
def test_ignored_members_are_no_part_of_the_key(
    one: bytes,
    other: bytes,
    ignored: MemberPath,
    same: bool,  # noqa: FBT001
) -> None:
    """A pointer begins at the params, or at the result that a client posts."""
    assert (key(one, ignored) == key(other, ignored)) is same
    assert one == ERROR or key(one) != key(other)


@pytest.mark.parametrize(
    "request_",
    [
        post(DEPLOY),
        post(notification("n", requestState="S")),
        post(b"opaque"),
        get("/mcp"),
    ],
)
def test_only_requests_are_retries(request_: Request) -> None:
    """A request with answers or a state is a retry; what a client posts as a response is none."""
    assert read_call(request_).answers is None
    assert read_call(post(retry(DEPLOY, {"ok": YES}))).answers is not None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"summary": 1, "ok": YES}, {"summary": 2, "ok": YES}, True),
        ({"summary": 1, "ok": YES}, {"summary": 1, "ok": NO}, False),
        ([{"id": "summary", "value": 1}], [{"id": "summary", "value": 2}], True),
        (
            {"a": {"content": None, "action": "x"}},
            {"a": {"action": "x"}, "b": None},
            True,
        ),
        ([{"id": "a", "value": None}], [{"id": "a"}], True),
        ({"a": [None]}, {"a": []}, False),
    ],
)
def test_retries_are_compared_by_their_answers(
    one: object,
    other: object,
    same: bool,  # noqa: FBT001
) -> None:
    """Answers count by value, in both spellings, without those that are null or ignored."""

    def slot(answers: object) -> object:
        call = read_call(post(retry(DEPLOY, answers)))
        return lookup_key(call, [("inputResponses", "summary")])

    assert (slot(one) == slot(other)) is same


def test_empty_answers_equal_none_beside_a_state() -> None:
    """With a state an empty map of answers equals none; alone it makes the retry."""
    retries = (
        retry(DEPLOY, {}, state="S"),
        retry(DEPLOY, {"a": None}, state="S"),
        retry(DEPLOY, state="S"),
    )
    slots = {lookup_key(read_call(post(request))) for request in retries}

    assert len(slots) == 1
    assert read_call(post(retry(DEPLOY, {}))).answers is not None


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
        ("is_conditional", post(FULL, ("if-none-match", ""))),
        ("empty_members_text", post(changed(FULL, "params", "name", to=""))),
        ("empty_members_text", post(changed(FULL, "params", "arguments", to={}))),
        ("empty_members_text", post(changed(FULL, "params", "arguments", to=None))),
        ("empty_members_text", post(changed(FULL, "params", "cursor", to=None))),
        ("has_progress_token", post(FULL.replace(b"progressToken", b"x"))),
        ("capabilities", post(FULL.replace(b"elicitation", b"sampling"))),
        ("protocol_version", post(FULL.replace(b"2026-07-28", b"2027-01-01"))),
        ("protocol_version", post(FULL, ("MCP-Protocol-Version", "2026-07-28"))),
        ("further_headers", post(FULL, ("Mcp-Name", "deploy"))),
        ("further_headers", post(FULL, ("MCP-Param-Region", "eu"))),
        ("further_headers", post(FULL, ("Access-Control-Request-Method", "POST"))),
        ("accepted", post(FULL, ("Accept", "text/event-stream"))),
    ],
)
def test_trait_tells_equal_calls_apart(trait: str, other: Request) -> None:
    """Each trait changes with what a server may answer differently by, and only it does."""
    full = read_call(post(FULL)).traits()
    differing = read_call(other).traits()

    assert full.has_progress_token

    found = [
        name for name in full._fields if getattr(full, name) != getattr(differing, name)
    ]

    assert found[0] == trait
    assert set(found[1:]) <= {"weights", "spellings"}


INITIALIZE = rpc(
    "initialize",
    {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "c"},
        "x": 1,
    },
)


def test_initialize_has_its_client_as_traits() -> None:
    """Version and capabilities are traits, the client is the caller, and the rest is the key."""
    call = read_call(post(INITIALIZE))
    later = read_call(
        post(
            rpc(
                "initialize",
                {
                    "protocolVersion": "2024-11-05",
                    "capabilities": {"roots": {}},
                    "x": 1,
                },
            )
        )
    )

    assert call.key() == later.key()
    assert call.key().arguments == '{"x":1}'
    assert (call.traits().capabilities, call.traits().protocol_version) == (
        "{}",
        '"2025-11-25" ',
    )

    assert later.traits().protocol_version == '"2024-11-05" '
    assert call.caller == ' {"clientInfo":{"name":"c"}}' != later.caller


def test_headers_that_the_user_named_are_a_trait() -> None:
    """They are compared by name and value, in any order and spelling of the name."""
    headers = (("X-B", "2"), ("x-a", "1"), ("X-C", "3"))
    call = read_call(post(FULL, *headers))

    assert call.traits().named_headers == ()
    assert call.traits({"x-a", "x-b"}).named_headers == (("x-a", "1"), ("x-b", "2"))
    assert call.traits() == call.traits({"x-d"})


@pytest.mark.parametrize(
    ("headers", "contradiction"),
    [
        ((), ""),
        ((("Mcp-Method", "tools/call"), ("Mcp-Name", "deploy")), ""),
        ((("Mcp-Name", "=?base64?ZGVwbG95?="),), ""),
        ((("Mcp-Method", "tools/list"),), "Mcp-Method: tools/list"),
        ((("Mcp-Method", "tools/call"), ("mcp-name", "drop")), "Mcp-Name: drop"),
        ((("Mcp-Name", "=?base64?ZHJvcA==?="),), "Mcp-Name: drop"),
    ],
)
def test_header_that_contradicts_the_body_makes_another_key(
    headers: tuple[tuple[str, str], ...], contradiction: str
) -> None:
    """A server refuses such a request, so it is not the same call."""
    call = read_call(post(DEPLOY, *headers))

    assert call.contradicting_header == contradiction
    assert (call.key() == key(DEPLOY)) is (not contradiction)


def test_traits_ignore_what_varies_between_runs() -> None:
    """The token's value, client and trace make no trait; client and the like make the caller."""
    again = changed(
        with_token(FULL, "other"), "params", "_meta", "traceparent", to="00-2"
    )
    stranger = changed(again, "params", "_meta", CLIENT_KEY, to={"name": "d"})
    first = read_call(post(FULL))
    second = read_call(post(again))
    of_stranger = read_call(post(stranger))

    assert first.traits() == second.traits() == of_stranger.traits()
    assert first.caller == second.caller != of_stranger.caller
    assert (first.client, of_stranger.client) == ('{"name":"c"}', '{"name":"d"}')
    assert read_call(post(DEPLOY)).client == read_call(get("/mcp")).client == ""
    assert read_call(post(FULL, ("Mcp-Session-Id", "s"))).caller != first.caller


# Sessions in headers and in the URLs of HTTP+SSE

HASH = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("target", "session"),
    [
        ("/messages/?session_id=mrtr-session%3A12", "mrtr-session:12"),
        ("/messages/mrtr-session:3", "mrtr-session:3"),
        (f"/messages?sessionId=sha256%3A{HASH}", f"sha256:{HASH}"),
        ("/messages?sessionId=4711", ""),
    ],
)
def test_session_is_found_in_a_url(target: str, session: str) -> None:
    """Surrogates and hashes are found, percent-encoded or not; anything else is no session."""
    assert session_in(target) == session
    assert session_of(post(b"", target=target)) == session


def test_header_comes_before_the_url() -> None:
    """A request with a session header is in that session."""
    request = post(b"", ("Mcp-Session-Id", "s"), target="/?session_id=mrtr-session:1")

    assert session_of(request) == "s"


def test_urls_differ_in_everything_but_the_session() -> None:
    """All sessions have the same URL, and a hash under another name is no session."""
    urls = [
        "/m?session_id=mrtr-session%3A1",
        "/m?session_id=mrtr-session:22",
        f"/m?session_id=sha256:{HASH}",
    ]

    assert {without_session(url) for url in urls} == {"/m?session_id=mrtr-session"}
    assert without_session("/m?session_id=4711") == "/m?session_id=4711"
    assert without_session(f"/blobs/sha256:{HASH}") == f"/blobs/sha256:{HASH}"


@pytest.mark.parametrize(
    ("target", "ids"),
    [
        ("/messages/?session_id=0f9d8c7b6a5e4d3c", ["0f9d8c7b6a5e4d3c"]),
        (
            "/m?sessionId=0f9d8c7b-6a5e4d3c&v=1&t=0123456789abcdefg",
            ["0f9d8c7b-6a5e4d3c", "0123456789abcdefg"],
        ),
        ("/m/0f9d8c7b6a5e4d3c2b/post", ["0f9d8c7b6a5e4d3c2b"]),
        ("/conversation-messages", []),
        ("/messages?transport=sse&session=4711", ["4711"]),
        ("/v2/s3/messages/a7?tenant=5&client=1", ["a7"]),
        ("/v2/s3/messages?tenant=5&client=1", []),
    ],
)
def test_ids_in_the_url_that_a_server_gives(target: str, ids: list[str]) -> None:
    """A session id is long, or has a name or a digit that the stream's own target has not."""
    spans = session_ids_in_target(target, "/v2/s3/sse?client=1")

    assert [target[span.start : span.end] for span in spans] == ids


# The table of methods


def test_method_that_is_in_no_table_is_a_write() -> None:
    """Nothing names it, and it asks for nothing."""
    assert method_of("made/up/list") == method_of("") == Method("other")


def test_events_and_interceptors_are_in_the_table() -> None:
    """A stream of events is one to which a client listens; what makes a webhook is a write."""
    events = {
        name: method for name, method in METHODS.items() if name.startswith("events/")
    }

    assert [name for name, method in events.items() if method.listens] == [
        "events/stream"
    ]

    writes = [name for name, method in events.items() if not method.reads]

    assert writes == ["events/subscribe", "events/unsubscribe"]
    assert [name for name, method in events.items() if not method.named_by] == [
        "events/list"
    ]
    assert method_of("interceptors/list").reads
    assert not method_of("interceptor/invoke").reads


def test_the_guide_lists_the_methods_that_read() -> None:
    """Users find there which calls may be repeated."""
    guide = Path(__file__).parents[3] / "docs" / "matching.md"
    listed = re.search(
        "^- a method that only reads: (.*);$",
        guide.read_text(encoding="utf-8"),
        re.MULTILINE,
    )

    assert listed is not None

    reading = {name for name, method in METHODS.items() if method.reads}

    assert {*re.findall("`(.*?)`", listed[1])} == reading, "change docs/matching.md"
