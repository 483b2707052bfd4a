"""Facts about common mistakes on the command line: each is one line with its place and a way out."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from builders import cassette_of, encode_cassette, tool
from click.testing import CliRunner
from messages import text

from mrtr_cassette.cli import main

URL = "http://localhost:9/mcp"
NO_SCHEME = "'localhost:8000/mcp' has no scheme; write http://localhost:8000/mcp"
FORGOTTEN = "'{}' is a program; put -- before it: -- {}"
NO_ARGUMENT = "no such option '--env'; an argument of the tool is written env=VALUE"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a cassette of one call, and programs that can be run."""
    monkeypatch.chdir(tmp_path)
    script = cassette_of((tool("say"), text("hello")))
    Path("c.json").write_bytes(encode_cassette(script))
    for name in ("npm", "python"):
        program = Path("bin", name)
        program.parent.mkdir(exist_ok=True)
        program.touch(0o755)

    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["record", "localhost:8000/mcp"], NO_SCHEME),
        (["record", "--upstream", "localhost:8000/mcp"], NO_SCHEME),
        (["call", "localhost:8000/mcp", "say"], NO_SCHEME),
        (["verify", "c.json", "localhost:8000/mcp"], NO_SCHEME),
        (["verify", "c.json", "--upstream", "localhost:8000/mcp"], NO_SCHEME),
        (["replay", "c.json", "npm", "test"], FORGOTTEN.format("npm", "npm test")),
        (["record", URL, "npm", "test"], FORGOTTEN.format("npm", "npm test")),
        (["record", "npm", "test"], FORGOTTEN.format("npm", "npm test")),
        (
            ["verify", "c.json", "python", "s.py"],
            FORGOTTEN.format("python", "python s.py"),
        ),
        (
            ["call", "say", "a=1", "python", "s.py"],
            FORGOTTEN.format("python", "python s.py"),
        ),
        (
            ["record", URL, "nothing"],
            "unexpected argument 'nothing'; write the command after --",
        ),
        (["call", URL, "say", "--env=production"], NO_ARGUMENT),
        (
            ["record", URL, "--pot", "9000"],
            "no such option '--pot' (did you mean --port?)",
        ),
        (
            ["record", URL, "--watch"],
            "no such option '--watch'; options of CLIENT go after --",
        ),
        (
            ["record", URL, "--bail"],
            "no such option '--bail'; options of CLIENT go after --",
        ),
        (
            ["verify", "c.json", URL, "--only", "*deploy*"],
            "--only '*deploy*' matches no call of the cassettes; they have say",
        ),
        (
            ["call", URL, "say", "--header", "Authorization"],
            "--header: the value is missing; give it as --header 'Name: value'",
        ),
    ],
)
def test_mistake_is_told_with_its_place_and_way_out(
    words: list[str], told: str
) -> None:
    """Nothing is called, and one line says what to write."""
    ended = CliRunner().invoke(main, words)

    assert ended.exit_code == 2, ended.output
    assert told in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert "INTERNAL" not in ended.stderr


@pytest.mark.parametrize(
    "words",
    [["replay", "talk.json"], ["record", "--upstream", URL, "--output", "talk.json"]],
)
def test_proxy_that_cannot_start_leaves_the_garbage_collector_on(
    words: list[str],
) -> None:
    """It is off only while a cassette is loaded."""
    Path("talk.json").write_text("no cassette")
    try:
        ended = CliRunner().invoke(main, words)

        assert ended.exit_code == 3, ended.output
        assert gc.isenabled()
    finally:
        gc.enable()
