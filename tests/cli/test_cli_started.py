"""Facts about servers that a command starts: their path, their port, and how many are started."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from commands import caller
from harness import command, looped
from keeping import SERVER
from processes import CASSETTES

import mrtr_cassette
from mrtr_cassette.cli import main
from mrtr_cassette.shell.pipes import upstream as pipe_upstream
from mrtr_cassette.shell.pipes.processes import GracePeriods


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the command of the server, which is in this directory."""
    monkeypatch.chdir(tmp_path)
    Path("server.py").write_text(SERVER)
    return [sys.executable, "server.py"]


def run(*words: str) -> Result:
    """Run the program, without a terminal."""
    return CliRunner().invoke(main, words)


def good(*words: str) -> str:
    """Run the program, which ends well; return its output."""
    ended = run(*words)
    assert ended.exit_code == 0, ended.output
    return ended.output


def recorded(name: str = "c.json") -> Any:
    """Return a cassette."""
    return json.loads(Path(name).read_text())


@looped
async def recording_of(server: Sequence[str]) -> None:
    """Record what a client asks a server at its own path."""
    words = (
        "record",
        "--upstream",
        shlex.join(server),
        "--path",
        "/api/mcp",
        "-o",
        "r.json",
    )

    async with command(
        *words, "--", *caller("server/discover", "tools/list")
    ) as process:
        ended = await process.ended()

    assert ended.code == 0, ended.err


def test_server_at_any_path_is_started_by_each_command(server: list[str]) -> None:
    """The user says where it is once: from then on, the cassette knows."""
    started = ("--", *server, "{port}")
    said = good(
        "call", "put", "word=a", "--path", "/api/mcp", "--record", "c.json", *started
    )

    assert "a\n" in said
    assert recorded()["upstream"] == "http://localhost/api/mcp"
    assert "3 same" in good("verify", "c.json", *started)
    assert "nothing\n" in good(
        "call", "get", "--record", "c.json", "--append", *started
    )
    assert "nothing\n" in good("call", "get", "--path", "/api/mcp", *started)

    recording_of([*server, "{port}"])

    assert "2 same" in good("verify", "r.json", *started)


def test_wrong_path_is_one_line(server: list[str]) -> None:
    """What was tried is told once, with the way out, and not by each call."""
    started = ("--", *server, "{port}")
    good("call", "put", "word=a", "--path", "/api/mcp", "--record", "c.json", *started)
    verified = run("verify", "c.json", "--path", "/mcp", *started)

    assert verified.exit_code == 4

    program = Path(server[0]).name
    told = f"error: {program} server.py '{{port}}' has nothing at /mcp (HTTP 404)"

    assert verified.output == f"{told}; name its path with --path\n"

    called = run("call", "put", "word=a", "--answer", "confirm=yes", *started)

    assert (called.exit_code, called.stderr) == (
        4,
        f"{told}; name its path with --path\n",
    )

    recording = run("call", "put", "word=a", "-o", "d.json", *started)

    assert recording.exit_code == 4
    assert (
        "has nothing at /mcp (HTTP 404); name its path with --path\n"
        in recording.stderr
    )

    refused = run("call", "put", "--path", "api", *started)

    assert refused.stderr.startswith(
        "error: --path 'api' is not a path; it begins with a slash"
    )

    needless = run("call", "http://localhost:1/mcp", "put", "--path", "/x")

    assert needless.exit_code == 2
    assert "the path of another one is part of its URL" in needless.stderr


@pytest.mark.parametrize("port", [(), ("{port}",)], ids=["pipes", "http"])
def test_each_call_that_started_a_server_is_verified_with_one_of_its_own(
    server: list[str], port: tuple[str, ...]
) -> None:
    """A server with a memory that hasn't changed is the same, whatever earlier calls told theirs."""
    started = ("--path", "/api/mcp", "--", *server, *port) if port else ("--", *server)
    add = ("--record", "c.json", "--append", *started)
    for words in (("put", "word=a"), ("put", "word=b"), ("get",)):
        good("call", *words, *add)

    assert "5 interactions: 5 same" in good("verify", "c.json", "--", *server, *port)


def test_cassette_says_by_which_command_its_server_was_started(
    server: list[str],
) -> None:
    """Program and script, and no URL that leads nowhere; the page says so too."""
    good("call", "get", "--record", "c.json", "--", *server)
    named = f"recorded from {Path(server[0]).name} server.py"

    assert f"{named} at " in good("inspect", "c.json")
    assert f"{named}\n" in good("inspect", "--full", "c.json")

    good("view", "c.json")

    assert f"{Path(server[0]).name} server.py" in Path("c.html").read_text()
    assert recorded()["upstream"] == "http://localhost/mcp"


def test_what_an_appended_run_had_played_is_brought_to_its_server(
    server: list[str],
) -> None:
    """A call that was recorded after a played write is verified after that write."""
    command = [*server, "{port}"]
    with mrtr_cassette.record(command, "c.json", upstream_path="/api/mcp") as first:
        first.call("put", {"word": "a"})

    with mrtr_cassette.record(command, "c.json", existing="append") as second:
        second.call("put", {"word": "a"})

        assert second.call("get").text == "a"

    for started in (server, command):
        assert mrtr_cassette.verify("c.json", started).counts == {"same": 4}


OTHERWISE = """
import sys
for line in {said!r}:
    print(line, flush=True)
sys.stdin.read()
"""
"""A server that speaks another way than over pipes."""


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (["INFO: http://[::]:80"], "its stdout isn't MCP (first line: {said})"),
        ([], "nothing on its stdout within 1 s"),
    ],
)
def test_server_over_http_without_its_port_is_told_once(
    said: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call ends the run with the way out, if lines for people come, or nothing at all."""
    monkeypatch.setattr(pipe_upstream, "_MUTE_S", 0.0)
    monkeypatch.setattr(pipe_upstream, "_STOPPING_GRACE", GracePeriods(0.0, 0.0))
    (tmp_path / "s.py").write_text(OTHERWISE.format(said=said))
    server = ("--", sys.executable, str(tmp_path / "s.py"))
    why = why.format(said="".join(said))
    way = "a server over HTTP needs {port} in its command"
    for words in (["verify"], ["probe"]):
        given = (*words, "--timeout", "1", str(CASSETTES / "demo-server.json"))
        ended = run(*given, *server)

        assert (ended.exit_code, ended.stdout) == (4, ""), ended.output

        *_, line = ended.stderr.splitlines()

        assert line.startswith("error: the upstream ")
        assert line.endswith(f"gave no response: {why}; {way}")
        assert ended.stderr.count("gave no response") == 1

    ended = run("call", "--timeout", "1", "deploy", *server)

    assert ended.exit_code == 4

    (line,) = ended.stderr.splitlines()

    assert line.endswith(way)
