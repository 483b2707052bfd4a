"""A client on the Python SDK that finds out by itself which version its server speaks.

Usage: python negotiating_python.py URL
"""

from __future__ import annotations

import asyncio
import sys

from mcp.client import Client


async def main(url: str) -> None:
    """Negotiate, list the tools and leave."""
    async with Client(url) as client:
        tools = (await client.list_tools()).tools
        print(client.protocol_version, len(tools))
        await client.send_ping()


asyncio.run(main(sys.argv[1]))
