"""A small MCP server whose calls require input, for the demo and for tests without an SDK.

`_meta` may be left out, for the sake of curl; nothing is required of a client without capabilities.
Source: MCP 2026-07-28, server features and "Multi Round-Trip Requests" (SEP-2322).
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import errno
import json
import signal
import sys
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from aiohttp import web

from mrtr_cassette.demo.inputs import InputRound
from mrtr_cassette.demo.offers import PROMPTS, RESOURCES, TOOLS, Completed, Offer, checked_arguments
from mrtr_cassette.demo.rpc import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    UNSUPPORTED_VERSION,
    JsonObject,
    RpcError,
    dump,
    object_of,
    parse,
    schema_of,
    text_content,
)
from mrtr_cassette.demo.states import StateSigner

__all__ = ["create_app", "main"]

HOST = "127.0.0.1"
VERSION = "2026-07-28"
META = "io.modelcontextprotocol/"
SERVER_META: JsonObject = {META + "serverInfo": {"name": "mrtr-cassette-demo", "version": "1.0.0"}}
# Stale at once: a client that caches would keep repeated calls off the wire.
CACHEABLE: JsonObject = {"ttlMs": 0, "cacheScope": "public"}


class OfferMethod(NamedTuple):
    """A method that runs a flow: the param that names the offer, the table, the result's shape."""

    key: str
    offers: Mapping[str, Offer]
    result: Callable[[str, Completed], JsonObject]


def _tool_result(_name: str, reply: Completed) -> JsonObject:
    return {"content": [text_content(reply.text)], "isError": reply.is_error}


def _prompt_result(_name: str, reply: Completed) -> JsonObject:
    return {"messages": [{"role": "user", "content": text_content(reply.text)}]}


def _resource_result(uri: str, reply: Completed) -> JsonObject:
    return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": reply.text}], **CACHEABLE}


METHODS: dict[str, OfferMethod] = {
    "tools/call": OfferMethod("name", TOOLS, _tool_result),
    "prompts/get": OfferMethod("name", PROMPTS, _prompt_result),
    "resources/read": OfferMethod("uri", RESOURCES, _resource_result),
}
FIXED_RESULTS: dict[str, JsonObject] = {
    "ping": {},
    "server/discover": CACHEABLE
    | {
        "supportedVersions": [VERSION],
        "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
    },
    "tools/list": CACHEABLE
    | {"tools": [{"name": k, "inputSchema": schema_of(o.parameters)} for k, o in TOOLS.items()]},
    "prompts/list": CACHEABLE
    | {
        "prompts": [
            {"name": k, "arguments": [{"name": a, "required": True} for a in o.parameters]}
            for k, o in PROMPTS.items()
        ]
    },
    "resources/list": CACHEABLE
    | {"resources": [{"uri": k, "name": k.partition("://")[2]} for k in RESOURCES]},
    "resources/templates/list": CACHEABLE | {"resourceTemplates": []},
}


def _header_value(text: str) -> str | None:
    if not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    try:
        return base64.b64decode(text[len("=?base64?") : -len("?=")], validate=True).decode()
    except ValueError:
        return None


def _check_envelope(headers: Mapping[str, str], method: str, params: JsonObject) -> None:
    version = object_of(params.get("_meta")).get(META + "protocolVersion", VERSION)
    if version != VERSION:
        versions = {"supported": [VERSION], "requested": str(version)}
        raise RpcError(UNSUPPORTED_VERSION, "Unsupported protocol version", versions)
    name = params.get(METHODS[method].key) if method in METHODS else None
    expected = {"MCP-Protocol-Version": version, "Mcp-Method": method, "Mcp-Name": name}
    for header, value in expected.items():
        sent = headers.get(header)
        if value is not None and sent is not None and _header_value(sent) != value:
            text = f"{header} header value {sent!r} does not match body value {value!r}"
            raise RpcError(HEADER_MISMATCH, f"Header mismatch: {text}")


def _check_capabilities(questions: InputRound, meta: JsonObject) -> None:
    declared = object_of(meta.get(META + "clientCapabilities"))
    if declared.get("elicitation") == {}:
        # Who names no mode of elicitation means forms.
        declared = declared | {"elicitation": {"form": {}}}
    missing: JsonObject = {}
    for kind, _ in questions.values():
        for name, modes in kind.needs.items():
            if name not in declared or not modes.keys() <= object_of(declared[name]).keys():
                missing[name] = missing.get(name, {}) | modes
    if missing:
        text = f"Server requires the {' and '.join(missing)} capability for this request"
        raise RpcError(MISSING_CAPABILITY, text, {"requiredCapabilities": missing})


def _progress_notifications(token: object, steps: int) -> list[JsonObject]:
    if type(token) not in {int, str}:
        return []
    return [
        {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": {
                "progressToken": token,
                "progress": step,
                "total": steps,
                "message": f"step {step}",
            },
        }
        for step in range(1, steps + 1)
    ]


# The result and, where it is streamed, the notifications that go before it.
Answer: TypeAlias = tuple[JsonObject, list[JsonObject] | None]


class DemoServer:
    """Answers JSON-RPC messages; holds nothing but the key of its request states."""

    def __init__(self, lifetime_s: float) -> None:
        self._seal = StateSigner(lifetime_s)

    async def post(self, request: web.Request) -> web.StreamResponse:
        """Answer one message, as JSON or as a stream."""
        message: JsonObject = {"jsonrpc": "2.0"}
        status, progress = 200, None
        try:
            message = parse(await request.read())
            if "id" not in message:
                return web.Response(status=202)
            params = object_of(message.get("params"))
            _check_envelope(request.headers, message["method"], params)
            result, progress = self._answer(message["method"], params)
            outcome: JsonObject = {"result": {**result, "_meta": SERVER_META}}
        except RpcError as error:
            status, outcome = error.status, {"error": error.error}
        response = {key: message[key] for key in ("jsonrpc", "id") if key in message} | outcome
        if progress is None:
            body = dump(response)
            return web.Response(body=body, status=status, content_type="application/json")
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        for event in (*progress, response):
            await stream.write(b"event: message\ndata: " + dump(event) + b"\n\n")
        return stream

    def _answer(self, method: str, params: JsonObject) -> Answer:
        if method in FIXED_RESULTS:
            return {"resultType": "complete", **FIXED_RESULTS[method]}, None
        if method not in METHODS:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")
        key, offers, result = METHODS[method]
        if (name := str(params.get(key))) not in offers:
            raise RpcError(INVALID_PARAMS, f"Unknown {method.partition('s/')[0]}: {name}")
        offer, meta = offers[name], object_of(params.get("_meta"))
        arguments = checked_arguments(offer, object_of(params.get("arguments")))
        call = json.dumps([method, name, arguments], sort_keys=True)
        token = params.get("requestState")
        state = None if token is None else self._seal.open(call, token)
        answers = {k: object_of(v) for k, v in object_of(params.get("inputResponses")).items()}
        outcome = offer.flow(arguments, answers, state)
        progress = None
        if offer.progress is not None:
            progress = _progress_notifications(meta.get("progressToken"), arguments[offer.progress])
        if isinstance(outcome, Completed):
            return {"resultType": "complete", **result(name, outcome)}, progress
        _check_capabilities(outcome.questions, meta)
        asked: JsonObject = {"resultType": "input_required"}
        if outcome.questions:
            asked["inputRequests"] = {
                k: {"method": kind.method, "params": kind.params(k, text.format_map(arguments))}
                for k, (kind, text) in outcome.questions.items()
            }
        if outcome.state is not None:
            asked["requestState"] = self._seal.sign(call, outcome.state)
        return asked, progress


def create_app(*, lifetime_s: float = 600.0) -> web.Application:
    """Make the application that serves POST /mcp; a request state is good for `lifetime_s`."""
    app = web.Application()
    app.router.add_post("/mcp", DemoServer(lifetime_s).post)
    return app


async def _serve(port: int) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    runner = web.AppRunner(create_app(), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, HOST, port).start()
        print(f"listening on http://{HOST}:{runner.addresses[0][1]}/mcp", flush=True)
        await stopped.wait()
    finally:
        await runner.cleanup()


def main() -> None:
    """Serve on the loopback address until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(description="A small MCP server that asks back.")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free port")
    port = parser.parse_args().port
    try:
        asyncio.run(_serve(port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            sys.exit(f"port {port} is in use; choose another with --port, or 0 for a free one")
        sys.exit(f"cannot listen on {HOST}: {error.strerror}")


if __name__ == "__main__":
    main()
