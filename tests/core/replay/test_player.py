from __future__ import annotations

from typing import Any

import pytest
from builders import (
    STREAM_HEADERS,
    Answer,
    Conversation,
    Step,
    cassette_of,
    changed,
    get,
    hit,
    loaded,
    missed,
    notification,
    open_session,
    play,
    player_of,
    post,
    refusal,
    retry,
    rpc,
    said,
    sent_now,
    session_steps,
    state_in,
    tool,
    with_meta,
    with_token,
    within,
)
from messages import (
    CAPABILITIES_KEY,
    CLIENT_KEY,
    NO,
    VERSION_KEY,
    YES,
    asks,
    form,
    text,
)

from mrtr_cassette.core.replay.deliveries import Play
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.order import Repeat
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import Request

CALL = tool("deploy", env="prod")
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"
TWO_ROUNDS: tuple[Step, ...] = (
    (CALL, asks("a")),
    (retry(CALL, {"a": YES}), asks("b", state=STATE)),
    (retry(CALL, {"b": YES}, state=STATE), text("done")),
)


def test_raw_state_of_the_recording_is_known_by_its_hash() -> None:
    """A literal in a test's code plays, whatever the surrogate is."""
    player = player_of(*TWO_ROUNDS)
    play(player, CALL)
    play(player, retry(CALL, {"a": YES}))

    assert said(play(player, retry(CALL, {"b": YES}, state=STATE))) == "done"


@pytest.mark.parametrize(
    ("call", "suffix"),
    [(CALL, "x"), (tool("deploy", env="test"), ""), (tool("other"), "")],
)
def test_state_that_is_tampered_with_or_of_another_call_gets_the_recorded_refusal(
    call: bytes, suffix: str
) -> None:
    """What a client does to a state, or with it, is refused on replay as it was recorded."""
    player = player_of(
        (CALL, asks("a", state=STATE)),
        (
            retry(call, {"a": YES}, state=STATE + suffix),
            refusal(call, words="no such state"),
        ),
    )

    state = state_in(play(player, CALL))

    assert b"no such state" in play(
        player, retry(call, {"a": YES}, state=state + suffix)
    )


def test_answer_to_an_equal_ask_plays() -> None:
    """Of equal asks without state any may be the one that was played, as nothing tells them apart."""
    player = player_of(
        (CALL, asks("a")),
        (retry(CALL, {"a": NO}), text("left")),
        (CALL, asks("a")),
        (retry(CALL, {"a": YES}), text("done")),
    )

    play(player, CALL)

    assert said(play(player, retry(CALL, {"a": YES}))) == "done"

    play(player, CALL)

    assert said(play(player, retry(CALL, {"a": NO}))) == "left"
    assert player.played_part.unplayed_numbers == []


@pytest.mark.parametrize(
    "other",
    [
        asks("a", "b"),
        {"resultType": "input_required", "inputRequests": {"a": form("Really?")}},
        asks("a", state=STATE),
    ],
    ids=["more", "message", "state"],
)
def test_answer_to_another_ask_does_not_play(other: Any) -> None:
    """In a session, an ask that differs in anything is not the one that an answer belongs to."""
    state = other.get("requestState")
    script: tuple[Step, ...] = (
        (CALL, asks("a")),
        (retry(CALL, {"a": NO}), text("left")),
        (CALL, other),
        (retry(CALL, {"a": YES}, state=state), text("done")),
    )

    player = player_of(*session_steps("1" * 32, *script))
    session = open_session(player)
    play(player, within(session, CALL))

    miss = missed(player, within(session, retry(CALL, {"a": YES}, state=state)))

    assert miss.reason in {Reason.OUT_OF_ORDER, Reason.ANSWERS_DIFFER}


FULL = with_meta(
    CALL, **{"progressToken": 1, CAPABILITIES_KEY: {"roots": {}}, VERSION_KEY: "v"}
)


@pytest.mark.parametrize(
    "other",
    [
        post(CALL),
        post(with_meta(CALL, **{"progressToken": 1, VERSION_KEY: "v"})),
        post(FULL.replace(b'"v"', b'"w"')),
        post(FULL, ("Mcp-Session-Id", "s")),
        post(FULL, ("Accept", "text/event-stream")),
        post(FULL, ("Mcp-Param-Region", "eu")),
    ],
)
def test_most_like_request_is_played(other: Request) -> None:
    """What a server may answer differently by breaks the tie between equal calls."""
    for script in (
        ((FULL, text("full")), (other, text("other"))),
        ((other, text("other")), (FULL, text("full"))),
    ):
        player = player_of(*script)

        assert said(play(player, FULL)) == "full"
        assert said(play(player, other)) == "other"


def test_weightier_trait_decides() -> None:
    """Where no recorded request is exactly like the caller's, the weightiest trait counts."""
    streaming = post(with_token(CALL, 1), ("Accept", "x"))
    plain = post(CALL, ("Accept", "y"))
    player = player_of((plain, text("plain")), (streaming, text("streaming")))

    tracked = post(with_token(CALL, 2), ("Accept", "y"))

    assert said(play(player, tracked)) == "streaming"


def test_less_like_request_is_no_substitute() -> None:
    """When the best are used up, the refusal of the same body with other headers is not played."""
    player = player_of(
        (post(CALL, ("Mcp-Name", "deploy")), text("done")),
        (post(CALL, ("Mcp-Name", "x")), refusal(CALL)),
    )

    play(player, post(CALL, ("Mcp-Name", "deploy")))

    assert (
        missed(player, post(CALL, ("Mcp-Name", "deploy"))).reason
        is Reason.ALREADY_PLAYED
    )


def test_unplayed_interactions_are_counted() -> None:
    """An interaction counts as played when all of it was."""
    player = player_of(
        (CALL, asks("a")),
        (retry(CALL, {"a": YES}), text("x")),
        (tool("other"), text("y")),
    )

    assert player.played_part.unplayed_numbers == [1, 2]

    play(player, tool("other"))

    assert player.played_part.unplayed_numbers == [1]

    play(player, CALL)

    assert player.played_part.unplayed_numbers == [1]

    play(player, retry(CALL, {"a": YES}))

    assert player.played_part.unplayed_numbers == []


@pytest.mark.parametrize(
    ("request_", "result", "unplayed"),
    [
        (rpc("ping"), {}, []),
        (rpc("tasks/get", {"taskId": "t"}), {"status": "working"}, []),
        (
            rpc("resources/read", {"uri": "file:///a"}),
            {"contents": [], "ttlMs": 1000},
            [],
        ),
        (rpc("resources/read", {"uri": "file:///a"}), {"contents": []}, [2]),
        (CALL, text("done"), [2]),
    ],
)
def test_repeat_that_time_causes_is_not_missing(
    request_: bytes, result: Any, unplayed: list[int]
) -> None:
    """A faster replay polls less often, and asks less often for what it has in its cache."""
    player = player_of((request_, result), (request_, result))

    assert player.played_part.unplayed_numbers == [1, 2]

    play(player, request_)

    assert player.played_part.unplayed_numbers == unplayed


def test_arrival_of_other_traffic_counts_too() -> None:
    """GET, DELETE and opaque bodies play by method, path and body."""
    player = player_of(
        (get("/a"), b"a"),
        (get("/a?x"), b"ax"),
        (b"[1]", b"batch"),
        (Request("DELETE", "/a", (), b""), b"gone"),
    )

    assert play(player, Request("DELETE", "/a", (), b"")) == b"gone"
    assert play(player, get("/a?x")) == b"ax"
    assert play(player, get("/a")) == b"a"
    assert play(player, b"[1.0]") == b"batch"
    assert missed(player, b"[2]").reason is Reason.ARGUMENTS_DIFFER


def test_cassette_without_its_recording_block_plays() -> None:
    """Without timings and hashes a conversation plays in the order of the file."""
    whole = cassette_of(*TWO_ROUNDS, (CALL, text("again")))
    bare = whole.model_copy(
        update={"recording": whole.recording.model_copy(update={"exchanges": []})}
    )
    player = Player(loaded(bare, "f"))

    play(player, CALL)
    state = state_in(play(player, retry(CALL, {"a": YES})))

    assert said(play(player, retry(CALL, {"b": YES}, state=state))) == "done"
    assert said(play(player, CALL)) == "again"


@pytest.mark.parametrize(
    "odd",
    [
        b'[{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"requestState":"%s"}}]',
        b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"requestState":"%s",}}',
        b'{"id":2,"method":"tools/call","params":{"name":"deploy","requestState":"%s"}}',
        b'{"jsonrpc":"2.0","id":2,"method":"m","params":{"text":"{\\"requestState\\": \\"%s\\"}"}}',
    ],
)
@pytest.mark.parametrize("was_issued", [True, False])
def test_state_in_what_is_no_retry_plays(odd: bytes, was_issued: bool) -> None:  # noqa: FBT001
    """A state in a batch or an unreadable body is matched, whether the cassette issued it or not."""
    script: list[Step] = [(odd % STATE.encode(), b"seen")]
    if was_issued:
        script.insert(0, (CALL, asks("ok", state=STATE)))

    player = player_of(*script)
    sent = state_in(play(player, CALL)) if was_issued else STATE

    missed(player, odd % b"another")

    assert play(player, odd % sent.encode()) == b"seen"
    assert player.played_part.unplayed_numbers == []


# Traits and headers


@pytest.mark.parametrize(("member", "empty"), [("arguments", {}), ("name", "")])
def test_absent_equals_empty_only_where_not_both_were_recorded(
    member: str, empty: Any
) -> None:
    """If both spellings were recorded each gets its own answer; if one was, both get that."""
    params = {"name": "x", "arguments": {"a": 1}}
    absent = rpc("tools/call", {key: params[key] for key in params if key != member})
    present = changed(absent, "params", member, to=empty)
    player = player_of((absent, text("absent")), (present, text("present")))

    assert said(play(player, present)) == "present"
    assert missed(player, present).reason is Reason.ALREADY_PLAYED
    assert said(play(player, absent)) == "absent"

    without = player_of((absent, text("absent")))
    having = player_of((present, text("present")))

    assert said(play(without, present)) == "absent"
    assert said(play(having, absent)) == "present"


def test_initialize_of_another_client_gets_the_recorded_answer() -> None:
    """The nearest in capabilities and version is played, whoever the client is."""

    def initialize(version: str, name: str = "recorded", **capabilities: Any) -> bytes:
        return rpc(
            "initialize",
            {
                "protocolVersion": version,
                "capabilities": capabilities,
                "clientInfo": {"name": name},
            },
        )

    player = player_of(
        (initialize("2025-06-18"), text("old")),
        (initialize("2025-11-25", roots={}), text("roots")),
        (initialize("2025-11-25"), text("new")),
    )

    assert said(play(player, initialize("2025-11-25", "other"))) == "new"
    assert said(play(player, initialize("2024-11-05", "other", roots={}))) == "roots"
    assert said(play(player, initialize("2025-06-18", "other", tasks={}))) == "old"


@pytest.mark.parametrize(
    "header", [("Authorization", "Bearer made-up"), ("X-Tenant", "a")]
)
def test_header_tells_equal_calls_apart(header: tuple[str, str]) -> None:
    """A credential, and what the user named, decide which answer is played."""
    talk = Conversation(kept_headers=frozenset({"x-tenant"}))
    for request, words in ((post(CALL), "without"), (post(CALL, header), "with")):
        talk.exchange(request, text(words))

    cassette = talk.cassette()

    assert "made-up" not in str(cassette)

    for order in ((False, True), (True, False)):
        player = Player(loaded(cassette, "f"))
        for has_header in order:
            request = post(CALL, header) if has_header else post(CALL)

            assert said(play(player, request)) == ("with" if has_header else "without")

    player = Player(loaded(cassette, "f"))
    play(player, post(CALL, header))

    assert missed(player, post(CALL, header)).reason is Reason.ALREADY_PLAYED


def test_header_that_contradicts_the_body_gets_no_good_answer() -> None:
    """A server refuses such a request; a refusal that was recorded is played."""
    contradicting = post(CALL, ("Mcp-Name", "drop"))
    refused = refusal(CALL, -32020, "mismatch")
    good = (post(CALL, ("Mcp-Name", "deploy")), text("done"))

    miss = missed(player_of(good), contradicting)

    assert miss.reason is Reason.HEADERS_CONTRADICT
    assert "Mcp-Name: drop" in miss.detail
    assert miss.nearest is not None

    player = player_of(good, (contradicting, refused))

    assert play(player, contradicting) == refused
    assert said(play(player, good[0])) == "done"


def test_one_call_of_two_sessions_has_one_key() -> None:
    """A session id in the URL chooses among recordings, and is no part of the call."""
    targets = [f"/messages?session_id=mrtr-session%3A{number}" for number in (1, 2, 3)]
    player = player_of(
        (post(CALL, target=targets[0]), text("one")),
        (post(CALL, target=targets[1]), text("two")),
    )

    assert said(play(player, post(CALL, target=targets[1]))) == "two"
    assert said(play(player, post(CALL, target=targets[2]))) == "one"


READING = [
    rpc("server/discover", {}),
    rpc("tools/list"),
    rpc("initialize", {}),
    rpc("resources/read", {"uri": "file:///a"}),
    rpc("prompts/get", {"name": "p"}),
    rpc("tasks/get", {"taskId": "t"}),
    rpc("skills/list"),
    rpc("skills/get", {"uri": "skill://a/SKILL.md"}),
    rpc("resources/directory/read", {"uri": "skill://a"}),
    notification("notifications/initialized"),
    get("/.well-known/oauth"),
    Request("DELETE", "/mcp", (), b""),
    Request("OPTIONS", "/mcp", (), b""),
]

ACTING = [
    CALL,
    rpc("tasks/cancel", {"taskId": "t"}),
    rpc("acme/list"),
    b"opaque",
    b'{"jsonrpc":"2.0","id":1,"result":{}}',
    Request("PUT", "/x", (), b""),
]


def test_equally_like_retries_play_in_recorded_order() -> None:
    """The order of arrival counts too where no recorded request is exactly like the caller's."""
    talk = Conversation()
    first = talk.request(CALL)
    second = talk.request(CALL)
    talk.response(second, asks("a"))
    talk.exchange(post(retry(CALL, {"a": YES}), ("Accept", "x")), text("early"))
    talk.response(first, asks("a"))
    talk.exchange(post(retry(CALL, {"a": YES}), ("Accept", "y")), text("late"))
    player = Player(loaded(talk.cassette(), "f"))
    play(player, CALL)
    play(player, CALL)

    assert [said(play(player, retry(CALL, {"a": YES}))) for _ in range(2)] == [
        "early",
        "late",
    ]


def test_same_client_comes_before_the_recorded_order() -> None:
    """Of equal requests each client gets what was recorded for it, if anything is left of that."""

    def of(client: str) -> bytes:
        return with_meta(rpc("tools/list"), **{CLIENT_KEY: {"name": client}})

    script = (
        (of("a"), text("for a")),
        (of("b"), text("for b")),
        (of("a"), text("for a again")),
    )

    player = player_of(*script)

    assert [said(play(player, of(who))) for who in "bba"] == [
        "for b",
        "for a",
        "for a again",
    ]
    assert said(play(player_of(*script), of("c"))) == "for a"


def again(request: bytes | Request, repeat: Repeat) -> str:
    """Return what the third asking gets of a request recorded twice: a body, or a reason."""
    player = player_of(
        (request, Answer((b"one",))), (request, Answer((b"two",))), repeat=repeat
    )
    assert [play(player, request) for _ in range(2)] == [b"one", b"two"]
    decision = player.request_received(
        request if isinstance(request, Request) else post(request)
    )
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
        Answer(
            (b"event: endpoint\ndata: /messages?session_id=%b\n\n" % name,),
            STREAM_HEADERS,
        )
        for name in (b"0f9d8c7b6a5e4d3c2b1a", b"ffffeeeeddddccccbbbb")
    ]

    player = player_of(*[(get("/sse"), stream) for stream in opened], redacts=True)

    assert [hit(player, get("/sse")).entry.interaction for _ in range(3)] == [1, 2, 1]


@pytest.mark.parametrize("request_", ACTING)
def test_acting_may_not_be_repeated(request_: bytes | Request) -> None:
    """What may change something is played as often as it was recorded, unless all is allowed."""
    assert again(request_, Repeat.AUTO) == "already-played"
    assert again(request_, Repeat.ALWAYS) == "one"
    assert again(request_, Repeat.NEVER) == "already-played"
