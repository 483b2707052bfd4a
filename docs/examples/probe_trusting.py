"""An MCP server that believes what its client answers."""

import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

server = MCPServer("deployments", log_level="WARNING")
SCHEMA = {
    "type": "object",
    "properties": {"confirm": {"type": "boolean"}},
    "required": ["confirm"],
}


@server.tool(structured_output=False)
async def deploy(env: str, ctx: Context) -> str | InputRequiredResult:
    """Deploy after somebody confirms."""
    answer = (ctx.input_responses or {}).get("confirm")
    if answer is None:
        form = ElicitRequestFormParams(
            message=f"Deploy to {env}?", requested_schema=SCHEMA
        )
        return InputRequiredResult(
            input_requests={"confirm": ElicitRequest(params=form)}
        )
    agreed = (answer.content or {}).get("confirm")
    return f"Deployed to {env}" if agreed else "Not deployed"


server.run("streamable-http", port=int(sys.argv[1]))
