"""Transcripts of accepting: what a live server says now, taken into the cassette."""

from __future__ import annotations

import json
from typing import Any

import pytest
from builders import (
    answer,
    cassette_of,
    follow,
    loaded,
    progress,
    retry,
    rpc,
    stream,
    tool,
    with_token,
)
from messages import NO, YES, Json, array_asks, asks, text
from pushing import branched
from verifying import verifier_for

from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.compare.conversations import cassette_comparison
from mrtr_cassette.core.compare.values import Change
from mrtr_cassette.core.drive.plan import planned_interactions
from mrtr_cassette.core.drive.script import TurnChange
from mrtr_cassette.core.drive.updating import (
    ACCEPTABLE_VERDICTS,
    Proposal,
    accepted_by_verdict,
    proposals_for_cassette,
    updated_cassette_file,
)
from mrtr_cassette.core.drive.verification import VerifiedInteraction
from mrtr_cassette.core.secrets.names import sha256_of

CALL = with_token(tool("deploy", env="prod"), 1)
STATE = "the-recorded-state-0123456789abc"
LIVE = "the-live-state-0123456789-abcdefg"
OTHER = (tool("other"), text("as it was"))
YES_RETRY = retry(CALL, {"a": YES}, state=STATE)
NO_RETRY = retry(CALL, {"a": NO}, state=STATE)


def question(words: str, state: str | None, *keys: str) -> Json:
    """Return an ask."""
    return asks(*keys or ("a",), state=state, words=words)


ASKED = (
    OTHER,
    (CALL, question("Deploy?", STATE)),
    (YES_RETRY, text("done")),
    OTHER,
)
AGAIN = question("Deploy?", LIVE)


def file_of(*script: Any, **options: bool) -> tuple[bytes, Cassette]:
    """Return the file of a script, and the cassette in it."""
    data = dump(loaded(cassette_of(*script, **options), "f"))
    return data, load(data, "f")


def proposed(cassette: Cassette, number: int, *responses: Json) -> list[Proposal]:
    """Return what is proposed where a live server gives these responses in one interaction."""
    verifier: Any = verifier_for(
        cassette,
        token_of=lambda _, secret: sha256_of(secret)[:24],
    )

    running = verifier.begin_interaction(planned_interactions(cassette)[number - 1])
    follow(running.conversation, *responses)

    return proposals_for_cassette(cassette, [verifier.end_interaction(running)])


def with_live(file: tuple[bytes, Cassette], number: int, *responses: Json) -> bytes:
    """Return a file with what a live server responds in it, which nothing speaks against."""
    found = proposed(file[1], number, *responses)
    assert [proposal.problem for proposal in found] == [None]
    return updated_cassette_file(*file, found)


def lines_changed(old: bytes, new: bytes) -> list[str]:
    """Return the lines of a new file that the old one lacks, without its recording block."""
    before = old.decode().split("\n")
    after = new.partition(b'\n  "recording"')[0].decode().split("\n")
    return [line.strip() for line in after if line not in before]


def test_a_result_takes_the_place_of_the_recorded_one() -> None:
    """It has the recorded id, and nothing else in the file changes but the digests."""
    data, cassette = file_of(*ASKED)
    # A server may have a name that begins as our ids do.
    new = with_live((data, cassette), 2, AGAIN, text("Deployed by mrtr-cassette-demo"))

    assert lines_changed(data, new) == ['"text": "Deployed by mrtr-cassette-demo"']

    (repeating,) = proposed(cassette, 2, AGAIN, text("Deployed by 2042100099"))

    assert (repeating.problem or "").startswith("it repeats the id")

    before = json.loads(data)["recording"]["exchanges"]
    after = json.loads(new)["recording"]["exchanges"]
    differing = []
    for old_facts, new_facts in zip(before, after, strict=True):
        names = {name for name in old_facts if old_facts[name] != new_facts[name]}
        differing.append(names)

    assert differing == [set(), set(), {"sha256"}, set()]

    (change,) = cassette_comparison(cassette, load(new, "f")).changes

    assert change[:2] == ("text-changed", "/content/0/text")


def test_a_question_keeps_the_recorded_state() -> None:
    """The recorded answer repeats it, so it goes on with the new question."""
    file = file_of(*ASKED)
    new = with_live(file, 2, question(f"Now? {LIVE}", LIVE))
    (line,) = lines_changed(file[0], new)

    assert line.startswith('"message": "Now? mrtr-state:')

    first, second = load(new, "f").interactions[1].exchanges

    assert first.ask is not None
    assert second.call.answers is not None
    assert first.ask.request_state == second.call.answers.request_state


def test_both_copies_of_a_shared_question_change() -> None:
    """Branches of one question stay branches of it."""
    data, cassette = file_of(*ASKED[:3], (NO_RETRY, text("left")))

    assert cassette.interactions[2].branch is not None

    new = with_live((data, cassette), 2, question("Now?", LIVE))

    assert lines_changed(data, new) == ['"message": "Now?"'] * 2

    shared = load(new, "f").interactions

    assert shared[1].exchanges[0] is shared[2].exchanges[0]


def test_a_question_that_is_gone_ends_the_conversation() -> None:
    """With its turn go the answer and what came of it; the file is as if recorded so."""
    new = with_live(file_of(*ASKED), 2, text("done at once"))
    alone, _ = file_of(OTHER, (CALL, text("done at once")), OTHER)

    assert (
        new.partition(b'\n  "recording"')[0] == alone.partition(b'\n  "recording"')[0]
    )
    assert len(json.loads(new)["recording"]["exchanges"]) == 3


def test_a_stream_has_the_recorded_tokens_and_as_many_times_as_events() -> None:
    """More events, fewer events, and a stream in the place of one body."""
    streamed = stream(progress(1), answer(CALL, text("done")))
    file = file_of((CALL, streamed))
    for count in (0, 1, 3):
        said = [progress(1, done) for done in range(count)]

        new = with_live(
            file, 1, lambda body, said=said: stream(*said, answer(body, text("later")))
        )

        assert b"mrtr-cassette-1" not in new

        (facts,) = json.loads(new)["recording"]["exchanges"]

        assert len(facts["pieces"]) == count + 1

        response = load(new, "f").interactions[0].exchanges[0].response

        assert response is not None
        assert all(piece.arrived_count for piece in response.pieces)

    new = with_live(file, 1, text("plain"))

    assert "pieces" not in json.loads(new)["recording"]["exchanges"][0]

    back = with_live(
        (new, load(new, "f")), 1, lambda body: stream(answer(body, text("done")))
    )

    assert len(json.loads(back)["recording"]["exchanges"][0]["pieces"]) == 1


def test_secrets_keep_their_numbers_or_get_new_ones() -> None:
    """As many as before are the same ones; others get numbers that nothing has."""
    secrets = [f"ghp_{letter * 36}" for letter in "abc"]
    script = ((CALL, text(f"key {secrets[0]}")), (tool("b"), text(f"key {secrets[1]}")))
    file = file_of(*script, redacts=True)
    for words, shown in (
        (f"new {secrets[2]}", "new <github:1>"),
        (
            f"{secrets[2]} {secrets[0]} {secrets[2]} <github:x>",
            "<github:3> <github:4> <github:3> <github:x>",
        ),
    ):
        new = with_live(file, 1, text(words))

        assert lines_changed(file[0], new) == [f'"text": "{shown}"']


def test_a_page_that_is_taken_issues_the_recorded_cursor() -> None:
    """The request of the next page, which stays, repeats it."""
    page = rpc("tools/list")
    file = file_of((page, {"tools": [], "nextCursor": "mine"}), (page, {"tools": []}))
    new = with_live(file, 1, {"tools": [{"name": "new"}], "nextCursor": "theirs"})

    assert b'"nextCursor": "mine"' in new


@pytest.mark.parametrize(
    ("responses", "reason"),
    [
        ([question("Deploy?", None)], "a request state came or went"),
        ([question("Deploy?", LIVE, "a", "b")], "no answer is recorded for b"),
        ([array_asks("a", state=LIVE)], "the server asks in the dialect array"),
        (
            [AGAIN, lambda body: stream(rpc("roots/list"), answer(body, text("x")))],
            "the server pushed",
        ),
    ],
)
def test_what_needs_another_answer_is_not_taken(
    responses: list[Json], reason: str
) -> None:
    """The client's own words are never made up."""
    _, cassette = file_of(*ASKED)
    (proposal,) = proposed(cassette, 2, *responses)

    assert (proposal.problem or "").startswith(reason)


def test_a_question_that_branches_answer_is_not_taken_away() -> None:
    """Without it the branches would be the same call twice."""
    _, cassette = file_of(*ASKED[:3], (NO_RETRY, text("left")))
    (proposal,) = proposed(cassette, 2, text("done"))

    assert proposal.problem == "other branches answer a question of it: record it again"


def test_ids_that_are_made_up_for_questions_are_the_recorded_ones() -> None:
    """In the URL of the question too, as it is in the cassette."""

    def linked(identity: str, words: str) -> Json:
        params = {
            "mode": "url",
            "url": f"https://x/?e={identity}",
            "elicitationId": identity,
        }

        asked = {"method": "elicitation/create", "params": {**params, "message": words}}
        return {**asks("a", state=STATE), "inputRequests": {"a": asked}}

    file = file_of((CALL, linked("a1" * 10, "Open?")))
    new = with_live(file, 1, {**linked("b2" * 12, "Open it?"), "requestState": LIVE})

    assert lines_changed(file[0], new) == ['"message": "Open it?"']


def test_a_verbatim_state_stays_as_it_is_spelled() -> None:
    """It may be JSON with quotes, which is no end of a string."""
    state = '{"n": "of the recorded state"}'
    retried = retry(CALL, {"a": YES}, state=state)
    file = file_of((CALL, question("Go?", state)), (retried, text("a")), seals=False)
    new = with_live(file, 1, question(f"Go {LIVE}?", LIVE))
    first = load(new, "f").interactions[0].exchanges[0]

    assert first.ask is not None
    assert first.ask.request_state == state


# What is proposed

TEXT = Change("text-changed", "/content/0/text", '"a"', '"b"')
NOTE = Change("surface-changed", "/tools/1", None, "{}", is_information=True)
QUESTION = Change("question-changed", "/inputRequests/a/params/message", '"a"', '"b"')
ERROR = Change("error-changed", "/isError", "false", "true")


def test_each_response_that_differs_is_proposed() -> None:
    """It is a question or the end; not a question on another stream than the call's."""
    _, cassette = file_of(*ASKED)
    (ask,) = proposed(cassette, 2, question("Now?", LIVE))

    assert (ask.number, ask.first_turn, ask.problem, ask.course) == (2, 1, None, None)

    (final,) = proposed(cassette, 2, AGAIN, text("b"))

    assert (final.first_turn, final.changes, final.course) == (
        0,
        final.counting_changes,
        None,
    )

    cassette = branched()
    plan = next(
        plan for plan in planned_interactions(cassette) if plan.interaction.pushed_turns
    )
    verified = VerifiedInteraction(plan, "text-changed", (TurnChange(1, QUESTION),))
    (pushed,) = proposals_for_cassette(cassette, [verified])

    assert pushed.problem == "the server asks it on another stream: record it again"


def test_what_was_not_compared_proposes_nothing() -> None:
    """Neither a server that was away nor a value that differs by itself is taken."""
    _, cassette = file_of(*ASKED)
    for verdict in ("skipped", "not-reached", "unstable"):
        verified: Any = VerifiedInteraction(
            planned_interactions(cassette)[1], verdict, (TurnChange(0, TEXT),)
        )

        assert proposals_for_cassette(cassette, [verified]) == []


def test_verdicts_accept_what_has_no_others() -> None:
    """Information goes with them, or comes alone; a response with another verdict stays."""

    def proposal(*changes: Change, problem: str | None = None) -> Proposal:
        return Proposal(1, "call", (0,), changes, problem)

    both = proposal(TEXT, NOTE)
    alone = proposal(NOTE)
    mixed = proposal(TEXT, ERROR)
    broken = proposal(TEXT, problem="pushed")
    every = [both, alone, mixed, broken]

    assert accepted_by_verdict(every, ["text-changed"]) == [both]
    assert accepted_by_verdict(every, ["surface-changed"]) == [alone]
    assert accepted_by_verdict(every, ACCEPTABLE_VERDICTS) == [both, alone, mixed]
