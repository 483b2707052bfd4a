"""A way out that is told works: each is taken as it was printed, and does what it says."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import cassette_of, encode_cassette, retry, tool
from forked import FORKS_ALL, start
from keeping import SERVER as KEEPING
from messages import asks, text
from patience import HANGS_S
from processes import PROGRAM, listening

import mrtr_cassette
from mrtr_cassette.shell.files.cassettes import load_cassette
from mrtr_cassette.shell.runs.running import in_thread
from mrtr_cassette.shell.runs.upstreams import running_command
from mrtr_cassette.terms import COMMANDS, WAYS_OUT

SERVER = """
import datetime, json, pathlib, sys, uuid

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
        message = ("Really?" if answers else "Sure?") + "".join(sys.argv[1:])
        requests = {uuid.uuid4().hex: form(message)}
        asked = {"resultType": "input_required", "inputRequests": requests}
        return asked | {"requestState": state}
    text = said(name, params.get("arguments", {})) + "".join(sys.argv[1:])
    result = {"content": [{"type": "text", "text": text}]}
    if name == "stamp":
        result["structuredContent"] = {"at": datetime.datetime.now().isoformat()}
    if name == "now":
        result["structuredContent"] = at = {"at": uuid.uuid4().hex}
        result["content"].append({"type": "text", "text": json.dumps(at)})
    return result

def said(name, arguments):
    state = pathlib.Path("state")
    if name == "set":
        state.write_text(str(arguments["to"]))
    if name == "note":
        state.write_text(f"Noted {uuid.uuid4()} at {datetime.datetime.now()}")
    return state.read_text() if state.exists() else "none"

for line in sys.stdin:
    asked = json.loads(line)
    params = asked.get("params", {})
    if asked["method"] == "tools/call":
        result = called(params)
    elif asked["method"] == "tools/list":
        schema = {"type": "object", "properties": {"to": {"type": "string"}}}
        names = ("get", "set", "ask", "stamp", "note", "now", "noted")
        hints = {"annotations": {"readOnlyHint": True}}
        tools = [{"name": name, "inputSchema": schema} for name in names]
        result = {"tools": [*tools[:-2], tools[-2] | hints, tools[-1] | hints]}
    elif asked["method"] == "server/discover":
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        result["serverInfo"] = {"name": "kept", "version": "1"}
    else:
        continue
    result = {"resultType": "complete", **result, "ttlMs": 0, "cacheScope": "private"}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
"""A server on pipes that keeps a value in a file."""

CALLS = """
import shlex, subprocess, sys

for words in sys.argv[1:]:
    subprocess.run(["mrtr-cassette", *shlex.split(words)], check=True)
"""
"""A client that runs the program once for each argument, up to the first one that fails."""

KILLING = """
import os, signal, subprocess

subprocess.run(["mrtr-cassette", "call", "get"], check=True)
os.kill(os.getppid(), signal.SIGKILL)
"""
"""A client that kills what runs it."""

PATH = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
"""Finds this Python, and the program."""


SHELLS = re.compile("^(?!mrtr-cassette )|[;&|<>]|~/")
"""What only a shell runs as it is written; a sign in quotes may be one that is none."""


class Shell:
    """A shell in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "my server.py").write_text(SERVER)
        (folder / "calls.py").write_text(CALLS)
        (folder / "killing.py").write_text(KILLING)
        self.server = f"{sys.executable} 'my server.py'"
        self._environment = {**os.environ, "PATH": PATH, FORKS_ALL: "1"}

    def run(self, command: str, code: int = 0) -> str:
        """Run a command, which ends with this code; return its output."""
        environment = {**self._environment}
        while set_first := re.match("([A-Z]+)=([^ ]*) ", command):
            environment[set_first[1]] = set_first[2]
            command = command[set_first.end() :]

        words = ["sh", "-c", command]
        if not SHELLS.search(command):
            # No shell is needed, and the program is forked off one that is loaded.
            words = [*PROGRAM, *shlex.split(command)[1:]]

        with tempfile.TemporaryFile("w+") as printed:
            process = start(words, printed, printed, environment, self.folder)
            ended = process.wait(timeout=HANGS_S)
            printed.seek(0)
            output = printed.read()

        assert ended == code, f"{command}\n{output}"
        return output


def told(output: str, pattern: str, end: str = "$") -> str:
    """Return the only way out of this form in an output, at the end of a line or before `end`."""
    found = set(re.findall(f"(?m) ({pattern}){end}", output))
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
    with listening(
        (sys.executable, "-m", "mrtr_cassette.demo.server", "--port", "0")
    ) as server:
        yield server.url


def test_missed_call_is_recorded_by_the_command_that_is_told(
    shell: Shell, url: str
) -> None:
    """Over HTTP, with the file, the server and the client; replay and client tell it once."""
    shell.run(
        f"mrtr-cassette call {url} add a=1 b=2 -o 'my calls.json' --log-format json"
    )
    replay = "mrtr-cassette replay 'my calls.json' -- mrtr-cassette call add"
    missed = shell.run(f"{replay} a=1 b=3", code=1)

    assert missed.count("miss: ") == missed.count(" fix: ") == 1
    assert "\nerror: -32010: not recorded, for the reason above\n" in missed

    shell.run(told(missed, "mrtr-cassette record --append .*"))
    for sum_ in (2, 3):
        assert f"\n{1 + sum_}\n" in shell.run(f"{replay} a=1 b={sum_}")


PIN = "pin-4711-0815"
DEPLOY = f"""
import subprocess, sys

call = ["mrtr-cassette", "call", "--header", "X-Tenant: a", "deploy", "env={PIN}"]
subprocess.run([*call, "--answer", f"confirm={{sys.argv[1]}}"], check=True)
"""
HIDING = "--redact pin-[0-9-]+ --redact-key 'my note' --match-header X-Tenant"


@pytest.mark.parametrize("way", ["--force", "--append"])
def test_recording_by_the_command_that_is_told_hides_and_keeps_the_same(
    shell: Shell, url: str, way: str
) -> None:
    """One that replaces the cassette is given its rules; one that adds to it takes them over."""
    (shell.folder / "deploy.py").write_text(DEPLOY)
    client = "python deploy.py"
    shell.run(
        f"mrtr-cassette record {HIDING} --upstream {url} -o c.json -- {client} yes"
    )
    missed = shell.run(f"mrtr-cassette replay c.json -- {client} no", code=1)
    command = told(missed, f"mrtr-cassette record {way} .*")
    shell.run(command)
    path = shell.folder / "c.json"
    exchanges = load_cassette(path).exchanges

    assert PIN not in path.read_text()
    assert {exchange.request.header("x-tenant") for exchange in exchanges} == {"a"}
    assert ("--redact" in command) is (way == "--force")

    shell.run(f"mrtr-cassette replay c.json -- {client} no")


def test_recording_by_the_command_that_is_told_plays_and_hides_what_the_replay_did(
    shell: Shell, url: str
) -> None:
    """What is left out of matching is recorded once, and no text that is given is written."""
    secret = "horse-battery-staple"
    hiding = f"--redact-env PASS --redact-value '{secret} 2'"
    call = f"mrtr-cassette call build target='{secret} 2' --answer confirm=yes"
    shell.run(
        f"PASS={secret} mrtr-cassette record {hiding} --upstream {url} -o c.json -- {call}"
    )
    replay = (
        f"PASS={secret} mrtr-cassette replay {hiding} --ignore /arguments/target c.json"
    )
    missed = shell.run(f"{replay} -- mrtr-cassette call add a=1 b=2", code=1)
    command = told(missed, "mrtr-cassette record --append .*")

    assert "--ignore /arguments/target --redact-env PASS --redact-value TEXT" in command


def test_missed_call_on_pipes_is_recorded_by_the_command_that_is_told(
    shell: Shell,
) -> None:
    """It takes the place of the replay in the client's command."""
    record = f"mrtr-cassette record --stdio -o c.json -- {shell.server}"
    shell.run(f"mrtr-cassette call set to=1 -- {record}")
    replay = "mrtr-cassette replay --stdio c.json"
    missed = shell.run(f"mrtr-cassette call set to=2 -- {replay}", code=1)

    assert missed.count("miss: ") == 1

    server = told(missed, "mrtr-cassette record --stdio --append .*")
    shell.run(f"mrtr-cassette call set to=2 -- {server}")
    for value in (1, 2):
        assert f"\n{value}\n" in shell.run(
            f"mrtr-cassette call set to={value} -- {replay}"
        )


def test_missed_call_over_the_other_transport_is_recorded_by_the_command_that_is_told(
    shell: Shell,
) -> None:
    """All of the cassette is recorded again over the one in use, which can't add to it."""
    call = "mrtr-cassette call set"
    recorder = f"mrtr-cassette record --stdio -o c.json -- {shell.server}"
    shell.run(f"{call} to=1 -- {recorder}")
    client = f"-- {call} to=2"
    missed = shell.run(f"mrtr-cassette replay c.json {client}", code=1)
    again = told(missed, "mrtr-cassette record --force .*")

    assert again.endswith(client)

    server = f"--upstream {shlex.quote(shell.server)}"
    adding = f"mrtr-cassette record --append -o c.json {server} {client}"
    refused = shell.run(adding, code=2)

    assert told(refused, "--force") == "--force"

    shell.run(again)
    shell.run(f"mrtr-cassette replay c.json {client}")

    replay = "mrtr-cassette replay --stdio c.json"
    missed = shell.run(f"{call} to=3 -- {replay}", code=1)
    refused = shell.run(
        f"{call} to=3 -- {recorder.replace('--stdio', '--stdio --append')}", code=4
    )

    assert (
        "c.json was recorded over HTTP, and this recording would be over pipes"
        in refused
    )

    shell.run(
        f"{call} to=3 -- {told(missed, 'mrtr-cassette record --stdio --force .*')}"
    )
    shell.run(f"{call} to=3 -- {replay}")


@pytest.mark.parametrize(
    "port", ["", " '{port}' --path /api/mcp"], ids=["pipes", "http"]
)
def test_missed_call_of_a_started_server_is_recorded_by_the_command_that_is_told(
    shell: Shell, port: str
) -> None:
    """Its command starts the server again, and the cassette knows its path."""
    (shell.folder / "server.py").write_text(KEEPING)
    call = "mrtr-cassette call put"
    command, _, path = port.partition(" --")
    path = f" --{path}" if path else ""
    shell.run(f"{call} word=a -o c.json{path} -- {sys.executable} server.py{command}")
    replay = "mrtr-cassette replay c.json -- mrtr-cassette call put"
    missed = shell.run(f"{replay} word=b", code=1)
    shell.run(told(missed, "mrtr-cassette record --append .*"))
    shell.run(f"{replay} word=b")


@pytest.mark.parametrize("port", [[], ["{port}"]], ids=["pipes", "http"])
def test_missed_call_is_recorded_by_the_line_of_python_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: list[str]
) -> None:
    """It has the command that started the server, and the file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", PATH)
    Path("server.py").write_text(KEEPING)
    path = {"upstream_path": "/api/mcp"} if port else {}
    server = [sys.executable, "server.py", *port]
    mrtr_cassette.call(server, "put", {"word": "a"}, path="c.json", **path)
    with mrtr_cassette.replay("c.json", on_miss="report") as replay:
        replay.call("put", {"word": "b"})

    way = replay.misses[0].fixes[-1].partition(" with ")[2]
    with eval(way, {"record": mrtr_cassette.record}) as recording:
        recording.call("put", {"word": "b"})

    with mrtr_cassette.replay("c.json") as replay:
        assert replay.call("put", {"word": "b"}).text == "b"


AGAIN = "mrtr-cassette record (?:--stdio )?--force .*"
YES = "mrtr-cassette call ask --answer ok=yes --answer '#2.ok=yes'"
NO = "mrtr-cassette call ask --answer ok=no --answer '#2.ok=no'"


def test_started_server_that_asks_otherwise_is_recorded_again_as_told(
    shell: Shell,
) -> None:
    """By the command that starts it now, with the client that got nothing."""
    server = f"--upstream {shlex.quote(shell.server)}"
    shell.run(f"mrtr-cassette record -o c.json {server} -- {YES}")
    changed = f"--upstream {shlex.quote(f'{shell.server} more')}"
    failed = shell.run(
        f"mrtr-cassette record --append -o c.json {changed} -- {NO}", code=1
    )
    shell.run(told(failed, AGAIN))
    shell.run(f"mrtr-cassette replay c.json -- {NO}")
    shell.run(f"mrtr-cassette replay c.json -- {YES}", code=1)


def test_server_on_pipes_that_asks_otherwise_is_recorded_again_as_told(
    shell: Shell,
) -> None:
    """The command takes the place of the recorder in the client's."""
    shell.run(f"{YES} -- mrtr-cassette record --stdio -o c.json -- {shell.server}")
    adding = f"mrtr-cassette record --stdio --append -o c.json -- {shell.server} more"
    failed = shell.run(f"{NO} -- {adding}", code=1)
    shell.run(f"{NO} -- {told(failed, AGAIN)}")
    shell.run(f"{NO} -- mrtr-cassette replay --stdio c.json")


def test_server_at_a_url_that_says_otherwise_is_recorded_again_as_told(
    shell: Shell,
) -> None:
    """It kept what the recording had told it, and a second write like that is another one."""
    (shell.folder / "server.py").write_text(KEEPING)
    client = "python calls.py 'call put word=a' 'call get'"
    command = [sys.executable, "server.py", "{port}"]
    with in_thread(running_command(command, shell.folder, path="/api/mcp")) as server:
        record = f"mrtr-cassette record -o c.json --upstream {server.url}"
        shell.run(f"{record} -- mrtr-cassette call put word=a")
        failed = shell.run(f"{record} --append -- {client}", code=1)
        shell.run(told(failed, AGAIN))

    shell.run(f"mrtr-cassette replay c.json -- {client}")


def test_reads_are_held_to_their_writes_by_the_option_that_is_told(
    shell: Shell,
) -> None:
    """A read after other writes than recorded is played, and with the option it is a miss."""
    (shell.folder / "server.py").write_text(KEEPING)
    client = "python calls.py 'call put word=a' 'call get'"
    server = shlex.quote(f"{sys.executable} server.py")
    shell.run(f"mrtr-cassette record -o c.json --upstream {server} -- {client}")
    replay = "mrtr-cassette replay c.json"
    way = told(shell.run(f"{replay} -- mrtr-cassette call get"), "--history strict")
    shell.run(f"{replay} {way} -- {client}")
    missed = shell.run(f"{replay} {way} -- mrtr-cassette call get", code=1)

    assert "miss: other-history" in missed


def test_changed_response_is_taken_by_the_option_that_is_told(shell: Shell) -> None:
    """Of the heaviest verdict, with what is written; the next verification finds all the same."""
    record = f"mrtr-cassette record --stdio -o c.json -- {shell.server}"
    shell.run(f"mrtr-cassette call set to=1 -- {record}")
    verify = "mrtr-cassette verify c.json"
    server = f"-- {shell.server} now"
    changed = shell.run(f"{verify} {server}", code=1)

    assert "--ignore" not in changed
    assert "--learn" not in changed

    (option, written) = re.findall(r"fix: .* with (--accept .*): (#.*)", changed)[0]
    taken = shell.run(f"{verify} {option} {server}")

    assert f"accepted: {written}: " in taken

    shell.run(f"{verify} {server}")


ASKING = """    if name == "ask" and state != "second":
        state = "second" if answers else "first"
"""
ASKING_MORE = """    if name == "ask" and state != "third":
        state = {None: "first", "first": "second", "second": "third"}[state]
"""


def test_question_that_was_accepted_is_recorded_by_the_command_that_is_told(
    shell: Shell,
) -> None:
    """Where the conversation ended in the cassette, it goes on then."""
    server = SERVER.replace("uuid.uuid4().hex: form", "'sure': form")
    (shell.folder / "my server.py").write_text(server)
    record = f"mrtr-cassette record --stdio -o c.json -- {shell.server}"
    shell.run(f"{YES} -- {record}")
    (shell.folder / "my server.py").write_text(server.replace(ASKING, ASKING_MORE))
    verify = f"mrtr-cassette verify c.json --accept all -- {shell.server}"
    way = told(shell.run(verify), "mrtr-cassette record --stdio --append .*")
    more = f"{YES} --answer '#3.ok=yes'"
    shell.run(f"{more} -- {way}")
    shell.run(f"{more} -- mrtr-cassette replay --stdio c.json")


def test_changes_are_taken_without_a_terminal_by_the_option_that_is_told(
    shell: Shell,
) -> None:
    """By verdict, where nobody can be asked."""
    record = f"mrtr-cassette record --stdio -o c.json -- {shell.server}"
    shell.run(f"mrtr-cassette call set to=1 -- {record}")
    verify = "mrtr-cassette verify c.json"
    server = f"-- {shell.server} now"
    way = told(shell.run(f"{verify} --review {server}", code=2), "--accept .*")

    assert "accepted: " in shell.run(f"{verify} {way} {server}")


def test_what_differs_by_itself_is_left_out_by_the_option_that_is_told(
    shell: Shell,
) -> None:
    """Where two equal calls to the server differ; everything else is compared still."""
    record = f"mrtr-cassette record --stdio -o c.json -- {shell.server}"
    shell.run(f"mrtr-cassette call now -- {record}")
    verify = "mrtr-cassette verify c.json"
    varies = shell.run(f"{verify} -- {shell.server}", code=1)
    way = told(varies, "--ignore .*")

    # A text repeats the value.
    assert way.count("--ignore ") == 2

    shell.run(f"{verify} {way} -- {shell.server}")

    assert "/content/0/text" in shell.run(
        f"{verify} {way} -- {shell.server} more", code=1
    )


def test_times_and_ids_of_writes_are_left_out_by_the_option_that_is_told(
    shell: Shell,
) -> None:
    """Of the write, which nobody may ask twice, and of what reads it; nothing is to be accepted."""
    client = "python calls.py 'call stamp' 'call note' 'call noted'"
    server = f"--upstream {shlex.quote(shell.server)}"
    shell.run(f"mrtr-cassette record -o c.json {server} -- {client}")

    def verify(words: str, code: int = 0) -> str:
        # What an earlier run has left is no part of this server.
        (shell.folder / "state").unlink()
        return shell.run(f"mrtr-cassette verify c.json {words}", code)

    varies = verify(f"-- {shell.server}", code=1)

    assert "--accept" not in varies
    assert told(varies, "--ignore .*")

    way = told(varies, "--learn .*")
    verify(f"{way} -- {shell.server}")
    way = way.replace("--learn", "--ignore-from")
    verify(f"{way} -- {shell.server}")

    assert "/content/0/text" in verify(f"{way} -- {shell.server} more", code=1)


def test_tool_that_was_renamed_is_not_offered_to_be_left_out(shell: Shell) -> None:
    """It is another one in no two calls to the server, and the alarm is what is wanted."""
    record = f"mrtr-cassette record --stdio -o c.json -- {shell.server}"
    shell.run(f"mrtr-cassette call get -- {record}")
    (shell.folder / "my server.py").write_text(SERVER.replace('"get"', '"fetch"'))
    renamed = shell.run(f"mrtr-cassette verify c.json -- {shell.server}", code=1)

    assert "/tools/" in renamed
    assert "--ignore" not in renamed
    assert "--learn" not in renamed


def test_write_with_a_time_is_repeated_by_the_option_that_is_told(shell: Shell) -> None:
    """The live server makes it again before it gets a call that the cassette lacks."""
    shell.run(f"mrtr-cassette call stamp -o c.json -- {shell.server}")
    record = f"mrtr-cassette record --append -o c.json --upstream {shlex.quote(shell.server)}"
    client = "python calls.py 'call stamp' 'call get'"
    missed = shell.run(f"{record} -- {client}", code=1)

    assert "--reads" not in missed
    assert told(missed, "mrtr-cassette record --force .*").endswith(f" -- {client}")

    way = told(missed, "--ignore .*")

    assert "matched nothing" not in shell.run(f"{record} {way} -- {client}")

    shell.run(f"mrtr-cassette replay c.json -- {client}")


def test_question_is_answered_by_the_options_that_are_told(shell: Shell) -> None:
    """The second one by its place: its key is another one in each run."""
    call = "mrtr-cassette call ask"
    for count in range(2):
        asked = shell.run(f"{call} -- {shell.server}", code=5)
        call += " " + told(asked, "--answer .*").strip()

        assert f"turn {count + 1} is not answered" in asked

    assert call.endswith("--answer ok=yes --answer '#2.ok=yes'")

    shell.run(f"{call} -- {shell.server}")


def test_journal_is_published_by_the_command_that_is_told(shell: Shell) -> None:
    """The calls recorded before the recorder was killed are replayed then."""
    server = f"--upstream {shlex.quote(shell.server)}"
    killed = f"mrtr-cassette record -o 'my c.json' {server} -- python killing.py"
    shell.run(killed, code=-signal.SIGKILL)
    replay = "mrtr-cassette replay 'my c.json' -- mrtr-cassette call get"
    refused = shell.run(replay, code=3)
    shell.run(told(refused, "mrtr-cassette recover .*", end=r" \(or delete"))
    shell.run(replay)


def test_journal_that_adds_is_published_by_the_command_that_is_told(
    shell: Shell,
) -> None:
    """The cassette that it adds to can be merged then."""
    server = f"--upstream {shlex.quote(shell.server)}"
    shell.run(
        f"mrtr-cassette record -o 'my c.json' {server} -- mrtr-cassette call set to=1"
    )
    record = f"mrtr-cassette record --append -o 'my c.json' {server}"
    shell.run(f"{record} -- python killing.py", code=-signal.SIGKILL)
    refused = shell.run("mrtr-cassette merge 'my c.json.journal' -o both.json", code=3)
    shell.run(told(refused, "mrtr-cassette recover .*", end=", and merge"))
    shell.run("mrtr-cassette merge 'my c.json' -o both.json")
    shell.run("mrtr-cassette replay both.json -- mrtr-cassette call get")


def test_edit_is_accepted_by_the_command_that_is_told(shell: Shell) -> None:
    """An edited call replays, and a secret that was replaced is not reported."""
    path = shell.folder / "my c.json"
    shell.run(f"mrtr-cassette call set to=abc -o 'my c.json' -- {shell.server}")
    path.write_text(path.read_text().replace('"abc"', f'"sk-proj-{"Ab1" * 8}"'))
    replay = "mrtr-cassette replay 'my c.json' -- mrtr-cassette call set"
    accept = told(shell.run(f"{replay} to=abc", code=3), "mrtr-cassette check .*")
    exposed = shell.run(accept, code=1)

    assert told(exposed, "mrtr-cassette check .*") == accept

    path.write_text(path.read_text().replace(f'"sk-proj-{"Ab1" * 8}"', '"new"'))
    shell.run(accept)
    shell.run(f"{replay} to=new")


def test_report_is_written_by_the_command_that_is_told(shell: Shell) -> None:
    """The page of the cassette can show it then."""
    shell.run(f"mrtr-cassette call get -o 'my c.json' -- {shell.server}")
    (shell.folder / "r.xml").write_text("<testsuites/>")
    wrong = shell.run("mrtr-cassette view 'my c.json' --report r.xml", code=2)
    way = told(wrong, "mrtr-cassette replay .*")
    shell.run(f"{way} -- mrtr-cassette call get")
    shell.run("mrtr-cassette view 'my c.json' --report r.json")


def test_sides_of_a_conflict_are_merged_by_the_commands_that_are_told(
    shell: Shell,
) -> None:
    """From any folder of the repository, the calls recorded on two branches are one cassette."""
    git = "git -c user.name=a -c user.email=a@example.org"
    shell.run(
        f"git init -q -b main && {git} commit -q --allow-empty -m empty && mkdir 'my c'"
    )
    for branch in ("ours", "theirs"):
        shell.run(f"git checkout -q -b {branch} main && mkdir -p 'my c'")
        shell.run(
            f"mrtr-cassette call set -o 'my c/c.json' to={branch} -- {shell.server}"
        )
        shell.run(f"git add 'my c' && {git} commit -q -m {branch}")

    shell.run(f"{git} merge ours", code=1)
    replay = "mrtr-cassette replay 'my c/c.json' -- mrtr-cassette call set"
    conflict = shell.run(f"{replay} to=ours", code=3)
    shell.run(told(conflict, "git .* && mv .*", end="; or take"))
    for branch in ("ours", "theirs"):
        shell.run(f"{replay} to={branch}")


def test_wrapped_server_is_unwrapped_by_the_command_that_is_told(shell: Shell) -> None:
    """It can be wrapped in another way then."""
    config = '{"mcpServers": {"my s": {"command": "node", "args": ["s.mjs"]}}}'
    (shell.folder / "my config.json").write_text(config)
    wrap = "mrtr-cassette wrap 'my config.json' 'my s'"
    shell.run(f"{wrap} --record c.json")
    shell.run(f"mrtr-cassette call get -o c.json -- {shell.server}")
    wrapped = shell.run(f"{wrap} --replay c.json", code=3)
    shell.run(told(wrapped, "mrtr-cassette unwrap .*"))
    shell.run(f"{wrap} --replay c.json")


def test_tool_that_may_destroy_is_called_with_the_option_that_is_told(
    shell: Shell,
) -> None:
    """Its result is compared then."""
    (shell.folder / "my server.py").write_text(
        SERVER.replace("readOnlyHint", "destructiveHint")
    )
    record = f"mrtr-cassette record --stdio -o c.json -- {shell.server}"
    shell.run(f"mrtr-cassette call now -- {record}")
    verify = "mrtr-cassette verify c.json"
    way = told(shell.run(f"{verify} -- {shell.server}"), "--allow-destructive")

    assert "text-changed" in shell.run(f"{verify} {way} -- {shell.server}", code=1)


def test_secret_in_a_path_is_redacted_by_the_option_that_is_told(shell: Shell) -> None:
    """There is nothing to warn of then, and it is not in the cassette."""
    secret = "q7ZrT2mWx9KbLp4VnYc8HdJ3"
    (shell.folder / "server.py").write_text(
        KEEPING.replace("/api/mcp", f"/{secret}/mcp")
    )
    command = [sys.executable, "server.py", "{port}"]
    with in_thread(
        running_command(command, shell.folder, path=f"/{secret}/mcp")
    ) as server:
        record = f"mrtr-cassette record --force -o c.json --upstream {server.url}"
        client = "-- mrtr-cassette call put word=a"
        warned = shell.run(f"{record} {client}")

        assert secret in (shell.folder / "c.json").read_text()

        way = told(warned, "--redact .*")

        assert "warning: " not in shell.run(f"{record} {way} {client}")

    assert secret not in (shell.folder / "c.json").read_text()

    shell.run(f"mrtr-cassette replay c.json {client}")


def test_every_way_out_is_tried() -> None:
    """A new one is a case here, or of the misses of tests/core/report, or a part of another."""
    here = {"accept_verdicts", "answer", "ignore_values", "learn_places"}
    here |= {"history_strict", "record_again", "record_pipe_again", "record_pipe_too"}
    here |= {"record_started_again", "record_started_too", "record_too"}
    of_misses = {"history_order", "reads_tool", "repeat_always"}
    parts = {
        "given",
        "client",
        "command",
        "kept",
        "kept_sealed",
        "kept_value",
        "kept_verbatim",
        "path",
        "hidden",
        "in_place",
        "upstream_in_marker",
        "played_as",
        "between_options",
    }

    parts |= {"pointers", "rules", "started", "test", "tool", "upstream", "verdicts"}
    # What a trial lacks is recorded in tests/cli/test_trials.py.
    parts |= {name for name in WAYS_OUT if name.startswith("given_")}
    words = {"no_coding", "append", "cassette", "header_form", "record", "replace"}
    words |= {"give_value", "name_upstream", "publish_anyway"}

    assert here | of_misses | parts | words == {*WAYS_OUT}

    # What a report prints is tried by tests/cli/test_cli_cut.py, and what is said of wrapped servers
    # is read by tests/cli/test_cli_wrap.py and tests/core/cassette/test_client_config.py.
    commands = {
        "accept_edit",
        "cut_shared",
        "merge_sides",
        "play_call",
        "play_call_undiscovered",
        "publish_journal",
        "record_url",
        "report_replay",
        "unwrap_server",
        "wrap_server",
    }

    assert commands == {*COMMANDS}


def test_commands_of_a_report_play_a_call_of_a_client_that_asked_for_nothing_else(
    shell: Shell,
) -> None:
    """Such a client asks for no versions and no tools; a text that looks like a number stays one."""
    call = tool("tools/list", to="5")
    answered = retry(call, {"ok": {"action": "accept", "content": {"ok": True}}})
    recorded = cassette_of((call, asks("ok")), (answered, text("done")))
    (shell.folder / "c.json").write_bytes(encode_cassette(recorded))
    report = shell.run("mrtr-cassette report c.json --last")
    for command in re.findall("mrtr-cassette (?:cut|replay) [^`\n]+", report):
        played = shell.run(command)

    assert "\ndone\nplayed 1 of 1 interactions, no misses\n" in played
