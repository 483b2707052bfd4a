"""Appending with the official SDKs: their states die with the server, and conversations go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from processes import (
    PEERS,
    SIDES,
    Run,
    RunClient,
    Side,
    StartServer,
    listening,
    record_command,
    replay_command,
    run,
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
    """The conversation is repeated with a restarted server up to the second of three asks, and both conversations replay."""
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
    assert proxy.stderr.count("repeated the conversation up to") == 1
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


LEGACY = """
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
const client = new Client({ name: 'legacy', version: '1.0.0' }, { capabilities: {} });
const transport = new StreamableHTTPClientTransport(new URL(process.env.MRTR_CASSETTE_URL));
await client.connect(transport);
for (const b of process.argv.slice(2)) {
  const { content } = await client.callTool({ name: 'add', arguments: { a: 1, b: Number(b) } });
  console.log(`1 + ${b} = ${content[0].text}, in a session: ${transport.sessionId !== undefined}`);
}
await transport.terminateSession();
await client.close();
"""


def test_session_of_the_2025_era_is_opened_again(start_server: StartServer, tmp_path: Path) -> None:
    """A call that is added in a recorded session goes up in one that the restarted server knows."""
    cassette, program = tmp_path / "c.json", tmp_path / "legacy.mjs"
    program.write_text(LEGACY)
    (tmp_path / "node_modules").symlink_to(PEERS / "node_modules")

    def command(*terms: str) -> tuple[str, ...]:
        return "--", "node", str(program), *terms

    with start_server("python", 0) as server:
        first = run(record_command(server.url, cassette, *command("2")))
    with start_server("python", 0) as server:
        second = run(record_command(server.url, cassette, "--append", *command("2", "3")))
    replayed = run(replay_command(cassette, *command("2", "3")))

    assert (first.code, second.code, replayed.code) == (0, 0, 0), (first, second, replayed)
    added = json.loads(cassette.read_bytes())["interactions"][-1]
    assert added["request"]["http"]["headers"]["mcp-session-id"] == "mrtr-session:1"
    assert "no misses" in replayed.stderr
    lines = ["1 + 2 = 3, in a session: true", "1 + 3 = 4, in a session: true"]
    assert second.stdout.splitlines()[1:] == replayed.stdout.splitlines()[1:] == lines
