"""A client on the Python SDK's v1 line, over Streamable HTTP, HTTP+SSE or stdio."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from pydantic import AnyUrl
from steps import JsonObject, RpcError, Session, main, plain


@dataclass
class Connection:
    """A session of the SDK, with results as JSON."""

    session: ClientSession

    async def _result(self, response: Any) -> JsonObject:
        try:
            return plain(await response)
        except McpError as error:
            raise RpcError(error.error.code, error.error.message) from error

    async def names(self, kind: str) -> list[str]:
        listed = await self._result(getattr(self.session, f"list_{kind}")())
        return [each["name"] for each in listed[kind]]

    async def call(self, name: str, arguments: JsonObject, progress: Any) -> JsonObject:
        return await self._result(
            self.session.call_tool(name, arguments, progress_callback=progress)
        )

    async def prompt(self, name: str, arguments: dict[str, str]) -> JsonObject:
        return await self._result(self.session.get_prompt(name, arguments))

    async def read(self, uri: str) -> JsonObject:
        return await self._result(self.session.read_resource(AnyUrl(uri)))

    async def subscribe(self, uri: str) -> None:
        await self._result(self.session.subscribe_resource(AnyUrl(uri)))

    async def set_level(self, level: Any) -> None:
        await self._result(self.session.set_logging_level(level))

    async def roots_changed(self) -> None:
        await self.session.send_roots_list_changed()


@asynccontextmanager
async def streams(target: str) -> AsyncIterator[Any]:
    """Connect to a URL or a command."""
    if target.startswith("["):
        command, *arguments = json.loads(target)
        async with stdio_client(StdioServerParameters(command=command, args=arguments)) as pair:
            yield pair
    elif target.endswith("/sse"):
        async with sse_client(target) as pair:
            yield pair
    else:
        async with streamable_http_client(target) as (read, write, _):
            yield read, write


@asynccontextmanager
async def opened(target: str, session: Session) -> AsyncIterator[Connection]:
    """Open a session whose questions a scenario answers."""

    async def elicit(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult.model_validate(await session.elicit(plain(params)))

    async def sample(
        _: Any, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult | types.ErrorData:
        try:
            answer = await session.sample(plain(params))
        except RpcError as error:
            return types.ErrorData(code=error.code, message=str(error))
        return types.CreateMessageResult.model_validate(answer)

    async def roots(_: Any) -> types.ListRootsResult:
        return types.ListRootsResult.model_validate(await session.roots())

    async def notified(message: Any) -> None:
        if isinstance(message, Exception):
            await session.heard(message)
        elif isinstance(message, types.ServerNotification):
            await session.heard(message.root)

    async with (
        streams(target) as (read, write),
        ClientSession(
            read,
            write,
            elicitation_callback=elicit,
            sampling_callback=sample,
            list_roots_callback=roots,
            message_handler=notified,
            client_info=types.Implementation(name="client", version="1.0.0"),
        ) as client,
    ):
        await client.initialize()
        yield Connection(client)


if __name__ == "__main__":
    main(lambda era: opened)
