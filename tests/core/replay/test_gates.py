from __future__ import annotations

from typing import Any

import pytest
from builders import (
    STREAM_HEADERS,
    Answer,
    Conversation,
    answer,
    conversation,
    get,
    loaded,
    notification,
    progress,
    rpc,
    sse,
    stream,
    tool,
)
from messages import text

from mrtr_cassette.core.replay.gates import gates_of
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import End

CALL = tool("deploy", env="prod")


def gates(talk: Conversation) -> dict[int, list[set[int]]]:
    """Return what each piece of an exchange waits for, by its number; empty where none waits."""
    playables = [each for own in Player(loaded(talk.cassette())).interactions for each in own]
    waiting = gates_of(playables)
    return {
        each.exchange.number: [set(gate) for gate in waiting.get(each.exchange, ())]
        for each in playables
        if each.exchange.number is not None
    }


LISTEN = rpc("subscriptions/listen", {}, number="l")


@pytest.mark.parametrize("listen", [LISTEN, get("/mcp")], ids=["listen", "GET"])
def test_listening_stream_waits_for_the_calls_that_came_before(listen: Any) -> None:
    """A notification on a listening stream comes no earlier than the calls that may have caused it."""
    talk = Conversation()
    talk.response(talk.request(tool("before")), text("x"))
    listening = talk.request(listen)
    observation = talk.observation(listening)
    observation.response_started(200, STREAM_HEADERS)
    observation.response_bytes(sse(notification("ready")), talk.tick())
    talk.response(talk.request(rpc("tools/list")), text("x"))
    talk.response(talk.request(notification("notifications/x")), Answer((), (), 202))
    call = talk.request(CALL)
    talk.response(call, text("x"))
    observation.response_bytes(sse(notification("changed")), talk.tick())
    talk.response(talk.request(tool("late")), text("x"))
    observation.response_ended(talk.tick())
    talk.exchanges.append(observation.seal(End.OPEN, talk.tick()))

    found = gates(talk)

    assert found[listening] == [set(), {call}]
    assert all(not any(found[number]) for number in found if number != listening)


def test_parallel_calls_owe_each_other_nothing() -> None:
    """A call's own stream waits for no other call."""
    talk = Conversation()
    one, two = talk.request(CALL), talk.request(tool("other"))
    talk.response(two, stream(progress(1)))
    talk.response(one, stream(progress(1)))

    assert gates(talk) == {one: [], two: []}


def test_stream_waits_for_the_answer_to_a_pushed_request() -> None:
    """What follows a request that the server pushed waits for the client's answer to it."""
    talk = Conversation()
    stale = talk.request(answer(rpc("x", number="p1"), {"action": "stale"}))
    talk.response(stale, Answer((), (), 202))
    call = talk.request(CALL)
    observation = talk.observation(call)
    observation.response_started(200, STREAM_HEADERS)
    observation.response_bytes(sse(rpc("elicitation/create", {}, number="p1")), talk.tick())
    observation.response_bytes(sse(progress(1)), talk.tick())
    answering = talk.request(answer(rpc("x", number="p1"), {"action": "accept"}))
    talk.response(answering, Answer((), (), 202))
    observation.response_bytes(sse(rpc("roots/list", {}, number="p2")), talk.tick())
    observation.response_bytes(sse(answer(CALL, text("done"))), talk.tick())
    observation.response_ended(talk.tick())
    talk.exchanges.append(observation.seal(End.COMPLETE, talk.tick()))

    found = gates(talk)

    assert found[call] == [set(), set(), {answering}, {answering}]
    assert found[answering] == []


def test_body_that_is_no_stream_waits_for_nothing() -> None:
    """Only a stream can have a pushed request in it."""
    talk = conversation(
        (answer(rpc("x", number=1), {}), Answer((), (), 202)),
        (CALL, text("done")),
    )

    assert gates(talk) == {1: [], 2: []}
