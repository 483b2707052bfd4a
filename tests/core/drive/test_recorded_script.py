from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import cassette_of, converse, loaded, retry, tool
from messages import NO, YES, Json, asks, form, text

from mrtr_cassette.core.drive.conversation import (
    Answered,
    AskedOtherwise,
    LiveAsk,
    NeedsAnswers,
)
from mrtr_cassette.core.drive.recorded_script import IssuedState, RecordedScript
from mrtr_cassette.core.exchange.recorded import RecordedExchange

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
