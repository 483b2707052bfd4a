"""A live server on the official Python SDK, as our own commands use it, in both eras."""

from __future__ import annotations

import pytest
from both_eras import LEGACY, MODERN, ON_PIPES, OVER_HTTP, planned
from harness import looped
from processes import listening
from yarl import URL

from mrtr_cassette.core.record.recorder import Recorder
from mrtr_cassette.shell.http.client import connecting
from mrtr_cassette.shell.pipes.transport import pipe_upstream
from mrtr_cassette.shell.runs.live_server import LiveServer


@pytest.mark.parametrize("transport", ["http", "pipes"])
@looped
async def test_server_is_asked_and_answered_in_both_eras(transport: str) -> None:
    """Three questions, by the result or pushed, on the call's stream or the session's."""
    wanted = "Leaves fall in file:///plans"
    if transport == "pipes":
        for era in (LEGACY, MODERN):
            async with pipe_upstream(ON_PIPES, 2**20, Recorder(seals=True)) as piped:
                server = LiveServer(piped, "the server")
                assert await planned(server, era, on_pipe=True) == wanted
        return
    with listening(OVER_HTTP) as peer:
        for era in (LEGACY, MODERN):
            async with connecting(URL(peer.url).origin(), None) as client:
                server = LiveServer(client, peer.url)
                assert await planned(server, era, on_pipe=False) == wanted
