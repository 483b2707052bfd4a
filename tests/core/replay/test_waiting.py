from __future__ import annotations

from collections import deque

import pytest
from builders import (
    ACCEPTED,
    STREAM_HEADERS,
    Answer,
    Conversation,
    answer,
    delivery_of,
    get,
    loaded,
    notification,
    post,
    rpc,
    sent_now,
    sse,
    tool,
    with_id,
)
from builders import within as in_session
from messages import text
from pushing import PushingSession, cassette_with

from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.player import Play, Player
from mrtr_cassette.core.replay.reply import Delivery, Ending, Refusal, Sending
from mrtr_cassette.core.secrets.sealed import sealed_hash
from mrtr_cassette.core.wire.http import End, Request

CALL = tool("work")
PUSHED = rpc("elicitation/create", {"message": "Really?"}, number="p1")
YES = answer(PUSHED, {"action": "accept"})
NO = answer(PUSHED, {"action": "decline"})
DONE = answer(CALL, text("done"))


def within(request: bytes | Request) -> Request:
    """Return a request in the one session."""
    return in_session("mrtr-session:1", request)


LISTEN = within(get("/mcp", ("Accept", "text/event-stream")))


def sent(delivery: Delivery) -> tuple[bytes, bool]:
    """Return what is sent next, which must be due, and whether it is the last."""
    due = delivery.next()
    assert isinstance(due, Sending)
    return due.raw, due.is_last


def asked_in_the_calls_stream() -> Player:
    """Return a replay of a call in whose stream the server asked."""
    talk = Conversation()
    call = talk.stream(within(CALL))
    talk.event(call, PUSHED)
    talk.response(talk.request(within(YES)), ACCEPTED)
    talk.event(call, DONE)
    talk.end(call)
    return Player(loaded(talk.cassette()))


def asked_on_a_listening_stream() -> Player:
    """Return a replay of a call with a plain response, and a question on the listening stream."""
    talk = Conversation()
    listening = talk.stream(LISTEN)
    call = talk.request(within(CALL))
    talk.event(listening, PUSHED)
    talk.response(talk.request(within(YES)), ACCEPTED)
    talk.response(call, DONE)
    talk.end(listening, End.OPEN)
    return Player(loaded(talk.cassette()))


def answered_on_a_listening_stream() -> Player:
    """Return a replay of HTTP+SSE: whatever the server says stands on one stream."""
    talk = Conversation()
    listening = talk.stream(LISTEN)
    talk.response(talk.request(within(CALL)), ACCEPTED)
    talk.event(listening, PUSHED)
    talk.response(talk.request(within(YES)), ACCEPTED)
    talk.event(listening, DONE)
    talk.end(listening, End.OPEN)
    return Player(loaded(talk.cassette()))


def test_result_waits_for_the_answer_in_the_stream() -> None:
    """What follows a question is sent when it was answered as recorded, with the caller's id."""
    player = asked_in_the_calls_stream()
    delivery = delivery_of(player, within(with_id(CALL, "mine")))

    assert sent(delivery) == (sse(PUSHED), False)
    assert delivery.next() is None
    delivery_of(player, within(YES))
    assert sent(delivery) == (sse(with_id(DONE, "mine")), True)


def test_wrong_answer_refuses_the_call_that_waits() -> None:
    """The call gets the miss in the place of its result, and nothing after it."""
    for player in (asked_in_the_calls_stream(), asked_on_a_listening_stream()):
        listening = player.request_received(LISTEN)
        delivery = delivery_of(player, within(with_id(CALL, "mine")))
        if isinstance(listening, Play):
            assert listening.delivery is not None
            assert sse(PUSHED) == sent_now(listening)
        else:
            assert sent_now(Play(LISTEN, delivery.entry, delivery)) == sse(PUSHED)
        assert delivery.next() is None

        miss = player.request_received(within(NO))

        assert isinstance(miss, Miss)
        assert (miss.reason, miss.is_refused) == (Reason.ANSWERS_DIFFER, True)
        refusal = delivery.next()
        assert isinstance(refusal, Refusal)
        assert (refusal.id, refusal.is_last) == (b'"mine"', True)
        assert refusal.miss.reason is Reason.ANSWERS_DIFFER
        assert delivery.next() == Ending(End.COMPLETE)


def test_wrong_answer_refuses_a_call_whose_response_comes_on_a_listening_stream() -> None:
    """The error stands where the response stood, and the stream goes on."""
    player = answered_on_a_listening_stream()
    listening = delivery_of(player, LISTEN)
    assert listening.next() is None
    delivery_of(player, within(with_id(CALL, 7)))
    assert sent(listening) == (sse(PUSHED), False)
    assert listening.next() is None

    player.request_received(within(NO))

    refusal = listening.next()
    assert isinstance(refusal, Refusal)
    assert (refusal.id, refusal.is_last) == (b"7", False)
    assert listening.next() == Ending(End.OPEN)


def test_wrong_answer_to_nobodys_question_refuses_nothing() -> None:
    """Where no call was pending, the answer is a miss and nothing else."""
    talk = Conversation()
    listening = talk.stream(LISTEN)
    talk.event(listening, PUSHED)
    talk.response(talk.request(within(YES)), ACCEPTED)
    talk.end(listening, End.OPEN)
    player = Player(loaded(talk.cassette()))
    delivery_of(player, LISTEN)

    miss = player.request_received(within(NO))

    assert isinstance(miss, Miss)
    assert not miss.is_refused


def test_refused_call_holds_up_nothing_with_the_answers_that_it_lacks() -> None:
    """What a client would have been asked after its wrong answer is waited for by nobody."""
    session = PushingSession()
    call = session.open(within(CALL))
    posts, turns = [], []
    for number in ("p1", "p2"):
        session.say(call, with_id(PUSHED, number))
        posts.append(session.post(within(with_id(YES, number))))
    session.end(call, DONE)
    other = session.post(within(with_id(tool("other"), 8)), text("other"))
    for piece, answering in enumerate(posts):
        turns.append(session.turn({"elicitation-1": (call, piece)}, {"elicitation-1": answering}))
    recorded = [session.exchange(number) for number in (call, other)]
    player = Player(cassette_with(([recorded[0]], turns), ([recorded[1]], ())))
    mine = (("Mcp-Session-Id", sealed_hash("mrtr-session:1")),)
    calling = delivery_of(player, post(CALL, *mine))
    assert isinstance(calling.next(), Sending)
    player.request_received(post(NO, *mine))
    assert isinstance(calling.next(), Refusal)

    assert isinstance(delivery_of(player, post(tool("other"), *mine)).next(), Sending)


def test_answers_to_what_was_not_asked_are_waited_for_by_nobody() -> None:
    """A client that makes only the second of two calls is not stuck at its equal answer."""
    session = PushingSession()
    turns, exchanges = [], []
    for name in ("first", "second"):
        call = session.open(within(tool(name)))
        session.say(call, PUSHED)
        posts = session.post(within(YES))
        session.end(call, answer(tool(name), text(name)))
        turns.append([session.turn({"elicitation-1": (call, 0)}, {"elicitation-1": posts})])
        exchanges.append([session.exchange(call)])
    player = Player(cassette_with(*zip(exchanges, turns, strict=True)))
    mine = (("Mcp-Session-Id", sealed_hash("mrtr-session:1")),)
    second = delivery_of(player, post(tool("second"), *mine))
    assert isinstance(second.next(), Sending)
    assert second.next() is None

    answered = player.request_received(post(YES, *mine))

    assert isinstance(answered, Play)
    assert (answered.entry.interaction, answered.entry.turn) == (2, 1)
    assert isinstance(second.next(), Sending)


TOLD = notification("notifications/roots/list_changed")
OTHER = tool("other")


def test_notification_that_is_passed_over_is_waited_for_by_nobody() -> None:
    """A client that sends what it sent later while recorded has left the notification out."""
    talk = Conversation()
    listening = talk.stream(LISTEN)
    talk.response(talk.request(within(TOLD)), ACCEPTED)
    talk.event(listening, PUSHED)
    talk.response(talk.request(within(CALL)), DONE)
    talk.response(talk.request(within(OTHER)), answer(OTHER, text("x")))
    talk.end(listening, End.OPEN)
    player = Player(loaded(talk.cassette()))
    stream = delivery_of(player, LISTEN)
    assert stream.next() is None
    assert stream.missing_notification is not None

    call = delivery_of(player, within(CALL))

    assert isinstance(stream.next(), Sending)
    assert isinstance(call.next(), Sending)
    assert isinstance(delivery_of(player, within(OTHER)).next(), Sending)


def test_notification_that_may_still_come_is_waited_for() -> None:
    """A call that was sent before the notification had been taken says nothing about it."""
    talk = Conversation()
    told = talk.request(within(TOLD))
    call = talk.stream(within(CALL))
    talk.response(told, ACCEPTED)
    talk.event(call, DONE)
    talk.end(call)
    player = Player(loaded(talk.cassette()))

    calling = delivery_of(player, within(CALL))

    assert calling.next() is None
    missing = calling.missing_notification
    assert missing is not None
    assert missing.kind is Kind.NOTIFICATION
    calling.session.waive(missing)
    assert calling.missing_notification is None
    assert sent(calling) == (sse(DONE), True)


def two_calls_on_one_stream() -> Player:
    """Return a replay of HTTP+SSE: a call during which the server asks, then another call."""
    session = PushingSession()
    stream = session.open(LISTEN)
    first = session.post(within(with_id(CALL, 1)))
    session.say(stream, PUSHED)
    posted = session.post(within(YES))
    session.say(stream, with_id(DONE, 1))
    second = session.post(within(with_id(OTHER, 2)))
    session.say(stream, with_id(answer(OTHER, text("x")), 2))
    session.end(stream, how=End.OPEN)
    turn = session.turn({"elicitation-1": (stream, 0)}, {"elicitation-1": posted})
    return Player(
        cassette_with(
            ([session.exchange(stream)], ()),
            ([session.exchange(first)], [turn]),
            ([session.exchange(second)], ()),
        )
    )


def mine(request: bytes | Request) -> Request:
    """Return a request in the session as a replay of exchanges that are no file has it."""
    headers = (("Mcp-Session-Id", sealed_hash("mrtr-session:1")),)
    if isinstance(request, bytes):
        return post(request, *headers)
    return Request(request.method, request.target, headers, request.body)


def test_call_that_is_left_out_holds_up_no_other_one_on_the_same_stream() -> None:
    """Neither its question nor its response is said to a client that has not made it."""
    player = two_calls_on_one_stream()
    stream = delivery_of(player, mine(get("/mcp")))
    assert stream.next() is None

    delivery_of(player, mine(with_id(OTHER, "b")))

    assert sent(stream) == (sse(with_id(answer(OTHER, text("x")), "b")), False)
    assert stream.next() is None


def test_call_that_comes_later_than_it_was_recorded_is_asked_and_answered() -> None:
    """What was set aside waits for its call, and the result for the answer, as ever."""
    player = two_calls_on_one_stream()
    stream = delivery_of(player, mine(get("/mcp")))
    delivery_of(player, mine(with_id(OTHER, "b")))
    assert sent(stream) == (sse(with_id(answer(OTHER, text("x")), "b")), False)

    delivery_of(player, mine(with_id(CALL, "a")))

    assert sent(stream) == (sse(PUSHED), False)
    assert stream.next() is None
    delivery_of(player, mine(YES))
    assert sent(stream) == (sse(with_id(DONE, "a")), False)
    assert stream.next() == Ending(End.OPEN)


def test_response_of_one_write_is_known() -> None:
    """A stream is sent part by part, and what broke off or goes on is no whole response."""
    whole = Answer((DONE,), (("Content-Type", "application/json"),))
    plays = []
    for response in (whole, whole._replace(end=End.BROKEN), Answer((sse(DONE),), STREAM_HEADERS)):
        talk = Conversation()
        talk.response(talk.request(within(CALL)), response)
        plays.append(delivery_of(Player(loaded(talk.cassette())), within(CALL)))

    assert [each.is_whole for each in plays] == [True, False, False]
    assert plays[0].headers == (("Content-Type", "application/json"),)


def test_what_was_not_recorded_comes_first_on_a_listening_stream() -> None:
    """It waits for nothing, and the stream stays open for more of it."""
    stream = delivery_of(answered_on_a_listening_stream(), LISTEN)
    stream.session.unrecorded = deque([b"data: {}\n\n"])

    assert sent(stream) == (b"data: {}\n\n", False)
    assert stream.next() is None
    assert stream.missing_notification is None


# What waits for what


def replay_of(talk: Conversation) -> Player:
    """Return a replay of a recording."""
    return Player(loaded(talk.cassette()))


def alone(talk: Conversation, request: bytes | Request) -> bytes:
    """Return what a client gets at once that has sent nothing else."""
    request = post(request) if isinstance(request, bytes) else request
    decision = replay_of(talk).request_received(request)
    assert isinstance(decision, Play), decision
    return sent_now(decision)


SUBSCRIBE = rpc("subscriptions/listen", {}, number="l")


@pytest.mark.parametrize("listen", [post(SUBSCRIBE), get("/mcp")], ids=["listen", "GET"])
def test_listening_stream_waits_for_the_calls_that_came_before(listen: Request) -> None:
    """An event comes no earlier than the calls that may have caused it; reading causes nothing."""
    talk = Conversation()
    talk.response(talk.request(tool("before")), text("x"))
    listening = talk.stream(listen)
    talk.event(listening, notification("ready"))
    quiet = (rpc("tools/list"), notification("notifications/x"))
    talk.response(talk.request(quiet[0]), text("x"))
    talk.response(talk.request(quiet[1]), ACCEPTED)
    talk.response(talk.request(CALL), text("x"))
    talk.event(listening, notification("changed"))
    talk.response(talk.request(tool("late")), text("x"))
    talk.end(listening, End.OPEN)
    player = replay_of(talk)

    stream = delivery_of(player, listen)
    assert sent(stream) == (sse(notification("ready")), False)
    for request in quiet:
        delivery_of(player, post(request))
        assert stream.next() is None
    delivery_of(player, post(CALL))
    assert sent(stream) == (sse(notification("changed")), False)


def test_calls_do_not_wait_for_each_other() -> None:
    """Neither for another call, nor for another session, nor for another call's question."""
    talk = Conversation()
    talk.response(talk.request(within(notification("notifications/x"))), ACCEPTED)
    one, two = talk.stream(CALL), talk.stream(OTHER)
    for number, request in ((two, OTHER), (one, CALL)):
        talk.event(number, answer(request, text("x")))
        talk.end(number)
    assert alone(talk, CALL) == sse(answer(CALL, text("x")))
    assert alone(talk, OTHER) == sse(answer(OTHER, text("x")))

    talk = Conversation()
    asked, other = talk.stream(within(CALL)), talk.stream(within(OTHER))
    talk.event(asked, PUSHED)
    talk.response(talk.request(within(YES)), ACCEPTED)
    for number in (asked, other):
        talk.event(number, DONE)
        talk.end(number)
    assert alone(talk, within(CALL)) == sse(PUSHED)
    assert alone(talk, within(OTHER)) == sse(DONE)


def test_acknowledgement_waits_for_nothing() -> None:
    """Some clients post an answer only when they know that the message before has been taken.

    So it is with a call that is only accepted, whoever left its response open meanwhile.
    """
    talk = Conversation()
    listening = talk.stream(LISTEN)
    call = talk.request(within(CALL))
    talk.event(listening, PUSHED)
    last = within(with_id(YES, "p2"))
    numbers = [talk.request(each) for each in (within(YES), last, within(TOLD))]
    for number in (*numbers, call):
        talk.response(number, Answer((b"taken",), (), 202))
    talk.event(listening, DONE)
    talk.end(listening, End.OPEN)

    for request in (within(CALL), within(TOLD)):
        assert alone(talk, request) == b"taken"


def test_without_the_recording_block_nothing_waits() -> None:
    """Nobody knows what came first."""
    talk = Conversation()
    talk.response(talk.request(within(TOLD)), ACCEPTED)
    talk.response(talk.request(within(CALL)), text("x"))
    whole = talk.cassette()
    recording = whole.recording.model_copy(update={"exchanges": []})
    player = Player(loaded(whole.model_copy(update={"recording": recording})))

    assert isinstance(delivery_of(player, within(CALL)).next(), Sending)


def test_listening_stream_lives_until_what_ended_it() -> None:
    """A session's DELETE ended it, so its end waits for that."""
    talk = Conversation()
    listening = talk.stream(LISTEN)
    gone = within(Request("DELETE", "/mcp", (), b""))
    talk.response(talk.request(gone), Answer((), (), 200))
    talk.end(listening)
    player = replay_of(talk)

    stream = delivery_of(player, LISTEN)
    assert stream.next() is None
    delivery_of(player, gone)
    assert stream.next() == Ending(End.COMPLETE)
