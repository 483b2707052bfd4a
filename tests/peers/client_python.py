"""An MCP client on the official Python SDK, for tests: runs fixed flows and prints a transcript.

The transcript holds what the client saw and nothing that varies between runs or servers;
`client_typescript.mjs` prints the same text. Answers depend on the question alone, and
`--decline MESSAGE` declines one more of them. Of several sessions each line begins with its
session's number, and nobody answers before everybody has been asked.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    Implementation,
    ListRootsResult,
    Root,
    TextContent,
)
from pydantic import FileUrl

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from mcp.client import ClientRequestContext
    from mcp_types import Result

    Flow = Callable[[Client], Awaitable[None]]

PROTOCOL_VERSION = "2026-07-28"
DECLINED = {"Deploy to staging?", "Tag v2.1.0?"}
ANSWERS: dict[str, str | bool] = {
    "approve": True,
    "audience": "operators",
    "confirm": True,
    "name": "analytics",
    "notes": "none",
    "region": "eu-west-1",
    "scope": "sessions",
    "window": "tonight",
}
PREFIX: ContextVar[tuple[str, ...]] = ContextVar("prefix", default=())
SHOWN = {"content", "is_error", "structured_content", "messages", "contents"}


@dataclass
class Rendezvous:
    """Keeps back each answer until every session has been asked; who was asked last goes first."""

    sessions: int = 1
    asked: list[asyncio.Event] = field(default_factory=list)

    async def wait(self) -> None:
        mine = asyncio.Event()
        self.asked.append(mine)
        if len(self.asked) == self.sessions:
            for event in reversed(self.asked):
                event.set()

            self.asked.clear()

        await mine.wait()


RENDEZVOUS = Rendezvous()


def say(*words: object) -> None:
    """Print one line of the transcript."""
    print(*PREFIX.get(), *words, flush=True)


def quoted(value: object) -> str:
    """Render a value as canonical JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def show_result(result: Result) -> None:
    """Print the part of a result that MCP gives a meaning; a false `isError` is an absent one."""
    shown = result.model_dump(
        mode="json", by_alias=True, exclude_none=True, include=SHOWN
    )
    if not shown.get("isError"):
        shown.pop("isError", None)

    say("result", quoted(shown))


async def show_progress(
    progress: float, total: float | None, message: str | None
) -> None:
    """Print one progress notification."""
    of_total = "" if total is None else f"/{total:g}"
    say(f"progress {progress:g}{of_total} {quoted(message)}")


async def elicit(
    context: ClientRequestContext, params: ElicitRequestParams
) -> ElicitResult:
    """Accept or decline a form or a URL, by its message."""
    if not isinstance(params, ElicitRequestFormParams):
        say("ask url", quoted(params.message), params.url)
        return ElicitResult(action="accept")

    fields: dict[str, Any] = params.requested_schema["properties"]
    listed = [f"{name}:{fields[name]['type']}" for name in sorted(fields)]
    say("ask form", quoted(params.message), *listed)
    await RENDEZVOUS.wait()
    if params.message in DECLINED:
        return ElicitResult(action="decline")

    return ElicitResult(
        action="accept", content={name: ANSWERS[name] for name in fields}
    )


async def sample(
    context: ClientRequestContext, params: CreateMessageRequestParams
) -> CreateMessageResult:
    """Answer in place of a model."""
    blocks = [block for message in params.messages for block in message.content_as_list]
    texts = [block.text for block in blocks if isinstance(block, TextContent)]
    say("ask sampling", *map(quoted, texts), f"maxTokens:{params.max_tokens}")

    return CreateMessageResult(
        role="assistant", content=TextContent(text="Two commits"), model="stub"
    )


async def list_roots(context: ClientRequestContext) -> ListRootsResult:
    """Offer one root."""
    say("ask roots")
    return ListRootsResult(
        roots=[Root(uri=FileUrl("file:///workspace"), name="workspace")]
    )


async def list_all(client: Client) -> None:
    """Print the names of everything that the server offers."""

    def show(kind: str, items: Iterable[Any]) -> None:
        say(kind, *sorted(item.name for item in items))

    show("tools", (await client.list_tools()).tools)
    show("prompts", (await client.list_prompts()).prompts)
    show("resources", (await client.list_resources()).resources)
    show("templates", (await client.list_resource_templates()).resource_templates)


def tool(name: str, *, progress: bool = False, **arguments: object) -> Flow:
    """Make the flow that calls one tool, with a progress token if `progress`."""
    callback = show_progress if progress else None

    async def run(client: Client) -> None:
        show_result(await client.call_tool(name, arguments, progress_callback=callback))

    return run


def prompt(name: str, **arguments: str) -> Flow:
    """Make the flow that gets one prompt."""

    async def run(client: Client) -> None:
        show_result(await client.get_prompt(name, arguments))

    return run


def resource(uri: str) -> Flow:
    """Make the flow that reads one resource."""

    async def run(client: Client) -> None:
        show_result(await client.read_resource(uri))

    return run


FLOWS: dict[str, Flow] = {
    "list": list_all,
    "add": tool("add", a=1, b=2),
    "deploy": tool("deploy", env="production"),
    "deploy-declined": tool("deploy", env="staging"),
    "tag-release": tool("tag-release", tag="v2.1.0"),
    "provision": tool("provision"),
    "wipe-cache": tool("wipe-cache"),
    "release-train": tool("release-train", version="2.1"),
    "everything": tool("everything"),
    "build": tool("build", target="wheel"),
    "count": tool("count", progress=True, to=3),
    "ask-late": tool("ask-late", progress=True, steps=2),
    "release-notes": prompt("release-notes", version="2.1"),
    "deployment": resource("config://deployment"),
    "plain": resource("config://plain"),
}
LEGACY = "--legacy" in sys.argv
"""Speak as clients of the 2025-11-25 revision do, to `server_both_eras.py`."""

if LEGACY:
    FLOWS = {"plan": tool("plan")}


@asynccontextmanager
async def reaching(
    server: str | list[str], headers: dict[str, str]
) -> AsyncIterator[Any]:
    """Give the transport to a URL, or to a server that a command starts."""
    if isinstance(server, str):
        async with httpx2.AsyncClient(headers=headers, timeout=None) as http:
            yield streamable_http_client(server, http_client=http)
    else:
        yield stdio_client(StdioServerParameters(command=server[0], args=server[1:]))


async def run_flows(
    server: str | list[str], names: Iterable[str], headers: dict[str, str]
) -> int:
    """Run the named flows on one connection and return how many ended in an error."""
    errors = 0
    async with (
        reaching(server, headers) as transport,
        Client(
            transport,
            mode="legacy" if LEGACY else "auto",
            client_info=Implementation(name="client-python", version="1.0.0"),
            elicitation_callback=elicit,
            sampling_callback=sample,
            list_roots_callback=list_roots,
        ) as client,
    ):
        if client.protocol_version != PROTOCOL_VERSION and not LEGACY:
            sys.exit(
                f"negotiated {client.protocol_version}, expected {PROTOCOL_VERSION}"
            )

        for name in names:
            say("==", name)
            try:
                await FLOWS[name](client)
            except MCPError as error:
                errors += 1
                say("error", error.code, quoted(error.message))
                print(f"{name}: {error.code} {error.message}", file=sys.stderr)

    return errors


async def run_sessions(
    count: int, server: str | list[str], names: Iterable[str], headers: dict[str, str]
) -> int:
    """Run the named flows on that many connections at once."""
    RENDEZVOUS.sessions = count

    async def run(number: int) -> int:
        if count > 1:
            PREFIX.set((str(number),))

        return await run_flows(server, names, headers)

    return sum(await asyncio.gather(*(run(number) for number in range(1, count + 1))))


def main() -> int:
    """Run the flows of the command line; exit status 1 tells that one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?", default=os.environ.get("MRTR_CASSETTE_URL"))
    parser.add_argument(
        "--flow", nargs="+", action="extend", choices=FLOWS, metavar="NAME"
    )
    parser.add_argument("--decline", action="append", default=[], metavar="MESSAGE")
    parser.add_argument(
        "--headers", nargs="+", action="extend", default=[], metavar="'N: v'"
    )
    parser.add_argument("--sessions", type=int, default=1)
    parser.add_argument("--legacy", action="store_true")
    arguments = sys.argv[1:]
    command = []
    if "--" in arguments:
        dashes = arguments.index("--")
        arguments, command = arguments[:dashes], arguments[dashes + 1 :]

    options = parser.parse_args(arguments)
    server = command or options.url
    if server is None:
        parser.error("no URL, no -- COMMAND, and MRTR_CASSETTE_URL is not set")

    DECLINED.update(options.decline)
    headers = dict(header.split(": ", 1) for header in options.headers)
    flows = options.flow or list(FLOWS)

    return (
        1 if asyncio.run(run_sessions(options.sessions, server, flows, headers)) else 0
    )


if __name__ == "__main__":
    sys.exit(main())
