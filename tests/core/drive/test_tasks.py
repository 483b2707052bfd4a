"""Transcripts of tasks on a live server: what is sent, how long it waits, and what comes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from builders import (
    Answer,
    FixedScript,
    Step,
    cassette_of,
    follow,
    loaded,
    post,
    refusal,
    respond,
    retry,
)
from messages import NO, YES, Json, asks, compact, text
from tasking import CALL, cancel, created, get, state, task_steps, update
from verifying import verifier_for

from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.compare.conversations import cassette_comparison
from mrtr_cassette.core.drive.conversation import (
    AskAnswer,
    Conversation,
    FinishedCall,
    NeedsAnswers,
)
from mrtr_cassette.core.drive.live_session import ServerSession
from mrtr_cassette.core.drive.plan import planned_interactions
from mrtr_cassette.core.drive.updating import (
    proposals_for_cassette,
    updated_cassette_file,
)
from mrtr_cassette.core.drive.verification import VerifiedInteraction
from mrtr_cassette.core.record.recorder import Recorder
from mrtr_cassette.core.record.sealing import ExchangeSealer
from mrtr_cassette.core.wire.http import Request

TASK = "recorded-task-0123456789-abcdef"
LIVE = "live-task-9876543210-fedcba"
DONE = text("built")


def methods(sent: list[Request]) -> list[str]:
    """Return what was sent, less what all of it begins with."""
    return [json.loads(request.body)["method"].partition("/")[2] for request in sent]


def verified(
    steps: list[Step], *responses: Json
) -> tuple[VerifiedInteraction, list[Request]]:
    """Repeat a recorded task with a server that gives these responses."""
    cassette = loaded(cassette_of(*steps), "c.json")
    (plan,) = planned_interactions(cassette)
    verifier: Any = verifier_for(cassette, "/live")
    running = verifier.begin_interaction(plan)
    sent = follow(running.conversation, *responses)

    return verifier.end_interaction(running), sent


# The conversation


def conversing(*replies: Any) -> tuple[Conversation, FixedScript]:
    """Return a conversation in which these are the replies to the task and its asks."""
    call = post(
        CALL,
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "build"),
        ("Mcp-Param-Env", "p"),
    )

    answers = FixedScript(AskAnswer(None), *replies)
    session = ServerSession(Recorder(ExchangeSealer(seals_states=True)))

    return Conversation(call, answers, session), answers


def test_task_is_polled_at_the_servers_pace_and_answered_under_its_key() -> None:
    """What has been answered is not asked again while the server still shows it."""
    conversation, script = conversing(NeedsAnswers)
    key = f"{LIVE}:x1"
    sent = [respond(conversation, created(LIVE, pollIntervalMs=2000))]

    assert conversation.wait_s == 2.0

    sent.append(respond(conversation, state(LIVE, pollIntervalMs=2500.5)))

    assert conversation.wait_s == 2.5005

    sent.append(respond(conversation, state(LIVE, pollIntervalMs=None)))

    assert conversation.wait_s == 1.0

    sent.append(respond(conversation, state(LIVE, "input_required", key)))

    assert [[*ask.live_keys.values()] for ask in script.asks] == [[], [key]]

    conversation.answer_unanswered_ask(AskAnswer(compact({key: YES})))

    assert conversation.wait_s == 0

    sent.append(respond(conversation, {}))
    sent.append(respond(conversation, state(LIVE, "input_required", key)))
    sent += follow(conversation, state(LIVE, "completed", result=DONE))

    assert methods(sent) == ["call", "get", "get", "get", "update", "get", "get"]
    assert json.loads(sent[4].body)["params"] == {
        "taskId": LIVE,
        "inputResponses": {key: YES},
    }

    named = []
    for request in sent[3:5]:
        headers = ("mcp-method", "mcp-name", "mcp-param-env")
        named.append([request.header(name) for name in headers])

    assert named == [["tasks/get", LIVE, ""], ["tasks/update", LIVE, ""]]
    assert isinstance(conversation.stopping_point, FinishedCall)


def test_task_that_nobody_waits_for_is_cancelled_once() -> None:
    """Where its question has no answer, or the client goes."""
    conversation, _ = conversing(NeedsAnswers)
    sent = follow(conversation, created(LIVE), state(LIVE, "input_required", "a"), {})

    assert methods(sent) == ["call", "get", "cancel"]

    conversation, _ = conversing()
    respond(conversation, created(LIVE))
    left = conversation.leave()

    assert left is not None
    assert (left.call.method, left.call.name) == ("tasks/cancel", LIVE)
    assert (conversation.leave(), conversation.next_request()) == (None, None)


# Verifying

KEY = f"{LIVE}:z1"
ASKS = state(LIVE, "input_required", KEY)
ENDS = state(LIVE, "completed", result=DONE)
CANCELS = (cancel(TASK), {}), (get(TASK), state(TASK, "cancelled"))
OTHER = state(LIVE, "input_required", f"{LIVE}:z2")


@pytest.mark.parametrize(
    ("steps", "responses", "verdict", "turn", "last"),
    [
        (task_steps(TASK), (created(LIVE), ASKS, {}, ASKS, ENDS), "same", None, "get"),
        (
            task_steps(TASK),
            (created(LIVE, statusMessage="a"), *[state(LIVE)] * 3, ASKS, {}, ENDS),
            "same",
            None,
            "get",
        ),
        (task_steps(TASK), (created(LIVE), OTHER, {}), "question-changed", 1, "cancel"),
        (task_steps(TASK), (created(LIVE), ENDS), "rounds-changed", 1, "get"),
        (
            task_steps(TASK),
            (created(LIVE), ASKS, {}, OTHER, {}),
            "rounds-changed",
            2,
            "cancel",
        ),
        (
            task_steps(TASK),
            (created(LIVE), ASKS, {}, state(LIVE, "completed", result=text("no"))),
            "text-changed",
            0,
            "get",
        ),
        (
            task_steps(TASK),
            (created(LIVE), ASKS, {}, state(LIVE, "failed", error={"code": 1})),
            "refused",
            0,
            "get",
        ),
        (task_steps(TASK), (created(LIVE), ASKS, refusal, {}), "refused", 0, "cancel"),
        (
            task_steps(TASK),
            (created(LIVE), ASKS, Answer((b"oops",), (), 500), {}),
            "not-reached",
            0,
            "cancel",
        ),
        (task_steps(TASK), (DONE,), "shape-changed", 0, "call"),
        ([(CALL, DONE)], (created(LIVE), {}), "shape-changed", 0, "cancel"),
        (
            task_steps(TASK, YES, *CANCELS),
            (created(LIVE), ASKS, {}, {}, state(LIVE, "cancelled")),
            "same",
            None,
            "get",
        ),
        (task_steps(TASK)[:3], (created(LIVE), ASKS, {}), "same", None, "cancel"),
        # Its client left it at work, or after the answer, or when it had cancelled it.
        (task_steps(TASK)[:2], (created(LIVE), {}), "same", None, "cancel"),
        (task_steps(TASK)[:4], (created(LIVE), ASKS, {}, {}), "same", None, "cancel"),
        (
            task_steps(TASK, YES, CANCELS[0]),
            (created(LIVE), ASKS, {}, refusal),
            "same",
            None,
            "cancel",
        ),
    ],
)
def test_live_task_is_held_to_the_recorded_one(
    steps: list[Step], responses: tuple[Json, ...], verdict: str, turn: int, last: str
) -> None:
    """Pace, keys of its id and working states don't count; another question is not answered."""
    found, sent = verified(steps, *responses)

    assert found.verdict == verdict
    assert [change.turn for change in found.changes][:1] == (
        [] if turn is None else [turn]
    )
    assert methods(sent)[-1] == last


BUSY = (get(TASK), Answer((refusal(get(TASK).body),)))
WORKS = (get(TASK), state(TASK))
ENDED = (get(TASK), state(TASK, "completed", result=text("built")))


@pytest.mark.parametrize(
    ("polls", "responses", "verdict"),
    [
        ([WORKS, BUSY, ENDED], (state(LIVE), refusal, state(LIVE), ENDS), "same"),
        ([WORKS, BUSY, ENDED], (state(LIVE), ENDS), "same"),
        ([WORKS, BUSY, WORKS, BUSY, ENDED], (refusal, refusal, ENDS), "same"),
        ([WORKS, BUSY, ENDED], (refusal, refusal), "refused"),
        ([WORKS, ENDED], (state(LIVE), refusal), "refused"),
        ([WORKS, BUSY], (state(LIVE), refusal), "same"),
    ],
)
def test_task_is_polled_on_where_its_client_went_on_after_a_failed_poll(
    polls: list[Step], responses: tuple[Json, ...], verdict: str
) -> None:
    """As many polls may fail as did while it was recorded; then the endings are compared."""
    found, _ = verified([(CALL, created(TASK)), *polls], created(LIVE), *responses)

    assert found.verdict == verdict


def test_questions_may_come_together_or_one_by_one() -> None:
    """Each gets its recorded answer, whichever polls showed them."""
    both = [f"{TASK}:a1", f"{TASK}:b2"]
    one_by_one = [
        (CALL, created(TASK)),
        (get(TASK), state(TASK, "input_required", both[0])),
        (get(TASK), state(TASK, "input_required", *both)),
        (update(TASK, {both[0]: YES, both[1]: NO}), {}),
        (get(TASK), state(TASK, "completed", result=DONE)),
    ]

    together = [one_by_one[0], *one_by_one[2:]]
    live = [f"{LIVE}:x1", f"{LIVE}:y2"]
    once = (state(LIVE, "input_required", *live), {})
    twice = (
        state(LIVE, "input_required", live[0]),
        {},
        state(LIVE, "input_required", live[1]),
        {},
    )
    for steps in (one_by_one, together):
        for asked in (once, twice):
            found, sent = verified(steps, created(LIVE), *asked, ENDS)
            given: dict[str, Json] = {}
            for request in sent:
                if b"update" in request.body:
                    given |= json.loads(request.body)["params"]["inputResponses"]

            assert found.verdict == "same"
            assert given == {live[0]: YES, live[1]: NO}


def test_ask_before_the_task_is_answered_as_any_other() -> None:
    """The turns of the task are counted on."""
    asked = [
        (CALL, asks("a", state="s" * 30)),
        (retry(CALL, {"a": YES}, state="s" * 30), created(TASK)),
    ]

    found, sent = verified(
        [*asked, *task_steps(TASK)[1:]],
        asks("a", state="t" * 30),
        created(LIVE),
        OTHER,
        {},
    )

    assert methods(sent) == ["call", "call", "get", "cancel"]
    assert (found.verdict, found.changes[0].turn) == ("question-changed", 2)


def test_live_ending_and_question_are_taken_into_their_steps() -> None:
    """They have the recorded id, times and keys, and the answers still fit."""
    recorded = loaded(cassette_of(*task_steps(TASK)), "c.json")
    data = dump(recorded)
    later = "2027-01-01T00:00:00Z"
    asked = state(LIVE, "input_required", KEY, at=later)
    asked["inputRequests"][KEY]["params"]["message"] = "Sure?"
    ended = state(LIVE, "completed", at=later, result=text("other"))
    for responses, said in (
        ((created(LIVE), asked, {}), "Sure?"),
        ((created(LIVE), ASKS, {}, ended), "other"),
    ):
        cassette = load(data, "c.json")
        found, _ = verified(task_steps(TASK), *responses)
        (proposal,) = proposals_for_cassette(cassette, [found])

        assert proposal.problem is None

        new = updated_cassette_file(data, cassette, [proposal])

        assert said in new.decode()
        assert not any(raw in new.decode() for raw in (LIVE, later, "z1", "live"))
        assert len([*load(new, "c.json").interactions[0].turns]) == 1


# Comparing


def test_diff_has_the_questions_and_the_ending_of_a_task() -> None:
    """Another id, other keys of it and other working states are no difference."""

    def changes(*steps: Step) -> list[tuple[str, str]]:
        recorded = loaded(cassette_of(*task_steps(TASK)), "c.json")
        live = loaded(cassette_of(*steps), "c.json")
        (found,) = cassette_comparison(recorded, live).interactions
        verdicts = []
        for stage in found.stages:
            verdicts += [(stage.kind, change.verdict) for change in stage.changes]

        return verdicts

    def asking(task: str, *keys: str) -> Cassette:
        asked = state(task, "input_required", *keys)
        return loaded(cassette_of((CALL, created(task)), (get(task), asked)))

    recorded = asking(TASK, f"{TASK}:a1", f"{TASK}:b2")
    live = asking(LIVE, f"{LIVE}:c2", f"{LIVE}:d1")

    assert cassette_comparison(recorded, live).is_same

    same = task_steps(LIVE)

    assert changes(*same) == changes(same[0], *same[2:]) == []

    ends = ((get(LIVE), state(LIVE, "failed", error={"code": 1, "message": "no"})),)
    differs = [("answer", "text-changed"), ("answer", "shape-changed")]

    assert changes(*task_steps(LIVE, NO)) == differs
    assert changes(*task_steps(LIVE, YES, *ends)) == [("result", "refused")] * 2
