from __future__ import annotations

from itertools import chain

import pytest
from builders import (
    ACCEPTED,
    INITIALIZED,
    JSON_HEADERS,
    Answer,
    Conversation,
    Step,
    answer,
    cassette_of,
    conversation,
    delivery_of,
    get,
    loaded,
    missed,
    notification,
    open_session,
    play,
    player_of,
    post,
    retry,
    rpc,
    said,
    session_steps,
    sse,
    state_in,
    told,
    tool,
    with_id,
    within,
)
from messages import NO, YES, Json, asks, compact, form, result, text

from mrtr_cassette.core.replay.diagnosis import Reason
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import (
    ANSWERED_BY_HEADER,
    SESSION_HEADER,
    End,
    Request,
    header_value,
)
from mrtr_cassette.errors import CassetteError
from mrtr_cassette.terms import in_terms

CALL = tool("deploy", env="prod")
FIRST = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
SECOND = "eyJzdGVwIjoyfQ.c2lnbmF0dXJlLW9n"
BOTH: tuple[Step, ...] = (
    (CALL, asks("a", state=FIRST)),
    (retry(CALL, {"a": YES}, state=FIRST), text("done")),
    (CALL, asks("a", state=SECOND)),
    (retry(CALL, {"a": NO}, state=SECOND), text("left")),
)
"""The same call twice, answered in two ways."""


def replicas(*script: Step, number: int = 2, **options: bool) -> list[Player]:
    """Return several replays of one cassette, without memory."""
    cassette = cassette_of(*script, **options)
    return [
        Player(loaded(cassette, "talk.json"), stateless=True) for _ in range(number)
    ]


def refused(*script: Step, **options: bool) -> str:
    """Return why a cassette can't be played without memory."""
    with pytest.raises(CassetteError) as error:
        player_of(*script, stateless=True, **options)

    return in_terms(error.value.in_terms({}))


@pytest.mark.parametrize("options", [{}, {"seals": False}])
def test_either_state_finds_the_branch_that_its_answers_choose(
    options: dict[str, bool],
) -> None:
    """Equal asks of equal calls stand for each other, whichever state a client carries."""
    states = [
        state_in(play(player, CALL))
        for player in (
            player_of(*BOTH, **options),
            player_of(*BOTH[2:], *BOTH[:2], **options),
        )
    ]

    in_order = player_of(*BOTH, **options)
    states += [state_in(play(in_order, with_id(CALL, number))) for number in (8, 9)]
    states += [FIRST, SECOND]
    (player,) = replicas(*BOTH, number=1, **options)

    for state in states:
        assert said(play(player, retry(CALL, {"a": YES}, state=state))) == "done"
        assert said(play(player, retry(CALL, {"a": NO}, state=state))) == "left"


def test_wrong_answer_is_compared_with_all_that_were_given_to_equal_asks() -> None:
    """The nearest recorded answer is told, whichever of the equal asks it answers."""
    (player,) = replicas(*BOTH, number=1)
    near = {"action": "decline", "content": {}}

    miss = missed(player, retry(CALL, {"a": near}, state=state_in(play(player, CALL))))

    assert miss.nearest is not None
    assert miss.nearest.interaction == 2
    assert [difference.pointer for difference in miss.differences] == [
        "/inputResponses/a/content"
    ]


def test_what_the_recorder_answered_is_answered_here_too() -> None:
    """The end of such a conversation is what the call gets, and what has to be the same."""

    def answered(words: str, state: str) -> tuple[Step, Step]:
        by_recorder = post(
            retry(CALL, {"a": YES}, state=state), (ANSWERED_BY_HEADER, "rule 1")
        )
        return (CALL, asks("a", state=state)), (by_recorder, text(words))

    (player,) = replicas(*answered("done", FIRST), *answered("done", SECOND), number=1)

    assert said(play(player, CALL)) == "done"
    assert player.played_part.unplayed_numbers == []
    assert "#1, #2" in refused(*answered("one", FIRST), *answered("two", SECOND))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (text("a"), text("b")),
        (text("a"), Answer((), (), 0, End.OPEN)),
        (b"<html>a", b"<html>b"),
        (asks("a", state=FIRST), asks("b", state=SECOND)),
    ],
)
def test_what_a_client_can_tell_is_another_answer(one: Json, other: Json) -> None:
    """Text, no response, bytes that are no message, and what is asked."""
    assert "#1, #2" in refused((CALL, one), (CALL, other))


def test_interaction_of_which_only_the_beginning_is_like_another_is_unplayed() -> None:
    """Who answers one way has not played what follows the other answer."""
    (player,) = replicas(*BOTH, number=1)
    play(player, retry(CALL, {"a": YES}, state=state_in(play(player, CALL))))

    assert player.played_part.unplayed_numbers == [2]


def test_poll_is_refused_by_name() -> None:
    """A request that was answered otherwise later is no function of the request."""
    poll = rpc("tasks/get", {"taskId": "t1"})
    words = refused(
        (CALL, text("x")),
        (poll, text("working")),
        (poll, text("working")),
        (poll, text("done")),
    )

    assert "#2, #3, #4: tasks/get" in words
    assert "#1" not in words
    assert "serve it without, from one process" in words


# Secrets and placeholders

USE = "ghp_" + "a1B2" * 9
USED_TOO = "ghp_" + "c3D4" * 9
LOGINS = [
    tool("login", user=user, password=f"{user}-horse-1") for user in ("ada", "bob")
]


def test_placeholder_that_any_replica_gave_out_tells_who_it_is() -> None:
    """Two clients log in at one replica, and are told apart by their tokens at the other."""
    first, second = replicas(
        (LOGINS[0], text(USE)),
        (LOGINS[1], text(USED_TOO)),
        (tool("who", token=USE), text("a")),
        (tool("who", token=USED_TOO), text("b")),
        redacts=True,
    )

    tokens = [said(play(first, login)) for login in LOGINS]
    names = [said(play(second, tool("who", token=token))) for token in tokens]
    miss = missed(second, tool("who", token="ghp_" + "e5F6" * 9))

    assert tokens == ["<github:1>", "<github:2>"]
    assert names == ["a", "b"]
    assert miss.reason is Reason.ARGUMENTS_DIFFER

    missed(second, tool("who", token="<github:7>"))


def test_wrong_and_right_password_are_refused() -> None:
    """Which of them a client sends is known by the order alone, and no replica knows the order."""
    words = refused(
        (tool("login", password="horse-wrong-1"), text("denied")),
        (tool("login", password="horse-right-1"), text("welcome")),
        redacts=True,
    )

    assert '#1, #2: tools/call "login"' in words


# Sessions

ONE = "1" * 32
TWO = "2" * 32


def replayed_sessions(*sessions: list[Step], number: int = 2) -> list[Player]:
    """Return replicas of several recorded sessions."""
    return replicas(*chain(*sessions), number=number)


def test_session_goes_on_at_another_replica() -> None:
    """Its id is known to all, and ending it at one ends it nowhere."""
    ask = (CALL, asks("a", state=FIRST))
    done = (retry(CALL, {"a": YES}, state=FIRST), text("done"))
    bye = Request("DELETE", "/mcp", (), b"")
    session_of_both = [*session_steps(ONE, ask, done), (within(ONE, bye), ACCEPTED)]
    replica, next_replica = replayed_sessions(session_of_both)
    first = open_session(replica)
    second = open_session(replica)

    assert first == second == "mrtr-session:1"

    play(next_replica, within(first, INITIALIZED))
    state = state_in(play(next_replica, within(first, CALL)))
    play(replica, within(first, bye))
    for player in (replica, next_replica):
        retried = within(second, retry(CALL, {"a": YES}, state=state))

        assert said(play(player, retried)) == "done"


def test_sessions_that_begin_alike_are_one() -> None:
    """A client has what any of them recorded, under the id that it was given."""
    repeated = Answer(
        (answer(CALL, text("two")),), (*JSON_HEADERS, ("Mcp-Session-Id", TWO))
    )
    (player,) = replayed_sessions(
        session_steps(ONE, (tool("a"), text("a"))),
        session_steps(TWO, (CALL, repeated)),
        number=1,
    )

    session = open_session(player)
    play(player, within(session, INITIALIZED))

    assert said(play(player, within(session, tool("a")))) == "a"

    for carried in (session, "mrtr-session:2"):
        delivery = delivery_of(player, within(carried, CALL))

        assert header_value(delivery.headers, SESSION_HEADER) == carried

    assert player.played_part.unplayed_numbers == []


def test_sessions_that_begin_alike_and_differ_later_are_refused() -> None:
    """A counter in a session is no function of the request."""
    script = [
        *session_steps(ONE, (CALL, text("1"))),
        *session_steps(TWO, (CALL, text("2"))),
    ]

    assert '#3, #6: tools/call "deploy"' in refused(*script)


def recorded_listening(*events: bytes, changes: bool) -> Conversation:
    """Record a session with a listening stream that has events, after calls or before them."""
    talk = conversation(*session_steps(ONE))
    listening = talk.stream(within(ONE, get("/mcp", ("Accept", "text/event-stream"))))
    for event in () if changes else events:
        talk.event(listening, event)

    talk.exchange(within(ONE, CALL), text("done"))
    for event in events if changes else ():
        talk.event(listening, event)

    talk.exchange(within(ONE, Request("DELETE", "/mcp", (), b"")), ACCEPTED)
    talk.end(listening)
    return talk


@pytest.mark.parametrize("events", [(), (notification("notifications/message"),)])
def test_listening_stream_stays_open_until_its_client_leaves(
    events: tuple[bytes, ...],
) -> None:
    """Another replica may get the request that ended it, so nothing ends it here."""
    talk = recorded_listening(*events, changes=False)
    player = Player(loaded(talk.cassette()), stateless=True)
    for _ in range(2):
        listen = within("mrtr-session:1", get("/mcp", ("Accept", "text/event-stream")))

        assert told(delivery_of(player, listen)) == [*map(sse, events), End.OPEN]


def test_stream_that_says_what_other_requests_caused_is_refused() -> None:
    """Its process has to see these requests."""
    talk = recorded_listening(
        notification("notifications/tools/list_changed"), changes=True
    )

    with pytest.raises(CassetteError) as error:
        Player(loaded(talk.cassette()), stateless=True)

    assert (
        "\n  mrtr-session:1 (#3): a stream has events that other requests caused"
        in str(error.value)
    )


def test_cancelled_call_is_refused() -> None:
    """Its process has to know whether its client has cancelled it."""
    talk = conversation(*session_steps(ONE))
    calling = talk.stream(within(ONE, CALL))
    cancelled = notification("notifications/cancelled", requestId=1)
    talk.exchange(within(ONE, cancelled), ACCEPTED)
    talk.event(calling, answer(CALL, text("stopped")))
    talk.end(calling)

    with pytest.raises(CassetteError) as error:
        Player(loaded(talk.cassette()), stateless=True)

    assert ": its response depends on its cancellation" in str(error.value)


def test_pushed_requests_are_refused_by_session() -> None:
    """Their answers come with other requests than the call that waits for them."""
    call = post(with_id(CALL, "c"), ("Mcp-Session-Id", ONE))
    talk = conversation(*session_steps(ONE))
    calling = talk.stream(call)
    talk.event(calling, compact({"jsonrpc": "2.0", "id": 5, **form("sure?")}))
    talk.exchange(within(ONE, compact(result(YES, id=5))), ACCEPTED)
    talk.event(calling, answer(with_id(CALL, "c"), text("done")))
    talk.end(calling)

    with pytest.raises(CassetteError) as error:
        Player(loaded(talk.cassette()), stateless=True)

    assert "\n  mrtr-session:1 (#3): the server asks by requests of its own" in str(
        error.value
    )
