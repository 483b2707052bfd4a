"""Equal calls that are in flight together play in whatever order their rounds come."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any, NamedTuple

import pytest
from builders import (
    Conversation,
    as_request,
    loaded,
    result_of,
    retry,
    rpc,
    said,
    sent_now,
    tool,
)
from hypothesis import given
from hypothesis import strategies as st
from messages import NO, YES, asks, text
from tasking import created, get, state, update

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.replay.deliveries import Play
from mrtr_cassette.core.replay.order import History
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.secrets.names import sha256_of
from mrtr_cassette.core.wire.http import Request

BOOK = tool("book")
COUNT = tool("count")
HINTED = {"tools": [{"name": "count", "annotations": {"readOnlyHint": True}}]}


def begins_in_order(order: str) -> bool:
    """Tell whether the calls of an order are named in the order in which they begin."""
    return [*dict.fromkeys(order)] == sorted({*order})


ORDERS = sorted(
    {
        "".join(order)
        for order in permutations("AABBCC")
        if begins_in_order("".join(order))
    }
)
"""All orders of the rounds of three calls of two rounds; equal calls need no other names."""


class Office(NamedTuple):
    """A server that asks before it books.

    Attributes:
        states: `own` for each ask, the `same` for all, or `none`.
        tells_number: whether each ticket has another number.
        answers: what the users of the three calls answer.
    """

    states: str
    tells_number: bool
    answers: str = "YYY"

    def state(self, name: str) -> str | None:
        states = {
            "own": f"state-of-{name}-{'x' * 20}",
            "same": "state-of-all-" + "x" * 20,
        }
        return states.get(self.states)


ANSWERS = {"Y": YES, "N": NO}


def answering(answer: str, state: str | None) -> bytes:
    """Return the retry that gives an answer."""
    return retry(BOOK, {"sure": ANSWERS[answer]}, state=state)


def rounds(order: str) -> Iterator[tuple[str, bool]]:
    """Return whose round comes next, and whether it answers the ask."""
    for place, name in enumerate(order):
        yield name, name in order[:place]


class Recording(NamedTuple):
    """A cassette of three bookings between two counts, and what they got."""

    cassette: Cassette
    results: list[str]
    last_count: str


def recorded(office: Office, order: str) -> Recording:
    """Record the bookings in an order of their rounds."""
    talk = Conversation()
    talk.exchange(rpc("tools/list"), HINTED)
    talk.exchange(COUNT, text("0 booked"))
    answers = dict(zip("ABC", office.answers, strict=True))
    results: list[str] = []
    booked = 0
    for name, is_answer in rounds(order):
        state = office.state(name)
        if not is_answer:
            talk.exchange(BOOK, asks("sure", state=state))
            continue

        result = "left"
        if answers[name] == "Y":
            booked += 1
            result = f"ticket {booked}" if office.tells_number else "booked"

        talk.exchange(answering(answers[name], state), text(result))
        results.append(result)

    talk.exchange(COUNT, text(f"{booked} booked"))
    return Recording(loaded(talk.cassette()), results, f"{booked} booked")


def played(player: Player, request: bytes | Request) -> bytes:
    """Return what a request gets, which must have been recorded."""
    decision = player.request_received(as_request(request))
    assert isinstance(decision, Play), player.tally.misses[-1].detail
    return sent_now(decision)


def check(
    office: Office, recording: Recording, order: str, answers: str, history: History
) -> None:
    """Play the bookings in another order, and check what each of them gets.

    Where states tell calls apart, the user of each gives the answer that was recorded to its state.
    """
    player = Player(recording.cassette, history=history)
    asking = [entry for entry in player.entries.in_file_order if entry.is_ask]
    linked = {
        entry.answered_ask.ask_key: entry
        for entry in player.entries.in_file_order
        if entry.answered_ask is not None
    }

    has_states = office.states != "none" and len(linked) == len(asking)
    given_answers = dict(zip("ABC", answers, strict=True))
    states: dict[str, str | None] = {}
    results: list[str] = []
    assert said(played(player, COUNT)) == "0 booked"
    for name, is_answer in rounds(order):
        if not is_answer:
            states[name] = result_of(played(player, BOOK)).get("requestState")
            continue

        state = states[name]
        answer = given_answers[name]
        if has_states:
            expected = linked[sha256_of(state)]
            answer = (
                "N" if NO["action"] in str(expected.normalised.lookup.answers) else "Y"
            )

        result = said(played(player, answering(answer, state)))
        if has_states:
            assert result == said(expected.exchange.response.body)

        assert (result == "left") == (answer == "N")
        results.append(result)

    assert sorted(results) == sorted(recording.results)
    assert said(played(player, COUNT)) == recording.last_count
    assert player.played_part.unplayed_numbers == [1], (
        "all but the list of tools is played"
    )


@pytest.mark.parametrize(
    "tells_number", [True, False], ids=["tickets", "equal results"]
)
@pytest.mark.parametrize("states", ["own", "same", "none"])
def test_every_order_of_three_equal_calls_plays_in_every_recorded_one(
    states: str, *, tells_number: bool
) -> None:
    """Each result is played once, and a retry with a state gets the result of that state's ask."""
    office = Office(states, tells_number)
    for recorded_order in ORDERS:
        recording = recorded(office, recorded_order)
        for order in ORDERS:
            check(office, recording, order, "YYY", History.AUTO)


@given(
    st.builds(
        Office,
        st.sampled_from(["own", "same", "none"]),
        st.booleans(),
        st.text("YN", min_size=3, max_size=3),
    ),
    st.sampled_from(ORDERS),
    st.sampled_from(ORDERS),
    st.sampled_from([History.AUTO, History.STRICT]),
    st.data(),
)
def test_equal_calls_that_are_answered_differently_end_in_any_order(
    office: Office,
    recorded_order: str,
    order: str,
    history: History,
    data: st.DataObject,
) -> None:
    """Calls that were never in flight together give their answers in the recorded order."""
    answers = "".join(data.draw(st.permutations(office.answers)))
    if not (order.startswith("ABC") or recorded_order.startswith("ABC")):
        endings = [name for name, is_answer in rounds(recorded_order) if is_answer]
        given_answers = {name: office.answers["ABC".index(name)] for name in endings}
        replayed = [name for name, is_answer in rounds(order) if is_answer]
        by_name = dict(zip(replayed, given_answers.values(), strict=True))
        answers = "".join([by_name[name] for name in "ABC"])

    check(office, recorded(office, recorded_order), order, answers, history)


class Task(NamedTuple):
    """A task that asks once, and how its questions are keyed."""

    id: str
    key: str

    def update(self, answer: str) -> Request:
        return update(self.id, {self.key: ANSWERS[answer]})


@st.composite
def recorded_tasks(draw: Any) -> tuple[Recording, str, str]:
    """Record three equal calls that create tasks; return also their answers, and their order."""
    order = draw(st.sampled_from(ORDERS))
    answers = draw(st.text("YN", min_size=3, max_size=3))
    names_ids = draw(st.booleans())
    tells_number = draw(st.booleans())
    talk = Conversation()
    results: list[str] = []
    for name, is_answer in rounds(order):
        task_id = f"786512e2-9e0d-44bd-8f29-789f320fe84{name}"
        task = Task(task_id, f"{task_id}:sure" if names_ids else "sure")
        if not is_answer:
            talk.exchange(BOOK, created(task.id))
            talk.exchange(get(task.id), state(task.id))
            asked = state(task.id, "input_required", task.key)
            talk.exchange(get(task.id), asked)
            continue

        answer = answers["ABC".index(name)]
        result = "left"
        if answer == "Y":
            result = f"ticket {len(results)}" if tells_number else "booked"

        talk.exchange(task.update(answer), {})
        ending = state(task.id, "completed", result=text(result))
        talk.exchange(get(task.id), ending)
        results.append(result)

    return Recording(loaded(talk.cassette()), results, ""), answers, order


@given(recorded_tasks(), st.sampled_from(ORDERS), st.data())
def test_tasks_of_equal_calls_are_branches_that_the_answers_choose(
    recorded: tuple[Recording, str, str], order: str, data: st.DataObject
) -> None:
    """Each user may answer as any of the recorded ones did, and keeps the id of the first reply."""
    recording, office_answers, recorded_order = recorded
    answers = "".join(data.draw(st.permutations(office_answers)))
    if not (order.startswith("ABC") or recorded_order.startswith("ABC")):
        endings = [name for name, is_answer in rounds(recorded_order) if is_answer]
        replayed = [name for name, is_answer in rounds(order) if is_answer]
        by_name = {
            name: office_answers["ABC".index(ending)]
            for name, ending in zip(replayed, endings, strict=True)
        }
        answers = "".join([by_name[name] for name in "ABC"])

    history = History.AUTO
    if recorded_order.startswith("ABC"):
        # Others are held to the recorded order of the tasks that they make.
        history = data.draw(st.sampled_from([History.AUTO, History.STRICT]))

    player = Player(recording.cassette, history=history)
    tasks: dict[str, Task] = {}
    results: list[str] = []
    for name, is_answer in rounds(order):
        if not is_answer:
            task_id = result_of(played(player, BOOK))["taskId"]

            assert result_of(played(player, get(task_id)))["status"] == "working"

            asked = result_of(played(player, get(task_id)))

            assert asked["taskId"] == task_id

            tasks[name] = Task(task_id, *asked["inputRequests"])
            continue

        task = tasks[name]
        answer = answers["ABC".index(name)]
        played(player, task.update(answer))
        ending = result_of(played(player, get(task.id)))

        assert ending["taskId"] == task.id

        result = ending["result"]["content"][0]["text"]

        assert (result == "left") == (answer == "N")

        results.append(result)

    assert len({task.id for task in tasks.values()}) == 3
    assert sorted(results) == sorted(recording.results)
    assert player.played_part.unplayed_numbers == []
