"""Mode append, with a server that counts, by the official SDK."""

from __future__ import annotations

import mcp.server.mcpserver  # noqa: F401  imported once here, and not in each run
from suites import Suite

pytest_plugins = ["pytester"]

SERVER = """
    from mcp.server.mcpserver import MCPServer

    server, counted = MCPServer("counter", log_level="WARNING"), []

    @server.tool(structured_output=False)
    def inc() -> str:
        counted.append(1)
        return str(len(counted))

    application = server.streamable_http_app()
"""
ONE_TEST = """
    import pytest
    from server import application

    @pytest.mark.mrtr_cassette(upstream=application)
    def test_inc(mrtr_cassette):
        said = [mrtr_cassette.call("inc").text for _ in range({calls})]
        assert said == {expected}
"""


def test_second_count_follows_the_one_that_was_played(suite: Suite) -> None:
    """The server counts what the cassette plays before it counts on, and the cassette says both."""
    suite.write("server.py", SERVER)
    for calls, expected, mode in ((1, ["1"], "once"), (2, ["1", "2"], "append")):
        suite.write("test_one.py", ONE_TEST.format(calls=calls, expected=expected))
        suite.run(f"--mrtr-mode={mode}")
        suite.run("--mrtr-mode=none")
