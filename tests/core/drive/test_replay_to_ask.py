"""Transcripts of bringing a live server to where a client of the cassette is."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from builders import (
    JSON_HEADERS,
    Answer,
    answer,
    cassette_of,
    changed,
    follow,
    loaded,
    notification,
    post,
    refusal,
    respond,
    retry,
    rpc,
    stream,
    tool,
    with_token,
)
from messages import NO, YES, Json, array_asks, asks, text
from tasking import created

from mrtr_cassette.core.drive.appending import RecordedAsks, Sessions
from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.protocol.dialect import InputRequest, InputRequired
from mrtr_cassette.core.record.linking import LiveAsks
from mrtr_cassette.core.record.sealing import ExchangeSealer
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.matching import redactor_of
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import (
    End,
    Headers,
    Piece,
    Request,
    Response,
    line_request,
)

CALL = tool("deploy", env="prod")
FIRST = "first-recorded-state-0123456789"
SECOND = "second-recorded-state-0123456789"
LIVE = 'live "state" {1}'
LIVE_TOO = "another live state"
SCRIPT = (
    (CALL, asks("a", state=FIRST)),
    (retry(CALL, {"a": YES}, state=FIRST), asks("b", state=SECOND)),
    (retry(CALL, {"b": YES}, state=SECOND), text("done")),
)


def recorded_asks(*script: Any, **options: bool) -> tuple[RecordedAsks, list[str]]:
    """Return the asks of a script's cassette, and the states of its first interaction's asks."""
    cassette = cassette_of(*script or SCRIPT, **options)
    turns = cassette.interactions[0].elicitation_turns
    recording = loaded(cassette, "c.json")
    new_sealer = partial(ExchangeSealer, redactor=redactor_of(recording))

    return RecordedAsks(Player(recording), new_sealer), [
        turn.ask.body["result"].get("requestState") for turn in turns
    ]


STATE, STATE_TOO = recorded_asks()[1]


def replay_for(
    body: bytes, *script: Any, headers: Headers = (), **options: bool
) -> Any:
    """Return how the server is brought to what a request answers."""
    call = read_call(post(body, *headers))
    return recorded_asks(*script, **options)[0].replay_to_answered_ask(call, call)


def params(request: Request) -> Json:
    """Return the params of a request."""
    return json.loads(request.body)["params"]


def test_conversation_is_repeated_up_to_the_ask() -> None:
    """The call, the recorded answers with the live states, then the client's own retry."""
    mine = with_token(retry(CALL, {"b": NO}, state=STATE_TOO, number=7), 7)
    replay = replay_for(
        mine, headers=(("Content-Length", "1"), ("Accept-Encoding", "br"))
    )
    first, second = follow(replay, asks("a", state=LIVE), asks("b", state=LIVE_TOO))
    ids = {json.loads(request.body)["id"] for request in (first, second)}

    assert (replay.is_over, replay.failure) == (True, None)
    assert params(first) == json.loads(with_token(CALL, 7))["params"]
    assert params(second)["inputResponses"] == {"a": YES}
    assert params(second)["requestState"] == LIVE
    assert len(ids | {7}) == 3
    assert first.header("content-length") == ""
    assert first.header("accept-encoding") == "identity"

    retried = replay.retry_with_live_state()

    assert retried.body == mine.replace(STATE_TOO.encode(), LIVE_TOO.encode())
    assert retried.header("content-length") == ""
    assert retried.header("accept-encoding") == "br"
    assert replay.states == [(LIVE, STATE), (LIVE_TOO, STATE_TOO)]


def test_a_recorded_cursor_is_one_of_its_list() -> None:
    """Servers count the pages of each list from the same number on."""
    pages = ((rpc("tools/list"), {"tools": [], "nextCursor": "2"}),)
    of_tools = rpc("tools/list", {"cursor": "2"})
    of_resources = rpc("resources/list", {"cursor": "2"})

    assert replay_for(of_tools, *pages).detail.endswith("record the whole list again")
    assert replay_for(of_resources, *pages) is None


def test_the_same_ask_may_come_in_other_forms() -> None:
    """In a stream, and in the array dialect."""
    script = (
        (CALL, array_asks("a", state=FIRST)),
        (
            retry(CALL, [{"id": "a", "value": 1}], state=FIRST),
            array_asks("b", state=SECOND),
        ),
    )

    mine = retry(CALL, [{"id": "b", "value": 2}], state=recorded_asks(*script)[1][1])
    replay = replay_for(mine, *script)
    respond(replay, lambda body: stream(answer(body, array_asks("a", state=LIVE))))
    (two,) = follow(replay, array_asks("b", state=LIVE))

    assert params(two)["inputResponses"] == [{"id": "a", "value": 1}]


@pytest.mark.parametrize(
    ("response", "pointers"),
    [
        (asks("a", state=LIVE, words="b?"), ["/inputRequests/a/params/message"]),
        (asks("a", "z", state=LIVE), ["/inputRequests/z"]),
        (asks("a"), ["/requestState"]),
        (text("done"), []),
        (refusal(CALL), []),
        (b"no JSON", []),
        (created("task-of-today"), []),
    ],
    ids=[
        "another question",
        "one more",
        "no state",
        "a result",
        "an error",
        "no JSON",
        "a task",
    ],
)
def test_another_question_is_not_answered(response: Json, pointers: list[str]) -> None:
    """The difference is told by JSON Pointer; whatever else comes back leads nowhere."""
    replay = replay_for(retry(CALL, {"a": NO}, state=STATE))
    respond(replay, response)
    failure = replay.failure
    words = "nothing in turn 1: HTTP 200"
    if pointers:
        words = "something else in turn 1"

    assert failure.nearest == replay.asking_entry
    assert failure.detail == f"the live server asks {words}"
    assert [difference.pointer for difference in failure.differences] == pointers


def test_what_a_server_understands_is_sent_as_it_is() -> None:
    """Only a state that the cassette issued needs another one in its place."""
    for body in (
        CALL,
        retry(CALL, {"a": YES}),
        retry(CALL, {"a": YES}, state=FIRST),
        changed(retry(CALL, {"a": YES}), "params", "requestState", to=5),
        b"no JSON",
    ):
        assert replay_for(body) is None


ORPHAN = ((retry(CALL, {"a": YES}, state="unknown-" * 4), asks("b", state=SECOND)),)


@pytest.mark.parametrize(
    ("body", "script", "words"),
    [
        (
            retry(CALL, {}, state=recorded_asks(*ORPHAN)[1][0]),
            ORPHAN,
            "begins with a retry whose",
        ),
        (
            retry(tool("another"), {}, state=STATE),
            SCRIPT,
            "was recorded for another call",
        ),
        (
            retry(CALL, {}, state=f"mrtr-state:{'0' * 16}:9:9"),
            SCRIPT,
            "no ask in this cassette",
        ),
    ],
    ids=["orphan", "another call", "another cassette"],
)
def test_state_that_leads_nowhere_is_told(body: bytes, script: Any, words: str) -> None:
    """A state that a replay issued belongs to one call of one cassette."""
    failure = replay_for(body, *script)

    assert isinstance(failure, Miss)
    assert words in failure.detail


@pytest.mark.parametrize("shape", ["<{}>", '{}","requestState":"{}'])
def test_live_state_is_in_the_retry_whatever_is_added(shape: str) -> None:
    """A client that tampers with its state tampers with the live one; duplicate members stay."""
    body = retry(CALL, {"a": NO}, state="STATE").replace(
        b"STATE", shape.replace("{}", STATE).encode()
    )
    replay = replay_for(body)
    respond(replay, asks("a", state=LIVE_TOO))

    assert replay.retry_with_live_state().body == body.replace(
        STATE.encode(), LIVE_TOO.encode()
    )


def test_verbatim_states_are_replaced_and_short_ones_only_as_a_whole() -> None:
    """In a verbatim cassette the raw state is what the client was given."""
    replay = replay_for(retry(CALL, {"a": NO}, state=FIRST), *SCRIPT, seals=False)
    respond(replay, asks("a", state=LIVE))

    assert params(replay.retry_with_live_state())["requestState"] == LIVE

    script = ((CALL, asks("a", state="1")),)

    assert (
        replay_for(retry(CALL, {"a": NO}, state="live-1"), *script, seals=False) is None
    )

    replay_for(retry(CALL, {"a": NO}, state="1"), *script, seals=False)


def test_live_ask_without_state_is_answered_once() -> None:
    """Answers whose keys fit may be to what was asked live; a state tells that they are not."""
    live = LiveAsks()
    call = read_call(post(CALL))
    live.add_ask(
        call, InputRequired("2026-07-28", {"a": InputRequest("form", "?")}, None)
    )
    live.add_ask(call, InputRequired("2026-07-28", {}, "state"))
    for body, is_answered in (
        (CALL, False),
        (retry(CALL, {"z": YES}), False),
        (retry(CALL, {"a": YES}, state="state"), False),
        (retry(tool("other"), {"a": YES}), False),
        (retry(CALL, {"a": YES}), True),
        (retry(CALL, {"a": YES}), False),
    ):
        assert live.close_answered_ask(read_call(post(body))) is is_answered


# Sessions

SESSION = "Mcp-Session-Id"
RECORDED = "mrtr-session:1"
LIVE_SESSION = "live-session"
INITIALIZE = rpc("initialize", {"capabilities": {}})
INITIALIZED = notification("notifications/initialized")
OPENED = Answer((answer(INITIALIZE, {}),), (*JSON_HEADERS, (SESSION, LIVE_SESSION)))


def in_session(body: bytes, session: str = RECORDED) -> Call:
    """Return a request in a session."""
    return read_call(post(body, (SESSION, session)))


def opened_sessions() -> Sessions:
    """Return sessions of which one was opened from the cassette."""
    sessions = Sessions(ExchangeSealer)
    response = Response(
        200, ((SESSION, RECORDED),), (Piece(b"{}", 0, 1),), End.COMPLETE
    )
    sessions.note_play(post(INITIALIZE), "initialize", response)
    sessions.note_play(
        in_session(INITIALIZED).request, "notifications/initialized", None
    )

    return sessions


@pytest.mark.parametrize(
    ("response", "live"),
    [(OPENED, LIVE_SESSION), (Answer((answer(INITIALIZE, {}),)), "")],
)
def test_session_is_opened_as_the_client_opened_the_recorded_one(
    response: Answer, live: str
) -> None:
    """The client's `initialize`, then what followed, in the live session if the server has any."""
    sessions = opened_sessions()
    call = in_session(tool("a"))
    opening: Any = sessions.opening_of_live_session(call)
    _, second = follow(opening, response, Answer((), (), 202))

    assert opening.failure is None
    assert (second.body, second.header("mcp-session-id")) == (INITIALIZED, live)

    sessions.note_opened_session(opening)

    assert sessions.in_live_session(call.request).header("mcp-session-id") == live
    assert sessions.opening_of_live_session(call) is None


def test_server_that_opens_no_session_is_told() -> None:
    """An error status or a JSON-RPC error says why."""
    said = b'{"jsonrpc":"2.0","id":2042100001,"error":{"code":1,"message":"no"}}'
    for body, status, outcome in (
        (b"x", 500, "HTTP 500"),
        (said, 200, "HTTP 200, error"),
    ):
        opening: Any = opened_sessions().opening_of_live_session(in_session(tool("a")))
        follow(opening, Answer((body,), JSON_HEADERS, status))

        assert opening.failure.detail.startswith(
            f"the live server opened no session: {outcome}"
        )


def test_request_without_a_recorded_session_needs_no_opening() -> None:
    """A request outside of sessions, in a live one, or on a pipe goes to the server as it is."""
    sessions = opened_sessions()
    pipe = read_call(line_request(tool("a"), "mrtr-session:2"))
    for call in (read_call(post(tool("a"))), in_session(tool("a"), "another"), pipe):
        assert sessions.opening_of_live_session(call) is None
        assert sessions.in_live_session(call.request) == call.request


def test_session_that_no_live_one_can_stand_for_is_refused() -> None:
    """Nobody opened it here, or a response answers what a recorded stream asked."""
    for sessions, body, words in (
        (Sessions(ExchangeSealer), tool("a"), "this client has not opened it"),
        (opened_sessions(), answer(rpc("x"), {}), "which no live server asked"),
    ):
        failure = sessions.opening_of_live_session(in_session(body))

        assert isinstance(failure, Miss)
        assert words in failure.detail
