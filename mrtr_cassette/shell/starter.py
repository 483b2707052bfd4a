"""Which client started this process.

Rule: two starts have the same client only if the same living process caused both; where nobody can
tell, they have none.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

_MOST_WRAPPERS = 8
_WRAPPERS = frozenset({"bash", "dash", "env", "pipx", "sh", "timeout", "uv", "uvx", "zsh"})
"""Programs that only pass their arguments on, and are started anew each time."""
_PROC = Path("/proc")


class _Process(NamedTuple):
    """A process of this machine.

    Attributes:
        parent: id of its parent.
        started: when it started, in whatever unit the system has.
        command: its arguments, joined by spaces.
    """

    parent: int
    started: str
    command: str


def client_sha256() -> str | None:
    """Return a hash of the process that started this one; None where the system doesn't tell.

    Programs that only pass the arguments on, such as `uvx` or a shell, don't count.
    """
    arguments = " ".join(sys.argv[1:])
    number = os.getppid()
    has_proc = _PROC.joinpath("self/stat").exists()
    for _ in range(_MOST_WRAPPERS):
        process = _from_proc(number) if has_proc else _from_ps(number)
        if process is None:
            return None
        name = process.command.partition(" ")[0].rpartition("/")[2]
        if name not in _WRAPPERS or arguments not in process.command:
            text = f"{_boot()} {number} {process.started}"
            return hashlib.sha256(text.encode()).hexdigest()
        number = process.parent
    return None


def _from_proc(number: int) -> _Process | None:
    try:
        folder = _PROC / str(number)
        # Its name, in parentheses, may be anything.
        fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        command = (folder / "cmdline").read_bytes().replace(b"\0", b" ")
        return _Process(int(fields[1]), fields[19], command.decode(errors="replace"))
    except (OSError, ValueError, IndexError):
        return None


def _from_ps(number: int) -> _Process | None:
    try:
        shown = subprocess.run(  # noqa: S603
            ["/bin/ps", "-o", "ppid=,lstart=,command=", "-p", str(number)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "LC_ALL": "C"},
        ).stdout
        parent, *rest = shown.split(None, 6)
        return _Process(int(parent), " ".join(rest[:5]), rest[5])
    except (OSError, ValueError, IndexError, subprocess.CalledProcessError):
        return None


def _boot() -> str:
    """Return what tells this run of the machine from others, as ids of processes come again."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
