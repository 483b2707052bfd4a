"""Connect to upstreams by URL or command; start commands and serve applications on a port."""

from __future__ import annotations

import asyncio
import errno
import inspect
import os
import secrets
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.transports import (
    ENDPOINT,
    STARTED_HERE,
    local_upstream_url,
    recorded_path,
)
from mrtr_cassette.core.secrets.credentials import (
    AddSettings,
    UserSettings,
    text_redactor,
)
from mrtr_cassette.core.secrets.rules import BUILT_IN_RULES, RedactionRules
from mrtr_cassette.errors import UpstreamError, UsageError, printable_lines
from mrtr_cassette.options import UpstreamOptions
from mrtr_cassette.shell.files.disk import monotonic, system_reason
from mrtr_cassette.shell.http.client import (
    connected_client,
    forward_proxy,
    shown_url,
    tls_context,
    upstream_url,
    url_credentials,
)
from mrtr_cassette.shell.http.transport import Upstream
from mrtr_cassette.shell.pipes.commands import (
    command_in_words,
    credentials_given_to,
    shown_command,
)
from mrtr_cassette.shell.pipes.processes import ProcessGroup, guarded_process_group
from mrtr_cassette.shell.pipes.upstream import pipe_upstream

if TYPE_CHECKING:
    from aiohttp import web


@dataclass(frozen=True, slots=True)
class Target:
    """A server that is recorded or called."""

    name: str
    origin: str
    path: str
    settings: UserSettings
    connect: Callable[[AddSettings], AbstractAsyncContextManager[Upstream]]
    recorded_as: str
    """The URL that a cassette has for it: without the port, where we have started it."""

    command: str | None = None
    """The command by which we start it, as a cassette shows it."""

    is_on_pipes: bool = False
    host: str = ""
    port: int | None = 0


def target_of(
    upstream: str | Sequence[str],
    options: UpstreamOptions,
    rules: RedactionRules,
    command: Sequence[str] | None = None,
) -> Target:
    """Return the upstream of a URL, or of a program and its arguments.

    Args:
        command: the one by which we have started the server at the URL, or an empty one where it
            is an application; these are called without a proxy.

    Raises:
        UsageError: it is no URL, or its certificates or its proxy can't be used.
    """
    if isinstance(upstream, str):
        return _target_at(upstream, options, rules, command)

    command_text = shown_command(upstream, rules)
    return Target(
        name=STARTED_HERE,
        origin=command_text,
        path=ENDPOINT,
        settings=credentials_given_to(upstream)._replace(headers=options.added_headers),
        connect=partial(pipe_upstream, upstream, options.max_body),
        recorded_as=STARTED_HERE,
        command=command_text,
        is_on_pipes=True,
    )


def _target_at(
    upstream: str,
    options: UpstreamOptions,
    rules: RedactionRules,
    command: Sequence[str] | None,
) -> Target:
    """Return the target at a URL; with a `command` it was started here, and has no proxy."""
    url = upstream_url(upstream, text_redactor(rules))
    tls = tls_context(url, options.ca_path, verifies=not options.insecure)
    path = url.raw_path_qs
    name = text_redactor(rules)(shown_url(url))
    if command is None:
        proxy = forward_proxy(url)
        recorded_as = name
    else:
        proxy = None
        recorded_as = local_upstream_url(path)

    settings_of_command = credentials_given_to(command) if command else UserSettings()
    environment = settings_of_command.environment
    if proxy is not None:
        environment = (*environment, *proxy.headers)

    settings = settings_of_command._replace(
        environment=environment,
        headers=(*url_credentials(url), *options.added_headers),
        query=tuple(url.query.items()),
        target=path,
    )

    def open_client(add_settings: AddSettings) -> AbstractAsyncContextManager[Upstream]:
        add_settings(settings)
        return connected_client(url.origin(), tls, proxy, settings.headers)

    return Target(
        name=name,
        origin=shown_url(url.origin()),
        path=path,
        settings=settings,
        connect=open_client,
        recorded_as=recorded_as,
        command=shown_command(command, rules) if command else None,
        host=url.host or "",
        port=url.port,
    )


@asynccontextmanager
async def reached_upstream(
    upstream: str | Sequence[str],
    options: UpstreamOptions,
    rules: RedactionRules,
    recorded: Cassette | None = None,
    started: Sequence[str] | None = None,
) -> AsyncIterator[Target]:
    """Give the upstream of a URL or a command until the block ends.

    A command with `{port}` is started, and called at the path of the options or of a recording. The
    names of values in a command are replaced by their texts.

    Args:
        started: the command by which we have started the server at the URL, or an empty one where
            it is an application.

    Raises:
        UsageError: it is no URL, or what the options say of it can't be meant.
        UpstreamError: the command can't be run, or does not listen.
    """
    if started is not None:
        yield target_of(upstream, options, rules, started)
        return

    if not isinstance(upstream, str):
        upstream = options.filled_command(upstream)

    if isinstance(upstream, str) or is_on_pipes(upstream):
        if options.upstream_path is not None:
            problem = (
                "<<upstream_path>> is about a server that a command with {port} starts"
            )
            hint = "the path of another one is part of its URL"
            raise UsageError(problem, hint=hint)

        yield target_of(upstream, options, rules)
        return

    path = path_to_call(options.upstream_path, recorded)
    async with running_command(upstream, Path.cwd(), path=path) as running_server:
        yield target_of(running_server.url, options, rules, upstream)


def not_served_error(
    path: str, shown: str, status: int, *, is_started: bool
) -> UpstreamError:
    """Return the error of a server that has nothing at the path at which it was called."""
    hint = "is the path right?"
    if is_started:
        hint = "name its path with <<upstream_path>>"

    return UpstreamError(f"{shown} has nothing at {path} (HTTP {status})", hint=hint)


def path_to_call(given_path: str | None, recorded: Cassette | None) -> str:
    """Return the path of a server that we start: as the user says, as recorded, or the default."""
    if given_path is not None:
        return given_path
    return ENDPOINT if recorded is None else recorded_path(recorded)


NOT_SERVED_STATUSES = (404, 405)
PORT = "{port}"
"""Stands for the port in a command."""

_PORTS = range(20_000, 30_000)
"""The ports of servers that we start. Linux and macOS give none of them to programs that want any:
another one would have the time to take it while the server starts, and be recorded instead."""

_LOCAL_HOST = "localhost"
_POLL_S = 0.02
"""Seconds between two checks of something that gives no notice."""

_GRACE_S = 10.0
"""Seconds from SIGTERM to SIGKILL."""

_SHOWN_OUTPUT = 4000
"""Characters of a command's output that are shown, from the end."""


@dataclass(frozen=True, slots=True)
class RunningCommand:
    """A server that a command started."""

    url: str
    _output_file: IO[bytes]
    _without_secrets: Callable[[str], str]

    @property
    def output(self) -> str:
        """The last of its output so far."""
        size = self._output_file.seek(0, os.SEEK_END)
        self._output_file.seek(max(0, size - _SHOWN_OUTPUT))
        output_text = self._output_file.read().decode(errors="replace").rstrip()
        text = self._without_secrets(output_text)
        # The command printed for a terminal, and our report shows it as text.
        output_lines = printable_lines("\n".join(text.expandtabs().splitlines()))

        return output_lines or "(it printed nothing)"


@asynccontextmanager
async def running_command(
    command: Sequence[str], cwd: Path, *, path: str = ENDPOINT, start_s: float = 30.0
) -> AsyncIterator[RunningCommand]:
    """Run a command with `{port}`, which serves at a path, until the block ends.

    It has `start_s` seconds to listen.

    Raises:
        UpstreamError: it can't be run, ends, or does not listen; its output is in the text.
    """
    without_secrets = text_redactor(BUILT_IN_RULES, credentials_given_to(command))
    shown_words = command_in_words(command)
    port = _free_port()
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(  # noqa: ASYNC220, S603  it is the user's own command
                [part.replace(PORT, str(port)) for part in command],
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            problem_text = f"can't run the upstream command {shown_words!r}: {system_reason(error)}"
            raise UpstreamError(problem_text) from None

        running_server = RunningCommand(
            f"http://{_LOCAL_HOST}:{port}{path}", output, without_secrets
        )
        with guarded_process_group(process.pid):
            try:
                problem = await _why_not_listening(process, port, start_s)
                if problem is not None:
                    problem_text = (
                        f"the upstream command {shown_words!r} {problem}; it printed:"
                    )
                    raise UpstreamError(f"{problem_text}\n{running_server.output}")

                yield running_server
            finally:
                await ProcessGroup(process).stop_in_thread(_GRACE_S)


def _free_port() -> int:
    """Return a port where nothing listens; suites that run at once get others."""
    while True:
        port = secrets.choice(_PORTS)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return port


async def _why_not_listening(
    process: subprocess.Popen[bytes], port: int, seconds: float
) -> str | None:
    """Wait until a process listens; return why it doesn't, or None."""
    deadline = monotonic() + seconds
    while True:
        try:
            socket.create_connection((_LOCAL_HOST, port), timeout=_POLL_S * 50).close()
        except OSError:
            if process.poll() is not None:
                code = process.returncode
                return f"ended with {code} before it listened on port {port}"
            if monotonic() > deadline:
                return f"did not listen on port {port} within {seconds:.0f} s"

            await asyncio.sleep(_POLL_S)
        else:
            return None


@asynccontextmanager
async def serving_application(application: Any) -> AsyncIterator[str]:
    """Serve an aiohttp or an ASGI application on a free port until the block ends; give its URL.

    Raises:
        UsageError: it is neither, or what serves ASGI is not installed.
        UpstreamError: it did not start.
    """
    from aiohttp import web

    with socket.create_server(("127.0.0.1", 0)) as listener:
        if isinstance(application, web.Application):
            server_context = _serving_aiohttp(application, listener)
        else:
            server_context = _serving_asgi(application, listener)

        async with server_context:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}{ENDPOINT}"


@asynccontextmanager
async def _serving_aiohttp(
    application: web.Application, listener: Any
) -> AsyncIterator[None]:
    """Serve an aiohttp application on a listening socket until the block ends."""
    from aiohttp import web

    runner = web.AppRunner(
        application, access_log=None, handle_signals=False, shutdown_timeout=1.0
    )
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
    """Serve an ASGI application on a listening socket, by uvicorn, until the block ends."""
    call_method = getattr(application, "__call__", None)  # noqa: B004  what an instance has of it
    is_asgi = any(map(inspect.iscoroutinefunction, (application, call_method)))
    if not is_asgi:
        problem = (
            f"the upstream {application!r} is not a URL, a command or an application"
        )
        hint = (
            "an application is aiohttp's web.Application, or ASGI: called with scope, "
            "receive and send, such as what MCPServer.streamable_http_app() returns"
        )
        raise UsageError(problem, hint=hint)

    try:
        import uvicorn
    except ImportError:
        problem = "an ASGI application as upstream is served by uvicorn, which is not installed"
        hint = "install it with: pip install uvicorn"
        raise UsageError(problem, hint=hint) from None

    config = uvicorn.Config(
        application,
        log_config=None,
        access_log=False,
        ws="none",
        timeout_graceful_shutdown=1,
    )

    server = uvicorn.Server(config)

    async def serve_until_exit() -> None:
        # uvicorn exits the process if the application does not start.
        with suppress(SystemExit):
            await server.serve(sockets=[listener])

    serving_task = asyncio.ensure_future(serve_until_exit())
    try:
        # uvicorn reports its start in this attribute only.
        while not server.started and not serving_task.done():  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)

        if not server.started:
            raise UpstreamError("the ASGI application did not start; its log says why")

        yield
    finally:
        server.should_exit = True
        await serving_task


def is_on_pipes(upstream: Any) -> bool:
    """Tell whether an upstream is a command whose server is on pipes: it takes no port.

    Raises:
        UsageError: it is not a command: a list of texts.
    """
    if isinstance(upstream, str) or not isinstance(upstream, Sequence):
        return False
    if not upstream or not all(isinstance(part, str) for part in upstream):
        raise UsageError(f"the upstream {upstream!r} is not a command: a list of texts")
    return not any(PORT in part for part in upstream)
