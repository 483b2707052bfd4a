"""A client on the Python SDK, v1 or v2, over Streamable HTTP, HTTP+SSE or stdio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp
from mcp.client.sse import sse_client
from steps import Answers, Connection, Session, command_in, main

IS_V1 = not hasattr(mcp, "Client")
if IS_V1:
    from mcp import types
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client
else:
    import mcp_types as types


def server_at(target: str) -> Any:
    """Return what the SDK connects to, given a URL or a command."""
    if command := command_in(target):
        server = mcp.StdioServerParameters(command=command[0], args=command[1:])
        return stdio_client(server) if IS_V1 else server

    if target.endswith("/sse"):
        return sse_client(target)
    return streamable_http_client(target) if IS_V1 else target


@asynccontextmanager
async def opened(target: str, session: Session) -> AsyncIterator[Connection]:
    """Open a session whose questions a scenario answers."""
    answers = Answers(session, types)
    options: dict[str, Any] = {
        "elicitation_callback": answers.elicit,
        "sampling_callback": answers.sample,
        "list_roots_callback": answers.roots,
        "message_handler": session.heard,
        "client_info": types.Implementation(name="client", version="1.0.0"),
    }
    if IS_V1:
        async with (
            server_at(target) as (read, write, *_),
            mcp.ClientSession(read, write, **options) as client,
        ):
            await client.initialize()
            yield Connection(client, mcp.McpError)
    else:
        async with mcp.Client(
            server_at(target), mode=session.mode, **options
        ) as client:
            yield Connection(client, mcp.MCPError)


if __name__ == "__main__":
    main(opened)
