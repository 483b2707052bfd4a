"""Facts about servers of a suite that are at a path of their own."""

from __future__ import annotations

from keeping import SERVER
from suites import ONE_TEST

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


def test_the_command_of_an_upstream_is_given_the_texts_of_values(suite):
    """A server on a port gets this run's folder in the place of its name."""
    folder = str(suite.path / "started")
    start = "import pathlib, runpy, sys; pathlib.Path(sys.argv.pop()).mkdir(); "
    start += "runpy.run_module('mrtr_cassette.demo.server', run_name='__main__')"
    command = f"[COMMAND[0], '-c', {start!r}, '--port', '{{port}}', '{{root}}']"
    options = f"upstream={command}, values={{'root': {folder!r}}}"
    suite.write("test_one.py", ONE_TEST.replace("upstream=APPLICATION", options))
    suite.run()

    assert (suite.path / "started").is_dir()

    text = (suite.path / "cassettes/test_one/test_deploy.json").read_text()

    assert folder not in text
