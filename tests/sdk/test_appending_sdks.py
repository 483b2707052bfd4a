"""Appending with the official SDKs: their states die with the server, and conversations go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness import (
    SIDES,
    Run,
    RunClient,
    Side,
    StartServer,
    listening,
    record_command,
    replay_command,
)

FLOW = ("--flow", "release-train")
"""Three rounds; each ask has a state that only the running server can read, or has signed."""


def flow(client: RunClient, side: Side, url: str, *options: str) -> Run:
    """Run the three rounds."""
    return client(side, url, *FLOW, *options)


@pytest.mark.parametrize("side", SIDES)
def test_declined_round_is_appended_to_an_accepted_one(
    side: Side, start_server: StartServer, run_client: RunClient, tmp_path: Path
) -> None:
    """A restarted server is led to the second of three asks, and both conversations replay."""
    cassette = tmp_path / "cassette.json"
    decline = ("--decline", "Which window?")
    with start_server(side, 0) as server, listening(record_command(server.url, cassette)) as proxy:
        accepted = flow(run_client, side, proxy.url)
    assert accepted.code == 0, accepted
    before = json.loads(cassette.read_bytes())

    with start_server(side, 0) as server:
        direct = flow(run_client, side, server.url, *decline)
        with listening(record_command(server.url, cassette, "--append")) as proxy:
            declined = flow(run_client, side, proxy.url, *decline)
    assert proxy.code == 0, proxy.stderr
    assert declined == direct
    assert declined.stdout != accepted.stdout
    assert proxy.stderr.count("led the server to") == 1
    after = json.loads(cassette.read_bytes())
    count = len(before["interactions"])
    assert after["interactions"][:count] == before["interactions"]
    (added,) = after["interactions"][count:]
    assert added["branch"]["turn"] == 2
    assert len(added["elicitation_turns"]) > 2

    whole = cassette.read_bytes()
    with listening(record_command("http://127.0.0.1:9/mcp", cassette, "--append")) as proxy:
        assert flow(run_client, side, proxy.url, *decline) == declined
    assert proxy.code == 0, proxy.stderr
    assert "stays as it is, 0 exchanges recorded" in proxy.stderr
    assert cassette.read_bytes() == whole

    with listening(replay_command(cassette)) as player:
        assert flow(run_client, side, player.url) == accepted
    assert player.code == 0, player.stderr
    with listening(replay_command(cassette)) as player:
        assert flow(run_client, side, player.url, *decline) == declined
    assert player.code == 0, player.stderr
