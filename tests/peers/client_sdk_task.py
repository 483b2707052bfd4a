"""An MCP client on the Python SDK, whose hook for results of extensions ends a call's task."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from fastmcp_tasks.client import TasksClientExtension
from mcp import Client
from mcp_types import ElicitRequestParams, ElicitResult


async def answer(_: Any, params: ElicitRequestParams) -> ElicitResult:
    """Answer each field with its own name."""
    (field,) = params.requested_schema["properties"]
    return ElicitResult(action="accept", content={field: f"the {field}"})


async def main() -> None:
    """Call the tool that asks, as if it were no task."""
    extension = TasksClientExtension(answer)
    async with Client(
        os.environ["MRTR_CASSETTE_URL"], extensions=[extension]
    ) as client:
        result = await client.call_tool("book", {"seats": 2})
        print(result.content[0].text)


if __name__ == "__main__":
    asyncio.run(main())
