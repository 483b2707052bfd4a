"""Facts about trials: calls of tools that a server doesn't have, stopping, the nearest recording."""

from __future__ import annotations

import json

import pytest
from builders import (
    Step,
    as_request,
    conversation,
    loaded,
    player_of,
    refusal,
    rpc,
    said,
    sent_now,
    tool,
)
from messages import Json, text

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.texts import combine_cassettes
from mrtr_cassette.core.protocol.any_server import HarmlessReply
from mrtr_cassette.core.replay.deliveries import Play
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.order import History
from mrtr_cassette.core.replay.player import Player

GET = tool("get")
SET = tool("set", to=1)
LIST = rpc("tools/list")
READS = {"annotations": {"readOnlyHint": True}}
TOOLS = {
    "tools": [{"name": "get", **READS}, {"name": "look", **READS}, {"name": "set"}]
}
LISTED: Step = (LIST, TOOLS)
STORE: tuple[Step, ...] = (LISTED, (GET, text("0")), (SET, text("set")))


def failed(words: str) -> Json:
    """Return the result of a tool that failed."""
    return {**text(words), "isError": True}


def told(player: Player, *requests: bytes) -> list[str]:
    """Return what requests get: texts, JSON of errors, or the reasons of misses."""
    words = []
    for request in requests:
        decision = player.request_received(as_request(request))
        if isinstance(decision, Play):
            words.append(said(sent_now(decision)))
        elif isinstance(decision, HarmlessReply):
            body = json.loads(decision.body)
            assert body.pop("id") == json.loads(request)["id"]
            outcome = body.get("error") or body["result"]
            words.append(outcome.get("message") or outcome["content"][0]["text"])
        else:
            words.append(decision.reason.value)

    return words


def strict(*script: Step) -> Player:
    """Return a player that holds all calls of a script to its history."""
    return player_of(*script, history=History.STRICT)


@pytest.mark.parametrize(
    ("recorded", "said_now"),
    [
        ((), "Unknown tool: fly"),
        (
            (
                (
                    tool("walk"),
                    lambda request: refusal(request, -32602, "Tool walk not found"),
                ),
            ),
            "Tool fly not found",
        ),
        (((tool("walk"), failed("no tool 'walk' here")),), "no tool 'fly' here"),
        (((tool("walk"), failed("walk: no walk")),), "Unknown tool: fly"),
        (
            ((tool("content"), failed("no content in the sky")),),
            "Unknown tool: fly",
        ),
    ],
)
def test_unknown_tool_gets_what_the_server_said_of_others(
    recorded: tuple[Step, ...], said_now: str
) -> None:
    """With its own name in it, whatever was written before; it is no miss, and no write."""
    script = []
    for request, response in (*STORE, *recorded, (GET, text("1"))):
        made = response(request) if callable(response) else response
        script.append((request, made))

    player = strict(*script)
    fly = tool("fly", to="moon")

    assert told(player, fly, SET, fly, GET) == [said_now, "set", said_now, "1"]
    assert player.tally.unknown_tools == {"fly": 2}
    assert not player.tally.misses
    assert not player.tally.harmless


def test_tool_is_unknown_only_where_a_whole_list_was_recorded() -> None:
    """Without one, or without its last page, or where it answered, a call is a miss."""
    fly = tool("fly")
    paged = (LIST, {**TOOLS, "nextCursor": "2"})
    hidden = (tool("fly", to="sun"), text("burnt"))

    assert told(strict((GET, text("0"))), fly) == ["unknown-name"]
    assert told(strict(paged, (GET, text("0"))), fly) == ["unknown-name"]
    assert told(strict(*STORE, hidden), fly) == ["arguments-differ"]
    assert told(strict(*STORE), tool("look")) == ["unknown-name"]
    assert told(player_of(*STORE), fly) == ["unknown-name"]


def test_all_requests_get_the_miss_that_stops_a_play() -> None:
    """Before it an unknown tool and a hit are answered; notifications expect nothing."""
    player = strict(*STORE)
    player.stops = True

    assert told(player, GET, tool("fly")) == ["0", "Unknown tool: fly"]
    assert player.stopping_miss_for(as_request(GET)) is None
    assert told(player, tool("look")) == ["unknown-name"]

    (miss,) = player.tally.misses

    assert player.stopping_miss_for(as_request(GET)) is miss
    assert player.stopping_miss_for(as_request(tool("fly"))) is miss

    ping = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'

    assert player.stopping_miss_for(as_request(ping)) is None
    assert player.tally.stopped_request_count == 2


# The nearest recording


def union(*scripts: tuple[Step, ...]) -> Cassette:
    """Return several recordings of a server as one."""
    cassettes = [loaded(conversation(LISTED, *script).cassette()) for script in scripts]
    return combine_cassettes(cassettes)


def diverged(player: Player) -> list[tuple[int, int, bool]]:
    """Return which recordings a play has left, after how many requests, and whether by a miss."""
    found = []
    for divergence in player.tally.divergences.first_divergences:
        found.append(
            (
                divergence.recording,
                divergence.reply_count,
                divergence.explained_miss is not None,
            )
        )

    return found


def test_the_nearest_recording_is_the_one_that_a_play_left_last() -> None:
    """A play that a single recording answers has no divergence; a miss ends all."""
    look = tool("look")
    cassette = union(
        ((GET, text("0")), (SET, text("set"))),
        ((GET, text("0")), (look, text("a"))),
        ((SET, text("set")), (GET, text("1"))),
    )

    template = Player(cassette, history=History.STRICT)
    player = template.fresh_player()

    assert told(player, GET, GET, SET) == ["0", "0", "set"]
    assert diverged(player) == [(2, 0, False), (1, 2, False)]
    assert player.tally.divergences.longest_followed is None

    player = template.fresh_player()

    assert told(player, GET, look, SET) == ["0", "a", "set"]
    assert diverged(player) == [(2, 0, False), (0, 1, False), (1, 2, False)]
    assert (
        player.tally.divergences.longest_followed
        is player.tally.divergences.first_divergences[-1]
    )

    player = template.fresh_player()

    assert told(player, SET, GET, look) == ["set", "1", "other-history"]
    assert diverged(player) == [(1, 0, False), (0, 1, False), (2, 2, True)]


def test_players_of_one_loaded_recording_know_nothing_of_each_other() -> None:
    """Each begins as the first one did, whatever another has played."""
    template = strict(*STORE, (GET, text("1")))
    first = template.fresh_player()
    second = template.fresh_player()

    assert told(first, GET, SET, GET) == ["0", "set", "1"]
    assert told(second, GET, tool("look"), GET) == ["0", "unknown-name", "0"]
    assert told(template.fresh_player(), SET, GET) == ["set", "1"]
    assert (
        first.tally.reply_count,
        len(first.tally.misses),
        len(first.played_part.unplayed_numbers),
    ) == (
        3,
        0,
        1,
    )
    assert isinstance(second.tally.misses[0], Miss)
    assert not template.tally.reply_count
