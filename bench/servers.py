"""The servers that the benchmark compares with, and the upstream of recordings.

    python bench/servers.py fixed | restamp | pass-through URL | upstream

`fixed`, `restamp` and `pass-through` run on the aiohttp and the event loop that the program runs
on. `upstream` writes to its socket directly: it must not be what a recording waits for.
Each listens on a free port and says so in one line.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import cache
from typing import cast

import aiohttp
import orjson
from aiohttp import web
from traffic import PATH, PLAIN, Incoming, Kind, asked

from mrtr_cassette.shell.runs.running import run

_PLACE = b"\x00"
"""Stands where the id will stand; no JSON has this byte."""
_HOP_BY_HOP = {"connection", "host", "keep-alive", "transfer-encoding"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def fixed(request: web.Request) -> web.Response:
    """Read the body and return the same bytes to everybody."""
    await request.read()
    return web.Response(body=_FIXED, content_type=PLAIN.content_type)


_FIXED = PLAIN.answer(b"0", b"0", 0)[0]


async def restamp(request: web.Request) -> web.Response:
    """Read the body, parse it, and put its id into the answer: what no replay can do without."""
    message = orjson.loads(await request.read())
    kind, answered = asked(message)
    body = orjson.dumps(message["id"]).join(_parts(kind, answered))
    return web.Response(body=body, content_type=kind.content_type)


@cache
def _parts(kind: Kind, answered: int) -> list[bytes]:
    return b"".join(kind.answer(_PLACE, b"0", answered)).split(_PLACE)


async def pass_through(upstream: str) -> Handler:
    """Return a proxy that passes on what comes and records nothing."""
    session = aiohttp.ClientSession(
        auto_decompress=False,
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
    )

    async def handle(request: web.Request) -> web.StreamResponse:
        kept = [
            pair
            for pair in request.headers.items()
            if pair[0].lower() not in _HOP_BY_HOP
        ]
        async with session.request(
            request.method,
            upstream + request.raw_path,
            headers=kept,
            data=await request.read(),
            allow_redirects=False,
        ) as answer:
            response = web.StreamResponse(status=answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in _HOP_BY_HOP:
                    response.headers.add(name, value)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    return handle


class Upstream(asyncio.Protocol):
    """Answers every kind of call, with the caller's own id and number."""

    def __init__(self) -> None:
        """Begin with nothing received."""
        self._incoming = Incoming()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer a request when it is whole."""
        whole = self._incoming.feed(data)
        if whole is None:
            return
        message = orjson.loads(whole[1])
        kind, answered = asked(message)
        number = message["params"]["arguments"]["number"]
        pieces = kind.answer(orjson.dumps(message["id"]), b"%d" % number, answered)
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind.content_type}\r\n"
        if not kind.events:
            head += f"Content-Length: {len(pieces[0])}\r\n\r\n"
            self._transport.write(head.encode() + pieces[0])
            return
        head += "Transfer-Encoding: chunked\r\n\r\n"
        first, *rest = (b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
        self._transport.write(head.encode() + first)
        if kind.rest_after_s:
            asyncio.get_running_loop().call_later(kind.rest_after_s, self._send, rest)
        else:
            self._send(rest)

    def _send(self, chunks: list[bytes]) -> None:
        for chunk in chunks:
            self._transport.write(chunk)
        self._transport.write(b"0\r\n\r\n")


async def _serve(role: str, upstream: str) -> None:
    if role == "upstream":
        server = await asyncio.get_running_loop().create_server(
            Upstream, "127.0.0.1", 0, backlog=1024
        )
        port = server.sockets[0].getsockname()[1]
    else:
        handler: Handler = {"fixed": fixed, "restamp": restamp}.get(
            role
        ) or await pass_through(upstream)
        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
        port = runner.addresses[0][1]
    print(f"listening on http://127.0.0.1:{port}{PATH}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    run(_serve(sys.argv[1], "".join(sys.argv[2:3]).removesuffix(PATH)))
