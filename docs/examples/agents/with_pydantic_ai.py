"""An agent on pydantic-ai, with a scripted model."""

import asyncio
import os

from fastmcp.client.elicitation import ElicitResult
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

ANSWER = os.environ.get("ANSWER", "accept")


async def approve(message, response_type, params, context):
    """Answer the server's question."""
    print("asked:", message)
    content = {"approve": True} if ANSWER == "accept" else None
    return ElicitResult(action=ANSWER, content=content)


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tool, then repeat its result."""
    last = messages[-1].parts[-1]
    if last.part_kind == "tool-return":
        return ModelResponse(parts=[TextPart(str(last.content))])
    return ModelResponse(parts=[ToolCallPart("release", {"version": "2.0"})])


async def main() -> None:
    toolset = MCPToolset(os.environ["MRTR_CASSETTE_URL"], elicitation_handler=approve)
    agent = Agent(FunctionModel(model), toolsets=[toolset])
    async with agent:
        result = await agent.run("Release version 2.0")
    print("agent:", result.output)


asyncio.run(main())
