"""Law of the log: nobody whose words an event repeats writes a line of it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import orjson
import pytest
from builders import (
    Conversation,
    answer,
    get,
    hit,
    missed,
    notification,
    player_of,
    post,
    retry,
    rpc,
    tool,
)
from harmless import assert_harmless
from hypothesis import given
from hypothesis import strategies as st
from messages import YES, asks, form, text
from pushing import PushingSession, asked_once, cassette_with, elicit, posted, roots

from mrtr_cassette.core.answers.forms import CallTurn
from mrtr_cassette.core.cassette.recorded import Branch
from mrtr_cassette.core.protocol.any_server import HarmlessReply
from mrtr_cassette.core.protocol.dialect import InputRequest
from mrtr_cassette.core.protocol.tasks import TaskState
from mrtr_cassette.core.record.sealing import UnreadBody
from mrtr_cassette.core.report import events, replay_events
from mrtr_cassette.core.report.replay_events import Event, LogLine
from mrtr_cassette.core.report.runs import CallResult, RecordingReport, report_of_replay
from mrtr_cassette.core.wire.http import End
from mrtr_cassette.errors import printable_json

STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"


def tellers_of(module: ModuleType) -> set[str]:
    """Return the public functions of a module that tell of something."""
    found = set()
    for name, function in inspect.getmembers(module, inspect.isfunction):
        is_defined_here = function.__module__ == module.__name__
        is_public = not name.startswith("_")
        if is_defined_here and is_public:
            found.add(name)

    return {name for name in found if name.endswith(("_log_line", "_event", "_events"))}


TELLERS = sorted(tellers_of(events) | tellers_of(replay_events))

Told = Iterator[tuple[str, Event | LogLine]]


def questions_of(name: str, dialect: str) -> tuple[Any, Any, str | None]:
    """Return a result that asks, its answers and its state, all with a name wherever one may be."""
    if dialect == "array":
        asked = {"inputRequests": [{"id": name, "kind": name}], "requestState": STATE}
        return asked, [{"id": name, "value": name}], STATE

    asked = {"resultType": "input_required", "inputRequests": {name: form(name)}}
    return asked, {name: {"action": "accept", "content": {name: name}}}, None


def recording_told(name: str, dialect: str) -> Told:
    """Tell of a recording."""
    asked, answers, state = questions_of(name, dialect)
    call = tool(name, **{name: name})
    answer = retry(call, answers, state=state)
    for request, response in (
        (call, asked),
        (answer, text(name)),
        (rpc(name), {name: name}),
    ):
        talk = Conversation()
        number = talk.request(request)
        talk.response(number, response)
        observation = talk.observation(number)
        yield "request_event", events.request_event(observation)
        exchange = observation.seal(End.COMPLETE, 1)
        said = events.response_log_line(observation, exchange, End.COMPLETE, 1)
        yield "response_log_line", said

    yield (
        "unread_log_line",
        events.unread_log_line(
            observation, UnreadBody("response", name, hides_id=True)
        ),
    )

    yield "other_server_log_line", events.other_server_log_line(observation, name)
    yield "unreachable_log_line", events.unreachable_log_line(name, name)
    yield "failure_log_line", events.failure_log_line(name)
    session = PushingSession()
    stream = session.open(call)
    session.say(stream, elicit(name, words=name))
    listening = session.talk.observation(stream)
    (push,) = listening.take_pushes()
    yield "push_log_line", events.push_log_line(listening, push)
    answering = session.talk.observation(session.post(posted(elicit(name), answers)))
    yield "request_event", events.request_event(answering)
    report = RecordingReport(name, 1, 1, None, 0, elsewhere=(name,))
    for told in (
        report,
        replace(report, objection=name),
        replace(report, is_same=True),
    ):
        yield "recording_log_line", events.recording_log_line(told)

    unchanged = replace(report, interactions=None, played=1)
    yield "recording_log_line", events.recording_log_line(unchanged)


def replay_told(name: str, dialect: str) -> Told:
    """Tell of a replay, and of what is added to one."""
    asked, answers, state = questions_of(name, dialect)
    call = tool(name, **{name: name})
    answer = retry(call, answers, state=state)
    player = player_of((call, asked), (answer, text(name)))
    for event in replay_events.played_events(hit(player, call)):
        yield "played_events", event

    yield (
        "missed_event",
        replay_events.missed_event(missed(player, tool(name, **{name: 1}))),
    )

    for request in (
        post(notification(f"notifications/{name}")),
        get(f"/.well-known/{name}"),
    ):
        harmless = player.request_received(request)
        assert isinstance(harmless, HarmlessReply)
        yield "harmless_event", replay_events.harmless_event(harmless)

    yield "fault_log_line", replay_events.fault_log_line(name, name)
    player.recording = replace(player.recording, path=name)
    came_to = replace(
        report_of_replay(player), elsewhere=(name,), without_response=(1,)
    )
    yield "replay_log_line", events.replay_log_line(came_to)
    asker, _ = player.entries.by_interaction[0]
    yield "caught_up_log_line", events.caught_up_log_line(asker)
    yield "repeated_log_line", events.repeated_log_line(asker)
    cassette = asked_once(elicit(words=name), YES, call, text(name))
    (interaction,) = cassette.interactions
    (turn,) = interaction.pushed_turns
    request = replace(turn.pushed_requests[0], key=name)
    named = replace(
        interaction, pushed_turns=(replace(turn, pushed_requests=(request,)),)
    )
    ((asking,),) = replay_events.asking_events([named]).values()
    _, event = asking
    yield "asking_events", event


def call_told(name: str) -> Told:
    """Tell of a call without a client."""
    asked = {name: InputRequest(name, name)}
    for sources in ({}, {name: "rule 1"}):
        yield (
            "turn_log_line",
            events.turn_log_line(CallTurn(1, "result", asked, {}, sources, None)),
        )

    yield (
        "progress_log_line",
        events.progress_log_line(TaskState(name, name, asked, {"statusMessage": name})),
    )
    for problem in (None, name):
        result = CallResult(name, name, problem=problem)
        yield "call_ended_event", events.call_ended_event(result)


def lines_of(name: str, dialect: str) -> dict[str, list[str]]:
    """Return the lines that each function makes of words, for people and for programs."""
    found: dict[str, list[str]] = {teller: [] for teller in TELLERS}
    told = [
        *recording_told(name, dialect),
        *replay_told(name, dialect),
        *call_told(name),
    ]

    for teller, item in told:
        event, *texts = item if isinstance(item, tuple) else (item,)
        texts.append(printable_json(orjson.dumps(event).decode()))
        for shown in texts:
            assert_harmless(shown)
            found[teller] += shown.split("\n")

    return found


NAMES = st.text(st.sampled_from("a\r\n\t\x1b\x85\u2028:#[]é"), min_size=1, max_size=9)


@given(NAMES, st.sampled_from(["map", "array"]))
def test_nobody_writes_a_line_of_the_log_but_its_recorder(
    name: str, dialect: str
) -> None:
    """Whatever server and client call keys, fields, tools and methods, there are as many lines."""
    assert {
        teller: len(lines) for teller, lines in lines_of(name, dialect).items()
    } == {teller: len(lines) for teller, lines in lines_of("a", dialect).items()}


@pytest.mark.parametrize("teller", TELLERS)
def test_the_law_of_the_log_is_about_every_event(teller: str) -> None:
    """A function of the module that the law doesn't call fails here."""
    assert lines_of("a", "map")[teller]


def test_pushed_asks_are_told_by_the_response_that_they_stand_in() -> None:
    """A push on a listening stream stands there, and belongs to the call that was pending."""
    call_message = tool("deploy", env="prod")
    session = PushingSession()
    stream = session.listen()
    call = session.open(call_message)
    session.say(call, elicit())
    session.say(stream, roots())
    session.end(call, answer(call_message, asks("a")))
    session.end(stream)
    listening = session.exchange(stream)
    calling = session.exchange(call)
    turns = [
        session.turn({"elicitation-1": (call, 0), "roots-1": (stream, 0)}),
        session.turn({"elicitation-1": (call, 0)}),
    ]

    interactions = cassette_with(([listening], ()), ([calling], turns)).interactions
    branch = replace(interactions[1], number=3, branch=Branch(2, 3))

    asked = replay_events.asking_events([*interactions, branch])
    told_by_call = [event for _, event in asked[calling]]
    told_by_stream = [event for _, event in asked[listening]]

    for turn, event in enumerate(told_by_call, start=1):
        assert (event["interaction"], event["turn"]) == (2, turn)
        assert event["keys"] == {"elicitation-1": "form"}

    assert len(told_by_call) == 2
    assert [event["turn"] for event in told_by_stream] == [1]
    assert told_by_stream[0]["call"] == 'tools/call "deploy"'
