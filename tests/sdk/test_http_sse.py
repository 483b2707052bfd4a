"""HTTP+SSE (2024-11-05) with the SDKs: the Python one's server, the TypeScript one's client."""

from __future__ import annotations

import sys
from pathlib import Path

from processes import PEERS, listening, record_command, replay_command, run

SERVER = (sys.executable, str(PEERS / "server_streams.py"), "--sse")
CLIENT = ("node", str(PEERS / "client_sse.mjs"))


def test_progress_comes_before_the_response(tmp_path: Path) -> None:
    """A client that handles responses first has progress all the same, unless it is too busy to read."""
    path = tmp_path / "c.json"
    with listening(SERVER) as server, listening(record_command(server.url, path)) as proxy:
        assert run((*CLIENT, proxy.url)).code == 0
    with listening(replay_command(path)) as replay:
        told = run((*CLIENT, replay.url))
    assert replay.code == 0, replay.stderr
    whole = {f"worked on {on} begun done" for on in "abc"}
    assert whole & {*told.stdout.splitlines()}, told
