"""An MCP server of 2025-11-25 on the official Python SDK that lets the streams of its calls go.

Its clients come back for the rest, by the id of the last event. `--said` changes what it says, and
`--sse` serves HTTP+SSE, where nothing is let go.
"""

from __future__ import annotations

import argparse
import socket
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp_types import JSONRPCMessage
from starlette.responses import JSONResponse

server = MCPServer("streams", log_level="WARNING")
SAID = {"word": "worked on"}


class Events(EventStore):
    """All events of all streams."""

    def __init__(self) -> None:
        self._events: list[tuple[str, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        self._events.append((stream_id, message))
        return f"event-{len(self._events)}"

    async def replay_events_after(
        self, last_event_id: str, send_callback: EventCallback
    ) -> str:
        place = int(last_event_id.removeprefix("event-"))
        stream, _ = self._events[place - 1]
        for number, (of, message) in enumerate(self._events[place:], place + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, f"event-{number}"))

        return stream


@server.tool("work", structured_output=False)
async def work(on: str, ctx: Context) -> str:
    """Report progress, let the stream go, report more, and say what is done."""
    await ctx.report_progress(1, 2, "begun")
    await ctx.close_sse_stream()
    await ctx.report_progress(2, 2, "done")

    return f"{SAID['word']} {on}"


def of_2025(app: Any) -> Any:
    """Return an application that knows no later revision."""

    async def refusing(scope: Any, receive: Any, send: Any) -> None:
        answer = app
        if dict(scope.get("headers", ())).get(b"mcp-method") == b"server/discover":
            error = {"code": -32601, "message": "Method not found"}
            answer = JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 400)

        await answer(scope, receive, send)

    return refusing


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--said", default=SAID["word"])
    parser.add_argument("--sse", action="store_true")
    options = parser.parse_args()
    SAID["word"] = options.said
    path = "sse" if options.sse else "mcp"
    app = server.streamable_http_app(event_store=Events(), retry_interval=10)
    app = server.sse_app() if options.sse else app
    listener = socket.create_server(("127.0.0.1", 0))
    print(
        f"listening on http://127.0.0.1:{listener.getsockname()[1]}/{path}", flush=True
    )
    config = uvicorn.Config(
        of_2025(app), log_level="critical", timeout_graceful_shutdown=0
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
