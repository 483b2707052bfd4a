"""Clients of both eras at the recording of a server of the 2025 era."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from builders import (
    JSON_HEADERS,
    Answer,
    answer,
    cassette_of,
    encode_cassette,
    notification,
    post,
    rpc,
)
from harness import looped, playing
from processes import PEERS, run

VERSION = "2025-11-25"
INITIALIZE = rpc(
    "initialize",
    {
        "protocolVersion": VERSION,
        "capabilities": {},
        "clientInfo": {"name": "recorded"},
    },
)
OPENED = {
    "protocolVersion": VERSION,
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "s", "version": "1"},
}
ACCEPTED = Answer((), (), 202)
IN_SESSION = ("Mcp-Session-Id", "a-session")
CLIENTS = {
    "python": (sys.executable, str(PEERS / "negotiating_python.py")),
    "typescript": ("node", str(PEERS / "negotiating_typescript.mjs")),
}


@pytest.mark.parametrize("client", CLIENTS)
@looped
async def test_new_client_talks_to_the_recording_of_an_old_server(
    client: str, tmp_path: Path, typescript_sdk: None
) -> None:
    """What it asks first, and what else it sends by itself, is harmless: it falls back and works."""
    opened = Answer(
        (answer(INITIALIZE, OPENED),),
        (*JSON_HEADERS, ("Mcp-Session-Id", IN_SESSION[1])),
    )

    cassette = cassette_of(
        (INITIALIZE, opened),
        (post(notification("notifications/initialized"), IN_SESSION), ACCEPTED),
        (post(rpc("tools/list"), IN_SESSION), {"tools": []}),
    )

    path = tmp_path / "old.json"
    path.write_bytes(encode_cassette(cassette))

    async with playing(path) as replay:
        done = await asyncio.to_thread(run, (*CLIENTS[client], replay.url))
        harmless = [str(call.call.key()) for call in replay.player.tally.harmless]
        misses = [miss.detail for miss in replay.player.tally.misses]

    assert misses == []
    assert (done.code, done.stdout) == (0, f"{VERSION} 0\n"), done.stderr
    assert {"server/discover", "ping"} <= set(harmless)
