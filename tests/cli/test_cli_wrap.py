"""`wrap` and `unwrap`: a client's configuration, changed in place."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from pipes import LINES_SERVER, spoken, stays_recent

import pytest
from harness import run_here

from mrtr_cassette.shell.files.cassettes import load_cassette

REQUEST = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return a configuration with a server of lines."""
    path = tmp_path / "config.json"
    program, *arguments = LINES_SERVER
    servers = {"lines": {"command": program, "args": arguments}}
    path.write_text(json.dumps({"mcpServers": servers}, indent=2))
    path.chmod(0o600)

    return path


def started(config: Path) -> subprocess.CompletedProcess[bytes]:
    """Start the server as a client does, and ask it something."""
    entry = json.loads(config.read_bytes())["mcpServers"]["lines"]
    return spoken([entry["command"], *entry["args"]], REQUEST)


def test_wrapped_server_is_recorded_then_replayed_then_itself(config: Path) -> None:
    """What a client starts records, plays and is the server again, as the file has it."""
    before = config.read_bytes()
    cassette = config.with_name("c.json")

    assert run_here("wrap", config, "lines", "--record", cassette).code == 0

    said = started(config).stdout

    assert run_here("unwrap", config, "lines").code == 0
    assert run_here("wrap", config, "lines", "--replay", cassette).code == 0

    replayed = started(config)

    assert run_here("unwrap", config, "lines").code == 0

    assert len(load_cassette(cassette).interactions) == 1
    assert replayed.stdout == said
    assert b"no misses" in replayed.stderr
    assert config.read_bytes() == before
    assert config.stat().st_mode & 0o777 == 0o600
    assert config.with_name("config.json.mrtr-backup").read_bytes() == before


def test_server_that_is_started_again_is_recorded_into_the_next_file(
    config: Path,
) -> None:
    """Nothing is lost, and no start fails; two within seconds are one recording."""
    cassette = config.with_name("c.json")

    assert run_here("wrap", config, "lines", "--record", cassette).code == 0

    for number in (1, 2, 3):
        assert started(config).returncode == 0

        latest = cassette if number == 1 else config.with_name(f"c-{number}.json")
        stays_recent(latest)

        assert started(config).returncode == 0

        os.utime(latest, (0, 0))

    names = sorted(path.name for path in config.parent.glob("c*.json"))

    assert names == ["c-2.json", "c-3.json", "c.json", "config.json"]

    for name in names[:3]:
        assert len(load_cassette(config.with_name(name)).interactions) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("lines",), 2, "either --record or --replay"),
        (("lines", "--record", "a", "--replay", "b"), 2, "either --record or --replay"),
        (("other", "--record", "a"), 3, "it has no server 'other'; it has 'lines'"),
        (
            ("lines", "--replay", "missing.json"),
            3,
            "there is no such cassette; record one with: mrtr-cassette wrap ",
        ),
    ],
)
def test_wrong_use_changes_nothing(
    config: Path, arguments: tuple[str, ...], code: int, reason: str
) -> None:
    """What can't be meant is told, and the file stays as it is."""
    before = config.read_bytes()
    done = run_here("wrap", config, *arguments)

    assert done.code == code
    assert reason in done.err
    assert config.read_bytes() == before
    assert len(list(config.parent.iterdir())) == 1


@pytest.mark.parametrize("place", [".", "", "/"])
def test_configuration_is_a_file(place: str) -> None:
    """A folder is refused in one line, whether it is to be wrapped or unwrapped."""
    for command in (("wrap", place, "x", "--record", "r"), ("unwrap", place, "x")):
        done = run_here(*command)

        assert done.code == 3
        assert done.err.endswith(": is a directory\n")
