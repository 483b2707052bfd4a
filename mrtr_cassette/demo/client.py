"""A client that deploys through a server which asks before it acts, with the official SDK."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from typing import Any

try:
    from mcp import Client, MCPError
    from mcp_types import ElicitResult
except ImportError:
    sys.exit("this client needs the official SDK: pip install mcp")


async def deploy(url: str, answer: ElicitResult) -> int:
    """Call the tool, answer what the server asks, and print what both say.

    Returns:
        The exit code: 1 if the server has no result.
    """

    async def confirm(context: Any, params: Any) -> Any:  # noqa: ARG001  as the SDK has it
        print("the server asks:", params.message)
        return answer

    async with Client(url, elicitation_callback=confirm) as client:
        try:
            result = await client.call_tool("deploy", {"env": "production"})
        except MCPError as error:
            print("the server has no result:", str(error).partition("\n")[0])
            return 1

        print("the server says:", getattr(result.content[0], "text", result.content))
        return 0


def main() -> None:
    """Deploy at the URL in the environment."""
    parser = argparse.ArgumentParser(description="Deploys by a server that asks back.")
    parser.add_argument("--decline", action="store_true", help="answer no")
    answer = ElicitResult(action="accept", content={"confirm": True})
    if parser.parse_args().decline:
        answer = ElicitResult(action="decline")

    sys.exit(asyncio.run(deploy(os.environ["MRTR_CASSETTE_URL"], answer)))


if __name__ == "__main__":
    main()
