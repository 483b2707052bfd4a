"""An MCP server on FastMCP whose tools run as tasks of its in-memory backend."""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
from datetime import timedelta

import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

server = FastMCP("bookings", version="1.0.0")
server.add_extension(TasksExtension())
TASK = TaskConfig(poll_interval=timedelta(milliseconds=50))


def ask(**fields: str) -> InputRequiredResult:
    """Ask for one text under each key, in these words."""
    questions = {
        key: ElicitRequest(
            params=ElicitRequestFormParams(
                message=message,
                requested_schema={
                    "type": "object",
                    "properties": {key: {"type": "string"}},
                },
            )
        )
        for key, message in fields.items()
    }
    return InputRequiredResult(input_requests=questions)


@server.tool(task=TASK)
async def book(seats: int, ctx: Context) -> str | InputRequiredResult:
    """Ask for two texts at once, and then for another one."""
    await asyncio.sleep(0.05)
    answers = ctx.input_responses
    if answers is None:
        return ask(name="Whose name?", mail="Which address?")
    if "name" in answers:
        return ask(meal=f"Which meal for {answers['name'].content['name']}?")

    return f"{seats} seats, {answers['meal'].content['meal']}"


@server.tool(task=TASK)
async def wait() -> str:
    """Wait for somebody who cancels it."""
    await asyncio.sleep(20)
    return "waited"


@server.tool(task=TASK)
async def fail() -> str:
    """Fail."""
    raise ValueError("no seats")


@server.tool(task=TASK)
async def count(words: str) -> str:
    """Work for a moment."""
    await asyncio.sleep(0.05)
    return str(len(words.split()))


class AtOnce(uvicorn.Server):
    """A server that does not wait for the tasks under way when it is to end."""

    def handle_exit(self, *_: object) -> None:
        """End."""
        os._exit(0)


def main() -> None:
    """Serve until SIGTERM, or until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--stdio", action="store_true")
    options = parser.parse_args()
    if options.stdio:
        asyncio.run(server.run_stdio_async(show_banner=False))
        return

    listener = socket.create_server(("127.0.0.1", options.port))
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(
        server.http_app(), log_level="critical", timeout_graceful_shutdown=0
    )
    AtOnce(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
