"""Each kind of message that the specification shows is recognised; what is half of one is not.

The data has the shapes of the specification's examples of 2026-07-28, with names of our own.
"""

from __future__ import annotations

from typing import Any

import pytest
from builders import player_of, post, sent_now, stream
from messages import CAPABILITIES_KEY, CLIENT_KEY, SUBSCRIPTION_KEY, VERSION_KEY, Json, compact

from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.protocol.dialect import InputRequest, InputRequired, recognise
from mrtr_cassette.core.protocol.jsonrpc import Kind, classify
from mrtr_cassette.core.replay.player import Play
from mrtr_cassette.core.wire.jsonbytes import parse

META: Json = {
    VERSION_KEY: "2026-07-28",
    CLIENT_KEY: {"name": "TestBench", "version": "0.9.1"},
    CAPABILITIES_KEY: {},
}


def request(method: str, **params: Any) -> Json:
    """Return a request with the members that every one has."""
    return {"jsonrpc": "2.0", "id": "id-1", "method": method, "params": {"_meta": META, **params}}


def told(method: str, **params: Any) -> Json:
    """Return a notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def result(**members: Any) -> Json:
    """Return a complete result."""
    return {"jsonrpc": "2.0", "id": "id-1", "result": {"resultType": "complete", **members}}


def error(code: int, message: str, **data: Any) -> Json:
    """Return a JSON-RPC error with a number as id."""
    inner = {"code": code, "message": message, **({"data": data} if data else {})}
    return {"jsonrpc": "2.0", "id": 1, "error": inner}


SUBSCRIPTION: Json = {SUBSCRIPTION_KEY: "id-1"}
TOOL_CALL = request("tools/call", name="brew_tea", arguments={"kind": "oolong"})
WANTED: Json = {"toolsListChanged": True, "resourceSubscriptions": ["file:///menu.txt"]}
LISTEN = request("subscriptions/listen", notifications=WANTED)
LISTENING = told(
    "notifications/subscriptions/acknowledged", _meta=SUBSCRIPTION, notifications=WANTED
)
LISTENED = result(_meta=SUBSCRIPTION)
RESPONSES = [
    LISTENED,
    result(
        content=[{"type": "text", "text": "One pot of oolong:\n92 °C, 3 minutes"}], isError=False
    ),
    result(supportedVersions=["2026-07-28"], capabilities={"tools": {}}, ttlMs=60000),
    error(-32020, "Header mismatch: Mcp-Name says 'a', the body says 'b'"),
    error(-32021, "It needs elicitation", requiredCapabilities={"elicitation": {}}),
    error(-32022, "Another version", supported=["2026-07-28"], requested="1999-12-31"),
]
MESSAGES = [
    (TOOL_CALL, Kind.REQUEST),
    (request("server/discover"), Kind.REQUEST),
    (LISTEN, Kind.REQUEST),
    (LISTENING, Kind.NOTIFICATION),
    (told("notifications/progress", progressToken="kettle", progress=40), Kind.NOTIFICATION),
    *((each, Kind.RESPONSE) for each in RESPONSES),
]
FORM: Json = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "How strong?",
        "requestedSchema": {
            "type": "object",
            "properties": {"grams": {"type": "number", "minimum": 1, "title": "Grams"}},
            "required": ["grams"],
        },
    },
}
URL: Json = {
    "method": "elicitation/create",
    "params": {"mode": "url", "url": "https://pay.example/tea", "message": "Pay for your tea"},
}
SAMPLING: Json = {
    "method": "sampling/createMessage",
    "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Name a tea"}}],
        "systemPrompt": "You are a tea master",
        "maxTokens": 50,
    },
}
ROOTS: Json = {"method": "roots/list"}


@pytest.mark.parametrize(("tree", "kind"), MESSAGES)
def test_kind_of_a_message_is_recognised(tree: Json, kind: Kind) -> None:
    """Requests, notifications, results and errors are told apart; complete results ask nothing."""
    message = classify(compact(tree))

    assert message is not None
    assert message.kind is kind
    assert recognise(parse(compact(tree)).get("result")) is None


@pytest.mark.parametrize("tree", [FORM, URL, SAMPLING, {**ROOTS, "id": "r"}])
def test_input_request_is_no_message(tree: Json) -> None:
    """What stands inside an ask is no JSON-RPC message of its own."""
    assert classify(compact(tree)) is None


@pytest.mark.parametrize(
    ("members", "asked", "state"),
    [
        (
            {
                "inputRequests": {"how": FORM, "pay": URL, "name": SAMPLING, "dirs": ROOTS},
                "requestState": "eyJwb3QiOjF9",
            },
            {
                "how": InputRequest("form", "How strong?"),
                "pay": InputRequest("url", "Pay for your tea"),
                "name": InputRequest("sampling", ""),
                "dirs": InputRequest("roots", ""),
            },
            "eyJwb3QiOjF9",
        ),
        ({"requestState": "eyJkb25lIjoiNDAlIn0"}, {}, "eyJkb25lIjoiNDAlIn0"),
        ({"inputRequests": {"how": FORM}}, {"how": InputRequest("form", "How strong?")}, None),
    ],
    ids=["all kinds and state", "state only", "no state"],
)
def test_input_required_result_is_an_ask(members: Json, asked: Json, state: str | None) -> None:
    """Each kind of request that a server can make is recognised, with and without state."""
    ask = recognise(parse(compact({"resultType": "input_required", **members})))

    assert ask == InputRequired("2026-07-28", asked, state)


@pytest.mark.parametrize(
    "response",
    [
        {"action": "accept", "content": {"name": "Ada", "mail": "a@x.example", "n": 3}},
        {"action": "accept"},
        {"action": "decline"},
        {"action": "cancel"},
        {"role": "assistant", "content": {"type": "text", "text": "Oolong"}, "model": "m-1"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "input": {"ml": 3}}]},
        {"roots": [{"uri": "file:///tea", "name": "Tea"}]},
    ],
)
def test_input_responses_make_a_retry(response: Json) -> None:
    """The bare results under the server's keys are the answers of a retry."""
    params = {**TOOL_CALL["params"], "inputResponses": {"how": response}, "requestState": "S"}
    call = read_call(post(compact({**TOOL_CALL, "id": "order-2", "params": params})))

    assert call.answers is not None
    assert call.answers.input_responses == parse(compact({"how": response}))
    assert call.answers.request_state == "S"
    assert call.key() == read_call(post(compact(TOOL_CALL))).key()


def test_call_is_named_by_its_tool() -> None:
    """A call's key has the tool and its arguments, and none of its `_meta`."""
    key = read_call(post(compact(TOOL_CALL))).key()

    assert (key.method, key.name, key.arguments) == (
        "tools/call",
        "brew_tea",
        '{"arguments":{"kind":"oolong"}}',
    )


def test_listening_is_played_with_the_callers_subscription() -> None:
    """Every message of a listening stream has the id of whoever listens."""
    recorded = stream(compact(LISTENING), compact(LISTENED))
    decision = player_of((compact(LISTEN), recorded)).request_received(
        post(compact({**LISTEN, "id": "other"}))
    )

    assert isinstance(decision, Play)
    got = sent_now(decision)
    assert got == b"".join(recorded.chunks).replace(b'"id-1"', b'"other"')


# The array dialect, which is recognised whole or not at all

CITY: Json = {"id": "city", "kind": "string", "description": "Where?", "required": True}
WHOLE: Json = {"inputRequests": [CITY], "requestState": "token", "description": "One is missing"}


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"content": []},
        {"inputRequests": [{**CITY, "more": 1}]},
    ],
)
def test_whole_array_is_an_ask(members: Json) -> None:
    """A non-empty array of requests with a non-empty state is an ask."""
    ask = recognise(parse(compact({**WHOLE, **members})))

    assert ask is not None
    assert (ask.dialect, [*ask.input_requests], ask.request_state) == ("array", ["city"], "token")


@pytest.mark.parametrize(
    "members",
    [
        *({"inputRequests": each} for each in ([], None, "city", {"city": CITY}, [CITY, CITY])),
        *({"inputRequests": [CITY, each]} for each in ("sugar", None, {"id": "sugar"})),
        *({"requestState": each} for each in ("", None, 5, ["token"])),
        *({"resultType": each} for each in ("complete", "input_required", "incomplete", "")),
        *(
            {"inputRequests": [{**CITY, name: each}]}
            for name, wrong in {
                "id": (5, None), "kind": (5, None), "description": (5,), "required": ("yes", None)
            }.items()
            for each in wrong
        ),
    ],
)  # fmt: skip
def test_half_shaped_array_is_a_final_result(members: Json) -> None:
    """Whatever lacks a part or has one of another shape asks for nothing."""
    assert recognise(parse(compact({**WHOLE, **members}))) is None
