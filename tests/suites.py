"""Projects with tests of their own, that the pytest plugin is tested with."""

from __future__ import annotations

import json

import uvicorn  # noqa: F401  imported once here, as the next two, and not in each run
from mcp.server.mcpserver import MCPServer
from processes import PEERS

import mrtr_cassette.demo.server  # noqa: F401
import mrtr_cassette.testing.uses  # noqa: F401

# What it imports when it is made can't be imported twice by one process.
MCPServer("loaded")

AGENT = """
import asyncio
import sys
from mcp import Client, MCPError
from mcp_types import ElicitResult

COMMAND = [sys.executable, {server!r}, "--port", "{{port}}"]
sys.path.insert(0, {peers!r})

class Application:
    # Made when it is served, so that a replay does not need it.

    served = None

    async def __call__(self, scope, receive, send):
        if self.served is None:
            from server_python import server
            self.served = server.streamable_http_app()
        await self.served(scope, receive, send)

APPLICATION = Application()

async def adeploy(url, env="test", action="accept"):
    async def answer(context, params):
        return ElicitResult(action=action, content={{"confirm": True}} if action == "accept" else None)

    async with Client(url, elicitation_callback=answer) as client:
        return (await client.call_tool("deploy", {{"env": env}})).content[0].text

def deploy(url, env="test", action="accept"):
    return asyncio.run(adeploy(url, env, action))

def train(url, window):
    async def answer(context, params):
        (key,) = params.requested_schema["properties"]
        values = {{"approve": True, "window": window, "notes": "none"}}
        return ElicitResult(action="accept", content={{key: values[key]}})

    async def main():
        async with Client(url, elicitation_callback=answer) as client:
            result = await client.call_tool("release-train", {{"version": "2"}})
            return result.content[0].text

    return asyncio.run(main())

def swallowed(url, **options):
    try:
        deploy(url, **options)
    except* MCPError:
        pass

if __name__ == "__main__":
    print(deploy(sys.argv[1]))
"""
ONE_TEST = """
    import pytest
    from agent import APPLICATION, COMMAND, deploy

    @pytest.mark.mrtr_cassette(upstream=APPLICATION)
    def test_deploy(mrtr_cassette):
        assert deploy(mrtr_cassette.url) == "Deployed to test"
"""
SERVER = str(PEERS / "server_python.py")


class Suite:
    """A project with tests of its own."""

    def __init__(self, pytester):
        self.pytester = pytester
        self.path = pytester.path
        self.write("agent.py", AGENT.format(server=SERVER, peers=str(PEERS)))
        self.write("pytest.ini", "[pytest]\nfilterwarnings = error\npythonpath = .\n")

    def write(self, name, text):
        """Write a file, indented as it may be."""
        lines = text.splitlines()
        indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(line[indent:] for line in lines) + "\n")

    def run(self, *options, **outcomes):
        result = self.pytester.runpytest(
            "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *options
        )
        result.assert_outcomes(**(outcomes or {"passed": 1}))
        return result

    def cassettes(self):
        """Return the files under `cassettes` folders, as paths in the project."""
        return sorted(
            str(path.relative_to(self.path))
            for folder in self.path.rglob("cassettes")
            for path in folder.rglob("*")
            if path.is_file()
        )

    def cassette(self, name):
        return json.loads((self.path / "cassettes" / name).read_text())
