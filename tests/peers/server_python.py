"""An MCP server on the official Python SDK, for tests: every shape of multi-round-trip request.

It offers what `server_typescript.mjs` offers, with the same texts, so that a client's transcript
does not depend on which of the two answered. Request state is sealed by the SDK's default.
"""

from __future__ import annotations

import argparse
import json
import socket
from typing import Annotated

import uvicorn
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from mcp_types import (
    CallToolResult,
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
from pydantic import BaseModel

server = MCPServer("releases", version="1.0.0", log_level="WARNING")


def form(key: str, message: str, kind: str = "string") -> ElicitRequest:
    """Ask for one field, named like the key of the question."""
    schema = {"type": "object", "properties": {key: {"type": kind}}, "required": [key]}
    return ElicitRequest(
        params=ElicitRequestFormParams(message=message, requested_schema=schema)
    )


def ask(state: str | None = None, **forms: ElicitRequest) -> InputRequiredResult:
    """Require the answers of all `forms` in one round."""
    return InputRequiredResult(input_requests=dict(forms), request_state=state)


def accepted(ctx: Context, key: str) -> object:
    """Return the value that the client entered for `key`, or None if there is none."""
    answer = (ctx.input_responses or {}).get(key)
    if isinstance(answer, ElicitResult) and answer.action == "accept":
        return (answer.content or {}).get(key)
    return None


async def report_steps(ctx: Context, steps: int) -> None:
    """Send one progress notification for each step."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")


@server.tool("add", structured_output=False)
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool("deploy", structured_output=False)
async def deploy(env: str, ctx: Context) -> str | InputRequiredResult:
    """Deploy after the operator confirms."""
    if ctx.input_responses is None:
        return ask(confirm=form("confirm", f"Deploy to {env}?", "boolean"))
    return f"Deployed to {env}" if accepted(ctx, "confirm") else "Deployment cancelled"


@server.tool("tag-release", structured_output=False)
async def tag_release(tag: str, ctx: Context) -> CallToolResult | InputRequiredResult:
    """Tag a release after the operator confirms."""
    if ctx.input_responses is None:
        return ask(confirm=form("confirm", f"Tag {tag}?", "boolean"))

    confirmed = bool(accepted(ctx, "confirm"))
    text = f"Tagged {tag}" if confirmed else "Tagging cancelled by the operator"
    return CallToolResult(content=[TextContent(text=text)], is_error=not confirmed)


@server.tool("provision", structured_output=False)
async def provision(ctx: Context) -> str | InputRequiredResult:
    """Provision a database."""
    if ctx.input_responses is None:
        return ask(
            name=form("name", "Database name?"), region=form("region", "Which region?")
        )

    return f"Provisioned {accepted(ctx, 'name')} in {accepted(ctx, 'region')}"


class Confirm(BaseModel):
    """Answer of the first round of `wipe-cache`."""

    confirm: bool


class Scope(BaseModel):
    """Answer of the second round of `wipe-cache`."""

    scope: str


async def confirm() -> Elicit[Confirm]:
    """Ask whether to wipe at all."""
    return Elicit("Really wipe the cache?", Confirm)


async def scope(_confirmed: Annotated[Confirm, Resolve(confirm)]) -> Elicit[Scope]:
    """Ask what to wipe, once that is confirmed."""
    return Elicit("Which scope?", Scope)


@server.tool("wipe-cache", structured_output=False)
async def wipe_cache(chosen: Annotated[Scope, Resolve(scope)]) -> str:
    """Confirm, then pick a scope, then wipe."""
    return f"Wiped {chosen.scope}"


@server.tool("release-train", structured_output=False)
async def release_train(version: str, ctx: Context) -> str | InputRequiredResult:
    """Approve, schedule and annotate a release train."""
    rounds = {
        "approve": form("approve", f"Approve train {version}?", "boolean"),
        "window": form("window", "Which window?"),
        "notes": form("notes", "Any notes?"),
    }

    known = json.loads(ctx.request_state or "{}")
    known |= {key: accepted(ctx, key) for key in ctx.input_responses or {}}
    for key, question in rounds.items():
        if key not in known:
            return ask(state=json.dumps(known), **{key: question})

    return f"Train {version}: {known['window']}, {known['notes']}"


@server.tool("everything", structured_output=False)
async def everything(ctx: Context) -> str | InputRequiredResult:
    """Ask every kind of question in one round."""
    if ctx.input_responses is None:
        prompt = SamplingMessage(
            role="user", content=TextContent(text="Summarize the diff")
        )
        signin = ElicitRequestURLParams(
            message="Sign in to continue", url="https://example.com/auth"
        )
        return InputRequiredResult(
            input_requests={
                "confirm": form("confirm", "Continue?", "boolean"),
                "signin": ElicitRequest(params=signin),
                "summary": CreateMessageRequest(
                    params=CreateMessageRequestParams(messages=[prompt], max_tokens=200)
                ),
                "roots": ListRootsRequest(),
            }
        )

    match ctx.input_responses:
        case {
            "confirm": ElicitResult(action=confirmed),
            "signin": ElicitResult(action=signed_in),
            "summary": CreateMessageResult(content=TextContent(text=summary)),
            "roots": ListRootsResult(roots=roots),
        }:
            uris = " ".join(str(root.uri) for root in roots)
            return f"confirm {confirmed}, signin {signed_in}, summary {summary}, roots {uris}"

    return "Answers missing"


@server.tool("build", structured_output=False)
async def build(target: str, ctx: Context) -> str | InputRequiredResult:
    """Build a target, which takes a second call."""
    return (
        f"Built {target}"
        if ctx.request_state
        else InputRequiredResult(request_state="started")
    )


@server.tool("count", structured_output=False)
async def count(to: int, ctx: Context) -> str:
    """Count, reporting progress."""
    await report_steps(ctx, to)
    return f"Counted to {to}"


@server.tool("ask-late", structured_output=False)
async def ask_late(steps: int, ctx: Context) -> str | InputRequiredResult:
    """Report progress, then ask, then report progress again."""
    await report_steps(ctx, steps)
    if ctx.input_responses is None:
        return ask(confirm=form("confirm", f"Finish after {steps}?", "boolean"))
    return (
        f"Done after {steps}" if accepted(ctx, "confirm") else f"Stopped after {steps}"
    )


@server.prompt("release-notes")
async def release_notes(version: str, ctx: Context) -> str | InputRequiredResult:
    """Write release notes for an audience."""
    if ctx.input_responses is None:
        return ask(audience=form("audience", "Who reads the notes?"))
    return f"Notes on {version} for {accepted(ctx, 'audience')}"


@server.resource("config://{name}", name="deployment")
async def deployment(name: str, ctx: Context) -> str | InputRequiredResult:
    """Show a configuration after the operator confirms."""
    if ctx.input_responses is None:
        return ask(
            confirm=form("confirm", f"Reveal the {name} configuration?", "boolean")
        )

    return "replicas: 3" if accepted(ctx, "confirm") else "withheld"


@server.resource("config://plain", name="plain")
async def plain() -> str:
    """Show what anybody may read."""
    return "plain"


def main() -> None:
    """Serve until SIGTERM, or until standard input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
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
