"""A server on FastMCP: tools that push their questions, and tools that require input, for both eras."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass

from fastmcp import Context, FastMCP
from mcp_types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
)
from sockets import serve

server = FastMCP("wild")


@dataclass
class Person:
    """What a form asks for."""

    name: str


@server.tool(name="add")
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool(name="fail")
async def fail() -> str:
    """Fail."""
    raise ValueError("as ever")


@server.tool(name="ask-form")
async def ask_form(message: str, ctx: Context) -> str:
    """Ask for a name, with the SDK's own means."""
    answer = await ctx.elicit(message, Person)
    return answer.data.name if answer.action == "accept" else answer.action


@server.tool(name="require-form")
async def require_form(message: str, ctx: Context) -> str | InputRequiredResult:
    """Require a name, as the result of the call."""
    if ctx.input_responses is None:
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        params = ElicitRequestFormParams(
            message=message, requested_schema=schema | {"required": ["name"]}
        )
        return InputRequiredResult(
            input_requests={"name": ElicitRequest(params=params)}
        )

    answer = ctx.input_responses["name"]
    accepted = isinstance(answer, ElicitResult) and answer.action == "accept"
    return str((answer.content or {})["name"]) if accepted else answer.action


@server.tool(name="notify")
async def notify(steps: int, ctx: Context) -> str:
    """Report progress."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")

    return f"{steps} steps"


@server.resource("config://plain", name="plain")
async def plain() -> str:
    """Show what anybody may read."""
    return "plain"


def main() -> None:
    """Serve until SIGTERM, or until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--transport", choices=["http", "sse"], default="http")
    parser.add_argument("--stdio", action="store_true")
    options = parser.parse_args()
    if options.stdio:
        asyncio.run(server.run_stdio_async(show_banner=False))
        return

    path = "sse" if options.transport == "sse" else "mcp"
    serve(server.http_app(transport=options.transport), options.port, path)


if __name__ == "__main__":
    main()
