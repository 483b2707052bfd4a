"""A call that its client cancelled, with the Python SDK on both sides, in the 2025 era."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness import looped
from mcp import Client, MCPError
from mcp_types import TextContent
from processes import listening

from mrtr_cassette import record, replay
from mrtr_cassette.shell.files.disk import Clock
from mrtr_cassette.shell.runs.replaying import replaying

SERVER = """
import asyncio
import socket

import uvicorn
from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("steps", log_level="WARNING")


@server.tool("slow")
async def slow(ctx: Context) -> str:
    await ctx.report_progress(1, 2)
    await asyncio.Event().wait()


@server.tool("step", structured_output=False)
async def step() -> str:
    return "done"


listener = socket.create_server(("127.0.0.1", 0))
print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
app = server.streamable_http_app()
config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=0)
uvicorn.Server(config).run(sockets=[listener])
"""


async def slow(client: Any, *, cancels: bool) -> str:
    """Make the slow call, and cancel it at its progress; return what it was told, if anything."""
    begun = asyncio.Event()

    async def note_progress(*_: object) -> None:
        begun.set()

    calling = asyncio.ensure_future(
        client.call_tool("slow", progress_callback=note_progress)
    )
    await begun.wait()
    if cancels:
        calling.cancel()

    with suppress(asyncio.CancelledError):
        try:
            await calling
        except MCPError as error:
            return str(error)

    return ""


async def step(client: Any) -> str:
    """Make the other call, and return what it was told."""
    content = (await client.call_tool("step")).content[0]
    assert isinstance(content, TextContent)
    return content.text


@looped
async def test_only_a_client_that_cancels_gets_what_followed(tmp_path: Path) -> None:
    """In whatever order it makes its calls; one that never cancels gets a miss."""
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    path = tmp_path / "c.json"
    with listening((sys.executable, str(program))) as server:
        async with (
            record(server.url, path, log=None) as recording,
            Client(recording.url, mode="legacy") as client,
        ):
            told = await slow(client, cancels=True)

            assert (told, await step(client)) == ("", "done")

    async with (
        replay(path, log=None) as session,
        Client(session.url, mode="legacy") as client,
    ):
        assert await step(client) == "done"
        assert await slow(client, cancels=True) == ""

    async def pass_time(_seconds: float) -> None:
        """Let all time pass at once."""

    clock = Clock(time.monotonic, pass_time)
    async with (
        replaying(path, clock=clock) as replaying_session,
        Client(replaying_session.url, mode="legacy") as client,
    ):
        assert await step(client) == "done"
        assert "miss: no-response" in await slow(client, cancels=False)
