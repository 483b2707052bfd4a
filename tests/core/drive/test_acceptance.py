from __future__ import annotations

from typing import Any

from builders import cassette_of, converse, loaded, retry, tool
from messages import YES, asks, text
from pushed_cassettes import branched

from mrtr_cassette.core.compare.changes import Change
from mrtr_cassette.core.drive.acceptance import (
    ACCEPTABLE,
    Proposal,
    accepted_by_verdict,
    proposals,
)
from mrtr_cassette.core.drive.plan import planned
from mrtr_cassette.core.drive.recorded_script import IssuedState, TurnChange
from mrtr_cassette.core.drive.verification import Verified
from mrtr_cassette.core.exchange.recorded import Cassette

STATE = "the-recorded-state-0123456789abc"
CALL = tool("deploy")
TEXT = Change("text-changed", "/content/0/text", '"a"', '"b"')
NOTE = Change("surface-changed", "/tools/1", None, "{}", is_information=True)
OTHER = Change("question-changed", "/inputRequests/a/params/message", '"a"', '"b"')
ERROR = Change("error-changed", "/isError", "false", "true")


def recorded() -> Cassette:
    """Return a cassette of a call that asks once."""
    retried = retry(CALL, {"a": YES}, state=STATE)
    return loaded(cassette_of((CALL, asks("a", state=STATE)), (retried, text("a"))))


def verified(cassette: Cassette, *changes: TurnChange, verdict: Any = "text-changed") -> Verified:
    """Return what came of its first interaction, with live exchanges for all that changed."""
    live = converse((CALL, asks("a", state="live" * 8)), (CALL, text("b")))
    states = (IssuedState("live" * 8, "mrtr-state"),)
    plan = planned(cassette)[0]
    count = 2 if any(change.turn == 0 for change in changes) else 1
    return Verified(plan, verdict, changes, None, tuple(live[:count]), states)


def test_each_response_that_differs_is_proposed() -> None:
    """Its changes stand together; where a question is another one, the conversation goes on."""
    cassette = recorded()
    ask, final = proposals(
        cassette,
        [verified(cassette, TurnChange(1, OTHER), TurnChange(0, TEXT), TurnChange(0, NOTE))],
    )
    assert (ask.number, ask.turn, ask.changes, ask.problem) == (1, 1, (OTHER,), None)
    assert (final.turn, final.changes, final.counting) == (0, (TEXT, NOTE), (TEXT,))
    assert (ask.goes_on, final.goes_on) == (True, False)
    assert ask.taken is not None
    assert list(ask.taken.states.values()) == ["mrtr-state"]


def test_what_was_not_compared_proposes_nothing() -> None:
    """Neither a server that was away nor a value that differs by itself is taken."""
    cassette = recorded()
    for verdict in ("skipped", "not-reached", "unstable"):
        each = verified(cassette, TurnChange(0, TEXT), verdict=verdict)
        assert proposals(cassette, [each]) == []


def test_what_has_no_response_of_its_own_can_not_be_taken() -> None:
    """A pushed question is part of another response, and what did not come can't be written."""
    cassette = recorded()
    silent = verified(cassette, TurnChange(1, OTHER))
    silent = Verified(silent.planned, "question-changed", silent.changes)
    (proposal,) = proposals(cassette, [silent])
    assert (proposal.taken, proposal.problem) == (None, "the live server gave no response")

    cassette = branched()
    plan = next(each for each in planned(cassette) if each.interaction.pushed_turns)
    (proposal,) = proposals(cassette, [Verified(plan, "text-changed", (TurnChange(1, OTHER),))])
    assert (proposal.problem or "").startswith("the server pushed it")


def test_verdicts_accept_what_has_no_others() -> None:
    """Information goes with them, or comes alone; a response with another verdict stays."""

    def proposal(*changes: Change, problem: str | None = None) -> Proposal:
        return Proposal(1, "call", 0, changes, None, problem)

    both, alone = proposal(TEXT, NOTE), proposal(NOTE)
    mixed, broken = proposal(TEXT, ERROR), proposal(TEXT, problem="pushed")
    proposed = [both, alone, mixed, broken]
    assert accepted_by_verdict(proposed, ["text-changed"]) == [both]
    assert accepted_by_verdict(proposed, ["surface-changed"]) == [alone]
    assert accepted_by_verdict(proposed, ACCEPTABLE) == [both, alone]
    assert not {"error-changed", "rounds-changed", "same"} & set(ACCEPTABLE)
