from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from builders import answer, as_answer, get, post, refusal, retry, sse, tool
from messages import YES, Json, array_asks, asks, text
from pushing import elicit

from mrtr_cassette.core.compare.changes import Change
from mrtr_cassette.core.drive.conversation import (
    Answered,
    AskedOtherwise,
    Conversation,
    Finished,
    LiveAsk,
    LivePush,
    NeedsAnswers,
    Posted,
)
from mrtr_cassette.core.drive.server_session import ServerSession
from mrtr_cassette.core.record.open_pushes import OpenPush
from mrtr_cassette.core.record.recorder import Observation, Recorder
from mrtr_cassette.core.secrets.surrogates import sealed_hash

CALL = tool("deploy", env="prod")
STATES = ('live "state" {1}', "another live state")


class Scripted:
    """A script that gives fixed replies, one for each ask."""

    def __init__(self, *replies: Any) -> None:
        """Take the replies; a type stands for one made of the ask."""
        self._replies = list(replies)
        self.asks: list[LiveAsk] = []

    def answer(self, ask: Any) -> Any:
        """Give the next reply."""
        self.asks.append(ask)
        reply = self._replies.pop(0)
        return reply(ask) if callable(reply) else reply

    def answer_push(self, push: LivePush) -> Any:
        """Give it to a push too."""
        return self.answer(push)


def talk(
    script: Scripted, responses: Sequence[Json], request: bytes = CALL
) -> tuple[Conversation, list[Json]]:
    """Have a conversation with a server that gives these responses; return what was sent too."""
    conversation = Conversation(post(request), script, ServerSession(Recorder(seals=True)))
    coming = list(responses)
    sent: list[Observation] = []
    while (observation := conversation.next()) is not None:
        sent.append(observation)
        given = as_answer(observation.call.request, coming.pop(0))
        observation.response_started(given.status, given.headers)
        for chunk in given.chunks:
            observation.response_bytes(chunk, 0.0)
        observation.response_ended(0.0)
        conversation.responded(observation)
    assert not coming
    return conversation, [json.loads(observation.call.request.body) for observation in sent]


def test_answers_go_with_the_live_state_of_the_ask() -> None:
    """Each retry has the answers to the last ask, its state byte for byte, and an id of its own."""
    script = Scripted(Answered(b'{"a":1E2}'), Answered(None))
    first, second = STATES
    conversation, sent = talk(
        script, [asks("a", state=first), asks(state=second), text("done")], retry(CALL, {"x": YES})
    )

    params = [body["params"] for body in sent]
    assert "inputResponses" not in params[0]
    assert "requestState" not in params[0]
    assert (params[1]["inputResponses"], params[1]["requestState"]) == ({"a": 100.0}, first)
    assert "inputResponses" not in params[2]
    assert params[2]["requestState"] == second
    assert len({body["id"] for body in sent}) == 3
    assert conversation.request_state == second
    assert isinstance(conversation.standing, Finished)
    assert conversation.standing.turn == 3


def test_script_sees_an_ask_as_it_would_be_recorded() -> None:
    """What a script compares has no raw state; the raw state stands beside it."""
    state = "a state of more than a few characters"
    script = Scripted(NeedsAnswers)
    conversation, _ = talk(script, [array_asks("a", state=state)])

    (ask,) = script.asks
    assert (ask.turn, ask.request_state) == (1, state)
    assert ask.exchange.ask is not None
    assert ask.exchange.ask.dialect == "array"
    assert ask.exchange.ask.request_state == sealed_hash(state)
    assert conversation.standing == NeedsAnswers(ask)
    assert conversation.next() is None


def test_ask_that_the_script_refuses_is_not_answered() -> None:
    """Where the script sees another ask than it has answers to, nothing more is sent."""
    change = Change("question-changed", "/inputRequests/a", None, "1")
    conversation, sent = talk(
        Scripted(lambda ask: AskedOtherwise(ask, (change,))), [asks("a", state=STATES[0])]
    )

    assert isinstance(conversation.standing, AskedOtherwise)
    assert conversation.standing.changes == (change,)
    assert len(sent) == 1


def test_response_that_asks_nothing_ends_the_conversation() -> None:
    """A result, an error, and what is no response of the protocol are all an end."""
    for response in (text("done"), refusal(CALL), b"no JSON"):
        conversation, _ = talk(Scripted(), [response])
        assert isinstance(conversation.standing, Finished)
        assert conversation.standing.turn == 1
        assert conversation.standing.exchange.response is not None


PUSHED = elicit("push-1")


def pushing(script: Scripted, request: bytes = CALL) -> tuple[Conversation, Observation, OpenPush]:
    """Have a server push a question within the stream of its response."""
    conversation = Conversation(post(request), script, ServerSession(Recorder(seals=True)))
    observation = conversation.next()
    assert observation is not None
    observation.response_started(200, (("Content-Type", "text/event-stream"),))
    observation.response_bytes(sse(PUSHED), 0.0)
    (push,) = observation.take_pushed()
    return conversation, observation, push


def finish(conversation: Conversation, observation: Observation) -> None:
    """Have the server give its result."""
    observation.response_bytes(sse(answer(observation.call.request.body, text("done"))), 0.0)
    observation.response_ended(0.0)
    conversation.responded(observation)


def test_pushed_question_is_answered_by_a_response_with_its_id() -> None:
    """A result or an error is posted, and the call goes on."""
    for reply, member in ((Posted(b'{"a":1}'), "result"), (Posted(b'{"a":1}', "error"), "error")):
        script = Scripted(reply)
        conversation, observation, push = pushing(script)
        sent = conversation.pushed(push)
        assert sent is not None
        body = json.loads(sent.call.request.body)
        assert body == {"jsonrpc": "2.0", "id": "push-1", member: {"a": 1}}
        assert conversation.next() is None
        conversation.responded(sent)
        finish(conversation, observation)
        assert isinstance(conversation.standing, Finished)
        assert conversation.standing.turn == 2
        (ask,) = script.asks
        assert isinstance(ask, LivePush)
        assert (ask.turn, ask.message.method) == (1, "elicitation/create")


def test_refused_push_cancels_its_call() -> None:
    """The next request says that nobody waits; what comes after it changes nothing."""
    conversation, observation, push = pushing(Scripted(lambda ask: AskedOtherwise(ask, ())))
    assert conversation.pushed(push) is None
    assert conversation.is_over
    cancelled = conversation.next()
    assert cancelled is not None
    assert json.loads(cancelled.call.request.body)["params"] == {"requestId": "mrtr-cassette-1"}
    assert conversation.next() is None
    finish(conversation, observation)
    assert isinstance(conversation.standing, AskedOtherwise)
    assert conversation.push_received(push) is None


def test_answer_may_come_from_elsewhere_and_later() -> None:
    """To a push it is posted, to an ask it is the next retry; one that is too late is none."""
    conversation, observation, push = pushing(Scripted(NeedsAnswers))
    assert conversation.pushed(push) is None
    assert isinstance(conversation.standing, NeedsAnswers)
    sent = conversation.answer(Posted(b"{}"))
    assert sent is not None
    assert conversation.answer(Posted(b"{}")) is None
    finish(conversation, observation)
    assert isinstance(conversation.standing, Finished)

    conversation, observation, push = pushing(Scripted(NeedsAnswers))
    conversation.pushed(push)
    finish(conversation, observation)
    assert isinstance(conversation.standing, Finished)

    conversation = Conversation(
        post(CALL), Scripted(NeedsAnswers), ServerSession(Recorder(seals=True))
    )
    first = conversation.next()
    assert first is not None
    given = as_answer(first.call.request, asks("a"))
    first.response_started(given.status, given.headers)
    first.response_bytes(given.chunks[0], 0.0)
    conversation.responded(first)
    assert conversation.answer(Answered(b'{"a":1}')) is None
    retried = conversation.next()
    assert retried is not None
    assert json.loads(retried.call.request.body)["params"]["inputResponses"] == {"a": 1}


def test_stream_that_is_no_call_has_nothing_to_cancel() -> None:
    """Its request goes as it is, and is left without a word."""
    script = Scripted(lambda ask: AskedOtherwise(ask, ()))
    conversation = Conversation(get("/mcp"), script, ServerSession(Recorder(seals=True)))
    observation = conversation.next()
    assert observation is not None
    assert observation.call.request.body == b""
    observation.response_started(200, (("Content-Type", "text/event-stream"),))
    observation.response_bytes(sse(PUSHED), 0.0)
    (push,) = observation.take_pushed()
    assert conversation.pushed(push) is None
    assert conversation.next() is None
