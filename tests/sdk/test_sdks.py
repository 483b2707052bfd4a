"""The official SDKs' servers and clients, through the command line, over real sockets."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
from builders import decode_cassette
from processes import (
    TRANSCRIPTS,
    Run,
    RunClient,
    Side,
    StartServer,
    free_port,
    is_refused,
    lasting_part,
    listening,
    peer,
    record_command,
    replay_command,
    run_at,
)

from mrtr_cassette.core.cassette.model import CassetteModel

MISS_CODE = -32010
PAIRS: tuple[tuple[Side, Side], ...] = (
    ("python", "typescript"),
    ("typescript", "python"),
)
TRANSCRIPT = TRANSCRIPTS / "python-sdk.txt"
DECLINES = {
    "deploy": "Deploy to production?",
    "release-train": "Which window?",
    "ask-late": "Finish after 2?",
}
"""An ask without state, an ask in the middle of a chain of states, and one in a stream."""

KEYS = {"deploy": "confirm", "release-train": "window", "ask-late": "confirm"}
# The Python SDK's client lists the tools by itself after it has called one.


@dataclass(frozen=True)
class Recorded:
    """What one client's session with one server left, after the server is gone."""

    client: Side
    cassette: Path
    upstream: str
    live: Run
    recorded: Run


def read(cassette: Path) -> CassetteModel:
    """Decode a cassette."""
    return decode_cassette(cassette.read_bytes(), str(cassette))


def all_played(cassette: Path) -> str:
    """Return the summary of a replay that played every interaction and missed nothing."""
    count = len(read(cassette).interactions)
    return f"played {count} of {count} interactions, no misses"


def flows_of(transcript: str) -> dict[str, list[str]]:
    """Return the lines of each flow."""
    sections = transcript.removeprefix("== ").split("\n== ")
    return {
        lines[0]: lines[1:] for lines in (section.splitlines() for section in sections)
    }


def miss_in(line: str) -> str:
    """Return the text of the miss that a line of a transcript is."""
    kind, code, text = line.split(" ", 2)
    assert (kind, int(code)) == ("error", MISS_CODE)
    message = json.loads(text)
    assert isinstance(message, str)

    return message


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def recorded(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    start_server: StartServer,
    run_client: RunClient,
) -> Recorded:
    """Record all flows of one client with one server, and stop the server."""
    server, client = request.param
    cassette = tmp_path_factory.mktemp("recorded") / "cassette.json"
    with start_server(server, 0) as upstream:
        live = run_client(client, upstream.url)
        through = run_at(record_command(upstream.url, cassette), peer("client", client))

    return Recorded(client, cassette, upstream.url, live, through)


def test_live_transcript_is_the_same_for_every_server_and_client(
    recorded: Recorded,
) -> None:
    """Every client sees the same from every server, so one transcript can stand for all."""
    assert (recorded.live.code, recorded.live.stderr) == (0, "")
    assert recorded.live.stdout == TRANSCRIPT.read_text()


def test_client_sees_the_same_through_the_record_proxy(recorded: Recorded) -> None:
    """A client that talks through the record proxy sees what it sees without it."""
    assert recorded.recorded.stdout == recorded.live.stdout
    assert recorded.recorded.code == 0


def test_replay_needs_no_server(recorded: Recorded) -> None:
    """With the server gone, the other SDK's client sees the recorded conversation, all of it."""
    assert is_refused(recorded.upstream)

    player: Side = "typescript" if recorded.client == "python" else "python"
    replayed = run_at(replay_command(recorded.cassette), peer("client", player))

    assert replayed.stdout == recorded.live.stdout
    assert replayed.stderr.splitlines() == [all_played(recorded.cassette)]
    assert replayed.code == 0


def test_another_answer_is_a_miss_and_no_other(
    recorded: Recorded, run_client: RunClient
) -> None:
    """A decline where an accept was recorded is an error that says so, and fails the replay."""
    player: Side = "typescript" if recorded.client == "python" else "python"
    declining = [
        option for message in DECLINES.values() for option in ("--decline", message)
    ]
    with listening(replay_command(recorded.cassette), signal.SIGINT) as replay:
        declined = run_client(player, replay.url, *declining)

    expected = flows_of(recorded.live.stdout)
    received = flows_of(declined.stdout)

    assert received.keys() == expected.keys()
    assert {
        flow for flow in expected if received[flow] != expected[flow]
    } == DECLINES.keys()

    for flow, message in DECLINES.items():
        *before, last = received[flow]

        assert before == expected[flow][: len(before)]
        assert before[-1].startswith(f'ask form "{message}"')

        text = miss_in(last)
        pointer = f"/inputResponses/{KEYS[flow]}"

        assert text.startswith("miss: answers-differ: ")
        assert f'tools/call "{flow}"' in text
        assert f'{pointer}/action: recorded "accept", received "decline"' in text
        assert f"{pointer}/content: recorded {{" in text
        assert text in replay.stderr

    assert "3 misses (answers-differ 3)" in replay.stderr
    assert (declined.code, replay.code) == (1, 1)


def test_recording_again_changes_the_recording_block_only(
    tmp_path: Path, start_server: StartServer
) -> None:
    """A restarted server's cassette differs in times and state hashes, and nowhere else."""
    port = free_port()
    cassettes = [tmp_path / "first.json", tmp_path / "second.json"]
    client = peer("client", "typescript")
    for cassette in cassettes:
        with start_server("typescript", port) as server:
            ended = run_at(record_command(server.url, cassette), client)

            assert ended.code == 0, ended.stderr

    assert lasting_part(cassettes[0]) == lasting_part(cassettes[1])

    first = read(cassettes[0]).recording
    second = read(cassettes[1]).recording
    for before, after in zip(first.exchanges, second.exchanges, strict=True):
        assert before.number == after.number
        assert before.interaction == after.interaction
        assert before.turn == after.turn

        for hashes in (
            (before.request_state_sha256, after.request_state_sha256),
            (before.echoed_state_sha256, after.echoed_state_sha256),
        ):
            assert hashes[0] != hashes[1] or hashes == (None, None)

    issued = [
        facts for facts in first.exchanges if facts.request_state_sha256 is not None
    ]

    assert len(issued) >= 5
