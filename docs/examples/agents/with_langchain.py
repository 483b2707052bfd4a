"""An agent on LangChain, with a scripted model."""

import asyncio
import os

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from mcp.types import ElicitResult

ANSWER = os.environ.get("ANSWER", "accept")


async def approve(mcp_context, params, context):
    """Answer the server's question."""
    print("asked:", params.message)
    content = {"approve": True} if ANSWER == "accept" else None
    return ElicitResult(action=ANSWER, content=content)


class Model(GenericFakeChatModel):
    """A model whose messages are known in advance."""

    def bind_tools(self, tools, **kwargs):
        return self


CALL = {"name": "release", "args": {"version": "2.0"}, "id": "1"}
SCRIPT = [AIMessage("", tool_calls=[CALL]), AIMessage("done")]


async def main() -> None:
    server = {"transport": "http", "url": os.environ["MRTR_CASSETTE_URL"]}
    client = MultiServerMCPClient(
        {"releases": server}, callbacks=Callbacks(on_elicitation=approve)
    )
    agent = create_agent(Model(messages=iter(SCRIPT)), await client.get_tools())
    result = await agent.ainvoke({"messages": [("user", "Release version 2.0")]})
    print("agent:", result["messages"][-2].text)


asyncio.run(main())
