"""A shell session as the docs show one: their commands are run, in order, in a folder of its own."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from processes import free_port

ROOT = Path(__file__).parent.parent


class Session:
    """A shell session in a folder of its own, with ports of its own for those that docs name."""

    def __init__(self, folder: Path, programs: Path = Path(sys.executable).parent) -> None:
        self.folder = folder
        self.ports = {"8000": str(free_port()), "8722": str(free_port())}
        self.server: subprocess.Popen[str] | None = None
        unwanted = {"CI", "MRTR_CASSETTE_MODE", "GITHUB_ACTIONS", "PYTEST_ADDOPTS"}
        self.env = {name: value for name, value in os.environ.items() if name not in unwanted}
        self.env["PATH"] = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self.env["PYTHONPATH"] = str(folder)
        self.env["PYTHONDONTWRITEBYTECODE"] = "1"
        shutil.copytree(ROOT / "docs" / "examples", folder / "docs" / "examples")

    def run(self, command: str) -> tuple[int, str]:
        command = re.sub(r"(?<=localhost:)8000|(?<=--port )8000", self.ports["8000"], command)
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
        done = subprocess.run(
            command,
            shell=True,
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout

    def stop(self) -> None:
        if self.server is not None:
            self.server.send_signal(signal.SIGTERM)
            self.server.communicate()
            self.server = None
