"""Facts about folders and globs, in the place of cassettes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from builders import JOURNAL_HEADER, cassette_of, converse, encode_cassette, tool
from click.testing import CliRunner, Result
from messages import text

from mrtr_cassette.cli import main
from mrtr_cassette.core.cassette.journal import (
    encode_journal_header,
    encode_journal_line,
)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two folders of cassettes: one is the same in both, one changed, and each has its own."""
    monkeypatch.chdir(tmp_path)
    write("old/a/same.json", "x")
    write("new/a/same.json", "x")
    write("old/changed.json", "x")
    write("new/changed.json", "y")
    write("old/gone.json", "x")
    write("new/come.json", "x")
    (tmp_path / "old" / "other.json").write_text("{}")

    return tmp_path


def write(name: str, word: str) -> None:
    """Write a cassette with one call."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    script = cassette_of((tool("say"), text(word)))
    path.write_bytes(encode_cassette(script))


def journal(name: str, recorder: str) -> None:
    """Write the journal of a killed recording."""
    (exchange,) = converse((tool(recorder), text("x")))
    header = replace(JOURNAL_HEADER, recorder=recorder.zfill(32))
    Path(name).write_bytes(
        encode_journal_header(header) + encode_journal_line(replace(exchange, number=1))
    )


def run(*words: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, words, catch_exceptions=False)


def test_cassettes_of_two_folders_are_compared_by_name() -> None:
    """What differs is shown; a cassette that only one folder has is one without calls in it."""
    done = run("diff", "old", "new")

    assert done.exit_code == 1

    marks = [line for line in done.stdout.splitlines() if line[:1] in tuple("-+~=")]

    assert marks == [
        "- old/changed.json",
        "+ new/changed.json",
        '~ #1 tools/call "say": text-changed',
        "- /dev/null",
        "+ new/come.json",
        '+ #1 tools/call "say"',
        "- old/gone.json",
        "+ /dev/null",
        '- #1 tools/call "say"',
    ]

    assert done.stdout.endswith("3 of 4 cassettes differ\n")
    assert "### come.json" in run("diff", "old", "new", "--markdown").stdout
    assert len(json.loads(run("diff", "old", "new", "--json").stdout)) == 4
    assert run("diff", "old", "old").stdout == "0 of 3 cassettes differ\n"

    refused = run("diff", "old", "new/come.json")

    assert (refused.exit_code, "new/come.json is not a folder" in refused.stderr) == (
        2,
        True,
    )


def test_each_cassette_of_a_folder_has_a_page() -> None:
    """Pages stand in this directory, or in the named one, as the cassettes do in the folder."""
    wrote = run("view", "old").stderr.splitlines()

    assert wrote == ["wrote a/same.html", "wrote changed.html", "wrote gone.html"]

    run("view", "old/**/*.json", "-o", "pages")

    assert Path("pages/a/same.html").read_bytes() == Path("a/same.html").read_bytes()


def test_a_folder_is_merged_with_its_journals() -> None:
    """Its cassettes count, and the journals of killed runs in it; --force replaces the output."""
    write("of/one.json", "x")
    journal("of/killed.json.journal", "1")
    done = run("merge", "of", "-o", "all.json")

    assert "wrote all.json: 2 interactions of 2 recorders" in done.stderr

    refused = run("merge", "of", "-o", "all.json")

    assert (refused.exit_code, refused.stderr) == (
        3,
        "error: all.json: the cassette exists; use --force to replace it\n",
    )
    assert run("merge", "of", "-o", "all.json", "--force").exit_code == 0


def test_each_journal_of_a_folder_is_recovered() -> None:
    """A folder and a glob stand for their journals; where there is none, that is told."""
    journal("new/killed.json.journal", "1")
    journal("new/a/too.json.journal", "2")
    done = run("recover", "new")

    assert done.stderr.splitlines() == [
        "wrote new/a/too.json: 1 interaction, 1 exchange recorded",
        "wrote new/killed.json: 1 interaction, 1 exchange recorded",
    ]

    assert run("recover", "new").stderr == "error: there is no journal in new\n"

    journal("new/again.json.journal", "3")

    assert (
        run("recover", "new/*.journal").stderr
        == "wrote new/again.json: 1 interaction, 1 exchange recorded\n"
    )


def test_a_folder_and_its_files_are_checked_alike(project: Path) -> None:
    """Other JSON is told and fails nothing; a file that is empty or cut short is an error."""
    names = sorted(map(str, Path("old").rglob("*.json")))
    for words in (["old"], ["old/**/*.json"], names):
        checked = run("check", *words)

        assert checked.exit_code == 0, checked.output
        assert checked.stdout.count("all as recorded") == 3
        assert (
            checked.stderr
            == "note: old/other.json is not a cassette and was not checked\n"
        )

    for raw in (b"", b"[1, 2", Path("old/gone.json").read_bytes()[:300]):
        Path("old/other.json").write_bytes(raw)
        for words in (["old"], names):
            refused = run("check", *words)

            assert refused.exit_code == 3
            assert refused.stderr.startswith("error: old/other.json: ")

    Path("old/other.json").write_bytes(b"")

    assert "the file is empty" in run("check", "old").stderr
