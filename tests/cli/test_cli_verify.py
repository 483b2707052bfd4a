"""Facts about `mrtr-cassette verify`, of the command in this process and once of a real one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from pipes import recorder, spoken
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from builders import rpc
from click.testing import CliRunner, Result
from commands import repeated
from harness import looped, post, run_here, taping
from messages import CAPABLE, tool_call

from mrtr_cassette.cli import main

SERVER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    text = sys.argv[1]
    result = {"content": [{"type": "text", "text": text}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def invoke(*arguments: Any) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, ["verify", *map(str, arguments)])


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with a server on pipes, and two cassettes of it."""
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "cassettes/inner").mkdir(parents=True)
    (tmp_path / "cassettes/other.json").write_text("{}")

    async def script(visit: Any) -> None:
        from standin import json_response

        result = {"content": [{"type": "text", "text": "one"}]}
        reply = {"jsonrpc": "2.0", "id": visit.request.json["id"], "result": result}
        await visit.send(json_response(reply))

    @looped
    async def record() -> None:
        for name in ("a.json", "inner/b.json"):
            async with taping(tmp_path / "cassettes" / name, script) as tape:
                await post(tape.url, tool_call("say", _meta=CAPABLE))

    record()
    return tmp_path


def server(project: Path, said: str) -> tuple[str, ...]:
    """Return the command line's end that starts the server."""
    return "--", sys.executable, str(project / "server.py"), said


def test_folder_is_verified_and_reported(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every cassette in it, with exit codes, reports in three formats, and annotations."""
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    same = invoke(project / "cassettes", *server(project, "one"))

    assert same.exit_code == 0, same.output
    assert same.stdout.count("1 interaction: 1 same") == 2
    assert "other.json" not in same.output

    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    reports = [project / f"report.{kind}" for kind in ("json", "xml", "md")]
    options = repeated("--report", reports)
    for _ in range(2):
        changed = invoke(project / "cassettes", *options, *server(project, "two | `x`"))

        assert changed.exit_code == 1, changed.output

    assert '      - "one"' in changed.output

    title = '#1 tools/call "say"%3A text-changed'

    assert changed.output.count(f"title={title}::/content/0/text text-changed") == 2

    data = json.loads(reports[0].read_text())["cassettes"]

    assert [verification["is_good"] for verification in data] == [False, False]

    (change,) = data[0]["interactions"][0]["changes"]

    assert (change["pointer"], change["recorded"], change["turn"]) == (
        "/content/0/text",
        '"one"',
        0,
    )

    root = ET.fromstring(reports[1].read_text())

    assert [root.get(name) for name in ("tests", "failures", "skipped")] == [
        "2",
        "2",
        "0",
    ]

    assert len(list(root.iter("failure"))) == 2

    markdown = reports[2].read_text()

    assert '-       "one"\n+       "two | `x`"\n' in markdown


def test_a_failing_run_offers_what_works(project: Path) -> None:
    """No tool is called twice that may write, and what is offered is accepted from the command."""
    rules = project / "ignore.toml"
    path = project / "cassettes/a.json"
    ended = invoke(path, "--learn", rules, *server(project, "two"))
    lines = ended.output.splitlines()

    assert (
        "not called twice: tools/call say: the server does not mark it readOnlyHint"
        in lines
    )

    assert f"note: nothing was learned; {rules} is unchanged" in lines
    assert not rules.exists()

    assert "--accept text-changed" in lines[-1]
    assert (
        invoke(path, "--accept", "text-changed", *server(project, "two")).exit_code == 0
    )
    assert invoke(path, *server(project, "two")).exit_code == 0


KEEPING = """
import json, sys
kept = []
for line in sys.stdin:
    asked = json.loads(line)
    name = asked["params"].get("name")
    if name == "put":
        kept.append("A")
    text = str(kept) if name == "get" else sys.argv[1]
    result = {"content": [{"type": "text", "text": text}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
"""A server that keeps what is put."""


def test_a_selected_read_has_the_write_that_it_needs(tmp_path: Path) -> None:
    """With --only get the put before it is sent, and neither compared nor accepted."""
    (tmp_path / "server.py").write_text(KEEPING)
    path = tmp_path / "c.json"
    calls = [tool_call("put", _meta=CAPABLE), tool_call("get", _meta=CAPABLE)]

    async def script(visit: Any) -> None:
        from standin import json_response

        said = "kept" if visit.request.json["params"]["name"] == "put" else "['A']"
        result = {"content": [{"type": "text", "text": said}]}
        reply = {"jsonrpc": "2.0", "id": visit.request.json["id"], "result": result}
        await visit.send(json_response(reply))

    @looped
    async def record() -> None:
        async with taping(path, script) as tape:
            for call in calls:
                await post(tape.url, call)

    record()
    before = path.read_bytes()
    for said in ("kept", "put away"):
        for options in ((), ("--accept", "all")):
            ended = invoke(path, "--only", "get", *options, *server(tmp_path, said))

            assert ended.exit_code == 0, ended.output
            assert "1 same, 1 skipped" in ended.output
            assert path.read_bytes() == before


STARTING = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    result = {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]}
    if asked["method"] == "server/discover":
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {}}
    if asked["method"] == "tools/call":
        result = {"content": [{"type": "text", "text": "done"}]}
        log = {"level": "info", "data": f"process {os.getpid()} is ready"}
        print(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": log}))
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
"""A server on pipes that is only ready during its first call, and logs that."""


def test_a_log_of_the_start_that_comes_during_the_first_call_is_no_change(
    tmp_path: Path,
) -> None:
    """What it says is another process in every run."""
    (tmp_path / "server.py").write_text(STARTING)
    started = server(tmp_path, "")
    recorded = run_here("call", "go", "-o", str(tmp_path / "c.json"), *started)

    assert recorded.code == 0, recorded.err
    assert "is ready" in (tmp_path / "c.json").read_text()

    ended = invoke(tmp_path / "c.json", *started)

    assert ended.exit_code == 0, ended.output


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("{c}",), 2, "verify needs a single live server"),
        (("http://127.0.0.1:9/mcp",), 2, "verify needs a cassette; name it before"),
        (
            ("{c}", "--upstream", "http://localhost:1/mcp", "--", "x"),
            2,
            "needs a single live server",
        ),
        (("{c}", "--upstream", "server"), 2, "is not an HTTP URL"),
        (("{c}", "--ignore", "a", "--", "x"), 2, "--ignore 'a' is not a JSON Pointer"),
        (("{c}", "--fail-on", "b", "--", "x"), 2, "--fail-on 'b' is not a verdict"),
        (
            ("{c}", "--ignore-from", "/none", "--", "x"),
            2,
            "--ignore-from: there is no file /none",
        ),
        (("{d}", "--", "x"), 2, "there is no cassette in"),
        (("{c}/none.json", "--", "x"), 3, "there is no such cassette"),
        (("{c}", "--report", "{c}/a.json/x.json", "--", "x"), 3, "is not a directory"),
        (
            ("{c}", "--report", "{c}/a.json", "--", "x"),
            2,
            "a.json exists and is not a report or page",
        ),
        (("{c}/**/*.json", "http://127.0.0.1:1/mcp"), 4, "nothing was compared"),
        (("{c}/*.none", "--", "x"), 2, "there is no cassette in"),
        (("{c}", "--", "/none/server"), 4, "can't run the server"),
    ],
)
def test_what_cannot_be_done_is_told(
    project: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """With its place, the way out, and its exit code."""
    (project / "empty").mkdir()
    places = {"c": project / "cassettes", "d": project / "empty"}
    ended = invoke(*(argument.format(**places) for argument in arguments))

    assert ended.exit_code == code, ended.output
    assert said in ended.output


DEAF = """
import os, socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
    while True:
        client, _ = listener.accept()
        if client.recv(1):
            print(os.getpid(), file=open(sys.argv[2], "w"), flush=True)
"""
"""A server that takes each request and answers none."""


def test_server_of_a_stopped_run_does_not_stay(project: Path) -> None:
    """It is stopped with the run, whose exit code names the signal as a shell would."""
    noted = project / "noted"
    os.mkfifo(noted)
    server_command = (sys.executable, "-c", DEAF, "{port}", str(noted))
    command = (
        sys.executable,
        "-m",
        "mrtr_cassette",
        "verify",
        str(project / "cassettes/a.json"),
    )

    with subprocess.Popen(
        (*command, "--", *server_command), stderr=subprocess.PIPE
    ) as process:
        server_process = int(noted.read_text())
        process.send_signal(signal.SIGTERM)

        assert process.stderr is not None
        assert process.stderr.read().decode() == "error: stopped by SIGTERM\n"
        assert process.wait() == 128 + signal.SIGTERM

    with pytest.raises(ProcessLookupError):
        os.kill(server_process, 0)


@looped
async def holding(path: Path) -> None:
    """Record a server that has one thing, which is put there."""
    held: list[str] = []

    async def script(visit: Any) -> None:
        from standin import json_response

        asked = visit.request.json
        held.extend(["A"] if asked["params"]["name"] == "put" else [])
        result = {"content": [{"type": "text", "text": f"{held}"}]}
        await visit.send(
            json_response({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        )

    async with taping(path, script) as tape:
        for name in ("get", "put", "get"):
            await post(tape.url, tool_call(name, _meta=CAPABLE))


HOLDING = """
import json, sys
held = []
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "tools/list":
        result = {"tools": [{"name": "put", "annotations": {"destructiveHint": True}}]}
    else:
        held += ["A"] if asked["params"]["name"] == "put" else []
        result = {"content": [{"type": "text", "text": f"{held}"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def test_an_unchanged_server_with_a_destructive_tool_is_the_same_or_skipped(
    tmp_path: Path,
) -> None:
    """What comes after a call that is not sent is not compared; the way to send it is told."""
    path = tmp_path / "c.json"
    command = ("--", sys.executable, str(tmp_path / "server.py"))

    (tmp_path / "server.py").write_text(HOLDING)
    holding(path)
    withheld = invoke(path, *command)

    assert withheld.exit_code == 0, withheld.output
    assert withheld.stdout.endswith("3 interactions: 1 same, 2 skipped\n")
    assert "--allow-destructive" in withheld.stderr

    allowed = invoke(path, "--allow-destructive", *command)

    assert allowed.stdout.endswith("3 interactions: 3 same\n")
    assert "--allow-destructive" not in allowed.stderr


def test_a_value_that_a_text_repeats_is_learned_in_both_places(tmp_path: Path) -> None:
    """`--learn` finds them without a second call."""
    program = tmp_path / "server.py"
    program.write_text(TIMES)
    path = tmp_path / "c.json"
    rules = tmp_path / "ignore.toml"
    command = ("--", sys.executable, str(program))
    recorded = CliRunner().invoke(
        main, ["call", "now", "--record", str(path), *command, "one-1"]
    )

    assert recorded.exit_code == 0, recorded.output

    learning = invoke(path, "--learn", rules, *command, "two-2")

    assert learning.exit_code == 0, learning.output
    assert learning.stdout.count(", where only the recording differs") == 2
    assert invoke(path, "--ignore-from", rules, *command, "three-3").exit_code == 0


def test_a_mask_is_for_verify_and_for_recording_anew(tmp_path: Path) -> None:
    """A time in a text is no difference, and a cassette recorded again stays as it is."""
    program = tmp_path / "server.py"
    program.write_text(TIMES)
    path = tmp_path / "c.json"
    call = ("call", "now", "--record", str(path))
    mask = ("--mask", "^[0-9]{2}:[0-9]{2}")
    server = ("--", sys.executable, str(program))

    def recorded(*words: str) -> str:
        done = CliRunner().invoke(main, [*call, *words])

        assert done.exit_code == 0, done.output

        return path.read_text()

    first = recorded(*server, "12:01 o'clock")

    assert invoke(path, *server, "13:59 o'clock").exit_code == 1

    same = invoke(path, *mask, "--mask", "x{9}", *server, "13:59 o'clock")

    assert (same.exit_code, same.stderr) == (0, "note: --mask x{9} left nothing out\n")
    assert invoke(path, *mask, *server, "13:59 sharp").exit_code == 1
    assert path.read_text() == first

    refused = invoke(path, "--mask", "(", *server, "x")

    assert refused.exit_code == 2
    assert "--mask '(' is not a regular expression: missing )" in refused.stderr


TIMES = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    said = {"at": sys.argv[1]}
    result = {"content": [{"type": "text", "text": json.dumps(said)}], "structuredContent": said}
    if asked["method"] == "tools/list":
        result = {"tools": [{"name": "now", "inputSchema": {"type": "object"}}]}
    if asked["method"] == "server/discover":
        result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


COUNTER = """
import json, sys
count = 0
for line in sys.stdin:
    asked = json.loads(line)
    count += asked["params"].get("name") == "bump"
    result = {"content": [{"type": "text", "text": str(count)}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
"""Counts the calls of `bump` since it was started."""


def test_each_run_on_pipes_has_a_server_of_its_own(tmp_path: Path) -> None:
    """What a run appended was recorded with a new server, which hasn't the writes of the first."""
    cassette = tmp_path / "counter.json"
    counter = (sys.executable, "-c", COUNTER)
    bump = rpc("tools/call", {"name": "bump"}, 1)
    log = rpc("tools/call", {"name": "log"}, 2)
    count = rpc("tools/call", {"name": "count"}, 3)
    for calls, options in (([bump, count], []), ([log, count], ["--append"])):
        lines = b"".join([b"%b\n" % call for call in calls])
        done = spoken(recorder(cassette, *counter, options=options), lines)

        assert done.returncode == 0, done.stderr

    verified = invoke(cassette, "--", *counter)

    assert "4 interactions: 4 same" in verified.stdout, verified.output
