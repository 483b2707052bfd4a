"""Upstreams that live as long as a recording: a command, or an application in this process.

Rule: what is started here is stopped here, children included.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from aiohttp import web

from mrtr_cassette.core.secrets.credentials import shown_by
from mrtr_cassette.core.secrets.rules import BUILT_IN
from mrtr_cassette.errors import UpstreamError, UsageError, printable, printable_lines
from mrtr_cassette.shell.files import reason_of
from mrtr_cassette.shell.process_group import ProcessGroup
from mrtr_cassette.shell.server_process import given_to

PORT = "{port}"
"""Stands for the port in a command."""

ENDPOINT = "/mcp"
"""The path at which both official SDKs serve by default."""

_HOST = "localhost"
_POLL_S = 0.02
"""Seconds between two checks of something that gives no notice."""
_SHOWN_OUTPUT = 4000
"""Characters of a command's output that are shown, from the end."""


class RunningCommand:
    """A server that a command started."""

    def __init__(self, command: Sequence[str], port: int, cwd: Path, output: IO[bytes]) -> None:
        """Start it.

        Raises:
            UpstreamError: there is no such command, or it can't be run.
        """
        self.url = f"http://{_HOST}:{port}{ENDPOINT}"
        self._without_secrets = shown_by(BUILT_IN, given_to(command))
        self.shown = self._without_secrets(" ".join(map(printable, command)))
        self._port = port
        self._output = output
        try:
            process = subprocess.Popen(  # noqa: S603  it is the user's own command
                [part.replace(PORT, str(port)) for part in command],
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            text = f"can't run the upstream command {self.shown!r}: {reason_of(error)}"
            raise UpstreamError(text) from None
        self.group = ProcessGroup(process)

    @property
    def output(self) -> str:
        """What it has printed so far; where that is long, the end of it."""
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - _SHOWN_OUTPUT))
        text = self._without_secrets(self._output.read().decode(errors="replace").rstrip())
        # What a command prints for a terminal of its own is shown in a report of ours.
        return printable_lines("\n".join(text.expandtabs().splitlines())) or "(it printed nothing)"

    def wait_until_listening(self, seconds: float) -> None:
        """Wait so many seconds until it accepts connections.

        Raises:
            UpstreamError: it has ended, or does not listen in time; its output is in the text.
        """
        deadline = time.monotonic() + seconds
        while not self._listens():
            code = self.group.leader.poll()
            if code is not None:
                raise self._failed(f"ended with {code} before it listened on port {self._port}")
            if time.monotonic() > deadline:
                raise self._failed(f"did not listen on port {self._port} within {seconds:.0f} s")
            time.sleep(_POLL_S)

    def _listens(self) -> bool:
        try:
            socket.create_connection((_HOST, self._port), timeout=_POLL_S * 50).close()
        except OSError:
            return False
        return True

    def _failed(self, what: str) -> UpstreamError:
        return UpstreamError(
            f"the upstream command {self.shown!r} {what}; it printed:\n{self.output}"
        )


@contextmanager
def running_command(
    command: Sequence[str], cwd: Path, *, start_s: float = 30.0, grace_s: float = 10.0
) -> Iterator[RunningCommand]:
    """Run a command that serves, until the block ends.

    Args:
        command: the program and its arguments, one of which has `{port}`.
        start_s: seconds in which it has to listen.
        grace_s: seconds that it and its children have to end before they are killed.

    Raises:
        UsageError: it has no `{port}`.
        UpstreamError: it can't be run, ends, or does not listen.
    """
    if not any(PORT in part for part in command):
        raise UsageError(
            f"the upstream command {shown_by(BUILT_IN)(' '.join(command))!r} has no {PORT}",
            hint=f"put {PORT} where it takes its port, or start it elsewhere and give its URL",
        )
    with tempfile.TemporaryFile() as output:
        running = RunningCommand(command, _free_port(), cwd, output)
        try:
            running.wait_until_listening(start_s)
            yield running
        finally:
            running.group.stop(grace_s)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@asynccontextmanager
async def serving_application(application: Any) -> AsyncIterator[str]:
    """Serve an aiohttp or an ASGI application on a free port until the block ends; give its URL.

    Raises:
        UsageError: it is neither, or what serves ASGI is not installed.
        UpstreamError: it did not start.
    """
    serve = _serving_aiohttp if isinstance(application, web.Application) else _serving_asgi
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with serve(application, listener):
            yield f"http://127.0.0.1:{listener.getsockname()[1]}{ENDPOINT}"


@asynccontextmanager
async def _serving_aiohttp(application: web.Application, listener: Any) -> AsyncIterator[None]:
    runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        yield
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _serving_asgi(
    application: Callable[..., Awaitable[None]], listener: Any
) -> AsyncIterator[None]:
    _check_asgi(application)
    try:
        import uvicorn
    except ImportError:
        raise UsageError(
            "an ASGI application as upstream is served by uvicorn, which is not installed",
            hint="install it with: pip install uvicorn",
        ) from None
    config = uvicorn.Config(
        application, log_config=None, access_log=False, ws="none", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)

    async def serve() -> None:
        # uvicorn exits the process if the application does not start.
        with suppress(SystemExit):
            await server.serve(sockets=[listener])

    task = asyncio.ensure_future(serve())
    try:
        # uvicorn reports its start in this attribute only.
        while not server.started and not task.done():  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        if not server.started:
            raise UpstreamError("the ASGI application did not start; its log says why")
        yield
    finally:
        server.should_exit = True
        await task


def _check_asgi(application: Any) -> None:
    """Make sure that something can be called as an ASGI application."""
    try:
        inspect.signature(application).bind("scope", "receive", "send")
        own = getattr(application, "__call__", None)  # noqa: B004  what an instance has of it
        is_awaited = any(map(inspect.iscoroutinefunction, (application, own)))
    except (TypeError, ValueError):
        is_awaited = False
    if not is_awaited:
        raise UsageError(
            f"the upstream {application!r} is no URL, no command and no application",
            hint="an application is aiohttp's web.Application, or ASGI: called with scope, "
            "receive and send, such as what MCPServer.streamable_http_app() returns",
        )
