"""How a client reaches a server, its recorder and its replay: over sockets, or over pipes.

Rule: a proxy has its exit code and what it said on stderr once its block has ended.
"""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from processes import (
    PROGRAM,
    Listening,
    free_port,
    listening,
    record_command,
    replay_command,
)


class Server(Protocol):
    """What can be started, as a process that listens or by its client."""

    @property
    def piped(self) -> tuple[str, ...]:
        """Return the command that serves on pipes."""

    def command(self, port: int) -> tuple[str, ...]:
        """Return the command that serves on a port."""


Proxies = dict[str, Listening]
"""The proxy of each scenario; its `url` is what a client connects to, a URL or a command."""


class Sockets:
    """The server listens at the same port each time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._port = free_port()

    @contextmanager
    def serving(self) -> Iterator[str]:
        with listening(self._server.command(self._port)) as server:
            yield server.url

    @contextmanager
    def recording(self, paths: Mapping[str, Path]) -> Iterator[Proxies]:
        with self.serving() as url:
            commands = {
                name: record_command(url, path, "--force")
                for name, path in paths.items()
            }
            with _together(commands) as proxies:
                yield proxies

    @contextmanager
    def replaying(
        self, cassettes: Mapping[str, Path], *options: str
    ) -> Iterator[Proxies]:
        commands = {
            name: replay_command(path, *options) for name, path in cassettes.items()
        }
        with _together(commands) as proxies:
            yield proxies


@contextmanager
def _together(commands: Mapping[str, tuple[str, ...]]) -> Iterator[Proxies]:
    """Start several proxies at once, and stop them so."""
    blocks = {
        name: listening(command, signal.SIGINT) for name, command in commands.items()
    }
    with ThreadPoolExecutor(len(blocks)) as pool:
        started = list(pool.map(lambda block: block.__enter__(), blocks.values()))
        try:
            yield dict(zip(blocks, started, strict=True))
        finally:
            list(
                pool.map(
                    lambda block: block.__exit__(None, None, None), blocks.values()
                )
            )


class Pipes:
    """The client starts the server, or what stands in its place."""

    def __init__(self, server: Server, directory: Path) -> None:
        self._server = server
        self._directory = directory

    @contextmanager
    def serving(self) -> Iterator[str]:
        yield json.dumps(self._server.piped)

    @contextmanager
    def recording(self, paths: Mapping[str, Path]) -> Iterator[Proxies]:
        piped = self._server.piped
        commands = {
            name: (
                *PROGRAM,
                "record",
                "--stdio",
                "--force",
                "--output",
                str(path),
                "--",
                *piped,
            )
            for name, path in paths.items()
        }
        with self._started(commands, " recorded", " kept") as proxies:
            yield proxies

    @contextmanager
    def replaying(
        self, cassettes: Mapping[str, Path], *options: str
    ) -> Iterator[Proxies]:
        commands = {
            name: (*PROGRAM, "replay", "--stdio", str(path), *options)
            for name, path in cassettes.items()
        }
        with self._started(commands, "no misses") as proxies:
            yield proxies

    @contextmanager
    def _started(
        self, commands: Mapping[str, tuple[str, ...]], *good: str
    ) -> Iterator[Proxies]:
        """Let a client start commands; each says something `good` on stderr when it ends well."""
        proxies: Proxies = {}
        logs = {name: self._directory / f"{name}.stderr" for name in commands}
        for name, command in commands.items():
            logs[name].unlink(missing_ok=True)
            # The Java SDK gives up where its server's stderr ends: the 3 keeps it open.
            log = shlex.quote(str(logs[name]))
            shell = f"exec {shlex.join(command)} 3>&2 2>>{log}"
            proxies[name] = Listening(json.dumps(["sh", "-c", shell]), 0)

        yield proxies
        for name, proxy in proxies.items():
            proxy.stderr = logs[name].read_text() if logs[name].exists() else ""
            proxy.code = 0 if any(words in proxy.stderr for words in good) else 1


Way = Sockets | Pipes
"""Servers and proxies as a client finds them, each while a block runs."""
