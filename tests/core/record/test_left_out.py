"""Facts about recordings with a user's function: what it leaves out, and what it changes."""

from __future__ import annotations

from typing import Any

import pytest
from builders import (
    ACCEPTED,
    Conversation,
    answer,
    encode_cassette,
    loaded,
    play,
    post,
    push_on,
    retry,
    rpc,
    said,
    show,
    state_in,
    tool,
)
from messages import YES, asks, form, text
from tasking import created

from mrtr_cassette.core.protocol.hooks import ClientRequest, RecordHook
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.record.sealing import ExchangeSealer
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import End
from mrtr_cassette.errors import HookError

STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
TASK = "a-task-with-a-long-id-4711"
CALL = tool("poll", n=1)


def without_polls(request: ClientRequest) -> ClientRequest | None:
    """Leave out what only its first request shows to be a poll."""
    is_poll = request.name == "poll" and request.answers is None
    return None if is_poll else request


def recorder() -> Recorder:
    """Return a recorder with this function."""
    return Recorder(
        ExchangeSealer(seals_states=True), before_record=RecordHook(without_polls)
    )


def passed(recorder: Recorder, request: bytes, response: Any) -> Observation:
    """Let an exchange pass."""
    observation = recorder.request_received(post(request), 0.0)
    show(observation, response)
    exchange = observation.seal(End.COMPLETE, 0.0)
    if observation.is_left_out:
        recorder.leave_out(exchange, observation.call)

    return observation


def test_later_rounds_and_tasks_of_a_call_go_with_it() -> None:
    """Whoever echoes its state or polls its task continues it, whatever the function says of that."""
    recording = recorder()

    assert passed(recording, CALL, asks("k", state=STATE)).is_left_out

    later = retry(CALL, {"k": YES}, state=STATE)

    assert passed(recording, later, created(TASK)).is_left_out

    kept = retry(tool("buy"), {"k": YES}, state="another-state-of-another-call")

    assert not passed(recording, kept, text("done")).is_left_out

    for task, is_left_out in ((TASK, True), ("another-task-0815", False)):
        poll = rpc("tasks/get", {"taskId": task})

        assert passed(recording, poll, {}).is_left_out is is_left_out


def test_answers_to_its_pushed_questions_go_with_it() -> None:
    """An answer that a client posts belongs to the call during which the server asked."""
    recording = recorder()
    for name, is_left_out in (("poll", True), ("buy", False)):
        call = recording.request_received(post(tool(name)), 0.0)
        asked = rpc("elicitation/create", form()["params"], f"q-{name}")
        push_on(call, asked)
        posted = recording.request_received(post(answer(asked, YES)), 0.0)

        assert (call.is_left_out, posted.is_left_out) == (is_left_out,) * 2


def test_what_is_on_a_shared_stream_can_not_be_left_out() -> None:
    """Over HTTP+SSE the response would be recorded all the same, so this is an error."""
    with pytest.raises(
        HookError, match=r"left out tools/call \"poll\", whose response is on"
    ):
        passed(recorder(), CALL, ACCEPTED)


def by_item(request: ClientRequest) -> ClientRequest:
    """Scrub the key of an order."""
    if "key" in request.arguments:
        request.arguments["key"] = "k"

    return request


def order(key: str) -> bytes:
    """Return an order of this key."""
    return tool("buy", key=key, item="a hat")


def two_orders(change: Any) -> Conversation:
    """Record two orders of which each waits for the other's question."""
    talk = Conversation()
    if change is not None:
        talk.recorder.before_record = RecordHook(change)

    states = [f"eyJrZXkiOiJ{key}In0.c2lnbmF0dXJlLW9m" for key in "ab"]
    for key, state in zip("ab", states, strict=True):
        talk.exchange(order(key), asks("q", state=state))

    for key, state in zip("ba", reversed(states), strict=True):
        again = retry(order(key), {"q": YES}, state=state)
        talk.exchange(again, text(f"bought {key}"))

    return talk


def test_what_changes_nothing_changes_no_byte() -> None:
    """A function that returns what it is given leaves the cassette as it is without one."""
    without = two_orders(None).cassette()
    returned = two_orders(lambda request: request).cassette()

    assert encode_cassette(returned) == encode_cassette(without)


def test_rounds_stay_linked_and_play_to_other_keys() -> None:
    """Calls that are equal without their keys are told apart by their states, as recorded."""
    recorded = two_orders(by_item).cassette()
    lengths = [
        len(interaction.exchanges) for interaction in loaded(recorded).interactions
    ]

    assert lengths == [2, 2]
    assert '"key":"b"' not in encode_cassette(recorded).decode()

    player = Player(loaded(recorded))
    player.before_record = RecordHook(by_item)
    states = [state_in(play(player, order(key))) for key in "xy"]
    for key, state, bought in (("x", states[0], "a"), ("y", states[1], "b")):
        again = retry(order(key), {"q": YES}, state=state)

        assert said(play(player, again)) == f"bought {bought}"
