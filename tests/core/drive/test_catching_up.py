"""Transcripts of leading: what the live server is sent, and what keeps it from being led."""

from __future__ import annotations

import json
from typing import Any

import pytest
from builders import (
    as_answer,
    cassette_of,
    changed,
    loaded,
    post,
    refusal,
    retry,
    stream,
    tool,
    with_token,
)
from messages import NO, YES, Json, array_asks, asks, form, text

from mrtr_cassette.core.drive.catching_up import CatchUp, RecordedAsks
from mrtr_cassette.core.drive.unrecorded import Unrecorded
from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.record.recorder import Observation
from mrtr_cassette.core.replay.matching import redactor_of
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import Request

CALL = tool("deploy", env="prod")
FIRST, SECOND = "first-recorded-state-0123456789", "second-recorded-state-0123456789"
LIVE, LIVE_TOO = 'live "state" {1}', "another live state"
SCRIPT = (
    (CALL, asks("a", state=FIRST)),
    (retry(CALL, {"a": YES}, state=FIRST), asks("b", state=SECOND)),
    (retry(CALL, {"b": YES}, state=SECOND), text("done")),
)


def recorded_asks(*script: Any, **options: bool) -> tuple[RecordedAsks, list[str]]:
    """Return the asks of a script's cassette, and the states of its first interaction's asks."""
    cassette = cassette_of(*script, **options)
    turns = cassette.interactions[0].elicitation_turns
    recording = loaded(cassette, "c.json")
    return RecordedAsks(Player(recording), redactor_of(recording)), [
        turn.ask.body["result"].get("requestState") for turn in turns
    ]


def twice(request: Request) -> tuple[Call, Call]:
    """Return a request as it is sent and as it is matched, which is the same without secrets."""
    return read_call(request), read_call(request)


def catch_up_of(body: bytes, *script: Any, **options: bool) -> CatchUp:
    """Return how the server is brought to what a retry answers, which must be possible."""
    catch_up = recorded_asks(*script, **options)[0].catch_up_for(*twice(post(body)))
    assert isinstance(catch_up, CatchUp), catch_up
    return catch_up


def next_of(catch_up: CatchUp) -> Observation:
    """Return the next request, which there must be."""
    observation = catch_up.next()
    assert observation is not None
    return observation


def respond(catch_up: CatchUp, observation: Observation, response: Json) -> Unrecorded | None:
    """Let the live server respond to a request."""
    given = as_answer(observation.call.request, response)
    observation.response_started(given.status, given.headers)
    for chunk in given.chunks:
        observation.response_bytes(chunk, 0.0)
    observation.response_ended(0.0)
    catch_up.responded(observation)
    return catch_up.failure


def params(observation: Observation) -> Json:
    """Return the params of a request that is sent."""
    return json.loads(observation.call.request.body)["params"]


def test_conversation_is_repeated_up_to_the_ask() -> None:
    """The call, the recorded answers with the live states, then the client's own retry."""
    _, (_, state) = recorded_asks(*SCRIPT)
    mine = with_token(retry(CALL, {"b": NO}, state=state, number=7), 7)
    catch_up = catch_up_of(mine, *SCRIPT)

    one = next_of(catch_up)
    assert params(one) == json.loads(with_token(CALL, 7))["params"]
    assert respond(catch_up, one, asks("a", state=LIVE)) is None
    two = next_of(catch_up)
    assert params(two)["inputResponses"] == {"a": YES}
    assert params(two)["requestState"] == LIVE
    assert one.call.message is not None
    assert two.call.message is not None
    assert len({one.call.message.id, two.call.message.id, "7"}) == 3
    assert respond(catch_up, two, asks("b", state=LIVE_TOO)) is None
    assert catch_up.next() is None
    assert catch_up.retry() == post(mine.replace(state.encode(), LIVE_TOO.encode()))
    assert catch_up.states == [(LIVE, recorded_asks(*SCRIPT)[1][0]), (LIVE_TOO, state)]


def test_own_lengths_are_not_sent_with_other_bodies() -> None:
    """What is sent has another length than what the client sent."""
    _, (state, _) = recorded_asks(*SCRIPT)
    request = post(retry(CALL, {"a": NO}, state=state), ("Content-Length", "1"), ("X", "y"))
    catch_up = recorded_asks(*SCRIPT)[0].catch_up_for(*twice(request))
    assert isinstance(catch_up, CatchUp)

    first = next_of(catch_up)
    assert respond(catch_up, first, asks("a", state=LIVE)) is None
    sent = [first.call.request, catch_up.retry()]
    assert [one.header("content-length") for one in sent] == ["", ""]
    assert [one.header("x") for one in sent] == ["y", "y"]


def test_ask_in_a_stream_is_an_ask_as_well() -> None:
    """The live server may answer in another form than it did while recorded."""
    _, (state, _) = recorded_asks(*SCRIPT)
    catch_up = catch_up_of(retry(CALL, {"a": NO}, state=state), *SCRIPT)
    one = next_of(catch_up)
    body = as_answer(one.call.request, asks("a", state=LIVE)).chunks[0]

    assert respond(catch_up, one, stream(body)) is None


def test_conversation_in_the_array_dialect_is_repeated() -> None:
    """Questions and answers in an array are compared and given like others."""
    script = (
        (CALL, array_asks("a", state=FIRST)),
        (retry(CALL, [{"id": "a", "value": 1}], state=FIRST), array_asks("b", state=SECOND)),
    )
    _, (_, state) = recorded_asks(*script)
    catch_up = catch_up_of(retry(CALL, [{"id": "b", "value": 2}], state=state), *script)

    assert respond(catch_up, next_of(catch_up), array_asks("a", state=LIVE)) is None
    assert params(next_of(catch_up))["inputResponses"] == [{"id": "a", "value": 1}]


def test_state_that_the_question_repeats_is_compared_as_the_recorded_one() -> None:
    """A URL with the state in it is the same question in every run."""

    def ask(state: str) -> Json:
        return changed_message(asks("a", state=state), f"https://x.example/?s={state}")

    script = ((CALL, ask(FIRST)),)
    _, (state,) = recorded_asks(*script)
    catch_up = catch_up_of(retry(CALL, {"a": NO}, state=state), *script)
    assert respond(catch_up, next_of(catch_up), ask("l" * 30)) is None


def changed_message(result: Json, message: str) -> Json:
    """Return an ask with another question under its key `a`."""
    return {**result, "inputRequests": {"a": form(message)}}


@pytest.mark.parametrize(
    ("response", "found"),
    [
        (
            changed_message(asks("a", state=LIVE), "b?"),
            [("/inputRequests/a/params/message", '"a?"', '"b?"')],
        ),
        (
            asks("a", "z", state=LIVE),
            [("/inputRequests/z", None, '{"method":"elicitation/create"')],
        ),
        (asks("a"), [("/requestState", '"..."', None)]),
    ],
    ids=["another question", "one more", "no state"],
)
def test_another_question_is_not_answered(response: Json, found: Json) -> None:
    """The difference is told by JSON Pointer, with the recorded value and the live one."""
    _, (state, _) = recorded_asks(*SCRIPT)
    catch_up = catch_up_of(retry(CALL, {"a": NO}, state=state), *SCRIPT)

    failure = respond(catch_up, next_of(catch_up), response)
    assert failure is not None
    assert failure.asker is catch_up.asker
    shown = [(one.pointer, one.recorded, one.received) for one in failure.differences]
    for (pointer, recorded, live), (at, before, now) in zip(shown, found, strict=True):
        assert (pointer, recorded) == (at, before)
        assert live == now or (live or "").startswith(now)


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (text("done"), "the live server asks nothing in turn 1: HTTP 200"),
        (refusal(CALL), "the live server asks nothing in turn 1: HTTP 200"),
        (b"no JSON", "the live server asks nothing in turn 1: HTTP 200"),
    ],
)
def test_response_that_asks_nothing_ends_it(response: Json, words: str) -> None:
    """Whatever else comes back, it is no point to go on from."""
    _, (state, _) = recorded_asks(*SCRIPT)
    catch_up = catch_up_of(retry(CALL, {"a": NO}, state=state), *SCRIPT)

    failure = respond(catch_up, next_of(catch_up), response)
    assert failure is not None
    assert failure.detail == words


@pytest.mark.parametrize(
    "body",
    [
        CALL,
        retry(CALL, {"a": YES}),
        retry(CALL, {"a": YES}, state=FIRST),
        retry(CALL, {"a": YES}, state="a state that a live server issued"),
        changed(retry(CALL, {"a": YES}), "params", "requestState", to=5),
        b"no JSON",
    ],
    ids=["a call", "without state", "the raw one", "a live one", "no string", "opaque"],
)
def test_what_a_server_understands_is_sent_as_it_is(body: bytes) -> None:
    """Only a state that the cassette issued needs another one in its place."""
    assert recorded_asks(*SCRIPT)[0].catch_up_for(*twice(post(body))) is None


def test_orphan_cannot_be_repeated() -> None:
    """A conversation that begins with a retry has no first request to begin with."""
    orphan = retry(CALL, {"a": YES}, state="unknown-" * 4)
    found, (state,) = recorded_asks((orphan, asks("b", state=SECOND)))
    failure = found.catch_up_for(*twice(post(retry(CALL, {"b": YES}, state=state))))

    assert isinstance(failure, Unrecorded)
    assert "begins with a retry" in failure.detail


def test_state_of_another_call_or_cassette_leads_nowhere() -> None:
    """A state that a replay gave out belongs to one call of one cassette."""
    asks_of_cassette, (state, *_) = recorded_asks(*SCRIPT)
    other = asks_of_cassette.catch_up_for(
        *twice(post(retry(tool("another"), {"a": YES}, state=state)))
    )
    unknown = asks_of_cassette.catch_up_for(
        *twice(post(retry(CALL, {"a": YES}, state=f"mrtr-state:{'0' * 16}:9:9")))
    )

    assert isinstance(other, Unrecorded)
    assert other.detail == "its request state was recorded for another call"
    assert isinstance(unknown, Unrecorded)
    assert unknown.detail == "no ask in this cassette has its request state"


def test_it_is_over_when_the_server_is_there() -> None:
    """After that nothing that still comes on the stream is of interest."""
    _, (state, *_) = recorded_asks(*SCRIPT)
    catch_up = catch_up_of(retry(CALL, {"a": YES}, state=state), *SCRIPT)
    assert not catch_up.is_over
    assert respond(catch_up, next_of(catch_up), asks("a", state="live-state-" * 4)) is None
    assert catch_up.is_over
    assert catch_up.next() is None


def test_live_state_is_in_the_retry_whatever_is_added() -> None:
    """A client that tampers with its state tampers with the live one."""
    _, (state, _) = recorded_asks(*SCRIPT)
    catch_up = catch_up_of(retry(CALL, {"a": NO}, state=f"<{state}>"), *SCRIPT)
    respond(catch_up, next_of(catch_up), asks("a", state=LIVE))

    assert json.loads(catch_up.retry().body)["params"]["requestState"] == f"<{LIVE}>"


def test_verbatim_states_are_replaced() -> None:
    """In a verbatim cassette the raw state is what the client was given."""
    catch_up = catch_up_of(retry(CALL, {"a": NO}, state=FIRST), *SCRIPT, seals=False)
    respond(catch_up, next_of(catch_up), asks("a", state=LIVE))

    assert json.loads(catch_up.retry().body)["params"]["requestState"] == LIVE


def test_short_state_is_recognised_only_as_a_whole() -> None:
    """A short state of a verbatim cassette may stand in another one by chance."""
    script = ((CALL, asks("a", state="1")),)
    found, _ = recorded_asks(*script, seals=False)

    assert found.catch_up_for(*twice(post(retry(CALL, {"a": NO}, state="live-1")))) is None
    assert isinstance(found.catch_up_for(*twice(post(retry(CALL, {"a": NO}, state="1")))), CatchUp)


def test_live_answers_are_readable() -> None:
    """The client's codings are the client's; what is sent here has to be read here."""
    _, (state, _) = recorded_asks(*SCRIPT)
    request = post(retry(CALL, {"a": NO}, state=state), ("Accept-Encoding", "br, zstd"))
    catch_up = recorded_asks(*SCRIPT)[0].catch_up_for(*twice(request))
    assert isinstance(catch_up, CatchUp)

    first = next_of(catch_up)
    assert first.call.request.header("accept-encoding") == "identity"
    assert respond(catch_up, first, asks("a", state=LIVE)) is None
    assert catch_up.retry().header("accept-encoding") == "br, zstd"


def test_each_spelled_state_is_replaced_and_nothing_else() -> None:
    """Of duplicate members the last counts; what is no state of the cassette stays."""
    _, (state, _) = recorded_asks(*SCRIPT)
    body = retry(CALL, {"a": NO}, state=state)
    twofold = body.replace(b'"requestState":', b'"requestState":5 , "requestState": ')
    catch_up = catch_up_of(twofold, *SCRIPT)
    respond(catch_up, next_of(catch_up), asks("a", state=LIVE_TOO))

    assert catch_up.retry().body == twofold.replace(state.encode(), LIVE_TOO.encode())
