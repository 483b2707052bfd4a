from __future__ import annotations

import pytest
from builders import (
    STREAM_HEADERS,
    Answer,
    Conversation,
    Step,
    get,
    loaded,
    notification,
    play,
    player_of,
    post,
    retry,
    rpc,
    said,
    sent_now,
    state_in,
    tool,
    with_meta,
)
from messages import CLIENT_KEY, NO, YES, asks, text

from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.in_order import Repeat
from mrtr_cassette.core.replay.player import Play, Player
from mrtr_cassette.core.wire.http import Request

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
TWO_ROUNDS: tuple[Step, ...] = (
    (CALL, asks("a")),
    (retry(CALL, {"a": YES}), asks("b", state=STATE)),
    (retry(CALL, {"b": YES}, state=STATE), text("done")),
)
READING = [
    rpc("server/discover", {}),
    rpc("tools/list"),
    rpc("initialize", {}),
    rpc("resources/read", {"uri": "file:///a"}),
    rpc("prompts/get", {"name": "p"}),
    notification("notifications/initialized"),
    get("/.well-known/oauth"),
    Request("DELETE", "/mcp", (), b""),
    Request("OPTIONS", "/mcp", (), b""),
]
ACTING = [
    CALL,
    rpc("tasks/cancel", {}),
    b"opaque",
    b'{"jsonrpc":"2.0","id":1,"result":{}}',
    Request("PUT", "/x", (), b""),
]


def test_identical_calls_play_in_recorded_order() -> None:
    """Equal requests get the recorded responses one after the other."""
    player = player_of((CALL, text("one")), (CALL, text("two")), (CALL, text("three")))

    assert [said(play(player, CALL)) for _ in range(3)] == ["one", "two", "three"]


def test_identical_retries_play_in_recorded_order() -> None:
    """Equal answers to equal asks without state get their responses in the order of arrival."""
    talk = Conversation()
    one, two = talk.request(CALL), talk.request(CALL)
    talk.response(two, asks("a"))
    early = talk.request(retry(CALL, {"a": YES}))
    talk.response(early, text("early"))
    talk.response(one, asks("a"))
    talk.response(talk.request(retry(CALL, {"a": YES})), text("late"))
    player = Player(loaded(talk.cassette(), "f"))
    play(player, CALL)
    play(player, CALL)

    assert [said(play(player, retry(CALL, {"a": YES}))) for _ in range(2)] == ["early", "late"]


def test_equally_like_retries_play_in_recorded_order() -> None:
    """The order of arrival counts too where no recorded request is exactly like the caller's."""
    talk = Conversation()
    one, two = talk.request(CALL), talk.request(CALL)
    talk.response(two, asks("a"))
    early = talk.request(post(retry(CALL, {"a": YES}), ("Accept", "x")))
    talk.response(early, text("early"))
    talk.response(one, asks("a"))
    talk.response(talk.request(post(retry(CALL, {"a": YES}), ("Accept", "y"))), text("late"))
    player = Player(loaded(talk.cassette(), "f"))
    play(player, CALL)
    play(player, CALL)

    assert [said(play(player, retry(CALL, {"a": YES}))) for _ in range(2)] == ["early", "late"]


def test_same_client_comes_before_the_recorded_order() -> None:
    """Of equal requests each client gets what was recorded for it, if anything is left of that."""

    def of(client: str) -> bytes:
        return with_meta(CALL, **{CLIENT_KEY: {"name": client}})

    script = ((of("a"), text("for a")), (of("b"), text("for b")), (of("a"), text("for a again")))
    player = player_of(*script)

    assert [said(play(player, of(who))) for who in "bba"] == ["for b", "for a", "for a again"]
    assert said(play(player_of(*script), of("c"))) == "for a"


def test_equally_like_requests_play_in_recorded_order() -> None:
    """Requests whose traits are equally far from the caller's play as they were recorded."""
    one, two = post(CALL, ("Accept", "x")), post(CALL, ("Accept", "y"))
    player = player_of((one, text("1")), (two, text("2")), (one, text("3")))

    assert [said(play(player, CALL)) for _ in range(3)] == ["1", "2", "3"]


def again(request: bytes | Request, repeat: Repeat) -> str:
    """Return what the third asking gets of a request recorded twice: a body, or a reason."""
    player = player_of((request, Answer((b"one",))), (request, Answer((b"two",))), repeat=repeat)
    assert [play(player, request) for _ in range(2)] == [b"one", b"two"]
    decision = player.request_received(request if isinstance(request, Request) else post(request))
    if isinstance(decision, Miss):
        return decision.reason.value
    assert isinstance(decision, Play)
    return sent_now(decision).decode()


@pytest.mark.parametrize("request_", READING)
def test_reading_may_be_repeated(request_: bytes | Request) -> None:
    """What only reads gets its last response again, unless that is forbidden.

    `initialize` begins anew, with the first one.
    """
    asked = request_ if isinstance(request_, bytes) else b""
    assert again(request_, Repeat.AUTO) == ("one" if b'initialize"' in asked else "two")
    assert again(request_, Repeat.ALWAYS) == "one"
    assert again(request_, Repeat.NEVER) == "already-played"


def test_stream_that_opens_a_session_begins_again_with_the_first() -> None:
    """A program over HTTP+SSE that runs once more gets the sessions in the same order."""
    opened = [
        Answer((b"event: endpoint\ndata: /messages?session_id=%b\n\n" % name,), STREAM_HEADERS)
        for name in (b"0f9d8c7b6a5e4d3c2b1a", b"ffffeeeeddddccccbbbb")
    ]
    player = player_of(*[(get("/sse"), stream) for stream in opened], redacts=True)

    played = []
    for _ in range(3):
        decision = player.request_received(get("/sse"))
        assert isinstance(decision, Play)
        played.append(decision.playable.interaction)

    assert played == [1, 2, 1]


@pytest.mark.parametrize("request_", ACTING)
def test_acting_may_not_be_repeated(request_: bytes | Request) -> None:
    """What may change something is played as often as it was recorded, unless all is allowed."""
    assert again(request_, Repeat.AUTO) == "already-played"
    assert again(request_, Repeat.ALWAYS) == "one"
    assert again(request_, Repeat.NEVER) == "already-played"


def test_repeating_always_begins_again_with_the_first() -> None:
    """Once all recorded answers are used up, they come again in the recorded order."""
    player = player_of(*((CALL, text(words)) for words in "abc"), repeat=Repeat.ALWAYS)

    assert "".join(said(play(player, CALL)) for _ in range(7)) == "abcabca"


def test_repeat_plays_the_whole_conversation_again() -> None:
    """With repeats allowed a conversation plays from its start as often as one likes."""
    player = player_of(*TWO_ROUNDS, repeat=Repeat.ALWAYS)

    for _ in range(3):
        play(player, CALL)
        state = state_in(play(player, retry(CALL, {"a": YES})))
        assert said(play(player, retry(CALL, {"b": YES}, state=state))) == "done"


def test_equal_asks_without_state_are_answered_in_any_order() -> None:
    """What was declined first and accepted later can be accepted at once: the asks are the same."""
    player = player_of(
        (CALL, asks("a")),
        (retry(CALL, {"a": NO}), text("declined")),
        (CALL, asks("a")),
        (retry(CALL, {"a": YES}), text("accepted")),
    )

    assert isinstance(player.request_received(post(CALL)), Play)
    assert said(play(player, retry(CALL, {"a": YES}))) == "accepted"
    assert isinstance(player.request_received(post(CALL)), Play)
    assert said(play(player, retry(CALL, {"a": NO}))) == "declined"
    assert player.unplayed == []
