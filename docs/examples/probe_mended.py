"""The same MCP server, which holds its client to what was asked."""

import sys
from typing import Annotated

from mcp.server.mcpserver import Elicit, MCPServer, Resolve
from pydantic import BaseModel

server = MCPServer("deployments", log_level="WARNING")


class Confirmation(BaseModel, strict=True):
    confirm: bool


async def confirmation(env: str) -> Elicit[Confirmation]:
    return Elicit(f"Deploy to {env}?", Confirmation)


@server.tool(structured_output=False)
async def deploy(
    env: str, answer: Annotated[Confirmation, Resolve(confirmation)]
) -> str:
    """Deploy after somebody confirms."""
    return f"Deployed to {env}" if answer.confirm else "Not deployed"


server.run("streamable-http", port=int(sys.argv[1]))
