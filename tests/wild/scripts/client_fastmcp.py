"""A client on FastMCP, in either era, over Streamable HTTP, HTTP+SSE or stdio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from mcp import MCPError
from steps import ROOT, Answers, Connection, Session, command_in, main, plain


def server_at(target: str) -> Any:
    """Return what FastMCP connects to, given a URL or a command."""
    if command := command_in(target):
        return StdioTransport(command[0], command[1:], keep_alive=False)
    return target


@asynccontextmanager
async def opened(target: str, session: Session) -> AsyncIterator[Connection]:
    """Open a session whose questions a scenario answers."""

    async def elicit(message: str, kind: Any, params: Any, context: Any) -> Any:
        return await Answers(session, types).elicit(context, params)

    async def sample(messages: Any, params: Any, _: Any) -> Any:
        return types.CreateMessageResult.model_validate(
            await session.sample(plain(params))
        )

    async def roots(_: Any) -> list[Any]:
        await session.roots()
        return [types.Root.model_validate(ROOT)]

    async with Client(
        server_at(target),
        mode=session.mode,
        elicitation_handler=elicit,
        sampling_handler=sample,
        roots=roots,
        message_handler=session.heard,
        client_info=types.Implementation(name="client", version="1.0.0"),
    ) as client:
        yield Connection(client, MCPError, "_mcp", "progress_handler")


if __name__ == "__main__":
    main(opened)
