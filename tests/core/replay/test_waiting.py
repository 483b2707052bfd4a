from __future__ import annotations

from collections import deque

import pytest
from builders import (
    ACCEPTED,
    INITIALIZE,
    Answer,
    Conversation,
    answer,
    delivery_of,
    get,
    hit,
    loaded,
    missed,
    notification,
    open_session,
    opened,
    play,
    post,
    progress,
    rpc,
    sse,
    told,
    tool,
    with_id,
    with_token,
)
from builders import within as in_session
from messages import Json, text

from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.replay.deliveries import Delivery, Sending
from mrtr_cassette.core.replay.diagnosis import Reason
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import End, Request

CALL = tool("work")
OTHER = tool("other")
PUSHED = rpc("elicitation/create", {"message": "Really?"}, number="p1")
YES = answer(PUSHED, {"action": "accept"})
NO = answer(PUSHED, {"action": "decline"})
DONE = answer(CALL, text("done"))


def within(request: bytes | Request) -> Request:
    """Return a request in the one session."""
    return in_session("mrtr-session:1", request)


LISTEN = within(get("/mcp", ("Accept", "text/event-stream")))


def replay_of(talk: Conversation) -> Player:
    """Return a replay of a recording."""
    return Player(loaded(talk.cassette()))


def asked_on(where: str) -> tuple[Player, Delivery]:
    """Return a replay in which a call waits for the answer to a question, and what responds to it.

    Both is the call's own stream, or a listening one asks, which may have all responses (HTTP+SSE).
    """
    talk = Conversation()
    listening = talk.stream(LISTEN)
    call = talk.stream(within(CALL)) if where == "call" else talk.request(within(CALL))
    if where == "all":
        talk.response(call, ACCEPTED)

    talk.event(call if where == "call" else listening, PUSHED)
    talk.exchange(within(YES), ACCEPTED)
    if where == "listening":
        talk.response(call, DONE)
    elif where == "all":
        talk.event(listening, DONE)
    else:
        talk.event(call, DONE)
        talk.end(call)

    talk.end(listening, End.OPEN)
    player = replay_of(talk)
    stream = delivery_of(player, LISTEN)
    assert stream.take_next() is None or where == "call"
    calling = delivery_of(player, within(with_id(CALL, "mine")))
    assert told(calling if where == "call" else stream)[0] == sse(PUSHED)
    responds = stream if where == "all" else calling
    assert told(responds) == []

    return player, responds


MINE = with_id(DONE, "mine")


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("call", [sse(MINE), End.COMPLETE]),
        ("listening", [MINE, End.COMPLETE]),
        ("all", [sse(MINE), End.OPEN]),
    ],
)
def test_result_waits_for_the_answer(where: str, said: list[bytes | End]) -> None:
    """What follows a question is sent when it was answered as recorded, with the caller's id.

    A wrong answer refuses the call: the miss stands in the place of the result, nothing after it.
    """
    player, responds = asked_on(where)
    delivery_of(player, within(YES))

    assert told(responds) == said

    player, responds = asked_on(where)
    miss = missed(player, within(NO))

    assert (miss.reason, miss.is_refused) == (Reason.ANSWERS_DIFFER, True)
    assert told(responds) == [(b'"mine"', Reason.ANSWERS_DIFFER), said[1]]


@pytest.mark.parametrize("given", [YES, NO])
def test_result_waits_for_the_answer_without_a_session(given: bytes) -> None:
    """A server may ask in the stream of a call, or on a pipe, whose client opened no session."""
    talk = Conversation()
    call = talk.stream(CALL)
    talk.event(call, PUSHED)
    talk.exchange(YES, ACCEPTED)
    talk.event(call, DONE)
    talk.end(call)
    player = replay_of(talk)

    calling = delivery_of(player, CALL)

    assert told(calling) == [sse(PUSHED)]

    player.request_received(post(given))
    result = sse(DONE) if given is YES else (b"1", Reason.ANSWERS_DIFFER)

    assert told(calling) == [result, End.COMPLETE]


def test_wrong_answer_to_nobodys_question_refuses_nothing() -> None:
    """Where no call was pending, the answer is a miss and nothing else."""
    talk = Conversation()
    listening = talk.stream(LISTEN)
    talk.event(listening, PUSHED)
    talk.exchange(within(YES), ACCEPTED)
    talk.end(listening, End.OPEN)
    player = replay_of(talk)
    delivery_of(player, LISTEN)

    assert not missed(player, within(NO)).is_refused


def asked_twice() -> Player:
    """Return a replay of a call during which the server asked twice, and of another call."""
    talk = Conversation()
    call = talk.stream(within(CALL))
    for number in ("p1", "p2"):
        talk.event(call, with_id(PUSHED, number))
        talk.exchange(within(with_id(YES, number)), ACCEPTED)

    talk.event(call, DONE)
    talk.end(call)
    talk.exchange(within(with_id(OTHER, 8)), text("other"))

    return replay_of(talk)


def test_wrong_answer_to_what_was_not_asked_refuses_nobody() -> None:
    """Before the call nobody waits for an answer, under whatever id."""
    for number in ("p1", "p9"):
        assert not missed(asked_twice(), within(with_id(NO, number))).is_refused


@pytest.mark.parametrize("wrong", [NO, with_id(YES, "p9")])
def test_refused_call_holds_up_nothing_with_the_answers_that_it_lacks(
    wrong: bytes,
) -> None:
    """What a client would have been asked after its wrong answer is waited for by nobody.

    An answer under an id that no question had is a wrong one to the oldest question.
    """
    player = asked_twice()
    calling = delivery_of(player, within(CALL))

    assert told(calling) == [sse(PUSHED)]

    miss = missed(player, within(wrong))

    assert miss.is_refused
    assert told(calling) == [(b"1", miss.reason), End.COMPLETE]
    assert told(delivery_of(player, within(OTHER))) == [
        answer(OTHER, text("other")),
        End.COMPLETE,
    ]


def test_answers_to_what_was_not_asked_are_waited_for_by_nobody() -> None:
    """A client that makes only the second of two calls is not stuck at its equal answer."""
    talk = Conversation()
    for name in ("first", "second"):
        call = talk.stream(within(tool(name)))
        talk.event(call, PUSHED)
        talk.exchange(within(YES), ACCEPTED)
        talk.event(call, answer(tool(name), text(name)))
        talk.end(call)

    player = replay_of(talk)
    second = delivery_of(player, within(tool("second")))

    assert told(second) == [sse(PUSHED)]

    answered = hit(player, within(YES)).entry

    assert (answered.interaction, answered.turn) == (2, 1)
    assert told(second) == [sse(answer(tool("second"), text("second"))), End.COMPLETE]


TOLD = notification("notifications/roots/list_changed")


def test_notification_that_is_passed_over_is_waited_for_by_nobody() -> None:
    """A client that sends what it sent later while recorded has left the notification out."""
    talk = Conversation()
    listening = talk.stream(LISTEN)
    talk.exchange(within(TOLD), ACCEPTED)
    talk.event(listening, PUSHED)
    talk.exchange(within(CALL), DONE)
    talk.exchange(within(OTHER), answer(OTHER, text("x")))
    talk.end(listening, End.OPEN)
    player = replay_of(talk)
    stream = delivery_of(player, LISTEN)

    assert told(stream) == []
    assert stream.skippable_request is not None

    call = delivery_of(player, within(CALL))

    assert told(stream) == [sse(PUSHED), End.OPEN]
    assert told(call) == [DONE, End.COMPLETE]
    assert told(delivery_of(player, within(OTHER))) == [
        answer(OTHER, text("x")),
        End.COMPLETE,
    ]


def test_notification_that_may_still_come_is_waited_for() -> None:
    """A call that was sent before the notification had been taken says nothing about it."""
    talk = Conversation()
    told = talk.request(within(TOLD))
    call = talk.stream(within(CALL))
    talk.response(told, ACCEPTED)
    talk.event(call, DONE)
    talk.end(call)
    player = replay_of(talk)

    calling = delivery_of(player, within(CALL))

    assert calling.take_next() is None

    missing = calling.skippable_request

    assert missing is not None
    assert missing.kind is Kind.NOTIFICATION

    calling.session.waive_request(missing)

    assert calling.skippable_request is None

    last = calling.take_next()

    assert isinstance(last, Sending)
    assert (last.raw, last.is_last) == (sse(DONE), True)


def test_what_came_before_a_call_has_passed_over_nothing_for_it() -> None:
    """The client has made the later call first; it may send the notification all the same."""
    talk = Conversation()
    call = talk.stream(within(CALL))
    talk.exchange(within(TOLD), ACCEPTED)
    talk.event(call, DONE)
    talk.end(call)
    later = [with_id(tool(name), name) for name in ("second", "third")]
    for request in later:
        talk.exchange(within(request), answer(request, text("x")))

    player = replay_of(talk)
    delivery_of(player, within(later[1]))
    calling = delivery_of(player, within(CALL))

    assert told(calling) == []

    delivery_of(player, within(later[0]))

    assert told(calling) == [sse(DONE), End.COMPLETE]


STOPPED = answer(CALL, text("stopped"))


def cancellation(identity: Json, **params: str) -> bytes:
    """Return a notification that cancels a call."""
    return notification("notifications/cancelled", requestId=identity, **params)


def cancelled_call(where: str = "call") -> Player:
    """Return a replay of a call that its client cancelled, and of another one after it.

    All responses may come on one listening stream (HTTP+SSE).
    """
    talk = Conversation()
    listening = talk.stream(LISTEN)
    call = talk.stream(within(CALL)) if where == "call" else talk.request(within(CALL))
    if where == "all":
        talk.response(call, ACCEPTED)

    talk.exchange(within(cancellation(1, reason="timeout")), ACCEPTED)
    talk.event(call if where == "call" else listening, STOPPED)
    if where == "call":
        talk.end(call)

    other = with_id(OTHER, 2)
    second = talk.request(within(other))
    if where == "call":
        talk.response(second, answer(other, text("x")))
    else:
        talk.response(second, ACCEPTED)
        talk.event(listening, answer(other, text("x")))

    talk.end(listening, End.OPEN)
    return replay_of(talk)


@pytest.mark.parametrize("is_other_first", [False, True])
def test_response_after_a_cancellation_is_for_a_client_that_cancels(
    *, is_other_first: bool
) -> None:
    """Nothing else stands for it: neither a later call nor silence, nor another cancellation."""
    player = cancelled_call()
    mine = within(with_id(CALL, "mine"))
    others = within(with_id(OTHER, "other"))
    if is_other_first:
        said = with_id(answer(OTHER, text("x")), "other")

        assert told(delivery_of(player, others)) == [said, End.COMPLETE]

    play = hit(player, mine)
    calling = play.delivery
    assert calling is not None
    if not is_other_first:
        delivery_of(player, others)

    player.request_received(within(cancellation("other", reason="timeout")))

    assert (told(calling), calling.skippable_request) == ([], None)

    player.request_received(within(cancellation("mine", reason="closed")))

    assert told(calling) == [sse(with_id(STOPPED, "mine")), End.COMPLETE]
    assert player.count_uncancelled_call_without_response(play) is None


@pytest.mark.parametrize("where", ["call", "all"])
def test_call_whose_client_never_cancels_is_refused(where: str) -> None:
    """On the stream of all responses it holds up no other call until then."""
    player = cancelled_call(where)
    stream = delivery_of(player, LISTEN)
    play = hit(player, within(with_id(CALL, "mine")))
    calling = play.delivery
    assert calling is not None
    responds = stream if where == "all" else calling

    assert [step for step in told(responds) if isinstance(step, bytes)] == []

    other = answer(OTHER, text("x"))
    concurrent = delivery_of(player, within(with_id(OTHER, "b")))
    responds_to_other = stream if where == "all" else concurrent
    said = told(responds_to_other)[0]

    assert with_id(other, "b") in said

    miss = player.count_uncancelled_call_without_response(play)
    assert miss is not None
    calling.refuse_call(miss)

    assert miss.reason is Reason.NO_RESPONSE
    assert told(responds)[0] == (b'"mine"', Reason.NO_RESPONSE)


def test_refused_call_holds_up_nothing_with_its_cancellation() -> None:
    """What followed the cancellation goes on as soon as the call has its miss."""
    talk = Conversation()
    call = talk.stream(within(CALL))
    talk.exchange(within(cancellation(1)), ACCEPTED)
    talk.event(call, STOPPED)
    talk.end(call)
    end = within(Request("DELETE", "/mcp", (), b""))
    talk.exchange(end, Answer((b"bye",)))
    player = replay_of(talk)
    play = hit(player, within(CALL))
    ending = delivery_of(player, end)

    assert told(ending) == []

    miss = player.count_uncancelled_call_without_response(play)
    assert miss is not None
    assert play.delivery is not None
    play.delivery.refuse_call(miss)

    assert told(ending) == [b"bye", End.COMPLETE]


def test_id_of_a_cancelled_call_may_be_used_again() -> None:
    """The call that has it next is another one, and is not cancelled."""
    talk = Conversation()
    for name in ("first", "second"):
        call = talk.stream(within(tool(name)))
        talk.exchange(within(cancellation(1)), ACCEPTED)
        talk.event(call, answer(tool(name), text(name)))
        talk.end(call)

    player = replay_of(talk)
    for name in ("first", "second"):
        calling = delivery_of(player, within(tool(name)))

        assert told(calling) == []

        delivery_of(player, within(cancellation(1)))
        result = answer(tool(name), text(name))

        assert told(calling) == [sse(result), End.COMPLETE]


def test_call_that_is_left_out_holds_up_no_other_one_on_the_same_stream() -> None:
    """On HTTP+SSE a call's question and response are set aside until its client has made it."""
    talk = Conversation()
    listening = talk.stream(LISTEN)
    talk.exchange(within(with_id(CALL, 1)), ACCEPTED)
    talk.event(listening, PUSHED)
    talk.exchange(within(YES), ACCEPTED)
    talk.event(listening, with_id(DONE, 1))
    talk.exchange(within(with_id(OTHER, 2)), ACCEPTED)
    talk.event(listening, with_id(answer(OTHER, text("x")), 2))
    talk.end(listening, End.OPEN)
    player = replay_of(talk)
    stream = delivery_of(player, LISTEN)

    assert told(stream) == []

    for request, said in (
        (with_id(OTHER, "b"), [with_id(answer(OTHER, text("x")), "b")]),
        (with_id(CALL, "a"), [PUSHED]),
        (YES, [with_id(DONE, "a")]),
    ):
        delivery_of(player, within(request))
        ended = [End.OPEN] if request == YES else []

        assert told(stream) == [*map(sse, said), *ended]


def test_what_was_not_recorded_comes_first_on_a_listening_stream() -> None:
    """It waits for nothing, and the stream stays open for more of it."""
    _, stream = asked_on("all")
    stream.session.unrecorded_events = deque([b"data: {}\n\n"])

    assert told(stream) == [b"data: {}\n\n"]
    assert stream.skippable_request is None


# What was said before a response, on another stream

PROGRESS = progress(7)
NEWS = notification("notifications/message", data="n")
TRACKED = with_token(CALL, 7)


def spoken_before(*said: bytes, concurrent: bytes | None = None) -> Player:
    """Return a replay of a call before whose response the server says something on another stream.

    Another request may come before that, too.
    """
    talk = Conversation()
    listening = talk.stream(LISTEN)
    call = talk.request(within(TRACKED))
    if concurrent is not None:
        talk.exchange(within(concurrent), answer(concurrent, text("x")))

    for message in said:
        talk.event(listening, message)

    talk.response(call, DONE)
    talk.event(listening, notification("notifications/message", data="later"))
    talk.end(listening, End.OPEN)

    return replay_of(talk)


@pytest.mark.parametrize("said", [[PROGRESS], [NEWS], [PROGRESS, NEWS, PROGRESS]])
def test_response_comes_after_what_came_before_it_on_another_stream(
    said: list[bytes],
) -> None:
    """It waits until that was sent, not for what came later, and for no stream that is not open."""
    player = spoken_before(*said)

    assert told(delivery_of(player, within(TRACKED))) == [DONE, End.COMPLETE]

    player = spoken_before(*said)
    stream = delivery_of(player, LISTEN)

    assert told(stream) == []

    calling = delivery_of(player, within(TRACKED))
    for message in said:
        assert told(calling) == []
        assert calling.streams_due_first

        sent = stream.take_next()

        assert isinstance(sent, Sending)
        assert sent.raw == sse(message)

    assert told(calling) == [DONE, End.COMPLETE]

    player = spoken_before(*said)
    stream = delivery_of(player, LISTEN)
    calling = delivery_of(player, within(TRACKED))

    assert told(calling) == []

    stream.is_finished = True

    assert told(calling) == [DONE, End.COMPLETE]


def test_response_does_not_wait_for_what_other_requests_cause() -> None:
    """A client that sends the other request only after this response would wait for ever."""
    player = spoken_before(PROGRESS, NEWS, concurrent=OTHER)
    stream = delivery_of(player, LISTEN)

    assert told(delivery_of(player, within(TRACKED))) == [DONE, End.COMPLETE]
    assert told(stream) == []

    concurrent = delivery_of(player, within(OTHER))

    assert told(concurrent) == [answer(OTHER, text("x")), End.COMPLETE]
    assert told(stream) == [sse(PROGRESS)]

    concurrent.note_finished()

    assert told(stream)[:1] == [sse(NEWS)]


# What waits for what


def alone(talk: Conversation, request: bytes | Request) -> bytes:
    """Return what a client gets at once that has sent nothing else."""
    return play(replay_of(talk), request)


SUBSCRIBE = rpc("subscriptions/listen", {}, number="l")


@pytest.mark.parametrize(
    "listen", [post(SUBSCRIBE), get("/mcp")], ids=["listen", "GET"]
)
def test_listening_stream_waits_for_the_calls_that_came_before(listen: Request) -> None:
    """An event comes no earlier than the calls that may have caused it; reading causes nothing."""
    talk = Conversation()
    talk.exchange(tool("before"), text("x"))
    listening = talk.stream(listen)
    talk.event(listening, notification("ready"))
    quiet = (rpc("tools/list"), notification("notifications/x"))
    talk.exchange(quiet[0], text("x"))
    talk.exchange(quiet[1], ACCEPTED)
    talk.exchange(CALL, text("x"))
    talk.event(listening, notification("changed"))
    talk.exchange(tool("late"), text("x"))
    talk.end(listening, End.OPEN)
    player = replay_of(talk)

    stream = delivery_of(player, listen)

    assert told(stream) == [sse(notification("ready"))]

    for request in quiet:
        delivery_of(player, post(request))

        assert told(stream) == []

    delivery_of(player, post(CALL))

    assert told(stream) == [sse(notification("changed")), End.OPEN]


def test_calls_do_not_wait_for_each_other() -> None:
    """Neither for another call, nor for another session, nor for another call's question."""
    talk = Conversation()
    talk.exchange(within(notification("notifications/x")), ACCEPTED)
    first = talk.stream(CALL)
    second = talk.stream(OTHER)
    for number, request in ((second, OTHER), (first, CALL)):
        talk.event(number, answer(request, text("x")))
        talk.end(number)

    assert alone(talk, CALL) == sse(answer(CALL, text("x")))
    assert alone(talk, OTHER) == sse(answer(OTHER, text("x")))

    talk = Conversation()
    asked = talk.stream(within(CALL))
    not_asked = talk.stream(within(OTHER))
    talk.event(asked, PUSHED)
    talk.exchange(within(YES), ACCEPTED)
    for number in (asked, not_asked):
        talk.event(number, DONE)
        talk.end(number)

    assert alone(talk, within(CALL)) == sse(PUSHED)
    assert alone(talk, within(OTHER)) == sse(DONE)


def test_no_session_that_is_known_waits_for_its_handshake() -> None:
    """A client of another run need not open it again; on pipes it may have said all at once."""
    talk = Conversation()
    first = talk.request(within(CALL))
    talk.exchange(within(notification("notifications/initialized")), ACCEPTED)
    talk.response(first, DONE)

    assert told(delivery_of(replay_of(talk), within(CALL))) == [DONE, End.COMPLETE]


def test_acknowledgement_waits_for_nothing() -> None:
    """Some clients post an answer only when they know that the message before has been taken.

    So it is with a call that is only accepted, whoever left its response open meanwhile.
    """
    talk = Conversation()
    listening = talk.stream(LISTEN)
    call = talk.request(within(CALL))
    talk.event(listening, PUSHED)
    last = within(with_id(YES, "p2"))
    first_answer = talk.request(within(YES))
    last_answer = talk.request(last)
    notice = talk.request(within(TOLD))
    for number in (first_answer, last_answer, notice, call):
        talk.response(number, Answer((b"taken",), (), 202))

    talk.event(listening, DONE)
    talk.end(listening, End.OPEN)

    for request in (within(CALL), within(TOLD)):
        assert alone(talk, request) == b"taken"


def test_without_the_recording_block_nothing_waits() -> None:
    """Nobody knows what came first."""
    talk = Conversation()
    talk.exchange(within(TOLD), ACCEPTED)
    talk.exchange(within(CALL), text("x"))
    whole = talk.cassette()
    recording = whole.recording.model_copy(update={"exchanges": []})
    player = Player(loaded(whole.model_copy(update={"recording": recording})))

    assert told(delivery_of(player, within(CALL)))


# Equal calls that were answered otherwise


def declined_and_accepted(*sessions: str, where: str = "call") -> Player:
    """Return a replay of equal calls, each in a session: one accepts, and the next one declines."""
    talk = Conversation()
    begun: dict[str, int] = {}
    for session, given, result in zip(sessions, (YES, NO), (DONE, LEFT), strict=True):
        if session not in begun:
            talk.exchange(INITIALIZE, opened(session))
            begun[session] = talk.stream(in_session(session, LISTENING))

        if where == "call":
            call = talk.stream(in_session(session, CALL))
            talk.event(call, PUSHED)
            talk.exchange(in_session(session, given), ACCEPTED)
            talk.event(call, result)
            talk.end(call)
        else:
            call = talk.request(in_session(session, CALL))
            talk.event(begun[session], PUSHED)
            talk.exchange(in_session(session, given), ACCEPTED)
            talk.response(call, result)

    for listening in begun.values():
        talk.end(listening, End.OPEN)

    return Player(loaded(talk.cassette()), reads=["work"])


LISTENING = get("/mcp", ("Accept", "text/event-stream"))
LEFT = answer(CALL, text("left"))
ONE, TWO = "mrtr-session:1", "mrtr-session:2"


@pytest.mark.parametrize("where", ["call", "listening"])
def test_client_that_declines_first_gets_what_the_later_session_got(where: str) -> None:
    """Which recorded session it is shows at its answer, in the middle of a call."""
    player = declined_and_accepted(ONE, TWO, where=where)
    for given, result in ((NO, LEFT), (YES, DONE)):
        session = open_session(player)
        listening = delivery_of(player, in_session(session, LISTENING))
        calling = delivery_of(player, in_session(session, CALL))
        asking = calling if where == "call" else listening

        assert told(asking)[0] == sse(PUSHED)

        delivery_of(player, in_session(session, given))
        expected = sse(result) if where == "call" else result

        assert told(calling) == [expected, End.COMPLETE]

    assert (player.tally.misses, player.played_part.unplayed_numbers) == ([], [])


def test_client_that_declines_first_gets_what_the_later_call_got() -> None:
    """The first call is still to be played, and is what the next one gets."""
    player = declined_and_accepted(ONE, ONE)
    session = open_session(player)
    for given, result in ((NO, LEFT), (YES, DONE)):
        calling = delivery_of(player, in_session(session, CALL))

        assert told(calling) == [sse(PUSHED)]

        delivery_of(player, in_session(session, given))

        assert told(calling) == [sse(result), End.COMPLETE]

    assert (player.tally.misses, player.played_part.unplayed_numbers) == ([], [2])


def test_answer_to_a_later_question_with_the_same_id_is_a_wrong_one() -> None:
    """A server may ask twice during a call under one id."""
    talk = Conversation()
    call = talk.stream(within(CALL))
    for given in (YES, NO):
        talk.event(call, PUSHED)
        talk.exchange(within(given), ACCEPTED)

    talk.event(call, DONE)
    talk.end(call)
    player = replay_of(talk)
    calling = delivery_of(player, within(CALL))

    assert told(calling) == [sse(PUSHED)]

    miss = missed(player, within(NO))

    assert (miss.reason, miss.is_refused) == (Reason.ANSWERS_DIFFER, True)
    assert told(calling) == [(b"1", Reason.ANSWERS_DIFFER), End.COMPLETE]


def test_answer_to_another_call_on_one_listening_stream_is_a_wrong_one() -> None:
    """That stream has the questions in their recorded order."""
    player = declined_and_accepted(ONE, ONE, where="listening")
    session = open_session(player)
    listening = delivery_of(player, in_session(session, LISTENING))
    calling = delivery_of(player, in_session(session, CALL))

    assert told(listening)[0] == sse(PUSHED)

    miss = missed(player, in_session(session, NO))

    assert (miss.reason, miss.is_refused) == (Reason.ANSWERS_DIFFER, True)
    assert told(calling) == [(b"1", Reason.ANSWERS_DIFFER), End.COMPLETE]


def test_answer_to_a_question_that_was_left_unanswered_is_told_as_that() -> None:
    """It is no answer to another question of its session."""
    talk = Conversation()
    unanswered = with_id(PUSHED, "p2")
    for request, question in ((CALL, PUSHED), (OTHER, unanswered)):
        call = talk.stream(within(request))
        talk.event(call, question)
        if question is PUSHED:
            talk.exchange(within(YES), ACCEPTED)

        talk.event(call, answer(request, text("x")))
        talk.end(call)

    player = replay_of(talk)
    delivery_of(player, within(OTHER))
    miss = missed(player, within(with_id(YES, "p2")))

    assert miss.nearest is not None
    assert (miss.reason, miss.detail, miss.nearest.key.name) == (
        Reason.ANSWERS_DIFFER,
        "the recording has no answer to this question",
        "other",
    )
