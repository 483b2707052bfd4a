"""Clients of the Python SDK whose requests go to two replicas in turns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import cycle

import httpx2
import pytest
from harness import looped, playing
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import Implementation
from peers import client_python as peer
from processes import CASSETTES, TRANSCRIPTS


class InTurns(httpx2.AsyncHTTPTransport):
    """Sends each request to the next of several URLs' ports, on connections that are kept."""

    def __init__(self, urls: Sequence[str]) -> None:
        super().__init__()
        self._ports = cycle([httpx2.URL(url).port for url in urls])

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.url = request.url.copy_with(port=next(self._ports))
        return await super().handle_async_request(request)


async def numbered(urls: list[str], number: int) -> None:
    """Have every flow; each line of the transcript begins with the client's number."""
    peer.PREFIX.set((str(number),))
    async with (
        httpx2.AsyncClient(transport=InTurns(urls), timeout=None) as http,
        Client(
            streamable_http_client(urls[0], http_client=http),
            client_info=Implementation(name="client-python", version="1.0.0"),
            elicitation_callback=peer.elicit,
            sampling_callback=peer.sample,
            list_roots_callback=peer.list_roots,
        ) as client,
    ):
        for name, flow in peer.FLOWS.items():
            peer.say("==", name)
            await flow(client)


@looped
async def test_clients_see_the_same_whichever_replica_they_reach(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two clients that change the replica with every request print what one server made them."""
    cassette = CASSETTES / "python-sdk.json"
    async with AsyncExitStack() as stack:
        replicas = [
            await stack.enter_async_context(playing(cassette, stateless=True)) for _ in range(2)
        ]
        urls = [replica.url for replica in replicas]
        await asyncio.gather(*(numbered(urls[::turn], at) for at, turn in ((1, 1), (2, -1))))

    transcript = (TRANSCRIPTS / "python-sdk.txt").read_text().splitlines()
    printed = capsys.readouterr().out.splitlines()
    for number in (1, 2):
        own = [line.removeprefix(f"{number} ") for line in printed if line.startswith(f"{number} ")]
        assert own == transcript
    plays = [replica.player.plays for replica in replicas]
    assert min(plays) > 10
    assert not any(replica.outcome.misses for replica in replicas)
    assert not {*replicas[0].player.unplayed} & {*replicas[1].player.unplayed}
