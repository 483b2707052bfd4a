"""Which client started a process: told by real processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

ASKS = "from mrtr_cassette.shell.pipes.processes import client_sha256; print(client_sha256())"
STARTS_TWO = (
    "import subprocess, sys\n"
    "for _ in 'ab': print(subprocess.check_output(sys.argv[1:], text=True), end='')"
)


def told(*command: str) -> list[str]:
    """Return what a command's processes took for their client."""
    return subprocess.check_output(command, text=True).split()


def test_two_starts_of_one_client_are_told_so() -> None:
    """What one process starts has one client, and what another one starts has another."""
    one = told(sys.executable, "-c", STARTS_TWO, sys.executable, "-c", ASKS)
    other = told(sys.executable, "-c", STARTS_TWO, sys.executable, "-c", ASKS)

    assert len({*one, *other}) == 2
    assert one[0] == one[1]
    assert other[0] == other[1]


@pytest.mark.parametrize("wrapper", [("sh", "-c", '"$@"; true', "sh"), ("env",)])
def test_programs_that_pass_arguments_on_are_no_clients(wrapper: tuple[str, ...]) -> None:
    """A shell or another launcher in between is started anew each time, and does not count."""
    command = (sys.executable, "-c", f"{ASKS}", "an argument")

    direct = told(sys.executable, "-c", STARTS_TWO, *command)
    wrapped = told(sys.executable, "-c", STARTS_TWO, *wrapper, *command)

    assert wrapped[0] == wrapped[1]
    assert direct[0] == direct[1]
