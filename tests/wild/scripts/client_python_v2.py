"""A client on the Python SDK's v2 line, in either era, over Streamable HTTP, HTTP+SSE or stdio."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.sse import sse_client
from steps import JsonObject, Open, RpcError, Session, main, plain

MODES = {"2025": "legacy", "2026": "auto"}


@dataclass
class Connection:
    """A client of the SDK, with results as JSON."""

    client: Client

    async def _result(self, response: Any) -> JsonObject:
        try:
            return plain(await response)
        except MCPError as error:
            raise RpcError(error.code, error.message) from error

    async def names(self, kind: str) -> list[str]:
        listed = await self._result(getattr(self.client, f"list_{kind}")())
        return [each["name"] for each in listed[kind]]

    async def call(self, name: str, arguments: JsonObject, progress: Any) -> JsonObject:
        return await self._result(
            self.client.call_tool(name, arguments, progress_callback=progress)
        )

    async def prompt(self, name: str, arguments: dict[str, str]) -> JsonObject:
        return await self._result(self.client.get_prompt(name, arguments))

    async def read(self, uri: str) -> JsonObject:
        return await self._result(self.client.read_resource(uri))

    async def subscribe(self, uri: str) -> None:
        await self._result(self.client.subscribe_resource(uri))

    async def set_level(self, level: Any) -> None:
        await self._result(self.client.set_logging_level(level))

    async def roots_changed(self) -> None:
        await self.client.send_roots_list_changed()


def server_at(target: str) -> Any:
    """Return what the SDK connects to, given a URL or a command."""
    if target.startswith("["):
        command, *arguments = json.loads(target)
        return StdioServerParameters(command=command, args=arguments)
    return sse_client(target) if target.endswith("/sse") else target


def opening(era: str) -> Open:
    """Make what opens a session of an era."""

    @asynccontextmanager
    async def opened(target: str, session: Session) -> AsyncIterator[Connection]:
        async def elicit(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
            return types.ElicitResult.model_validate(await session.elicit(plain(params)))

        async def sample(_: Any, params: types.CreateMessageRequestParams) -> Any:
            try:
                answer = await session.sample(plain(params))
            except RpcError as error:
                return types.ErrorData(code=error.code, message=str(error))
            return types.CreateMessageResult.model_validate(answer)

        async def roots(_: Any) -> types.ListRootsResult:
            return types.ListRootsResult.model_validate(await session.roots())

        async with Client(
            server_at(target),
            mode=MODES[era],
            elicitation_callback=elicit,
            sampling_callback=sample,
            list_roots_callback=roots,
            message_handler=session.heard,
            client_info=types.Implementation(name="client", version="1.0.0"),
        ) as client:
            yield Connection(client)

    return opened


if __name__ == "__main__":
    main(opening)
