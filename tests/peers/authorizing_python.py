"""A client on the Python SDK that gets itself a token, by the SDK's own OAuth provider.

Usage: python authorizing_python.py URL
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata


class Storage:
    tokens: Any = None
    client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


class Browser:
    """Follows to where the user would be asked, and takes what comes back."""

    location = ""

    async def open(self, url: str) -> None:
        async with httpx2.AsyncClient() as http:
            self.location = (await http.get(url)).headers["Location"]

    async def returned(self) -> AuthorizationCodeResult:
        told = {
            name: value
            for name, (value,) in parse_qs(urlsplit(self.location).query).items()
        }
        return AuthorizationCodeResult(**told)


async def main(url: str) -> None:
    """Call a tool, and print what it says."""
    browser = Browser()
    metadata = OAuthClientMetadata(
        client_name="authorizing-python",
        redirect_uris=["http://localhost:3030/callback"],
    )

    provider = OAuthClientProvider(
        url, metadata, Storage(), browser.open, browser.returned
    )
    async with (
        httpx2.AsyncClient(auth=provider) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        result = await client.call_tool("whoami", {})
        print(result.content[0].text)


asyncio.run(main(sys.argv[1]))
