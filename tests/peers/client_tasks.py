"""An MCP client on FastMCP that has its calls run as tasks; it says what came of them.

The ids of its tasks go to stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError
from fastmcp_tasks import ToolTask, call_tool_task


async def answer(message: str, kind: Any, params: Any, _: Any) -> dict[str, str]:
    """Answer each field with its own name."""
    (field,) = params.requested_schema["properties"]
    print(f"asked: {message}")
    return {field: f"the {field}"}


async def begun(client: Client[Any], name: str, /, **arguments: Any) -> ToolTask:
    """Call a tool, of which the server makes a task."""
    task = await call_tool_task(client, name, arguments)
    # In one write, as the log of a recorder goes there too.
    sys.stderr.write(f"task {task.task_id}\n")
    return task


async def talk(client: Client[Any], polls: int) -> None:
    """Have tasks that ask, are cancelled, fail and are left; poll each some times more than needed."""
    for name, arguments in (
        ("book", {"seats": 2}),
        ("count", {"words": "one two"}),
        ("fail", {}),
    ):
        task = await begun(client, name, **arguments)
        for _ in range(polls):
            await task.status()
            await asyncio.sleep(0.01)

        try:
            print(name, (await task.result()).data)
        except ToolError as error:
            print(name, error)

    task = await begun(client, "wait")
    await task.status()
    await task.cancel()
    print("wait", (await task.wait()).status)
    first, second = [
        await begun(client, "count", words=words) for words in ("a", "b c")
    ]
    both = await asyncio.gather(first.result(), second.result(), first.wait())
    print("counts", *[result.data for result in both[:2]])
    left = await begun(client, "wait")
    print("left", (await left.status()).status)


async def main() -> None:
    """Talk to a server at a URL, or to one that this starts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--polls", type=int, default=0)
    parser.add_argument("command", nargs="*")
    options = parser.parse_args()
    server: Any = os.environ.get("MRTR_CASSETTE_URL")
    if options.command:
        program, *arguments = options.command
        server = StdioTransport(program, arguments, keep_alive=False)

    async with Client(server, elicitation_handler=answer) as client:
        await talk(client, options.polls)


if __name__ == "__main__":
    asyncio.run(main())
