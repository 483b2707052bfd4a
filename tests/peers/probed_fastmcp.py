"""Servers of FastMCP that ask before they act, by hand: at once, or as tasks (`--style tasks`)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fastmcp import Context, FastMCP
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp_types import InputRequiredResult
from probed_python import deploy, resize, serve, wipe


def made(poll: TaskConfig | None) -> Any:
    """Make the server."""
    server = FastMCP("probed")
    if poll is not None:
        server.add_extension(TasksExtension())

    @server.tool(name="deploy", task=poll)
    async def _(env: str, ctx: Context) -> str | InputRequiredResult:
        return deploy(env, ctx.input_responses, ctx.request_state)

    @server.tool(name="wipe", task=poll)
    async def _(env: str, ctx: Context) -> str | InputRequiredResult:
        return wipe(env, ctx.input_responses, ctx.request_state)

    @server.tool(name="resize", task=poll)
    async def _(group: str, ctx: Context) -> str | InputRequiredResult:
        return resize(group, ctx.input_responses, ctx.request_state)

    return server.http_app()


def at_once() -> Any:
    """Make the server whose calls answer at once."""
    return made(None)


def as_tasks() -> Any:
    """Make the server whose calls are tasks."""
    return made(TaskConfig(poll_interval=timedelta(milliseconds=20)))


if __name__ == "__main__":
    serve({"guard": at_once, "tasks": as_tasks})
