"""Facts about trials of an agent: plays of a strict history, over HTTP and pipes, and their report."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from pipes import LINES_SERVER
from typing import Any
from urllib.request import Request, urlopen
from xml.etree import ElementTree as ET

import pytest
from builders import Step, conversation, encode_cassette, rpc, tool
from commands import repeated
from keeping import SERVER as KEEPING
from messages import text
from playing import JSON, Serve, serving
from processes import PROGRAM, listening, run

READS = {"annotations": {"readOnlyHint": True}}
LISTED: Step = (
    rpc("tools/list"),
    {"tools": [{"name": "get", **READS}, {"name": "look", **READS}, {"name": "set"}]},
)
GET = tool("get")
LOOK = tool("look")
FLY = tool("fly")
SET = tool("set", to=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with recordings of three runs of a store."""
    runs: dict[str, tuple[Step, ...]] = {
        "a": ((GET, text("0")), (SET, text("set"))),
        "b": ((GET, text("0")), (LOOK, text("around"))),
        "c": ((SET, text("set")), (GET, text("1"))),
    }

    (tmp_path / "store").mkdir()
    for name, script in runs.items():
        cassette = conversation(LISTED, *script).cassette()
        (tmp_path / "store" / f"{name}.json").write_bytes(encode_cassette(cassette))

    return tmp_path


def call(url: str, request: bytes) -> str:
    """Make a call; return its text, or the first line of its error."""
    with urlopen(Request(url, request, dict(JSON))) as response:
        answer = json.loads(response.read())

    if "error" in answer:
        return str(answer["error"]["message"]).partition("\n")[0]
    return str(answer["result"]["content"][0]["text"])


def test_a_play_of_several_recordings_is_a_trial(folder: Path) -> None:
    """A list, a folder and a glob of cassettes are one union; unknown tools leave it valid."""
    with serving(folder) as serve:
        names = [[f"store/{name}" for name in "abc"], "store", "store/*.json"]
        for cassette in names:
            play = serve.begin(cassette, history="strict")

            assert play["cassette"] == "store/a.json, store/b.json, store/c.json"

            url = play["url"]
            told = [call(url, request) for request in (FLY, GET, GET, SET, FLY, GET)]

            assert told == [
                "Unknown tool: fly",
                "0",
                "0",
                "set",
                "Unknown tool: fly",
                "1",
            ]

            ended = serve.end(play)

            assert (ended["valid"], ended["problems"]) == (True, [])
            assert ended["unknown_tools"] == {"fly": 2}

            left = ended["first_divergence"]

            assert (left["cassette"], left["after"]) == (
                str(folder / "store" / "a.json"),
                3,
            )
            assert left["reason"] == "other-recording"

        assert serve.request("POST", body={"cassette": "st*re/x*.json"}).status == 400


def test_a_trial_stops_at_its_first_miss(folder: Path) -> None:
    """With on_miss stop all requests get the same error, and the report counts them."""
    with serving(folder) as serve:
        told = {}
        for on_miss in ("continue", "stop"):
            play = serve.begin("store/", history="strict", on_miss=on_miss)
            requests = (SET, GET, LOOK, GET, FLY)
            told[on_miss] = [call(play["url"], request) for request in requests]
            ended = serve.end(play)

            assert not ended["valid"]
            assert len(ended["misses"]) == 1
            assert ended["stopped"] == (2 if on_miss == "stop" else 0)

            divergence = ended["first_divergence"]

            assert divergence["cassette"] == str(folder / "store" / "c.json")
            assert divergence["reason"] == "other-history"
            assert divergence["after"] == 2

        missed = told["continue"][2]

        assert missed.startswith("miss: other-history")
        assert told["continue"] == ["set", "1", missed, "1", "Unknown tool: fly"]
        assert told["stop"] == ["set", "1", missed, missed, missed]

        answer = serve.request("POST", body={"cassette": "store", "on_miss": "report"})

        assert "is 'report', and not one of continue, stop" in answer.error


def test_a_tool_name_that_utf_8_lacks_is_escaped_in_reports(folder: Path) -> None:
    """A play is reported and ended as any other, however an agent names a tool."""
    with serving(folder) as serve:
        play = serve.begin("store/", history="strict")
        call(play["url"], FLY.replace(b"fly", rb"\ud800"))
        report = serve.report(play)
        ended = serve.end(play)

    assert report["unknown_tools"] == {r"\ud800": 1}
    assert ended["unknown_tools"] == report["unknown_tools"]


# replay --trials


@contextmanager
def trying(folder: Path, *options: str) -> Iterator[Serve]:
    """Serve trials of all recordings until the block ends."""
    words = ("replay", "--trials", str(folder / "store"), "--port", "0", *options)
    with listening((*PROGRAM, *words)) as process:
        yield Serve(process)


def test_trials_are_reported_one_by_one_and_over_all(folder: Path) -> None:
    """A POST without a body begins a trial; JSON, Markdown and JUnit have the validity rate."""
    places = [folder / f"trials{ending}" for ending in (".json", ".md", ".xml")]
    for _ in range(2):
        options = repeated("--report", places)
        with trying(folder, "--on-miss", "stop", *options) as serve:
            for requests in ((GET, LOOK), (SET, GET, FLY), (SET, GET, LOOK, GET)):
                play = serve.request("POST", headers={}).json
                for request in requests:
                    call(play["url"], request)

                serve.end(play)

            refused = serve.request("POST", body={"cassette": "store/a.json"})

            assert refused.status == 400
            assert "a trial has no option 'cassette'" in refused.error

            play = serve.request("POST", body={"history": "order"}).json

            assert call(play["url"], SET) == "set"

            serve.end(play)

        assert serve.process.code == 1
        assert "3 of 4 trials valid (75.0%)" in serve.process.stderr

    saved = json.loads(places[0].read_bytes())

    assert saved["total"] == {
        "trials": 4,
        "valid": 3,
        "validity_rate": 0.75,
        "served": 7,
        "missed": 1,
        "unplayed": saved["total"]["unplayed"],
        "stopped": 1,
        "unknown_tools": 1,
    }

    first, second, third, _ = saved["trials"]

    assert first["valid"]
    assert first["first_divergence"] is None
    assert second["unknown_tools"] == {"fly": 1}
    assert third["ended_by"] == 'other-history: tools/call "look"'
    assert third["first_divergence"]["cassette"].endswith("c.json")
    assert len(third["divergences"]) == 3

    table = places[1].read_text().splitlines()

    assert table[0].startswith("| trial | valid | served |")
    assert [row.split(" | ")[1] for row in table[2:6]] == ["yes", "yes", "no", "yes"]
    assert table[-1] == "3 of 4 trials valid (75.0%)"

    suite = ET.parse(places[2]).getroot()

    assert [len(case) for case in suite.iter("testcase")] == [0, 0, 1, 0]

    (rate,) = suite.iter("property")

    assert dict(rate.attrib) == {"name": "validity_rate", "value": "0.75"}


def test_an_invalid_trial_is_appended_by_the_command_that_it_tells(
    tmp_path: Path,
) -> None:
    """The calls of the trial are made again at that recorder; then trials like it are valid."""
    (tmp_path / "server.py").write_text(KEEPING.replace("/api/mcp", "/mcp"))
    server = f"{sys.executable} {tmp_path / 'server.py'} {{port}}"
    put = tool("put", thing="cup")

    def told_by(command: Sequence[str], *requests: bytes) -> list[str]:
        with listening((*PROGRAM, *command, "--port", "0")) as recorder:
            return [call(recorder.url, request) for request in requests]

    def trial() -> tuple[list[str], dict[str, Any]]:
        with trying(tmp_path, "--on-miss", "stop") as serve:
            play = serve.request("POST").json
            told = [call(play["url"], request) for request in (put, GET, put, GET)]
            return told, serve.end(play)

    (tmp_path / "store").mkdir()
    for name, requests in (("a", (GET, put)), ("b", (put, put))):
        output = str(tmp_path / "store" / f"{name}.json")
        told_by(("record", "--upstream", server, "--output", output), *requests)

    told, ended = trial()

    assert told[0] == "cup"
    assert not ended["valid"]

    fixes = ended["misses"][0]["fixes"]
    (way,) = [fix for fix in fixes if fix.startswith("record this call too with")]
    command = shlex.split(way)[6:]
    live = ["cup", "cup", "cup cup", "cup cup"]

    assert told_by(command, put, GET, put, GET) == live

    told, ended = trial()

    assert told == live
    assert ended["valid"]


def test_what_does_not_go_with_trials_is_refused(folder: Path) -> None:
    """Each is told before anything listens."""
    store = str(folder / "store")
    for words, told in (
        (["--stdio"], "--stdio and --trials don't go together"),
        (["--admin-port", "0"], "--admin-port and --trials don't go together"),
        (["--repeat", "always"], "--repeat always and --history strict"),
    ):
        ended = run(
            (*PROGRAM, "replay", "--trials", store, "--port", "0", *words, "--", "true")
        )

        assert ended.code == 2, ended
        assert told in ended.stderr

    ended = run((*PROGRAM, "replay", store, "--report", "r.md", "--", "true"))

    assert ended.code == 2
    assert "a replay has a .md report of --trials only" in ended.stderr

    (folder / "store" / "a.json").write_text(
        '{"$schema": "urn:mrtr-cassette:cassette:1"'
    )
    ended = run((*PROGRAM, "replay", "--trials", store, "--", "true"))

    assert ended.code == 3, ended


def test_trials_of_a_server_on_pipes_have_commands(tmp_path: Path) -> None:
    """Each trial's command plays the union; the report has its miss."""

    def ask(command: list[str], *values: int) -> list[Any]:
        lines = ""
        for number, value in enumerate(values):
            message = {"jsonrpc": "2.0", "id": number, "method": "tools/call"}
            lines += json.dumps({**message, "params": {"v": value}}) + "\n"

        done = subprocess.run(
            command, input=lines, capture_output=True, text=True, check=False
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    (tmp_path / "store").mkdir()
    with serving(tmp_path) as serve:
        for value in (7, 8):
            play = serve.begin(f"store/{value}", upstream=list(LINES_SERVER))
            ask(play["command"], value)
            serve.end(play)

    report = tmp_path / "trials.json"
    with trying(tmp_path, "--on-miss", "stop", "--report", str(report)) as serve:
        play = serve.request("POST").json

        assert "result" in ask(play["command"], 8)[0]
        assert serve.end(play)["valid"]

        play = serve.request("POST").json
        said = ask(play["command"], 9, 8)
        ended = serve.end(play)

    assert said[0]["error"] == said[1]["error"]
    assert (ended["valid"], ended["stopped"], ended["served"]) == (False, 1, 0)
    assert ended["first_divergence"]["reason"] == "arguments-differ"
    assert json.loads(report.read_bytes())["total"]["validity_rate"] == 0.5
