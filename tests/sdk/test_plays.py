"""Plays of `mrtr-cassette serve` with the SDKs: all of a server is under the path of a play."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from authorizing import Guarded
from harness import looped
from playing import serving
from processes import PEERS, TRANSCRIPTS, RunClient, Side, StartServer, listening, run
from standin import upstream

AUTHORIZING = {
    "python": (sys.executable, str(PEERS / "authorizing_python.py")),
    "typescript": ("node", str(PEERS / "authorizing_typescript.mjs")),
}
SSE_SERVER = (sys.executable, str(PEERS / "server_streams.py"), "--sse")
SSE_CLIENT = ("node", str(PEERS / "client_sse.mjs"))


@pytest.mark.parametrize("side", ["python", "typescript"])
def test_what_a_client_sees_in_a_play_is_what_it_sees_directly(
    side: Side, start_server: StartServer, run_client: RunClient, tmp_path: Path
) -> None:
    """Recorded in a play and played without the server: the same lines as without a proxy."""
    directly = (TRANSCRIPTS / "python-sdk.txt").read_text()
    with start_server(side, 0) as server, serving(tmp_path) as serve:
        play = serve.begin("session", upstream=server.url)
        recorded = run_client(side, play["url"])

        assert serve.end(play)["outcome"] == "recorded"

    with serving(tmp_path) as serve:
        play = serve.begin("session")
        played = run_client(side, play["url"])

        assert serve.end(play)["problems"] == []

        play = serve.begin("session")
        declined = run_client(side, play["url"], "--decline", "Deploy to production?")
        ended = serve.end(play)

    assert (recorded.code, played.code) == (0, 0), played
    assert recorded.stdout == directly
    assert played.stdout == directly
    assert declined.stdout != played.stdout
    assert [miss["reason"] for miss in ended["misses"]] == ["answers-differ"]
    assert "decline" in ended["problems"][0]


@pytest.mark.parametrize("client", AUTHORIZING)
@looped
async def test_a_client_is_authorized_within_its_play(
    client: str, tmp_path: Path, typescript_sdk: None
) -> None:
    """Documents, redirects and challenges of the server's origin lead into the play."""
    command = AUTHORIZING[client]
    async with upstream(Guarded(), path="/mcp") as server:
        with serving(tmp_path) as serve:
            play = serve.begin("session", upstream=server.url)
            recorded = await asyncio.to_thread(run, (*command, play["url"]))
            ended = serve.end(play)

    assert recorded.code == 0, recorded.stderr
    assert ended["problems"] == []

    with serving(tmp_path) as serve:
        play = serve.begin("session")
        played = await asyncio.to_thread(run, (*command, play["url"]))
        ended = serve.end(play)

    assert (played.code, played.stdout) == (0, recorded.stdout), played.stderr
    assert ended["problems"] == []


def test_the_endpoint_of_http_sse_is_within_the_play(
    tmp_path: Path, typescript_sdk: None
) -> None:
    """A client of HTTP+SSE posts to the play, whatever path the server names."""
    with listening(SSE_SERVER) as server, serving(tmp_path) as serve:
        play = serve.begin("session", upstream=server.url)
        recorded = run((*SSE_CLIENT, play["url"]))

        assert serve.end(play)["problems"] == []

    with serving(tmp_path) as serve:
        play = serve.begin("session")
        played = run((*SSE_CLIENT, play["url"]))

        assert serve.end(play)["problems"] == []

    assert (recorded.code, played.code) == (0, 0), played
