"""An MCP client on the official Python SDK that calls both tools of `server_both_eras.py`.

It is given an era, and a URL or the command of a server; it prints what the calls said, as JSON,
with null for one that failed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp_types import CreateMessageResult, ElicitResult, ListRootsResult, TextContent


async def elicit(_context: Any, _params: Any) -> ElicitResult:
    """Enter a name."""
    return ElicitResult(action="accept", content={"name": "alpha"})


async def sample(_context: Any, _params: Any) -> CreateMessageResult:
    """Write something."""
    text = TextContent(text="done")
    return CreateMessageResult(role="assistant", model="none", content=text)


async def list_roots(_context: Any) -> ListRootsResult:
    """Tell of no files."""
    return ListRootsResult(roots=[])


async def main(era: Any, program: str, *arguments: str) -> None:
    """Call both tools."""
    server: Any = program
    if arguments:
        command = StdioServerParameters(command=program, args=[*arguments])
        server = stdio_client(command)

    said: list[Any] = []
    async with Client(
        server,
        mode=era,
        elicitation_callback=elicit,
        sampling_callback=sample,
        list_roots_callback=list_roots,
    ) as client:
        for name, values in (("plan", {}), ("add", {"a": 1, "b": 2})):
            try:
                result = await client.call_tool(name, values)
            except MCPError:
                said.append(None)
                continue

            said.append([content.model_dump(mode="json") for content in result.content])

    print(json.dumps(said))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
