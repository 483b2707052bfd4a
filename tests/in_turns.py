"""A transport of the Python SDK's HTTP client that goes from replica to replica."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client


class InTurns(httpx2.AsyncHTTPTransport):
    """Sends each request to the next of several ports, on connections that are kept."""

    def __init__(self, ports: Sequence[int]) -> None:
        super().__init__()
        self._ports: Iterator[int] = cycle(ports)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request to the replica whose turn it is."""
        request.url = request.url.copy_with(port=next(self._ports))
        return await super().handle_async_request(request)


@asynccontextmanager
async def reaching(urls: Sequence[str]) -> AsyncIterator[Any]:
    """Give the SDK's transport to several replicas, each request to the next one."""
    ports = [httpx2.URL(url).port or 0 for url in urls]
    async with httpx2.AsyncClient(transport=InTurns(ports), timeout=None) as http:
        yield streamable_http_client(urls[0], http_client=http)
