"""The suite of another language under `record -- COMMAND` and `replay -- COMMAND`.

The suite is the one that the guide shows: node:test with the TypeScript SDK's client.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
from patience import HANGS_S
from processes import PEERS, Run, StartServer, record_command, replay_command, run

SUITE = Path(__file__).parents[2] / "docs" / "examples" / "deploy.test.mjs"
NODE_TEST = ("--", "node", "--test")
UNRECORDED = """
import test from 'node:test';
test('swallows what goes wrong', async () => {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'x' } });
  const headers = { 'content-type': 'application/json' };
  await fetch(process.env.MRTR_CASSETTE_URL, { method: 'POST', body, headers }).catch(() => {});
});
"""
HANGING = """
import { openSync, writeSync } from 'node:fs';
import { test } from 'node:test';
import { deploy } from './deploy.mjs';
test('waits for ever once it has deployed', async () => {
  await deploy('production', { action: 'decline' });
  writeSync(openSync(process.env.PIPE, 'w'), 'ready');
  await new Promise((resolve) => setTimeout(resolve, 2 ** 30));
});
"""


@dataclass(frozen=True)
class Project:
    """A folder with the suite, the SDK, and a cassette that the suite recorded."""

    folder: Path
    recorded: Run

    @property
    def cassette(self) -> Path:
        return self.folder / "cassette.json"

    def replay(self, *options: str) -> Run:
        """Run a command under a replay, the server being gone."""
        return run_in(self.folder, replay_command(self.cassette, *options))

    def suite(self, name: str, text: str) -> str:
        """Write another suite, and return its path."""
        path = self.folder / name
        path.write_text(text)
        return str(path)


def run_in(folder: Path, command: tuple[str, ...]) -> Run:
    """Run a command in a folder."""
    return run(("env", "-C", str(folder), *command))


@pytest.fixture(scope="module")
def project(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Record the suite."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copy(SUITE, folder)
    (folder / "node_modules").symlink_to(PEERS / "node_modules")
    with start_server("typescript", 0) as server:
        command = record_command(server.url, folder / "cassette.json", *NODE_TEST)
        return Project(folder, run_in(folder, command))


def test_suite_is_recorded(project: Project) -> None:
    """One line records it; the suite's output and its code are the command's."""
    assert project.recorded.code == 0, project.recorded
    assert "pass 2" in project.recorded.stdout
    interactions = json.loads(project.cassette.read_bytes())["interactions"]
    calls = [one for one in interactions if one["elicitation_turns"]]
    assert len(calls) == 2


def test_suite_is_replayed_without_the_server(project: Project, tmp_path: Path) -> None:
    """The same suite passes, and the report has every interaction."""
    report = tmp_path / "report.json"
    replayed = project.replay("--report", str(report), *NODE_TEST)
    assert replayed.code == 0, replayed
    assert "no misses" in replayed.stderr
    outcomes = [one["outcome"] for one in json.loads(report.read_bytes())["interactions"]]
    assert set(outcomes) == {"played"}


def test_failing_test_has_its_own_code(project: Project) -> None:
    """A suite that fails fails the replay, and that is no miss."""
    text = SUITE.read_text().replace("'Deployment cancelled'", "'Deployment delayed'")
    path = project.suite("failing.mjs", text)
    replayed = project.replay("--", "node", "--test", path)
    assert replayed.code == 1
    assert "Deployment delayed" in replayed.stdout
    assert "no misses" in replayed.stderr
    program = project.suite("seven.mjs", "process.exit(7);")
    assert project.replay("--", "node", program).code == 7


def test_miss_fails_a_suite_that_passed(project: Project) -> None:
    """What the suite swallowed is told, and the code is 1."""
    path = project.suite("swallowing.mjs", UNRECORDED)
    replayed = project.replay("--", "node", "--test", path)
    assert replayed.code == 1
    assert "pass 1" in replayed.stdout
    assert "fail 0" in replayed.stdout
    assert "miss: unknown-name: " in replayed.stderr


@pytest.mark.parametrize("mode", ["record", "replay"])
def test_command_that_does_not_exist_is_127(project: Project, mode: str, tmp_path: Path) -> None:
    """As a shell has it; nothing was recorded."""
    nobody = ("--", "no-such-command")
    if mode == "replay":
        ended = project.replay(*nobody)
    else:
        ended = run(record_command("http://127.0.0.1:9/mcp", tmp_path / "c.json", *nobody))
        assert list(tmp_path.iterdir()) == []
    assert ended.code == 127
    assert "error: can't run 'no-such-command'" in ended.stderr


@contextmanager
def group(command: tuple[str, ...], folder: Path, pipe: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a command in a process group of its own, as a terminal does."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PIPE": str(pipe)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def coming(pipe: IO[bytes]) -> bytes:
    """Wait for what comes through a pipe; nothing is its end."""
    assert select.select([pipe], [], [], HANGS_S)[0], "nothing came"
    return pipe.read(100)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_suite_and_publishes_the_recording(
    project: Project, start_server: StartServer, tmp_path: Path, number: signal.Signals
) -> None:
    """Ctrl-C goes to the whole group, SIGTERM to us alone: the suite ends, the cassette is there.

    The code is the command's own; node:test fails with 1 when it is interrupted.
    """
    library, _, _ = SUITE.read_text().partition("test('deploys")
    project.suite("deploy.mjs", library.replace("async function", "export async function"))
    path = project.suite("hanging.mjs", HANGING)
    cassette, pipe = tmp_path / "c.json", tmp_path / "pipe"
    os.mkfifo(pipe)
    with start_server("typescript", 0) as server:
        command = record_command(server.url, cassette, *NODE_TEST, path)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(reader, "rb", 0) as suite, group(command, project.folder, pipe) as process:
            assert coming(suite) == b"ready"
            if number is signal.SIGINT:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
            _, err = process.communicate(timeout=HANGS_S)
            # The pipe ends with the last process that has it: the suite's own.
            assert coming(suite) == b""
    assert process.returncode == 1, err
    (call,) = (
        one for one in json.loads(cassette.read_bytes())["interactions"] if one["elicitation_turns"]
    )
    assert call["elicitation_turns"][0]["answer"] is not None
    assert not cassette.with_name("c.json.journal").exists()
