"""A server of HTTP+SSE (2024-11-05) on the official Python SDK, which reports the progress of a call."""

from __future__ import annotations

import socket

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("sse", log_level="WARNING")


@server.tool("count", structured_output=False)
async def count(to: int, ctx: Context) -> str:
    """Report each number, and say how many there were."""
    for number in range(1, to + 1):
        await ctx.report_progress(number, to)
    return f"counted to {to}:"


def main() -> None:
    """Serve until SIGTERM."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}/sse", flush=True)
    config = uvicorn.Config(server.sse_app(), log_level="critical", timeout_graceful_shutdown=0)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
