"""The Python SDK's client: calls tools, answers what they ask, and prints a JSON line for each.

client.py --era 2026 --answer accept TARGET TOOL...

TARGET is a URL, or a command as a JSON array of words.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from mcp import Client, MCPError, StdioServerParameters
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitResult,
    Implementation,
    ListRootsResult,
    Root,
    TextContent,
)
from pydantic import FileUrl

MODES = {"2025": "legacy", "2026": "auto"}
VERSIONS = {"2025": "2025-11-25", "2026": "2026-07-28"}
VALUES: dict[str, Any] = {"name": "fast", "confirm": True}


@dataclass
class User:
    """Answers questions, and remembers them."""

    action: Any
    asked: list[str] = field(default_factory=list)

    async def elicit(self, _context: Any, params: Any) -> ElicitResult:
        if not isinstance(params, ElicitRequestFormParams):
            self.asked.append(f"url: {params.message} {params.url}")
            return ElicitResult(action=self.action)

        fields = sorted(params.requested_schema["properties"])
        self.asked.append(" ".join([f"form: {params.message}", *fields]))
        if self.action != "accept":
            return ElicitResult(action=self.action)

        content = {name: VALUES[name] for name in fields}
        return ElicitResult(action="accept", content=content)

    async def sample(
        self, _context: Any, params: CreateMessageRequestParams
    ) -> CreateMessageResult:
        (block,) = params.messages[0].content_as_list
        assert isinstance(block, TextContent)
        self.asked.append(f"sampling: {block.text}")
        words = TextContent(text="Two steps")

        return CreateMessageResult(role="assistant", content=words, model="stub")

    async def roots(self, _context: Any) -> ListRootsResult:
        root = Root(uri=FileUrl("file:///workspace"), name="workspace")
        return ListRootsResult(roots=[root])

    async def call(self, client: Client, tool: str) -> dict[str, Any]:
        """Call a tool, and tell what its caller saw."""
        self.asked = []
        result = error = ""
        try:
            answer = await client.call_tool(tool, {})
            blocks = [block for block in answer.content if block.type == "text"]
            result = "".join(block.text for block in blocks)
        except MCPError as refusal:
            error = refusal.error.message

        return {"tool": tool, "asked": self.asked, "result": result, "error": error}


def server_at(target: str) -> Any:
    """Return what the SDK connects to, given a URL or a command."""
    if not target.startswith("["):
        return target

    command, *arguments = json.loads(target)
    return StdioServerParameters(command=command, args=arguments)


async def main() -> None:
    """Call the tools of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--era", choices=MODES, default="2026")
    parser.add_argument(
        "--answer", choices=["accept", "decline", "cancel"], default="accept"
    )
    parser.add_argument("target")
    parser.add_argument("tools", nargs="+")
    options = parser.parse_args()
    user = User(options.answer)
    client = Client(
        server_at(options.target),
        mode=MODES[options.era],
        client_info=Implementation(name="client-python", version="1.0.0"),
        elicitation_callback=user.elicit,
        sampling_callback=user.sample,
        list_roots_callback=user.roots,
    )
    async with client:
        assert client.protocol_version == VERSIONS[options.era]
        await client.list_tools()
        for tool in options.tools:
            print(json.dumps(await user.call(client, tool)), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
