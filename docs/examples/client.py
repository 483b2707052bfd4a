"""Deploy through an MCP server that asks before it acts; the URL comes from the environment."""

import asyncio
import os

from mcp import Client
from mcp_types import ElicitResult


async def confirm(context, params):
    print("the server asks:", params.message)
    return ElicitResult(action="accept", content={"confirm": True})


async def main():
    async with Client(os.environ["MRTR_CASSETTE_URL"], elicitation_callback=confirm) as client:
        result = await client.call_tool("deploy", {"env": "production"})
        print("the server says:", result.content[0].text)


asyncio.run(main())
