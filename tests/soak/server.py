"""The demo server, and beside it answers in the framings that it has not.

    python tests/soak/server.py

`/chunked` answers with JSON of no announced length, `/zipped` with JSON and `/zipped-events` with
a stream, both compressed. A call's `size` argument says how much text comes back.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from aiohttp import web

from mrtr_cassette.demo.server import create_app

JSON = "application/json"
EVENTS = "text/event-stream"
PIECES = 7


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _answer(asked: dict[str, Any]) -> bytes:
    arguments = asked["params"]["arguments"]
    content = [{"type": "text", "text": arguments["marker"] + "z" * arguments["size"]}]
    result = {"resultType": "complete", "content": content, "isError": False}

    return _compact({"jsonrpc": "2.0", "id": asked["id"], "result": result})


def _cut(data: bytes) -> Iterator[bytes]:
    step = len(data) // PIECES + 1
    for at in range(0, len(data), step):
        yield data[at : at + step]


def _zipped(parts: list[bytes]) -> list[bytes]:
    deflate = zlib.compressobj(wbits=31)
    made = [deflate.compress(part) + deflate.flush(zlib.Z_SYNC_FLUSH) for part in parts]
    return [*made, deflate.flush()]


def _told(answer: bytes) -> list[bytes]:
    """Return a stream: notifications, then the response."""
    told = _compact({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
    return [b"data: %b\n\n" % data for data in (*[told] * PIECES, answer)]


def answering(
    *, streams: bool, zips: bool
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Return what answers in chunks, with JSON or a stream, perhaps compressed."""

    async def answer(request: web.Request) -> web.StreamResponse:
        body = _answer(await request.json())
        parts = _told(body) if streams else list(_cut(body))
        headers = {"Content-Type": EVENTS if streams else JSON}
        response = web.StreamResponse(
            headers=headers | ({"Content-Encoding": "gzip"} if zips else {})
        )
        await response.prepare(request)
        for part in _zipped(parts) if zips else parts:
            await response.write(part)

        await response.write_eof()
        return response

    return answer


async def _serve() -> None:
    app = create_app()
    app.router.add_post("/chunked", answering(streams=False, zips=False))
    app.router.add_post("/zipped", answering(streams=False, zips=True))
    app.router.add_post("/zipped-events", answering(streams=True, zips=True))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    print(f"listening on http://127.0.0.1:{runner.addresses[0][1]}/mcp", flush=True)  # noqa: T201
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve())
