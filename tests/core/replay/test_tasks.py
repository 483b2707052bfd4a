"""A recorded task is a state machine, which any number of polls at any pace may ask."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from builders import (
    Conversation,
    Step,
    as_request,
    conversation,
    delivery_of,
    missed,
    play,
    post,
    rpc,
    sent_now,
    told,
)
from messages import Json, compact, message
from task_tapes import CALL, cancel, cassette_of_tasks, created, poll, state, task_cassette, update

from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.history import united
from mrtr_cassette.core.replay.order import Repeat
from mrtr_cassette.core.replay.player import Play, Player
from mrtr_cassette.core.report.misses import report_of_miss
from mrtr_cassette.errors import CassetteError

CREATED: Step = (CALL, created())
WORKING, DONE, CANCELLED = (
    (poll(), state(status)) for status in ("working", "completed", "cancelled")
)
ASKS_A, ASKS_B, ASKS_BOTH = ((poll(), state("input_required", *keys)) for keys in ("a", "b", "ab"))
A, B, BOTH = ((update(*keys), {"ack": keys}) for keys in ("a", "b", "ab"))
CANCEL = (cancel(), {"ack": "cancel"})


def player_of(*steps: Step, **options: Json) -> Player:
    """Return a replay of a task."""
    return Player(task_cassette(CREATED, *steps), **options)


def does(player: Player, request: bytes) -> str:
    """Return what a request is told: a status with the keys asked, an acknowledgement, a reason."""
    decision = player.request_received(as_request(request))
    if isinstance(decision, Miss):
        return decision.reason.value
    assert isinstance(decision, Play)
    told = json.loads(sent_now(decision))["result"]
    if "ack" in told:
        return f"ack {told['ack']}"
    return " ".join([told["status"], *told.get("inputRequests", {})])


@pytest.mark.parametrize(
    ("steps", "requests", "expected"),
    [
        pytest.param(
            (WORKING, ASKS_A, A, WORKING, DONE),
            (poll(), poll(), poll(), update("a"), poll(), poll(), poll()),
            "working, input_required a, input_required a, ack a, working, completed, completed",
            id="a poll gets the next state up to the one that asks, and after the answer the rest",
        ),
        pytest.param(
            (ASKS_BOTH, BOTH, DONE),
            (poll(), update("b"), poll(), update("a"), poll()),
            "input_required a b, ack ab, input_required a b, ack ab, completed",
            id="the answers of one update may come in two",
        ),
        pytest.param(
            (ASKS_BOTH, A, ASKS_B, B, DONE),
            (poll(), update("a", "b"), poll()),
            "input_required a b, ack b, completed",
            id="the answers of two updates may come in one",
        ),
        pytest.param(
            (ASKS_BOTH, A, ASKS_B, B, DONE),
            (poll(), update("b"), poll(), update("a"), poll()),
            "input_required a b, ack b, input_required a b, ack a, completed",
            id="answers may come in another order",
        ),
        pytest.param(
            (ASKS_A, ASKS_BOTH, A, B, DONE),
            (poll(), update("a"), poll(), update("b"), poll()),
            "input_required a, ack a, input_required a b, ack b, completed",
            id="where nothing was polled between two updates the latest state before goes on",
        ),
        pytest.param(
            (ASKS_A, A, DONE),
            (poll(), update("a"), update("a"), poll(), update("a")),
            "input_required a, ack a, ack a, completed, ack a",
            id="an update that is sent again is acknowledged again",
        ),
        pytest.param(
            (ASKS_A, A, DONE),
            (poll(), update("a", action="decline"), poll()),
            "input_required a, answers-differ, input_required a",
            id="another answer is a miss, and the state stays",
        ),
        pytest.param(
            (ASKS_BOTH, A, DONE),
            (poll(), update("a", "b"), update("c"), poll()),
            "input_required a b, answers-differ, answers-differ, input_required a b",
            id="an answer that was not recorded is a miss",
        ),
        pytest.param(
            (WORKING, ASKS_A, A, DONE),
            (update("a"), poll(), update("a")),
            "out-of-order, working, out-of-order",
            id="an update before its ask is a miss",
        ),
        pytest.param(
            (WORKING, DONE),
            (cancel(), poll()),
            "unknown-method, working",
            id="an unrecorded cancel",
        ),
        pytest.param(
            (WORKING, CANCEL, CANCELLED),
            (poll(), poll(), cancel(), poll(), cancel()),
            "working, working, ack cancel, cancelled, ack cancel",
            id="only a cancellation leads to what came after it",
        ),
        pytest.param(
            (ASKS_A, A, WORKING, CANCEL, CANCELLED),
            (poll(), cancel(), update("a"), cancel(), poll()),
            "input_required a, out-of-order, ack a, ack cancel, cancelled",
            id="a cancellation comes after the answers before it",
        ),
        pytest.param(
            (CANCEL, CANCELLED),
            (poll(), cancel(), poll()),
            "out-of-order, ack cancel, cancelled",
            id="a poll before which nothing was polled",
        ),
    ],
)
def test_task_goes_on_by_what_its_client_does(
    steps: tuple[Step, ...], requests: tuple[bytes, ...], expected: str
) -> None:
    """Polls move on among the states between two updates; updates and cancels lead further."""
    player = player_of(*steps)
    play(player, CALL)
    assert ", ".join(does(player, each) for each in requests) == expected


def test_task_begins_with_its_call() -> None:
    """Nothing is known of a task before its call is played, and a repeated call begins it anew."""
    player = player_of(ASKS_A, A, DONE, repeat=Repeat.ALWAYS)
    assert does(player, poll()) == "out-of-order"
    for _ in range(2):
        play(player, CALL)
        got = [does(player, each) for each in (poll(), poll(), update("a"), poll())]
        assert got == ["input_required a", "input_required a", "ack a", "completed"]
    assert does(player, poll("t2")) == "unknown-name"


def test_each_recorded_call_has_its_own_task() -> None:
    """Equal calls that were answered in different ways are played in recorded order."""
    other = [(poll("t2"), state("failed", task="t2"))]
    player = Player(task_cassette(CREATED, WORKING, (CALL, created("t2")), *other))
    tasks = [json.loads(play(player, CALL))["result"]["taskId"] for _ in range(2)]
    assert (tasks, does(player, poll("t2")), does(player, poll())) == (
        ["t1", "t2"],
        "failed",
        "working",
    )


@pytest.mark.parametrize(
    ("spelled", "moved"),
    [
        ("2026-01-01T00:00:10Z", "2027-03-01T12:00:10Z"),
        ("2026-01-01T00:00:00.75+00:00", "2027-03-01T12:00:00.75+00:00"),
        ("2026-01-01 02:00:00.123456789+02:00", "2027-03-01 14:00:00.123456789+02:00"),
        ("yesterday", "yesterday"),
    ],
)
def test_times_follow_the_clock_of_the_replay(spelled: str, moved: str) -> None:
    """Times are moved by what has passed since the call was recorded, and spelled as before."""
    done = (poll(), state("completed", createdAt="2026-01-01T00:00:00Z", lastUpdatedAt=spelled))
    start = created() | {"createdAt": "2026-01-01T00:00:00Z"}
    player = Player(task_cassette((CALL, start), done))
    now = 1803902400.0
    first = player.request_received(post(CALL), now)
    later = player.request_received(post(poll()), now + 5)
    (begun, got) = (json.loads(sent_now(each))["result"] for each in (first, later))
    assert begun["createdAt"] == got["createdAt"] == "2027-03-01T12:00:00Z"
    assert (got["lastUpdatedAt"], got["ttlMs"]) == (moved, 60000)


def test_poll_interval_is_told_where_one_was_recorded() -> None:
    """The interval that clients are told may be another one; all other bytes are as recorded."""
    bare = {name: it for name, it in state("completed").items() if name != "pollIntervalMs"}
    player = player_of(WORKING, (poll(), bare))
    player.poll_interval = 5
    assert json.loads(play(player, CALL))["result"] == created() | {"pollIntervalMs": 5}
    assert json.loads(play(player, poll()))["result"] == state("working", pollIntervalMs=5)
    assert json.loads(play(player, poll()))["result"] == bare


def test_answer_is_shown_beside_the_recorded_one() -> None:
    """A miss has the question, both answers, and the ways out."""
    player = player_of(ASKS_A, A, DONE)
    play(player, CALL)
    play(player, poll())
    report = report_of_miss(missed(player, update("a", action="decline")), "t.json")
    assert report.text.splitlines() == [
        "miss: answers-differ: other answers were recorded",
        '  request:  tasks/update "t1", answering a',
        '  question: a (form) "a?"',
        '  nearest:  #1 (tools/call "deploy", answer of turn 1) in t.json',
        '  /inputResponses/a/action: recorded "accept", received "decline"',
        "  fix:      answer as recorded",
        "       or:  record the whole call with this answer, into another cassette",
        '       or:  leave what differs from run to run out of matching with ignore=["/POINTER"]',
    ]


def test_unplayed_are_updates_and_ends() -> None:
    """Polls and working states don't count; an update that was never sent does, and the end."""
    player = player_of(WORKING, ASKS_A, A, WORKING, DONE)
    play(player, CALL)
    for request in (poll(), poll(), update("a"), poll()):
        assert player.unplayed == [1]
        play(player, request)
    assert player.unplayed == [1]
    play(player, poll())
    assert player.unplayed == []


def test_stateless_replay_plays_the_last_state() -> None:
    """A replica can't know what a task was answered, so one that asks or is cancelled is refused."""
    for replica in (player_of(WORKING, DONE, stateless=True) for _ in range(2)):
        assert [does(replica, each) for each in (poll(), CALL, poll())] == [
            "completed",
            "working",
            "completed",
        ]
    for steps in ((ASKS_A, A, DONE), (WORKING, CANCEL, CANCELLED), (ASKS_A,)):
        with pytest.raises(CassetteError, match=r"#1.*which state of its task"):
            player_of(*steps, stateless=True)


def notified(*args: str) -> bytes:
    """Return the notification of a state."""
    return compact(message("notifications/tasks", state(*args), id=None))


def test_notification_waits_for_the_update_before_it() -> None:
    """A notification may ask, waits for the update that it followed, and takes polls along."""
    talk = Conversation(seals=False)
    talk.response(talk.request(CALL), created())
    listening = talk.stream(rpc("subscriptions/listen", {"taskIds": ["t1"]}, 7))
    talk.event(listening, notified("working"))
    talk.response(talk.request(poll()), state("working"))
    talk.event(listening, notified("input_required", "a"))
    talk.response(talk.request(update("a")), {"ack": "a"})
    talk.event(listening, notified("completed"))
    talk.response(talk.request(poll()), state("completed"))
    talk.end(listening)
    player = Player(cassette_of_tasks(talk.exchanges), repeat=Repeat.ALWAYS)
    for _ in range(2):
        play(player, CALL)
        assert does(player, update("a")) == "out-of-order"
        delivery = delivery_of(player, rpc("subscriptions/listen", {"taskIds": ["t1"]}, 7))
        assert b'"input_required"' in told(delivery)[0]
        assert does(player, update("a")) == "ack a"
        assert b'"completed"' in told(delivery)[0]
        assert does(player, poll()) == "completed"
    assert player.unplayed == []


def test_two_cassettes_have_tasks_of_their_own() -> None:
    """Sealed ids of one cassette are told from the equal ones of another."""
    task = "mrtr-task:0123456789abcdef:1"
    script = ((CALL, created(task)), (poll(task), state("completed", task=task)))
    one, other = (cassette_of_tasks(conversation(*script, seals=False).exchanges) for _ in "12")
    player = Player(united([one, other]))
    tasks = [json.loads(play(player, CALL))["result"]["taskId"] for _ in range(2)]
    assert tasks == [task, "mrtr-task:0123456789abcdef:2"]
    assert [does(player, poll(each)) for each in tasks] == ["completed", "completed"]


def test_task_of_a_contradicting_header_is_no_task() -> None:
    """A poll like no recorded one gets the miss of any other request."""
    player = player_of(WORKING)
    play(player, CALL)
    other = replace(post(poll()), headers=(("Mcp-Name", "t2"),))
    assert missed(player, other).reason is Reason.HEADERS_CONTRADICT
