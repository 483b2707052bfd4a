"""Facts about what a terminal shows, and other places don't."""

from __future__ import annotations

import asyncio
import io
import re
import sys
from pathlib import Path

import pytest

from mrtr_cassette.cli.common import progress_shown, say
from mrtr_cassette.shell.files.log import Clock


class Stream(io.StringIO):
    """What a program writes to, a terminal or not."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


def written(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, columns: int = 80) -> str:
    """Return what is written to stderr while a cassette is read, a thousand items a second."""
    stream = Stream(is_terminal=is_terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", str(columns))
    now = 0.0
    clock = Clock(lambda: now, asyncio.sleep)
    with progress_shown("reading", Path("a\x1b[2Jb.json"), clock) as progress:
        for done in range(500, 3001, 500):
            now = done / 1000
            progress(done, 3000)
    return stream.getvalue()


def test_terminal_shows_progress_in_one_line_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each second the line is written anew, its control characters escaped; in the end it is gone."""
    lines = written(monkeypatch, is_terminal=True).split("\r\x1b[K")
    assert lines == [
        "",
        r"reading a\x1b[2Jb.json: 1,000 of 3,000 interactions, 2 s left",
        r"reading a\x1b[2Jb.json: 2,000 of 3,000 interactions, 1 s left",
        r"reading a\x1b[2Jb.json: 3,000 of 3,000 interactions, 0 s left",
        "",
    ]


def test_line_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that wrapped could not be wiped."""
    lines = written(monkeypatch, is_terminal=True, columns=40).split("\r\x1b[K")
    assert {len(line) for line in lines} == {0, 39}


def test_pipe_gets_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a program reads has no line that comes and goes."""
    assert written(monkeypatch, is_terminal=False) == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("miss: no-match: why\n  request: x", "\x1b[31mmiss: no-match: why\x1b[0m\n  request: x\n"),
        ("error: \x1b[2J", "\x1b[31merror: \\x1b[2J\x1b[0m\n"),
        ("wrote c.json: 1 interaction", "wrote c.json: 1 interaction\n"),
    ],
)
def test_what_is_wrong_has_a_colour_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch, text: str, shown: str
) -> None:
    """Only the first line, only at a terminal, and not where NO_COLOR is set."""
    said = []
    for is_terminal, no_colour in ((True, ""), (True, "1"), (False, "")):
        stream = Stream(is_terminal=is_terminal)
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("NO_COLOR", no_colour)
        say(text)
        said.append(stream.getvalue())
    plain = re.sub("\x1b.{1,3}m", "", shown)
    assert said == [shown, plain, plain]
