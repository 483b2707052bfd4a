"""A client on the Python SDK's v2 line, in either era, over Streamable HTTP, HTTP+SSE or stdio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.sse import sse_client
from steps import Answers, Connection, Session, command_in, main


def server_at(target: str) -> Any:
    """Return what the SDK connects to, given a URL or a command."""
    if command := command_in(target):
        return StdioServerParameters(command=command[0], args=command[1:])
    return sse_client(target) if target.endswith("/sse") else target


@asynccontextmanager
async def opened(target: str, session: Session) -> AsyncIterator[Connection]:
    """Open a session whose questions a scenario answers."""
    answers = Answers(session, types)
    async with Client(
        server_at(target),
        mode=session.mode,
        elicitation_callback=answers.elicit,
        sampling_callback=answers.sample,
        list_roots_callback=answers.roots,
        message_handler=session.heard,
        client_info=types.Implementation(name="client", version="1.0.0"),
    ) as client:
        yield Connection(client, MCPError)


if __name__ == "__main__":
    main(opened)
