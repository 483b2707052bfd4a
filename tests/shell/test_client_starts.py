"""The library, where a client starts its server: what each start came to comes back."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from pipes import LINES_SERVER, call, piped, spoken
from typing import Any

import pytest
from processes import CASSETTES, PEERS

import mrtr_cassette
from mrtr_cassette.errors import CassetteError, UsageError
from mrtr_cassette.shell.files.cassettes import load_cassette

ASKS = (
    "from mrtr_cassette.shell.runs.piped import client_sha256; print(client_sha256())"
)
pytestmark = pytest.mark.usefixtures("forks_programs")

STARTS_TWO = (
    "import subprocess, sys\n"
    "for _ in 'ab': print(subprocess.check_output(sys.argv[1:], text=True), end='')"
)


@pytest.fixture
def cassette(tmp_path: Path) -> Path:
    """Record two calls with the library."""
    path = tmp_path / "c.json"
    with mrtr_cassette.record(LINES_SERVER, path, stdio=True) as recording:
        done = spoken(recording.command, call(1, a=1) + call(2, a=2))
        assert done.returncode == 0
        assert len(recording.interactions) == 2

    assert recording.problem is None
    return path


def test_what_a_client_starts_is_recorded_and_replayed(cassette: Path) -> None:
    """The block's command is the server: first the real one, then the recording."""
    with mrtr_cassette.replay(cassette, stdio=True, fail_on_unplayed=True) as replay:
        first = spoken(replay.command, call(7, a=1))

        assert [interaction.number for interaction in replay.unplayed] == [2]

        second = spoken(replay.command, call(8, a=2))

    assert json.loads(first.stdout)["id"] == 7
    assert json.loads(second.stdout)["id"] == 8
    assert replay.unplayed == ()
    assert len(replay.interactions) == 2


def test_miss_of_any_start_is_raised_at_the_end(cassette: Path) -> None:
    """A request that was not recorded is an error when the block ends, and is there before."""
    proxy = mrtr_cassette.replay(cassette, stdio=True)
    replay = proxy.__enter__()
    spoken(replay.command, call(1, a=1))
    spoken(replay.command, call(1, a=3))

    assert len(replay.misses) == 1

    with pytest.raises(mrtr_cassette.MissesError, match="1 request"):
        proxy.__exit__(None, None, None)


def test_pipes_have_no_url_and_http_no_command(cassette: Path, tmp_path: Path) -> None:
    """What there is not is an error that names what there is."""
    no_url = pytest.raises(UsageError, match="no URL; have the client start `command`")
    with mrtr_cassette.replay(cassette, stdio=True) as replay, no_url:
        _ = replay.url

    with mrtr_cassette.replay(cassette) as served:
        assert served.url.endswith("/mcp")

        with pytest.raises(
            UsageError, match="no command; have the client connect to `url`"
        ):
            _ = served.command

    path = tmp_path / "d.json"
    with mrtr_cassette.record(LINES_SERVER, path, stdio=True) as recording, no_url:
        _ = recording.url


@pytest.mark.parametrize(
    ("upstream", "options", "reason"),
    [
        ("http://localhost/mcp", {"stdio": True}, "is not a command"),
        (
            ["server"],
            {"stdio": True, "admin_port": 0},
            "admin_port and stdio=True don't go",
        ),
    ],
)
def test_upstream_is_a_url_or_a_command(
    tmp_path: Path, upstream: Any, options: dict[str, Any], reason: str
) -> None:
    """A URL on pipes, and what clients start on a port, are refused."""
    with pytest.raises(UsageError, match=reason):
        mrtr_cassette.record(upstream, tmp_path / "c.json", **options)

    with pytest.raises(UsageError, match="admin_port and stdio=True don't go"):
        mrtr_cassette.replay(tmp_path / "c.json", stdio=True, admin_port=0)


def test_cassette_that_exists_is_told_before_anything_is_started(
    cassette: Path,
) -> None:
    """What would be overwritten unasked, or can't be added to, is an error when the block begins."""
    with pytest.raises(CassetteError, match="the cassette exists"):
        mrtr_cassette.record(LINES_SERVER, cassette, stdio=True).__enter__()

    of_http = CASSETTES / "python-sdk.json"
    with pytest.raises(UsageError, match="was recorded over HTTP"):
        mrtr_cassette.record(
            LINES_SERVER, of_http, stdio=True, existing="append"
        ).__enter__()


def test_what_is_missing_is_added(cassette: Path) -> None:
    """What the cassette has is played in each start, and only what it lacks is asked."""
    adding = mrtr_cassette.record(LINES_SERVER, cassette, stdio=True, existing="append")
    with adding as recording:
        first = spoken(recording.command, call(7, a=1) + call(8, a=3))

        assert len(recording.interactions) == 3

        second = spoken(recording.command, call(9, a=3))

        assert [interaction.number for interaction in recording.unplayed] == [2]

    assert [json.loads(line)["id"] for line in first.stdout.splitlines()] == [7, 8]
    assert json.loads(second.stdout)["id"] == 9
    assert len(load_cassette(cassette).interactions) == 3
    assert recording.unrecorded == ()


def test_clients_in_several_processes_are_one_recording(tmp_path: Path) -> None:
    """Whoever starts the command, and whatever had started it before, adds to one recording."""
    path = tmp_path / "c.json"
    client = [sys.executable, str(PEERS / "client_of_clients.py")]
    with mrtr_cassette.record(LINES_SERVER, path, stdio=True) as recording:
        for value in (1, 2):
            spoken([*client, *recording.command], call(1, a=value))

    assert recording.problem is None
    assert len(load_cassette(path).interactions) == 2


def test_what_a_killed_start_recorded_is_published(tmp_path: Path) -> None:
    """A client that kills its server has lost nothing of what it had been answered."""
    path = tmp_path / "c.json"
    with (
        mrtr_cassette.record(LINES_SERVER, path, stdio=True) as recording,
        piped(recording.command) as pipe,
    ):
        pipe.say(call(1, a=1))
        pipe.hear()

        assert len(recording.interactions) == 1

        pipe.signal(signal.SIGKILL)

    assert recording.problem is None
    assert len(load_cassette(path).interactions) == 1


def test_servers_that_run_at_the_same_time_are_told(tmp_path: Path) -> None:
    """The second one is refused with the reason, and what the first one recorded stands."""
    path = tmp_path / "c.json"
    with mrtr_cassette.record(LINES_SERVER, path, stdio=True) as recording:
        with piped(recording.command) as pipe:
            pipe.say(call(1, a=1))
            pipe.hear()
            second = spoken(recording.command, call(2, a=2))
            pipe.end()

        assert second.returncode == 3

    reason = f"{path}: a server that the client has started before is still running"

    assert reason.encode() in second.stderr
    assert recording.problem is not None
    assert reason in recording.problem
    assert len(load_cassette(path).interactions) == 1


def test_misses_of_a_killed_start_are_told_each_once(cassette: Path) -> None:
    """Each was written before its answer came, and not again with those after it."""
    with (
        mrtr_cassette.replay(cassette, stdio=True, on_miss="report") as replay,
        piped(replay.command) as pipe,
    ):
        for value in range(10, 18):
            pipe.say(call(value, a=value))
            pipe.hear()

        written = Path(replay.command[-1], "outcomes").read_text(encoding="utf-8")
        pipe.signal(signal.SIGKILL)

    assert len(replay.misses) == len({miss.request for miss in replay.misses}) == 8
    assert written.count(json.dumps(replay.misses[1].text)) == 1


def test_half_a_line_of_a_killed_start_is_left_out(cassette: Path) -> None:
    """What other starts came to counts all the same."""
    with mrtr_cassette.replay(cassette, stdio=True, on_miss="report") as replay:
        spoken(replay.command, call(1, a=3))
        outcomes_file = Path(replay.command[-1], "outcomes")
        half = outcomes_file.read_bytes()[:200]
        with outcomes_file.open("ab") as outcomes:
            outcomes.write(half)

        spoken(replay.command, call(1, a=4))

    assert len(replay.misses) == 2


def told(*command: str) -> list[str]:
    """Return what a command's processes took for their client."""
    return subprocess.check_output(command, text=True).split()


def test_two_starts_of_one_client_are_told_so() -> None:
    """What one process starts has one client, and what another one starts has another."""
    first = told(sys.executable, "-c", STARTS_TWO, sys.executable, "-c", ASKS)
    second = told(sys.executable, "-c", STARTS_TWO, sys.executable, "-c", ASKS)

    assert len({*first, *second}) == 2
    assert first[0] == first[1]
    assert second[0] == second[1]


@pytest.mark.parametrize("wrapper", [("sh", "-c", '"$@"; true', "sh"), ("env",)])
def test_programs_that_pass_arguments_on_are_no_clients(
    wrapper: tuple[str, ...],
) -> None:
    """A shell or another launcher in between is started anew each time, and does not count."""
    command = (sys.executable, "-c", ASKS, "an argument")
    wrapped = told(sys.executable, "-c", STARTS_TWO, *wrapper, *command)

    assert wrapped[0] == wrapped[1]
