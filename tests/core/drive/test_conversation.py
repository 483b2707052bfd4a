from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from builders import (
    Answer,
    FixedScript,
    answer,
    changed,
    exchange,
    follow,
    get,
    notification,
    post,
    push_on,
    refusal,
    respond,
    retry,
    rpc,
    show,
    sse,
    stream,
    tool,
    with_id,
)
from messages import (
    CAPABLE,
    YES,
    Json,
    array_asks,
    asks,
    compact,
    message,
    result,
    text,
)
from pushing import elicit

from mrtr_cassette.core.drive.conversation import (
    AskAnswer,
    AskedOtherwise,
    Conversation,
    FinishedCall,
    NeedsAnswers,
    ToolList,
    has_error,
    response_in_words,
)
from mrtr_cassette.core.drive.live_session import (
    BuiltInClient,
    ServerSession,
    is_modern,
    other_request_of_client,
    with_declared_kinds,
)
from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.record.pushes import OpenPush
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.record.sealing import ExchangeSealer
from mrtr_cassette.core.secrets.names import sealed_hash
from mrtr_cassette.core.wire.http import End, Request

CALL = tool("deploy", env="prod")
SESSION = ("Mcp-Session-Id", "session-0123456789")
PUSHED = elicit("push-1")


def session(session_id: str = "") -> ServerSession:
    """Return a session with a live server."""
    return ServerSession(Recorder(ExchangeSealer(seals_states=True)), session_id)


refusing = partial(AskedOtherwise, changes=())


def talk(
    *replies: Any, request: Request | None = None
) -> tuple[Conversation, FixedScript]:
    """Return a conversation in which these are the replies to asks, and its script."""
    script = FixedScript(*replies)
    return Conversation(request or post(CALL), script, session()), script


def test_answers_go_with_the_live_state_of_the_ask() -> None:
    """Each retry has the answers to the last ask, its state byte for byte, and an id of its own."""
    first = 'live "state" {1}'
    second = "another live state"
    conversation, _ = talk(
        AskAnswer(b'{"a":1E2}'), AskAnswer(None), request=post(retry(CALL, {"x": YES}))
    )
    sent = follow(
        conversation, asks("a", state=first), asks(state=second), text("done")
    )
    bodies = [json.loads(request.body) for request in sent]
    members = ["inputResponses", "requestState"]

    assert [[body["params"].get(name) for name in members] for body in bodies] == [
        [None, None],
        [{"a": 100.0}, first],
        [None, second],
    ]

    assert len({body["id"] for body in bodies}) == 3
    assert isinstance(conversation.stopping_point, FinishedCall)
    assert conversation.stopping_point.turn == 3


def test_script_sees_an_ask_as_it_would_be_recorded() -> None:
    """What a script compares has no raw state; the raw state stands beside it."""
    state = "a state of more than a few characters"
    conversation, script = talk(NeedsAnswers)
    follow(conversation, array_asks("a", state=state))
    (ask,) = script.asks

    assert (ask.turn, ask.request_state) == (1, state)
    assert ask.exchange.ask.request_state == sealed_hash(state)
    assert conversation.stopping_point == NeedsAnswers(ask)

    conversation, _ = talk(refusing)
    follow(conversation, asks("a"))

    assert isinstance(conversation.stopping_point, AskedOtherwise)


def pushing(*replies: Any) -> tuple[Conversation, Observation, OpenPush]:
    """Have a server push a question within the stream of its response."""
    conversation, _ = talk(*replies)
    observation: Any = conversation.next_request()
    return conversation, observation, push_on(observation, PUSHED)


def finish(conversation: Conversation, observation: Observation) -> None:
    """Have the server give its result."""
    show(observation, lambda body: stream(answer(body, text("done"))))
    conversation.response_received(observation)


def test_refused_push_cancels_its_call() -> None:
    """The next request says that nobody waits; what comes after it changes nothing."""
    conversation, observation, push = pushing(refusing)

    assert conversation.session.give_push_to_owner(push) is None
    assert conversation.is_over

    cancelled = conversation.next_request()

    assert cancelled is not None
    assert json.loads(cancelled.call.request.body)["params"] == {
        "requestId": 2042100001
    }
    assert conversation.next_request() is None

    finish(conversation, observation)

    assert isinstance(conversation.stopping_point, AskedOtherwise)
    assert conversation.push_received(push) is None


def test_answer_may_come_from_elsewhere_and_later() -> None:
    """To a push it is posted, to an ask it is the next retry; one that is too late is none."""
    conversation, observation, push = pushing(NeedsAnswers)

    assert conversation.session.give_push_to_owner(push) is None
    assert conversation.answer_unanswered_ask(AskAnswer(b"{}")) is not None
    assert conversation.answer_unanswered_ask(AskAnswer(b"{}")) is None

    finish(conversation, observation)

    assert isinstance(conversation.stopping_point, FinishedCall)

    conversation, observation, push = pushing(NeedsAnswers)
    conversation.session.give_push_to_owner(push)
    finish(conversation, observation)

    assert isinstance(conversation.stopping_point, FinishedCall)

    conversation, _ = talk(NeedsAnswers)
    respond(conversation, asks("a"))

    assert conversation.answer_unanswered_ask(AskAnswer(b'{"a":1}')) is None

    (retried,) = follow(conversation, text("done"))

    assert json.loads(retried.body)["params"]["inputResponses"] == {"a": 1}


# Sessions


def owner() -> tuple[Any, list[OpenPush]]:
    """Return what owns requests, and the pushes that it gets."""
    pushed: list[OpenPush] = []
    return SimpleNamespace(push_received=pushed.append), pushed


def test_each_call_has_an_id_of_its_own_in_the_session_that_was_opened() -> None:
    """Everything else of a request stays; notifications and bodies that are no messages too."""
    live = session()
    whose, _ = owner()
    first = live.request_in_session(post(rpc("initialize")), whose)
    first.response_started(200, (SESSION,))
    live.response_received(first)
    second = live.request_in_session(post(tool("a"), ("Accept-Encoding", "br")), whose)

    assert body_of(first.call.request)["id"] == 2042100001
    assert body_of(second.call.request)["id"] == 2042100002
    assert second.call.request.header("mcp-session-id") == SESSION[1]
    assert second.call.request.header("accept-encoding") == "identity"

    for request in (get("/mcp"), post(b"no JSON"), post(notification("a"))):
        assert live.request_in_session(request, whose).call.request.body == request.body


def test_ids_are_integers_unless_the_server_wants_texts() -> None:
    """Where it answers under a text, or refuses a request that it can't name, texts follow."""
    invalid = compact(
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "id"}}
    )

    def as_text(request: bytes) -> bytes:
        return compact(result({}, id=str(json.loads(request)["id"])))

    for reply, number, ids in (
        (text("done"), 1, [int, int]),
        (text("done"), "seven", [str, int]),
        (as_text, 1, [int, str]),
        (invalid, 1, [int, str, str]),
        (refusal(CALL), 1, [int, int]),
    ):
        live = session()
        first = Conversation(post(with_id(CALL, number)), None, live)
        sent = [respond(first, reply)]
        if len(ids) > len(sent) + 1:
            sent.append(respond(first, text("done")))

        assert isinstance(first.stopping_point, FinishedCall)

        sent += follow(Conversation(post(CALL), None, live), text("done"))

        assert [type(json.loads(request.body)["id"]) for request in sent] == ids


def test_session_is_the_one_that_initialize_opened() -> None:
    """An id that comes with an error, or with another result, names none that can be used."""
    live = session()
    for method, status, opened in (
        ("server/discover", 400, ""),
        ("initialize", 400, ""),
        ("tools/list", 200, ""),
        ("initialize", 200, SESSION[1]),
    ):
        observation = live.request_in_session(post(rpc(method)), owner()[0])
        observation.response_started(status, (SESSION,))
        live.response_received(observation)

        assert live.id == opened


# A server's tools


def listed(*pages: Json) -> tuple[ToolList, list[Request]]:
    """Have a server list its tools; return what it was sent."""
    call = changed(tool("a"), "params", "_meta", to=CAPABLE)
    request = post(
        call, ("Mcp-Method", "tools/call"), ("Mcp-Name", "a"), ("Mcp-Param-Env", "b")
    )
    tools = ToolList(
        other_request_of_client(request, "tools/list"), session(SESSION[1])
    )

    return tools, follow(tools, *pages)


def test_tools_are_listed_page_after_page_as_the_client_would() -> None:
    """In the session of the call, with its `_meta`, and with headers that fit the method."""
    both = {"destructiveHint": True, "readOnlyHint": True}
    first = {
        "tools": [{"name": "a", "annotations": {"destructiveHint": True}}],
        "nextCursor": "2",
    }

    second = {"tools": [{"name": "b", "annotations": both}, {"name": "c"}, 5]}
    tools, sent = listed(first, second)

    listed_tools = [tools.members_of_tool(name) for name in "abcd"]

    assert [tool.get("annotations") for tool in listed_tools] == [
        {"destructiveHint": True},
        both,
        None,
        None,
    ]

    bodies = [json.loads(request.body) for request in sent]

    assert [body["method"] for body in bodies] == ["tools/list"] * 2
    assert bodies[1]["params"] == {"_meta": CAPABLE, "cursor": "2"}

    names = ("mcp-method", "mcp-name", "mcp-param-env", "mcp-session-id")
    for request in sent:
        assert [request.header(name) for name in names] == [
            "tools/list",
            "",
            "",
            SESSION[1],
        ]

    for page in (refusal(CALL), {"tools": None}, b"no JSON"):
        assert listed(page)[0].members_of_tool("a") == {}


REFUSED = "error -32602: invalid state"


def test_outcome_is_the_status_and_the_error_of_the_request() -> None:
    """What a live server responded is told by its status and, if it sent one, its JSON-RPC error."""
    rows: list[tuple[bytes | Request, Json, str]] = [
        (CALL, text("done"), "HTTP 200"),
        (CALL, Answer((), status=0, end=End.OPEN), "no response"),
        (CALL, Answer((refusal(CALL),), status=400), f"HTTP 400, {REFUSED}"),
        (
            CALL,
            refusal(CALL, words="miss: no\nfix: record"),
            "HTTP 200, error -32602: miss: no",
        ),
        (CALL, compact({"jsonrpc": "2.0", "id": 1, "error": 5}), "HTTP 200, error 5"),
        (CALL, refusal(with_id(CALL, 2)), "HTTP 200"),
        (get("/mcp"), Answer((sse(refusal(CALL)),)), "HTTP 200"),
    ]
    for request, response, words in rows:
        recorded = exchange(request, response)

        assert (response_in_words(recorded), has_error(recorded)) == (
            words,
            "error" in words,
        )


# The built-in client

MODERN = {"supportedVersions": ["2026-07-28"]}


def client(*kinds: str, discovered: Any = MODERN) -> BuiltInClient:
    """Return a client that knows its server."""
    own_client = BuiltInClient("/mcp", kinds, "1.2.3", ())
    own_client.take_discover_response(
        responded(own_client.discover_request(), discovered)
    )
    return own_client


def responded(request: Request, value: Any) -> Any:
    """Return an exchange with a result."""
    return exchange(request, compact(result(value, id=0)))


def body_of(request: Request) -> Any:
    """Return what a request says."""
    return json.loads(request.body)


def test_modern_server_is_called_at_once() -> None:
    """Each request says who calls, and what it can answer."""
    own_client = client("form", "url", "sampling", "roots")

    assert own_client.era == "modern"

    request = own_client.call_request(
        "tools/call", {"name": "deploy", "arguments": {"env": "prod"}}
    )

    assert request.header("mcp-method") == "tools/call"
    assert request.header("mcp-name") == "deploy"
    assert request.header("mcp-protocol-version") == "2026-07-28"

    params = body_of(request)["params"]

    assert params["arguments"] == {"env": "prod"}
    assert params["_meta"] == {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {
            "name": "mrtr-cassette",
            "version": "1.2.3",
        },
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {"form": {}, "url": {}},
            "sampling": {},
            "roots": {},
        },
    }


@pytest.mark.parametrize(
    ("version", "era"), [("2026-07-28", "modern"), ("2025-11-25", None)]
)
def test_server_of_a_known_version_is_not_asked_for_it(
    version: str, era: str | None
) -> None:
    """A header of the user tells the version, in any spelling."""
    own_client = BuiltInClient(
        "/mcp", (), "1.2.3", (("mcp-Protocol-version", version),)
    )

    assert own_client.era == era


@pytest.mark.parametrize(
    "discovered",
    [
        {"supportedVersions": ["2025-11-25"]},
        {"capabilities": {"extensions": True}},
        [],
        {},
    ],
)
def test_earlier_server_is_opened(discovered: Any) -> None:
    """It is initialized, told so, and heard; the version is the server's."""
    own_client = client("roots", discovered=discovered)

    assert own_client.era == "legacy"

    opening = own_client.initialize_request()

    assert body_of(opening)["params"] == {
        "protocolVersion": "2025-11-25",
        "capabilities": {"roots": {}},
        "clientInfo": {"name": "mrtr-cassette", "version": "1.2.3"},
    }

    initialized = own_client.take_initialize_response(
        responded(opening, {"protocolVersion": "2025-06-18"})
    )

    assert initialized is not None
    assert body_of(initialized) == {
        "jsonrpc": "2.0",
        "method": "notifications/initialized",
    }

    listening = own_client.listening_request()
    leaving = own_client.session_end_request()

    assert (listening.method, leaving.method) == ("GET", "DELETE")

    call = own_client.call_request("tools/call", {"name": "add"})

    assert "_meta" not in body_of(call)["params"]
    assert call.header("mcp-method") == ""

    for request in (initialized, listening, leaving, call):
        assert request.header("mcp-protocol-version") == "2025-06-18"


def test_refused_session_is_no_session() -> None:
    """What is no result opens nothing."""
    own_client = client(discovered={})
    refusal = compact(
        {"jsonrpc": "2.0", "id": 0, "error": {"code": 1, "message": "no"}}
    )

    assert (
        own_client.take_initialize_response(
            exchange(own_client.initialize_request(), refusal)
        )
        is None
    )


def test_arguments_stand_in_the_headers_that_the_tool_wants() -> None:
    """What a header can't carry is spelled in base64."""
    fields = {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "city": {"type": "string", "x-mcp-header": "City"},
        "gone": {"x-mcp-header": "Gone"},
        "plain": {"type": "string"},
        "odd": True,
    }

    arguments = {"region": "eu", "count": 5, "city": "Zürich", "plain": "a"}
    params = {"name": "=?x", "arguments": arguments}
    request = client().call_request("tools/call", params, {"properties": fields})

    assert request.header("mcp-param-region") == "eu"
    assert request.header("mcp-param-count") == "5"
    assert request.header("mcp-param-city") == "=?base64?WsO8cmljaA==?="
    assert request.header("mcp-name") == "=?base64?PT94?="

    names = {name for name, _ in request.headers}

    assert not names & {"Mcp-Param-Gone", "Mcp-Param-Plain"}


def test_another_client_is_spoken_for() -> None:
    """What the sources can answer is declared besides its own."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {
            "elicitation": {"url": {}},
            "x": {},
        },
    }

    theirs = post(
        compact(message("tools/call", {"name": "a", "_meta": meta}, id="theirs"))
    )
    call = read_call(theirs)

    assert is_modern(call)
    assert not is_modern(read_call(post(tool("a"))))

    declared = body_of(with_declared_kinds(theirs, {"form", "roots"}))["params"][
        "_meta"
    ]

    assert declared["io.modelcontextprotocol/clientCapabilities"] == {
        "elicitation": {"url": {}, "form": {}},
        "x": {},
        "roots": {},
    }
