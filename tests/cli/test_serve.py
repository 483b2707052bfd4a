"""Facts about `mrtr-cassette serve`: plays of a whole suite, begun and ended by requests."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from pipes import LINES_SERVER
from typing import Any

import pytest
from messages import message
from patience import HANGS_S
from playing import JSON, Serve, serving
from processes import PROGRAM, run

import mrtr_cassette

DOCS = Path(mrtr_cassette.__file__).parents[1] / "docs"
DEMO = [sys.executable, "-m", "mrtr_cassette.demo.server", "--port", "{port}"]


def deploy(url: str, env: str = "test", *, confirm: bool = True) -> str:
    """Make a call that asks; return the text of its result."""
    called = mrtr_cassette.call(
        url, "deploy", {"env": env}, answers={"confirm": confirm}
    )
    assert called.error is called.problem is None, called.error or called.problem
    return called.text


def swallowed(url: str, env: str) -> None:
    """Make a call that misses, as an agent that goes on would."""
    mrtr_cassette.call(url, "deploy", {"env": env}, answers={"confirm": True})


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a cassette of three deployments."""
    folder = tmp_path_factory.mktemp("cassettes")
    with serving(folder) as serve:
        play = serve.begin("deploy", upstream=DEMO)
        for env in ("test", "prod", "stage"):
            deploy(play["url"], env)

        assert serve.end(play)["outcome"] == "recorded"

    return folder


@pytest.fixture(scope="module")
def replaying(recorded: Path) -> Iterator[Serve]:
    """A process that plays it."""
    with serving(recorded) as serve:
        yield serve


def test_a_play_is_recorded_once_and_played_without_its_server(tmp_path: Path) -> None:
    """A play in mode once records what is missing; the next process needs no upstream."""
    with serving(tmp_path) as serve:
        play = serve.begin("a/deploy.json", upstream=DEMO)
        said = deploy(play["url"])
        ended = serve.end(play)

    assert (play["mode"], play["is_recording"], play["command"]) == ("once", True, None)
    assert (ended["outcome"], ended["problems"]) == ("recorded", [])
    assert ended["recorded"] >= 2

    with serving(tmp_path, environment={"CI": "true"}) as serve:
        play = serve.begin("a/deploy")

        assert deploy(play["url"]) == said

        ended = serve.end(play)

    assert (play["mode"], play["cassette"]) == ("none", "a/deploy.json")
    assert (ended["outcome"], ended["valid"], ended["unplayed"]) == (
        "replayed",
        True,
        [],
    )
    assert serve.process.code == 0


def test_a_failed_test_leaves_no_recording(tmp_path: Path) -> None:
    """Neither a failed test nor one that was skipped writes a cassette."""
    with serving(tmp_path) as serve:
        for outcome in ("failed", "skipped"):
            play = serve.begin("deploy", upstream=DEMO)
            deploy(play["url"])
            ended = serve.end(play, outcome)

            assert ended["outcome"] == f"discarded (test {outcome})"

    assert list(tmp_path.iterdir()) == []
    assert serve.process.code == 0


def test_each_of_two_hundred_plays_is_told_its_own_misses(replaying: Serve) -> None:
    """Plays at once keep apart: of those that miss on purpose each one has its own miss."""
    begun = [replaying.begin("deploy", mode="none") for _ in range(200)]

    def call_in(number: int) -> None:
        url = begun[number]["url"]
        if number % 5 == 0:
            swallowed(url, f"nowhere-{number}")
        else:
            assert deploy(url, "prod") == "Deployed to prod"

    with ThreadPoolExecutor(20) as threads:
        list(threads.map(call_in, range(200)))
        ended = list(enumerate(threads.map(replaying.end, begun)))

    for number, report in ended:
        misses = number % 5 == 0

        assert report["valid"] is not misses
        assert len(report["misses"]) == len(report["problems"]) == int(misses)

        if misses:
            assert f"nowhere-{number}" in report["problems"][0]
            assert "fix:" in report["problems"][0]

            left = dict(report["first_divergence"])

            assert left.pop("after") > 0
            assert left == report["misses"][0]

    assert replaying.request("GET").json == {"plays": []}


def test_a_play_is_watched(replaying: Serve) -> None:
    """A report before the end counts what was served, missed, harmless and not played."""
    play = replaying.begin("deploy")
    before = replaying.report(play)
    deploy(play["url"], "prod")
    swallowed(play["url"], "nowhere")
    after = replaying.report(play)
    (listed,) = replaying.request("GET").json["plays"]

    assert listed == after
    assert before["served"] == 0
    assert after["served"] > 2
    assert after["misses"][0]["reason"] == "arguments-differ"
    assert [interaction["name"] for interaction in before["unplayed"]].count(
        "deploy"
    ) == 3
    assert [interaction["name"] for interaction in after["unplayed"]].count(
        "deploy"
    ) == 2
    assert not after["valid"]

    replaying.end(play, "failed")


def test_modes_are_those_of_the_fixture(recorded: Path, tmp_path: Path) -> None:
    """Append adds, all records anew, verify compares; the environment has the last word."""
    path = tmp_path / "deploy.json"
    path.write_bytes((recorded / "deploy.json").read_bytes())
    before = len(json.loads(path.read_bytes())["interactions"])
    with serving(tmp_path) as serve:
        play = serve.begin("deploy", mode="append", upstream=DEMO)
        deploy(play["url"], "prod")
        deploy(play["url"], "elsewhere")

        assert serve.end(play)["outcome"] == "added to"

        play = serve.begin("deploy", mode="verify", upstream=DEMO)
        deploy(play["url"], "prod")
        different = serve.end(play)

        assert different["outcome"] == "different"
        assert "deploy" in different["problems"][0]

        play = serve.begin("deploy", mode="all", upstream=DEMO)
        deploy(play["url"], "prod")

        assert serve.end(play)["outcome"] == "recorded"

    after = len(json.loads(path.read_bytes())["interactions"])

    assert after < before

    with serving(tmp_path, environment={"MRTR_CASSETTE_MODE": "none"}) as serve:
        play = serve.begin("deploy", mode="all", upstream=DEMO)

        assert play["mode"] == "none"


def test_what_a_play_has_verified_is_removed(recorded: Path, tmp_path: Path) -> None:
    """A process that serves a suite for days keeps no recording of each play."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with serving(recorded, environment={"TMPDIR": str(temporary)}) as serve:
        play = serve.begin("deploy", mode="verify", upstream=DEMO)
        deploy(play["url"], "prod")

        assert list(temporary.rglob("*.journal")) != []
        assert serve.end(play)["outcome"] == "different"
        assert list(temporary.rglob("deploy.json*")) == []


def test_several_cassettes_are_played_as_one(recorded: Path, tmp_path: Path) -> None:
    """A play may name a list of cassettes."""
    for name in ("one", "two"):
        with serving(tmp_path) as serve:
            play = serve.begin(name, upstream=DEMO)
            deploy(play["url"], name)
            serve.end(play)

    with serving(tmp_path) as serve:
        play = serve.begin(["one", "two.json"])

        assert deploy(play["url"], "one") == "Deployed to one"
        assert deploy(play["url"], "two") == "Deployed to two"
        assert serve.end(play)["problems"] == []


def test_a_server_on_pipes_is_a_command(tmp_path: Path) -> None:
    """The client starts the command of the play, whose misses are the play's."""

    def ask(command: list[str], value: int) -> Any:
        call = message("tools/call", {"v": value}, id=1)
        done = subprocess.run(
            command,
            input=json.dumps(call) + "\n",
            capture_output=True,
            text=True,
            check=False,
        )
        return json.loads(done.stdout)

    with serving(tmp_path) as serve:
        play = serve.begin("lines", upstream=list(LINES_SERVER))
        live = ask(play["command"], 7)

        assert play["url"] is None
        assert serve.end(play)["outcome"] == "recorded"

        play = serve.begin("lines")

        assert ask(play["command"], 7) == live
        assert "error" in ask(play["command"], 8)

        ended = serve.end(play)

    assert [miss["reason"] for miss in ended["misses"]] == ["arguments-differ"]
    assert len(ended["problems"]) == 1
    assert serve.process.code == 1


# What ends the process


def test_a_play_that_nobody_ended_is_told_with_its_misses(recorded: Path) -> None:
    """The process ends with 1 if any play missed, unless its harness judges."""
    for options, code in (((), 1), (("--exit-zero",), 0)):
        with serving(recorded, *options) as serve:
            swallowed(serve.begin("deploy")["url"], "nowhere")
            serve.begin("deploy")

        told = serve.process.stderr

        assert told.count("the play of deploy.json was never ended") == 2
        assert told.count("nowhere") >= 1
        assert "1 not used, 1 replayed; 1 play failed" in told
        assert serve.process.code == code


def test_the_end_of_standard_input_ends_it(recorded: Path) -> None:
    """A process whose parent was killed does not stay, and every line that it writes is JSON."""
    words = (*PROGRAM, "serve", str(recorded), "--port", "0")
    options = ("--exit-on-eof", "--log-format", "json")
    with subprocess.Popen(
        (*words, *options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None

        ready = json.loads(process.stdout.readline())
        serve = Serve(process)  # type: ignore[arg-type]
        serve.process = type("Started", (), {"url": ready["url"]})()
        swallowed(serve.begin("deploy")["url"], "nowhere")
        _, stderr = process.communicate(timeout=HANGS_S)

    events = [json.loads(line) for line in stderr.splitlines()]

    assert ready["event"] == "listening"

    kinds = [told["event"] for told in events]

    assert kinds[0] == "began"
    assert kinds[-3:] == ["never_ended", "ended", "concluded"]

    (missed,) = [told for told in events if told["event"] == "missed"]

    assert missed["play"] == events[0]["id"]
    assert process.returncode == 1


def test_a_play_that_is_being_begun_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """The process ends although nobody waits for the play any more, and so does its server."""
    started = tmp_path / "started"
    os.mkfifo(started)
    script = (
        "import os, signal; "
        f"open({str(started)!r}, 'w').write(str(os.getpid())); signal.pause()"
    )

    upstream = [sys.executable, "-c", script, "--port", "{port}"]
    words = (*PROGRAM, "serve", str(tmp_path), "--port", "0", "--exit-on-eof")
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        address = process.stdout.readline().rpartition("//")[2].strip()
        client = http.client.HTTPConnection(address)
        # Named, since where CI is set a play without a mode does not record.
        wanted = json.dumps(
            {"cassette": "deploy", "upstream": upstream, "mode": "once"}
        )
        client.request("POST", "/.mrtr/plays", wanted, dict(JSON))
        server = int(started.read_text())
        client.close()
        process.stdin.close()
        process.wait(timeout=HANGS_S)

    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


def test_a_command_finds_the_address_and_its_end_ends_it(recorded: Path) -> None:
    """The exit code is the command's; a play that missed makes a zero one."""
    program = """
import json, os, urllib.request
url = os.environ["MRTR_CASSETTE_SERVE"] + "/.mrtr/plays"
headers = {"Content-Type": "application/json"}
request = urllib.request.Request(url, json.dumps({"cassette": "deploy"}).encode(), headers)
play = json.load(urllib.request.urlopen(request))
call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": NAME}}
urllib.request.urlopen(urllib.request.Request(play["url"], json.dumps(call).encode(), headers))
"""
    for name, end, code in (
        ("deploy", "", 0),
        ("nix", "", 1),
        ("nix", "raise SystemExit(7)", 7),
    ):
        words = [sys.executable, "-c", program.replace("NAME", repr(name)) + end]
        ended = run((*PROGRAM, "serve", str(recorded), "--", *words))

        assert ended.code == (1 if name == "deploy" and not end else code), ended


def test_the_guide_names_every_member_and_status(replaying: Serve) -> None:
    """What a play answers is explained in docs/serve.md."""
    guide = (DOCS / "serve.md").read_text()
    play = replaying.begin("deploy")
    members = {*play, *replaying.end(play)}
    statuses = {201, 400, 401, 403, 404, 405, 409, 410, 415, 422, 502}
    missing = [name for name in sorted(members) if f"`{name}`" not in guide]
    missing += [str(status) for status in statuses if str(status) not in guide]

    assert missing == []


def test_a_command_finds_the_folder_that_is_served(tmp_path: Path) -> None:
    """It has the folder's real path, to which clients' own paths can be relative."""
    folder = tmp_path / "cassettes"
    folder.mkdir()
    link = tmp_path / "link"
    link.symlink_to(folder)
    program = "import os; print(os.environ['MRTR_CASSETTE_FOLDER'])"
    ended = run((*PROGRAM, "serve", str(link), "--", sys.executable, "-c", program))

    assert str(folder.resolve()) in ended.stdout.splitlines()


# What is refused


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ({"cassette": "../c.json"}, 400, "../c.json is outside of"),
        ({"cassette": "/tmp/c.json"}, 400, "/tmp/c.json is outside of"),
        ({"cassette": "link/c.json"}, 400, "link/c.json is outside of"),
        ({"cassette": ["deploy", "../c"]}, 400, "../c is outside of"),
        (
            {"cassette": "deploy", "ca_file": "/etc/hosts"},
            400,
            "/etc/hosts is outside of",
        ),
        ({"cassette": "s3://bucket/c"}, 400, "takes the name of a file, and not a URL"),
        ({"cassette": ""}, 400, "'' is not the name of a file"),
        ({"cassette": 5}, 400, 'needs "cassette", the name of a file or a list'),
        ({}, 400, 'needs "cassette", the name of a file or a list'),
        (
            {"cassette": "deploy", "mode": "nix"},
            400,
            "not one of none, once, append, all, verify",
        ),
        ({"cassette": "deploy", "ignor": []}, 400, "did you mean 'ignore'?"),
        (
            {"cassette": "deploy", "qqq": 1},
            400,
            "a play has no option 'qqq'; it has cassette, upstream, redact_env",
        ),
        (
            {"cassette": "deploy", "port": 1},
            400,
            "no option 'port'; all plays have the address of this process",
        ),
        (
            {"cassette": "deploy", "answers": {}},
            400,
            "no option 'answers'; the client of the play answers",
        ),
        ({"cassette": "deploy", "ignore": "/a"}, 400, "ignore is a single text"),
        ({"cassette": "new", "mode": "none"}, 404, "there is no such cassette"),
        ({"cassette": "new"}, 400, "name an upstream in the options of the play"),
        ({"cassette": "new", "upstream": "nowhere"}, 400, "is no URL"),
        (
            {"cassette": "new", "upstream": ["no-such-program", "{port}"]},
            502,
            "can't run",
        ),
        ({"cassette": "broken"}, 422, "broken.json"),
        ({"cassette": ["deploy", "nope"]}, 422, "record it as the only cassette"),
        ({"cassette": "x" * 300}, 422, "file name too long"),
        ({"cassette": "x" * 252, "upstream": DEMO}, 422, "file name too long"),
        ("{", 400, "the body is not JSON"),
        ("[]", 400, "the body is not a JSON object"),
    ],
)
def test_a_play_that_cannot_be_begun_is_refused(
    recorded: Path, replaying: Serve, body: Any, status: int, text: str
) -> None:
    """Each mistake has a status and a sentence that names it."""
    link = recorded / "link"
    if not link.is_symlink():
        link.symlink_to(recorded.parent)
        (recorded / "broken.json").write_text("{")

    answer = replaying.request("POST", body=body)

    assert answer.status == status
    assert text in answer.error
    assert replaying.request("GET").json == {"plays": []}


def test_other_requests_are_refused(replaying: Serve) -> None:
    """A page of another site, another method and what is not there each have their status."""
    play = replaying.begin("deploy")
    place = f"/{play['id']}"

    assert replaying.request("POST", body="{}", headers={}).status == 415
    assert replaying.request("DELETE", place, {"outcome": "done"}).status == 400
    assert replaying.request("DELETE", place, {"result": "failed"}).status == 400
    assert replaying.request("DELETE", place, "{}", {}).status == 415
    assert replaying.request("PUT").status == 405
    assert replaying.request("POST", place, {}).status == 405
    assert replaying.request("GET", "/0").error.startswith("there is no play '0'")

    foreign = {**JSON, "Origin": "http://evil.example"}
    rebound = {**JSON, "Host": "evil.example"}
    for headers in (foreign, rebound):
        status, text = replaying.exchange("GET", "/.mrtr/plays", None, headers)

        assert (status, text[:8]) == (403, b"refused:")

    assert replaying.exchange("GET", "/", None, {})[0] == 404
    assert replaying.request("DELETE", place).status == 200
    assert replaying.request("DELETE", place).status == 410
    assert replaying.request("GET", place).status == 410

    target = f"/.mrtr/plays{place}/mcp"
    status, text = replaying.exchange("POST", target, "{}", JSON)

    assert (status, b"has ended" in text) == (410, True)
    assert replaying.exchange("POST", "/.mrtr/plays/0/mcp", "{}", JSON)[0] == 404


def test_control_requests_need_the_token(recorded: Path) -> None:
    """The token is for who begins plays; a client under test has only the URL of its play."""
    with serving(recorded, environment={"MRTR_CASSETTE_TOKEN": "a-token"}) as serve:
        refused = serve.request("POST", body={"cassette": "deploy"})

        assert (refused.status, "MRTR_CASSETTE_TOKEN" in refused.error) == (401, True)

        bearer = {**JSON, "Authorization": "Bearer a-token"}
        play = serve.request("POST", "", {"cassette": "deploy"}, bearer).json

        assert deploy(play["url"], "prod") == "Deployed to prod"
        assert serve.request("DELETE", f"/{play['id']}", None, bearer).status == 200


def test_a_cassette_is_recorded_by_one_play_at_a_time(tmp_path: Path) -> None:
    """A second recording of the same file is refused until the first one has ended."""
    with serving(tmp_path) as serve, serving(tmp_path) as another:
        first = serve.begin("deploy", upstream=DEMO)
        for process in (serve, another):
            body = {"cassette": "deploy", "upstream": DEMO}
            refused = process.request("POST", "", body)

            assert (refused.status, "recorded" in refused.error) == (409, True), refused

        serve.end(first, "failed")
        serve.end(serve.begin("deploy", upstream=DEMO), "failed")


def test_wrong_ways_to_start_it_are_usage_errors(recorded: Path) -> None:
    """A port that is taken, a file for a folder and an unknown mode are told in a line."""
    words = (*PROGRAM, "serve")
    file = run((*words, str(recorded / "deploy.json")))

    assert (file.code, "is a file" in file.stderr) == (2, True)

    mode = run((*words, str(recorded)), {"MRTR_CASSETTE_MODE": "nix"})

    assert (mode.code, "MRTR_CASSETTE_MODE is 'nix'" in mode.stderr) == (2, True)

    both = run((*words, str(recorded), "--exit-on-eof", "--", "true"))

    assert (both.code, "don't go together" in both.stderr) == (2, True)

    host = run((*words, str(recorded), "--host", "0.0.0.0"))

    assert (host.code, "set MRTR_CASSETTE_TOKEN" in host.stderr) == (2, True)

    with serving(recorded) as serve:
        port = serve.url.rpartition(":")[2]
        taken = run((*words, str(recorded), "--port", port))

    assert (taken.code, "is in use" in taken.stderr) == (2, True)
