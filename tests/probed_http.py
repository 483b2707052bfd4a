"""The server that asks before it acts, served over HTTP with each fault, and recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from messages import JsonObject, compact
from probed import SERVERS, TWINS, BrokenError, ProbedServer, faults_of
from standin import event

from mrtr_cassette import call
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.runs.recording import recording

_STATUSES = {"http-500": 500, "answer-500": 500, "good-400": 400}
"""The ways to break down, or to refuse a request, in which there is a response."""


async def _post(server: ProbedServer, request: web.Request) -> web.StreamResponse:
    """Answer one message."""
    message = await request.json()
    if message.get("method") != "tasks/get":
        server.taken += 1

    try:
        if message.get("method") == "tools/call":
            return await _called(server, message, request)

        said: list[JsonObject] = []

        async def say(answer: JsonObject) -> None:
            said.append(answer)

        await server.take(message, say)
    except BrokenError as broken:
        return await _broken(str(broken), request)

    if not said:
        return web.Response(status=202)

    headers = {}
    if message["method"] == "initialize":
        headers["Mcp-Session-Id"] = "session-0123456789abcdef"

    body = compact(said[0])
    return web.Response(body=body, content_type="application/json", headers=headers)


async def _called(
    server: ProbedServer, message: JsonObject, request: web.Request
) -> web.StreamResponse:
    """Answer a call: with a stream from the first question on that is pushed, or at once."""
    response = web.StreamResponse()

    async def say(said: JsonObject) -> None:
        nonlocal response
        if "method" not in said and not response.prepared:
            response = web.Response(body=compact(said), content_type="application/json")
            return

        if not response.prepared:
            response.content_type = "text/event-stream"
            await response.prepare(request)

        await response.write(event(said))

    await server.take(message, say)
    return response


async def _broken(way: str, request: web.Request) -> web.StreamResponse:
    if way in _STATUSES:
        return web.Response(status=_STATUSES[way], text="refused")

    if way == "hang":
        await asyncio.Event().wait()

    transport = request.transport
    assert transport is not None
    transport.abort()

    return web.Response()


@dataclass
class Probed:
    """All servers of one form, with each fault and without, at one port."""

    form: str
    origin: str
    servers: dict[str, ProbedServer]

    def url(self, name: str) -> str:
        """Return the URL of the server with a fault, or of one without."""
        return f"{self.origin}/{name}/mcp"


@asynccontextmanager
async def probed(form: str) -> AsyncIterator[Probed]:
    """Serve it with each fault that its form can have, and without one."""
    app = web.Application()
    servers: dict[str, ProbedServer] = {}
    for name in [*TWINS[form], *(fault.name for fault in faults_of(form))]:
        servers[name] = SERVERS[form](name)

    async def post(request: web.Request) -> web.StreamResponse:
        return await _post(servers[request.match_info["name"]], request)

    app.router.add_post("/{name}/mcp", post)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        yield Probed(form, f"http://127.0.0.1:{runner.addresses[0][1]}", servers)
    finally:
        await runner.cleanup()


# What is recorded of it


ANSWERS: dict[str, JsonObject] = {
    "deploy": {"confirm": True},
    "wipe": {"confirm": True},
    "release": {"approve": True, "window": "night"},
    "order": {"amount": 3, "colour": "red"},
    "resize": {"reason": "busy evening"},
    "survey": {"name": "Ada", "mail": "ada@example.com"},
    "signin": {"#1": {"action": "accept"}},
}
"""What a client enters, by tool."""


async def record(
    servers: Probed, cassette: Path, calls: Sequence[tuple[str, JsonObject]]
) -> None:
    """Record calls whose questions are all accepted; somebody has visited a page that is named."""
    servers.servers["good"].visits = 1
    upstream = servers.url("good")
    async with recording(upstream, cassette, RecordOptions()) as recording_run:
        for tool, arguments in calls:
            answers = ANSWERS[tool]
            ended = await asyncio.to_thread(
                call, recording_run.url, tool, arguments, answers=answers
            )
            assert ended.problem is None, ended
            assert not (ended.result or {"isError": True})["isError"], ended

    servers.servers["good"].visits = 0
    servers.servers["good"].taken = 0
