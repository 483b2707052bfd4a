"""A server on the Python SDK's v1 line that pushes its questions.

Each comes on the call's own stream or on the stream that the session listens on, whichever a call
wants. `server_typescript_v1.mjs` offers the same tools.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import uuid
from typing import Any, Literal

from mcp import McpError, types
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.session import ServerSession
from mcp.server.streamable_http import (
    GET_STREAM_KEY,
    EventCallback,
    EventMessage,
    EventStore,
)
from sockets import serve

Stream = Literal["call", "get"]
FORM = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
}
LATER_S = 0.05


class Events(EventStore):
    """Keeps all events, under ids that are different in each run."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, types.JSONRPCMessage | None]] = []

    async def store_event(
        self, stream_id: str, message: types.JSONRPCMessage | None
    ) -> str:
        event_id = str(uuid.uuid4())
        self.events.append((event_id, stream_id, message))
        return event_id

    async def replay_events_after(
        self, last_event_id: str, send_callback: EventCallback
    ) -> str | None:
        ids = [event_id for event_id, _, _ in self.events]
        if last_event_id not in ids:
            return None

        place = ids.index(last_event_id)
        stream = self.events[place][1]
        for event_id, stream_id, message in self.events[place + 1 :]:
            if stream_id == stream and message is not None:
                await send_callback(EventMessage(message, event_id))

        return stream


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--port", type=int, default=0)
parser.add_argument("--transport", choices=["http", "sse"], default="http")
parser.add_argument("--stdio", action="store_true")
parser.add_argument(
    "--resumable", action="store_true", help="store events; streams can be resumed"
)
parser.add_argument(
    "--greets", action="store_true", help="ask for roots as soon as it may"
)
parser.add_argument(
    "--stateless-json", action="store_true", help="no sessions and no streams"
)
options = parser.parse_args()

server = FastMCP(
    "wild",
    log_level="CRITICAL",
    event_store=Events() if options.resumable else None,
    retry_interval=1 if options.resumable else None,
    stateless_http=options.stateless_json,
    json_response=options.stateless_json,
)
tasks: set[asyncio.Task[None]] = set()


async def listening(session: ServerSession) -> None:
    """Wait until the session has a stream for what belongs to no call."""
    if options.stdio or options.transport == "sse" or options.stateless_json:
        return

    transports = server.session_manager._server_instances.values()
    (transport,) = [
        transport
        for transport in transports
        if transport._write_stream is session._write_stream
    ]
    while GET_STREAM_KEY not in transport._request_streams:  # noqa: ASYNC110  the SDK tells nobody
        await asyncio.sleep(0.005)


async def related(ctx: Context, stream: Stream) -> str | None:
    """Name the request that a push belongs to, or none."""
    if stream == "call":
        return ctx.request_id

    await listening(ctx.session)
    return None


def shown(result: Any) -> str:
    """Spell a client's answer."""
    tree = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return json.dumps(tree, sort_keys=True, separators=(",", ":"))


async def form(ctx: Context, message: str, stream: Stream) -> str:
    """Ask for a name."""
    request_id = await related(ctx, stream)
    return shown(await ctx.session.elicit_form(message, FORM, request_id))


async def sampled(ctx: Context, prompt: str, stream: Stream) -> str:
    """Ask for a model's words."""
    request_id = await related(ctx, stream)
    content = types.TextContent(type="text", text=prompt)
    message = types.SamplingMessage(role="user", content=content)
    try:
        result = await ctx.session.create_message(
            [message], max_tokens=100, related_request_id=request_id
        )
    except McpError as error:
        return f"refused: {error.error.code} {error.error.message}"

    return shown(result.content)


@server.tool("add", structured_output=False)
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool("fail", structured_output=False)
async def fail() -> str:
    """Fail."""
    raise ValueError("as ever")


@server.tool("ask-form", structured_output=False)
async def ask_form(message: str, stream: Stream, ctx: Context) -> str:
    """Ask for a name."""
    return await form(ctx, message, stream)


@server.tool("ask-url", structured_output=False)
async def ask_url(message: str, stream: Stream, ctx: Context) -> str:
    """Ask to visit a page."""
    page = "https://example.com/auth"
    request_id = await related(ctx, stream)
    return shown(await ctx.session.elicit_url(message, page, "sign-in-1", request_id))


@server.tool("sample", structured_output=False)
async def sample(prompt: str, stream: Stream, ctx: Context) -> str:
    """Ask for a model's words."""
    return await sampled(ctx, prompt, stream)


@server.tool("list-roots", structured_output=False)
async def list_roots(ctx: Context) -> str:
    """Ask for the roots, which this SDK does on the listening stream."""
    await listening(ctx.session)
    return shown(await ctx.session.list_roots())


@server.tool("ask-together", structured_output=False)
async def ask_together(stream: Stream, ctx: Context) -> str:
    """Ask three things at once."""
    answers = await asyncio.gather(
        form(ctx, "Name?", stream),
        sampled(ctx, "Summarize", stream),
        form(ctx, "Other name? (decline)", stream),
    )
    return " ".join(answers)


@server.tool("ask-rounds", structured_output=False)
async def ask_rounds(rounds: int, ctx: Context) -> str:
    """Ask one thing after the other."""
    answers = [await form(ctx, f"Round {number}?", "call") for number in range(rounds)]
    return " ".join(answers)


@server.tool("notify", structured_output=False)
async def notify(steps: int, ctx: Context) -> str:
    """Report progress and write logs, on either stream."""
    await listening(ctx.session)
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
        await ctx.log("info", f"step {step}", logger_name="call")
        await ctx.session.send_log_message("info", f"step {step}", "get")

    return f"{steps} steps"


@server.tool("announce-later", structured_output=False)
async def announce_later(ctx: Context) -> str:
    """Tell after the call that there are other resources."""
    await listening(ctx.session)
    session = ctx.session

    async def announce() -> None:
        await asyncio.sleep(LATER_S)
        await session.send_resource_list_changed()

    task = asyncio.create_task(announce())
    tasks.add(task)
    task.add_done_callback(tasks.discard)

    return "later"


@server.tool("poll", structured_output=False)
async def poll(steps: int, ctx: Context) -> str:
    """Write logs, with the stream closed in between."""
    for step in range(1, steps + 1):
        await ctx.log("info", f"before {step}", logger_name="call")
        await ctx.close_sse_stream()
        await ctx.log("info", f"after {step}", logger_name="call")

    return f"polled {steps}"


def greet() -> None:
    """Ask for the roots of each session as soon as it is there, and announce resources."""
    handle = server._mcp_server._handle_message

    async def handle_and_greet(
        message: Any, session: ServerSession, *rest: Any
    ) -> None:
        await handle(message, session, *rest)
        match message:
            case types.ClientNotification(root=types.InitializedNotification()):
                await listening(session)
                await session.list_roots()
                await session.send_resource_list_changed()

    server._mcp_server._handle_message = handle_and_greet


def main() -> None:
    """Serve until SIGTERM, or until standard input ends."""
    if options.greets:
        greet()

    if options.stdio:
        server.run("stdio")
        return

    is_sse = options.transport == "sse"
    app = server.sse_app() if is_sse else server.streamable_http_app()
    serve(app, options.port, "sse" if is_sse else "mcp")


if __name__ == "__main__":
    main()
