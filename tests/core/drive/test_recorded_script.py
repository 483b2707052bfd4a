from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import (
    JSON_HEADERS,
    Answer,
    answer,
    cassette_of,
    converse,
    loaded,
    retry,
    stream,
    tool,
)
from messages import NO, YES, Json, asks, form, text
from pushing import PushingSession, elicit, posted

from mrtr_cassette.core.drive.conversation import (
    Answered,
    AskedOtherwise,
    LiveAsk,
    LivePush,
    NeedsAnswers,
    Posted,
)
from mrtr_cassette.core.drive.recorded_script import IssuedState, RecordedScript
from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.protocol.jsonrpc import classify

CALL = tool("deploy", env="prod")
FIRST, SECOND = "first-recorded-state-0123456789", "second-recorded-state-0123456789"
LIVE = "the-live-state-0123456789-abcdefgh"
SCRIPT = (
    (CALL, asks("a", state=FIRST)),
    (retry(CALL, {"a": YES}, state=FIRST), asks("b", state=SECOND)),
    (retry(CALL, {"b": YES}, state=SECOND), text("done")),
)


def recorded(*script: Any, **options: bool) -> tuple[RecordedExchange, ...]:
    """Return the exchanges of a script's first interaction, as they are loaded."""
    return loaded(cassette_of(*script, **options)).interactions[0].exchanges


def live_ask(turn: int, result: Json, state: str | None = LIVE) -> LiveAsk:
    """Return an ask of the live server, in the form in which it would be recorded."""
    (exchange,) = converse((CALL, result))
    return LiveAsk(turn, exchange, state)


def test_recorded_answers_are_given_to_the_recorded_asks() -> None:
    """Each ask but the last gets the answer that was recorded for it, byte for byte."""
    script = RecordedScript(recorded(*SCRIPT)[:2])

    assert script.answer(live_ask(1, asks("a", state=LIVE))) == Answered(
        b'{"a":{"action":"accept","content":{"ok":true}}}'
    )
    last = live_ask(2, asks("b", state=LIVE))
    assert script.answer(last) == NeedsAnswers(last)
    assert [type(state) for state in script.states] == [IssuedState, IssuedState]
    assert [state.live for state in script.states] == [LIVE, LIVE]
    assert all(state.recorded.startswith("mrtr-state:") for state in script.states)


@pytest.mark.parametrize(
    ("result", "state", "pointers"),
    [
        ({**asks("a", state=LIVE), "inputRequests": {"a": form("b?")}}, LIVE, ["/params/message"]),
        (asks("a", "z", state=LIVE), LIVE, [""]),
        (asks("a"), None, ["/requestState"]),
    ],
    ids=["another question", "one more", "no state"],
)
def test_another_ask_is_never_answered(result: Json, state: str | None, pointers: Any) -> None:
    """A word more or less in what is asked is told by its place, and nothing is answered."""
    script = RecordedScript(recorded(*SCRIPT)[:2])

    standing = script.answer(live_ask(1, result, state))

    assert isinstance(standing, AskedOtherwise)
    assert len(standing.changes) == len(pointers)
    for change, pointer in zip(standing.changes, pointers, strict=True):
        assert change.verdict == "question-changed"
        assert change.pointer.endswith(pointer)


def test_conversation_that_can_be_repeated_has_no_problem() -> None:
    """A recorded conversation with readable answers can be repeated."""
    assert RecordedScript(recorded(*SCRIPT)).problem is None


@pytest.mark.parametrize(
    ("script", "options", "problem"),
    [
        (
            ((retry(CALL, {"a": NO}, state="unknown" * 4), asks("b", state=SECOND)),),
            {},
            "the recorded conversation begins with a retry whose ask was not recorded",
        ),
        (
            SCRIPT,
            {"seals_answers": True},
            "the recorded answer of turn 1 is sealed: only its hash is known",
        ),
        (
            (
                SCRIPT[0],
                (
                    retry(CALL, {"a": {"content": {"password": "hunter22"}}}, state=FIRST),
                    text("done"),
                ),
            ),
            {"redacts": True},
            "the recorded answer of turn 1 has redacted secrets",
        ),
    ],
    ids=["orphan", "sealed", "redacted"],
)
def test_what_is_not_known_cannot_be_repeated(script: Any, options: Any, problem: str) -> None:
    """A conversation of which something was not recorded is not repeated with something else."""
    assert RecordedScript(recorded(*script, **options)).problem == problem


def test_states_that_the_question_repeats_are_compared_as_recorded() -> None:
    """A URL with the state in it is the same question in every run."""

    def ask(state: str) -> Json:
        message = form(f"https://x.example/?s={state}")
        return {**asks("a", state=state), "inputRequests": {"a": message}}

    exchanges = recorded((CALL, ask(FIRST)))
    live = live_ask(1, ask(LIVE))

    assert RecordedScript(exchanges).answer(live) == NeedsAnswers(live)
    other = replace(live, exchange=live_ask(1, ask("other" * 8)).exchange)
    assert isinstance(RecordedScript(exchanges).answer(other), AskedOtherwise)


ACCEPT = {"action": "accept"}


def live_push(pushed: bytes, turn: int = 1) -> LivePush:
    """Return a pushed request of the live server, as the response to its call."""
    message = classify(pushed)
    assert message is not None
    (exchange,) = converse((CALL, Answer((pushed,), JSON_HEADERS)))
    return LivePush(turn, exchange, message, "elicitation-1")


def pushed_script(
    *values: Json,
    ignored: tuple[str, ...] = (),
    listening: tuple[RecordedScript, ...] = (),
) -> RecordedScript:
    """Return the script of a call in which the server pushed two questions, one after the other."""
    talk = PushingSession()
    call = talk.open(CALL)
    turns = []
    for index, value in enumerate(values):
        pushed = elicit(f"p{index}", f"words {index}")
        talk.say(call, pushed)
        turns.append((index, None if value is None else talk.post(posted(pushed, value))))
    talk.end(call, answer(CALL, text("done")))
    return RecordedScript(
        [talk.exchange(call)],
        [
            talk.turn({"elicitation-1": (call, at)}, {"elicitation-1": post} if post else None)
            for at, post in turns
        ],
        ignored,
        listening,
    )


def test_recorded_answers_are_posted_to_the_recorded_pushes() -> None:
    """In recorded order; a result or an error, byte for byte."""
    script = pushed_script(ACCEPT, ValueError("no"))
    assert script.problem is None
    assert script.answer_push(live_push(elicit("x", "words 0"))) == Posted(b'{"action":"accept"}')
    reply = script.answer_push(live_push(elicit("y", "words 1"), 2))
    assert reply == Posted(b'{"code":-1,"message":"no"}', "error")
    (exchange,) = converse((CALL, stream(answer(CALL, text("done")))))
    script.finished(exchange)
    assert script.changes == []
    assert script.live == [exchange]


def test_push_without_a_recorded_answer_gets_none() -> None:
    """The client had left it unanswered."""
    push = live_push(elicit("x", "words 0"))
    assert pushed_script(None).answer_push(push) == NeedsAnswers(push)


def test_another_push_is_never_answered() -> None:
    """Other words, another order, one more, and one that is left out."""
    for words, verdict in (("other", "question-changed"), ("words 1", "question-changed")):
        script = pushed_script(ACCEPT, ACCEPT)
        standing = script.answer_push(live_push(elicit("x", words)))
        assert isinstance(standing, AskedOtherwise)
        assert {change.verdict for _, change in script.changes} == {verdict}
        assert [turn for turn, _ in script.changes] == [1]
    script = pushed_script(ACCEPT)
    script.answer_push(live_push(elicit("x", "words 0")))
    assert isinstance(script.answer_push(live_push(elicit("y"), 2)), AskedOtherwise)
    assert script.changes[0].change.verdict == "rounds-changed"
    assert script.changes[0].change.recorded is None

    (exchange,) = converse((CALL, text("done")))
    script = pushed_script(ACCEPT)
    script.finished(exchange)
    assert script.changes[0].change.verdict == "rounds-changed"
    assert script.changes[0].change.received is None
    talk = PushingSession()
    call = talk.open(CALL)
    talk.say(call, elicit("p"))
    talk.end(call, answer(CALL, asks("a")))
    turn = talk.turn({"elicitation-1": (call, 0)})
    script = RecordedScript([talk.exchange(call)], [turn])
    assert isinstance(script.answer(live_ask(1, asks("a"), None)), AskedOtherwise)
    assert script.changes[0].change.verdict == "rounds-changed"

    script = pushed_script(ACCEPT, ignored=("/inputRequests/elicitation-1/params/message",))
    assert isinstance(script.answer_push(live_push(elicit("x", "other"))), Posted)


def test_push_of_a_listening_stream_is_answered_in_any_call() -> None:
    """What was recorded there while several calls were pending has an answer once."""
    push = live_push(elicit("x", "words 1"))
    for own in ((), ({"n": 1},)):
        listening = pushed_script({"n": 1}, ACCEPT)
        script = pushed_script(*own, listening=(listening,))
        assert script.answer_push(push) == Posted(b'{"action":"accept"}')
        assert isinstance(script.answer_push(replace(push, turn=2)), AskedOtherwise)


def test_rounds_more_or_less_are_told_with_their_turn() -> None:
    """A question that was not recorded, and one that does not come."""
    script = RecordedScript(recorded(*SCRIPT))
    script.answer(live_ask(1, asks("a", state=LIVE)))
    (exchange,) = converse((CALL, text("done")))
    script.finished(exchange)
    ((turn, change),) = script.changes
    assert (turn, change.verdict, change.received) == (2, "rounds-changed", None)

    script = RecordedScript(recorded((CALL, text("done"))))
    assert isinstance(script.answer(live_ask(1, asks("a", state=LIVE))), AskedOtherwise)
    script = RecordedScript(recorded((CALL, text("done"))))
    (other,) = converse((CALL, text("other")))
    script.finished(other)
    ((turn, change),) = script.changes
    assert (turn, change.verdict, change.pointer) == (0, "text-changed", "/content/0/text")
