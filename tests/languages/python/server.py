"""A server on the Python SDK: each of its tools asks the client something, and tells the answer.

A client of 2026-07-28 is asked by the result of its call, one of before by pushed requests.
"""

from __future__ import annotations

import argparse
import socket
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)

server = MCPServer("plans", version="1.0.0", log_level="CRITICAL")
Answer = ElicitResult | CreateMessageResult | ListRootsResult
ANSWERS: dict[str, type[Any]] = {
    "sampling/createMessage": CreateMessageResult,
    "elicitation/create": ElicitResult,
    "roots/list": ListRootsResult,
}


def form(message: str, field: str, kind: str) -> ElicitRequest:
    """Ask for one field."""
    schema = {
        "type": "object",
        "properties": {field: {"type": kind}},
        "required": [field],
    }

    params = ElicitRequestFormParams(message=message, requested_schema=schema)
    return ElicitRequest(params=params)


NAME = form("Which plan?", "name", "string")
CONFIRM = form("Start it?", "confirm", "boolean")
SIGNIN = ElicitRequestURLParams(
    message="Sign in", url="https://example.com/auth", elicitation_id="signin-1"
)
PROMPT = SamplingMessage(role="user", content=TextContent(text="Write the plan"))
DRAFT = CreateMessageRequestParams(messages=[PROMPT], max_tokens=100)


def spell(answer: Any) -> str:
    """Tell a client's answer in words that are the same in all languages."""
    match answer:
        case ElicitResult(action=action, content=content):
            values = sorted(map(_word, (content or {}).values()))
            return " ".join([action, *values])
        case CreateMessageResult(content=TextContent(text=text)):
            return text
        case ListRootsResult(roots=roots):
            return " ".join(str(root.uri) for root in roots)

    raise TypeError(f"an answer of a kind that nobody asked for: {answer}")


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


async def push(ctx: Context, question: Any) -> str:
    """Ask while the call runs, as servers do before 2026-07-28."""
    answer = await ctx.session.send_request(question, ANSWERS[question.method])
    return spell(answer)


async def ask(ctx: Context, question: Any) -> str | InputRequiredResult:
    """Ask one question."""
    if (ctx.protocol_version or "") < "2026":
        return await push(ctx, question)
    if ctx.input_responses is None:
        return InputRequiredResult(input_requests={"answer": question})
    return spell(ctx.input_responses["answer"])


@server.tool("add", structured_output=False)
async def add() -> str:
    """Ask nothing."""
    return "3"


@server.tool("form", structured_output=False)
async def ask_form(ctx: Context) -> str | InputRequiredResult:
    """Ask for a form."""
    return await ask(ctx, NAME)


@server.tool("url", structured_output=False)
async def ask_url(ctx: Context) -> str | InputRequiredResult:
    """Ask to open a URL."""
    return await ask(ctx, ElicitRequest(params=SIGNIN))


@server.tool("sampling", structured_output=False)
async def ask_model(ctx: Context) -> str | InputRequiredResult:
    """Ask for the words of a model."""
    return await ask(ctx, CreateMessageRequest(params=DRAFT))


@server.tool("roots", structured_output=False)
async def ask_roots(ctx: Context) -> str | InputRequiredResult:
    """Ask where the client's files are."""
    return await ask(ctx, ListRootsRequest())


@server.tool("rounds", structured_output=False)
async def rounds(ctx: Context) -> str | InputRequiredResult:
    """Ask for a name, and then whether to start."""
    if (ctx.protocol_version or "") < "2026":
        named = await push(ctx, NAME)
        return f"{named}, {await push(ctx, CONFIRM)}"

    answers = ctx.input_responses or {}
    if "confirm" in answers:
        named = (ctx.request_state or "").removeprefix("named: ")
        return f"{named}, {spell(answers['confirm'])}"

    if "name" in answers:
        state = f"named: {spell(answers['name'])}"
        return InputRequiredResult(
            input_requests={"confirm": CONFIRM}, request_state=state
        )

    return InputRequiredResult(input_requests={"name": NAME})


def main() -> None:
    """Serve until SIGTERM, or until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--era", choices=["2025", "2026"], help="it speaks both")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--stdio", action="store_true")
    options = parser.parse_args()
    if options.stdio:
        server.run("stdio")
        return

    listener = socket.create_server(("127.0.0.1", options.port))
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(
        server.streamable_http_app(), log_level="critical", timeout_graceful_shutdown=0
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
