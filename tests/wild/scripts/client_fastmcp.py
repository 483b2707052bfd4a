"""A client on FastMCP, in either era, over Streamable HTTP, HTTP+SSE or stdio."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from mcp import MCPError
from steps import ROOT, JsonObject, Open, RpcError, Session, main, plain

MODES = {"2025": "legacy", "2026": "auto"}


@dataclass
class Connection:
    """A client of FastMCP, with results as JSON."""

    client: Client[Any]

    async def _result(self, response: Any) -> JsonObject:
        try:
            return plain(await response)
        except MCPError as error:
            raise RpcError(error.error.code, error.error.message) from error

    async def names(self, kind: str) -> list[str]:
        return [each.name for each in await getattr(self.client, f"list_{kind}")()]

    async def call(self, name: str, arguments: JsonObject, progress: Any) -> JsonObject:
        return await self._result(
            self.client.call_tool_mcp(name, arguments, progress_handler=progress)
        )

    async def prompt(self, name: str, arguments: dict[str, str]) -> JsonObject:
        return await self._result(self.client.get_prompt_mcp(name, arguments))

    async def read(self, uri: str) -> JsonObject:
        return await self._result(self.client.read_resource_mcp(uri))

    async def subscribe(self, uri: str) -> None:
        raise NotImplementedError(uri)

    async def set_level(self, level: Any) -> None:
        await self.client.set_logging_level(level)

    async def roots_changed(self) -> None:
        await self.client.send_roots_list_changed()


def server_at(target: str) -> Any:
    """Return what FastMCP connects to, given a URL or a command."""
    if target.startswith("["):
        command, *arguments = json.loads(target)
        return StdioTransport(command, arguments, keep_alive=False)
    return target


def opening(era: str) -> Open:
    """Make what opens a session of an era."""

    @asynccontextmanager
    async def opened(target: str, session: Session) -> AsyncIterator[Connection]:
        async def elicit(
            message: str, kind: Any, params: types.ElicitRequestParams, _: Any
        ) -> types.ElicitResult:
            return types.ElicitResult.model_validate(await session.elicit(plain(params)))

        async def sample(messages: Any, params: Any, _: Any) -> types.CreateMessageResult:
            return types.CreateMessageResult.model_validate(await session.sample(plain(params)))

        async def roots(_: Any) -> list[types.Root]:
            await session.roots()
            return [types.Root.model_validate(ROOT)]

        async with Client(
            server_at(target),
            mode=MODES[era],
            elicitation_handler=elicit,
            sampling_handler=sample,
            roots=roots,
            message_handler=session.heard,
            client_info=types.Implementation(name="client", version="1.0.0"),
        ) as client:
            yield Connection(client)

    return opened


if __name__ == "__main__":
    main(opening)
