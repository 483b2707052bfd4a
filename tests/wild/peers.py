"""Third-party servers and clients: how each is installed and started, and what is asked of it.

Owns: the table of peers, and the environments that they need beside the project's own.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from processes import ProcessError, install_node_packages

HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"
ENVIRONMENTS = HERE / ".venv"
EVERYTHING = ("everything", "everything-asks", "everything-error")

Environment = Literal["project", "node", "python-v1", "fastmcp"]
Era = Literal["2025", "2026"]


def install(*environments: Environment) -> None:
    """Have what peers need, as the lock files have it.

    Raises:
        ProcessError: an installation failed.
    """
    for environment in environments:
        if environment == "node":
            install_node_packages(HERE)
        elif environment != "project":
            _install_python(environment)


def _install_python(environment: Environment) -> None:
    place = ENVIRONMENTS / environment
    wanted = HERE / f"requirements-{environment}.txt"
    installed = place / ".installed"
    with wanted.open("rb") as claim:
        # Of several workers one installs, and the others wait for it.
        fcntl.flock(claim, fcntl.LOCK_EX)
        if installed.exists() and installed.stat().st_mtime >= wanted.stat().st_mtime:
            return
        venv.create(place, clear=True, symlinks=True)
        pip = [sys.executable, "-m", "pip", "--python", str(place / "bin/python")]
        done = subprocess.run(
            [*pip, "install", "--quiet", "--no-deps", "--requirement", str(wanted)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ProcessError(f"{wanted.name}: pip failed with {done.returncode}:\n{done.stderr}")
        installed.touch()


def _python(environment: Environment) -> str:
    if environment == "project":
        return sys.executable
    return str(ENVIRONMENTS / environment / "bin/python")


@dataclass(frozen=True, slots=True)
class Client:
    """A client by its name; it runs scenarios, and prints what it saw."""

    name: str
    environment: Environment
    script: str
    era: Era = "2025"

    @property
    def command(self) -> tuple[str, ...]:
        program = "node" if self.environment == "node" else _python(self.environment)
        return program, str(SCRIPTS / self.script), "--era", self.era


@dataclass(frozen=True, slots=True)
class Server:
    """A server by its name, and the scenarios that it can serve.

    Args:
        repeats: whether it has no sessions, so that a second run on one replay has to be allowed.
    """

    name: str
    environment: Environment
    arguments: tuple[str, ...]
    scenarios: tuple[str, ...]
    repeats: bool = False

    @property
    def start(self) -> dict[str, Any]:
        """Return how it is waited for."""
        return {}

    def command(self, port: int | None) -> tuple[str, ...]:
        """Return the command that serves on a port, or on pipes."""
        program = "node" if self.environment == "node" else _python(self.environment)
        return program, *self.arguments, *(() if port is None else ("--port", str(port)))


ON_THE_CALL = ("plain", "form", "url", "sampling", "roots", "together", "rounds")
WITH_GET = (
    *ON_THE_CALL,
    "get-form",
    "get-url",
    "get-sampling",
    "notifications",
    "later",
    "at-once",
    "sessions",
    "get-sessions",
)


def _v1(name: str, environment: Environment, script: str) -> list[Server]:
    path = str(SCRIPTS / script)
    return [
        Server(name, environment, (path,), WITH_GET),
        Server(
            f"{name} resumable",
            environment,
            (path, "--resumable"),
            ("plain", "form", "get-form", "notifications", "resume", "sessions"),
        ),
        Server(f"{name} greeting", environment, (path, "--greets"), ("greeting",)),
        Server(
            f"{name} stateless JSON",
            environment,
            (path, "--stateless-json"),
            ("json",),
            repeats=True,
        ),
        Server(f"{name} SSE", environment, (path, "--transport", "sse"), WITH_GET),
    ]


SERVERS = [
    *_v1("python-v1", "python-v1", "server_python_v1.py"),
    *_v1("typescript-v1", "node", "server_typescript_v1.mjs"),
    Server("everything", "node", (str(SCRIPTS / "server_everything.mjs"),), EVERYTHING),
    Server(
        "everything SSE",
        "node",
        (str(SCRIPTS / "server_everything.mjs"), "--transport", "sse"),
        EVERYTHING,
    ),
]
CLIENTS = {
    client.name: client
    for client in (
        Client("python-v1", "python-v1", "client_python_v1.py"),
        Client("typescript-v1", "node", "client_typescript_v1.mjs"),
        Client("python-v2 2025", "project", "client_python_v2.py"),
        Client("typescript-v2 2025", "node", "client_typescript_v2.mjs"),
    )
}
