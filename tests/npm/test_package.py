"""The package for TypeScript, installed from its tarball into a project with vitest and the SDK."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import made_once
from npm_projects import (
    DEPLOYED,
    NPM_PACKAGE,
    Project,
    install_package,
    npm,
    typescript_server,
    used_by,
)
from processes import PROGRAM

import mrtr_cassette
from mrtr_cassette.testing.names import file_name
from mrtr_cassette.testing.plays import _PLAY_OPTIONS

pytestmark = pytest.mark.usefixtures("forks_programs")

NODE_FLOWS = ("node", "--test", "suite/flows.node.mjs")
VITEST = ("../node_modules/.bin/vitest", "run")
SHOWN_FILE = re.compile(r"```ts\n// (\S+)\n(.*?)```", re.DOTALL)
PLAYWRIGHT = ("node_modules/.bin/playwright", "test")
MISS = """\
miss: answers-differ: other answers were recorded
  request:  tools/call "deploy" with {{"env":"production"}}, answering confirm
  question: confirm (form) "Deploy to production?"
  nearest:  #2 (tools/call "deploy", answer of turn 1) in {cassette}
  /inputResponses/confirm/action: recorded "accept", received "decline"
  /inputResponses/confirm/content: recorded {{"confirm":true}}, received nothing
  fix:      answer as recorded
"""


@pytest.fixture(scope="session")
def installed(tmp_path_factory) -> Path:
    """The folder of a project with the package."""
    return made_once(tmp_path_factory, "npm-project", install_package)


@pytest.fixture(scope="session")
def recorded(tmp_path_factory, installed) -> Path:
    """The same with cassettes that vitest, node:test and Playwright recorded; the server is gone."""

    def record(place: Path) -> None:
        place.mkdir()
        project = used_by(installed, place)
        with typescript_server() as server:
            tests, printed = project.vitest("flows", environment=server)
            for command in (NODE_FLOWS, (*PLAYWRIGHT, "--grep", "accepts")):
                ended = project.run(*command, environment=server)
                assert ended.returncode == 0, ended.stdout + ended.stderr

        assert {test["status"] for test in tests.values()} == {"passed"}, printed

    made_once(tmp_path_factory, "npm-recording", record)
    return installed


@pytest.fixture
def project(recorded, tmp_path) -> Project:
    """A project in which cassettes are replayed."""
    return used_by(recorded, tmp_path)


def test_tarball_has_the_program_its_types_and_nothing_to_install(installed):
    """It is as new as the program, and its sources are formatted."""
    (tarball,) = installed.glob("*.tgz")
    with tarfile.open(tarball) as archive:
        names = {Path(name).relative_to("package") for name in archive.getnames()}

    outside = {str(name) for name in names if name.parts[0] != "dist"}

    assert outside == {"LICENSE", "README.md", "package.json"}

    facts = json.loads(
        (installed / "node_modules/mrtr-cassette/package.json").read_text()
    )

    assert facts["version"] == mrtr_cassette.__version__
    assert "dependencies" not in facts

    for entry in facts["exports"].values():
        assert {Path(file) for file in entry.values()} <= names

    npm(NPM_PACKAGE, "run", "lint")


def test_types_are_right_in_a_project(project):
    """A compiler takes what is right in tests, and refuses misspelled options and modes."""
    ended = project.run("node_modules/.bin/tsc", "--noEmit", "--project", ".")

    assert (ended.returncode, ended.stdout) == (0, "")


def test_options_are_those_of_a_play(installed):
    """The types know every option that `serve` takes, and no other."""
    source = (NPM_PACKAGE / "src/play.ts").read_text()
    _, _, rest = source.partition("export interface PlayOptions {")
    members, _, _ = rest.partition("\n}")
    named = set()
    for line in members.splitlines():
        name, mark, _ = line.strip().partition("?:")
        if mark:
            named.add(name)

    assert named == {*_PLAY_OPTIONS} - {"cassette"}


def test_names_of_cassettes_are_those_of_pytest(installed):
    """A title becomes the same file name in both; names differ also where case doesn't count."""
    chance = random.Random(7)
    letters = "aB0_-. äß語😀/\\:>%(\u0301"
    titles = ["deploys", "Deploys", "x" * 130, "a > b", "a b", "a-b"]
    for length in range(200):
        titles.append("".join(chance.choices(letters, k=length % 9 + 1)))

    titles = sorted(set(titles))
    script = (
        "import {fileName} from './node_modules/mrtr-cassette/dist/names.js';"
        f"console.log(JSON.stringify({json.dumps(titles)}.map(fileName)))"
    )

    ended = subprocess.run(
        ["node", "--input-type=module", "--eval", script],
        cwd=installed,
        capture_output=True,
        text=True,
        check=True,
    )

    names = json.loads(ended.stdout)

    assert len({name.lower() for name in names}) == len(titles)

    for title, name in zip(titles, names, strict=True):
        assert name.isascii()

        has_capitals = file_name(title) == title != title.lower()

        assert has_capitals or name == file_name(title)


def test_flows_recorded_in_vitest_are_replayed_in_any_order(project):
    """Without the server, shuffled, at once and some of them: all pass, and no file changes.

    One server is started for the files of a run, and it ends with the run.
    """
    before = project.cassettes()

    assert DEPLOYED in before
    assert "suite/cassettes/second.json" in before
    assert len(before) == 15

    attempt = next(text for name, text in before.items() if "only-the-attempt" in name)

    assert b'"b": 7' in attempt
    assert b'"b": 0' not in attempt

    words = ("flows", "--sequence.shuffle", "--sequence.seed=5")
    tests, printed = project.vitest(*words, environment={"CI": "1"})

    assert len(tests) == 10
    assert {test["status"] for test in tests.values()} == {"passed"}, printed
    assert project.cassettes() == before

    (started,) = project.starts.read_text().split()
    with pytest.raises(ProcessLookupError):
        os.kill(int(started), 0)


def test_suite_of_the_readme_records_and_replays(project):
    """The page's files, in an empty folder, ask the included server once and then a cassette."""
    page = (NPM_PACKAGE / "README.md").read_text()
    folder = project.folder / "of-the-readme"
    folder.mkdir()
    for name, text in SHOWN_FILE.findall(page)[:3]:
        (folder / name).write_text(text)

    reader = replace(project, folder=folder)
    programs = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    patient = (*VITEST, "--testTimeout=120000")
    ended = reader.run(*patient, environment=programs)

    assert "mrtr-cassette: 1 recorded" in ended.stdout, ended.stdout + ended.stderr

    (cassette,) = folder.glob("cassettes/*/*.json")

    assert str(cassette.relative_to(folder)) in page

    ended = reader.run(*patient, environment={"CI": "1"})

    assert ended.returncode == 0
    assert "mrtr-cassette: 1 replayed" in ended.stdout


def test_miss_that_a_client_swallows_fails_its_test_alone(project):
    """In vitest, the whole text of the miss is in its own test's failure, and in no other's.

    It is told once, by the client's error if a test has that. A test without a cassette fails in mode none, but not where `-t` leaves it out.
    """
    tests, printed = project.vitest(
        "misses", environment={"MRTR_CASSETTE_MODE": "none"}
    )
    (failure,) = tests["swallows the miss"]["failureMessages"]
    text = MISS.format(cassette=project.folder / DEPLOYED)

    (thrown,) = tests["throws the miss"]["failureMessages"]

    assert text in failure
    assert text in thrown
    assert printed.count(text) == 2
    assert tests["answers as recorded"]["status"] == "passed"

    (missing,) = tests["not recorded"]["failureMessages"]

    assert "there is no such cassette" in missing

    (ambiguous,) = tests["of one title"]["failureMessages"]

    assert (
        'two tests are called "by cassettes of their own > of one title"' in ambiguous
    )

    chosen, printed = project.vitest(
        "misses", "-t", "answers as", environment={"MRTR_CASSETTE_MODE": "none"}
    )
    passed = [title for title, test in chosen.items() if test["status"] == "passed"]

    assert passed == ["answers as recorded"], printed


def test_flows_recorded_in_node_test_are_replayed(project):
    """By a server of their own, and by one that runs already and asks for a token."""
    before = project.cassettes()
    ended = project.run(*NODE_FLOWS, environment={"CI": "1"})

    assert ended.returncode == 0, ended.stdout + ended.stderr

    shared = (*PROGRAM, "serve", ".", "--", *NODE_FLOWS)
    ended = project.run(
        *shared,
        environment={
            "CI": "1",
            "MRTR_CASSETTE_BIN": "none",
            "MRTR_CASSETTE_TOKEN": "let me in",
        },
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert project.cassettes() == before


def test_cassettes_are_found_in_whichever_folder_is_served(project):
    """The root of a monorepo whose package has the tests, and the folder of the cassettes."""
    before = project.cassettes()
    flows = ("node_modules/.bin/vitest", "run", "flows", "-t", "adds|a second cassette")
    for served, command in (("..", flows), ("suite/cassettes", NODE_FLOWS)):
        shared = (*PROGRAM, "serve", served, "--")
        ended = project.run(*shared, *command, environment={"CI": "1"})

        assert ended.returncode == 0, ended.stdout + ended.stderr

    assert project.cassettes() == before


def test_cassette_outside_of_the_served_folder_is_an_error(project, tmp_path):
    """It has the whole path and the way out; nothing is recorded elsewhere."""
    served = tmp_path / "served"
    command = (*PROGRAM, "serve", str(served), "--", *NODE_FLOWS)
    ended = project.run(*command, environment={"MRTR_CASSETTE_MODE": "all"})
    cassettes = project.folder / "suite/cassettes"

    assert ended.returncode == 1
    assert f"a play: {cassettes}/flows.node/two-rounds" in ended.stdout
    assert f".json is outside of {served}" in ended.stdout
    assert "or serve a folder that the file is in" in ended.stdout
    assert not served.exists()


def test_miss_in_node_test_fails_its_test_alone(project):
    """The whole text of the miss is shown, also of a test that fails for another reason."""
    ended = project.run("node", "--test", "suite/misses.node.mjs")
    lines = ended.stdout.splitlines()

    assert "not ok 1 - swallows the miss" in lines
    assert "not ok 2 - fails by another reason, and has a miss" in lines
    assert "ok 3 - answers as recorded" in lines

    for line in MISS.format(cassette=project.folder / DEPLOYED).splitlines():
        assert line.strip() in ended.stdout

    assert '/arguments/env: recorded "production", received "elsewhere"' in ended.stdout


def test_playwright_replays_and_fails_a_test_for_its_miss(project):
    """A test whose client swallows the miss is the only one that fails, with the whole text."""
    ended = project.run(*PLAYWRIGHT, environment={"CI": "1"})

    assert "1 failed\n" in ended.stdout
    assert "1 passed" in ended.stdout

    for line in MISS.format(cassette=project.folder / DEPLOYED).splitlines():
        assert line.strip() in ended.stdout


@pytest.mark.parametrize(
    ("command", "file", "kept", "told"),
    [
        (
            ("node_modules/.bin/vitest", "run", "outcomes"),
            "outcomes.test",
            {"passes"},
            "was not written: the test was xfailed",
        ),
        (
            ("node", "--test", "suite/outcomes/outcomes.node.mjs"),
            "outcomes.node",
            {"passes", "of-one-title-e792ef0de5"},
            'two tests are called "of one title"',
        ),
        (
            (*PLAYWRIGHT, "--config", "suite/outcomes/playwright.config.ts"),
            "outcomes.playwright",
            {"left-passes-a596ab3908", "right-passes-d474808e2f"},
            "was not written: the test was xfailed",
        ),
    ],
    ids=["vitest", "node-test", "playwright"],
)
def test_only_a_test_that_passed_keeps_its_recording(
    project, command, file, kept, told
):
    """Not one that skips itself after its calls, fails as expected, or fails to do so.

    Of two tests of one title in a file of node:test the second fails; each project of Playwright
    has cassettes of its own.
    """
    with typescript_server() as server:
        ended = project.run(*command, environment=server)

    printed = ended.stdout + ended.stderr
    folder = project.folder / "suite/outcomes/cassettes" / file

    assert {path.stem for path in folder.glob("*.json")} == kept, printed
    assert "was not written: the test was skipped" in printed
    assert told in printed


def place_on_path(folder: Path, name: str, script: str) -> None:
    """Put a program into a folder that is the whole path."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_program_is_found_on_the_path_or_by_uvx(project, tmp_path):
    """Without either, one error says what was tried and what to do."""
    found = tmp_path / "path"
    found.mkdir()
    (found / "node").symlink_to(shutil.which("node") or "")
    environment = {"PATH": str(found), "MRTR_CASSETTE_BIN": ""}

    def begun(**more: str) -> str:
        ended = project.run("node", "suite/begun.mjs", environment=environment | more)

        assert ended.returncode == 0, ended.stderr

        return ended.stdout

    nothing = begun()

    assert nothing.startswith(
        "CassetteError: the program mrtr-cassette can't be started; tried:\n"
        "  mrtr-cassette on the PATH: not found\n"
        f"  uvx mrtr-cassette@{mrtr_cassette.__version__}: not found\n"
    )

    assert "pip install mrtr-cassette" in nothing

    place_on_path(
        found,
        "uvx",
        f'test "$1" = mrtr-cassette@{mrtr_cassette.__version__} || exit 9\nshift\nexec {shlex.quote(str(project.program))} "$@"',
    )

    assert begun() == f"{DEPLOYED}\n"

    place_on_path(found, "mrtr-cassette", "echo too old >&2\nexit 2")

    assert begun() == (
        "CassetteError: mrtr-cassette serve (mrtr-cassette on the PATH) ended with 2\ntoo old\n"
    )
    assert begun(MRTR_CASSETTE_BIN=str(project.program)) == f"{DEPLOYED}\n"
    assert "tried:\n  MRTR_CASSETTE_BIN=nowhere: not found\n" in begun(
        MRTR_CASSETTE_BIN="nowhere"
    )


def test_play_that_a_program_forgets_is_told_at_its_end(project):
    """Its misses are told too, and make the program fail."""
    ended = project.run("node", "suite/begun.mjs", "production")

    assert (ended.returncode, ended.stdout) == (0, f"{DEPLOYED}\n")
    assert ended.stderr == (
        f"mrtr-cassette: the play of {DEPLOYED} was never ended; "
        "begin it by `await using`, or call `end()`\n"
    )

    ended = project.run("node", "suite/begun.mjs", "elsewhere")

    assert ended.returncode == 1
    assert '/arguments/env: recorded "production", received "elsewhere"' in ended.stderr


def test_server_that_has_ended_is_an_error_once(project):
    """A test that asks a killed server gets a text at once; the next play has a new server.

    A server that could not be started is tried again too.
    """
    ended = project.run("node", "suite/ended.mjs")

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == (
        "CassetteError: the program mrtr-cassette can't be started; tried:\n"
        f"CassetteError: mrtr-cassette serve (MRTR_CASSETTE_BIN={project.program}) "
        "ended with SIGKILL\n"
        f"{DEPLOYED}\n"
    )


def test_vitest_has_a_new_server_when_its_watch_mode_starts_again(project):
    """The process is the same, and the server of the run before has ended."""
    words = ("node", "suite/twice.mjs", "flows", "adds")
    ended = project.run(*words, environment={"CI": "1"})

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count(" 1 passed | 9 skipped") == 2
    assert len(project.starts.read_text().split()) == 2


def test_vitest_projects_of_one_root_share_a_server(project):
    """The run's plays are counted once, and the server's regular end is not told."""
    configuration = project.folder / "projects.config.ts"
    configuration.write_text(
        """\
import { defineConfig } from "vitest/config";

const globalSetup = ["mrtr-cassette/vitest/global-setup"];
const projects = ["left", "right"].map((name) => ({ test: { globalSetup, name } }));

export default defineConfig({ test: { projects } });
"""
    )
    words = ("flows", "--config", configuration.name, "-t", "adds")
    tests, printed = project.vitest(*words, environment={"CI": "1"})

    assert tests["adds"]["status"] == "passed", printed
    assert printed.count("mrtr-cassette: 2 replayed") == 1
    assert "ended with" not in printed
    assert len(project.starts.read_text().split()) == 1
