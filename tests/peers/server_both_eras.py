"""An MCP server on the official Python SDK, for tests: asks clients of both eras the same things.

A client of 2026-07-28 is asked by the results of its call, one of before by pushed requests.
"""

from __future__ import annotations

import socket
import sys
from typing import Annotated

import uvicorn
from mcp.server.mcpserver import Elicit, ListRoots, MCPServer, Resolve, Sample
from mcp_types import CreateMessageResult, ListRootsResult, SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("plans", version="1.0.0", log_level="WARNING")


class Name(BaseModel):
    """What the user enters."""

    name: str


async def name() -> Elicit[Name]:
    """Ask for the name of the plan."""
    return Elicit("Which plan?", Name)


async def places(_named: Annotated[Name, Resolve(name)]) -> ListRoots:
    """Ask where the client's files are, once the plan has a name."""
    return ListRoots()


async def draft(
    chosen: Annotated[Name, Resolve(name)],
    _places: Annotated[ListRootsResult, Resolve(places)],
) -> Sample:
    """Have the client's model write the plan."""
    words = TextContent(text=f"Write the plan {chosen.name}")
    return Sample([SamplingMessage(role="user", content=words)], max_tokens=100)


@server.tool("plan", structured_output=False)
async def plan(
    places: Annotated[ListRootsResult, Resolve(places)],
    draft: Annotated[CreateMessageResult, Resolve(draft)],
) -> str:
    """Ask for a name, for roots and for a text, one after the other."""
    assert isinstance(draft.content, TextContent)
    return f"{draft.content.text} in {places.roots[0].uri}"


@server.tool("add", structured_output=False)
async def add(a: int, b: int) -> str:
    """Add two numbers, without a question."""
    return str(a + b)


def main() -> None:
    """Serve until SIGTERM; with `--stdio` on pipes."""
    if "--stdio" in sys.argv:
        server.run("stdio")
        return

    listener = socket.create_server(("127.0.0.1", 0))
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(
        server.streamable_http_app(), log_level="critical", timeout_graceful_shutdown=0
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
