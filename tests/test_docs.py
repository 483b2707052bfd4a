"""What README and docs show is what happens."""

from __future__ import annotations

import json
import re

import pytest
from goldens import expect_file
from shown import ROOT, Session

from mrtr_cassette.core.cassette.model import CassetteModel, cassette_schema
from mrtr_cassette.core.replay.diagnosis import Reason

README = (ROOT / "README.md").read_text()
DOCS = {path.name: path.read_text() for path in (ROOT / "docs").glob("*.md")}


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def _normal(text: str) -> list[str]:
    """Return the lines, sorted and without what differs from run to run.

    Two processes write them, so their order is not fixed.
    """
    text = re.sub(r"\b[\d,]+ (ms|bytes)\b", r"N \1", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:+]+", "TIME", text)
    text = re.sub(r"(127\.0\.0\.1|localhost):\d+", "HOST:PORT", text)

    return sorted(line.rstrip() for line in text.splitlines() if line.strip())


def _steps(text: str) -> list[tuple[str, str]]:
    """Return the commands of a page's sessions, and what the page shows of each."""
    steps = []
    for block in _blocks(text, "console"):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = step.partition("\n")
            steps.append((command, shown))

    return steps


@pytest.fixture
def session(tmp_path):
    """A session in an empty folder; its server is stopped after it."""
    session = Session(tmp_path)
    yield session
    session.stop()


def test_the_readme_session_runs_as_shown(session):
    """Every command of the README's session prints what the README shows, and the miss too."""
    for command, shown in _steps(README):
        code, printed = session.run(command)

        assert (code, _normal(printed)) == (0, _normal(shown)), command

    (command,) = re.findall(r"`(mrtr-cassette replay [^`]* --decline)`", README)
    code, printed = session.run(command)
    (shown,) = _blocks(README, "text")

    assert code == 1
    assert set(_normal(shown)) <= set(_normal(printed))
    assert "Traceback" not in printed


def test_the_readme_test_records_and_replays(session):
    """The second run needs no server.

    tests/plugin/test_fresh_project.py does the same with the wheel, pytest and the SDK alone.
    """
    for block in _blocks(README, "python"):
        named = re.match(r"# (\S+\.py)\n", block)

        assert named

        (session.folder / named[1]).write_text(block)

    assert "1 passed" in session.run("pytest -q test_deploy.py")[1]
    assert "1 passed" in session.run("pytest -q test_deploy.py --mrtr-mode=none")[1]


def test_the_readme_shows_a_port_that_may_be_printed():
    """A command behind `--` gets a free port, and only a proxy without one has its own."""
    shown_ports = {
        command: re.findall(r"127\.0\.0\.1:(\d+)", shown)
        for command, shown in _steps(README)
    }
    for command, ports in shown_ports.items():
        is_proxy = command.startswith(("mrtr-cassette record", "mrtr-cassette replay"))
        if is_proxy and " -- " in command:
            assert ports
            assert "8722" not in ports, command


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_shells_complete_as_the_readme_says(session, shell):
    """The line for the shell's start file is a function, and that asks for what fits."""
    (line,) = re.findall(r"`eval \"\$\((.*?)\)\"` in `~/.bashrc`", README)
    code, printed = session.run(line.replace("bash_source", f"{shell}_source"))

    assert code == 0
    assert f"_MRTR_CASSETTE_COMPLETE={shell}_complete" in printed

    words = 'COMP_WORDS="mrtr-cassette rep" COMP_CWORD=1 '
    command = f"{words}_MRTR_CASSETTE_COMPLETE={shell}_complete mrtr-cassette"

    assert "replay" in session.run(command)[1].replace("\n", ",").split(",")


def test_the_published_schema_is_current(updates_goldens):
    """docs/cassette.schema.json is what `mrtr-cassette schema` prints."""
    page = ROOT / "docs" / "cassette.schema.json"
    expect_file(page, cassette_schema().decode(), updates=updates_goldens)


def test_the_example_of_the_format_is_a_cassette():
    """The examples in docs/cassette-format.md are valid by the models."""
    example, *turns = map(json.loads, _blocks(DOCS["cassette-format.md"], "json"))
    example["interactions"][0]["elicitation_turns"] += turns
    cassette = CassetteModel.model_validate(example)
    vias = [turn.via for turn in cassette.interactions[0].elicitation_turns]

    assert vias == ["result", "push", "task"]


def test_every_reason_of_a_miss_is_explained():
    """docs/matching.md lists the reasons that the program knows, and no other."""
    section = DOCS["matching.md"].partition("## Misses")[2].partition("\n## ")[0]

    assert re.findall(r"^\| `([a-z-]+)`", section, re.MULTILINE) == [
        r.value for r in Reason
    ]


def test_the_design_names_every_folder():
    """The table in docs/design.md has the folders of the package, and no other."""
    section = DOCS["design.md"].partition("## Folders")[2].partition("\n## ")[0]
    package = ROOT / "mrtr_cassette"
    folders = {
        path.parent.relative_to(package).as_posix() for path in package.rglob("*.py")
    }
    named = set(re.findall(r"^\| `([\w/]+)` \|", section, re.MULTILINE))

    assert named == folders - {".", "core", "shell"}


LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
LINKING = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    ROOT / "npm" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


def _anchors(page: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    anchors = set()
    for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        anchors.add(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-"))

    return anchors


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    """A relative link names a file that exists, and a heading of that page."""
    for target, anchor in LINK.findall(page.read_text()):
        linked = page.parent / target if target else page

        assert linked.exists(), target

        if anchor and linked.suffix == ".md":
            assert anchor in _anchors(linked.read_text()), f"{target}#{anchor}"


def test_every_page_is_in_the_index():
    """docs/README.md links to all pages."""
    linked = {target for target, _ in LINK.findall(DOCS["README.md"])}

    assert {name for name in DOCS if name != "README.md"} <= linked
