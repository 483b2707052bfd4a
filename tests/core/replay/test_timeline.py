from __future__ import annotations

from typing import Any

import pytest
from builders import (
    Answer,
    Conversation,
    answer,
    conversation,
    get,
    loaded,
    notification,
    post,
    progress,
    rpc,
    stream,
    tool,
    with_id,
    with_token,
)
from messages import compact, text

from mrtr_cassette.core.format.model import CassetteModel
from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.replay.timeline import NO_WAITS, Gate, Timelines, Waits
from mrtr_cassette.core.wire.http import End, Request

CALL = tool("deploy", env="prod")
ACCEPTED = Answer((), (), 202)
IN_SESSION = (("Mcp-Session-Id", "s" * 32),)


def in_session(request: bytes | Request) -> Request:
    """Return a request in a session."""
    if isinstance(request, bytes):
        return post(request, *IN_SESSION)
    return Request(request.method, request.target, (*request.headers, *IN_SESSION), request.body)


def playables_of(cassette: CassetteModel) -> list[Playable]:
    """Return what a cassette plays, in the order in which its requests arrived."""
    own = Player(loaded(cassette)).interactions
    return sorted((each for some in own for each in some), key=lambda each: each.arrival)


def waits(talk: Conversation) -> dict[int, Waits]:
    """Return what the response to each exchange waits for, by its number."""
    playables = playables_of(talk.cassette())
    timelines = Timelines(playables)
    return {
        each.exchange.number: timelines.waits_of(each)
        for each in playables
        if each.exchange.number is not None
    }


def causes(wait: Waits, *gates: Gate) -> list[set[int]]:
    """Return the numbers of the exchanges that gates wait for: those of all pieces, or these."""
    return [
        {
            number
            for (arrivals, first), count in zip(wait.lanes, gate.counts, strict=True)
            for each in arrivals.playables[first:count]
            if (number := each.exchange.number) is not None
        }
        | ({gate.request.exchange.number or 0} if gate.request is not None else set())
        for gate in gates or wait.pieces
    ]


LISTEN = rpc("subscriptions/listen", {}, number="l")


@pytest.mark.parametrize("listen", [LISTEN, get("/mcp")], ids=["listen", "GET"])
def test_listening_stream_waits_for_the_calls_that_came_before(listen: Any) -> None:
    """A notification on a listening stream comes no earlier than the calls that may have caused it."""
    talk = Conversation()
    talk.response(talk.request(tool("before")), text("x"))
    listening = talk.stream(listen)
    talk.event(listening, notification("ready"))
    talk.response(talk.request(rpc("tools/list")), text("x"))
    talk.response(talk.request(notification("notifications/x")), ACCEPTED)
    call = talk.request(CALL)
    talk.response(call, text("x"))
    talk.event(listening, notification("changed"))
    talk.response(talk.request(tool("late")), text("x"))
    talk.end(listening, End.OPEN)

    recorded = waits(talk)

    assert causes(recorded[listening]) == [set(), {call}]
    assert not any(any(causes(recorded[number])) for number in recorded if number != listening)


def test_parallel_calls_owe_each_other_nothing() -> None:
    """A call's own stream waits for no other call."""
    talk = Conversation()
    one, two = talk.request(CALL), talk.request(tool("other"))
    talk.response(two, stream(progress(1)))
    talk.response(one, stream(progress(1)))

    recorded = waits(talk)

    assert not any(causes(recorded[one]) + causes(recorded[two]))


def test_everything_in_a_session_waits_for_posted_answers_and_notifications() -> None:
    """Results wait for what the client said before, whatever it was about."""
    talk = Conversation()
    ready = talk.request(in_session(notification("notifications/initialized")))
    talk.response(ready, ACCEPTED)
    call = talk.stream(in_session(CALL))
    talk.event(call, progress(1))
    said = talk.request(in_session(answer(rpc("x", number="p1"), {"action": "accept"})))
    talk.response(said, ACCEPTED)
    talk.event(call, answer(CALL, text("done")))
    talk.end(call)
    other = talk.request(in_session(tool("other")))
    talk.response(other, text("x"))

    recorded = waits(talk)

    assert causes(recorded[call]) == [{ready}, {ready, said}]
    assert causes(recorded[other]) == [{ready, said}]


def test_acknowledgement_waits_for_nothing() -> None:
    """Some clients post an answer only when they know that the one before has been taken."""
    talk = Conversation()
    answers = [
        talk.request(in_session(compact({"jsonrpc": "2.0", "id": number, "result": {}})))
        for number in range(3)
    ]
    told = talk.request(in_session(notification("notifications/x")))
    for number in (*answers, told):
        talk.response(number, ACCEPTED)

    recorded = waits(talk)

    assert {recorded[number] for number in (*answers, told)} == {NO_WAITS}


def test_acceptance_of_a_call_waits_for_nothing() -> None:
    """A client that posts one message after the other answers only when its call is accepted.

    So it is, whoever left the response to the post open until the answer had arrived.
    """
    talk = Conversation()
    listening = talk.stream(in_session(get("/mcp")))
    call = talk.request(in_session(CALL))
    question = rpc("elicitation/create", {"message": "?"}, number="p1")
    talk.event(listening, question)
    talk.response(talk.request(in_session(answer(question, {"action": "accept"}))), ACCEPTED)
    talk.response(call, ACCEPTED)
    talk.event(listening, answer(CALL, text("done")))
    talk.end(listening, End.OPEN)

    assert waits(talk)[call] == NO_WAITS


def test_no_session_waits_for_another_one() -> None:
    """What one client says holds up nobody else."""
    talk = Conversation()
    talk.response(talk.request(in_session(notification("notifications/x"))), ACCEPTED)
    talk.response(talk.request(notification("notifications/y")), ACCEPTED)
    call = talk.request(CALL)
    talk.response(call, text("x"))

    assert not any(causes(waits(talk)[call]))


def test_response_on_a_listening_stream_waits_for_its_request() -> None:
    """HTTP+SSE has all responses on one stream: each waits for the request with its id."""
    talk = Conversation()
    listening = talk.stream(in_session(get("/mcp")))
    first = talk.request(in_session(with_token(rpc("tools/list", {}, number=1), "t")))
    talk.response(first, ACCEPTED)
    talk.event(listening, progress("t"))
    talk.event(listening, answer(with_id(CALL, 1), {"tools": []}))
    again = talk.request(in_session(rpc("tools/list", {}, number=1)))
    talk.response(again, ACCEPTED)
    talk.event(listening, answer(with_id(CALL, 1), {"tools": []}))
    talk.event(listening, answer(with_id(CALL, 7), {"tools": []}))
    talk.end(listening, End.OPEN)

    wait = waits(talk)[listening]

    assert causes(wait) == [{first}, {first}, {again}, set()]
    assert [gate.responds for gate in wait.pieces] == [False, True, True, True]


def test_end_of_a_listening_stream_waits_for_the_delete() -> None:
    """A stream lives until what ended it has happened."""
    talk = Conversation()
    listening = talk.stream(in_session(get("/mcp")))
    talk.event(listening, notification("ready"))
    gone = talk.request(in_session(Request("DELETE", "/mcp", (), b"")))
    talk.response(gone, Answer((), (), 200))
    talk.end(listening)

    wait = waits(talk)[listening]

    assert causes(wait) == [set()]
    assert causes(wait, wait.end) == [{gone}]


def test_call_does_not_wait_for_what_other_calls_were_asked() -> None:
    """Only the call itself and listening streams wait for the answer to its question."""
    talk = Conversation()
    listening = talk.stream(in_session(get("/mcp")))
    asked, other = (talk.stream(in_session(tool(name))) for name in ("asked", "other"))
    talk.event(asked, rpc("elicitation/create", {"message": "?"}, number="p1"))
    said = talk.request(in_session(answer(rpc("x", number="p1"), {"action": "accept"})))
    talk.response(said, ACCEPTED)
    for number in (asked, other):
        talk.event(number, answer(CALL, text("done")))
        talk.end(number)
    talk.event(listening, notification("changed"))
    talk.end(listening, End.OPEN)

    recorded = waits(talk)

    assert causes(recorded[asked]) == [set(), {said}]
    assert causes(recorded[other]) == []
    assert causes(recorded[listening]) == [{asked, other, said}]


def test_answers_to_what_was_asked_during_a_call_come_in_the_order_of_their_arrival() -> None:
    """A call that asked nothing has none."""
    talk = Conversation()
    asked, other = (talk.stream(in_session(tool(name))) for name in ("asked", "other"))
    for identity in ("p1", "p2"):
        question = rpc("elicitation/create", {"message": identity}, number=identity)
        talk.event(asked, question)
        talk.response(talk.request(in_session(answer(question, {"action": "accept"}))), ACCEPTED)
    for number in (asked, other):
        talk.event(number, answer(CALL, text("done")))
        talk.end(number)
    recorded = playables_of(talk.cassette())
    timelines = Timelines(recorded)

    answers = {
        each.exchange.number: [late.exchange.number for late in timelines.answers_during(each)]
        for each in recorded
    }

    assert answers[asked] == [other + 1, other + 2]
    assert answers[other] == []


def test_exchange_without_a_number_waits_for_nothing() -> None:
    """Without the recording block nobody knows what came first."""
    talk = conversation((in_session(notification("x")), ACCEPTED), (in_session(CALL), text("done")))
    whole = talk.cassette()
    bare = whole.model_copy(
        update={"recording": whole.recording.model_copy(update={"exchanges": []})}
    )
    playables = playables_of(bare)

    assert [Timelines(playables).waits_of(each).pieces for each in playables] == [(), ()]


def test_request_is_over_with_its_response_wherever_that_comes() -> None:
    """One that was only accepted is over with the response on the stream, or never."""
    talk = Conversation()
    listening = talk.stream(in_session(get("/mcp")))
    told = talk.request(in_session(notification("notifications/x")))
    talk.response(told, ACCEPTED)
    calls = [talk.request(in_session(with_id(CALL, number))) for number in (1, 2)]
    for number in calls:
        talk.response(number, ACCEPTED)
    plain = talk.request(in_session(with_id(tool("plain"), 9)))
    talk.event(listening, answer(with_id(CALL, 1), text("done")))
    talk.response(plain, text("x"))
    talk.end(listening, End.OPEN)
    recorded = {each.exchange.number: each for each in playables_of(talk.cassette())}

    wait = Timelines(list(recorded.values())).waits_of(recorded[listening])

    overs = [wait.over(recorded[number]) for number in (told, *calls, plain)]
    assert overs == [told, plain, None, plain]


def test_question_on_a_listening_stream_waits_for_the_call_that_is_asked() -> None:
    """Who hasn't made the call is not asked."""
    talk = Conversation()
    listening = talk.stream(in_session(get("/mcp")))
    call = talk.request(in_session(CALL))
    question = rpc("elicitation/create", {"message": "?"}, number="p1")
    talk.event(listening, question)
    talk.response(talk.request(in_session(answer(question, {"action": "accept"}))), ACCEPTED)
    talk.response(call, text("done"))
    talk.end(listening, End.OPEN)

    (gate,) = waits(talk)[listening].pieces

    assert gate.request is not None
    assert (gate.request.exchange.number, gate.responds) == (call, False)
