"""Values with servers that people use: what was recorded in one folder plays in another."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import mcp.server.mcpserver  # noqa: F401  imported once here, and not in each run
import pytest
from suites import Suite

pytest_plugins = ["pytester"]

PACKAGES = Path(__file__).parents[1] / "peers/node_modules/@modelcontextprotocol"
FILES = [str(shutil.which("node")), str(PACKAGES / "server-filesystem/dist/index.js")]
GIT = [sys.executable, "-m", "mcp_server_git"]

CLIENT = """
    import json
    import subprocess

    META = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "test", "version": "1"}}

    class Client:
        '''A client on pipes that has a root, as its server may ask.'''

        def __init__(self, command, root):
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
            )
            self.root = root
            self.number = 0
            self.was_asked = False
            self.ask("initialize", {**META, "capabilities": {"roots": {}}})
            self.send({"method": "notifications/initialized"})

        def send(self, message):
            self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
            self.process.stdin.flush()

        def ask(self, method, params):
            self.number += 1
            self.send({"id": self.number, "method": method, "params": params})
            while True:
                message = self.read()
                if message.get("id") == self.number and "method" not in message:
                    return message

        def read(self):
            message = json.loads(self.process.stdout.readline())
            if message.get("method") == "roots/list":
                roots = [{"uri": self.root.as_uri(), "name": "root"}]
                self.send({"id": message["id"], "result": {"roots": roots}})
                self.was_asked = True
            return message

        def until_asked(self):
            '''Wait for the server's question: beside a call, it is of that or not by chance.'''
            while not self.was_asked:
                self.read()

        def call(self, name, **arguments):
            message = self.ask("tools/call", {"name": name, "arguments": arguments})
            return message["result"]["content"][0]["text"]

        def close(self):
            self.process.stdin.close()
            self.process.wait()
            self.process.stdout.close()
"""
FILES_TEST = f"""
    import pytest
    from client import Client

    NAME = "one.txt"
    FILES = {FILES!r}

    @pytest.fixture
    def mrtr_upstream(tmp_path):
        return [*FILES, str(tmp_path)]

    @pytest.mark.mrtr_cassette(values=["tmp_path"])
    def test_files_over_pipes(tmp_path, mrtr_cassette):
        (tmp_path / "one.txt").write_text("one")
        (tmp_path / "two.txt").write_text("two")
        client = Client(mrtr_cassette.command, tmp_path)
        try:
            client.until_asked()
            assert client.call("write_file", path=f"{{tmp_path}}/new.txt", content="new")
            assert client.call("read_text_file", path=f"{{tmp_path}}/{{NAME}}") == NAME[:3]
            assert str(tmp_path) in client.call("list_allowed_directories")
            found = client.call("search_files", path=str(tmp_path), pattern="**/*.txt")
            assert f"{{tmp_path}}/two.txt" in found.splitlines()
        finally:
            client.close()
"""
GIT_TEST = f"""
    import subprocess
    import pytest
    from client import Client

    NAME = "one.txt"
    GIT = {GIT!r}

    @pytest.fixture
    def repository(tmp_path):
        subprocess.run(["git", "init", "-q", "-b", "main", tmp_path / "repo"], check=True)
        (tmp_path / "repo/one.txt").write_text("one")
        return tmp_path / "repo"

    @pytest.fixture
    def mrtr_upstream(repository):
        return [*GIT, "--repository", str(repository)]

    @pytest.mark.mrtr_cassette(values=["tmp_path"])
    def test_git(tmp_path, repository, mrtr_cassette):
        client = Client(mrtr_cassette.command, repository)
        try:
            assert "one.txt" in client.call("git_status", repo_path=str(repository))
            missing = client.call("git_status", repo_path=f"{{tmp_path}}/no-{{NAME}}")
            assert f"{{tmp_path}}/no-{{NAME}}" in missing
        finally:
            client.close()
"""
HTTP_TEST = """
    from pathlib import Path
    from urllib.parse import urlsplit
    from urllib.request import url2pathname
    import mrtr_cassette as tape
    import pytest
    from mcp.server.mcpserver import MCPServer

    NAME = "one.txt"
    server = MCPServer("files", log_level="WARNING")

    @server.tool()
    def read(path: str) -> str:
        return f"{path}: {Path(path).read_text()}"

    @server.tool()
    def find(uri: str) -> list[str]:
        folder = Path(url2pathname(urlsplit(uri).path))
        return sorted(path.as_uri() for path in folder.iterdir())

    @pytest.mark.mrtr_cassette(
        upstream=server.streamable_http_app(), values=["tmp_path"]
    )
    def test_files_over_http(tmp_path, mrtr_cassette):
        folder = tmp_path / "é {tmp_path}"
        folder.mkdir()
        for name in ("one.txt", "two.txt"):
            (folder / name).write_text(name)
        read = tape.call(mrtr_cassette.url, "read", {"path": str(folder / NAME)})
        assert read.text == f"{folder}/{NAME}: {NAME}"
        found = tape.call(mrtr_cassette.url, "find", {"uri": folder.as_uri()})
        assert f"{folder.as_uri()}/two.txt" in found.text
"""


FOLDERS = ("first", "second", "third", "fourth", "fifth")


@pytest.mark.usefixtures("typescript_sdk")
@pytest.mark.parametrize(
    ("text", "server"),
    [(FILES_TEST, FILES), (GIT_TEST, GIT), (HTTP_TEST, None)],
    ids=["files over pipes", "git over pipes", "files over HTTP"],
)
def test_what_was_recorded_in_one_folder_plays_in_another(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    server: list[str] | None,
) -> None:
    """A suite with tmp_path plays elsewhere, verifies quietly, and recorded again is the same."""
    for name in ("CI", "MRTR_CASSETTE_MODE"):
        monkeypatch.delenv(name, raising=False)

    suite = Suite(pytester)
    suite.write("client.py", CLIENT)
    suite.write("test_it.py", text)
    folders = iter(FOLDERS)

    def run(*options: str, **outcomes: int) -> pytest.RunResult:
        folder = pytester.path.parent / next(folders)
        return suite.run(f"--basetemp={folder}", *options, **outcomes)

    run()
    (cassette,) = [suite.path / name for name in suite.cassettes()]
    before = cassette.read_bytes()

    assert b"first/" not in before
    assert b"{tmp_path}/" in before
    assert json.loads(before)["values"] == ["tmp_path"]

    # Each of these starts the server once more, and git's takes long: the others show it.
    if server is not GIT:
        run("--mrtr-mode=all").stdout.fnmatch_lines(["*1 same, kept*"])
        run("--mrtr-mode=verify")

    # The server is gone: nothing of it is needed any more.
    gone = text.replace(repr(server), "['gone']")
    suite.write("test_it.py", gone)
    run("--mrtr-mode=none")
    suite.write("test_it.py", gone.replace('NAME = "one.txt"', 'NAME = "two.txt"'))
    missed = run("--mrtr-mode=none", failed=1)
    missed.stdout.fnmatch_lines(["*arguments-differ*"])

    assert cassette.read_bytes() == before
