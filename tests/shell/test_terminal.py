"""Facts about a person at a terminal."""

from __future__ import annotations

import os
import pty
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence

import pytest
from forked import Process, start
from patience import HANGS_S
from processes import PROGRAM, listening

SERVER = (sys.executable, "-m", "mrtr_cassette.demo.server", "--port", "0")


@pytest.fixture(scope="module")
def call() -> Iterator[tuple[str, ...]]:
    """Give a command that calls a tool which asks one question."""
    with listening(SERVER) as server:
        yield (*PROGRAM, "call", server.url, "deploy", "env=production")


def typed(command: Sequence[str], *lines: str | None) -> tuple[int, str, str]:
    """Run a command on a terminal; type each line at the next prompt, None interrupts it.

    Returns:
        its exit code, what the terminal showed, and its stdout, which is none.
    """
    ours, side = pty.openpty()
    with tempfile.TemporaryFile("w+") as output:
        with os.fdopen(side, "r+b", buffering=0) as theirs:
            process = start(command, output, theirs, os.environ, stdin=theirs)

        shown = _shown(ours, process, lines)
        code = process.wait(timeout=HANGS_S)
        output.seek(0)
        return code, shown.replace("\r\n", "\n"), output.read()


def _shown(ours: int, process: Process, lines: Sequence[str | None]) -> str:
    """Type lines at prompts until the command has left the terminal; return what was shown."""
    shown = ""
    left = list(lines)
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:
            # Linux tells the end of the other side so.
            break

        shown += chunk.decode()
        if left and shown.endswith(("]: ", "> ")):
            line = left.pop(0)
            if line is None:
                process.send_signal(signal.SIGINT)
            else:
                os.write(ours, line.encode())

        if not chunk:
            break

    os.close(ours)
    return shown


def test_person_is_asked_at_the_terminal(call: tuple[str, ...]) -> None:
    """Prompts go to stderr, the result to stdout; what doesn't fit is asked again."""
    code, shown, out = typed(call, "perhaps\n", "y\n")

    assert (code, out) == (0, "Deployed to production\n")
    assert "The server asks for confirm (form): Deploy to production?" in shown
    assert "is a text, and not true or false" in shown
    assert "answered by person" in shown


def test_person_may_go_without_an_answer(call: tuple[str, ...]) -> None:
    """The end of the lines is no answer: the call ends with the ask on stdout; Ctrl-C ends all."""
    assert typed(call, None)[0] == 130

    code, _, out = typed(call, "\x04")

    assert code == 5
    assert '"Deploy to production?"' in out
