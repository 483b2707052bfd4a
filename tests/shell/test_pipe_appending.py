"""Adding to a cassette of a server on pipes, as a process that a client starts."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from pipes import LINES_SERVER, call, piped, processes_with, recorder, spoken, until
from typing import Any

from builders import notification, rpc
from patience import HANGS_S
from processes import CASSETTES

from mrtr_cassette.core.protocol.calls import session_of
from mrtr_cassette.shell.files.cassettes import load_cassette

APPEND = ("--append",)
INITIALIZED = notification("notifications/initialized") + b"\n"
STRICT_SERVER = """
import json, sys
opened = set()
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        opened.add(message["method"])
        continue
    if message["method"] == "initialize":
        opened.add("initialize")
    ready = len(opened) == 2 or message["method"] == "initialize"
    outcome = {"result": message["params"]} if ready else {"error": {"code": -1, "message": "shut"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)
"""


def initialize(number: int = 0) -> bytes:
    """Return a client's first line before 2026-07-28."""
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c"}}
    return rpc("initialize", params, number) + b"\n"


def said(command: list[str], *lines: bytes) -> list[Any]:
    """Say lines one after the other, and return the answers to those that get one."""
    answers = []
    with piped(command) as pipe:
        for line in lines:
            pipe.say(line)
            if b'"id"' in line:
                answers.append(json.loads(pipe.hear()))
        assert pipe.end() == (b"", 0)
    return answers


def test_server_is_not_started_where_nothing_is_missing(tmp_path: Path) -> None:
    """What the cassette has is played, and the file stays as it is."""
    output = tmp_path / "c.json"
    said(recorder(output), call(1, a=1))
    before = output.read_bytes()

    done = spoken(recorder(output, "no-such-server", options=APPEND), call(5, a=1))

    assert done.returncode == 0
    assert json.loads(done.stdout)["id"] == 5
    assert output.read_bytes() == before
    assert b"nothing was missing" in done.stderr or b"1 played" in done.stderr


def test_what_is_missing_is_recorded_and_added(tmp_path: Path) -> None:
    """The server answers what the cassette lacks; afterwards all of it plays."""
    output = tmp_path / "c.json"
    mark = f"--mark={output}"
    said(recorder(output), call(1, a=1))

    answers = said(
        recorder(output, *LINES_SERVER, mark, options=APPEND), call(7, a=1), call(8, a=2)
    )

    assert [each["id"] for each in answers] == [7, 8]
    assert answers[1]["result"]["arguments"] == {"a": 2}
    cassette = load_cassette(output)
    assert [session_of(each.exchanges[0].request) for each in cassette.interactions] == [
        "",
        "mrtr-session:1",
    ]
    replayed = spoken(recorder(output, "no-such-server", options=APPEND), call(1, a=2))
    assert replayed.returncode == 0
    assert not processes_with(mark)


def test_server_that_wants_to_be_initialized_is(tmp_path: Path) -> None:
    """Before 2026-07-28 a server gets the handshake that the client had from the cassette."""
    output = tmp_path / "c.json"
    server = (sys.executable, "-c", STRICT_SERVER)
    said(recorder(output, *server), initialize(), INITIALIZED, call(1, a=1))

    answers = said(
        recorder(output, *server, options=APPEND), initialize(3), INITIALIZED, call(4, a=2)
    )

    assert answers[1]["result"]["arguments"] == {"a": 2}
    assert len(load_cassette(output).interactions) == 4
    played = said(recorder(output, "gone", options=APPEND), initialize(), INITIALIZED, call(1, a=2))
    assert played[1]["result"] == answers[1]["result"]


def test_server_that_cannot_be_started_is_told_to_the_call(tmp_path: Path) -> None:
    """A missing call gets an error that says why, and nothing is added."""
    output = tmp_path / "c.json"
    said(recorder(output), call(1, a=1))
    before = output.read_bytes()

    done = spoken(recorder(output, "no-such-server", options=APPEND), call(2, a=2))

    assert done.returncode == 4
    assert "can't run the server" in json.loads(done.stdout)["error"]["message"]
    assert output.read_bytes() == before


def test_cassette_of_http_is_not_added_to(tmp_path: Path) -> None:
    """What was recorded over HTTP is added to over HTTP."""
    output = tmp_path / "c.json"
    before = (CASSETTES / "python-sdk.json").read_bytes()
    output.write_bytes(before)

    done = spoken(recorder(output, options=APPEND), call(1))

    assert done.returncode == 2
    assert b"was recorded over HTTP" in done.stderr
    assert output.read_bytes() == before


def test_deaf_server_with_a_child_is_ended_in_time(tmp_path: Path) -> None:
    """A signal ends what ignores SIGTERM and the end of stdin, children included, and publishes."""
    output = tmp_path / "c.json"
    mark = f"--mark={output}"
    said(recorder(output), call(1, a=1))
    command = recorder(output, *LINES_SERVER, "--deaf", "--child", mark, options=APPEND)
    with piped(command) as pipe:
        pipe.say(call(2, a=2))
        assert pipe.hear()
        pipe.signal(signal.SIGTERM)
        assert pipe.process.wait(HANGS_S) == 128 + signal.SIGKILL

    assert len(load_cassette(output).interactions) == 2
    assert until(lambda: not processes_with(mark))
