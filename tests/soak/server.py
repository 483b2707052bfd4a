"""The demo server, and beside it answers in the framings that it has not.

    python tests/soak/server.py

`/chunked` answers with JSON of no announced length, `/zipped` with JSON and `/zipped-events` with
a stream, both compressed. A call's `size` argument says how much text comes back.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Iterator
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


async def _send(request: web.Request, parts: list[bytes], **headers: str) -> web.StreamResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = web.StreamResponse(headers=named)
    await response.prepare(request)
    for part in parts:
        await response.write(part)
    await response.write_eof()
    return response


def _zipped(parts: list[bytes]) -> list[bytes]:
    deflate = zlib.compressobj(wbits=31)
    made = [deflate.compress(part) + deflate.flush(zlib.Z_SYNC_FLUSH) for part in parts]
    return [*made, deflate.flush()]


async def chunked(request: web.Request) -> web.StreamResponse:
    """Answer with JSON in chunks."""
    return await _send(request, list(_cut(_answer(await request.json()))), Content_Type=JSON)


async def zipped(request: web.Request) -> web.StreamResponse:
    """Answer with compressed JSON in chunks."""
    parts = _zipped(list(_cut(_answer(await request.json()))))
    return await _send(request, parts, Content_Type=JSON, Content_Encoding="gzip")


async def zipped_events(request: web.Request) -> web.StreamResponse:
    """Answer with a compressed stream: notifications, then the response."""
    asked = await request.json()
    told = _compact({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
    events = [b"data: %b\n\n" % data for data in (*[told] * PIECES, _answer(asked))]
    return await _send(request, _zipped(events), Content_Type=EVENTS, Content_Encoding="gzip")


async def _serve() -> None:
    app = create_app()
    app.router.add_post("/chunked", chunked)
    app.router.add_post("/zipped", zipped)
    app.router.add_post("/zipped-events", zipped_events)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    print(f"listening on http://127.0.0.1:{runner.addresses[0][1]}/mcp", flush=True)  # noqa: T201
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve())
