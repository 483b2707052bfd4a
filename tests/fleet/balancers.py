"""Replicas at addresses of their own, and the load balancers of `deploy/` before them.

Rule: a balancer's port is open before it starts, so nobody has to wait for it. A machine without
HAProxy or nginx skips what needs them, and says so; where `MRTR_TEST_FLEET` is `required`, as in CI,
that is a failure.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal, NoReturn, Self

import pytest
from patience import HANGS_S
from processes import TESTS, Listening, ProcessError, free_port

DEPLOY = TESTS.parent / "deploy"
NAMES = "abcd"
Balancer = Literal["haproxy", "nginx"]
BALANCERS: tuple[Balancer, ...] = ("haproxy", "nginx")


def missing(what: str) -> NoReturn:
    """Skip what needs something that this machine lacks, or fail where it has to be there."""
    message = f"{what} is not installed; .ci/run shows how it is"
    if os.environ.get("MRTR_TEST_FLEET") == "required":
        pytest.fail(message)

    pytest.skip(message, allow_module_level=True)


def program(balancer: Balancer) -> str:
    """Return the path of a load balancer, or skip."""
    # Debian installs them where only root looks.
    return shutil.which(balancer, path=f"{os.environ['PATH']}:/usr/sbin") or missing(
        balancer
    )


def address(name: str) -> str:
    """Return the address of a replica: each has one, so that all can have the same port."""
    return f"127.0.1.{NAMES.index(name) + 1}"


def at(name: str, fleet: Fleet) -> str:
    """Return a replica as a balancer names it: by address and port."""
    return f"{address(name)}:{fleet.port}"


@dataclass(slots=True)
class Replica:
    """A process that listens, in a group of its own with what it starts."""

    process: subprocess.Popen[str]
    _stderr: IO[str]

    def await_listening(self) -> None:
        """Wait until it says that it listens."""
        line = self.process.stdout.readline() if self.process.stdout is not None else ""
        if not line.startswith("listening on "):
            raise ProcessError(f"a replica does not listen: {line}{self.stop()}")

    def kill(self) -> None:
        """End it and all that it has started, like a machine that fails."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def stop(self, by: signal.Signals = signal.SIGTERM) -> str:
        """Let it end, and return what it has written to stderr."""
        self.process.send_signal(by)
        self.process.wait(HANGS_S)
        if self.process.stdout is not None:
            self.process.stdout.close()

        self._stderr.seek(0)
        return self._stderr.read()


def _free_port() -> int:
    """Return a port that is free at the addresses of all replicas."""
    return free_port(*map(address, NAMES))


@dataclass(slots=True)
class Fleet:
    """Replicas by name, all with the same two ports."""

    port: int = field(default_factory=_free_port)
    admin_port: int = field(default_factory=_free_port)
    replicas: dict[str, Replica] = field(default_factory=dict)
    _held: ExitStack = field(default_factory=ExitStack)

    def start(self, name: str, *command: str) -> Replica:
        """Start a replica at its address, without waiting until it listens."""
        ports = ("--port", str(self.port), "--admin-port", str(self.admin_port))
        stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed by `close`
        self._held.callback(stderr.close)
        process = subprocess.Popen(
            [*command, "--host", address(name), *ports],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )

        self.replicas[name] = Replica(process, stderr)

        return self.replicas[name]

    def __enter__(self) -> Self:
        """Begin with no replica."""
        return self

    def __exit__(self, *_: object) -> None:
        """End what still runs."""
        for replica in self.replicas.values():
            if replica.process.poll() is None:
                replica.stop()

        self._held.close()


def _localized(text: str, fleet: Fleet) -> str:
    """Return a shipped configuration with a fleet's addresses, and with its replicas' names told."""
    for name in NAMES:
        text = text.replace(f"replica-{name}:8722", at(name, fleet))
        # nginx has addresses where it tells by them who has answered, also within patterns.
        for dot in (".", r"\."):
            old = f"192.0.2.{NAMES.index(name) + 1}".replace(".", dot)
            text = text.replace(
                f"{old}:8722", f"{address(name).replace('.', dot)}:{fleet.port}"
            )

    text = text.replace("port 9722", f"port {fleet.admin_port}")
    # A replica that has been added is seen at once.
    text = text.replace("inter 1s", "inter 100ms").replace(
        "fail_timeout=2s", "fail_timeout=1s"
    )
    text = text.replace(
        "backend replicas\n",
        "backend replicas\n    http-response set-header X-Replica %si:%sp\n",
    )

    return text.replace(
        "location / {", "location / {\nadd_header X-Replica $upstream_addr;"
    )


@contextmanager
def balancing(
    balancer: Balancer, config: str, fleet: Fleet, folder: Path
) -> Iterator[Listening]:
    """Run a load balancer with a shipped configuration before a fleet."""
    text = _localized((DEPLOY / config).read_text(), fleet)
    path = folder / config
    with (
        socket.create_server(("127.0.0.1", 0), backlog=512) as listener,
        ExitStack() as stack,
    ):
        # nginx takes it as it is, and would wait in vain where another of its workers was faster.
        listener.setblocking(False)
        port: int = listener.getsockname()[1]
        if balancer == "haproxy":
            path.write_text(text.replace("bind :8080", f"bind fd@{listener.fileno()}"))
            command = [program(balancer), "-db", "-q", "-f", str(path)]
            environment = dict(os.environ)
        else:
            logs = f"pid {folder}/pid; error_log {folder}/error.log warn;"
            http = f"http {{ access_log off; {_nginx_folders(folder)}"
            text = text.replace("http {", http, 1).replace(
                "listen 8080", f"listen 127.0.0.1:{port}"
            )
            path.write_text(f"daemon off; {logs}\n{text}")
            command = [program(balancer), "-e", f"{folder}/error.log", "-c", str(path)]
            # The way in which one nginx hands its ports to the next.
            environment = {**os.environ, "NGINX": f"{listener.fileno()};"}

        process = stack.enter_context(
            subprocess.Popen(
                command,
                env=environment,
                pass_fds=[listener.fileno()],
                stderr=subprocess.DEVNULL,
            )
        )

        stack.callback(process.terminate)
        yield Listening(f"http://127.0.0.1:{port}/mcp", process.pid)
        assert process.poll() is None, f"{balancer} has ended by itself"


def _nginx_folders(folder: Path) -> str:
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    return " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds)
