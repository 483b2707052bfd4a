"""Law of batches over HTTP: whoever sends one gets each response under the id of its request."""

from __future__ import annotations

import json
from typing import Any

from builders import (
    STREAM_HEADERS,
    Answer,
    missed,
    notification,
    play,
    player_of,
    progress,
    sse,
)
from hypothesis import given
from hypothesis import strategies as st
from messages import Json, compact, result, text, tool_call

from mrtr_cassette.core.replay.diagnosis import Reason

ids = st.one_of(
    st.integers(0, 5), st.integers(0, 5).map(str), st.text(min_size=1, max_size=3)
)
distinct_ids = st.lists(
    ids, min_size=2, max_size=4, unique_by=lambda name: (type(name), name)
)


def batch(names: list[Json], value: int = 0) -> bytes:
    """Return a batch of calls under these ids, with progress tokens, and a notification."""
    calls = []
    for at, name in enumerate(names):
        params = {"arguments": {"n": at + value}, "_meta": {"progressToken": name}}
        calls.append(tool_call("t", id=name, **params))

    return compact(
        [*calls, json.loads(notification("notifications/roots/list_changed"))]
    )


def messages_to(names: list[Json], order: list[int]) -> list[Any]:
    """Return what a server says to a batch: some progress, and its responses in an order."""
    told = [json.loads(progress(names[0])), json.loads(progress(names[-1]))]
    return told + [result(text(f"call {at}"), id=names[at]) for at in order]


def said(messages: list[Any], form: str) -> Answer:
    """Return a response that says some messages."""
    if form == "array":
        return Answer((compact(messages),))
    if form == "events":
        events = [sse(compact(message)) for message in messages]
        return Answer(tuple(events), STREAM_HEADERS)

    return Answer((sse(compact(messages)),), STREAM_HEADERS)


@given(
    st.data(), distinct_ids, st.sampled_from(["array", "events", "array in an event"])
)
def test_each_response_of_a_batch_has_the_id_of_its_caller(
    data: st.DataObject, recorded: list[Json], form: str
) -> None:
    """Whatever ids and tokens a client gives to its calls, in whatever order they are answered."""
    size = len(recorded)
    caller = data.draw(st.lists(ids, min_size=size, max_size=size, unique_by=repr))
    order = data.draw(st.permutations(range(size)))
    player = player_of((batch(recorded), said(messages_to(recorded, order), form)))

    assert missed(player, batch(caller, value=1)).reason is Reason.ARGUMENTS_DIFFER

    played = play(player, batch(caller))

    assert played == b"".join(said(messages_to(caller, order), form).chunks)


@given(distinct_ids, st.sampled_from([None, True, [], {}]), st.integers(min_value=0))
def test_batch_with_an_id_that_no_request_has_is_a_miss(
    recorded: list[Json], bad: Json, at: int
) -> None:
    """Nobody knows under which id its client looks for a response."""
    order = list(range(len(recorded)))
    player = player_of((batch(recorded), said(messages_to(recorded, order), "array")))
    requests = json.loads(batch(recorded))
    requests[at % len(recorded)]["id"] = bad

    assert missed(player, compact(requests)).reason is Reason.ARGUMENTS_DIFFER
