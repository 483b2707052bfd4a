"""Facts about a person at a terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest
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
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE
    )
    os.close(theirs)
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

    out, _ = process.communicate(timeout=HANGS_S)
    os.close(ours)
    return process.returncode, shown.replace("\r\n", "\n"), out.decode()


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
