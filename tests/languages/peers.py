"""Clients and servers in several languages: how each is built and started.

All servers offer the same tools with the same texts, and all clients print the same lines.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from forked import FORKS_ALL, start
from processes import PEERS, PROGRAM, ProcessError, Run, install_node_packages

Era = Literal["2025", "2026"]
HERE = Path(__file__).parent
BUILT = HERE / ".built"
"""Where each language's build tool keeps its programs; only what changed is built again."""


@dataclass(frozen=True)
class Server:
    """A server of one era, as `wild.ways` starts it."""

    words: tuple[str, ...]
    era: Era

    @property
    def piped(self) -> tuple[str, ...]:
        """Return the command that serves on pipes."""
        return *self.words, "--era", self.era, "--stdio"

    def command(self, port: int) -> tuple[str, ...]:
        """Return the command that serves on a port."""
        return *self.words, "--era", self.era, "--port", str(port)


@dataclass(frozen=True)
class Language:
    """A language with its SDK, or none.

    Attributes:
        tools: the programs that building and running it needs.
        build: the command that builds its programs, in its folder.
        test: the command that runs its own test, which takes a play of a `serve`.
        eras: the revisions that its SDK speaks, for a client and for a server.
    """

    name: str
    tools: tuple[str, ...]
    build: tuple[str, ...]
    test: tuple[str, ...]
    client: tuple[str, ...]
    server: tuple[str, ...]
    eras: tuple[Era, ...] = ("2025", "2026")

    @property
    def folder(self) -> Path:
        """Return where its sources are."""
        return HERE / self.name

    def missing(self) -> list[str]:
        """Return the names of the tools that this machine has not."""
        return [tool for tool in self.tools if shutil.which(tool) is None]

    def make(self) -> str:
        """Build it, or install it; return what is wrong, or nothing."""
        if "npm" in self.tools:
            try:
                install_node_packages()
            except ProcessError as error:
                return str(error)

        if not self.build:
            return ""

        ended = self.run(self.build)
        if ended.code == 0:
            return ""

        return f"{' '.join(self.build)}: exit {ended.code}\n{ended.stdout}"

    def run_tests(self, cassettes: Path, variables: Mapping[str, str]) -> Run:
        """Run its own tests with a `serve` of a folder, as its users do."""
        serve = (*PROGRAM, "serve", str(cassettes), "--log-format", "json", "--")
        return self.run([*serve, *self.test], {**variables, FORKS_ALL: "1"})

    def run(
        self,
        command: Sequence[str],
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> Run:
        """Run a command to its end in this language's folder; its stderr is with its stdout."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, **variables}
        with tempfile.TemporaryFile("w+") as printed:
            code = start(command, printed, printed, env, self.folder).wait()
            printed.seek(0)
            return Run(code, printed.read(), "")

    def client_command(self, era: Era, answer: str) -> tuple[str, ...]:
        """Return its client's command, to which a target and tools are added."""
        return *self.client, "--era", era, "--answer", answer

    def server_of(self, era: Era) -> Server:
        """Return its server."""
        return Server(self.server, era)


def _built(*path: str) -> str:
    return str(BUILT.joinpath(*path))


PYTHON = Language(
    name="python",
    tools=(),
    build=(),
    test=("python", "-m", "unittest", "test_plan"),
    client=(sys.executable, str(HERE / "python" / "client.py")),
    server=(sys.executable, str(HERE / "python" / "server.py")),
)
SHELL = Language(
    name="shell",
    tools=("sh", "curl"),
    build=(),
    test=("sh", "plan.sh"),
    client=(),
    server=(),
    eras=(),
)
TYPESCRIPT = Language(
    name="typescript",
    tools=("node", "npm"),
    build=(),
    test=(),
    client=("node", str(PEERS / "client_plans.mjs")),
    server=(),
)
GO = Language(
    name="go",
    tools=("go",),
    build=("go", "build", "-p", "1", "-o", f"{_built('go')}/", "./client", "./server"),
    test=("go", "test", "-p", "1", "-count", "1", "./..."),
    client=(_built("go", "client"),),
    server=(_built("go", "server"),),
)
_JAVA_CLASSES = f"{_built('java', 'classes')}:{_built('java', 'dependency')}/*"
_MAVEN = ("mvn", "--quiet", "--batch-mode")
JAVA = Language(
    name="java",
    tools=("java", "mvn"),
    build=(
        *_MAVEN,
        "test-compile",
        "dependency:copy-dependencies",
        "-DincludeScope=runtime",
    ),
    test=(*_MAVEN, "surefire:test"),
    client=("java", "-cp", _JAVA_CLASSES, "PlanClient"),
    server=("java", "-cp", _JAVA_CLASSES, "PlanServer"),
    eras=("2025",),
)
CARGO_OPTIONS = ("--locked", "--jobs", "1", "--target-dir", _built("rust"))
RUST = Language(
    name="rust",
    tools=("cargo",),
    build=("cargo", "build", "--quiet", "--tests", "--bins", *CARGO_OPTIONS),
    test=("cargo", "test", "--quiet", "--test", "plan", *CARGO_OPTIONS),
    client=(_built("rust", "debug", "client"),),
    server=(_built("rust", "debug", "server"),),
)
LANGUAGES = [PYTHON, SHELL, TYPESCRIPT, GO, JAVA, RUST]
