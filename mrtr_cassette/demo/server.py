"""A small MCP server whose calls require input, for the demo and for tests without an SDK."""

# Source: MCP 2026-07-28, server features and "Multi Round-Trip Requests" (SEP-2322).

from __future__ import annotations

import argparse
import base64
import hmac
import json
import secrets
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import NoneType
from typing import Any, NamedTuple, TypeAlias

from aiohttp import web

__all__ = ["create_app", "main"]

HOST = "127.0.0.1"
VERSION = "2026-07-28"
META = "io.modelcontextprotocol/"
LIFETIME_S = 600.0
"""Seconds for which a request state is good."""
JsonObject: TypeAlias = dict[str, Any]
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602


class RpcError(Exception):
    """A JSON-RPC error on its way to the client."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.status = 404 if code == METHOD_NOT_FOUND else 400
        self.error = {"code": code, "message": text}


def _object_of(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _schema_of(properties: Mapping[str, JsonObject]) -> JsonObject:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _dump(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # A lone surrogate has no UTF-8, but its backslash form is its JSON escape.
    return text.encode(errors="backslashreplace")


def _parse(body: bytes) -> JsonObject:
    try:
        # NaN and Infinity are no JSON; int() refuses them.
        message = _object_of(json.loads(body.decode(), parse_constant=int))
    except (ValueError, RecursionError):
        raise RpcError(PARSE_ERROR, "Parse error") from None
    is_rpc = message.get("jsonrpc") == "2.0" and isinstance(message.get("method"), str)
    if not is_rpc or type(message.get("id", 0)) not in {int, str}:
        raise RpcError(INVALID_REQUEST, "Not a JSON-RPC request or notification")
    return message


# The kinds of input that the server can require of a client.


class InputKind(NamedTuple):
    """The request for one kind of input, and what a form holds."""

    method: str
    params: Callable[[str, str], JsonObject]
    holds: type = NoneType

    def __call__(self, **messages: str) -> InputRound:
        """Make the requests of one round by key; a message is a template over the arguments."""
        return {key: (self, message) for key, message in messages.items()}

    def read(self, key: str, answer: JsonObject) -> tuple[bool, str]:
        """Tell whether the client agreed, and what it answered, as text."""
        if self.method != "elicitation/create":
            given = answer.get("roots", answer.get("content"))
            items = map(_object_of, given if isinstance(given, list) else [given])
            return True, " ".join(str(item.get("uri", item.get("text", ""))) for item in items)
        action, value = answer.get("action"), _object_of(answer.get("content")).get(key)
        if action != "accept" or not isinstance(value, self.holds):
            return False, str(action)
        return value is not False, value if isinstance(value, str) else str(action)


InputRound: TypeAlias = dict[str, tuple[InputKind, str]]


def _form(json_type: str, key: str, text: str) -> JsonObject:
    schema = _schema_of({key: {"type": json_type}})
    return {"mode": "form", "message": text, "requestedSchema": schema}


def _link(_key: str, text: str) -> JsonObject:
    return {"mode": "url", "message": text, "url": "https://example.com/auth"}


def _sampling(_key: str, text: str) -> JsonObject:
    return {"messages": [{"role": "user", "content": _text(text)}], "maxTokens": 200}


YES_NO = InputKind("elicitation/create", partial(_form, "boolean"), bool)
TEXT = InputKind("elicitation/create", partial(_form, "string"), str)
LINK = InputKind("elicitation/create", _link)
SAMPLING = InputKind("sampling/createMessage", _sampling)
ROOTS = InputKind("roots/list", lambda _key, _message: {})

# The tools, prompts and resources.


class Completed(NamedTuple):
    """How a call ends."""

    text: str
    is_error: bool = False


STRING: JsonObject = {"type": "string"}
COUNT: JsonObject = {"type": "integer", "minimum": 0, "maximum": 1000}
NUMBER: JsonObject = {"type": "number", "minimum": -1e300, "maximum": 1e300}
TYPES = {"string": str, "integer": int, "number": int | float}


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool, prompt or resource: it asks its rounds one after another, and then says `done`."""

    done: Callable[[JsonObject], str]
    """Makes the result's text of the arguments and the answers."""
    refused: str | None = None
    """A template of the text that a refusal ends the call with; None: it is any answer."""
    rounds: tuple[InputRound, ...] = ()
    parameters: Mapping[str, JsonObject] = field(default_factory=dict)
    signed: bool = False
    """Asks carry a request state; two rounds cannot do without."""
    fails: bool = False
    """A refusal is a tool error."""
    progress: str | None = None
    """The argument that says how many steps are streamed."""

    def outcome(
        self, arguments: JsonObject, answers: JsonObject, state: JsonObject | None
    ) -> Completed | JsonObject:
        """Return how the call ends, or the state with which the next round is asked."""
        turn, known = (state["turn"], state["known"]) if state else (0, {})
        # Answers that come without the state of their questions answer nothing.
        is_asked = turn < len(self.rounds) and (state is not None or not self.signed)
        if is_asked and self.rounds[turn].keys() <= answers.keys():
            asked = self.rounds[turn].items()
            read = {key: kind.read(key, answers[key]) for key, (kind, _) in asked}
            known = known | {key: text for key, (_, text) in read.items()}
            if self.refused is not None and not all(agreed for agreed, _ in read.values()):
                return Completed(self.refused.format_map(arguments | known), self.fails)
            turn += 1
        if turn < len(self.rounds):
            return {"turn": turn, "known": known}
        return Completed(self.done(arguments | known))

    def check(self, arguments: JsonObject) -> None:
        """Raise an `RpcError` where an argument is missing, or of another type than declared."""
        for key, schema in self.parameters.items():
            value: Any = arguments.get(key)
            is_valid = isinstance(value, TYPES[schema["type"]])
            if is_valid and schema is not STRING:
                is_valid = schema["minimum"] <= value <= schema["maximum"]
            if not is_valid:
                raise RpcError(INVALID_PARAMS, f"Invalid argument {key!r}")


TOOLS = {
    "add": Offer(lambda known: str(known["a"] + known["b"]), parameters={"a": NUMBER, "b": NUMBER}),
    "deploy": Offer(
        "Deployed to {env}".format_map,
        "Deployment cancelled",
        (YES_NO(confirm="Deploy to {env}?"),),
        {"env": STRING},
    ),
    "tag-release": Offer(
        "Tagged {tag}".format_map,
        "Tagging cancelled by the operator",
        (YES_NO(confirm="Tag {tag}?"),),
        {"tag": STRING},
        fails=True,
    ),
    "provision": Offer(
        "Provisioned {name} in {region}".format_map,
        "Provisioning cancelled",
        (TEXT(name="Database name?", region="Which region?"),),
    ),
    "wipe-cache": Offer(
        "Wiped {scope}".format_map,
        "Wiping cancelled",
        (YES_NO(confirm="Really wipe the cache?"), TEXT(scope="Which scope?")),
        signed=True,
    ),
    "release-train": Offer(
        "Train {version}: {window}, {notes}".format_map,
        "Train {version} cancelled",
        (
            YES_NO(approve="Approve train {version}?"),
            TEXT(window="Which window?"),
            TEXT(notes="Any notes?"),
        ),
        {"version": STRING},
        signed=True,
    ),
    "everything": Offer(
        "confirm {confirm}, signin {signin}, summary {summary}, roots {roots}".format_map,
        rounds=(
            YES_NO(confirm="Continue?")
            | LINK(signin="Sign in to continue")
            | SAMPLING(summary="Summarize the diff")
            | ROOTS(roots=""),
        ),
        signed=True,
    ),
    "build": Offer(
        "Built {target}".format_map, rounds=({},), parameters={"target": STRING}, signed=True
    ),
    "count": Offer("Counted to {to}".format_map, parameters={"to": COUNT}, progress="to"),
    "ask-late": Offer(
        "Done after {steps}".format_map,
        "Stopped after {steps}",
        (YES_NO(confirm="Finish after {steps}?"),),
        {"steps": COUNT},
        signed=True,
        progress="steps",
    ),
}
PROMPTS = {
    "release-notes": Offer(
        "Notes on {version} for {audience}".format_map,
        "Notes on {version} for everyone",
        (TEXT(audience="Who reads the notes?"),),
        {"version": STRING},
    )
}
RESOURCES = {
    "config://deployment": Offer(
        "replicas: 3".format_map,
        "withheld",
        (YES_NO(confirm="Reveal the deployment configuration?"),),
    ),
    "config://plain": Offer("plain".format_map),
}

# The methods.

SERVER_META: JsonObject = {META + "serverInfo": {"name": "mrtr-cassette-demo", "version": "1.0.0"}}
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
        "supportedVersions": [VERSION],
        "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
    },
    "tools/list": CACHEABLE
    | {"tools": [{"name": k, "inputSchema": _schema_of(o.parameters)} for k, o in TOOLS.items()]},
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


def _result(method: str, name: str, end: Completed) -> JsonObject:
    if method == "tools/call":
        return {"content": [_text(end.text)], "isError": end.is_error}
    if method == "prompts/get":
        return {"messages": [{"role": "user", "content": _text(end.text)}]}
    return {"contents": [{"uri": name, "mimeType": "text/plain", "text": end.text}]} | CACHEABLE


def _progress(token: object, steps: int) -> list[JsonObject]:
    if type(token) not in {int, str}:
        return []
    message: JsonObject = {"jsonrpc": "2.0", "method": "notifications/progress"}
    told = {"progressToken": token}
    return [
        {**message, "params": {**told, "progress": n, "total": steps, "message": f"step {n}"}}
        for n in range(1, steps + 1)
    ]


class DemoServer:
    """Answers JSON-RPC messages; holds nothing but the key of its request states."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    async def post(self, request: web.Request) -> web.StreamResponse:
        """Answer one message, as JSON or as a stream."""
        message: JsonObject = {"jsonrpc": "2.0"}
        status, progress = 200, None
        try:
            message = _parse(await request.read())
            if "id" not in message:
                return web.Response(status=202)
            params = _object_of(message.get("params"))
            result, progress = self._answer(message["method"], params)
            outcome: JsonObject = {"result": {**result, "_meta": SERVER_META}}
        except RpcError as error:
            status, outcome = error.status, {"error": error.error}
        response = {key: message[key] for key in ("jsonrpc", "id") if key in message} | outcome
        if progress is None:
            body = _dump(response)
            return web.Response(body=body, status=status, content_type="application/json")
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        for event in (*progress, response):
            await stream.write(b"event: message\ndata: " + _dump(event) + b"\n\n")
        return stream

    def _answer(
        self, method: str, params: JsonObject
    ) -> tuple[JsonObject, list[JsonObject] | None]:
        """Return the result and, where it is streamed, the notifications that go before it."""
        if method in FIXED_RESULTS:
            return {"resultType": "complete", **FIXED_RESULTS[method]}, None
        if method not in METHODS:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")
        key, offers = METHODS[method]
        if (name := str(params.get(key))) not in offers:
            raise RpcError(INVALID_PARAMS, f"Unknown {method.partition('s/')[0]}: {name}")
        offer, meta = offers[name], _object_of(params.get("_meta"))
        arguments = _object_of(params.get("arguments"))
        offer.check(arguments)
        call = json.dumps([method, name, arguments], sort_keys=True)
        token = params.get("requestState")
        state = None if token is None else self._open(call, token)
        answers = {k: _object_of(v) for k, v in _object_of(params.get("inputResponses")).items()}
        outcome = offer.outcome(arguments, answers, state)
        progress = None
        if offer.progress is not None:
            progress = _progress(meta.get("progressToken"), arguments[offer.progress])
        if isinstance(outcome, Completed):
            return {"resultType": "complete", **_result(method, name, outcome)}, progress
        asked: JsonObject = {"resultType": "input_required"}
        if questions := offer.rounds[outcome["turn"]]:
            asked["inputRequests"] = {
                k: {"method": kind.method, "params": kind.params(k, text.format_map(arguments))}
                for k, (kind, text) in questions.items()
            }
        if offer.signed:
            asked["requestState"] = self._sign(call, outcome)
        return asked, progress

    def _sign(self, call: str, state: JsonObject) -> str:
        """Return a request state: readable, not to be altered, and another one each time."""
        fields = [secrets.token_hex(8), time.monotonic() + LIFETIME_S, state]
        payload = base64.urlsafe_b64encode(_dump(fields)).decode()
        return f"{payload}.{self._mac(call, payload)}"

    def _open(self, call: str, request_state: object) -> JsonObject:
        """Return the state that was signed for the same call, while it is good."""
        payload, _, mac = str(request_state).rpartition(".")
        if hmac.compare_digest(_dump(mac), _dump(self._mac(call, payload))):
            _, expires, state = json.loads(base64.urlsafe_b64decode(payload))
            if time.monotonic() < expires:
                return _object_of(state)
        raise RpcError(INVALID_PARAMS, "Invalid or expired requestState")

    def _mac(self, call: str, payload: str) -> str:
        return hmac.digest(self._key, _dump([call, payload]), "sha256").hex()


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
        sys.exit(f"cannot listen on port {port}: {error.strerror}; --port 0 takes a free one")
    print(f"listening on http://{HOST}:{listening.getsockname()[1]}/mcp", flush=True)
    web.run_app(create_app(), sock=listening, access_log=None, print=None)


if __name__ == "__main__":
    main()
