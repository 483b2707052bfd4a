"""The ways in which others run this program: a GitHub Action, a pre-commit hook, a container."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from lowest import lowest_versions
from processes import CASSETTES

import mrtr_cassette

ROOT = Path(__file__).parent.parent
PROGRAM = Path(sys.executable).parent / "mrtr-cassette"


@pytest.fixture
def folder(tmp_path):
    """A repository with a committed cassette, on a runner where the action is installed."""
    (tmp_path / "suite" / "cassettes").mkdir(parents=True)
    shutil.copy(
        CASSETTES / "demo-server.json", tmp_path / "suite" / "cassettes" / "one.json"
    )
    installed = tmp_path / "runner" / "mrtr-cassette" / "bin"
    installed.mkdir(parents=True)
    (installed / "mrtr-cassette").symlink_to(PROGRAM)

    return tmp_path


def run_action(folder: Path, **inputs: str) -> tuple[int, str]:
    """Run the steps of the action after the installation as GitHub does."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    given = {
        name: facts["default"] for name, facts in action["inputs"].items()
    } | inputs
    install, *steps = action["runs"]["steps"]
    assert 'pip" install' in install["run"]
    said = ""
    for step in steps:
        assert step["shell"] == "bash"
        env = {
            name: re.sub(
                r"\$\{\{ .*?([\w-]+) \}\}", lambda found: given.get(found[1], ""), value
            )
            for name, value in step["env"].items()
        }

        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", step["run"]],
            cwd=folder,
            env={
                **os.environ,
                **env,
                "RUNNER_TEMP": str(folder / "runner"),
                "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
            },
            capture_output=True,
            text=True,
            check=False,
        )

        said += done.stdout + done.stderr
        if done.returncode:
            return done.returncode, said

    return 0, said


def edit(path: Path) -> None:
    """Edit a cassette by hand."""
    tree = json.loads(path.read_text())
    tree["interactions"][0]["request"]["http"]["path"] = "/elsewhere"
    path.write_text(json.dumps(tree, indent=2))


def test_action_checks_what_is_committed(folder):
    """Without inputs it finds every cassette, and fails where one was edited."""
    assert run_action(folder) == (
        0,
        "suite/cassettes/one.json: 19 interactions, all as recorded\n",
    )

    edit(folder / "suite/cassettes/one.json")
    code, said = run_action(folder)

    assert code == 3
    assert "accept the edit with" in said
    assert run_action(folder, cassettes="") == (0, "")


def test_action_shows_what_a_pull_request_changes(folder):
    """The summary of the job has each changed cassette, in Markdown."""

    def git(*words):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(
            ["git", *identity, *words], cwd=folder, check=True, capture_output=True
        )
        return done.stdout.decode().strip()

    path = folder / "suite/cassettes/one.json"
    shutil.copy(path, path.with_name("same.json"))
    for words in ("init", "-q"), ("add", "suite"), ("commit", "-qm", "before"):
        git(*words)

    path.write_text(
        path.read_text().replace("Deployed to production", "Deployed twice")
    )
    subprocess.run([PROGRAM, "check", "--fix", path], check=True, capture_output=True)

    assert run_action(folder, sha=git("rev-parse", "HEAD"))[0] == 0

    summary = (folder / "summary.md").read_text()

    assert summary.count("### ") == summary.count("### suite/cassettes/one.json\n") == 1
    assert '"Deployed twice"' in summary

    (folder / "left out.toml").write_text(
        "[[ignore]]\npointers = ['/content/0/text']\n"
    )
    (folder / "summary.md").unlink()
    inputs = {"sha": git("rev-parse", "HEAD"), "ignore-from": "left out.toml"}

    assert run_action(folder, **inputs)[0] == 0
    assert '"Deployed twice"' not in (folder / "summary.md").read_text()


@pytest.mark.parametrize(("asks", "code"), [("server/discover", 0), ("tools/none", 1)])
def test_action_plays_a_cassette_to_a_command(folder, asks, code):
    """The command finds the server's address, and a miss fails the step; a report is written."""
    call = {"jsonrpc": "2.0", "id": 1, "method": asks}
    request = f"urllib.request.Request(os.environ['MRTR_CASSETTE_URL'], {json.dumps(call).encode()!r})"
    (folder / "client.py").write_text(
        f"import os, urllib.request\nrequest = {request}\n"
        "request.add_header('Content-Type', 'application/json')\nurllib.request.urlopen(request)\n"
    )

    ended = run_action(
        folder,
        replay="suite/cassettes/one.json",
        run=f"{shlex.quote(sys.executable)} client.py",
    )

    assert ended[0] == code, ended[1]
    assert (folder / "runner" / "mrtr-cassette.xml").exists()


def test_hook_checks_the_cassettes_of_a_commit(folder):
    """It is called with the files that its pattern takes, and fails where one was edited."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())

    assert hook["language"] == "python"

    path = "suite/cassettes/one.json"

    assert re.search(hook["files"], path)
    assert not re.search(hook["files"], "suite/one.json")

    command = [*shlex.split(hook["entry"]), path]
    env = {**os.environ, "PATH": f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"}
    codes = []
    for change in (lambda _: None, edit):
        change(folder / path)
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, check=False
        )
        codes.append(done.returncode)

    assert codes == [0, 3]


def test_container_has_and_runs_what_exists(folder):
    """What it copies is in the repository, it isn't root, and its command plays a cassette."""
    lines = (ROOT / "Containerfile").read_text().splitlines()
    steps = [
        line.split(maxsplit=1) for line in lines if line and not line.startswith("#")
    ]
    copied = [
        words.split()[:-1]
        for step, words in steps
        if step == "COPY" and "--from" not in words
    ]

    for names in copied:
        for name in names:
            assert (ROOT / name).exists()

    facts = dict(steps)

    assert facts["USER"].split(":")[0] != "0"

    (program,) = json.loads(facts["ENTRYPOINT"])

    assert program.endswith("/bin/mrtr-cassette")

    command = [
        str(folder / "suite/cassettes/one.json") if word == "/cassette.json" else word
        for word in json.loads(facts["CMD"])
    ]

    client = "import os; print(os.environ['MRTR_CASSETTE_URL'])"
    done = subprocess.run(
        [PROGRAM, *command, "--port", "0", "--", sys.executable, "-c", client],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.startswith("listening on http://")
    assert "warning: listening on 0.0.0.0" in done.stderr


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_runs_targets_with_no_more_than_it_needs(path):
    """Its commands are targets of the Makefile, and only named jobs may write anything."""
    workflow = yaml.load(path.read_text(), Loader=yaml.BaseLoader)

    assert workflow["permissions"] == {}

    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    may_write = {
        "publish": {"id-token", "attestations"},
        "publish-npm": {"id-token"},
        "analyze": {"security-events"},
    }
    for name, job in workflow["jobs"].items():
        rights = job["permissions"].items()
        written = {right for right, access in rights if access == "write"}

        assert written == may_write.get(name, set())

        commands = [step["run"].split() for step in job["steps"] if "run" in step]
        for program, target in commands:
            assert program == "make"
            assert target in targets


def test_release_refuses_what_is_not_ready():
    """A tag of another version and the placeholder of the address end the release's first step."""
    env = {**os.environ, "TAG": f"v{mrtr_cassette.__version__}"}
    done = subprocess.run(
        ["make", "releasable"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    for name in ("pyproject.toml", "npm/README.md", "npm/package.json"):
        is_placeholder = "example.invalid" in (ROOT / name).read_text()

        assert (f"{name}:" in done.stdout) == is_placeholder, name
        assert not is_placeholder or done.returncode


def test_action_installs_its_own_release():
    """The version that the action installs is the one that it is published with."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())

    assert action["inputs"]["version"]["default"] == mrtr_cassette.__version__
    assert "github.action_path" not in (ROOT / "action.yml").read_text()


def test_forms_for_contributors_are_whole():
    """An issue form asks for a cassette, and the pages for contributors name targets that exist."""
    forms = (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")
    asked = set()
    for path in forms:
        form = yaml.safe_load(path.read_text())
        asked |= {field.get("id") for field in form.get("body", [])}

    assert "cassette" in asked

    makefile = (ROOT / "Makefile").read_text()
    pages = (ROOT / "CONTRIBUTING.md").read_text()
    pages += (ROOT / ".pre-commit-config.yaml").read_text()
    for target in re.findall(r"\bmake ([a-z]+)\b(?=`| *#|$)", pages, re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target

    for name in re.findall(r"`((?:core|shell|tests|docs|bench)/[\w./]+)`", pages):
        places = (ROOT / name, ROOT / "mrtr_cassette" / name)

        assert any(place.exists() for place in places), name

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())

    assert citation["version"] == mrtr_cassette.__version__


def test_packages_are_what_an_index_takes(packages):
    """Their description has no relative link, they have one address, and the tests are in the source."""
    check = [sys.executable, "-m", "twine", "check", "--strict", *packages]
    subprocess.run(check, check=True, capture_output=True)
    with zipfile.ZipFile(packages[1]) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith("info/METADATA")]
        metadata = wheel.read(name).decode()

    links = re.findall(r"\]\(([^)]*)\)", metadata)
    links += re.findall(r"^Project-URL: .*, (.*)$", metadata, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    address = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]

    assert len(links) > 10
    assert not [link for link in links if not link.startswith(f"{address}")]

    with tarfile.open(packages[0]) as source:
        assert any(name.endswith("/tests/conftest.py") for name in source.getnames())


def test_wheel_alone_runs_the_demo(programs, tmp_path):
    """What it needs of the package is in it: nothing of the checkout is read."""
    where = "import mrtr_cassette; print(mrtr_cassette.__file__)"
    printed = []
    for command in (["python", "-c", where], ["mrtr-cassette", "demo"]):
        done = subprocess.run(
            [programs / command[0], *command[1:]],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
        )
        printed.append(done.stdout)

    imported, demo = printed

    assert Path(imported).is_relative_to(programs.parent)
    assert "byte" in demo


def test_lower_bounds_can_be_installed_together():
    """Every dependency has a lower bound and no upper one; `make lowest` installs these."""
    names = {pin.partition("==")[0] for pin in lowest_versions()}

    assert {"aiohttp", "pydantic", "uvloop"} <= names
