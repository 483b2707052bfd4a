"""Facts about what a terminal shows, and other places don't."""

from __future__ import annotations

import io
import re
import sys

import pytest

from mrtr_cassette.cli.common import say


class Stream(io.StringIO):
    """What a program writes to, a terminal or not."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


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
