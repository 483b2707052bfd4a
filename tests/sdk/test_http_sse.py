"""HTTP+SSE (2024-11-05) with the SDKs: the Python one's server, the TypeScript one's client."""

from __future__ import annotations

import sys
from pathlib import Path

from processes import PEERS, PROGRAM, listening, record_command, replay_command, run

SERVER = (sys.executable, str(PEERS / "server_streams.py"), "--sse")
CLIENT = ("node", str(PEERS / "client_sse.mjs"))


def test_progress_comes_before_the_response(tmp_path: Path) -> None:
    """A client that handles responses first has progress all the same, unless it is too busy to read."""
    path = tmp_path / "c.json"
    with (
        listening(SERVER) as server,
        listening(record_command(server.url, path)) as proxy,
    ):
        assert run((*CLIENT, proxy.url)).code == 0

    with listening(replay_command(path)) as replay:
        told = run((*CLIENT, replay.url))

    assert replay.code == 0, replay.stderr

    whole = {f"worked on {on} begun done" for on in "abc"}

    assert whole & {*told.stdout.splitlines()}, told


def test_an_unchanged_server_is_the_same_and_a_changed_one_is_told(
    tmp_path: Path,
) -> None:
    """Each call is posted where the stream of today says; what it says is held to the recording."""
    path = tmp_path / "c.json"
    with listening(SERVER) as server:
        with listening(record_command(server.url, path)) as proxy:
            assert run((*CLIENT, proxy.url)).code == 0

        same = run((*PROGRAM, "verify", str(path), "--upstream", server.url))

    assert same.code == 0, same
    assert same.stdout.endswith(" 6 interactions: 5 same, 1 skipped\n")

    with listening((*SERVER, "--said", "done with")) as server:
        changed = run((*PROGRAM, "verify", str(path), "--upstream", server.url))

    assert changed.code == 1, changed
    assert '+ "done with a"' in changed.stdout
