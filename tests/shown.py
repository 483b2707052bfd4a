"""A shell session as the docs show one: their commands are run, in order, in a folder of its own."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from forked import start
from patience import HANGS_S
from processes import free_port

ROOT = Path(__file__).parent.parent
_MODULES = {
    "python": (),
    "pytest": ("-m", "pytest"),
    "mrtr-cassette": ("-m", "mrtr_cassette"),
}
"""The programs whose commands need no shell, and how Python runs them."""
_AS_A_USER = (
    "-W ignore::pytest.PytestAssertRewriteWarning "
    "-p no:hypothesispytest -p no:xdist -p no:rerunfailures -p no:timeout"
)
"""A reader of the docs has none of the plugins that this suite has; one imported early is no news."""


class Session:
    """A shell session in a folder of its own, with ports of its own for those that docs name."""

    def __init__(
        self, folder: Path, programs: Path = Path(sys.executable).parent
    ) -> None:
        self.folder = folder
        self.programs = programs
        self.ports = {"8000": str(free_port()), "8722": str(free_port())}
        self.server: subprocess.Popen[str] | None = None
        unwanted = {"CI", "MRTR_CASSETTE_MODE", "GITHUB_ACTIONS"}
        self.env = {
            name: value for name, value in os.environ.items() if name not in unwanted
        }
        self.env["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self.env["PYTHONPATH"] = str(folder)
        self.env["PYTHONDONTWRITEBYTECODE"] = "1"
        self.env["PYTEST_ADDOPTS"] = _AS_A_USER

    def run(self, command: str) -> tuple[int, str]:
        command = re.sub(
            r"(?<=localhost:)8000|(?<=--port )8000", self.ports["8000"], command
        )
        command = re.sub(
            r"^mrtr-cassette (record|replay)(?! --stdio)",
            f"mrtr-cassette \\1 --port {self.ports['8722']}",
            command,
        )
        if command == "kill %1":
            self.stop()
            return 0, ""
        if command.endswith("&"):
            self.server = subprocess.Popen(
                command.removesuffix("&").split(),
                cwd=self.folder,
                env=self.env,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert self.server.stdout is not None
            return 0, self.server.stdout.readline()
        words = shlex.split(command)
        if words[0] not in _MODULES or set(command) & set("<>|&;"):
            words = ["sh", "-c", command]
        else:
            words = [str(self.programs / "python"), *_MODULES[words[0]], *words[1:]]
        with tempfile.TemporaryFile("w+") as printed:
            code = start(words, printed, printed, self.env, self.folder).wait(
                timeout=HANGS_S
            )
            printed.seek(0)
            return code, printed.read()

    def stop(self) -> None:
        if self.server is not None:
            self.server.send_signal(signal.SIGTERM)
            self.server.communicate()
            self.server = None
