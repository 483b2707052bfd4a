"""Servers of the official Python SDK that ask before they act, as its documentation shows it.

`--style`: `resolve`, by dependencies that ask, with strict models; `guard`, by hand on `MCPServer`;
`lowlevel`, by hand on `Server`, whose state is as it was written; `pushed`, by requests of the
earlier revision.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import uvicorn
from mcp.server import Server
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from mcp_types import (
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequiredResult,
    ListToolsResult,
    TextContent,
    Tool,
)
from pydantic import BaseModel, Field
from server_streams import of_2025

Outcome = str | InputRequiredResult
Responses = dict[str, Any] | None


# By dependencies


class Confirmation(BaseModel, strict=True):
    """Asked before something is done."""

    confirm: bool


class Scope(BaseModel, strict=True):
    """Asked once it is confirmed."""

    scope: str


class Size(BaseModel, strict=True):
    """Has bounds and choices."""

    size: int = Field(ge=1, le=10)
    kind: Literal["small", "large"]


async def deploying(env: str) -> Elicit[Confirmation]:
    """Ask whether to deploy."""
    return Elicit(f"Deploy to {env}?", Confirmation)


async def wiping(env: str) -> Elicit[Confirmation]:
    """Ask whether to wipe."""
    return Elicit(f"Wipe {env}?", Confirmation)


async def scoping(
    env: str,
    agreed: Annotated[Confirmation, Resolve(wiping)],
) -> Scope | Elicit[Scope]:
    """Ask what to wipe, if anything."""
    if not agreed.confirm:
        return Scope(scope="nothing")
    return Elicit(f"Which scope of {env}?", Scope)


async def sizing(group: str) -> Elicit[Size]:
    """Ask how large."""
    return Elicit(f"How large is {group}?", Size)


def by_dependencies() -> Any:
    """Make the server whose dependencies ask."""
    server = MCPServer("probed", log_level="CRITICAL")

    @server.tool(structured_output=False)
    async def deploy(
        env: str, agreed: Annotated[Confirmation, Resolve(deploying)]
    ) -> str:
        return f"Deployed to {env}" if agreed.confirm else "Not deployed"

    @server.tool(structured_output=False)
    async def wipe(
        env: str,
        agreed: Annotated[Confirmation, Resolve(wiping)],
        chosen: Annotated[Scope, Resolve(scoping)],
    ) -> str:
        return f"Wiped {chosen.scope} of {env}" if agreed.confirm else "Not wiped"

    @server.tool(structured_output=False)
    async def resize(group: str, wanted: Annotated[Size, Resolve(sizing)]) -> str:
        return f"{group} has {wanted.size}, {wanted.kind}"

    visitors = ["forge"]

    @server.tool(structured_output=False)
    async def signin(site: str, ctx: Context) -> str | InputRequiredResult:
        answer = (ctx.input_responses or {}).get("signin")
        if ctx.request_state != site or not isinstance(answer, ElicitResult):
            page = ElicitRequestURLParams(
                message=f"Sign in to {site}",
                url="https://example.com/sign-in",
                elicitation_id=site,
            )

            asked = {"signin": ElicitRequest(params=page)}
            return InputRequiredResult(input_requests=asked, request_state=site)

        if answer.action != "accept" or site not in visitors:
            return "Not signed in"

        visitors.remove(site)
        return f"Signed in to {site}"

    return server.streamable_http_app()


# By hand, as a guard at the beginning of each tool


def form(message: str, **properties: dict[str, Any]) -> ElicitRequest:
    """Ask for members of a form."""
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }
    return ElicitRequest(
        params=ElicitRequestFormParams(message=message, requested_schema=schema)
    )


def entered(responses: Responses, key: str) -> dict[str, Any] | None:
    """Return what a form was filled with."""
    answer = (responses or {}).get(key)
    if not isinstance(answer, ElicitResult) or answer.content is None:
        return None
    return answer.content


def deploy(env: str, responses: Responses, state: str | None) -> Outcome:
    """Ask whether to deploy, and deploy."""
    agreed = entered(responses, "confirm")
    if agreed is None:
        asked = form(f"Deploy to {env}?", confirm={"type": "boolean"})
        return InputRequiredResult(input_requests={"confirm": asked})

    return f"Deployed to {env}" if agreed["confirm"] else "Not deployed"


def wipe(env: str, responses: Responses, state: str | None) -> Outcome:
    """Ask whether to wipe, and what."""
    if state is None:
        agreed = entered(responses, "confirm")
        if agreed is None or not agreed["confirm"]:
            asked = form(f"Wipe {env}?", confirm={"type": "boolean"})
            return InputRequiredResult(input_requests={"confirm": asked})
    elif json.loads(state)["step"] == "confirmed":
        chosen = entered(responses, "scope")
        if chosen is not None:
            return f"Wiped {chosen['scope']} of {env}"

    asked = form(f"Which scope of {env}?", scope={"type": "string"})
    confirmed = json.dumps({"round": 1, "step": "confirmed"})
    return InputRequiredResult(input_requests={"scope": asked}, request_state=confirmed)


def resize(group: str, responses: Responses, state: str | None) -> Outcome:
    """Ask how large, and resize."""
    wanted = entered(responses, "wanted")
    if wanted is None:
        asked = form(
            f"How large is {group}?",
            size={"type": "integer", "minimum": 1, "maximum": 10},
            kind={"type": "string", "enum": ["small", "large"]},
        )
        return InputRequiredResult(input_requests={"wanted": asked})

    return f"{group} has {wanted['size']}, {wanted['kind']}"


def on_the_sdk() -> Any:
    """Make the server whose tools ask by hand."""
    server = MCPServer("probed", log_level="CRITICAL")

    @server.tool("deploy", structured_output=False)
    async def _(env: str, ctx: Context) -> str | InputRequiredResult:
        return deploy(env, ctx.input_responses, ctx.request_state)

    @server.tool("wipe", structured_output=False)
    async def _(env: str, ctx: Context) -> str | InputRequiredResult:
        return wipe(env, ctx.input_responses, ctx.request_state)

    @server.tool("resize", structured_output=False)
    async def _(group: str, ctx: Context) -> str | InputRequiredResult:
        return resize(group, ctx.input_responses, ctx.request_state)

    return server.streamable_http_app()


GUARDS = {"deploy": ("env", deploy), "wipe": ("env", wipe), "resize": ("group", resize)}


def on_low_level() -> Any:
    """Make the same server with the SDK's own base, which seals no state."""

    async def list_tools(_ctx: Any, _params: Any) -> ListToolsResult:
        tools = []
        for name, (argument, _) in GUARDS.items():
            schema = {"type": "object", "properties": {argument: {"type": "string"}}}
            tools.append(Tool(name=name, input_schema=schema))

        return ListToolsResult(tools=tools)

    async def call_tool(_ctx: Any, params: Any) -> CallToolResult | InputRequiredResult:
        argument, guard = GUARDS[params.name]
        state = params.request_state
        responses = params.input_responses
        outcome = guard(params.arguments[argument], responses, state)
        if isinstance(outcome, str):
            return CallToolResult(content=[TextContent(text=outcome)])

        return outcome

    server: Any = Server("probed", on_list_tools=list_tools, on_call_tool=call_tool)
    return server.streamable_http_app()


# By requests that are pushed


class Confirmed(BaseModel):
    """Asked before something is done."""

    confirm: bool


class Scoped(BaseModel):
    """Asked once it is confirmed."""

    scope: str


class Sized(BaseModel):
    """Has bounds and choices."""

    size: int = Field(ge=1, le=10)
    kind: Literal["small", "large"]


async def pushed(ctx: Any, message: str, form: type[BaseModel]) -> Any:
    """Ask while the call waits; return what was entered, None if that was refused."""
    asked = await ctx.elicit(message, form)
    return asked.data if asked.action == "accept" else None


async def pushed_deploy(env: str, ctx: Any) -> str:
    """Ask whether to deploy, and deploy."""
    agreed = await pushed(ctx, f"Deploy to {env}?", Confirmed)
    return f"Deployed to {env}" if agreed and agreed.confirm else "Not deployed"


async def pushed_wipe(env: str, ctx: Any) -> str:
    """Ask whether to wipe, and what."""
    agreed = await pushed(ctx, f"Wipe {env}?", Confirmed)
    if agreed is None or not agreed.confirm:
        return "Not wiped"

    chosen = await pushed(ctx, f"Which scope of {env}?", Scoped)
    return "Not wiped" if chosen is None else f"Wiped {chosen.scope} of {env}"


async def pushed_resize(group: str, ctx: Any) -> str:
    """Ask how large, and resize."""
    wanted = await pushed(ctx, f"How large is {group}?", Sized)
    return f"{group} has {wanted.size}, {wanted.kind}" if wanted else "Not resized"


def by_pushing() -> Any:
    """Make the server that asks while its calls wait."""
    server = MCPServer("probed", log_level="CRITICAL")

    @server.tool("deploy", structured_output=False)
    async def _(env: str, ctx: Context) -> str:
        return await pushed_deploy(env, ctx)

    @server.tool("wipe", structured_output=False)
    async def _(env: str, ctx: Context) -> str:
        return await pushed_wipe(env, ctx)

    @server.tool("resize", structured_output=False)
    async def _(group: str, ctx: Context) -> str:
        return await pushed_resize(group, ctx)

    return of_2025(server.streamable_http_app())


class AtOnce(uvicorn.Server):
    """A server that does not wait for the calls under way when it is to end."""

    def handle_exit(self, *_: object) -> None:
        """End."""
        os._exit(0)


def serve(styles: Mapping[str, Callable[[], Any]]) -> None:
    """Serve the style that the command line names until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--style", choices=styles, required=True)
    options = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", options.port))
    print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(
        styles[options.style](), log_level="critical", timeout_graceful_shutdown=0
    )
    AtOnce(config).run(sockets=[listener])


if __name__ == "__main__":
    serve(
        {
            "resolve": by_dependencies,
            "guard": on_the_sdk,
            "lowlevel": on_low_level,
            "pushed": by_pushing,
        }
    )
