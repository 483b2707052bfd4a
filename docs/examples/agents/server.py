"""A server on the official Python SDK that asks before it releases."""

import argparse
from typing import Annotated

from mcp.server.mcpserver import Elicit, MCPServer, Resolve
from pydantic import BaseModel

server = MCPServer("releases", version="1.0.0", log_level="WARNING")
released = {"1.0"}


class Approval(BaseModel):
    """An answer to a question."""

    approve: bool


async def ask(version: str) -> Elicit[Approval]:
    """Ask whoever may release."""
    return Elicit(f"Release {version}?", Approval)


@server.tool("release", structured_output=False)
async def release(version: str, approval: Annotated[Approval, Resolve(ask)]) -> str:
    """Release a version that a person has approved."""
    if not approval.approve:
        return f"{version} was not approved"
    released.add(version)
    return f"Released {version}"


@server.tool("status", structured_output=False)
async def status(version: str) -> str:
    """Tell whether a version is released."""
    return "released" if version in released else "not released"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    server.run("streamable-http", host="127.0.0.1", port=port)
