"""An MCP client on FastMCP that calls one tool as a task, and declines what it is asked."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport
from fastmcp_tasks import call_tool_task


async def decline(message: str, kind: Any, params: Any, _: Any) -> ElicitResult[Any]:
    """Decline whatever is asked."""
    return ElicitResult(action="decline")


async def main(_: str = "--", *command: str) -> None:
    """Call the tool that asks."""
    program, *arguments = command or ("",)
    server: Any = os.environ.get("MRTR_CASSETTE_URL") or StdioTransport(
        program, arguments
    )
    async with Client(server, elicitation_handler=decline) as client:
        task = await call_tool_task(client, "book", {"seats": 2})
        print((await task.result()).data)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
