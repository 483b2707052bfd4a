from __future__ import annotations

import json

import pytest
from builders import (
    Answer,
    answer,
    as_request,
    exchange,
    get,
    missed,
    notification,
    play,
    player_of,
    post,
    rpc,
    said,
    tool,
)
from messages import text

from mrtr_cassette.core.protocol.calls import read_call
from mrtr_cassette.core.replay.diagnosis import Reason
from mrtr_cassette.core.replay.harmless import Harmless, HarmlessRequests
from mrtr_cassette.core.replay.in_order import Repeat
from mrtr_cassette.core.replay.playable import CassettePlace, playable
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.wire.http import EVENT_STREAM, NO_METHOD, NO_STATUS, Request

CALL = tool("deploy", env="prod")
INITIALIZE = rpc("initialize", {"protocolVersion": "2025-11-25"})
RECORDED = ((INITIALIZE, {"protocolVersion": "2025-11-25"}), (CALL, text("done")))
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


def harmless(player: Player, request: bytes | Request) -> Harmless:
    """Return the answer of any server, which the request must get."""
    decision = player.request_received(as_request(request))
    assert isinstance(decision, Harmless)
    return decision


def test_ping_gets_an_empty_result_with_its_own_id() -> None:
    """A ping that was not recorded is answered, and neither played nor missed."""
    player = player_of(*RECORDED)
    decision = harmless(player, PING)

    assert decision.status == 200
    assert json.loads(decision.body) == {"jsonrpc": "2.0", "id": "p-1", "result": {}}
    assert dict(decision.headers) == {"Content-Type": "application/json"}
    assert (player.harmless, player.misses, player.plays) == ([decision], [], 0)


def test_discovery_is_refused_by_a_recorded_server_of_2025() -> None:
    """Where `initialize` was recorded, `server/discover` is a method that the server lacks."""
    error = json.loads(harmless(player_of(*RECORDED), DISCOVER).body)["error"]

    assert error == {"code": -32601, "message": "Method not found"}
    assert missed(player_of((CALL, text("done"))), DISCOVER).reason is Reason.UNKNOWN_METHOD


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
def test_answer_is_a_status_without_a_body(request_: bytes | Request, status: int) -> None:
    """Notifications, streams and sessions that are not offered, and metadata get their status."""
    decision = harmless(player_of(*RECORDED), request_)

    assert (decision.status, decision.body) == (status, b"")


@pytest.mark.parametrize("request_", HARMLESS)
def test_strict_replay_misses_them(request_: bytes | Request) -> None:
    """On demand what was not recorded is a miss, harmless or not."""
    player = player_of(*RECORDED, strict=True)

    assert missed(player, request_).reason is Reason.UNKNOWN_METHOD
    assert player.harmless == []


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
    assert player.harmless == []


def test_call_that_was_played_up_is_not_harmless() -> None:
    """A recorded ping that may not be repeated is a miss."""
    player = player_of((PING, {}), repeat=Repeat.NEVER)
    play(player, PING)

    assert missed(player, PING).reason is Reason.ALREADY_PLAYED


def test_requests_over_a_pipe_may_be_harmless_too() -> None:
    """A pipe has one endpoint: whoever initialized there may ping, and gets a message."""

    def line(body: bytes) -> Request:
        return Request(NO_METHOD, "", (), body)

    recorded = exchange(line(INITIALIZE), Answer((answer(INITIALIZE, {}),), (), NO_STATUS))
    known = HarmlessRequests([playable(recorded, CassettePlace(1, 0), recorded.request, (), ())])
    bodies = []
    for body in (PING, DISCOVER, notification("notifications/x")):
        decision = known.answer_to(read_call(line(body)))
        assert decision is not None
        bodies.append(decision.body)

    assert json.loads(bodies[0])["result"] == {}
    assert json.loads(bodies[1])["error"]["code"] == -32601
    assert bodies[2] == b""
