from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from builders import (
    Answer,
    Step,
    answer,
    as_request,
    exchange,
    get,
    missed,
    notification,
    play,
    player_of,
    post,
    refusal,
    retry,
    rpc,
    said,
    state_in,
    tool,
)
from messages import NO, YES, asks, text
from pushing import asked_once, cassette_with, elicit, in_sealed_session, posted
from verifying import reported_miss

from mrtr_cassette.core.cassette.recorded import Cassette, RecordedInteraction
from mrtr_cassette.core.protocol.any_server import HarmlessReply
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import EVENT_STREAM, NO_METHOD, NO_STATUS, Request

CALL = tool("deploy", env="prod", replicas=3)
STATE = "eyJzdGVwIjoxfQ.c2lnbmF0dXJlLW9m"


def miss_of(request: bytes | Request, *script: Step) -> Miss:
    """Return why a request has no reply in a replay of which nothing was played."""
    return missed(player_of(*script), request)


def found(miss: Miss) -> list[tuple[str, str | None, str | None]]:
    """Return the differences as plain tuples."""
    return [tuple(difference) for difference in miss.differences]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("request_", "reason", "detail"),
    [
        (rpc("tools/list"), Reason.UNKNOWN_METHOD, "tools/list was not recorded"),
        (get("/x"), Reason.UNKNOWN_METHOD, "GET /x was not recorded"),
        (
            b"opaque",
            Reason.UNKNOWN_METHOD,
            "only JSON-RPC requests were recorded at POST /mcp",
        ),
        (
            post(CALL, target="/mcp/"),
            Reason.UNKNOWN_METHOD,
            "tools/call was recorded at POST /mcp, not at POST /mcp/",
        ),
        (
            tool("drop"),
            Reason.UNKNOWN_NAME,
            'tools/call was recorded only for "deploy", "undeploy"',
        ),
        (
            tool("deploy", env="test"),
            Reason.ARGUMENTS_DIFFER,
            'tools/call "deploy" was recorded with other arguments',
        ),
        (
            retry(CALL, {"a": YES}),
            Reason.ANSWERS_DIFFER,
            "the server asked for no input when this call was recorded",
        ),
        (
            retry(CALL, state="S"),
            Reason.STATE_UNEXPECTED,
            "no recorded ask of this call has a request state",
        ),
        (
            retry(tool("deploy"), {"a": YES}),
            Reason.ARGUMENTS_DIFFER,
            'tools/call "deploy" was recorded with other arguments',
        ),
        (
            retry(tool("deploy"), {"a": YES}, state="S"),
            Reason.ARGUMENTS_DIFFER,
            'tools/call "deploy" was recorded with other arguments',
        ),
    ],
)
def test_reason_of_what_was_recorded_without_asks(
    request_: bytes | Request, reason: Reason, detail: str
) -> None:
    """The first part of a request that was not recorded is the reason."""
    miss = miss_of(request_, (CALL, text("done")), (tool("undeploy"), text("gone")))

    assert (miss.reason, miss.detail) == (reason, detail)


def test_ignored_members_are_not_shown() -> None:
    """What doesn't count is no difference, in arguments and in answers."""
    player = player_of(
        (tool("log", at=1, text="x"), asks("a", "note")),
        (retry(tool("log", at=1, text="x"), {"a": YES, "note": 1}), text("done")),
        ignored=[("arguments", "at"), ("inputResponses", "note")],
    )

    assert found(missed(player, tool("log", at=2, text="y"))) == [
        ("/arguments/text", '"x"', '"y"')
    ]

    play(player, tool("log", at=3, text="x"))
    miss = missed(player, retry(tool("log", at=4, text="x"), {"a": NO, "note": 2}))

    assert {pointer.split("/")[2] for pointer, *_ in found(miss)} == {"a"}


ASKED: tuple[Step, ...] = (
    (CALL, asks("a", "b", state=STATE)),
    (retry(CALL, {"a": YES, "b": {"n": 1}}, state=STATE), text("done")),
)


@pytest.mark.parametrize(
    ("answers", "reason", "differences"),
    [
        (
            {"a": YES, "b": {}},
            Reason.ANSWERS_MISSING,
            [("/inputResponses/b/n", "1", None)],
        ),
        ({"a": YES, "b": None}, Reason.ANSWERS_MISSING, None),
        (
            {"b": {"n": 2}},
            Reason.ANSWERS_DIFFER,
            [
                (
                    "/inputResponses/a",
                    '{"action":"accept","content":{"ok":true}}',
                    None,
                ),
                ("/inputResponses/b/n", "1", "2"),
            ],
        ),
    ],
)
def test_answers_are_compared_with_the_recorded_ones(
    answers: object, reason: Reason, differences: list[object] | None
) -> None:
    """What lacks is missing if nothing else differs; each difference has its pointer."""
    player = player_of(*ASKED)
    state = state_in(play(player, CALL))

    miss = missed(player, retry(CALL, answers, state=state))

    assert miss.reason is reason
    assert miss.nearest is not None
    assert (miss.nearest.interaction, miss.nearest.turn) == (1, 1)

    if differences is not None:
        assert found(miss) == differences


ORPHANS: tuple[Step, ...] = tuple(
    (retry(CALL, {"a": 1}, state=state), refusal(CALL)) for state in "ST"
)
TWICE: tuple[Step, ...] = ((CALL, text("one")), (CALL, text("two")))
SECOND = STATE + "2"
ROUNDS: tuple[Step, ...] = (
    (CALL, asks("a", state=STATE)),
    (retry(CALL, {"a": YES}, state=STATE), asks("b", state=SECOND)),
    (retry(CALL, {"b": YES}, state=SECOND), text("done")),
)
LATER: tuple[Step, ...] = (
    (CALL, asks("a")),
    (retry(CALL, {"a": YES}), asks("b", state=STATE)),
    (retry(CALL, {"b": YES}, state=STATE), text("done")),
)
AGAIN: tuple[Step, ...] = (*LATER[:1], (LATER[1][0], asks("a", state=STATE)))
PLAYED_ONCE = "this was recorded once, and has been played once already"
PLAYED_TWICE = "this was recorded 2 times, and has been played 2 times already"
ONLY_RETRY = "this call was recorded only as a retry"
ENDED = "the recording ends with this ask, so no answer to it was recorded"
ANOTHER_KIND = "notes/add was recorded as a request, but this is a notification"
ELSEWHERE = "#2 has this answer, to another ask of this call"


@pytest.mark.parametrize(
    ("script", "plays", "request_", "reason", "nearest", "told"),
    [
        (TWICE[:1], 1, CALL, Reason.ALREADY_PLAYED, (1, 0), PLAYED_ONCE),
        (TWICE, 2, CALL, Reason.ALREADY_PLAYED, (2, 0), PLAYED_TWICE),
        (ORPHANS, 0, CALL, Reason.STATE_MISSING, (1, 0), ONLY_RETRY),
        (
            [(retry(CALL, {"a": YES}), text("done"))],
            0,
            CALL,
            Reason.ANSWERS_MISSING,
            (1, 0),
            ONLY_RETRY,
        ),
        (
            [(rpc("notes/add", {"a": 1}), text("done"))],
            0,
            notification("notes/add", a=1),
            Reason.ARGUMENTS_DIFFER,
            (1, 0),
            ANOTHER_KIND,
        ),
        (
            [
                (tool("deploy", env="a", size=1, x=1), text("1")),
                (tool("deploy", size=2), text("2")),
            ],
            0,
            tool("deploy", size=3),
            Reason.ARGUMENTS_DIFFER,
            (2, 0),
            [("/arguments/size", "2", "3")],
        ),
        (
            [
                *ASKED,
                (retry(CALL, {"a": NO, "b": {"n": 7}}, state=STATE), text("left")),
            ],
            1,
            retry(CALL, {"a": NO, "b": {"n": 8}}, state=STATE),
            Reason.ANSWERS_DIFFER,
            (2, 1),
            [("/inputResponses/b/n", "7", "8")],
        ),
        *[
            (
                [(CALL, asks("a", state=issued))],
                1,
                retry(CALL, {"a": YES}, state=issued),
                Reason.ANSWERS_DIFFER,
                (1, 0),
                ENDED,
            )
            for issued in (None, STATE)
        ],
        (
            [ROUNDS[0], (retry(CALL, {"a": YES}, state=STATE + "?"), refusal(CALL))],
            1,
            retry(CALL, {"a": NO}, state=STATE + "?"),
            Reason.ANSWERS_DIFFER,
            (2, 0),
            None,
        ),
        # Right answers without the state lack the state; earlier asks don't matter.
        (LATER, 2, retry(CALL, {"b": YES}), Reason.STATE_MISSING, (1, 1), None),
        # Where an ask without state has these keys, nothing says that a state is missing.
        (AGAIN, 1, retry(CALL, {"a": NO}), Reason.ANSWERS_DIFFER, (1, 1), None),
        (ROUNDS, 0, retry(CALL, {"c": YES}), Reason.STATE_MISSING, (1, 0), None),
        (ROUNDS, 0, retry(CALL, {"b": YES}), Reason.STATE_MISSING, (1, 1), None),
        (ROUNDS, 0, retry(CALL, {"a": YES}), Reason.STATE_MISSING, (1, 0), None),
        (
            [(CALL, asks("a", state="T")), (CALL, asks("a", state="U"))],
            0,
            retry(CALL, {"a": 1}, state="S"),
            Reason.STATE_UNKNOWN,
            (1, 0),
            None,
        ),
        (
            [(tool(name), asks("a", state=STATE)) for name in ("one", "two")]
            + [*TWICE],
            0,
            retry(CALL, {"a": YES}, state=STATE),
            Reason.STATE_UNKNOWN,
            (1, 0),
            "this request state belongs to another call",
        ),
        (
            [
                ROUNDS[0],
                (ROUNDS[1][0], text("done")),
                (CALL, asks("a", state=SECOND, words="Sure?")),
                (retry(CALL, {"a": NO}, state=SECOND), text("left")),
            ],
            1,
            retry(CALL, {"a": NO}, state=STATE),
            Reason.ANSWERS_DIFFER,
            (1, 1),
            ELSEWHERE,
        ),
        (
            ASKED,
            0,
            retry(CALL, {"a": YES, "b": {"n": 1}}, state=STATE),
            Reason.OUT_OF_ORDER,
            (1, 1),
            "this retry answers an ask that has not been played yet",
        ),
        (
            [ROUNDS[0], (retry(CALL, {"a": {"value": 1}}, state=STATE), text("done"))],
            1,
            retry(CALL, [{"id": "a", "value": 1}], state=STATE),
            Reason.ANSWERS_DIFFER,
            (1, 1),
            "the answers have the shape `array`, recorded was `map`",
        ),
    ],
)
def test_nearest_recording_explains_a_miss(
    script: Sequence[Step],
    plays: int,
    request_: bytes,
    reason: Reason,
    nearest: tuple[int, int],
    told: str | list[tuple[str, str, str]] | None,
) -> None:
    """After some plays, a miss has a reason, the first of the nearest recordings, and what differs."""
    player = player_of(*script)
    for request, _ in script[:plays]:
        play(player, request)

    miss = missed(player, request_)

    assert miss.nearest is not None
    assert miss.reason is reason
    assert (miss.nearest.interaction, miss.nearest.turn) == nearest
    assert told in (None, miss.detail, found(miss))


def posted_miss(request: Request, *answered: Cassette, played: int = 0) -> Miss:
    """Return why a posted response is none of the recorded ones, each the answer to one push."""
    numbered: list[RecordedInteraction] = []
    for cassette in answered:
        for interaction in cassette.interactions:
            numbered.append(replace(interaction, number=len(numbered) + 1))

    player = Player(replace(answered[0], interactions=tuple(numbered)))
    for entries in player.entries.by_interaction[:played]:
        player.played_part.play_counts[entries[-1]] += 1

    return missed(player, in_sealed_session(request))


def test_wrong_answer_to_a_pushed_question_is_told_by_its_field() -> None:
    """The pushed request with the same id in the same session is the question."""
    cassette = asked_once(elicit(), YES, CALL, text("done"))

    miss = posted_miss(posted(elicit(), NO), cassette)

    assert (miss.reason, miss.detail) == (
        Reason.ANSWERS_DIFFER,
        "the question was answered in another way",
    )

    assert miss.nearest is not None

    question = miss.nearest.answered_question
    call = miss.nearest.continued_entry

    assert question is not None
    assert call is not None
    assert (str(call.key), question.key) == (
        'tools/call "deploy"',
        "elicitation-1",
    )
    assert found(miss) == [
        ("/action", '"accept"', '"decline"'),
        ("/content", '{"ok":true}', None),
    ]


@pytest.mark.parametrize("answer", [YES, NO])
def test_answer_that_is_posted_to_another_url_is_told_by_its_path(answer: Any) -> None:
    """Whatever it says: the question was answered elsewhere."""
    cassette = asked_once(elicit(), YES, CALL, text("done"))

    elsewhere = replace(posted(elicit(), answer), target="/other")
    miss = posted_miss(elsewhere, cassette)

    assert (miss.reason, miss.detail) == (
        Reason.UNKNOWN_METHOD,
        "this was answered at POST /mcp, not at POST /other",
    )

    assert found(miss) == [("/#path", '"/mcp"', '"/other"')]
    assert (
        reported_miss(miss, cassette).fixes[0] == "check the URL that the client uses"
    )


def test_answer_to_nothing_that_was_asked_is_like_other_traffic() -> None:
    """A response with another id, or in another session, answers no recorded question."""
    cassette = asked_once(elicit(), YES, CALL, text("done"))
    elsewhere = posted(elicit(), NO)
    elsewhere = replace(elsewhere, headers=elsewhere.headers[:-1])

    for request, place in (
        (posted(elicit("other"), NO), "/id"),
        (elsewhere, "/result/action"),
    ):
        miss = posted_miss(request, cassette)

        assert miss.reason is Reason.ARGUMENTS_DIFFER
        assert place in [difference.pointer for difference in miss.differences]


SIMPLE = tool("deploy", env="prod")

INITIALIZE = rpc("initialize", {"protocolVersion": "2025-11-25"})

RECORDED = ((INITIALIZE, {"protocolVersion": "2025-11-25"}), (SIMPLE, text("done")))

PING = rpc("ping", number="p-1")

DISCOVER = rpc("server/discover", {}, number="server-discover-probe-1")

LISTENING = get("/mcp", ("Accept", EVENT_STREAM))

LEAVING = Request("DELETE", "/mcp", (("Mcp-Session-Id", "s"),), b"")

WELL_KNOWN = get("/.well-known/oauth-protected-resource/mcp")

HARMLESS = (
    PING,
    DISCOVER,
    notification("notifications/roots/list_changed"),
    LISTENING,
    LEAVING,
    WELL_KNOWN,
)


def harmless(player: Player, request: bytes | Request) -> HarmlessReply:
    """Return the answer of any server, which the request must get."""
    decision = player.request_received(as_request(request))
    assert isinstance(decision, HarmlessReply)
    return decision


def test_ping_gets_an_empty_result_with_its_own_id() -> None:
    """A ping that was not recorded is answered, and neither played nor missed."""
    player = player_of(*RECORDED)
    decision = harmless(player, PING)

    assert decision.status == 200
    assert json.loads(decision.body) == {"jsonrpc": "2.0", "id": "p-1", "result": {}}
    assert dict(decision.headers) == {"Content-Type": "application/json"}
    assert (player.tally.harmless, player.tally.misses, player.tally.reply_count) == (
        [decision],
        [],
        0,
    )


def test_discovery_is_refused_by_a_recorded_server_of_2025() -> None:
    """Where `initialize` was recorded, `server/discover` is a method that the server lacks."""
    error = json.loads(harmless(player_of(*RECORDED), DISCOVER).body)["error"]

    assert error == {"code": -32601, "message": "Method not found"}
    assert (
        missed(player_of((SIMPLE, text("done"))), DISCOVER).reason
        is Reason.UNKNOWN_METHOD
    )


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (notification("notifications/progress", progressToken=7, progress=1), 202),
        (LISTENING, 405),
        (LEAVING, 204),
        (WELL_KNOWN, 404),
        (get("/tenant/.well-known/openid-configuration"), 404),
    ],
)
def test_answer_is_a_status_without_a_body(
    request_: bytes | Request, status: int
) -> None:
    """Notifications, streams and sessions that are not offered, and metadata get their status."""
    decision = harmless(player_of(*RECORDED), request_)

    assert (decision.status, decision.body) == (status, b"")


@pytest.mark.parametrize("request_", HARMLESS)
def test_strict_replay_misses_them(request_: bytes | Request) -> None:
    """On demand what was not recorded is a miss, harmless or not."""
    player = player_of(*RECORDED, strict=True)

    assert missed(player, request_).reason is Reason.UNKNOWN_METHOD
    assert player.tally.harmless == []


@pytest.mark.parametrize("body", [PING, DISCOVER, notification("notifications/x")])
def test_messages_to_another_url_are_misses(body: bytes) -> None:
    """Nothing was posted there while recording, so the client has the wrong URL."""
    player = player_of(*RECORDED)

    assert missed(player, post(body, target="/other")).reason is Reason.UNKNOWN_METHOD


@pytest.mark.parametrize(
    "request_",
    [
        get("/mcp"),
        get("/other", ("Accept", EVENT_STREAM)),
        get("/health?next=/.well-known/x"),
        Request("DELETE", "/mcp", (), b""),
        Request("HEAD", "/.well-known/x", (), b""),
        rpc("tools/list"),
        notification("tools/call", name="deploy"),
        tool("other"),
    ],
)
def test_other_requests_are_misses(request_: bytes | Request) -> None:
    """What depends on the server is never answered unless it was recorded."""
    missed(player_of(*RECORDED), request_)


def test_recorded_requests_are_played() -> None:
    """A refusal of a ping that was recorded comes back, and no stream is declined beside one."""
    player = player_of(
        (PING, text("recorded")),
        (get("/mcp", ("X", "7"), ("Accept", EVENT_STREAM)), b"recorded"),
        (get("/mcp?new=1", ("Accept", EVENT_STREAM)), b"new"),
    )

    assert said(play(player, PING)) == "recorded"
    assert play(player, LISTENING) == b"recorded"
    assert player.tally.harmless == []


def test_requests_over_a_pipe_may_be_harmless_too() -> None:
    """A pipe has one endpoint: whoever initialized there may ping, and gets a message."""

    def line(body: bytes) -> Request:
        return Request(NO_METHOD, "", (), body)

    recorded = exchange(
        line(INITIALIZE), Answer((answer(INITIALIZE, {}),), (), NO_STATUS)
    )
    player = Player(cassette_with(([recorded], ())))
    sent = (PING, DISCOVER, notification("notifications/x"))
    bodies = [harmless(player, line(body)).body for body in sent]

    assert json.loads(bodies[0])["result"] == {}
    assert json.loads(bodies[1])["error"]["code"] == -32601
    assert bodies[2] == b""
