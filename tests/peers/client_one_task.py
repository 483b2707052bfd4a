"""An MCP client on FastMCP that calls one tool as a task, and declines or never answers."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport
from fastmcp_tasks import call_tool_task

DEADLINE_S = 1.5


async def decline(message: str, kind: Any, params: Any, _: Any) -> ElicitResult[Any]:
    """Decline whatever is asked."""
    return ElicitResult(action="decline")


async def main(how: str, _: str = "--", *command: str) -> int:
    """Call the tool that asks; return the exit code."""
    program, *arguments = command or ("",)
    server: Any = os.environ.get("MRTR_CASSETTE_URL") or StdioTransport(program, arguments)
    async with Client(server, elicitation_handler=decline) as client:
        task = await call_tool_task(client, "book", {"seats": 2})
        seen: dict[str, None] = {}
        try:
            async with asyncio.timeout(DEADLINE_S):
                while how == "never":
                    seen[(await task.status()).status] = None
        except TimeoutError:
            print(*seen)
            return 1
        print((await task.result()).data)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
