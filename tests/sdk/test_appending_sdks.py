"""Appending with the Python SDK: its states die with the server, and conversations go on."""

from __future__ import annotations

import json
from pathlib import Path

from processes import (
    Run,
    RunClient,
    StartServer,
    listening,
    record_command,
    replay_command,
)

FLOW = ("--flow", "release-train")
"""Three rounds; each ask has a state that only the running server can read."""


def flow(client: RunClient, url: str, *options: str) -> Run:
    """Run the three rounds."""
    return client("python", url, *FLOW, *options)


def test_declined_round_is_appended_to_an_accepted_one(
    start_server: StartServer, run_client: RunClient, tmp_path: Path
) -> None:
    """The conversation is repeated with a restarted server up to the second of three asks, and both conversations replay."""
    cassette = tmp_path / "cassette.json"
    decline = ("--decline", "Which window?")
    with (
        start_server("python", 0) as server,
        listening(record_command(server.url, cassette)) as proxy,
    ):
        accepted = flow(run_client, proxy.url)

    assert accepted.code == 0, accepted

    before = json.loads(cassette.read_bytes())

    with start_server("python", 0) as server:
        direct = flow(run_client, server.url, *decline)
        with listening(record_command(server.url, cassette, "--append")) as proxy:
            declined = flow(run_client, proxy.url, *decline)

    assert proxy.code == 0, proxy.stderr
    assert declined == direct
    assert declined.stdout != accepted.stdout
    assert proxy.stderr.count("repeated the conversation up to") == 1

    after = json.loads(cassette.read_bytes())
    count = len(before["interactions"])

    assert after["interactions"][:count] == before["interactions"]

    # What may depend on the new call is asked anew too.
    added, listed = after["interactions"][count:]

    assert listed["request"]["body"]["method"] == "tools/list"
    assert added["branch"]["turn"] == 2
    assert len(added["elicitation_turns"]) > 2

    whole = cassette.read_bytes()
    with listening(
        record_command("http://127.0.0.1:9/mcp", cassette, "--append")
    ) as proxy:
        assert flow(run_client, proxy.url, *decline) == declined

    assert proxy.code == 0, proxy.stderr
    assert "stays as it is, 0 exchanges recorded" in proxy.stderr
    assert cassette.read_bytes() == whole

    with listening(replay_command(cassette)) as player:
        assert flow(run_client, player.url) == accepted

    assert player.code == 0, player.stderr

    with listening(replay_command(cassette)) as player:
        assert flow(run_client, player.url, *decline) == declined

    assert player.code == 0, player.stderr
