from __future__ import annotations

import pytest
from builders import cassette_of, encode_cassette, loaded, tool
from messages import YES, text
from tasking import created, get, state, update

TASK = "786512e2-9e0d-44bd-8f29-789f320fe840"
CALL = tool("book", seats=2)
DONE = state(TASK, "completed", result=text("booked"))


def steps(interaction):
    """Return the steps of a task: what the client asked, and the status that it got."""
    said = []
    for step in interaction.task or ():
        result = step.response.body.get("result", {})
        said.append((step.request.body["method"], result.get("status")))
    return said


ASKED = (f"{TASK}:a1", f"{TASK}:b2")
SCRIPT = (
    (CALL, created(TASK)),
    (get(TASK), state(TASK)),
    (get(TASK), state(TASK, at="2026-11-24T10:00:01Z")),
    (get(TASK), state(TASK, "input_required", *ASKED)),
    (update(TASK, {ASKED[0]: YES}), {}),
    (get(TASK), state(TASK, "input_required", ASKED[1])),
    (update(TASK, {ASKED[1]: YES}), {}),
    (get(TASK), state(TASK, "input_required", ASKED[1])),
    (get(TASK), state(TASK)),
    (get(TASK), DONE),
    (get(TASK), DONE),
)


@pytest.mark.parametrize("seals", [True, False])
def test_task_is_one_interaction(*, seals: bool) -> None:
    """It has its distinct states, updates and turns; no raw id is left where ids are sealed."""
    cassette = cassette_of(*SCRIPT, seals=seals)
    (interaction,) = cassette.interactions
    assert steps(interaction) == [
        ("tasks/get", "working"),
        ("tasks/get", "input_required"),
        ("tasks/update", None),
        ("tasks/get", "input_required"),
        ("tasks/update", None),
        ("tasks/get", "working"),
        ("tasks/get", "completed"),
    ]
    assert [each.polls for each in cassette.recording.exchanges] == [
        None,
        2,
        None,
        None,
        2,
        None,
        None,
        2,
    ]
    assert [turn.answer.steps for turn in interaction.elicitation_turns] == [[2, 4]]
    assert (TASK.encode() in encode_cassette(cassette)) is not seals
    assert loaded(cassette).interactions[0].steps[0].polls == 2
