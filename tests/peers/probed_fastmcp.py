"""Servers of FastMCP that ask before they act.

`--style`: `guard`, by hand; `tasks`, by hand in tasks; `pushed`, by requests of the earlier
revision.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fastmcp import Context, FastMCP
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
from mcp_types import InputRequiredResult
from probed_python import (
    deploy,
    pushed_deploy,
    pushed_resize,
    pushed_wipe,
    resize,
    serve,
    wipe,
)
from server_streams import of_2025


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


def by_pushing() -> Any:
    """Make the server that asks while its calls wait."""
    server = FastMCP("probed")

    @server.tool(name="deploy")
    async def _(env: str, ctx: Context) -> str:
        return await pushed_deploy(env, ctx)

    @server.tool(name="wipe")
    async def _(env: str, ctx: Context) -> str:
        return await pushed_wipe(env, ctx)

    @server.tool(name="resize")
    async def _(group: str, ctx: Context) -> str:
        return await pushed_resize(group, ctx)

    return of_2025(server.http_app())


if __name__ == "__main__":
    serve({"guard": at_once, "tasks": as_tasks, "pushed": by_pushing})
