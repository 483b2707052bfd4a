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

from mrtr_cassette.terms import WAYS_OUT

SERVER = """
import json, pathlib, sys, uuid

def form(message):
    fields = {"ok": {"type": "boolean"}}
    schema = {"type": "object", "properties": fields, "required": ["ok"]}
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}

def called(params):
    name, state = params["name"], params.get("requestState")
    answers = params.get("inputResponses", {})
    if name == "ask" and state != "second":
        state = "second" if answers else "first"
        requests = {uuid.uuid4().hex: form("Really?" if answers else "Sure?")}
        asked = {"resultType": "input_required", "inputRequests": requests}
        return asked | {"requestState": state}
    text = said(name, params.get("arguments", {})) + "".join(sys.argv[1:])
    result = {"content": [{"type": "text", "text": text}]}
    if name == "now":
        result["structuredContent"] = at = {"at": uuid.uuid4().hex}
        result["content"].append({"type": "text", "text": json.dumps(at)})
    return result

def said(name, arguments):
    state = pathlib.Path("state")
    if name == "set":
        state.write_text(str(arguments["to"]))
    return state.read_text() if state.exists() else "none"

for line in sys.stdin:
    asked = json.loads(line)
    params = asked.get("params", {})
    if asked["method"] == "tools/call":
        result = called(params)
    elif asked["method"] == "tools/list":
        schema = {"type": "object", "properties": {"to": {"type": "string"}}}
        names = ("get", "set", "ask", "now")
        hints = {"annotations": {"readOnlyHint": True}}
        tools = [{"name": name, "inputSchema": schema} for name in names]
        result = {"tools": [*tools[:-1], tools[-1] | hints]}
    elif asked["method"] == "server/discover":
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        result["serverInfo"] = {"name": "kept", "version": "1"}
    else:
        continue
    result = {"resultType": "complete", **result, "ttlMs": 0, "cacheScope": "private"}
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


def test_changed_response_is_taken_by_the_option_that_is_told(shell: Shell) -> None:
    """Of the heaviest verdict, with what is written; the next verification finds all the same."""
    record = f"mrtr-cassette record --stdio -o c.json -- {shell.server}"
    shell.run(f"mrtr-cassette call set to=1 -- {record}")
    verify, server = "mrtr-cassette verify c.json", f"-- {shell.server} now"
    changed = shell.run(f"{verify} {server}", code=1)
    assert "--ignore" not in changed
    assert "--learn" not in changed
    (option, written) = re.findall(r"fix: .* with (--accept .*): (#.*)", changed)[0]
    taken = shell.run(f"{verify} {option} {server}")
    assert f"accepted: {written}: " in taken
    shell.run(f"{verify} {server}")


@pytest.mark.parametrize("option", ["--ignore", "--learn"])
def test_what_differs_by_itself_is_left_out_by_the_option_that_is_told(
    shell: Shell, option: str
) -> None:
    """Where two equal calls to the server differ; everything else is compared still."""
    record = f"mrtr-cassette record --stdio -o c.json -- {shell.server}"
    shell.run(f"mrtr-cassette call now -- {record}")
    verify = "mrtr-cassette verify c.json"
    varies = shell.run(f"{verify} -- {shell.server}", code=1)
    way = told(varies, f"{option} .*")
    # A text repeats the value.
    assert way.count("--ignore ") in (0, 2)
    shell.run(f"{verify} {way} -- {shell.server}")
    if option == "--learn":
        way = way.replace("--learn", "--ignore-from")
    shell.run(f"{verify} {way} -- {shell.server}")
    assert "/content/0/text" in shell.run(f"{verify} {way} -- {shell.server} more", code=1)


def test_question_is_answered_by_the_options_that_are_told(shell: Shell) -> None:
    """The second one by its place: its key is another one in each run."""
    call = "mrtr-cassette call ask"
    for count in range(2):
        asked = shell.run(f"{call} -- {shell.server}", code=5)
        call += " " + told(asked, "--answer .*").strip()
        assert f"turn {count + 1} is not answered" in asked
    assert call.endswith("--answer ok=yes --answer '#2.ok=yes'")
    shell.run(f"{call} -- {shell.server}")


def test_every_way_out_is_tried() -> None:
    """A new one is a case here, or of the misses of tests/core/report, or a part of another."""
    here = {"accept_verdicts", "answer", "ignore_values", "learn_places"}
    here |= {"record_pipe_too", "record_too"}
    of_misses = {"history_order", "history_strict", "reads_tool", "repeat_always"}
    # They differ from those above in one option.
    alike = {"record_again", "record_pipe_again"}
    parts = {"given", "client", "command", "kept", "kept_sealed", "kept_verbatim", "path"}
    parts |= {"pointers", "rules", "test", "tool", "upstream", "verdicts"}
    words = {"accept_gzip", "append", "cassette", "header_form", "record", "replace"}
    assert here | of_misses | alike | parts | words == {*WAYS_OUT}
