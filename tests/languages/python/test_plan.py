"""A test with unittest, through a play of `mrtr-cassette serve`."""

import contextlib
import json
import os
import unittest
import urllib.request

from mcp import Client
from mcp_types import ElicitResult

UPSTREAM = ["python", "../python/server.py", "--port", "{port}"]


def control(method, path, body):
    """Send a control request; return the report."""
    url = os.environ["MRTR_CASSETTE_SERVE"] + "/.mrtr/plays" + path
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, method=method)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request) as response:
        return json.load(response)


@contextlib.contextmanager
def play(cassette):
    """Give the URL of a play; what it missed fails the test."""
    begun = control("POST", "", {"cassette": cassette, "upstream": UPSTREAM})
    outcome = "failed"
    try:
        yield begun["url"]
        outcome = "passed"
    finally:
        ended = control("DELETE", "/" + begun["id"], {"outcome": outcome})
        assert not ended["problems"], "\n".join(ended["problems"])


class PlanTest(unittest.IsolatedAsyncioTestCase):
    async def test_plan(self):
        async def answer(context, params):
            action = os.environ.get("ANSWER", "accept")
            content = {"name": "fast"} if action == "accept" else None
            return ElicitResult(action=action, content=content)

        with play("python-plan") as url:
            async with Client(url, elicitation_callback=answer) as client:
                result = await client.call_tool("form", {})

            self.assertEqual(result.content[0].text, "accept fast")
