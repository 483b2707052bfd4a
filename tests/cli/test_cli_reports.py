"""Facts about the files that commands write: the forms of reports, and folders that are missing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from processes import PROGRAM, run

from mrtr_cassette.cli import main

URL = "http://localhost:9/mcp"
WRITING = {
    "probe": (("probe", "c.json", URL), [".json", ".xml", ".md"]),
    "record": (("record", URL), [".json"]),
    "replay": (("replay", "c.json"), [".json", ".xml", ".md"]),
    "serve": (("serve", "."), [".json", ".xml", ".md"]),
    "verify": (("verify", "c.json", URL), [".json", ".xml", ".md"]),
}
"""Commands that write reports, and the endings of those that they can write."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder."""
    monkeypatch.chdir(tmp_path)


def options_of(command: str) -> dict[str, click.Option]:
    """Return the options of a command, by their longest flags."""
    context = click.Context(main)
    found = main.get_command(context, command)
    assert found is not None
    options = {}
    for param in found.params:
        if isinstance(param, click.Option):
            options[max(param.opts, key=len)] = param

    return options


def test_every_command_with_reports_is_tried() -> None:
    """`view` and `prune` read a report."""
    commands = main.list_commands(click.Context(main))
    reporting = {name for name in commands if "--report" in options_of(name)}

    assert reporting == {*WRITING, "view", "prune"}


@pytest.mark.parametrize("command", WRITING)
def test_report_in_a_form_that_can_not_be_written_is_refused(command: str) -> None:
    """Before anything runs: the ending of a name says the form, in each command alike."""
    words, endings = WRITING[command]
    for ending in (".json", ".xml", ".md", ".html", ".txt"):
        if ending in endings:
            assert f"({ending})" in str(options_of(command)["--report"].help)

            continue

        ended = CliRunner().invoke(main, [*words, "--report", f"r{ending}"])

        assert ended.exit_code == 2, ended.output
        assert ended.stderr == (
            f"error: --report r{ending}: this command can't write a {ending} report; "
            f"use a name that ends in {', '.join(endings)}\n"
        )

    assert not any(Path().iterdir())


def good(*words: str) -> None:
    """Run the program, which ends well."""
    ended = run([*PROGRAM, *words])
    assert ended.code == 0, ended.stderr


def test_missing_folders_are_made() -> None:
    """For cassettes, reports, pages, and what was learned; a file in their place is told."""
    server = (sys.executable, "-m", "mrtr_cassette.demo.server", "--port", "{port}")
    calling = ("call", "add", "a=1", "b=2", "--path", "/mcp")
    cassette = "a/b/c.json"
    good(*calling, "-o", cassette, "--", *server)
    client = ("--", *PROGRAM, "call", "add", "a=1", "b=2")
    good("replay", cassette, "--report", "d/e/r.xml", *client)
    good("merge", cassette, "-o", "f/m.json")
    good("view", cassette, "-o", "g/page.html")
    learning = ("--learn", "h/ignore.toml", "--report", "i/r.md", "--", *server)
    good("verify", cassette, *learning)
    for path in ("d/e/r.xml", "f/m.json", "g/page.html", "i/r.md"):
        assert Path(path).stat().st_size, path

    for words in (["merge", cassette, "-o"], ["view", cassette, "-o"]):
        ended = CliRunner().invoke(main, [*words, f"{cassette}/x.json"])

        assert ended.exit_code == 3
        assert f"{cassette} is not a directory; name another place" in ended.stderr


def metavars() -> list[Any]:
    """Return what the help of each command has for the values of its options."""
    found = []
    for name in main.list_commands(click.Context(main)):
        for flag, option in options_of(name).items():
            record = option.get_help_record(click.Context(main))
            if record is not None:
                found.append(pytest.param(record[0], id=f"{name}{flag}"))

    return found


@pytest.mark.parametrize("spelled", metavars())
def test_value_of_an_option_is_one_word(spelled: str) -> None:
    """Two words read as two values."""
    *_, last = spelled.split(", ")

    assert len(last.split()) <= 2, spelled
    assert "'" not in spelled
