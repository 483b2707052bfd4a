"""A way out that is told works: each is taken as it was printed, and does what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import listening

SERVER = """
import json, pathlib, sys

def said(name, arguments):
    state = pathlib.Path("state")
    if name == "set":
        state.write_text(str(arguments["to"]))
    return state.read_text() if state.exists() else "none"

for line in sys.stdin:
    asked = json.loads(line)
    params = asked.get("params", {})
    if asked["method"] == "tools/call":
        text = said(params["name"], params.get("arguments", {}))
        result = {"content": [{"type": "text", "text": text}]}
    elif asked["method"] == "tools/list":
        schema = {"type": "object", "properties": {"to": {"type": "string"}}}
        result = {"tools": [{"name": name, "inputSchema": schema} for name in ("get", "set")]}
    elif asked["method"] == "server/discover":
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        result["serverInfo"] = {"name": "kept", "version": "1"}
    else:
        continue
    result |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
"""A server on pipes that keeps a value in a file."""


class Shell:
    """A shell in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "my server.py").write_text(SERVER)
        self.server = f"{sys.executable} 'my server.py'"
        paths = (str(Path(sys.executable).parent), os.environ["PATH"])
        self._environment = {**os.environ, "PATH": os.pathsep.join(paths)}

    def run(self, command: str, code: int = 0) -> str:
        """Run a command, which ends with this code; return its output."""
        ended = subprocess.run(
            ["sh", "-c", command],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert ended.returncode == code, f"{command}\n{ended.stdout}"
        return ended.stdout


def told(output: str, pattern: str) -> str:
    """Return the only way out of this form in an output."""
    found = set(re.findall(f"(?m) ({pattern})$", output))
    assert len(found) == 1, output
    (way,) = found
    return str(way)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Give a shell in an empty folder."""
    return Shell(tmp_path)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Give a server over HTTP."""
    with listening((sys.executable, "-m", "mrtr_cassette.demo.server", "--port", "0")) as server:
        yield server.url


def test_missed_call_is_recorded_by_the_command_that_is_told(shell: Shell, url: str) -> None:
    """Over HTTP, with the file, the server and the client; replay and client tell it once."""
    shell.run(f"mrtr-cassette call {url} add a=1 b=2 -o 'my calls.json' --log-format json")
    replay = "mrtr-cassette replay 'my calls.json' -- mrtr-cassette call add"
    missed = shell.run(f"{replay} a=1 b=3", code=1)
    assert missed.count("miss: ") == missed.count(" fix: ") == 1
    assert "\nerror: -32010: not recorded, as told above\n" in missed
    shell.run(told(missed, "mrtr-cassette record --append .*"))
    for sum_ in (2, 3):
        assert f"\n{1 + sum_}\n" in shell.run(f"{replay} a=1 b={sum_}")


def test_missed_call_on_pipes_is_recorded_by_the_command_that_is_told(shell: Shell) -> None:
    """It takes the place of the replay in the client's command."""
    record = f"mrtr-cassette record --stdio -o c.json -- {shell.server}"
    shell.run(f"mrtr-cassette call set to=1 -- {record}")
    replay = "mrtr-cassette replay --stdio c.json"
    missed = shell.run(f"mrtr-cassette call set to=2 -- {replay}", code=1)
    assert missed.count("miss: ") == 1
    server = told(missed, "mrtr-cassette record --stdio --append .*")
    shell.run(f"mrtr-cassette call set to=2 -- {server}")
    for value in (1, 2):
        assert f"\n{value}\n" in shell.run(f"mrtr-cassette call set to={value} -- {replay}")
