"""A client of the Python SDK that goes from replica to replica."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import Implementation
from peers import client_python as peer


class InTurns(httpx2.AsyncHTTPTransport):
    """Sends each request to the next of several ports, on connections that are kept."""

    def __init__(self, ports: Sequence[int]) -> None:
        super().__init__()
        self._ports: Iterator[int] = cycle(ports)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.url = request.url.copy_with(port=next(self._ports))
        return await super().handle_async_request(request)


@asynccontextmanager
async def reaching(urls: Sequence[str]) -> AsyncIterator[Any]:
    """Give the SDK's transport to several replicas, each request to the next one."""
    ports = [httpx2.URL(url).port or 0 for url in urls]
    async with httpx2.AsyncClient(transport=InTurns(ports), timeout=None) as http:
        yield streamable_http_client(urls[0], http_client=http)


async def run_flows(urls: Sequence[str], names: Iterable[str] = peer.FLOWS) -> None:
    """Have flows of the peer, on one connection to each replica."""
    async with (
        reaching(urls) as transport,
        Client(
            transport,
            client_info=Implementation(name="client-python", version="1.0.0"),
            elicitation_callback=peer.elicit,
            sampling_callback=peer.sample,
            list_roots_callback=peer.list_roots,
        ) as client,
    ):
        for name in names:
            peer.say("==", name)
            await peer.FLOWS[name](client)
