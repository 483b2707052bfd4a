from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
from builders import (
    Answer,
    answer,
    cassette_of,
    converse,
    get,
    loaded,
    notification,
    post,
    progress,
    refusal,
    retry,
    rpc,
    stream,
    tool,
    with_id,
    with_token,
)
from hypothesis import given
from hypothesis import strategies as st
from messages import YES, Json, asks, compact, form, message, text

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.compare.responses import response_changes
from mrtr_cassette.core.compare.values import (
    Change,
    heaviest_verdict,
    without_ignored_changes,
)
from mrtr_cassette.core.report.details import details_of
from mrtr_cassette.core.secrets.names import sha256_of
from mrtr_cassette.core.wire.http import (
    NO_STATUS,
    End,
    Headers,
    Piece,
    Response,
    line_request,
)
from mrtr_cassette.core.wire.jsonbytes import canonical

CALL = with_token(tool("book", seat=1), 1)
STATE = "the-recorded-state-0123456789abc"
LIVE = "the-live-state-0123456789-abcdefg"
JSON_TYPE = ("Content-Type", "application/json")


def seen(response: Json, call: bytes = CALL) -> RecordedExchange:
    """Return an exchange of a live server, in the form in which it would be recorded."""
    return converse((call, response))[0]


def whole(*headers: tuple[str, str], status: int = 200, result: Json = None) -> Answer:
    """Return a response that is one body, with these headers."""
    body = answer(CALL, text("done") if result is None else result)
    return Answer((body,), (JSON_TYPE, *headers), status)


@pytest.mark.parametrize(
    ("said", "null"),
    [({"result": text("done")}, "error"), ({"error": {"code": -1}}, "result")],
)
def test_a_null_member_beside_the_outcome_says_nothing(said: Json, null: str) -> None:
    """`"error": null` beside a result is no error, and a null result beside an error is none."""

    def body(**members: Json) -> Answer:
        tree = {"jsonrpc": "2.0", "id": 1, **members, **said}
        return Answer((compact(tree),), (JSON_TYPE,), 200)

    def final_response_of(response: Answer) -> Any:
        cassette = loaded(cassette_of((CALL, response)))
        return details_of(cassette).interactions[0].final

    bare = body()
    spelled = body(**{null: None})

    assert (
        response_changes(seen(bare), seen(spelled))
        == response_changes(seen(spelled), seen(bare))
        == []
    )
    assert final_response_of(bare) == final_response_of(spelled)


def test_an_error_beside_a_question_is_a_difference() -> None:
    """No server may send both; what one sends is compared all the same."""
    asking = {"jsonrpc": "2.0", "id": 1, "result": asks("a", state=STATE)}
    failing = {**asking, "error": {"code": -32602, "message": "no"}}
    recorded = seen(Answer((compact(asking),), (JSON_TYPE,), 200))
    live = seen(Answer((compact(failing),), (JSON_TYPE,), 200))

    for changes in (response_changes(recorded, live), response_changes(live, recorded)):
        assert [change.pointer for change in changes] == ["/#error"]


def shown(changes: list[Change]) -> list[tuple[str, str, str | None, str | None]]:
    """Return changes without what is information."""
    return [change[:4] for change in changes if not change.is_information]


def result_changes(recorded: Json, live: Json, call: bytes = CALL) -> Any:
    """Return how the second response differs from the first; its ids and tokens are others."""
    live_call = with_token(with_id(call, "live-1"), "live-token")
    if not isinstance(live, bytes | Answer):
        live = answer(live_call, live)

    return shown(response_changes(seen(recorded, call), seen(live, live_call)))


def structured(**members: Json) -> Json:
    """Return a result with structured content."""
    return {"content": [], "structuredContent": members}


def dated(**annotations: str) -> Json:
    """Return a result whose text has annotations."""
    return {"content": [{"type": "text", "text": "a", "annotations": annotations}]}


BAD = refusal(CALL, -32602, "bad")
LIVE_CALL = with_id(CALL, "live-1")
BAD_ERROR = '{"code":-32602,"message":"bad"}'
ONE = canonical({**text("one"), "isError": False})
FAILED = canonical({**text("no"), "isError": True})


@pytest.mark.parametrize(
    ("recorded", "live", "change"),
    [
        (text("one"), text("two"), "text-changed /content/0/text one two"),
        (
            text("one"),
            {**text("no"), "isError": True},
            f"refused /isError {ONE} {FAILED}",
        ),
        ({"a": 1}, {"isError": False, "resultType": "complete", "a": 1}, None),
        (dated(lastModified="1"), dated(lastModified="2"), None),
        (
            dated(lastModified="1"),
            dated(),
            "shape-changed /content/0/annotations/lastModified ... None",
        ),
        ({"ttlMs": 5}, {"ttlMs": 6}, None),
        (
            structured(ttlMs=5),
            structured(ttlMs=6),
            "text-changed /structuredContent/ttlMs 5 6",
        ),
        (
            text("done"),
            refusal(LIVE_CALL, -32602, "bad"),
            f'refused /#error {ONE.replace("one", "done")} {{"error":{BAD_ERROR}}}',
        ),
        (BAD, text("done"), f"error-changed /#error {BAD_ERROR} None"),
        (
            BAD,
            refusal(LIVE_CALL, -32603, "bad"),
            "error-changed /#error/code -32602 -32603",
        ),
        (
            BAD,
            refusal(LIVE_CALL, -32602, "worse"),
            "text-changed /#error/message bad worse",
        ),
        # A server that could not read the request responds without its id.
        (
            BAD,
            refusal(with_id(CALL, None), -7, "bad"),
            "error-changed /#error/code -32602 -7",
        ),
    ],
)
def test_results_and_errors_are_compared_by_value(
    recorded: Json, live: Json, change: str | None
) -> None:
    """Each place that differs is named, and what the protocol lets differ is not."""
    found = []
    for change_found in result_changes(recorded, live):
        words = [str(value).strip('"') for value in change_found]
        found.append(" ".join(words))

    assert found == ([] if change is None else [change])


@pytest.mark.parametrize(
    ("headers", "live", "changes"),
    [
        ((), whole(status=500), [("refused", "/#status", "200", "500")]),
        ((), whole(status=201), [("shape-changed", "/#status", "200", "201")]),
        (
            [("Allow", "a")],
            whole(),
            [("shape-changed", "/#headers/allow", '"a"', None)],
        ),
        ([("Retry-After", "5")], whole(("Retry-After", "7")), []),
        (
            [("ETag", "a"), ("DPoP-Nonce", "n")],
            whole(("ETag", "b"), ("Last-Modified", "now")),
            [],
        ),
        (
            [("Cache-Control", "no-store")],
            whole(("Cache-Control", "public")),
            [("text-changed", "/#headers/cache-control", '"no-store"', '"public"')],
        ),
        ([("Date", "today"), ("X-Request-Id", "1")], whole(("Server", "s")), []),
        ([("Content-Encoding", "identity")], whole(), []),
        (
            [("Vary", "Origin"), ("Vary", "Accept")],
            whole(("vary", "Origin, Accept")),
            [],
        ),
    ],
)
def test_status_and_kept_headers_count(
    headers: Headers, live: Answer, changes: Json
) -> None:
    """What is said beside the result is compared where a cassette keeps it."""
    live = live._replace(chunks=(answer(with_id(CALL, "live-1"), text("done")),))

    assert result_changes(whole(*headers), live) == changes


def told(token: Json, *words: str) -> list[bytes]:
    """Return progress messages."""
    said = []
    for done, word in enumerate(words):
        params = {"progressToken": token, "progress": done, "message": word}
        said.append(compact(message("notifications/progress", params, id=None)))

    return said


@pytest.mark.parametrize(
    ("live", "changes"),
    [
        (("one", "two", "three"), []),
        (("one", "2", "three"), [("text-changed", "/#messages/1/params/message")]),
        (("one", "two"), [("shape-changed", "/#messages/2")]),
        (("one", "two", "three", "four"), [("shape-changed", "/#messages/3")]),
    ],
)
def test_progress_is_compared_message_by_message(live: Any, changes: Json) -> None:
    """Another message is a change of text, one more or less a change of shape."""
    live_call = with_token(with_id(CALL, "live-1"), "live-token")
    recorded = stream(*told(1, "one", "two", "three"), answer(CALL, text("done")))
    received = stream(*told("live-token", *live), answer(live_call, text("done")))

    assert [change[:2] for change in result_changes(recorded, received)] == changes


def test_progress_of_another_request_is_a_difference() -> None:
    """A token is the request's own or it is not; which one it is counts for nothing."""
    requests = stream(*told(1, "one"))
    foreign = stream(*told(2, "one"))
    also_foreign = stream(*told(3, "one"))
    live = stream(*told("live-token", "one"))
    pointer = "/#messages/0/params/progressToken"
    words = '"the request\'s"', '"another request\'s"'

    assert result_changes(requests, foreign) == [("text-changed", pointer, *words)]
    assert result_changes(foreign, live) == [
        ("text-changed", pointer, *reversed(words))
    ]
    assert result_changes(requests, live) == []
    assert result_changes(foreign, also_foreign) == []


def test_a_stream_that_became_json_is_another_and_one_without_end_may_have_said_less() -> (
    None
):
    """Of a stream that the client left, only what both have is compared."""
    streamed = stream(answer(CALL, text("done")))
    (change,) = result_changes(streamed, text("done"))

    assert change[:2] == ("shape-changed", "/#headers/content-type")

    messages = told(1, "one", "two")
    again = told("live-token", "one", "two")
    left = stream(*messages, end=End.OPEN)

    assert result_changes(left, stream(*again[:1], end=End.OPEN)) == []
    assert result_changes(left, stream(*told("live-token", "1"))) == [
        ("text-changed", "/#messages/0/params/message", '"one"', '"1"')
    ]
    assert result_changes(stream(*messages), stream(*again, end=End.BROKEN)) == [
        ("shape-changed", "/#end", '"complete"', '"broken"')
    ]


def test_what_is_no_message_is_compared_as_it_is() -> None:
    """Metadata is compared as JSON, a page as text, and no response at all is a change."""
    asked = get("/.well-known/oauth-protected-resource")

    def answered(response: Answer) -> RecordedExchange:
        return converse((asked, response))[0]

    issuer_a = answered(Answer((b'{"issuer": "a"}',)))
    issuer_b = answered(Answer((b'{"issuer":"b"}',)))
    page = answered(Answer((b"<html>",), (("Content-Type", "text/html"),)))
    none = answered(Answer((), (), 0))

    assert response_changes(issuer_a, issuer_b) == [
        Change("text-changed", "/#body/issuer", '"a"', '"b"')
    ]
    assert [change[:2] for change in response_changes(issuer_a, page)] == [
        ("shape-changed", "/#body"),
        ("text-changed", "/#headers/content-type"),
    ]

    (change,) = response_changes(page, none)

    assert change[:2] == ("shape-changed", "/#status")
    assert response_changes(none, none) == []


def test_the_port_of_a_server_on_this_machine_is_no_difference() -> None:
    """A server that a run starts has another one each time, and names it for authorization."""

    def guarded(origin: str) -> tuple[RecordedExchange, RecordedExchange]:
        document = f"{origin}/.well-known/oauth-protected-resource"
        challenge = ("WWW-Authenticate", f'Bearer resource_metadata="{document}"')
        escaped = origin.replace("/", "\\/")
        body = f'{{"resource": "{escaped}\\/mcp", "issuer": "{origin}"}}'
        return converse(
            (CALL, Answer((b"{}",), (JSON_TYPE, challenge), 401)),
            (get("/.well-known/x"), Answer((body.encode(),), (JSON_TYPE,))),
        )

    def changes(origin: str) -> list[str]:
        pairs = zip(guarded("http://127.0.0.1:3000"), guarded(origin), strict=True)
        found = [response_changes(recorded, received) for recorded, received in pairs]
        return [change.pointer for change in chain.from_iterable(found)]

    assert changes("http://127.0.0.1:51234") == []
    assert changes("http://api.example:3000") == [
        "/#headers/www-authenticate",
        "/#body/issuer",
        "/#body/resource",
    ]


@pytest.mark.parametrize(
    ("recorded", "received"),
    [
        (b"no healthy upstream", b"not today"),
        (b"[proxy] no healthy upstream", b"[proxy] not today"),
        (b'{"line":1}\n{"line":2}', b'{"line":1}\n{"line":3}'),
        (b"404 page not found", b"404: nothing here"),
    ],
)
def test_a_text_that_begins_as_json_is_compared_whole(
    recorded: bytes, received: bytes
) -> None:
    """A client that reads JSON tolerantly takes its first word for a value."""
    plain = ("Content-Type", "text/plain")

    def refused(body: bytes) -> RecordedExchange:
        return seen(Answer((body,), (plain,), 503))

    changes = response_changes(refused(recorded), refused(received))

    assert [(change.recorded, change.received) for change in changes] == [
        (json.dumps(recorded.decode()), json.dumps(received.decode()))
    ]


def test_bytes_that_are_not_utf_8_are_compared_as_they_are() -> None:
    """Pages in Latin-1 differ though no reader of UTF-8 sees how."""

    def refused(body: bytes) -> RecordedExchange:
        return seen(Answer((body,), (("Content-Type", "text/plain"),), 503))

    changes = response_changes(refused(b"gesch\xe4ft"), refused(b"gesch\xe0ft"))

    assert shown(changes) == [
        ("text-changed", "/#body", r'"gesch\\xe4ft"', r'"gesch\\xe0ft"')
    ]


def test_a_listening_stream_is_compared_by_what_it_says() -> None:
    """Responses on a stream of the session are messages like others; requests are asks."""

    def listened(*messages: bytes) -> RecordedExchange:
        return converse((get("/mcp"), stream(*messages, end=End.OPEN)))[0]

    pushed = rpc("elicitation/create", {"message": "Sure?"}, 7)
    before = listened(
        notification("notifications/message", data="a"), answer(CALL, text("x"))
    )
    after = listened(
        notification("notifications/message", data="b"),
        pushed,
        answer(with_id(CALL, 9), text("y")),
    )

    assert shown(response_changes(before, after)) == [
        ("text-changed", "/#messages/0/params/data", '"a"', '"b"'),
        ("text-changed", "/#messages/1/result/content/0/text", '"x"', '"y"'),
    ]


@pytest.mark.parametrize(
    ("method", "recorded", "live", "count"),
    [
        (
            "tasks/get",
            {"taskId": "1", "createdAt": "a"},
            {"taskId": "2", "createdAt": "b"},
            0,
        ),
        ("tasks/list", {"tasks": [{"taskId": "1"}]}, {"tasks": [{"taskId": "2"}]}, 0),
        ("tools/call", {"task": {"taskId": "1"}}, {"task": {"taskId": "2"}}, 0),
        (
            "tools/call",
            {"resultType": "task", "taskId": "1"},
            {"resultType": "task", "taskId": "2"},
            0,
        ),
        ("prompts/get", {"taskId": "1"}, {"taskId": "2"}, 1),
    ],
)
def test_ids_and_times_of_tasks_are_volatile(
    method: str, recorded: Json, live: Json, count: int
) -> None:
    """They count nowhere where the protocol puts them."""
    assert len(result_changes(recorded, live, rpc(method, {}))) == count


# Asks


def question(**params: Json) -> Json:
    """Return an ask with one form, of which some params are others."""
    request = form("Sure?")
    return {
        **asks("a", state=STATE),
        "inputRequests": {"a": {**request, "params": {**request["params"], **params}}},
    }


@pytest.mark.parametrize(
    ("live", "pointer"),
    [
        (question(message="Really?"), "/inputRequests/a/params/message"),
        (question(mode="url", url="https://x"), "/inputRequests/a/params/mode"),
        (
            question(
                requestedSchema={
                    "type": "object",
                    "properties": {"ok": {"default": True}},
                }
            ),
            "/inputRequests/a/params/requestedSchema",
        ),
        (asks("a", "b", state=STATE), "/inputRequests/b"),
        (asks("b", state=STATE), "/inputRequests/a"),
        (asks("a"), "/requestState"),
        (asks(state=STATE), "/inputRequests/a"),
    ],
)
def test_another_question_is_found(live: Json, pointer: str) -> None:
    """A word, a kind, a schema, a key, the state: whatever is asked otherwise is."""
    changes = response_changes(seen(question()), seen(live))

    assert pointer in [change.pointer[: len(pointer)] for change in changes]
    assert heaviest_verdict(changes) == "question-changed"


def keyed(*keys: str, in_array: bool) -> Json:
    """Return an ask with an equal question under each of these keys."""
    if in_array:
        questions = [
            {"id": key, "kind": "string", "description": "Sure?"} for key in keys
        ]
        return {"inputRequests": questions, "requestState": STATE}

    return asks(*keys, state=STATE, words="Sure?")


@pytest.mark.parametrize("in_array", [False, True])
def test_an_equal_question_under_another_key_is_another_key(*, in_array: bool) -> None:
    """Such keys are told in pairs; where there is a key more, something else is asked."""
    recorded = seen(keyed("a", "b", in_array=in_array))
    renamed = seen(keyed("a", "x", in_array=in_array))
    longer = seen(keyed("x", "y", "z", in_array=in_array))

    assert response_changes(recorded, renamed) == [
        Change("key-changed", "/inputRequests/b", '"b"', '"x"')
    ]

    verdicts = [change.verdict for change in response_changes(recorded, longer)]

    assert verdicts == ["key-changed", "key-changed", "question-changed"]


def test_the_same_question_has_other_ids_and_states() -> None:
    """State, elicitation id, version and time to live are others in every run."""

    def live(state: str, number: str) -> Json:
        info = {"name": "s", "version": number}
        return {
            **question(elicitationId=number, message=f"Open https://x?s={state}"),
            "requestState": state,
            "ttlMs": int(number),
            "_meta": {"io.modelcontextprotocol/serverInfo": info},
        }

    sealed = loaded(cassette_of((CALL, live(STATE, "1")))).interactions[0].exchanges[0]

    assert sealed.ask is not None

    states = {sha256_of(LIVE): sealed.ask.request_state or ""}

    changes = response_changes(sealed, seen(live(LIVE, "2")), states)

    assert [change for change in changes if not change.is_information] == []

    changes = response_changes(sealed, seen(live(LIVE, "2")))

    assert [change.pointer for change in changes if not change.is_information] == [
        "/inputRequests/a/params/message"
    ]


def test_a_state_that_is_new_is_no_other_question() -> None:
    """The recorded answer can be given where the live server adds a state; not without one."""
    with_state = seen(asks("a", state=STATE))
    without = seen(asks("a"))

    assert heaviest_verdict(response_changes(without, with_state)) == "shape-changed"
    assert heaviest_verdict(response_changes(with_state, without)) == "question-changed"

    changes = without_ignored_changes(
        response_changes(with_state, without), ["/requestState"]
    )

    assert changes == []


# Recordings


def test_placeholders_and_surrogates_are_the_same_in_every_recording() -> None:
    """Which secret, session and interaction it was depends on what else was recorded."""
    session = ("Mcp-Session-Id", "a-session-id-0123456789abcdef")

    def last(*script: Any) -> RecordedExchange:
        cassette = loaded(cassette_of(*script, redacts=True))
        return cassette.interactions[-1].exchanges[-1]

    def talk(key: str, state: str) -> Any:
        echo = text(f"for {state} in {session[1]} with ghp_{key * 36}")
        first = (post(CALL, session), asks("a", state=state))
        return [first, (post(retry(CALL, {"a": YES}, state=state), session), echo)]

    alone = last(*talk("a", STATE))
    after_others = last(
        (tool("other", key="ghp_" + "c" * 36), text("x")),
        *talk("d", "a-third-state-0123456789-abcdef"),
        *talk("b", LIVE),
    )

    assert alone.response is not None
    assert after_others.response is not None
    assert alone.response.body != after_others.response.body
    assert response_changes(alone, after_others) == []


numbers = st.integers(0, 2)
values = st.one_of(numbers, st.sampled_from(["x", '{"y":1}']), st.lists(numbers))
members = st.dictionaries(st.sampled_from(["a", "b", "c/d"]), values, max_size=3)


@given(members, members, st.sampled_from(["s" * 40, "t" * 40]))
def test_comparing_is_fair(recorded: Json, received: Json, state: str) -> None:
    """A response is the same as itself under other ids; changes are seen from both sides."""
    first = seen(structured(**recorded))
    second = seen(structured(**received))
    again = with_token(with_id(CALL, "again"), "other")
    tree = json.loads(answer(again, structured(**recorded)))
    respelled = json.dumps(tree, indent=2).encode()
    forth = response_changes(first, second)
    back = response_changes(second, first)

    assert response_changes(first, seen(respelled, again)) == []
    assert bool(forth) == bool(back)

    asked = {"a": {"method": "elicitation/create", "params": recorded}}
    old = {**asks(state=STATE), "inputRequests": asked}

    assert response_changes(seen(old), seen({**old, "requestState": state})) == []


def test_a_question_may_repeat_the_id_that_is_made_up_for_it() -> None:
    """Its URL is the same one then; another URL is not."""

    def linked(identity: str, host: str = "id.example") -> Json:
        url = f"https://{host}/?e={identity}"
        return question(
            mode="url", url=url, elicitationId=identity, more=[1, {"see": url}]
        )

    old = seen(linked("a1" * 10))
    new = seen(linked("b2" * 12))

    assert response_changes(old, new) == []

    elsewhere = seen(linked("b2" * 12, "other"))
    word = seen(linked("word"))
    name = seen(linked("name"))

    assert heaviest_verdict(response_changes(old, elsewhere)) == "question-changed"
    assert heaviest_verdict(response_changes(word, name)) == "question-changed"


def test_an_error_that_asks_for_urls_has_other_ids_each_time() -> None:
    """Its URLs may repeat them; another URL is another error."""

    def refused(identity: str, host: str = "id.example") -> RecordedExchange:
        asked = {
            "mode": "url",
            "url": f"https://{host}/?e={identity}",
            "elicitationId": identity,
        }

        error = {
            "code": -32042,
            "message": "Required",
            "data": {"elicitations": [asked]},
        }
        body = compact({"jsonrpc": "2.0", "id": 1, "error": error})
        return seen(Answer((body,), (JSON_TYPE,), 200))

    old = refused("a1" * 10)
    new = refused("b2" * 12)

    assert response_changes(old, new) == []
    assert response_changes(old, refused("b2" * 12, "other")) != []


# What a server says that it can do

TOOLS = {
    "tools": [
        {
            "name": "book",
            "description": "Book a seat",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "seat": {"type": "string", "enum": ["a", "b"]},
                    "day": {},
                },
                "required": ["seat", "day"],
            },
            "outputSchema": {"type": "object", "properties": {}, "required": ["id"]},
        },
        {"name": "cancel", "inputSchema": {"type": "object"}, "execution": {}},
    ]
}
PROMPTS = {
    "prompts": [{"name": "ask", "arguments": [{"name": "topic", "required": False}]}]
}
DISCOVERY = {
    "supportedVersions": ["2026-07-28", "2025-11-25"],
    "capabilities": {"tools": {}},
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1"}},
}
RESOURCES = {
    "resources": [{"uri": "file:///a", "name": "a"}, {"uri": "file:///b", "name": "a"}]
}


def edited(result: Json, path: str, to: Json) -> Json:
    """Return a result with another value at a path; a callable changes what is there."""
    tree = deepcopy(result)
    *steps, last = (int(step) if step.isdigit() else step for step in path.split(" "))
    inner = tree
    for step in steps:
        inner = inner[step]

    inner[last] = to(inner[last]) if callable(to) else to
    return tree


def surface_changes(
    recorded: Json, received: Json, method: str = "tools/list"
) -> list[Change]:
    """Return where what a server says that it can do differs."""
    (old,) = converse((rpc(method), recorded))
    (new,) = converse((rpc(method), received))
    return response_changes(old, new)


def adding(item: Json) -> Any:
    """Return what adds an item to a list."""
    return lambda items: [*items, item]


def test_a_second_tool_under_a_recorded_name_is_a_difference() -> None:
    """It may be called in the place of the first, so what it says is held to what that one said."""
    twin = {
        "name": "book",
        "description": "Books any seat",
        "inputSchema": {"type": "object"},
    }

    changes = surface_changes(TOOLS, edited(TOOLS, "tools", adding(twin)))

    assert heaviest_verdict(changes) == "surface-changed"
    assert ("/tools/0/description", '"Book a seat"', '"Books any seat"') in [
        change[1:4] for change in changes
    ]

    same = edited(TOOLS, "tools", adding(TOOLS["tools"][0]))

    assert surface_changes(TOOLS, same) == []


SCHEMA = "tools 0 inputSchema"
SEAT = "tools 0 inputSchema properties seat"
DEFINED = edited(TOOLS, f"{SCHEMA} $defs", to={"Seat": {}})
ARGUMENTS = "prompts 0 arguments"
INFO = "_meta io.modelcontextprotocol/serverInfo"
MANDATORY = edited(PROMPTS, f"{ARGUMENTS} 0 required", to=True)
VERSIONS = ["2025-11-25", "2026-07-28"]


@pytest.mark.parametrize(
    ("result", "path", "to", "below", "is_information"),
    [
        (TOOLS, "tools", adding({"name": "new"}), "/2", True),
        (TOOLS, "tools", lambda v: v[:1], "/1", False),
        (TOOLS, "tools 0 description", "Book!", "", False),
        (TOOLS, "tools 0 title", "Book", "", True),
        (TOOLS, "tools 0 execution", {"taskSupport": "required"}, "", False),
        (TOOLS, f"{SCHEMA} properties note", {"type": "string"}, "", True),
        (TOOLS, f"{SCHEMA} properties", lambda v: {"seat": v["seat"]}, "/day", False),
        (TOOLS, f"{SCHEMA} required", ["day", "seat", "note"], "/2", False),
        (TOOLS, f"{SCHEMA} required", ["day"], "/0", True),
        (TOOLS, f"{SCHEMA} type", "array", "", False),
        (TOOLS, "tools 1 inputSchema required", ["id"], "", False),
        (TOOLS, f"{SEAT} enum", ["b", "a", "c"], "/2", True),
        (TOOLS, f"{SEAT} maxLength", 3, "", False),
        (TOOLS, f"{SEAT} deprecated", True, "", True),
        (DEFINED, f"{SCHEMA} $defs Other", {}, "", True),
        (TOOLS, "tools 0 outputSchema required", [], "/0", False),
        (PROMPTS, f"{ARGUMENTS} 0 required", True, "", False),
        (MANDATORY, f"{ARGUMENTS} 0 required", False, "", True),
        (PROMPTS, ARGUMENTS, adding({"name": "b", "required": True}), "/1", False),
        (DISCOVERY, "supportedVersions", [*VERSIONS, "new"], "/2", True),
        (DISCOVERY, "supportedVersions", VERSIONS[1:], "/1", False),
        (DISCOVERY, "capabilities prompts", {}, "", True),
        (DISCOVERY, "capabilities", {}, "/tools", False),
        (DISCOVERY, f"{INFO} version", "2", "", True),
        (DISCOVERY, f"{INFO} name", "t", "", False),
        (RESOURCES, "resources", lambda v: v[1:], "/0", False),
    ],
)
def test_one_change_of_the_surface_is_found(
    result: Json, path: str, to: Json, below: str, *, is_information: bool
) -> None:
    """What is added or optional is information; what is gone or newly required is not."""
    (change,) = surface_changes(result, edited(result, path, to))
    steps = [step.replace("/", "~1") for step in path.split(" ")]

    assert change.pointer == "/" + "/".join(steps) + below
    assert change.is_information is is_information
    assert change.verdict == "surface-changed"
    assert heaviest_verdict([change]) == (
        "same" if is_information else "surface-changed"
    )


def test_the_order_of_a_list_means_nothing() -> None:
    """The same tools in another order, and the same required names, are the same."""
    reordered = edited(TOOLS, f"{SCHEMA} required", to=["day", "seat"])
    reordered = edited(reordered, "tools", to=lambda v: v[::-1])

    assert surface_changes(TOOLS, reordered) == []

    (change,) = surface_changes({"a": [{}]}, {"a": [{"b": 1}]})

    assert change.pointer == "/a/0/b"


def test_what_names_no_call_of_a_pipe_belongs_to_none() -> None:
    """A server may say it shortly after a call, and so during the next one; progress names its."""
    changed_list = notification("notifications/tools/list_changed")
    log_a = notification("notifications/message", level="info", data="a")
    log_b = notification("notifications/message", level="info", data="b")
    begun = progress(1)
    advanced = progress(1, 2)

    def on_pipe(*said: bytes) -> RecordedExchange:
        lines = (*said, answer(CALL, text("done")))
        pieces = tuple(Piece(line + b"\n", 0.0, 1) for line in lines)
        response = Response(NO_STATUS, (), pieces, End.COMPLETE)

        return replace(
            seen(text("done")), request=line_request(CALL), response=response
        )

    rows: list[tuple[tuple[bytes, ...], tuple[bytes, ...], bool]] = [
        ((), (changed_list,), True),
        ((changed_list, begun), (begun,), True),
        ((), (log_a,), True),
        ((log_a, begun), (begun, log_a, log_b, changed_list), True),
        ((log_a, log_b, begun), (begun, log_b, log_a), True),
        ((log_a,), (log_b,), False),
        ((begun,), (), False),
        ((begun,), (log_a, advanced), False),
    ]

    for recorded, live, is_same in rows:
        old = on_pipe(*recorded)
        new = on_pipe(*live)

        assert (response_changes(old, new) == []) is is_same
        assert (response_changes(new, old) == []) is is_same

    done = answer(CALL, text("done"))
    quiet = seen(stream(done))
    telling = seen(stream(changed_list, done))

    assert response_changes(quiet, telling) != []
