from __future__ import annotations

import pytest
from builders import (
    INITIALIZE,
    INITIALIZED,
    JSON_HEADERS,
    STREAM_HEADERS,
    Answer,
    Conversation,
    Step,
    answer,
    changed,
    conversation,
    delivery_of,
    get,
    hit,
    loaded,
    missed,
    notification,
    open_session,
    opened,
    play,
    player_of,
    post,
    progress,
    said,
    sent_now,
    session_steps,
    sse,
    told,
    tool,
    with_token,
    within,
)
from messages import text

from mrtr_cassette.core.replay.diagnosis import Reason
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.report.runs import report_of_miss
from mrtr_cassette.core.wire.http import SESSION_HEADER, End, Request, header_value
from mrtr_cassette.terms import SHELL_TERMS

CALL = tool("work")
LISTEN = get("/mcp", ("Accept", "text/event-stream"))


def replay_of(*script: Step) -> Player:
    """Return a replay of exchanges that followed one another."""
    return Player(loaded(conversation(*script).cassette()))


def last_id(said: bytes) -> str:
    """Return the id with which an event begins."""
    return said.split(b"\n")[0].removeprefix(b"id: ").decode()


def begin(player: Player) -> str:
    """Open a session and say so, and return its id."""
    session = open_session(player)
    play(player, within(session, INITIALIZED))
    return session


ONE = "1" * 32
TWO = "2" * 32


def test_session_that_is_opened_again_has_its_own_id_and_count() -> None:
    """The same program runs as often as one likes against one replay."""
    player = replay_of(*session_steps(ONE, (CALL, text("one")), (CALL, text("two"))))
    ids = []
    for _ in range(3):
        session = begin(player)
        ids.append(session)

        assert [said(play(player, within(session, CALL))) for _ in range(2)] == [
            "one",
            "two",
        ]
        assert missed(player, within(session, CALL)).reason is Reason.ALREADY_PLAYED

    assert ids == ["mrtr-session:1", "mrtr-session:2", "mrtr-session:3"]


def test_sessions_that_were_recorded_play_in_their_order_and_then_again() -> None:
    """Each client gets the recorded session that comes next; a new round begins with the first."""
    player = replay_of(
        *session_steps(ONE, (CALL, text("one"))),
        *session_steps(TWO, (CALL, text("two"))),
    )

    sessions = [begin(player) for _ in range(4)]

    words = [
        said(play(player, within(session, CALL))) for session in reversed(sessions)
    ]

    assert words == ["two", "one", "two", "one"]
    assert len(set(sessions)) == 4


def test_clients_that_got_one_session_share_it_on_replay() -> None:
    """Some servers give every client the same id; then all clients made one history."""
    player = replay_of(
        *session_steps(ONE, (CALL, text("one"))),
        *session_steps(ONE, (CALL, text("two"))),
    )

    rounds = []
    for _ in range(2):
        shared = begin(player)

        assert said(play(player, within(shared, CALL))) == "one"
        assert begin(player) == shared
        assert said(play(player, within(shared, CALL))) == "two"
        assert missed(player, within(shared, CALL)).reason is Reason.ALREADY_PLAYED

        rounds.append(shared)

    assert len(set(rounds)) == 2


def test_clients_that_begin_alike_are_told_apart_by_what_they_do() -> None:
    """Twenty clients at once come in another order, and each has its own session's answers."""
    count = 20
    script: list[Step] = []
    for n in range(count):
        work = (tool("work", n=n), text(f"done {n}"))
        end = (CALL, text(f"end {n}"))
        script += session_steps(f"{n:032}", work, end)

    player = replay_of(*script)

    sessions = [begin(player) for _ in range(count)]

    for n, session in enumerate(reversed(sessions)):
        assert said(play(player, within(session, tool("work", n=n)))) == f"done {n}"
        assert said(play(player, within(session, CALL))) == f"end {n}"

    assert player.played_part.unplayed_numbers == []


def test_client_that_is_told_apart_late_hears_what_its_session_was_told() -> None:
    """Its listening stream goes on with that of the session that it turns out to have."""
    talk = Conversation()
    listening = {}
    for session in (ONE, TWO):
        talk.exchange(INITIALIZE, opened(session))
        listening[session] = talk.stream(within(session, LISTEN))

    for session, name in ((ONE, "subscribe"), (TWO, "other")):
        request = tool(name)
        talk.exchange(within(session, request), answer(request, text(name)))

    changed_ = notification("notifications/resources/updated", uri="r://1")
    talk.event(listening[ONE], changed_)
    for stream_ in listening.values():
        talk.end(stream_, End.OPEN)

    player = Player(loaded(talk.cassette()))
    first, second = open_session(player), open_session(player)
    stream_of_first = delivery_of(player, within(first, LISTEN))
    stream_of_second = delivery_of(player, within(second, LISTEN))

    assert (told(stream_of_first), told(stream_of_second)) == ([], [])

    for session, name in ((second, "subscribe"), (first, "other")):
        calling = delivery_of(player, within(session, tool(name)))
        told(calling)
        calling.note_finished()

    assert told(stream_of_first) == []
    assert told(stream_of_second) == [sse(changed_)]


def test_clients_without_a_session_begin_anew_with_initialize() -> None:
    """A server without session ids is opened again, once all recorded clients have opened it."""
    plain = answer(INITIALIZE, {"serverInfo": {}})
    player = replay_of((INITIALIZE, plain), (CALL, text("done")))
    for _ in range(3):
        play(player, INITIALIZE)

        assert said(play(player, CALL)) == "done"
        assert missed(player, CALL).reason is Reason.ALREADY_PLAYED


def test_client_that_knows_a_recorded_session_needs_not_open_it() -> None:
    """An id from the cassette itself is that of the recorded session."""
    player = replay_of(*session_steps(ONE, (CALL, text("one"))))

    assert said(play(player, within("mrtr-session:1", CALL))) == "one"
    assert (
        missed(player, within("mrtr-session:1", CALL)).reason is Reason.ALREADY_PLAYED
    )


def test_session_that_a_call_is_given_and_nobody_was_recorded_in_is_unknown() -> None:
    """A server may change the id with each response; after the last one nothing is recorded."""
    headers = (*JSON_HEADERS, ("Mcp-Session-Id", TWO))
    changed = Answer((answer(CALL, text("one")),), headers)
    player = replay_of(*session_steps(ONE, (CALL, changed)))
    session = begin(player)
    given = header_value(
        delivery_of(player, within(session, CALL)).headers, SESSION_HEADER
    )

    assert given not in ("", session)
    assert missed(player, within(given, CALL)).reason is Reason.SESSION_UNKNOWN


def test_listening_stream_is_resumed_where_it_was_left() -> None:
    """A client that comes back gets no event twice: after the last one, or after one that it names."""
    events = (
        b"id: a\ndata: " + notification("notifications/x", n=1) + b"\n\n",
        b"id: b\ndata: " + notification("notifications/x", n=2) + b"\n\n",
    )

    talk = Conversation()
    talk.exchange(INITIALIZE, opened(ONE))
    listening = within(ONE, LISTEN)
    talk.exchange(listening, Answer(events, (("Content-Type", "text/event-stream"),)))

    player = Player(loaded(talk.cassette()))
    session = open_session(player)
    mine = within(session, LISTEN)

    first = play(player, mine)

    assert first.count(b"data: ") == 2
    assert play(player, mine) == b""

    named = Request(
        "GET", "/mcp", (*mine.headers, ("Last-Event-ID", last_id(first))), b""
    )
    again = play(player, named)

    assert again.count(b"data: ") == 1
    assert b'"n":2' in again


def test_listening_stream_is_that_of_the_session_that_a_client_turns_out_to_have() -> (
    None
):
    """A client that listens before it does anything of its own hears what its own calls caused."""
    talk = Conversation()
    for number, session in enumerate((ONE, TWO), start=1):
        for request, response in session_steps(session):
            talk.exchange(request, response)

        listening = talk.stream(within(session, LISTEN))
        call = talk.request(within(session, tool("work", n=number)))
        talk.event(listening, notification("notifications/x", n=number))
        talk.response(call, text(f"done {number}"))
        talk.end(listening, End.OPEN)

    player = Player(loaded(talk.cassette()))
    session = begin(player)
    stream = delivery_of(player, within(session, LISTEN))

    assert told(stream) == []

    calling = hit(player, within(session, tool("work", n=2)))

    assert told(stream)[0] == sse(notification("notifications/x", n=2))
    assert said(sent_now(calling)) == "done 2"


# Streams that are resumed


def test_call_is_resumed_by_the_id_of_its_last_event() -> None:
    """A client that lost the stream of a call has the rest on a GET, as often as it asks."""
    events = (
        b"id: e0\ndata: %b\n\n" % progress(1),
        b"id: e1\ndata: %b\n\n" % answer(CALL, text("done")),
    )

    listening = within(ONE, LISTEN)
    player = player_of(
        (INITIALIZE, opened(ONE)),
        (within(ONE, with_token(CALL, 1)), Answer(events, STREAM_HEADERS)),
        (listening, Answer((), STREAM_HEADERS)),
    )

    session = open_session(player)
    hit(player, within(session, LISTEN))
    sent = sent_now(hit(player, within(session, with_token(CALL, 1))))
    first, _, rest = sent.partition(b"\n\n")

    def resumed(event: str) -> list[bytes | End]:
        request = get("/mcp", *LISTEN.headers, ("Last-Event-ID", event))
        return told(delivery_of(player, within(session, request)))

    for _ in range(2):
        assert resumed(last_id(first)) == [rest, End.COMPLETE]

    # Behind the response nothing is left: clients that come back all the same are kept waiting.
    assert resumed(last_id(rest)) == [End.OPEN]

    made_up = within(session, get("/mcp", ("Last-Event-ID", "made-up")))

    assert missed(player, made_up).reason is Reason.STATE_UNKNOWN


def test_refused_resumption_is_played_to_a_client_that_names_the_same_event() -> None:
    """No stream of the recording has the event: the server had forgotten it, or the session."""
    refused = Answer((b"gone",), (), 404)
    event = ("Last-Event-ID", "ev-9")
    places = [
        get("/mcp", event, (SESSION_HEADER, "f" * 32)),
        get("/mcp", event),
        within(ONE, get("/mcp", event)),
    ]

    player = player_of(
        (INITIALIZE, opened(ONE)), *[(request, refused) for request in places]
    )
    session = open_session(player)
    places[-1] = within(session, get("/mcp", event))

    for request in places:
        assert play(player, request) == b"gone"

    other = within(session, get("/mcp", ("Last-Event-ID", "ev-8")))
    miss = missed(player, other)

    assert miss.reason is Reason.STATE_UNKNOWN

    ways = report_of_miss(miss, player, SHELL_TERMS).text

    assert "requestState" not in ways
    assert "after an event that this replay has sent" in ways


def test_id_that_several_streams_use_resumes_none_of_them() -> None:
    """Outside sessions ids of events are as recorded, and a server may use one again."""
    streams = []
    for name in "ab":
        response = sse(answer(tool(name), text(name)))
        streams.append(Answer((b"id: 7\ndata: \n\n", response), STREAM_HEADERS))

    resume = get("/mcp", *LISTEN.headers, ("Last-Event-ID", "7"))
    both = player_of(*zip(map(tool, "ab"), streams, strict=True))

    assert play(both, tool("a")).startswith(b"id: 7\n")
    assert missed(both, resume).reason is Reason.STATE_UNKNOWN

    alone = player_of((tool("a"), streams[0]))
    play(alone, tool("a"))

    assert play(alone, resume) == streams[0].chunks[1]


@pytest.mark.parametrize("order", ["abc", "cab"])
def test_streams_that_count_their_events_alike_are_resumed_each_by_its_own_call(
    order: str,
) -> None:
    """The ids of some servers begin again with every stream, as a cursor within that one."""
    resume = get("/mcp", *LISTEN.headers, ("Last-Event-ID", "1"))
    begun = Answer((b"id: 1\ndata: \n\n",), STREAM_HEADERS)
    script: list[Step] = []
    for number, name in enumerate("abc"):
        call = changed(tool(name), "id", to=number)
        rest = (sse(answer(call, text(name))),)
        script += [(call, begun), (resume, Answer(rest, STREAM_HEADERS))]

    player = player_of(*script)

    for number, name in enumerate(order, start=50):
        call = changed(tool(name), "id", to=number)
        play(player, call)

        assert play(player, resume) == sse(answer(call, text(name)))


def test_streams_that_count_their_events_alike_belong_to_the_calls_that_they_answer() -> (
    None
):
    """Two calls at once were interrupted, and then resumed in either order."""
    resume = get("/mcp", *LISTEN.headers, ("Last-Event-ID", "1"))
    begun = Answer((b"id: 1\ndata: \n\n",), STREAM_HEADERS)
    recorded = [changed(tool(name), "id", to=name) for name in "ab"]
    script: list[Step] = [(call, begun) for call in recorded]
    for call in reversed(recorded):
        rest = (sse(answer(call, text("done"))),)
        script.append((resume, Answer(rest, STREAM_HEADERS)))

    player = player_of(*script)
    live = [changed(call, "id", to=50 + n) for n, call in enumerate(recorded)]
    for call in live:
        play(player, call)

    for call in reversed(live):
        assert play(player, resume) == sse(answer(call, text("done")))


def test_what_was_not_recorded_is_said_on_the_stream_that_has_all_responses() -> None:
    """A client of HTTP+SSE reads nothing else; any other one gets it in response to its request."""
    endpoint = b"event: endpoint\ndata: /messages?session_id=" + ONE.encode() + b"\n\n"
    talk = Conversation(redacts=True)
    listening = talk.stream(get("/sse"))
    talk.observation(listening).response_bytes(endpoint, talk.tick())
    talk.end(listening, End.OPEN)
    player = Player(loaded(talk.cassette()))
    stream_ = hit(player, get("/sse"))
    event = sent_now(stream_).decode()
    where = event.split("data: ")[1].strip()

    assert player.respond_on_stream(post(CALL, target=where), b"{}")
    assert sent_now(stream_) == b"event: message\ndata: {}\n\n"
    assert not player.respond_on_stream(post(CALL), b"{}")
