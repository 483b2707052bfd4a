"""An agent on the OpenAI Agents SDK, with a scripted model; it answers no elicitation."""

import asyncio
import json
import os

from agents import Agent, ModelResponse, Runner, Usage, set_tracing_disabled
from agents.mcp import MCPServerStreamableHttp
from agents.models.interface import Model
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

set_tracing_disabled(True)
TOOL = os.environ.get("TOOL", "status")
VERSION = os.environ.get("VERSION", "1.0")


class ScriptedModel(Model):
    """Calls a tool, then repeats its result."""

    async def get_response(self, system_instructions, input, *args, **kwargs):
        item = ResponseFunctionToolCall(
            type="function_call",
            call_id="1",
            name=TOOL,
            arguments=json.dumps({"version": VERSION}),
        )
        if input[-1].get("type") == "function_call_output":
            item = ResponseOutputMessage(
                id="2",
                type="message",
                role="assistant",
                status="completed",
                content=[
                    ResponseOutputText(
                        type="output_text",
                        text=str(input[-1]["output"]),
                        annotations=[],
                    )
                ],
            )
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


async def main() -> None:
    """Run the agent once."""
    url = os.environ["MRTR_CASSETTE_URL"]
    async with MCPServerStreamableHttp({"url": url}) as server:
        agent = Agent("releaser", model=ScriptedModel(), mcp_servers=[server])
        result = await Runner.run(agent, f"Is version {VERSION} released?")
    print("agent:", result.final_output)


asyncio.run(main())
