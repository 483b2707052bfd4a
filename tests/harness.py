"""One harness for sockets: a client, what is recorded and what plays, and the command line.

Rule: nothing here waits for time. A test waits for the other end; `looped` bounds the whole,
against hangs only.
"""

# ruff: noqa: A002  JSON-RPC calls it `id`

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar
from urllib.parse import urlsplit

from aiohttp import web
from click.testing import CliRunner
from forked import ReadByLoop, start_for_loop
from messages import CAPABLE, JsonObject, compact, tool_call
from patience import HANGS_S
from processes import PROGRAM
from standin import (
    CHUNKED,
    JSON,
    STREAM_LIMIT,
    Body,
    Head,
    Script,
    Upstream,
    answering,
    event,
    read_head,
    upstream,
)

from mrtr_cassette.cli import main
from mrtr_cassette.core.cassette.journal import CHECKSUM_LENGTH
from mrtr_cassette.demo.server import create_app
from mrtr_cassette.options import Options, RecordOptions, ReplayOptions, options_of
from mrtr_cassette.shell.runs.journaling import RecordingRun
from mrtr_cassette.shell.runs.proxy_runs import ReplayRun
from mrtr_cassette.shell.runs.recording import recording
from mrtr_cassette.shell.runs.replaying import replaying

P = ParamSpec("P")
T = TypeVar("T")


def looped(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make a plain function of a test, or of what it needs: it runs on a loop of its own."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(HANGS_S):
                return await test(*args, **kwargs)

        return asyncio.run(bounded())

    return run


# --- The client ---


class Answer(NamedTuple):
    """One response as the client saw it."""

    head: Head
    body: bytes
    is_whole: bool

    @property
    def status(self) -> int:
        return int(self.head.line.split()[1])

    @property
    def content_type(self) -> str:
        return "".join(self.head.values("content-type"))

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def result(self) -> JsonObject:
        result: JsonObject = self.json["result"]
        return result

    @property
    def error(self) -> JsonObject:
        error: JsonObject = self.json["error"]
        return error

    @property
    def text(self) -> str:
        return str(self.result["content"][0]["text"])

    @property
    def state(self) -> str:
        return str(self.result["requestState"])

    @property
    def events(self) -> list[JsonObject]:
        """The messages of an event stream, which has nothing else."""
        messages = [
            json.loads(data) for data in re.findall(rb"data: (.*)\n\n", self.body)
        ]
        assert b"".join(map(event, messages)) == self.body
        return messages

    @property
    def reason(self) -> str:
        return str(self.error["data"]["reason"])


@dataclass
class Connection:
    """One connection of a client."""

    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter
    _host: str

    async def write(self, *parts: bytes) -> None:
        self._writer.write(b"".join(parts))
        await self._writer.drain()

    async def ask(
        self, method: str, target: str, *headers: str, body: bytes | None = None
    ) -> tuple[Head, Body]:
        """Send a request and return the head of its response, and the body to read."""
        await self.write(request(method, target, *headers, body=body, host=self._host))
        return await self.answer(is_empty=method == "HEAD")

    async def answer(self, *, is_empty: bool = False) -> tuple[Head, Body]:
        """Return the head of the next response, and the body to read."""
        head = await read_head(self._reader)
        status = int(head.line.split()[1])
        return head, Body(self._reader, head, is_empty=is_empty or status in {204, 304})

    async def raw(self) -> bytes:
        """Return the next bytes, framing and all; none where the other end has closed."""
        return await self._reader.read(2**16)

    def close(self) -> None:
        """Leave."""
        self._writer.close()

    async def closed(self) -> None:
        """Wait until the other end has closed the connection, with nothing more to say."""
        with contextlib.suppress(ConnectionError):
            assert await self._reader.read() == b""


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    """Connect to the server of a URL; the client leaves when the block ends."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(
        parts.hostname, parts.port, limit=STREAM_LIMIT
    )
    try:
        yield Connection(reader, writer, parts.netloc)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def request(
    method: str,
    target: str,
    *headers: str,
    body: bytes | None = None,
    host: str = "127.0.0.1",
) -> bytes:
    """Spell a request; a body announces its length, unless a header says how long it is."""
    lines = [f"{method} {target} HTTP/1.1"]
    if not any(header.lower().startswith("host:") for header in headers):
        lines.append(f"Host: {host}")

    lines += headers
    if body is not None and CHUNKED not in headers:
        lines.append(f"Content-Length: {len(body)}")

    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


async def http(
    method: str,
    url: str,
    *headers: str,
    body: bytes | None = None,
    target: str | None = None,
) -> Answer:
    """Do one exchange on a connection of its own."""
    async with connected(url) as connection:
        parts = urlsplit(url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        head, content = await connection.ask(
            method, target or path, *headers, body=body
        )
        seen = await content.rest()

        return Answer(head, seen, content.is_whole)


ACCEPT = "Accept: application/json, text/event-stream"


async def post(url: str, value: Any, *headers: str) -> Answer:
    """Send one message, an object or the bytes of one, as an MCP client does."""
    body = value if isinstance(value, bytes) else compact(value)
    return await http("POST", url, JSON, ACCEPT, *headers, body=body)


async def call(
    url: str,
    name: str,
    arguments: JsonObject,
    *,
    id: Any = 1,
    **params: Any,
) -> Answer:
    """Call a tool of the demo server; `meta` adds to the request's `_meta`."""
    meta = CAPABLE | params.pop("meta", {})
    return await post(
        url, tool_call(name, id=id, arguments=arguments, **params, _meta=meta)
    )


# --- What is recorded and what plays ---


@asynccontextmanager
async def demo_server(port: int = 0) -> AsyncIterator[str]:
    """Serve the demo server, with a key of its own, and give its URL."""
    runner = web.AppRunner(create_app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()


@dataclass
class Tape:
    """One recording under way: the client's URL, the real server, the files."""

    recording_run: RecordingRun
    server: Upstream
    log: list[str]

    @property
    def url(self) -> str:
        return self.recording_run.url

    @property
    def journal(self) -> list[JsonObject]:
        """The exchanges that are in the journal now; of each, what was written last as a whole."""
        path = self.recording_run.path.with_name(
            self.recording_run.path.name + ".journal"
        )
        lines = [
            json.loads(line[: 1 - CHECKSUM_LENGTH])
            for line in path.read_bytes().splitlines()[1:]
        ]
        return list(
            {line["number"]: line for line in lines if "number" in line}.values()
        )


@asynccontextmanager
async def taping(
    cassette: Path, script: Script, *, path: str = "/mcp", **options: Any
) -> AsyncIterator[Tape]:
    """Record a stand-in that does what a script says; the cassette is there after the block."""
    log: list[str] = []
    # What a stand-in answers may be anything.
    chosen = {"publish_anyway": True, **_chosen(RecordOptions, options)}
    async with (
        upstream(script, path=path) as server,
        recording(
            server.url, cassette, RecordOptions(log=log.append, **chosen), **options
        ) as recording_run,
    ):
        yield Tape(recording_run, server, log)


async def taped(cassette: Path, *exchanges: tuple[Any, bytes], **options: Any) -> None:
    """Record these messages and the responses that they get."""
    script = answering(*(reply for _, reply in exchanges))
    async with taping(cassette, script, **options) as tape:
        for message, _ in exchanges:
            await post(tape.url, message)


@asynccontextmanager
async def until_stopped(
    block: AbstractAsyncContextManager[T],
) -> AsyncIterator[tuple[T, Callable[[], Awaitable[None]]]]:
    """Enter a block that the test can end from within, while a client still has a connection."""
    is_ended = False

    async def stop() -> None:
        nonlocal is_ended
        is_ended = True
        await block.__aexit__(None, None, None)

    yield await block.__aenter__(), stop
    if not is_ended:
        await stop()


@asynccontextmanager
async def playing(cassette: Path, **options: Any) -> AsyncIterator[ReplayRun]:
    """Replay a cassette; what is never played or missed is for the test to ask."""
    chosen = _chosen(ReplayOptions, options)
    async with replaying(cassette, ReplayOptions(**chosen), **options) as replay_run:
        yield replay_run


def _chosen(kind: type[Options], options: dict[str, Any]) -> dict[str, Any]:
    """Take out of keywords those that are options of a recording or a replay."""
    return {name: options.pop(name) for name in options_of(kind) if name in options}


def read(cassette: Path) -> JsonObject:
    """Return a cassette as JSON."""
    tree: JsonObject = json.loads(cassette.read_bytes())
    return tree


def raw_body(body: JsonObject) -> bytes:
    """Return the bytes that a body in a cassette stands for, where it is text or JSON."""
    if "events" in body:
        return b"".join(
            one["text"].encode()
            if "text" in one
            else one["before"].encode() + compact(one["data"]) + one["after"].encode()
            for one in body["events"]
        )

    text = body.get("text")
    return compact(body["body"]) if text is None else text.encode()


# --- The command line ---


class Outcome(NamedTuple):
    """How a process ended, and what it printed after its first line."""

    code: int
    out: str
    err: str


@dataclass
class Process:
    """`mrtr-cassette` as a process; leaving its block kills it if it still runs."""

    process: asyncio.subprocess.Process | ReadByLoop
    first_line: str = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    async def listening(self) -> str:
        """Return the URL that it announces, and nothing else, as its first line."""
        assert self.process.stdout is not None
        self.first_line = (await self.process.stdout.readline()).decode()
        word, _, url = self.first_line.partition("listening on ")
        assert not word, self.first_line
        assert url.endswith("\n"), await self.ended()
        return url.strip()

    async def said(self, text: str) -> str:
        """Wait for a line on stderr that has `text`, and return what stood there up to it."""
        assert self.process.stderr is not None
        seen = ""
        while text not in seen:
            line = await self.process.stderr.readline()
            assert line, seen
            seen += line.decode()

        return seen

    def kill(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self) -> Outcome:
        """Wait for its end; no process may end with a traceback."""
        out, err = await self.process.communicate()
        ended = Outcome(
            self.process.returncode or 0, (out or b"").decode(), (err or b"").decode()
        )
        assert "Traceback" not in ended.err, ended.err
        return ended

    async def stopped(self, number: signal.Signals = signal.SIGINT) -> Outcome:
        self.kill(number)
        return await self.ended()


def _word(argument: object) -> str | bytes:
    return argument if isinstance(argument, bytes) else str(argument)


@asynccontextmanager
async def command(
    *arguments: object, program: Sequence[str] = PROGRAM, **options: Any
) -> AsyncIterator[Process]:
    """Start `mrtr-cassette` with these arguments."""
    words = [*program, *(os.fsdecode(_word(argument)) for argument in arguments)]
    made: asyncio.subprocess.Process | ReadByLoop | None = None
    if program is PROGRAM and not options.keys() - {"cwd"}:
        made = await start_for_loop(words, STREAM_LIMIT, **options)

    if made is None:
        pipe = asyncio.subprocess.PIPE
        nothing = asyncio.subprocess.DEVNULL
        chosen = {
            "stdin": nothing,
            "stdout": pipe,
            "stderr": pipe,
            "limit": STREAM_LIMIT,
        }
        made = await asyncio.create_subprocess_exec(*words, **chosen | options)

    try:
        yield Process(made)
    finally:
        if made.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                made.kill()

            await made.communicate()


ABOUT_FILES = frozenset(
    {
        "answers",
        "check",
        "diff",
        "inspect",
        "merge",
        "recover",
        "schema",
        "unwrap",
        "view",
        "wrap",
    }
)
"""The commands that are no process's business: they run here, where that takes no second."""


def run_here(*arguments: object, cwd: Path | None = None) -> Outcome:
    """Run a command of `mrtr-cassette` in this process."""
    words = [os.fsdecode(_word(argument)) for argument in arguments]
    with contextlib.chdir(cwd or Path.cwd()):
        done = CliRunner().invoke(main, words, prog_name="mrtr-cassette")

    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception

    return Outcome(done.exit_code, done.stdout, done.stderr)


async def run(*arguments: object, **options: Any) -> Outcome:
    """Run `mrtr-cassette` to its end, as a process where it serves, or where options say how."""
    if str(arguments[0]) in ABOUT_FILES and not options.keys() - {"cwd"}:
        return await asyncio.to_thread(run_here, *arguments, **options)

    async with command(*arguments, **options) as process:
        return await process.ended()
