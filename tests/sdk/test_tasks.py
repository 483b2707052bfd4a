"""Tasks of FastMCP's server and client, recorded and replayed over HTTP and over pipes."""

from __future__ import annotations

import re
from pathlib import Path
from pipes import recorder

import pytest
from processes import (
    PEERS,
    PROGRAM,
    PYTHON,
    Run,
    listening,
    record_command,
    replay_command,
    run,
    run_at,
)

from mrtr_cassette.core.cassette.dump import dump
from mrtr_cassette.core.cassette.load import load

SERVER = (*PYTHON, str(PEERS / "server_tasks.py"))
CLIENT = (*PYTHON, str(PEERS / "client_tasks.py"))
OTHER_CLIENT = (*PYTHON, str(PEERS / "client_one_task.py"))
SDK_CLIENT = (*PYTHON, str(PEERS / "client_sdk_task.py"))
WAYS = ("http", "stdio")
SAID = """\
asked: Whose name?
asked: Which address?
asked: Which meal for the name?
book 2 seats, the meal
count 2
fail Error calling tool 'fail': no seats
wait cancelled
counts 1 2
left working
"""


def record(output: Path, *options: str, way: str, polls: int = 0) -> Run:
    """Record the client's talk with the server; nothing on disk and in the log names a task."""
    client = (*CLIENT, "--polls", str(polls))
    if way == "http":
        with listening(SERVER) as server:
            done = run_at(record_command(server.url, output, *options), client)
    else:
        command = recorder(output, *SERVER, "--stdio", options=options)
        done = run((*client, "--", *command))

    assert done.code == 0, done.stderr
    names_no_task(done, output.parent)
    return done


def names_no_task(done: Run, folder: Path) -> None:
    """Make sure that ids of tasks, which the client tells, stand nowhere else."""
    ids = set(re.findall(r"task (\S{43})\n", done.stderr))
    assert len(ids) == 7
    log = re.sub(r"task \S{43}\n", "", done.stderr)
    files = [path.read_text() for path in folder.rglob("*") if path.is_file()]
    text = "\n".join([log, *files])
    assert not [task_id for task_id in ids if task_id in text]


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    """How the tasks are recorded."""
    return request.param


@pytest.fixture(scope="module")
def recorded(way: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record the tasks of a server that is gone by now; the client sees what it is to see."""
    path: Path = tmp_path_factory.mktemp("tasks") / "tasks.json"
    done = record(path, way=way)
    assert {*SAID.splitlines()} <= {*done.stdout.splitlines()}

    return path


@pytest.mark.parametrize("way", ["http"], indirect=True)
def test_tasks_are_recorded_and_recorded_again(
    recorded: Path, way: str, tmp_path: Path
) -> None:
    """Each is one interaction; at another pace of polls no line of the cassette differs."""
    first = recorded.read_bytes()
    cassette = load(first, "f")

    assert dump(cassette) == first

    calls = [interaction for interaction in cassette.interactions if interaction.steps]

    assert [call.exchanges[0].call.name for call in calls] == [
        "book",
        "count",
        "fail",
        "wait",
        "count",
        "count",
        "wait",
    ]

    states = []
    for call in calls:
        for step in call.steps:
            states.append(step.state.status if step.state else "")

    assert [state for state in states if state != "working"] == [
        "input_required",
        "",
        "input_required",
        "",
        "completed",
        "completed",
        "completed",
        "",
        "cancelled",
        "completed",
        "completed",
    ]

    fields = []
    for call in calls:
        for turn in call.turns:
            names: list[str] = []
            for answer in turn.given_answers.values():
                names += answer["content"]

            fields.append(sorted(names))

    assert fields == [["mail", "name"], ["meal"]]

    again = tmp_path / recorded.name
    again.write_bytes(first)
    record(again, "--force", way=way, polls=3)

    assert again.read_bytes() == first


def played(cassette: Path, way: str, *client: str) -> Run:
    """Play a cassette, without the server, over the other way than that of the recording."""
    fast = ("--poll-interval", "20")
    if way == "stdio":
        return run_at(replay_command(cassette, *fast), client)
    return run((*client, "--", *PROGRAM, "replay", "--stdio", str(cassette), *fast))


def test_tasks_are_played(recorded: Path, way: str) -> None:
    """The client sees each task ask, end, fail and be cancelled as it was recorded."""
    done = played(recorded, way, *CLIENT)

    assert done.code == 0, done.stderr
    assert {*SAID.splitlines()} <= {*done.stdout.splitlines()}
    assert "no misses" in done.stderr


@pytest.mark.parametrize("way", ["stdio"], indirect=True)
def test_declined_task_is_a_miss(recorded: Path, way: str) -> None:
    """A client that declines what was accepted gets the error that says so."""
    done = played(recorded, way, *OTHER_CLIENT)

    assert done.code == 1

    for words in (
        "miss: answers-differ",
        '(form) "Whose name?"',
        'recorded "accept", received',
    ):
        assert words in done.stderr


@pytest.mark.parametrize("way", ["stdio"], indirect=True)
def test_hook_of_the_sdk_ends_a_played_task(recorded: Path, way: str) -> None:
    """A client on the Python SDK gets the result of a call whose task FastMCP's client polled."""
    done = played(recorded, way, *SDK_CLIENT)

    assert done.code == 0, done.stderr
    assert done.stdout == "2 seats, the meal\n"
