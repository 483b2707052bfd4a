"""Replaying over pipes, as a process that a client starts."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from pipes import LINES_SERVER, call, piped, recorder, spoken

import pytest
from builders import notification, rpc
from processes import CASSETTES, PROGRAM


def replayer(cassette: Path, *options: str) -> list[str]:
    """Return the command that is the server of a cassette."""
    return [*PROGRAM, "replay", "--stdio", str(cassette), *options]


def recorded(folder: Path, *lines: bytes, server: tuple[str, ...] = LINES_SERVER) -> Path:
    """Record what a client says line by line, waiting for each answer; return the cassette."""
    output = folder / "c.json"
    with piped(recorder(output, *server)) as pipe:
        for line in lines:
            pipe.say(line)
            if b'"id"' in line:
                assert pipe.hear()
        pipe.end()
    return output


def test_replay_says_what_the_server_said(tmp_path: Path) -> None:
    """A client gets the recorded lines with its own ids, in any order of its calls."""
    cassette = recorded(tmp_path, call(1, a=1), call(2, a=2))

    with piped(replayer(cassette)) as pipe:
        pipe.say(call(8, a=2))
        assert json.loads(pipe.hear()) == {
            "jsonrpc": "2.0",
            "id": 8,
            "result": {"name": "t", "arguments": {"a": 2}, "big": ""},
        }
        pipe.say(call(9, a=1))
        assert json.loads(pipe.hear())["id"] == 9
        assert pipe.end() == (b"", 0)


def test_all_at_once_is_answered_before_the_end(tmp_path: Path) -> None:
    """A client that closes its stdin at once gets all answers."""
    cassette = recorded(tmp_path, *(call(number, a=number) for number in range(50)))

    done = spoken(replayer(cassette), b"".join(call(number, a=number) for number in range(50)))

    assert sorted(json.loads(line)["id"] for line in done.stdout.splitlines()) == list(range(50))
    assert done.returncode == 0
    assert b"played 50 of 50 interactions, no misses" in done.stderr


def test_miss_is_an_error_to_the_request(tmp_path: Path) -> None:
    """What was not recorded gets a JSON-RPC error, a report, and the exit code 1."""
    cassette = recorded(tmp_path, call(1, a=1))
    report = tmp_path / "report.json"

    done = spoken(replayer(cassette, "--report", str(report)), call(7, a=3))

    (line,) = done.stdout.splitlines()
    assert json.loads(line)["id"] == 7
    assert json.loads(line)["error"]["code"] == -32010
    assert done.returncode == 1
    assert b"1 miss" in done.stderr
    assert len(json.loads(report.read_bytes())["misses"]) == 1


def test_nothing_but_messages_is_written(tmp_path: Path) -> None:
    """A miss that wants no response is told on stderr only."""
    cassette = recorded(tmp_path, call(1))

    done = spoken(replayer(cassette), b"no json\n\n" + rpc("x", number=None) + b"\n")

    assert done.stdout == b""
    assert done.returncode == 1


def test_what_the_server_said_by_itself_is_said_again(tmp_path: Path) -> None:
    """Noise before the first request comes at once, and what followed a notification after it."""
    code = (
        "import sys\nprint('ready', flush=True)\nsys.stdin.readline()\n"
        "print('noted', flush=True)\nsys.stdin.read()"
    )
    output = tmp_path / "c.json"
    initialized = notification("notifications/initialized") + b"\n"
    with piped(recorder(output, sys.executable, "-c", code)) as pipe:
        assert pipe.hear() == b"ready\n"
        pipe.say(initialized)
        assert pipe.hear() == b"noted\n"
        pipe.end()

    with piped(replayer(output)) as pipe:
        assert pipe.hear() == b"ready\n"
        pipe.say(initialized)
        assert pipe.hear() == b"noted\n"
        assert pipe.end() == (b"", 0)


def test_server_that_died_dies_again(tmp_path: Path) -> None:
    """Where the recorded server ended during a call, the replay ends there too."""
    output = tmp_path / "c.json"
    die = rpc("die", {"exit": 3}) + b"\n"
    with piped(recorder(output)) as pipe:
        pipe.say(call(1))
        assert pipe.hear()
        pipe.say(die)
        assert pipe.hear() == b""
        assert pipe.process.wait(30) == 3

    with piped(replayer(output)) as pipe:
        pipe.say(call(1))
        assert pipe.hear()
        pipe.say(die)
        assert pipe.hear() == b""
        assert pipe.process.wait(30) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_the_replay(tmp_path: Path, number: signal.Signals) -> None:
    """SIGTERM and SIGINT end a replay whose client is still there, with its summary."""
    errors = tmp_path / "errors"
    with piped(replayer(recorded(tmp_path, call(1))), errors) as pipe:
        pipe.say(call(1))
        assert pipe.hear()
        pipe.signal(number)

        assert pipe.process.wait(30) == 0

    assert "played 1 of 1 interactions" in errors.read_text()


def test_cassette_of_http_that_pipes_cannot_play_is_refused() -> None:
    """What only HTTP has is named at start, and nothing is played."""
    done = spoken(replayer(CASSETTES / "by-header.json"), call(1))

    assert done.returncode == 3
    assert b"it can't be played over pipes" in done.stderr
    assert done.stdout == b""


def test_replay_starts_no_server(tmp_path: Path) -> None:
    """A command may say in whose place the replay stands; it is not started."""
    cassette = recorded(tmp_path, call(1))

    done = spoken([*replayer(cassette), "--", "no-such-server", "--flag"], call(1))

    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1
