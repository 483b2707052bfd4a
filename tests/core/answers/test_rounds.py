"""Facts about the rounds of one call: their number, their pace, what is sent, what is no outcome."""

from __future__ import annotations

from typing import Any

import pytest
from builders import exchange, post, tool
from messages import array_asks, asks, compact, message, result

from mrtr_cassette.core.answers.fulfilment import (
    Pause,
    Rounds,
    Sources,
    fault_of,
)
from mrtr_cassette.core.answers.written import answers_of
from mrtr_cassette.core.drive.conversation import LiveAsk
from mrtr_cassette.core.protocol.jsonrpc import classify
from mrtr_cassette.core.secrets.sealed import sha256_of

CALL = post(tool("deploy", env="prod"))


def ask(value: Any, turn: int = 1, state: str | None = None) -> LiveAsk:
    """Return an ask of a live server."""
    return LiveAsk(turn, exchange(CALL, compact(result(value))), state)


def push(method: str = "roots/list", turn: int = 1) -> LiveAsk:
    """Return a pushed request."""
    pushed = classify(compact(message(method, {"message": "Sure?"}, id="p")))
    assert pushed is not None
    return LiveAsk(turn, exchange(CALL, b""), None, pushed, "roots-1")


def rounds(**tree: Any) -> Rounds:
    """Return rounds whose answers a file gives."""
    return Rounds(Sources(file=answers_of(tree, "answers.toml")))


def reply_to(own: Rounds, live: LiveAsk, pauses: float = 0.0) -> Any:
    """Return the answer to an ask, before which there are these seconds of pauses."""
    steps = own.answer(live)
    while True:
        try:
            step = next(steps)
        except StopIteration as ended:
            assert pauses == 0
            return ended.value
        assert isinstance(step, Pause)
        pauses -= step.seconds


def test_ask_is_answered_in_its_dialect() -> None:
    """The turn has who answered, and a hash of the state."""
    own = rounds(rule=[{"action": "decline"}, {"value": "x"}])
    reply = reply_to(own, ask(asks("a", state="raw"), state="raw"))
    assert reply.value == b'{"a":{"action":"decline"}}'
    (turn,) = own.turns
    assert (turn.number, turn.via, turn.answered_by) == (1, "result", {"a": "rule 1"})
    assert turn.state_sha256 == sha256_of("raw")
    assert turn.answers == {"a": {"action": "decline"}}
    reply = reply_to(own, ask(array_asks("a", state="s"), 2, "s"))
    assert reply.value == b'[{"value":"x","id":"a"}]'


def test_pushed_request_is_answered_by_its_result() -> None:
    """It has our own key, by which it may also be answered."""
    own = rounds(rule=[{"key": "roots-1", "result": {"roots": []}}])
    reply = reply_to(own, push())
    assert (reply.value, reply.member) == (b'{"roots":[]}', "result")
    assert own.turns[0].via == "push"


def test_leg_without_requests_is_paced() -> None:
    """TypeScript SDK: "paces requestState-only legs at a fixed 250 ms"."""
    waiting = ask(asks(state="s"), state="s")
    assert reply_to(rounds(), waiting, pauses=0.25).value is None


def test_server_that_asks_for_ever_stops_at_the_cap() -> None:
    """TypeScript SDK: "capped at inputRequired.maxRounds (default 10)"."""
    own = rounds(otherwise="decline")
    assert reply_to(own, ask(asks("a"), 10)) is not None
    assert not own.overrun
    assert reply_to(own, ask(asks("a"), 11)) is None
    assert own.overrun


def test_what_nobody_answers_ends_the_call() -> None:
    """The question is kept, with the reason."""
    own = rounds()
    assert reply_to(own, ask(asks("a", "b"))) is None
    assert own.unanswered is not None
    assert own.unanswered.key == "a"
    assert [*own.unanswered.asked.requests] == ["a", "b"]
    assert own.turns[0].answered_by == {}


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (compact(result({"content": []})), None),
        (compact({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "m"}}), None),
        (
            compact(result({"resultType": "input_required"})),
            "the server asks for input with neither requests nor state",
        ),
        (
            compact(result({"resultType": "input_required", "inputRequests": 5})),
            "the server asks for input in a form that nobody can read",
        ),
        (b"<html>", "the response is no JSON-RPC response (HTTP 200)"),
    ],
)
def test_last_response_is_an_outcome_or_a_fault(body: bytes, fault: str | None) -> None:
    """TypeScript SDK: "neither inputRequests nor a requestState ... is rejected"."""
    assert fault_of(exchange(CALL, body)) == fault
