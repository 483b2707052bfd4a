"""A small MCP server whose calls require input, for the demo and for tests without an SDK."""

# Source: MCP 2026-07-28, server features and "Multi Round-Trip Requests" (SEP-2322).

from __future__ import annotations

import argparse
import secrets
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
from typing import Any, NamedTuple, TypeAlias

import orjson
from aiohttp import web

__all__ = ["create_app", "main"]

HOST = "127.0.0.1"
JsonObject: TypeAlias = dict[str, Any]
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = (
    -32700,
    -32600,
    -32601,
    -32602,
)


class RpcError(Exception):
    """A JSON-RPC error on its way to the client."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.status = 404 if code == METHOD_NOT_FOUND else 400
        self.error = {"code": code, "message": text}


def _schema_of(properties: Mapping[str, JsonObject]) -> JsonObject:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


Question: TypeAlias = tuple[str, str]
"""The kind of an input that is asked for, and a message: a template over the arguments."""
FORMS: dict[str, type] = {"boolean": bool, "string": str}
"""The kinds that are a form with one field, which has the question's key and this JSON type."""


def _input_request(key: str, kind: str, text: str) -> JsonObject:
    if kind == "roots":
        return {"method": "roots/list", "params": {}}
    if kind == "sampling":
        message = {"role": "user", "content": _text(text)}
        params: JsonObject = {"messages": [message], "maxTokens": 200}
        return {"method": "sampling/createMessage", "params": params}
    params = {"mode": "url", "message": text, "url": "https://example.com/auth"}
    if kind in FORMS:
        schema = _schema_of({key: {"type": kind}})
        params = {"mode": "form", "message": text, "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def _answered(key: str, kind: str, answer: JsonObject) -> tuple[bool, str]:
    """Tell whether the client agreed, and what it answered, as text."""
    if "action" not in answer:
        items = answer.get("roots") or [answer["content"]]
        return True, " ".join(item.get("uri") or item["text"] for item in items)
    action, value = answer["action"], answer.get("content", {}).get(key)
    agrees = action == "accept" and isinstance(value, FORMS.get(kind, NoneType))
    return agrees and value is not False, value if isinstance(value, str) else action


# The tools, prompts and resources.

STRING: JsonObject = {"type": "string"}
COUNT: JsonObject = {"type": "integer", "minimum": 0, "maximum": 1000}
NUMBER: JsonObject = {"type": "number", "minimum": -1e300, "maximum": 1e300}


class Offer(NamedTuple):
    """A tool, prompt or resource: it asks its rounds one after another, and then says `done`."""

    done: Callable[[JsonObject], str]
    """Makes the result's text of the arguments and the answers."""
    refused: str | None = None
    """A template of the text that a refusal ends the call with; None: it is any answer."""
    rounds: Sequence[Mapping[str, Question]] = ()
    parameters: Mapping[str, JsonObject] = {}
    has_state: bool = False
    """Asks carry a request state; two rounds cannot do without."""
    fails: bool = False
    """A refusal is a tool error."""
    progress: str | None = None
    """The argument that says how many steps are streamed."""


TOOLS = {
    "add": Offer(
        lambda known: str(known["a"] + known["b"]),
        parameters={"a": NUMBER, "b": NUMBER},
    ),
    "deploy": Offer(
        "Deployed to {env}".format_map,
        "Deployment cancelled",
        [{"confirm": ("boolean", "Deploy to {env}?")}],
        {"env": STRING},
    ),
    "tag-release": Offer(
        "Tagged {tag}".format_map,
        "Tagging cancelled by the operator",
        [{"confirm": ("boolean", "Tag {tag}?")}],
        {"tag": STRING},
        fails=True,
    ),
    "provision": Offer(
        "Provisioned {name} in {region}".format_map,
        "Provisioning cancelled",
        [{"name": ("string", "Database name?"), "region": ("string", "Which region?")}],
    ),
    "wipe-cache": Offer(
        "Wiped {scope}".format_map,
        "Wiping cancelled",
        (
            {"confirm": ("boolean", "Really wipe the cache?")},
            {"scope": ("string", "Which scope?")},
        ),
        has_state=True,
    ),
    "release-train": Offer(
        "Train {version}: {window}, {notes}".format_map,
        "Train {version} cancelled",
        (
            {"approve": ("boolean", "Approve train {version}?")},
            {"window": ("string", "Which window?")},
            {"notes": ("string", "Any notes?")},
        ),
        {"version": STRING},
        has_state=True,
    ),
    "everything": Offer(
        "confirm {confirm}, signin {signin}, summary {summary}, roots {roots}".format_map,
        rounds=(
            {"confirm": ("boolean", "Continue?")}
            | {"signin": ("url", "Sign in to continue")}
            | {"summary": ("sampling", "Summarize the diff")}
            | {"roots": ("roots", "")},
        ),
        has_state=True,
    ),
    "build": Offer(
        "Built {target}".format_map,
        rounds=({},),
        parameters={"target": STRING},
        has_state=True,
    ),
    "count": Offer(
        "Counted to {to}".format_map, parameters={"to": COUNT}, progress="to"
    ),
    "ask-late": Offer(
        "Done after {steps}".format_map,
        "Stopped after {steps}",
        [{"confirm": ("boolean", "Finish after {steps}?")}],
        {"steps": COUNT},
        has_state=True,
        progress="steps",
    ),
}
PROMPTS = {
    "release-notes": Offer(
        "Notes on {version} for {audience}".format_map,
        "Notes on {version} for everyone",
        [{"audience": ("string", "Who reads the notes?")}],
        {"version": STRING},
    )
}
RESOURCES = {
    "config://deployment": Offer(
        "replicas: 3".format_map,
        "withheld",
        [{"confirm": ("boolean", "Reveal the deployment configuration?")}],
    ),
    "config://plain": Offer("plain".format_map),
}

# The methods.

SERVER_META: JsonObject = {
    "io.modelcontextprotocol/serverInfo": {
        "name": "mrtr-cassette-demo",
        "version": "1.0.0",
    }
}
# Stale at once: a client that caches would keep repeated calls off the wire.
CACHEABLE: JsonObject = {"ttlMs": 0, "cacheScope": "public"}


METHODS = {
    "tools/call": ("name", TOOLS),
    "prompts/get": ("name", PROMPTS),
    "resources/read": ("uri", RESOURCES),
}
"""By method: the param that names an offer, and the offers."""
FIXED_RESULTS: dict[str, JsonObject] = {
    "ping": {},
    "server/discover": CACHEABLE
    | {
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
    },
    "tools/list": CACHEABLE
    | {
        "tools": [
            {"name": k, "inputSchema": _schema_of(o.parameters)}
            for k, o in TOOLS.items()
        ]
    },
    "prompts/list": CACHEABLE
    | {
        "prompts": [
            {
                "name": k,
                "arguments": [{"name": a, "required": True} for a in o.parameters],
            }
            for k, o in PROMPTS.items()
        ]
    },
    "resources/list": CACHEABLE
    | {"resources": [{"uri": k, "name": k.partition("://")[2]} for k in RESOURCES]},
    "resources/templates/list": CACHEABLE | {"resourceTemplates": []},
}


def _result(method: str, name: str, text: str, is_error: bool) -> JsonObject:  # noqa: FBT001
    if method == "tools/call":
        return {"content": [_text(text)], "isError": is_error}
    if method == "prompts/get":
        return {"messages": [{"role": "user", "content": _text(text)}]}
    return {
        "contents": [{"uri": name, "mimeType": "text/plain", "text": text}]
    } | CACHEABLE


def _progress(token: object, steps: int) -> list[JsonObject]:
    message: JsonObject = {"jsonrpc": "2.0", "method": "notifications/progress"}
    told = [
        {"progress": n, "total": steps, "message": f"step {n}"}
        for n in range(1, steps + 1)
    ]
    return [
        {**message, "params": {"progressToken": token, **each}}
        for each in told
        if token is not None
    ]


def _read(body: bytes) -> JsonObject:
    try:
        message = orjson.loads(body)
    except ValueError:
        raise RpcError(PARSE_ERROR, "Parse error") from None
    is_object = isinstance(message, dict) and isinstance(message.get("method"), str)
    if not is_object or type(message.get("id", 0)) not in {int, str}:
        raise RpcError(INVALID_REQUEST, "Not a JSON-RPC request or notification")
    return {"jsonrpc": "2.0", **message}


class DemoServer:
    """Answers JSON-RPC messages; holds how far the calls are whose states it issued."""

    def __init__(self) -> None:
        self._issued: dict[str, tuple[bytes, int, JsonObject]] = {}

    async def post(self, request: web.Request) -> web.StreamResponse:
        """Answer one message, as JSON or as a stream."""
        message: JsonObject = {}
        status, progress = 200, None
        try:
            message = _read(await request.read())
            if "id" not in message:
                return web.Response(status=202)
            result, progress = self._answer(
                message["method"], message.get("params", {})
            )
            outcome: JsonObject = {"result": {**result, "_meta": SERVER_META}}
        except (AttributeError, KeyError, TypeError, RpcError) as error:
            invalid = RpcError(INVALID_PARAMS, "Invalid params")
            refused = error if isinstance(error, RpcError) else invalid
            status, outcome = refused.status, {"error": refused.error}
        response = {"jsonrpc": "2.0", "id": message.get("id"), **outcome}
        if progress is None:
            body = orjson.dumps(response)
            return web.Response(
                body=body, status=status, content_type="application/json"
            )
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        for event in (*progress, response):
            await stream.write(
                b"event: message\ndata: " + orjson.dumps(event) + b"\n\n"
            )
        return stream

    def _answer(
        self, method: str, params: JsonObject
    ) -> tuple[JsonObject, list[JsonObject] | None]:
        """Return the result and, where it is streamed, the notifications that go before it."""
        if method in FIXED_RESULTS:
            return {"resultType": "complete", **FIXED_RESULTS[method]}, None
        if method not in METHODS:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")
        named_by, offers = METHODS[method]
        name, arguments = params[named_by], params.get("arguments", {})
        if name not in offers:
            raise RpcError(
                INVALID_PARAMS, f"Unknown {method.partition('s/')[0]}: {name}"
            )
        offer, progress = offers[name], None
        if offer.progress is not None:
            steps = min(arguments[offer.progress], COUNT["maximum"])
            progress = _progress(params.get("_meta", {}).get("progressToken"), steps)
        call = orjson.dumps([method, name, arguments], option=orjson.OPT_SORT_KEYS)
        outcome = self._go_on(offer, call, arguments, params)
        if isinstance(outcome, dict):
            return {"resultType": "input_required", **outcome}, progress
        return {"resultType": "complete", **_result(method, name, *outcome)}, progress

    def _go_on(
        self, offer: Offer, call: bytes, arguments: JsonObject, params: JsonObject
    ) -> tuple[str, bool] | JsonObject:
        """Return the text of the result and whether it is an error, or what is asked next."""
        state, answers = params.get("requestState"), params.get("inputResponses", {})
        begun = (call, 0, arguments) if state is None else self._issued.get(state)
        if begun is None or begun[0] != call:
            raise RpcError(INVALID_PARAMS, "Invalid or expired requestState")
        _, turn, known = begun
        # Answers that come without the state of their questions answer nothing.
        is_retry = state is not None or not offer.has_state
        if (
            is_retry
            and turn < len(offer.rounds)
            and offer.rounds[turn].keys() <= answers.keys()
        ):
            asked = offer.rounds[turn].items()
            read = {key: _answered(key, kind, answers[key]) for key, (kind, _) in asked}
            known = known | {key: text for key, (_, text) in read.items()}
            if offer.refused is not None and not all(
                agrees for agrees, _ in read.values()
            ):
                return offer.refused.format_map(known), offer.fails
            turn += 1
        if turn == len(offer.rounds):
            return offer.done(known), False
        result: JsonObject = {}
        if questions := offer.rounds[turn]:
            result["inputRequests"] = {
                key: _input_request(key, kind, text.format_map(known))
                for key, (kind, text) in questions.items()
            }
        if offer.has_state:
            result["requestState"] = token = secrets.token_urlsafe(48)
            self._issued[token] = call, turn, known
        return result


def create_app() -> web.Application:
    """Make the application that serves POST /mcp."""
    app = web.Application()
    app.router.add_post("/mcp", DemoServer().post)
    return app


def main() -> None:
    """Serve on the loopback address until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(description="A small MCP server that asks back.")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free port")
    port = parser.parse_args().port
    try:
        listening = socket.create_server((HOST, port))
    except OSError as error:
        sys.exit(
            f"cannot listen on port {port}: {error.strerror}; --port 0 takes a free one"
        )
    print(f"listening on http://{HOST}:{listening.getsockname()[1]}/mcp", flush=True)
    web.run_app(create_app(), sock=listening, access_log=None, print=None)


if __name__ == "__main__":
    main()
