"""What a user of the command line is told of a server that has changed, and finds in the cassette."""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from forked import FORKS_ALL, start
from patience import HANGS_S
from processes import PROGRAM

SERVER = """
import json, pathlib, sys

version, *without = pathlib.Path("build.txt").read_text().split()
notes = []

def said(name, arguments):
    if name == "put":
        notes.append(arguments["note"])
    return "stored" if name == "put" else f"{notes} {version[1:]}"

for line in sys.stdin:
    asked = json.loads(line)
    params = asked.get("params", {})
    answer = {"jsonrpc": "2.0", "id": asked.get("id")}
    if asked["method"] == "tools/call" and params["name"] in without:
        answer["error"] = {"code": -32602, "message": f"Unknown tool: {params['name']}"}
    elif asked["method"] == "tools/call":
        text = said(params["name"], params.get("arguments", {}))
        answer["result"] = {"content": [{"type": "text", "text": text}]}
    elif asked["method"] == "tools/list":
        names = [name for name in ("get", "put") if name not in without]
        schema = {"type": "object"}
        answer["result"] = {"tools": [{"name": name, "inputSchema": schema} for name in names]}
    else:
        answer["result"] = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    if "result" in answer:
        meta = {"io.modelcontextprotocol/serverInfo": {"name": "notes", "version": version[0]}}
        answer["result"] |= {"resultType": "complete", "_meta": meta}
    print(json.dumps(answer), flush=True)
"""
"""A server on pipes that keeps notes; a file has its version, its words and what it lacks."""

CLIENT = """
import json, os, sys, urllib.request

for number, word in enumerate(sys.argv[1:], start=1):
    name, _, note = word.partition("=")
    params = {"name": name, "arguments": {"note": note} if note else {}}
    call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    if name in ("server/discover", "tools/list"):
        call |= {"method": name, "params": {}}
    request = urllib.request.Request(os.environ["MRTR_CASSETTE_URL"], json.dumps(call).encode())
    request.add_header("Content-Type", "application/json")
    urllib.request.urlopen(request).read()
"""
"""A client that makes the calls that it is given."""


class Project:
    """A folder with a server, a client, and what was recorded of them."""

    def __init__(self, folder: Path) -> None:
        self.cassette = folder / "c.json"
        self._folder = folder
        (folder / "server.py").write_text(SERVER)
        (folder / "client.py").write_text(CLIENT)

    def run(self, *words: str, code: int = 0) -> str:
        """Run mrtr-cassette, which ends with this code; return its output."""
        environment = {**os.environ, FORKS_ALL: "1"}
        with tempfile.TemporaryFile("w+") as output:
            command = (*PROGRAM, *words)
            process = start(command, output, output, environment, self._folder)
            ended = process.wait(timeout=HANGS_S)
            output.seek(0)
            printed = output.read()

        assert ended == code, printed
        return printed

    def record(self, build: str, *calls: str) -> str:
        """Record calls over what was recorded before; return the cassette's text."""
        (self._folder / "build.txt").write_text(build)
        upstream = f"{sys.executable} server.py"
        words = ("record", "--force", "-o", "c.json", "--upstream", upstream)
        self.run(*words, "--", sys.executable, "client.py", *calls)

        return self.cassette.read_text()

    def replay(self, *calls: str, code: int = 0) -> str:
        """Play the cassette to a client that makes these calls; return what is told."""
        return self.run(
            "replay", "c.json", "--", sys.executable, "client.py", *calls, code=code
        )

    def verify(self, build: str, *options: str, code: int = 0) -> str:
        """Hold a build of the server to the cassette; return what is told."""
        (self._folder / "build.txt").write_text(build)
        return self.run(
            "verify", "c.json", *options, "--", sys.executable, "server.py", code=code
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Give a folder with a server and a client."""
    return Project(tmp_path)


def test_what_is_recorded_over_stands_in_the_order_of_the_conversation(
    project: Project,
) -> None:
    """The file, `inspect`, the page and `verify` have the read after the write that it needs now."""
    project.record("1", "get", "put=a")
    project.record("1", "put=a", "get")
    calls = re.findall(
        r'^#\d+ tools/call "(\w+)"', project.run("inspect", "c.json"), re.MULTILINE
    )

    assert calls == ["put", "get"]

    project.run("view", "c.json")
    page = project.cassette.with_suffix(".html").read_text()

    assert page.index("stored") < page.index("[&#39;a&#39;]")
    assert "2 interactions: 2 same" in project.verify("1")


def test_a_changed_word_changes_the_lines_that_have_it(project: Project) -> None:
    """Beside it a cassette that is recorded again has another date, recorder and digest."""
    calls = ("server/discover", "put=a", "put=b", "get", "put=c")
    before = project.record("1old", *calls)
    after = project.record("1new", *calls)
    changed = []
    for line in difflib.ndiff(before.splitlines(), after.splitlines()):
        if line.startswith("+"):
            changed.append(re.sub(r"[^a-z_0-9].*", "", line[1:].strip(' "{')))

    # Both may have been recorded in one second.
    lasting = [name for name in changed if name != "recorded_at"]

    assert lasting == ["text", "recorders", "number"]


def test_a_tool_that_is_gone_is_refused_with_the_words_of_the_server(
    project: Project,
) -> None:
    """In the text, and in all reports with what was expected."""
    project.record("1", "server/discover", "put=a", "get")
    reports = []
    for kind in ("json", "md", "xml"):
        reports += ["--report", f"report.{kind}"]

    told = project.verify("1 get", *reports, code=1)

    assert '#3 tools/call "get": refused' in told

    restoring, accepting = told.split("fix: ")[1].splitlines()[:2]

    assert restoring.startswith("run the server as it was recorded, such as in")
    assert "--accept refused" in accepting
    assert "Unknown tool: get" in told

    folder = project.cassette.parent
    (failure,) = ET.fromstring((folder / "report.xml").read_text()).iter("failure")
    texts = [
        json.dumps(json.loads((folder / "report.json").read_text())),
        failure.text or "",
    ]

    texts.append((folder / "report.md").read_text())
    for text in texts:
        assert "Unknown tool: get" in text
        assert "['a']" in text


def test_a_tool_that_is_gone_is_accepted_with_its_list_at_once(
    project: Project,
) -> None:
    """The advice has both verdicts, and nothing differs once it was followed."""
    project.record("1", "server/discover", "tools/list", "get", "put=a")
    told = project.verify("1 get", code=1)
    verdicts = re.findall("--accept [a-z-]+", told)

    assert verdicts == ["--accept refused", "--accept surface-changed"]

    project.verify("1 get", *" ".join(verdicts).split())

    assert "4 interactions: 4 same" in project.verify("1 get")


def test_a_new_version_is_told_once(project: Project) -> None:
    """As information, whatever the number of calls that say it."""
    project.record("1", "server/discover", "put=a", "put=b", "get")
    told = project.verify("2")

    assert "4 interactions: 4 same" in told
    assert told.count("version") == 1


def test_a_call_too_many_names_the_option_for_tools_that_read(project: Project) -> None:
    """With it, the call is played again, and what it was played after is told."""
    project.record("1", "get", "put=a")
    missed = project.replay("get", "get", code=1)

    assert "already-played" in missed
    assert "--reads get" in missed

    words = ("replay", "c.json", "--reads", "get", "--", sys.executable, "client.py")
    told = project.run(*words, "get", "put=a", "get")

    assert 'after other writes than recorded: #1 tools/call "get"' in told
