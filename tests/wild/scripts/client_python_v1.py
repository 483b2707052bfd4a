"""A client on the Python SDK's v1 line, over Streamable HTTP, HTTP+SSE or stdio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from steps import Answers, Connection, Session, command_in, main


def streams(target: str) -> Any:
    """Connect to a URL or a command."""
    if command := command_in(target):
        return stdio_client(StdioServerParameters(command=command[0], args=command[1:]))
    return sse_client(target) if target.endswith("/sse") else streamable_http_client(target)


@asynccontextmanager
async def opened(target: str, session: Session) -> AsyncIterator[Connection]:
    """Open a session whose questions a scenario answers."""
    answers = Answers(session, types)
    async with (
        streams(target) as (read, write, *_),
        ClientSession(
            read,
            write,
            elicitation_callback=answers.elicit,
            sampling_callback=answers.sample,
            list_roots_callback=answers.roots,
            message_handler=session.heard,
            client_info=types.Implementation(name="client", version="1.0.0"),
        ) as client,
    ):
        await client.initialize()
        yield Connection(client, McpError)


if __name__ == "__main__":
    main(opened)
