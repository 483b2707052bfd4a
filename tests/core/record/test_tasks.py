"""Tasks in a recording: what becomes a step of which call, and where ids are sealed."""

from __future__ import annotations

import json
from base64 import b64encode
from urllib.parse import quote

import pytest
from builders import (
    Answer,
    Conversation,
    Step,
    answer,
    as_request,
    cassette_of,
    changed,
    conversation,
    encode_cassette,
    loaded,
    notification,
    post,
    refusal,
    retry,
    rpc,
    stream,
    tool,
)
from hypothesis import given
from hypothesis import strategies as st
from messages import YES, asks, text
from tasking import cancel, created, get, request_of, state, update

from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.load import load
from mrtr_cassette.core.cassette.model import InteractionModel
from mrtr_cassette.core.compare.conversations import cassette_comparison
from mrtr_cassette.core.wire.http import End
from mrtr_cassette.errors import CassetteError

TASK = "786512e2-9e0d-44bd-8f29-789f320fe840"
OTHER = "0e6f4f3a-4f4a-4a0c-9c39-0fd6f5d3c7aa"
CALL = tool("book", seats=2)
WORKS = state(TASK)
DONE = state(TASK, "completed", result=text("booked"))
ONE = f"{TASK}:a1"
TWO = f"{TASK}:b2"
BEGUN = (CALL, created(TASK))


def steps(interaction: InteractionModel) -> list[str]:
    """Return the steps of a task: the status that a poll got, or what the client asked."""
    said = []
    for step in interaction.task or ():
        method = step.request.body["method"].removeprefix("tasks/")
        body = (step.response and step.response.body) or {}
        said.append(
            body.get("result", {}).get("status")
            or method + (" error" * ("error" in body))
        )

    return said


def task_of(*script: Step, **options: bool) -> InteractionModel:
    """Return the one interaction of exchanges, which a file has as they were."""
    cassette = cassette_of(*script, **options)
    written = dump(loaded(cassette))
    assert dump(load(written, "f")) == written
    (interaction,) = cassette.interactions

    return interaction


@pytest.mark.parametrize("seals", [True, False])
def test_task_is_one_interaction(*, seals: bool) -> None:
    """It has its distinct states, updates and turns; no raw id is left where ids are sealed."""
    script = (
        BEGUN,
        (get(TASK), WORKS),
        (get(TASK), state(TASK, at="2026-11-24T10:00:01Z")),
        (get(TASK), state(TASK, "input_required", ONE, TWO)),
        (update(TASK, {ONE: YES}), {}),
        (get(TASK), state(TASK, "input_required", TWO)),
        (update(TASK, {TWO: YES}), {}),
        (get(TASK), state(TASK, "input_required", TWO)),
        (get(TASK), WORKS),
        (get(TASK), DONE),
        (get(TASK), DONE),
    )

    interaction = task_of(*script, seals=seals)
    cassette = cassette_of(*script, seals=seals)
    asked = ["input_required", "update", "input_required", "update"]

    assert steps(interaction) == ["working", *asked, "working", "completed"]

    polls = [exchange.polls for exchange in cassette.recording.exchanges]

    assert polls == [None, 2, None, None, 2, None, None, 2]
    assert [turn.answer.steps for turn in interaction.elicitation_turns] == [[2, 4]]
    assert (TASK.encode() in encode_cassette(cassette)) is not seals


@pytest.mark.parametrize("edit", ['"step":1', '"keys":["other"]', '"steps":[0]'])
def test_turns_that_are_not_those_of_the_steps_are_refused(edit: str) -> None:
    """A turn of a task that was edited by hand contradicts the steps, which are played."""
    asked = (get(TASK), state(TASK, "input_required", ONE))
    cassette = cassette_of(
        BEGUN, asked, (update(TASK, {ONE: YES}), {}), (get(TASK), DONE)
    )
    tree = json.loads(encode_cassette(cassette))
    (turn,) = tree["interactions"][0]["elicitation_turns"]
    ((name, value),) = json.loads(f"{{{edit}}}").items()
    turn["answer" if name == "steps" else "ask"][name] = value
    with pytest.raises(
        CassetteError, match="turns of a task are not those of its steps"
    ):
        load(json.dumps(tree).encode(), "f")


ASKED = state(TASK, "input_required", ONE)
REFUSED = {"code": -32603, "message": "no seats"}


@pytest.mark.parametrize(
    ("script", "seen", "turns"),
    [
        ((), [], []),
        (((get(TASK), Answer((), status=0, end=End.OPEN)),), [], []),
        (
            (
                (get(TASK), WORKS),
                (get(TASK), Answer((), end=End.OPEN)),
                (get(TASK), Answer((b'{"jsonrpc":',), end=End.OPEN)),
                (cancel(TASK), {}),
            ),
            ["working", "cancel"],
            [],
        ),
        (((get(TASK), WORKS), (cancel(TASK), {})), ["working", "cancel"], []),
        (
            (
                (cancel(TASK), {}),
                (get(TASK), state(TASK, "cancelled")),
                (get(TASK), WORKS),
            ),
            ["cancel", "cancelled"],
            [],
        ),
        (((get(TASK), state(TASK, "failed", error=REFUSED)),), ["failed"], []),
        (((get(TASK), refusal), (get(TASK), refusal)), ["get error"], []),
        (
            ((get(TASK), Answer((b"busy",), (), 503)), (get(TASK), DONE)),
            ["get", "completed"],
            [],
        ),
        (
            ((get(TASK), {**ASKED, "resultType": "input_required"}),),
            ["input_required"],
            [[]],
        ),
        (
            ((get(TASK), {**ASKED, "resultType": None}), (update(TASK, {}), refusal)),
            ["input_required", "update error"],
            [[]],
        ),
        (
            (
                (get(TASK), ASKED),
                (update(TASK, {ONE: YES}), {}),
                (get(TASK), state(TASK, "input_required", TWO)),
                (update(TASK, {TWO: YES, "unknown": YES}), {}),
                (get(TASK), DONE),
            ),
            ["input_required", "update", "input_required", "update", "completed"],
            [[1], [3]],
        ),
        (
            ((update(TASK, {ONE: YES}), {}), (get(TASK), DONE)),
            ["update", "completed"],
            [],
        ),
    ],
    ids=[
        "left at once",
        "left while it polled",
        "left after the head of a poll",
        "cancelled",
        "cancelled, and seen",
        "failed",
        "error",
        "HTTP error",
        "another result type",
        "update refused",
        "asks twice",
        "asked elsewhere",
    ],
)
def test_steps_are_what_a_client_did_and_saw(
    script: tuple[Step, ...], seen: list[str], turns: list[list[int]]
) -> None:
    """Whatever a task comes to, it belongs to its call."""
    script = tuple(
        (request, request_error(request) if response is refusal else response)
        for request, response in script
    )

    interaction = task_of(BEGUN, *script)

    assert steps(interaction) == seen

    answers = [turn.answer for turn in interaction.elicitation_turns]

    assert [answer.steps if answer else [] for answer in answers] == turns


@pytest.mark.parametrize("kind", ["task", "input_required", "complete", None])
def test_polls_may_have_any_type_of_result(kind: str | None) -> None:
    """Servers differ in it; a poll creates no task, also where its call was not recorded."""
    asked = {**ASKED, "resultType": kind}
    done = {**DONE, "resultType": kind}
    polls = ((get(TASK), asked), (update(TASK, {ONE: YES}), {}))
    first = cassette_of(BEGUN, *polls)
    both = conversation((get(TASK), done)).cassette(earlier=first)
    (interaction,) = both.interactions

    assert steps(interaction) == ["input_required", "update", "completed"]
    assert (
        both.interactions[0].elicitation_turns
        == first.interactions[0].elicitation_turns
    )

    alone = cassette_of(*polls, (get(TASK), done))

    assert [interaction.task for interaction in alone.interactions] == [None] * 3

    sold_out = {**done, "result": text("none left")}
    ended_otherwise = cassette_of(BEGUN, *polls, (get(TASK), sold_out))

    assert not cassette_comparison(loaded(both), loaded(ended_otherwise)).is_same


def request_error(request: bytes) -> Answer:
    """Return the error that a request gets, which names the task."""
    return Answer((refusal(as_request(request).body, words=f"no task {TASK}"),))


@given(st.lists(st.integers(1, 4), min_size=6, max_size=6), st.sets(st.integers(0, 5)))
def test_pace_of_polls_is_not_recorded(polls: list[int], late: set[int]) -> None:
    """However often each state is polled, by one client or two, a cassette has the same lines."""
    asked_second = state(TASK, "input_required", TWO)
    said = (WORKS, ASKED, {ONE: YES}, asked_second, {TWO: YES}, DONE)
    talk = Conversation()
    talk.exchange(CALL, created(TASK))
    for at, reply in enumerate(said):
        if "status" not in reply:
            talk.exchange(update(TASK, reply), {})
            continue

        numbers = [talk.request(get(TASK)) for _ in range(polls[at])]
        for number in reversed(numbers) if at in late else numbers:
            talk.response(number, reply)

    cassette = talk.cassette()
    (interaction,) = cassette.interactions
    asked = ["input_required", "update", "input_required", "update"]

    assert steps(interaction) == ["working", *asked, "completed"]

    counts = [
        exchange.polls or 1
        for exchange in cassette.recording.exchanges
        if exchange.step is not None
    ]

    assert counts == [polls[0], polls[1], 1, polls[3], 1, polls[5]]


def test_call_may_ask_before_it_becomes_a_task() -> None:
    """The retry is a turn, the task asks another one, and both are named by the call."""
    task = task_of(
        (CALL, asks("sure", state="a-state-of-the-server-itself")),
        (
            retry(CALL, {"sure": YES}, state="a-state-of-the-server-itself"),
            created(TASK),
        ),
        (get(TASK), ASKED),
        (update(TASK, {ONE: YES}), {}),
        (get(TASK), DONE),
    )

    assert [turn.via for turn in task.elicitation_turns] == ["result", "task"]

    asked = task.elicitation_turns[0].ask.body["result"]["requestState"]
    name = task.response.body["result"]["taskId"]

    assert asked == name.replace("task", "state") + ":1"
    assert name == asked.replace("state", "task").removesuffix(":1")


def test_tasks_of_equal_calls_stay_apart() -> None:
    """Each poll belongs to its task, whichever client makes it, in the order of the responses."""
    talk = Conversation()
    for task in (TASK, OTHER):
        talk.exchange(CALL, created(task))

    slow = talk.request(get(TASK))
    fast = talk.request(get(TASK))
    talk.exchange(get(OTHER), state(OTHER, "cancelled"))
    talk.response(fast, WORKS)
    talk.response(slow, DONE)
    talk.exchange(get(TASK), WORKS)
    cassette = talk.cassette()

    assert [steps(interaction) for interaction in cassette.interactions] == [
        ["working", "completed"],
        ["cancelled"],
    ]

    names = [
        interaction.response.body["result"]["taskId"]
        for interaction in cassette.interactions
    ]

    assert names[0].removesuffix(":1") == names[1].removesuffix(":2")
    assert names[0].startswith("mrtr-task:")


def test_stream_that_tells_of_a_task_is_an_interaction_of_its_own() -> None:
    """Its notifications name the task; an answer to what they ask is a step."""
    talk = Conversation()
    talk.exchange(CALL, created(TASK))
    listening = talk.stream(
        rpc("subscriptions/listen", {"notifications": {"taskIds": [TASK]}}, 5)
    )
    talk.event(
        listening,
        notification("notifications/tasks", **state(TASK, "input_required", ONE)),
    )

    talk.exchange(update(TASK, {ONE: YES}), {})
    talk.event(listening, notification("notifications/tasks", **DONE))
    talk.end(listening)
    task, listen = talk.cassette().interactions

    assert (steps(task), task.elicitation_turns) == (["update"], [])
    assert len(listen.response.events) == 2
    assert TASK.encode() not in encode_cassette(talk.cassette())


def test_id_is_sealed_in_any_spelling() -> None:
    """Long ones wherever they stand."""
    spellings = [
        TASK,
        quote(TASK),
        json.dumps(json.dumps({"task": TASK})),
        f"see {TASK}!",
    ]

    told = post(tool("tell", of=TASK), ("Mcp-Name", TASK), target=f"/mcp?task={TASK}")
    encoded = b64encode(f"task {TASK}".encode()).decode()
    said = [(tool("say", at=words), text(words)) for words in [*spellings, encoded]]
    echoed = Answer((answer(CALL, text(TASK)),), (("Mcp-Method", TASK),))
    noted = stream(notification("note", of=TASK), answer(get(TASK).body, DONE))
    talk = conversation(BEGUN, *said, (told, echoed), (get(TASK), noted))

    written = encode_cassette(talk.cassette())

    assert TASK.encode() not in written
    assert encoded[8:40].encode() not in written


@pytest.mark.parametrize("task", ["t", "1", "task:1", 'a"b', "é"])
def test_short_id_is_sealed_where_it_is_one(task: str) -> None:
    """In the members that are named so, and nowhere else."""
    name = f"=?base64?{b64encode(task.encode()).decode()}?="
    poll = changed(get("t").body, "params", "taskId", to=task)
    first, listening = cassette_of(
        (tool("t"), created(task, note=task)),
        (post(poll, ("Mcp-Name", name)), state(task, "working")),
        (rpc("subscriptions/listen", {"taskIds": [task]}, 7), {"_meta": {}}),
    ).interactions

    shown = first.response.body["result"]["taskId"]

    assert first.response.body["result"]["note"] == task
    assert first.task[0].request.http.headers["Mcp-Name"] == shown != task
    assert listening.request.body["params"]["taskIds"] == [shown]


def test_log_names_no_task() -> None:
    """The name of a call that names a task is its id."""
    talk = conversation(BEGUN, (get(TASK), WORKS), (get("t"), WORKS))

    assert [talk.observation(number).label for number in (2, 3)] == ["tasks/get"] * 2


def test_task_that_no_recorded_call_created_is_played_as_it_was() -> None:
    """Each of its requests is an interaction; a long id is sealed all the same."""
    cassette = cassette_of(
        (get(TASK), WORKS), (cancel(TASK), {}), (get("t"), state("t"))
    )

    assert [interaction.task for interaction in cassette.interactions] == [None] * 3
    assert TASK.encode() not in encode_cassette(cassette)
    assert cassette.interactions[2].response.body["result"]["taskId"] == "t"


@pytest.mark.parametrize("meta", [False, True])
def test_id_of_a_task_of_2025_is_sealed(*, meta: bool) -> None:
    """Its requests are interactions of their own."""
    related = {"io.modelcontextprotocol/related-task": {"taskId": TASK}}
    result = {**text("done"), "_meta": related} if meta else text("done")
    made = {"task": {"taskId": TASK, "status": "working", "createdAt": "now"}}
    polls = ((get(TASK), WORKS), (request_of("tasks/result", TASK), result))
    cassette = cassette_of((CALL, made), *polls)

    assert len(cassette.interactions) == 3

    first, *later = cassette.interactions
    names = [interaction.request.body["params"].get("taskId") for interaction in later]

    assert set(names) == {first.response.body["result"]["task"]["taskId"]}
    assert TASK.encode() not in encode_cassette(cassette)


# Several recordings


@pytest.mark.parametrize("sent", ["raw", "surrogate"])
def test_task_of_one_recording_goes_on_in_the_next(sent: str) -> None:
    """What is added are states that are new, whether a client has the id or its name."""
    first = conversation(BEGUN, (get(TASK), WORKS)).cassette()
    name = first.interactions[0].response.body["result"]["taskId"]
    task = TASK if sent == "raw" else name
    later = (
        (get(task), state(task)),
        (update(task, {ONE: YES}), {}),
        (get(task), DONE),
    )

    both = conversation(*later, (CALL, created(OTHER))).cassette(earlier=first)

    assert [steps(interaction) for interaction in both.interactions] == [
        ["working", "update", "completed"],
        [],
    ]

    assert both.recording.exchanges[1].polls == 2
    assert both.interactions[1].response.body["result"]["taskId"] == f"{name[:-1]}2"

    requests = [step.request.body for step in both.interactions[0].task]

    assert {request["params"]["taskId"] for request in requests} == {name}
