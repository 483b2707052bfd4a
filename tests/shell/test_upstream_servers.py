"""Facts about upstreams that live as long as a recording."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from harness import looped
from patience import HANGS_S

from mrtr_cassette.errors import UpstreamError, UsageError
from mrtr_cassette.shell.runs.running import in_thread
from mrtr_cassette.shell.runs.upstreams import running_command, serving_application

SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(204)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def python(text, *arguments):
    """Return the command of a Python program."""
    return [sys.executable, "-c", text, *arguments]


def started(*arguments, **options):
    """Run a command until the block ends."""
    return in_thread(running_command(*arguments, **options))


def status(url):
    """Return the HTTP status of a GET."""
    try:
        with urllib.request.urlopen(url) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def test_the_port_of_a_command_is_none_that_systems_give_away(tmp_path):
    """Else another program could listen there while the server starts, and be recorded.

    Linux gives 32768 to 60999 to programs that want any port, and macOS 49152 to 65535.
    """
    with started(python(SERVER, "{port}"), tmp_path) as running:
        assert 20_000 <= urlsplit(running.url).port < 30_000


def test_the_port_of_a_command_is_none_where_another_program_listens(
    tmp_path, monkeypatch
):
    """Ports are tried until one is free."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        free_port = listener.getsockname()[1]

    with socket.create_server(("127.0.0.1", 0)) as other:
        ports = (other.getsockname()[1], free_port)
        monkeypatch.setattr("mrtr_cassette.shell.runs.upstreams._PORTS", ports)
        for _ in range(5):
            with started(python(SERVER, "{port}"), tmp_path) as running:
                assert urlsplit(running.url).port == free_port


def test_a_command_runs_while_the_block_does(tmp_path):
    """It runs in the given folder, listens when the block begins, and has ended after it."""
    (tmp_path / "server.py").write_text(SERVER)
    with started([sys.executable, "server.py", "{port}"], tmp_path) as running:
        assert status(running.url) == 204

    with pytest.raises(OSError, match="refused"):
        status(running.url)


KILLED = """
import sys
from pathlib import Path
from mrtr_cassette.shell.runs.running import in_thread
from mrtr_cassette.shell.runs.upstreams import running_command
with in_thread(running_command(sys.argv[1:], Path.cwd())):
    print("listening", flush=True)
    sys.stdin.read()
"""
"""Runs a command, and is killed meanwhile."""

HELD = """
import sys
held = open(sys.argv[2], "w")
"""
"""Holds a named pipe open, which so ends when the server does."""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_command_ends_with_a_killed_test_run(tmp_path, number):
    """No server is left behind by a run that a signal ends before it can stop anything."""
    pipe = tmp_path / "held"
    os.mkfifo(pipe)
    command = python(KILLED, *python(HELD + SERVER, "{port}", str(pipe)))
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run,
        pipe.open() as held,
    ):
        assert run.stdout.readline() == b"listening\n"

        run.send_signal(number)
        ended, _, _ = select.select([held], [], [], HANGS_S)

        assert ended
        assert held.read() == ""


LEFT = """
import asyncio, sys
from pathlib import Path
from mrtr_cassette.shell.runs.upstreams import running_command

async def main():
    async with running_command(sys.argv[1:], Path()):
        pass

asyncio.run(main())
"""
SLOW_TO_END = """
import signal
signal.signal(signal.SIGTERM, lambda *_: print("told", file=held, flush=True))
"""


def test_a_command_that_is_slow_to_end_does_not_outlive_its_killed_run(tmp_path):
    """Whoever has no time for a run either kills it while it waits for its server to end."""
    pipe = tmp_path / "held"
    os.mkfifo(pipe)
    server = python(HELD + SLOW_TO_END + SERVER, "{port}", str(pipe))
    with (
        subprocess.Popen(python(LEFT, *server)) as run,
        pipe.open() as held,
    ):
        assert held.readline() == "told\n"

        run.kill()
        ended, _, _ = select.select([held], [], [], HANGS_S)

        assert ended
        assert held.read() in ("", "told\n")


@looped
async def test_a_command_ends_when_its_stop_is_cancelled(tmp_path):
    """The server is stopped even if the cancellation comes before a thread begins with that."""
    loop = asyncio.get_running_loop()
    free = threading.Event()
    urls = []

    async def run_and_leave():
        async with running_command(python(SERVER, "{port}"), tmp_path) as running:
            urls.append(running.url)
            loop.run_in_executor(None, free.wait)
            # These come when the block has ended, and waits for the only thread.
            loop.call_soon(leaving.cancel)
            loop.call_soon(free.set)

    with ThreadPoolExecutor(1) as threads:
        loop.set_default_executor(threads)
        leaving = asyncio.ensure_future(run_and_leave())
        with pytest.raises(asyncio.CancelledError):
            await leaving

    with pytest.raises(OSError, match="refused"):
        status(urls[0])


def test_a_command_that_ends_is_an_error_with_its_output(tmp_path):
    """Its exit code and what it printed are in the text, cut to the last of it."""
    text = "import sys; print('x' * 10_000); sys.exit('bad option')"
    with (
        pytest.raises(
            UpstreamError,
            match=r"ended with 1 before it listened on port \d+; it printed:\n",
        ) as raised,
        started(python(text, "{port}"), tmp_path),
    ):
        pass

    assert str(raised.value).endswith("xxx\nbad option")
    assert len(str(raised.value)) < 5_000


def test_a_command_that_never_listens_is_stopped(tmp_path):
    """The error says how long we waited, and that it printed nothing."""
    with (
        pytest.raises(
            UpstreamError,
            match=r"did not listen on port \d+ within 0 s; it printed:\n\(it",
        ),
        started(
            python("import signal; signal.pause()", "{port}"), tmp_path, start_s=0.1
        ),
    ):
        pass


def test_a_command_that_can_not_be_run_is_named(tmp_path):
    """A missing program is an error before anything is waited for."""
    with (
        pytest.raises(UpstreamError, match=r"can't run .*: no such file or directory"),
        started(["no-such-program", "{port}"], tmp_path),
    ):
        pass


async def hello(scope, receive, send):
    """Answer 200 to every request; an ASGI application without a lifespan."""
    if scope["type"] != "http":
        raise AssertionError("no lifespan")

    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def test_applications_of_both_kinds_are_served():
    """Aiohttp's and ASGI's are served on free ports, and no longer when the block has ended."""
    for application, expected in ((web.Application(), 404), (hello, 200)):
        with in_thread(serving_application(application)) as url:
            assert url.endswith("/mcp")
            assert status(url) == expected

        with pytest.raises(OSError, match="refused"):
            status(url)


async def no_start(scope, receive, send):
    """Fail to start."""
    await receive()
    await send({"type": "lifespan.startup.failed", "message": "no database"})


def test_an_application_that_does_not_start_is_an_error():
    """What it says is in its log; the error points there."""
    with (
        pytest.raises(UpstreamError, match="did not start; its log says why"),
        in_thread(serving_application(no_start)),
    ):
        pass


@pytest.mark.parametrize("wrong", [object(), lambda: None, 7])
def test_what_is_no_application_is_refused(wrong):
    """Neither an object that can't be called nor a factory is an application."""
    with (
        pytest.raises(
            UsageError,
            match="is not a URL, a command or an application; an application is",
        ),
        in_thread(serving_application(wrong)),
    ):
        pass


def test_asgi_needs_uvicorn(monkeypatch):
    """Where it is not installed, the error says how to get it."""
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with (
        pytest.raises(
            UsageError,
            match="served by uvicorn, which is not installed; install it with",
        ),
        in_thread(serving_application(hello)),
    ):
        pass
