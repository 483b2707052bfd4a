"""An agent whose model is recorded by VCR.py, and its tools by mrtr-cassette."""

import asyncio
import json
import os

import vcr
from mcp import Client
from mcp_types import ElicitResult
from openai import AsyncOpenAI

ANSWER = os.environ.get("ANSWER", "accept")
recorder = vcr.VCR(
    # mrtr-cassette is at 127.0.0.1, and has its own cassette.
    ignore_hosts=["127.0.0.1"],
    filter_headers=["authorization"],
    match_on=["method", "uri", "body"],
    record_mode="once",
)


async def approve(context, params):
    """Answer the server's question."""
    print("asked:", params.message)
    content = {"approve": True} if ANSWER == "accept" else None
    return ElicitResult(action=ANSWER, content=content)


async def main() -> None:
    """Let the model call tools until it has an answer."""
    model = AsyncOpenAI(base_url=os.environ["MODEL_URL"], api_key="secret")
    messages = [{"role": "user", "content": "Release version 2.0"}]
    url = os.environ["MRTR_CASSETTE_URL"]
    async with model, Client(url, elicitation_callback=approve) as client:
        tools = []
        for tool in (await client.list_tools()).tools:
            function = {"name": tool.name, "parameters": tool.input_schema}
            tools.append({"type": "function", "function": function})
        while True:
            completion = await model.chat.completions.create(
                model="model", messages=messages, tools=tools
            )
            message = completion.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                arguments = json.loads(call.function.arguments)
                result = await client.call_tool(call.function.name, arguments)
                text = result.content[0].text
                messages.append(
                    {"role": "tool", "tool_call_id": call.id, "content": text}
                )
    print("agent:", message.content)


with recorder.use_cassette(os.environ.get("MODEL_CASSETTE", "model.yaml")):
    asyncio.run(main())
