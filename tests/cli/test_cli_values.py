"""Facts about values from the outside: the command line, the library and plays of `serve`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from pipes import LINES_SERVER, call, recorder, spoken

import pytest
from harness import command, demo_server, looped, post, run, run_here, taping
from messages import JsonObject, text, tool_call
from playing import serving
from processes import PROGRAM
from standin import Visit, json_response

import mrtr_cassette
from mrtr_cassette import UsageError

HERE = "/srv/run-1/files"
THERE = "/srv/run-2/files"


async def files(visit: Visit) -> None:
    """Say which path a tool was given, for a server that may be asked for its tools."""
    call = visit.request.json
    reply: JsonObject = {"tools": [{"name": "read", "inputSchema": {"type": "object"}}]}
    if "name" in call["params"]:
        reply = text(f"read {call['params']['arguments']['path']}")

    answer = {"jsonrpc": "2.0", "id": call["id"], "result": reply}
    await visit.send(json_response(answer))


def read(folder: str, name: str = "one.txt") -> JsonObject:
    """Return a call that reads a file of a folder."""
    return tool_call("read", arguments={"path": f"{folder}/{name}"})


async def _recorded(path: Path) -> None:
    async with taping(path, files, values={"root": HERE}) as tape:
        await post(tape.url, read(HERE))


@pytest.fixture(scope="module")
def cassette(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cassette of one read in a folder."""
    path = tmp_path_factory.mktemp("recorded") / "c.json"
    asyncio.run(_recorded(path))
    return path


@looped
async def test_a_replay_says_which_text_it_has_learned(
    cassette: Path, tmp_path: Path
) -> None:
    """The first request in another folder teaches it; summary, event and report have it."""
    report = tmp_path / "report.json"
    async with command("replay", cassette, "--port", 0, "--report", report) as process:
        url = await process.listening()
        answer = await post(url, read(THERE))

        assert f"read {THERE}/one.txt" in json.dumps(answer.json)

        missed = await post(url, read(HERE))

        assert missed.json["error"]["data"]["reason"] == "arguments-differ"

        ended = await process.stopped()

    assert ended.code == 1
    assert f"learned from the first request: {{root}} = {THERE}" in ended.err
    assert json.loads(report.read_bytes())["learned"] == {"root": THERE}


@looped
async def test_a_replay_is_given_its_text(cassette: Path) -> None:
    """`--value` is the text of this run; a name that is unknown is told with the known ones."""
    given = ("--port", 0, "--value", f"root={THERE}")
    async with command("replay", cassette, *given) as process:
        answer = await post(await process.listening(), read(THERE))

        assert f"read {THERE}/one.txt" in json.dumps(answer.json)
        assert (await process.stopped()).code == 0

    wrong = await run("replay", cassette, "--value", f"rot={THERE}")

    assert wrong.code == 2
    assert "--value: " in wrong.err
    assert "has no value 'rot'; it has root" in wrong.err


@looped
async def test_a_call_is_recorded_with_a_value(tmp_path: Path) -> None:
    """`call` and `record` write the same names; without a cassette a value has no use."""
    path = tmp_path / "c.json"
    async with demo_server() as url:
        words = ("call", url, "deploy", f"env={HERE}", "--answer", "confirm=yes")
        value = ("--value", f"root={HERE}")
        done = await run(*words, "-o", path, *value)

        assert done.code == 0, done
        assert (await run(*words, *value)).code == 2

    assert done.out == f"Deployed to {HERE}\n"
    assert HERE not in path.read_text()
    assert "Deployed to {root}" in path.read_text()

    shown = run_here("inspect", path).out

    assert '"env":"{root}"' in shown


def test_a_play_has_values(cassette: Path) -> None:
    """Each play of one cassette may be in another folder; fixtures are pytest's alone."""
    with serving(cassette.parent) as serve:
        for folder in (HERE, THERE):
            play = serve.begin("c.json", mode="none", values={"root": folder})
            answer = asyncio.run(post(play["url"], read(folder)))

            assert f"read {folder}/one.txt" in json.dumps(answer.json)

            serve.end(play)

        wrong = serve.request("POST", body={"cassette": "c.json", "values": ["root"]})

        assert wrong.status == 400
        assert "not a mapping of names to texts" in wrong.error


def test_cassettes_with_other_values_are_not_one(
    cassette: Path, tmp_path: Path
) -> None:
    """What is a value in one cassette is a text in another: they are neither played nor merged."""
    plain = tmp_path / "plain.json"

    async def recorded() -> None:
        async with taping(plain, files) as tape:
            await post(tape.url, read(HERE))

    asyncio.run(recorded())
    for words in (
        ("replay", cassette, plain),
        ("merge", cassette, plain, "-o", "x.json"),
    ):
        done = run_here(*words, cwd=tmp_path)

        assert done.code == 3
        assert "another set of values than" in done.err

    with pytest.raises(UsageError, match="has no value 'root'; record it again"):
        mrtr_cassette.verify(plain, "http://127.0.0.1:9", values={"root": HERE})


def test_the_port_in_a_command_is_no_value() -> None:
    """`{port}` is the port that is chosen for a server, so no value can be meant by it."""
    with pytest.raises(UsageError, match=r"\{port\} in a command is the port of"):
        mrtr_cassette.call(["server", "{port}"], "get", values={"port": "8722"})


def test_a_command_is_given_the_texts(tmp_path: Path) -> None:
    """`{root}` in it is this run's text, as `{port}` is the port; an unknown name is an error."""
    path = tmp_path / "c.json"
    value = ("--value", f"root={HERE}")
    server = (*LINES_SERVER, "--last", '{"at":"{root}"}')
    recorded = spoken(recorder(path, *server, options=value), call(1, at=HERE))

    assert recorded.returncode == 0, recorded.stderr
    assert recorded.stdout.endswith(b'{"at":"%b"}' % HERE.encode())
    assert HERE not in path.read_text()

    verified = spoken([*PROGRAM, "verify", str(path), *value, "--", *server], b"")

    assert verified.returncode == 0, verified.stdout

    wrong = (*LINES_SERVER, "--last", "{rot}")
    refusal = b"--value: the command has {rot}, and no value has this name; give it as"
    for words in (
        recorder(tmp_path / "d.json", *wrong, options=value),
        [*PROGRAM, "verify", str(path), *value, "--", *wrong],
    ):
        ended = spoken(words, b"")

        assert (ended.returncode, refusal in ended.stderr) == (2, True), ended.stderr
