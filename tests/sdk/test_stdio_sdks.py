"""The official SDKs' servers and clients on pipes, each a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from pipes import recorder

import pytest
from processes import (
    CASSETTES,
    PROGRAM,
    SIDES,
    TRANSCRIPTS,
    Run,
    Side,
    listening,
    peer,
    replay_command,
    run,
)

pytestmark = pytest.mark.usefixtures("typescript_sdk")

PAIRS: tuple[tuple[Side, Side], ...] = (
    ("python", "typescript"),
    ("typescript", "python"),
)
TRANSCRIPT = (TRANSCRIPTS / "python-sdk.txt").read_text()


def server(side: Side) -> tuple[str, ...]:
    """Return the command of a server on pipes."""
    return (*peer("server", side), "--stdio")


def client(side: Side, command: tuple[str, ...] | list[str], *options: str) -> Run:
    """Run a client that starts its server."""
    return run((*peer("client", side), *options, "--", *command))


def replayer(cassette: Path) -> list[str]:
    """Return the command that is the server of a cassette."""
    return [*PROGRAM, "replay", "--stdio", str(cassette)]


def steady(transcript: str) -> list[str]:
    """Return a transcript without the progress that the TypeScript client may lose by itself.

    It has many notifications and the response at once from a pipe, and forgets whom to tell.
    """
    return [line for line in transcript.splitlines() if not line.startswith("progress")]


@pytest.fixture(scope="module")
def cassettes(
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[tuple[Side, Side], Path]:
    """Record each SDK's server with the other SDK's client."""
    folder = tmp_path_factory.mktemp("stdio")
    made = {}
    for of, by in PAIRS:
        output = folder / f"{of}-{by}.json"
        recorded = client(by, recorder(output, *server(of)))
        assert recorded.code == 0, recorded.stderr
        assert steady(recorded.stdout) == steady(TRANSCRIPT)
        made[of, by] = output

    return made


@pytest.mark.parametrize(("of", "by"), PAIRS)
def test_recording_plays_to_the_other_sdks_client(
    cassettes: dict[tuple[Side, Side], Path], of: Side, by: Side
) -> None:
    """The client that didn't record gets what the server had said, and misses nothing."""
    other_side: Side = "typescript" if by == "python" else "python"
    played = client(other_side, replayer(cassettes[of, by]))

    assert played.code == 0, played.stderr
    assert steady(played.stdout) == steady(TRANSCRIPT)
    assert " no misses" in played.stderr or "never played" in played.stderr


def test_typescript_client_starts_its_server_twice(
    cassettes: dict[tuple[Side, Side], Path],
) -> None:
    """Its probe and the server itself are in one cassette, as two sessions."""
    tree = json.loads(cassettes["python", "typescript"].read_bytes())

    first, *others = tree["interactions"]

    assert first["request"]["body"]["id"] == "server-discover-probe-1"
    assert {exchange["request"].get("session") for exchange in others} == {
        "mrtr-session:1"
    }


@pytest.mark.parametrize(("of", "by"), PAIRS)
def test_recording_of_pipes_plays_over_http(
    cassettes: dict[tuple[Side, Side], Path], of: Side, by: Side
) -> None:
    """The same conversation is served over HTTP."""
    with listening(replay_command(cassettes[of, by])) as replay:
        played = run((*peer("client", "python"), replay.url))

    assert (played.code, steady(played.stdout)) == (0, steady(TRANSCRIPT)), (
        replay.stderr
    )


@pytest.mark.parametrize("side", SIDES)
def test_recording_of_http_plays_over_pipes(side: Side) -> None:
    """What was recorded over HTTP is a server that a client starts."""
    played = client(side, replayer(CASSETTES / f"{side}-sdk.json"))

    assert played.code == 0, played.stderr
    assert steady(played.stdout) == steady(TRANSCRIPT)
