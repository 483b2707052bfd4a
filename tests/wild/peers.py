"""Third-party servers and clients: how each is installed and started, and what is asked of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from processes import PEERS, install_node_packages, install_python_packages

HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"
ENVIRONMENTS = HERE / ".venv"

Environment = Literal["project", "peers", "node", "python-v1", "fastmcp"]
Era = Literal["2025", "2026"]


def install(*environments: Environment) -> None:
    """Have what peers need, as the lock files have it.

    Raises:
        ProcessError: an installation failed.
    """
    for environment in environments:
        if environment == "node":
            install_node_packages(HERE)
        elif environment == "peers":
            install_node_packages(PEERS)
        elif environment != "project":
            wanted = HERE / f"requirements-{environment}.txt"
            install_python_packages(wanted, ENVIRONMENTS / environment)


def _program(environment: Environment) -> str:
    match environment:
        case "project":
            return sys.executable
        case "node" | "peers":
            return "node"
        case _:
            return str(ENVIRONMENTS / environment / "bin/python")


@dataclass(frozen=True, slots=True)
class Client:
    """A client by its name; it runs scenarios, and prints what it saw."""

    name: str
    environment: Environment
    script: str
    era: Era
    other: str
    """Who is shown what this one has recorded."""

    @property
    def answers_at_once(self) -> bool:
        """Tell whether several questions may be with the user at a time."""
        return self.environment != "python-v1"

    @property
    def loses_progress(self) -> bool:
        """Tell whether it ignores progress that comes together with the response, on one stream."""
        return self.environment == "node"

    @property
    def command(self) -> tuple[str, ...]:
        """Return the command, to which scenarios are added."""
        return _program(self.environment), str(SCRIPTS / self.script), "--era", self.era


@dataclass(frozen=True, slots=True, eq=False)
class Server:
    """A server by its name, the scenarios that it can serve in each era, and to whom."""

    name: str
    environment: Environment
    arguments: tuple[str, ...]
    scenarios: Mapping[Era, tuple[str, ...]]
    clients: tuple[str, ...]
    has_sessions: bool = True
    """Whether a client of the 2025 era has a session."""

    piped_clients: tuple[str, ...] = ()
    """The clients that start it themselves."""

    def command(self, port: int) -> tuple[str, ...]:
        """Return the command that serves on a port."""
        return _program(self.environment), *self.arguments, "--port", str(port)

    @property
    def piped(self) -> tuple[str, ...]:
        """Return the command that serves on pipes."""
        return _program(self.environment), *self.arguments, "--stdio"

    def piped_scenarios(self, era: Era) -> tuple[str, ...]:
        """Return the scenarios that are worth while on pipes, where all streams are one."""
        return tuple(name for name in self.scenarios[era] if name not in SOCKETS_ONLY)

    def replays_alike(self, era: Era) -> bool:
        """Tell whether a program may run twice on one replay without being told."""
        return self.has_sessions and era == "2025"


CLIENTS = {
    client.name: client
    for client in (
        Client("python-v1", "python-v1", "client_python.py", "2025", "typescript-v1"),
        Client(
            "typescript-v1", "node", "client_typescript_v1.mjs", "2025", "python-v1"
        ),
        Client(
            "python-v2 2025",
            "project",
            "client_python.py",
            "2025",
            "typescript-v2 2025",
        ),
        Client(
            "typescript-v2 2025",
            "node",
            "client_typescript_v2.mjs",
            "2025",
            "python-v2 2025",
        ),
        # It refuses with a code of its own, which another client's recording doesn't know.
        Client("fastmcp 2025", "fastmcp", "client_fastmcp.py", "2025", "fastmcp 2025"),
        Client(
            "python-v2 2026",
            "project",
            "client_python.py",
            "2026",
            "typescript-v2 2026",
        ),
        Client(
            "typescript-v2 2026",
            "node",
            "client_typescript_v2.mjs",
            "2026",
            "python-v2 2026",
        ),
        Client(
            "fastmcp 2026", "fastmcp", "client_fastmcp.py", "2026", "typescript-v2 2026"
        ),
    )
}
V1 = ("python-v1", "typescript-v1")
LEGACY = tuple(name for name, client in CLIENTS.items() if client.era == "2025")
EVERYBODY = tuple(CLIENTS)
V2 = tuple(name for name in EVERYBODY if "-v2" in name)
SOCKETS_ONLY = {
    "url",
    "get-form",
    "get-url",
    "get-sampling",
    "rounds",
    "sessions",
    "get-sessions",
}
PUSHED = (
    "plain",
    "form",
    "url",
    "sampling",
    "roots",
    "get-form",
    "get-url",
    "get-sampling",
    "together",
    "rounds",
    "notifications",
    "later",
    "at-once",
    "sessions",
    "get-sessions",
)
RESUMABLE = ("plain", "form", "get-form", "notifications", "resume", "sessions")
EVERYTHING = ("everything", "everything-asks", "everything-error")


def _v1(name: str, environment: Environment, script: str) -> list[Server]:
    def server(kind: str, *options: str, of: tuple[str, ...], **more: Any) -> Server:
        arguments = (str(SCRIPTS / script), *options)
        clients = more.pop("clients", LEGACY)
        return Server(
            f"{name}{kind}", environment, arguments, {"2025": of}, clients, **more
        )

    return [
        server("", of=PUSHED, piped_clients=LEGACY[:4]),
        server(" resumable", "--resumable", of=RESUMABLE, clients=LEGACY[:4]),
        server(" greeting", "--greets", of=("greeting",), clients=V1),
        server(" SSE", "--transport", "sse", of=PUSHED, clients=LEGACY[:4]),
        server(
            " stateless JSON",
            "--stateless-json",
            of=("json",),
            clients=V1,
            has_sessions=False,
        ),
    ]


def _everything(kind: str, clients: tuple[str, ...], *options: str) -> Server:
    arguments = (str(SCRIPTS / "server_everything.mjs"), *options)
    return Server(
        f"everything{kind}",
        "node",
        arguments,
        {"2025": EVERYTHING},
        clients,
        piped_clients=() if options else V1,
    )


SERVERS = [
    *_v1("python-v1", "python-v1", "server_python_v1.py"),
    *_v1("typescript-v1", "node", "server_typescript_v1.mjs"),
    _everything("", LEGACY),
    _everything(" SSE", LEGACY[:4], "--transport", "sse"),
    Server(
        "python-v2",
        "project",
        (str(PEERS / "server_python.py"),),
        {"2025": ("both",), "2026": ("both", "releases")},
        EVERYBODY,
        piped_clients=V2,
    ),
    Server(
        "typescript-v2",
        "peers",
        (str(PEERS / "server_typescript.mjs"),),
        {"2025": ("both", "releases"), "2026": ("both", "releases")},
        EVERYBODY,
        piped_clients=V2,
    ),
    Server(
        "fastmcp",
        "fastmcp",
        (str(SCRIPTS / "server_fastmcp.py"),),
        {"2025": ("fast",), "2026": ("fast", "fast-required")},
        EVERYBODY,
        piped_clients=tuple(name for name in EVERYBODY if name.startswith("fastmcp")),
    ),
]
