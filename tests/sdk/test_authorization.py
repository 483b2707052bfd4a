"""Clients of both SDKs that get themselves a token, recorded and replayed without a network."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from authorizing import Guarded
from harness import looped, playing, taping
from processes import PEERS, run

CLIENTS = {
    "python": (sys.executable, str(PEERS / "authorizing_python.py")),
    "typescript": ("node", str(PEERS / "authorizing_typescript.mjs")),
}


@pytest.mark.parametrize("client", CLIENTS)
@looped
async def test_a_client_is_authorized_by_the_recording(
    client: str, tmp_path: Path, typescript_sdk: None
) -> None:
    """It finds its way through the proxy only, at any port; no token is on disk or in the log."""
    path = tmp_path / "c.json"
    server = Guarded()
    log: list[str] = []
    async with taping(path, server) as tape:
        recorded = await asyncio.to_thread(run, (*CLIENTS[client], tape.url))
        journal = Path(f"{path}.journal").read_text()

    assert recorded.code == 0, recorded.stderr

    # Its server is gone, so nothing that leaves the replay is answered.
    async with playing(path, log=log.append) as replay:
        played = await asyncio.to_thread(run, (*CLIENTS[client], replay.url))

        assert replay.outcome.misses == ()

    assert (played.code, played.stdout) == (0, recorded.stdout), played.stderr

    kept = "\n".join([path.read_text(), journal, *tape.log, *log])

    assert not [token for token in (*server.issued, *server.made_up) if token in kept]
