"""Pass requests on under other ids and progress tokens, and responses back under the client's.

    python tests/conformance/other_ids.py UPSTREAM

The suite numbers its requests in the same way every time; a replay behind this sees ids that were
never recorded.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any
from urllib.parse import urlsplit

from aiohttp import ClientSession, ClientTimeout, web

BEYOND = 1_000_000
PREFIX = "other-"
NUMBER = re.compile(
    rb'("(?:id|requestId|progressToken|[^"]*/subscriptionId)"\s*:\s*"?)(1\d{6})\b'
)
TEXT = re.compile(rb'(:\s*")other-')
NOT_PASSED_ON = {"content-length", "transfer-encoding", "connection", "keep-alive"}
LONGEST_LINE = 1024 * 1024


def renamed(value: object) -> object:
    """Return another id of the same kind; null stays."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value + BEYOND
    return PREFIX + value if isinstance(value, str) else value


def under_other_ids(message: Any) -> Any:
    """Rename the id and the progress token of a request, and the request that is cancelled."""
    if isinstance(message, list):
        return [under_other_ids(part) for part in message]
    if not isinstance(message, dict) or "method" not in message:
        return message

    if "id" in message:
        message["id"] = renamed(message["id"])

    params = message.get("params")
    if isinstance(params, dict):
        if "requestId" in params:
            params["requestId"] = renamed(params["requestId"])

        meta = params.get("_meta")
        if isinstance(meta, dict) and "progressToken" in meta:
            meta["progressToken"] = renamed(meta["progressToken"])

    return message


def request_body(body: bytes) -> bytes:
    """Return a body under other ids; one that is not JSON stays."""
    try:
        message = json.loads(body)
    except ValueError:
        return body

    return json.dumps(under_other_ids(message)).encode()


def response_part(text: bytes) -> bytes:
    """Return part of a response under the client's ids."""
    text = NUMBER.sub(lambda found: found[1] + b"%d" % (int(found[2]) - BEYOND), text)
    return TEXT.sub(rb"\1", text)


async def pass_on(request: web.Request) -> web.StreamResponse:
    """Send a request to the upstream, and its response back as it arrives."""
    app = request.app
    headers = [
        (name, value)
        for name, value in request.headers.items()
        if name.lower() not in NOT_PASSED_ON
    ]

    body = request_body(await request.read())
    url = app[UPSTREAM] + request.path_qs
    async with app[CLIENT].request(
        request.method, url, headers=headers, data=body, allow_redirects=False
    ) as answer:
        response = web.StreamResponse(status=answer.status, reason=answer.reason)
        for name, value in answer.headers.items():
            if name.lower() not in NOT_PASSED_ON:
                response.headers.add(name, value)

        await response.prepare(request)
        if answer.content_type == "text/event-stream":
            async for line in answer.content:
                await response.write(response_part(line))
        else:
            await response.write(response_part(await answer.read()))

        await response.write_eof()
        return response


UPSTREAM = web.AppKey("UPSTREAM", str)
CLIENT = web.AppKey("CLIENT", ClientSession)


async def make_app() -> web.Application:
    """Return the application in front of an upstream."""
    app = web.Application()
    address = urlsplit(sys.argv[1])
    app[UPSTREAM] = f"{address.scheme}://{address.netloc}"
    app[CLIENT] = ClientSession(
        timeout=ClientTimeout(),
        auto_decompress=False,
        read_bufsize=LONGEST_LINE,
        skip_auto_headers=["Accept", "Accept-Encoding", "Content-Type", "User-Agent"],
    )

    app.router.add_route("*", "/{path:.*}", pass_on)

    return app


async def serve() -> web.Application:
    """Say where it listens once it does."""
    app = await make_app()

    async def close(_: web.Application) -> None:
        await app[CLIENT].close()

    app.on_cleanup.append(close)
    return app


def main() -> None:
    """Listen at a free port until SIGTERM."""
    from processes import free_port

    port = free_port()
    web.run_app(
        serve(),
        host="127.0.0.1",
        port=port,
        handler_cancellation=True,
        print=lambda _: print(f"listening on http://127.0.0.1:{port}/mcp", flush=True),
    )


if __name__ == "__main__":
    main()
