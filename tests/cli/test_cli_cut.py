"""Facts about the command `cut`, which makes a cassette of some calls of another one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import cassette_of, loaded, tool
from harness import Outcome, run_here
from messages import text

from mrtr_cassette.core.cassette.dump import dump

SCRIPT = tuple((tool(name), text(name)) for name in ("one", "two", "three"))


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cassette of three calls."""
    monkeypatch.chdir(tmp_path)
    Path("c.json").write_bytes(dump(loaded(cassette_of(*SCRIPT), "c.json")))


def cut(*arguments: str) -> Outcome:
    """Run the command."""
    return run_here("cut", "c.json", *arguments)


def test_cassette_is_printed_or_written_where_none_is() -> None:
    """What is printed is the file; one that exists is replaced only with --force."""
    printed = cut("#2", "--alone")

    assert (printed.code, printed.err) == (0, "")
    assert len(json.loads(printed.out)["interactions"]) == 1

    written = cut("2", "--alone", "-o", "two.json")

    assert written == (0, "", "wrote two.json: 1 interaction\n")
    assert Path("two.json").read_text() == printed.out

    refused = cut("--last", "-o", "two.json")

    assert refused.code == 3
    assert "the cassette exists; use --force to replace it" in refused.err
    assert cut("--last", "-o", "two.json", "--force").code == 0
    assert cut("--only", "tool=three").out == Path("two.json").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "no call is named; give its number, such as '#7', or --last"),
        (
            ("#4",),
            "'#4' is not the number of a call in c.json; `mrtr-cassette inspect`",
        ),
        (("one",), "'one' is not the number of a call in c.json"),
        (("--only", "tool=four"), "'tools/call four' matches no call of the cassettes"),
    ],
)
def test_call_that_is_not_there_is_told(arguments: tuple[str, ...], told: str) -> None:
    """The message says what there is."""
    refused = cut(*arguments)

    assert (refused.code, refused.out) == (2, "")
    assert told in refused.err


def test_shared_part_says_what_was_taken_out() -> None:
    """Each kind is counted; --blank-text is nothing by itself."""
    script = ((tool("mail", to="jo@acme.example"), text("sent from /home/jo/x")),)
    Path("c.json").write_bytes(dump(loaded(cassette_of(*script), "c.json")))
    shared = cut("#1", "--share", "-o", "bug.json")

    assert shared.err.splitlines() == [
        'redacted: shared-email ×1 (#1 tools/call "mail")',
        'redacted: shared-user ×1 (#1 tools/call "mail")',
        "redacted: the address of the server, or its command",
        "note: other text stays; read it, or take it out with --blank-text",
        "wrote bug.json: 1 interaction",
    ]

    assert "sent from /home/<shared-user:1>/x" in Path("bug.json").read_text()

    blank = cut("#1", "--share", "--blank-text")

    assert "sent from" not in blank.out
    assert "--blank-text needs --share" in cut("#1", "--blank-text").err


def test_report_is_about_one_call() -> None:
    """It is printed, or written to a file; the cassette's folder is not told."""
    printed = run_here("report", Path("c.json").absolute(), "#2")

    assert printed.code == 0
    assert printed.out.startswith('`tools/call "two"` ended: HTTP 200, result.\n')
    assert "`mrtr-cassette cut c.json '#2' --share -o bug.json`" in printed.out
    assert str(Path.cwd()) not in printed.out
    assert run_here("report", "c.json", "--last", "-o", "bug.md").code == 0
    assert "tools/call three" in Path("bug.md").read_text()

    twice = run_here("report", "c.json", "#2", "2", "--only", "tool=two")

    assert twice.out == run_here("report", "c.json", "#2").out

    refused = run_here("report", "c.json", "1", "2")

    assert (refused.code, refused.err) == (2, "error: report takes a single call\n")
