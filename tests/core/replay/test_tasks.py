"""A recorded task is a state machine, which any number of polls at any pace may ask."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from builders import (
    Answer,
    Conversation,
    Step,
    as_request,
    cassette_of,
    delivery_of,
    loaded,
    missed,
    play,
    post,
    refusal,
    result_of,
    rpc,
    sent_now,
    told,
    tool,
)
from messages import Json, compact, message, text
from tasking import cancel, created, get, state, update
from verifying import reported_miss

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.texts import combine_cassettes
from mrtr_cassette.core.replay.deliveries import Play
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.order import History, Repeat
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.errors import CassetteError

TASK = "t1"
CALL = tool("deploy")
POLL = get(TASK)
CANCEL = cancel(TASK)


def gives(*keys: str, action: str = "accept") -> Request:
    """Return an update that gives the recorded answers to some keys, or others."""
    return update(TASK, {key: gives_to(key, action) for key in keys})


def gives_to(key: str, action: str = "accept") -> Json:
    """Return the recorded answer to a key, or another one."""
    return {"action": action, "content": {"key": key}}


CREATED: Step = (CALL, created(TASK))
WORKING: Step = (POLL, state(TASK, "working"))
DONE: Step = (POLL, state(TASK, "completed"))
GONE: Step = (POLL, state(TASK, "cancelled"))
ASKS_A: Step = (POLL, state(TASK, "input_required", "a"))
ASKS_B: Step = (POLL, state(TASK, "input_required", "b"))
ASKS_BOTH: Step = (POLL, state(TASK, "input_required", "a", "b"))
A: Step = (gives("a"), {"ack": "a"})
B: Step = (gives("b"), {"ack": "b"})
BOTH: Step = (gives("a", "b"), {"ack": "ab"})
CANCELS: Step = (CANCEL, {"ack": "cancel"})


def refused(request: Request) -> Step:
    """Return a request that the server refuses."""
    return request, Answer((refusal(request.body),))


REFUSED_A = refused(gives("a", action="decline"))
REFUSED_BOTH = refused(update(TASK, {"a": {"action": "decline"}, "b": gives_to("b")}))


def player_of(*steps: Step, **options: Json) -> Player:
    """Return a replay of a task."""
    return Player(loaded(cassette_of(CREATED, *steps, seals=False)), **options)


def begun_tasks(player: Player) -> list[str]:
    """Make the call twice, and return the ids of its tasks."""
    return [result_of(play(player, CALL))["taskId"] for _ in range(2)]


def does(player: Player, request: bytes | Request) -> str:
    """Return what a request is told: a status with the keys asked, an acknowledgement, a reason."""
    decision = player.request_received(as_request(request))
    if isinstance(decision, Miss):
        return decision.reason.value

    assert isinstance(decision, Play)
    message = json.loads(sent_now(decision))
    if "error" in message:
        return "refused"

    told = message["result"]
    if "ack" in told:
        return f"ack {told['ack']}"

    return " ".join([told["status"], *told.get("inputRequests", {})])


@pytest.mark.parametrize(
    ("steps", "requests", "expected"),
    [
        pytest.param(
            (WORKING, ASKS_A, A, WORKING, DONE),
            (POLL, POLL, POLL, gives("a"), POLL, POLL, POLL),
            "working, input_required a, input_required a, ack a, working, completed, completed",
            id="a poll gets the next state up to the one that asks, and after the answer the rest",
        ),
        pytest.param(
            (ASKS_BOTH, BOTH, DONE),
            (POLL, gives("b"), POLL, gives("a"), POLL),
            "input_required a b, ack ab, input_required a b, ack ab, completed",
            id="the answers of one update may come in two",
        ),
        pytest.param(
            (ASKS_A, ASKS_BOTH, A, B, DONE),
            (POLL, gives("a"), POLL, gives("b"), POLL),
            "input_required a, ack a, input_required a b, ack b, completed",
            id="where nothing was polled between two updates the latest state before goes on",
        ),
        pytest.param(
            (ASKS_A, A, DONE),
            (POLL, gives("a"), gives("a"), POLL, gives("a")),
            "input_required a, ack a, ack a, completed, ack a",
            id="an update that is sent again is acknowledged again",
        ),
        pytest.param(
            (ASKS_A, A, DONE),
            (POLL, gives("a", action="decline"), POLL),
            "input_required a, answers-differ, input_required a",
            id="another answer is a miss, and the state stays",
        ),
        pytest.param(
            (ASKS_BOTH, A, DONE),
            (POLL, gives("a", "b"), gives("c"), POLL),
            "input_required a b, answers-differ, answers-differ, input_required a b",
            id="an answer that was not recorded is a miss",
        ),
        pytest.param(
            (ASKS_A, REFUSED_A, REFUSED_A, ASKS_A, A, DONE),
            (POLL, gives("a"), POLL, gives("a", action="decline")),
            "input_required a, ack a, completed, answers-differ",
            id="an answer that was refused need not come before the next one",
        ),
        pytest.param(
            (ASKS_BOTH, REFUSED_BOTH, ASKS_A, BOTH, DONE),
            (POLL, *[REFUSED_BOTH[0]] * 2, POLL, gives("a", "b"), POLL),
            "input_required a b, refused, refused, input_required a, ack ab, completed",
            id="an answer that was refused is refused, as often as it comes",
        ),
        pytest.param(
            (WORKING, ASKS_A, A, DONE),
            (gives("a"), POLL, gives("a")),
            "out-of-order, working, out-of-order",
            id="an update before its ask is a miss",
        ),
        pytest.param(
            (WORKING, DONE),
            (CANCEL, POLL),
            "unknown-method, working",
            id="an unrecorded cancel",
        ),
        pytest.param(
            (WORKING, CANCELS, GONE),
            (POLL, POLL, CANCEL, POLL, CANCEL),
            "working, working, ack cancel, cancelled, ack cancel",
            id="only a cancellation leads to what came after it",
        ),
        pytest.param(
            (ASKS_A, A, WORKING, CANCELS, GONE),
            (POLL, CANCEL, gives("a"), CANCEL, POLL),
            "input_required a, out-of-order, ack a, ack cancel, cancelled",
            id="a cancellation comes after the answers before it",
        ),
        pytest.param(
            (CANCELS, GONE),
            (POLL, CANCEL, POLL),
            "out-of-order, ack cancel, cancelled",
            id="a poll before which nothing was polled",
        ),
    ],
)
def test_task_goes_on_by_what_its_client_does(
    steps: tuple[Step, ...], requests: tuple[Request, ...], expected: str
) -> None:
    """Polls move on among the states between two updates; updates and cancels lead further."""
    player = player_of(*steps)
    play(player, CALL)

    assert ", ".join(does(player, request) for request in requests) == expected


def test_task_begins_with_its_call() -> None:
    """Nothing is known of a task before its call is played, and a repeated call begins it anew."""
    player = player_of(ASKS_A, A, DONE, repeat=Repeat.ALWAYS)

    assert does(player, POLL) == "out-of-order"

    for _ in range(2):
        play(player, CALL)

        assert does(player, POLL) == "input_required a"
        assert does(player, POLL) == "input_required a"
        assert does(player, gives("a")) == "ack a"
        assert does(player, POLL) == "completed"

    miss = missed(player, get("t2"))

    assert miss.detail == "no call that was recorded created this task"


def test_each_recorded_call_has_its_own_task() -> None:
    """Equal calls that were answered in different ways are played in recorded order."""
    created_second: Step = (CALL, created("t2"))
    failed: Step = (get("t2"), state("t2", "failed"))
    player = player_of(WORKING, created_second, failed)
    tasks = begun_tasks(player)

    assert tasks == ["t1", "t2"]
    assert does(player, get("t2")) == "failed"
    assert does(player, POLL) == "working"


@pytest.mark.parametrize(
    ("spelled", "moved"),
    [
        ("2026-01-01T00:00:10Z", "2027-03-01T12:00:10Z"),
        ("2026-01-01T00:00:00.750+00:00", "2027-03-01T12:00:00.750+00:00"),
        ("2026-01-01 02:00:00.123456+02:00", "2027-03-01 14:00:00.123456+02:00"),
        ("yesterday", "yesterday"),
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
    ],
)
def test_times_follow_the_clock_of_the_replay(spelled: str, moved: str) -> None:
    """Times are moved by what has passed since the call was recorded, and spelled as before."""
    started = "2026-01-01T00:00:00Z"
    start = created(TASK) | {"createdAt": started}
    end = state(TASK, "completed", createdAt=started, lastUpdatedAt=spelled)
    cassette = cassette_of((CALL, start), (POLL, end), seals=False)
    player = Player(loaded(cassette))
    now = 1803902400.0
    first = player.request_received(post(CALL), now)
    later = player.request_received(POLL, now + 5)
    begun = json.loads(sent_now(first))["result"]
    got = json.loads(sent_now(later))["result"]

    assert begun["createdAt"] == got["createdAt"] == "2027-03-01T12:00:00Z"
    assert (got["lastUpdatedAt"], got["ttlMs"]) == (moved, 60000)


def test_poll_interval_is_told_where_one_was_recorded() -> None:
    """The interval that clients are told may be another one; all other bytes are as recorded."""
    bare = state(TASK, "completed")
    del bare["pollIntervalMs"]
    working = state(TASK, "working", pollIntervalMs=7)
    player = player_of(WORKING, (POLL, bare))
    player.set_poll_interval(7)

    assert result_of(play(player, CALL)) == created(TASK) | {"pollIntervalMs": 7}
    assert result_of(play(player, POLL)) == working
    assert result_of(play(player, POLL)) == bare


def test_answer_is_shown_beside_the_recorded_one() -> None:
    """A miss has the question, both answers, and the ways out."""
    declined: Step = (gives("a", action="decline"), {})
    player = player_of(ASKS_A, A, DONE)
    play(player, CALL)
    play(player, POLL)
    miss = missed(player, gives("a", action="decline"))
    report = reported_miss(miss, Cassette("t.json"))

    assert report.text.splitlines() == [
        "miss: answers-differ: other answers were recorded",
        '  request:  tasks/update "t1", answering a',
        '  question: a (form) "a?"',
        '  nearest:  #1 (tools/call "deploy", answer of turn 1) in t.json',
        '  /inputResponses/a/action: recorded "accept", received "decline"',
        "  fix:      answer as recorded",
        "       or:  record the whole call, or session, with this answer, into another cassette",
    ]

    for answers in ((A, declined), (REFUSED_A, A)):
        player = player_of(ASKS_A, *answers, DONE)
        play(player, CALL)
        play(player, POLL)
        (difference,) = missed(player, gives("a", action="cancel")).differences

        assert (difference.recorded, difference.received) == ('"accept"', '"cancel"')

    player = player_of(ASKS_BOTH, A, B, DONE)
    play(player, CALL)
    play(player, POLL)
    differences = missed(player, gives("b", "a", action="decline")).differences

    assert {difference.pointer[-8:] for difference in differences} == {
        "a/action",
        "b/action",
    }


def test_place_of_an_answer_is_shown_whole() -> None:
    """It is a pointer that can be ignored, though a task's id is cut where it is only named."""
    key = "mrtr-task:0f7fd208914bc95c:1:1f"
    asks = (POLL, state(TASK, "input_required", key))
    player = player_of(asks, (gives(key), {"ack": key}), DONE)
    play(player, CALL)
    play(player, POLL)
    miss = missed(player, gives(key, action="decline"))
    text = reported_miss(miss, Cassette("t.json")).text

    assert "answering mrtr-task:0f7fd208…:1:1f" in text
    assert f"  /inputResponses/{key}/action: recorded" in text


def test_unplayed_are_updates_and_ends() -> None:
    """Polls and working states don't count; an update that was never sent does, and the end."""
    player = player_of(WORKING, ASKS_A, A, WORKING, DONE)
    play(player, CALL)
    for request in (POLL, POLL, gives("a"), POLL):
        assert player.played_part.unplayed_numbers == [1]

        play(player, request)

    assert player.played_part.unplayed_numbers == [1]

    play(player, POLL)

    assert player.played_part.unplayed_numbers == []


def test_stateless_replay_plays_the_last_state() -> None:
    """A replica can't know what a task was answered, so one that asks or is cancelled is refused."""
    for _ in range(2):
        replica = player_of(WORKING, DONE, stateless=True)

        assert does(replica, POLL) == "completed"
        assert does(replica, CALL) == "working"
        assert does(replica, POLL) == "completed"

    for steps in ((ASKS_A, A, DONE), (WORKING, CANCELS, GONE), (ASKS_A,)):
        with pytest.raises(CassetteError, match=r"#1.*the state of its task"):
            player_of(*steps, stateless=True)


def test_equal_tasks_are_one_answer() -> None:
    """Ids, times and states on the way make no histories, and a replica plays one of the two."""
    halfway = state("t2", createdAt="2026-11-25T00:00:00Z", statusMessage="halfway")
    script = (
        CREATED,
        DONE,
        (tool("sell"), {}),
        (CALL, created("t2") | {"createdAt": "2026-11-25"}),
        (get("t2"), halfway),
        (get("t2"), state("t2", "completed")),
    )

    cassette = loaded(cassette_of(*script, seals=False))
    player = Player(cassette)

    assert does(player, CALL) == "working"
    assert does(player, CALL) == "working"
    assert does(player, POLL) == "completed"
    assert does(player, get("t2")) == "working"

    replica = Player(cassette, stateless=True)
    for request in (CALL, POLL, tool("sell"), CALL, POLL):
        play(replica, request)

    assert replica.played_part.unplayed_numbers == []


def notified(*args: str) -> bytes:
    """Return the notification of a state."""
    return compact(message("notifications/tasks", state(TASK, *args), id=None))


def test_notification_waits_for_the_update_before_it() -> None:
    """A notification may ask, waits for the update before it, and takes polls along; its times are moved."""
    talk = Conversation(seals=False)
    talk.exchange(CALL, created(TASK))
    listening = talk.stream(rpc("subscriptions/listen", {"taskIds": [TASK]}, 7))
    talk.event(listening, notified("working"))
    talk.exchange(POLL, state(TASK))
    talk.event(listening, notified("input_required", "a"))
    talk.exchange(gives("a"), {"ack": "a"})
    talk.event(listening, notified("completed"))
    talk.exchange(POLL, state(TASK, "completed"))
    talk.end(listening)
    player = Player(loaded(talk.cassette()), repeat=Repeat.ALWAYS)
    for _ in range(2):
        player.request_received(post(CALL), 0.0)

        assert does(player, gives("a")) == "out-of-order"

        delivery = delivery_of(
            player, rpc("subscriptions/listen", {"taskIds": [TASK]}, 7)
        )

        assert b'"input_required"' in told(delivery)[0]
        assert does(player, gives("a")) == "ack a"

        (last,) = told(delivery)[:1]

        assert b'"completed"' in last
        assert b'"createdAt":"1970-01-01T00:00:00Z"' in last
        assert does(player, POLL) == "completed"

    assert player.played_part.unplayed_numbers == []


def test_two_cassettes_have_tasks_of_their_own() -> None:
    """Sealed ids of one cassette are told from the equal ones of another."""
    task = "786512e2-9e0d-44bd-8f29-789f320fe840"
    script = ((CALL, created(task)), (get(task), state(task, "completed")))
    cassettes = [loaded(cassette_of(*script)) for _ in range(2)]
    player = Player(combine_cassettes(cassettes))
    tasks = begun_tasks(player)

    assert [task.rpartition(":")[2] for task in tasks] == ["1", "100001"]
    assert [does(player, get(task)) for task in tasks] == ["completed", "completed"]


def test_two_cassettes_may_name_their_tasks_alike() -> None:
    """Where ids are kept, the task is that of the call that was played last."""
    ends = ("completed", "failed")
    cassettes = []
    for end in ends:
        cassette = cassette_of(CREATED, (POLL, state(TASK, end)), seals=False)
        cassettes.append(loaded(cassette))

    player = Player(combine_cassettes(cassettes), history=History.ORDER)
    for end in ends:
        play(player, CALL)

        assert does(player, POLL) == end


def test_task_of_a_contradicting_header_is_no_task() -> None:
    """A poll like no recorded one gets the miss of any other request."""
    player = player_of(WORKING)
    play(player, CALL)
    contradicting = replace(POLL, headers=(("Mcp-Name", "t2"),))

    assert missed(player, contradicting).reason is Reason.HEADERS_CONTRADICT


def answered(task: str, action: str, result: str, *after: Step) -> list[Step]:
    """Make the script of a call whose task asks once, and ends with a result."""
    answers = update(task, {"a": {"action": action}})
    ending = state(task, "completed", result=text(result))
    asking = state(task, "input_required", "a")

    return [
        (CALL, created(task)),
        (get(task), asking),
        (answers, {"ack": action}),
        (get(task), ending),
        *after,
    ]


def ends(player: Player, task: str, action: str) -> str:
    """Answer the question of a task; return its result, or the reason of a miss."""
    assert "input_required" in play(player, get(task)).decode()
    decision = player.request_received(update(task, {"a": {"action": action}}))
    if isinstance(decision, Miss):
        return decision.reason.value

    ending = result_of(play(player, get(task)))
    assert ending["taskId"] == task
    return str(ending["result"]["content"][0]["text"])


COUNT = tool("count")
BRANCHES: list[Step] = [
    (
        rpc("tools/list"),
        {"tools": [{"name": "count", "annotations": {"readOnlyHint": True}}]},
    ),
    *answered("task-one", "accept", "booked", (COUNT, text("1"))),
    *answered("task-two", "decline", "left", (COUNT, text("1 still"))),
]


def test_answer_chooses_among_the_tasks_of_equal_calls() -> None:
    """A client that declines first gets what the later call got, under the id that it knows."""
    player = Player(loaded(cassette_of(*BRANCHES, seals=False)))
    first, second = begun_tasks(player)

    assert (first, second) == ("task-one", "task-two")
    assert ends(player, first, "decline") == "left"
    assert ends(player, second, "accept") == "booked"
    assert player.played_part.unplayed_numbers == [1, 3, 5]
    assert does(player, update(first, {"a": {"action": "accept"}})) == "answers-differ"


def test_task_that_ended_otherwise_is_another_history() -> None:
    """What was read after an accept is not what is there after a decline."""
    player = Player(loaded(cassette_of(*BRANCHES, seals=False)))

    assert ends(player, result_of(play(player, CALL))["taskId"], "decline") == "left"
    assert missed(player, COUNT).reason is Reason.OTHER_HISTORY


def test_answer_that_no_equal_call_got_is_a_miss() -> None:
    """So is one that another call in flight has used up."""
    player = Player(loaded(cassette_of(*BRANCHES, seals=False)))
    first, second = begun_tasks(player)

    assert ends(player, first, "cancel") == "answers-differ"
    assert ends(player, first, "decline") == "left"
    assert ends(player, second, "decline") == "answers-differ"
    assert ends(player, second, "accept") == "booked"
