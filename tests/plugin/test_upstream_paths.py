"""Facts about servers of a suite that are at a path of their own."""

from __future__ import annotations

from keeping import SERVER

pytest_plugins = ["pytester"]

TEST = """
    import sys
    import pytest

    COMMAND = [sys.executable, "server.py", "{{port}}"]

    @pytest.mark.mrtr_cassette(upstream=COMMAND{more})
    def test_put(mrtr_cassette):
        assert mrtr_cassette.call("put", {{"word": "a"}}).text == "a"
"""


def test_path_of_a_server_is_named_once(suite):
    """The marker names it; whoever records the cassette again finds it there."""
    suite.write("server.py", SERVER)
    suite.write("test_one.py", TEST.format(more=""))
    refused = suite.run(failed=1, errors=1)
    refused.stdout.fnmatch_lines(
        ["*is the path /mcp right? name another one with upstream_path"]
    )
    suite.write("test_one.py", TEST.format(more=', upstream_path="/api/mcp"'))
    suite.run()
    assert (
        suite.cassette("test_one/test_put.json")["upstream"]
        == "http://localhost/api/mcp"
    )
    suite.write("test_one.py", TEST.format(more=""))
    for mode in ("all", "append", "verify", "none"):
        suite.run(f"--mrtr-mode={mode}")
