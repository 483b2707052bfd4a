"""A shell session as the docs show one: their commands are run, in order, in a folder of its own."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import tempfile
from pathlib import Path
from typing import IO

from forked import FORKS_ALL, MODULES, Process, start
from patience import HANGS_S
from processes import free_port

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_AS_A_USER = (
    "-W ignore::pytest.PytestAssertRewriteWarning "
    "-p no:fakefs -p no:hypothesispytest -p no:xdist -p no:rerunfailures -p no:timeout"
)
"""A reader of the docs has none of the plugins that this suite has; one imported early is no news."""


def _in_python(words: list[str]) -> list[str]:
    """Return the command that runs a program in the Python of the tests."""
    return [sys.executable, *MODULES[words[0]], *words[1:]]


class Session:
    """A shell session in a folder of its own, with ports of its own for those that docs name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {"8000": str(free_port()), "8722": str(free_port())}
        self._server: Process | None = None
        self._said: IO[str] | None = None
        unwanted = {"CI", "MRTR_CASSETTE_MODE", "GITHUB_ACTIONS"}
        self.env = {
            name: value for name, value in os.environ.items() if name not in unwanted
        }
        programs = Path(sys.executable).parent
        self.env["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self.env["PYTHONPATH"] = str(folder)
        self.env["PYTHONDONTWRITEBYTECODE"] = "1"
        self.env["PYTEST_ADDOPTS"] = _AS_A_USER
        self.env[FORKS_ALL] = "1"

    def run(self, command: str) -> tuple[int, str]:
        command = re.sub(
            r"(localhost:|--port |--serve )8000", rf"\g<1>{self.ports['8000']}", command
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
            return 0, self._begin(_in_python(command.removesuffix("&").split()))

        words = shlex.split(command)
        env = self.env
        # Completion depends on the name by which a shell finds the program.
        while re.match(r"[A-Z][A-Z_]*=", words[0]):
            name, _, value = words.pop(0).partition("=")
            env = {**env, name: value}

        if words[0] not in MODULES or set(command) & set("<>|&;"):
            words = ["sh", "-c", command]
        else:
            words = _in_python(words)

        with tempfile.TemporaryFile("w+") as printed:
            code = start(words, printed, printed, env, self.folder).wait(
                timeout=HANGS_S
            )
            printed.seek(0)
            return code, printed.read()

    def _begin(self, words: list[str]) -> str:
        """Start a server in the background; return the line that it prints when it listens."""
        reading, writing = os.pipe()
        self._said = os.fdopen(reading)
        with os.fdopen(writing, "w") as said, tempfile.TemporaryFile("w") as unread:
            self._server = start(words, said, unread, self.env, self.folder)

        return self._said.readline()

    def stop(self) -> None:
        if self._server is not None and self._said is not None:
            self._server.send_signal(signal.SIGTERM)
            self._server.wait(timeout=HANGS_S)
            self._said.close()
            self._server = None


class Reader(Session):
    """Somebody who does what a guide says, in a folder of their own."""

    def follow(self, text: str) -> None:
        """Write each file and run each command of a guide."""
        for kind, block in BLOCK.findall(text):
            if kind == "python":
                named = re.match(r"# (\S+\.py)\n", block)
                assert named, f"a block without the name of its file:\n{block}"
                (self.folder / named[1]).write_text(block)
                continue

            for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, shown = step.partition("\n")
                self.check(command, shown, self.run(command)[1])

    @staticmethod
    def check(command: str, shown: str, printed: str) -> None:
        """Make sure that a command printed what the guide shows."""
        lines = iter(re.sub(r" in [\d.]+s\b", " in N s", printed).splitlines())
        for line in filter(
            None, re.sub(r" in [\d.]+s\b", " in N s", shown).splitlines()
        ):
            assert any(line in shown_lines for shown_lines in lines), (
                f"$ {command}\n{line}\n--- printed:\n{printed}"
            )
