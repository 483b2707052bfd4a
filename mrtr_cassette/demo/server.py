"""A small MCP server that asks back, for the demo and for tests that want no SDK.

Owns: what its tools, prompts and resources answer, how their request state is signed, and the
errors that a 2026-07-28 server owes its client. Knows nothing of recording or replay.
Law: a flow is a pure function of (arguments, answers, state). What a later round needs of an
earlier one travels in the signed state; the server remembers nothing.
`_meta` may be left out, for the sake of curl; who declares no capability is asked nothing.
Source: MCP 2026-07-28, server features and "Multi Round-Trip Requests" (SEP-2322).
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hmac
import json
import secrets
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import NoneType
from typing import Any, NamedTuple, TypeAlias

from aiohttp import web

__all__ = ["create_app", "main"]

JsonObject: TypeAlias = dict[str, Any]
HOST = "127.0.0.1"
VERSION = "2026-07-28"
META = "io.modelcontextprotocol/"
SERVER_META: JsonObject = {META + "serverInfo": {"name": "mrtr-cassette-demo", "version": "1.0.0"}}
# Stale at once: a client that caches would keep repeated calls off the wire.
CACHEABLE: JsonObject = {"ttlMs": 0, "cacheScope": "public"}
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32020, -32021, -32022


class RpcError(Exception):
    """A JSON-RPC error on its way to the client."""

    def __init__(self, code: int, text: str, data: JsonObject | None = None) -> None:
        super().__init__(text)
        self.status = 404 if code == METHOD_NOT_FOUND else 400
        self.error = {"code": code, "message": text} | ({"data": data} if data else {})


def _object(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _schema(properties: Mapping[str, JsonObject]) -> JsonObject:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


# --- Questions: the kinds of input that the server can require. ---


class Kind(NamedTuple):
    """A kind of input: what it needs of the client, how it is put, what an accepted form holds."""

    method: str
    needs: JsonObject
    params: Callable[[str, str], JsonObject]
    holds: type = NoneType

    def __call__(self, **messages: str) -> Round:
        """Make the questions of a round; a message is a template over the arguments."""
        return {key: (self, message) for key, message in messages.items()}

    def read(self, key: str, answer: JsonObject) -> tuple[bool, str]:
        """Say whether the client went along, and what it answered, as text."""
        if self.method != "elicitation/create":
            found = answer.get("roots", answer.get("content"))
            items = map(_object, found if isinstance(found, list) else [found])
            return True, " ".join(str(item.get("uri", item.get("text", ""))) for item in items)
        action, value = answer.get("action"), _object(answer.get("content")).get(key)
        if action != "accept" or not isinstance(value, self.holds):
            return False, str(action)
        return value is not False, value if isinstance(value, str) else str(action)


Round: TypeAlias = dict[str, tuple[Kind, str]]


def _form(json_type: str, key: str, text: str) -> JsonObject:
    return {"mode": "form", "message": text, "requestedSchema": _schema({key: {"type": json_type}})}


def _link(_key: str, text: str) -> JsonObject:
    return {"mode": "url", "message": text, "url": "https://example.com/auth"}


def _sampling(_key: str, text: str) -> JsonObject:
    return {"messages": [{"role": "user", "content": _text(text)}], "maxTokens": 200}


YES_NO = Kind("elicitation/create", {"elicitation": {"form": {}}}, partial(_form, "boolean"), bool)
TEXT = Kind("elicitation/create", {"elicitation": {"form": {}}}, partial(_form, "string"), str)
LINK = Kind("elicitation/create", {"elicitation": {"url": {}}}, _link)
SAMPLING = Kind("sampling/createMessage", {"sampling": {}}, _sampling)
ROOTS = Kind("roots/list", {"roots": {}}, lambda _key, _text: {})


# --- Flows: what a call leads to. ---


class Ask(NamedTuple):
    """The call requires input; the state is signed and sent along, `None` sends none."""

    questions: Round
    state: JsonObject | None


class Reply(NamedTuple):
    """The call is complete."""

    text: str
    is_error: bool = False


Flow: TypeAlias = Callable[[JsonObject, JsonObject, JsonObject | None], Ask | Reply]


def _add(arguments: JsonObject, _answers: JsonObject, _state: JsonObject | None) -> Reply:
    return Reply(str(arguments["a"] + arguments["b"]))


def _rounds(
    done: str, refused: str | None, *rounds: Round, signed: bool = False, fails: bool = False
) -> Flow:
    """Make the flow that puts `rounds` one after another and then says `done`.

    `done` and `refused` are templates over the arguments and the answers. A refusal ends the call
    with `refused`, as a tool error if it `fails`; where there is no text for it, it is an answer
    like any other. `signed` asks carry a request state; two rounds cannot do without.
    """

    def flow(arguments: JsonObject, answers: JsonObject, state: JsonObject | None) -> Ask | Reply:
        turn, known = (state["turn"], state["known"]) if state else (0, {})
        # Answers that come without the state of their questions answer nothing.
        is_asked = turn < len(rounds) and (state is not None or not signed)
        if is_asked and rounds[turn].keys() <= answers.keys():
            read = {key: kind.read(key, answers[key]) for key, (kind, _) in rounds[turn].items()}
            known = known | {key: text for key, (_, text) in read.items()}
            if refused is not None and not all(agreed for agreed, _ in read.values()):
                return Reply(refused.format_map(arguments | known), fails)
            turn += 1
        if turn < len(rounds):
            return Ask(rounds[turn], {"turn": turn, "known": known} if signed else None)
        return Reply(done.format_map(arguments | known))

    return flow


_deploy = _rounds("Deployed to {env}", "Deployment cancelled", YES_NO(confirm="Deploy to {env}?"))
_tag_release = _rounds(
    "Tagged {tag}", "Tagging cancelled by the operator", YES_NO(confirm="Tag {tag}?"), fails=True
)
_provision = _rounds(
    "Provisioned {name} in {region}",
    "Provisioning cancelled",
    TEXT(name="Database name?", region="Which region?"),
)
_wipe_cache = _rounds(
    "Wiped {scope}",
    "Wiping cancelled",
    YES_NO(confirm="Really wipe the cache?"),
    TEXT(scope="Which scope?"),
    signed=True,
)
_release_train = _rounds(
    "Train {version}: {window}, {notes}",
    "Train {version} cancelled",
    YES_NO(approve="Approve train {version}?"),
    TEXT(window="Which window?"),
    TEXT(notes="Any notes?"),
    signed=True,
)
_everything = _rounds(
    "confirm {confirm}, signin {signin}, summary {summary}, roots {roots}",
    None,
    YES_NO(confirm="Continue?")
    | LINK(signin="Sign in to continue")
    | SAMPLING(summary="Summarize the diff")
    | ROOTS(roots=""),
    signed=True,
)
_build = _rounds("Built {target}", None, {}, signed=True)
_count = _rounds("Counted to {to}", None)
_ask_late = _rounds(
    "Done after {steps}",
    "Stopped after {steps}",
    YES_NO(confirm="Finish after {steps}?"),
    signed=True,
)
_release_notes = _rounds(
    "Notes on {version} for {audience}",
    "Notes on {version} for everyone",
    TEXT(audience="Who reads the notes?"),
)
_deployment = _rounds(
    "replicas: 3", "withheld", YES_NO(confirm="Reveal the deployment configuration?")
)
_plain = _rounds("plain", None)


# --- Offers: what there is to call, get and read. ---


class Offer(NamedTuple):
    """A tool, prompt or resource; with `progress`, it streams that argument's number of steps."""

    flow: Flow
    parameters: Mapping[str, JsonObject] = {}
    progress: str | None = None


STRING: JsonObject = {"type": "string"}
COUNT: JsonObject = {"type": "integer", "minimum": 0, "maximum": 1000}
# Within these bounds every sum is finite and can be written down.
NUMBER: JsonObject = {"type": "number", "minimum": -1e300, "maximum": 1e300}

TOOLS: dict[str, Offer] = {
    "add": Offer(_add, {"a": NUMBER, "b": NUMBER}),
    "deploy": Offer(_deploy, {"env": STRING}),
    "tag-release": Offer(_tag_release, {"tag": STRING}),
    "provision": Offer(_provision),
    "wipe-cache": Offer(_wipe_cache),
    "release-train": Offer(_release_train, {"version": STRING}),
    "everything": Offer(_everything),
    "build": Offer(_build, {"target": STRING}),
    "count": Offer(_count, {"to": COUNT}, progress="to"),
    "ask-late": Offer(_ask_late, {"steps": COUNT}, progress="steps"),
}
PROMPTS: dict[str, Offer] = {"release-notes": Offer(_release_notes, {"version": STRING})}
RESOURCES: dict[str, Offer] = {
    "config://deployment": Offer(_deployment),
    "config://plain": Offer(_plain),
}


def _arguments(offer: Offer, given: JsonObject) -> JsonObject:
    whole: JsonObject = {}
    for key, schema in offer.parameters.items():
        value = given.get(key)
        if schema is STRING:
            is_valid = isinstance(value, str)
        else:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            is_valid = is_number and schema["minimum"] <= value <= schema["maximum"]
        if is_valid and isinstance(value, float) and schema is COUNT:
            is_valid, whole[key] = value.is_integer(), int(value)
        if not is_valid:
            raise RpcError(INVALID_PARAMS, f"Invalid argument {key!r}", {"schema": schema})
    return given | whole


# --- Methods: those that run a flow, and those whose result never changes. ---


class Method(NamedTuple):
    """A method that runs a flow: the param that names the offer, the table, the result's shape."""

    key: str
    offers: Mapping[str, Offer]
    result: Callable[[str, Reply], JsonObject]


def _tool_result(_name: str, reply: Reply) -> JsonObject:
    return {"content": [_text(reply.text)], "isError": reply.is_error}


def _prompt_result(_name: str, reply: Reply) -> JsonObject:
    return {"messages": [{"role": "user", "content": _text(reply.text)}]}


def _resource_result(uri: str, reply: Reply) -> JsonObject:
    return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": reply.text}], **CACHEABLE}


METHODS: dict[str, Method] = {
    "tools/call": Method("name", TOOLS, _tool_result),
    "prompts/get": Method("name", PROMPTS, _prompt_result),
    "resources/read": Method("uri", RESOURCES, _resource_result),
}
FIXED_RESULTS: dict[str, JsonObject] = {
    "ping": {},
    "server/discover": CACHEABLE
    | {
        "supportedVersions": [VERSION],
        "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
    },
    "tools/list": CACHEABLE
    | {"tools": [{"name": k, "inputSchema": _schema(o.parameters)} for k, o in TOOLS.items()]},
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


# --- The wire: what a request must be, and how it is answered. ---


def _dump(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # A lone surrogate has no UTF-8, but its backslash form is its JSON escape.
    return text.encode(errors="backslashreplace")


def _parse(body: bytes) -> JsonObject:
    try:
        # NaN and Infinity are no JSON; int() refuses them.
        message = _object(json.loads(body.decode(), parse_constant=int))
    except (ValueError, RecursionError):
        raise RpcError(PARSE_ERROR, "Parse error") from None
    is_rpc = message.get("jsonrpc") == "2.0" and isinstance(message.get("method"), str)
    if not is_rpc or type(message.get("id", 0)) not in {int, str}:
        raise RpcError(INVALID_REQUEST, "Not a JSON-RPC request or notification")
    return message


def _header_value(text: str) -> str | None:
    if not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    try:
        return base64.b64decode(text[len("=?base64?") : -len("?=")], validate=True).decode()
    except ValueError:
        return None


def _check_envelope(headers: Mapping[str, str], method: str, params: JsonObject) -> None:
    version = _object(params.get("_meta")).get(META + "protocolVersion", VERSION)
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


def _check_capabilities(questions: Round, meta: JsonObject) -> None:
    declared = _object(meta.get(META + "clientCapabilities"))
    if declared.get("elicitation") == {}:
        # Who names no mode of elicitation means forms.
        declared = declared | {"elicitation": {"form": {}}}
    missing: JsonObject = {}
    for kind, _ in questions.values():
        for name, modes in kind.needs.items():
            if name not in declared or not modes.keys() <= _object(declared[name]).keys():
                missing[name] = missing.get(name, {}) | modes
    if missing:
        text = f"Server requires the {' and '.join(missing)} capability for this request"
        raise RpcError(MISSING_CAPABILITY, text, {"requiredCapabilities": missing})


def _progress(token: object, steps: int) -> list[JsonObject]:
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


class Seal:
    """Signs request states, each bound to one call and a time to live, with a key of its own."""

    def __init__(self, lifetime_s: float) -> None:
        self._key = secrets.token_bytes(32)
        self._lifetime_s = lifetime_s

    def sign(self, call: str, state: JsonObject) -> str:
        """Return the request state: readable, not to be altered, and another one each time."""
        fields = [secrets.token_hex(8), time.monotonic() + self._lifetime_s, state]
        payload = base64.urlsafe_b64encode(_dump(fields)).decode()
        return f"{payload}.{self._mac(call, payload)}"

    def open(self, call: str, request_state: object) -> JsonObject:
        """Return the state that `sign` put into `request_state` for the same call."""
        payload, _, mac = str(request_state).rpartition(".")
        if hmac.compare_digest(_dump(mac), _dump(self._mac(call, payload))):
            _, expires, state = json.loads(base64.urlsafe_b64decode(payload))
            if time.monotonic() < expires:
                return _object(state)
        raise RpcError(INVALID_PARAMS, "Invalid or expired requestState")

    def _mac(self, call: str, payload: str) -> str:
        return hmac.digest(self._key, _dump([call, payload]), "sha256").hex()


# The result and, where it is streamed, the notifications that go before it.
Answer: TypeAlias = tuple[JsonObject, list[JsonObject] | None]


class Server:
    """Answers JSON-RPC messages; holds nothing but the key of its request states."""

    def __init__(self, lifetime_s: float) -> None:
        self._seal = Seal(lifetime_s)

    async def post(self, request: web.Request) -> web.StreamResponse:
        """Answer one message, as JSON or as a stream."""
        message: JsonObject = {"jsonrpc": "2.0"}
        status, progress = 200, None
        try:
            message = _parse(await request.read())
            if "id" not in message:
                return web.Response(status=202)
            params = _object(message.get("params"))
            _check_envelope(request.headers, message["method"], params)
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

    def _answer(self, method: str, params: JsonObject) -> Answer:
        if method in FIXED_RESULTS:
            return {"resultType": "complete", **FIXED_RESULTS[method]}, None
        if method not in METHODS:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")
        key, offers, result = METHODS[method]
        if (name := str(params.get(key))) not in offers:
            raise RpcError(INVALID_PARAMS, f"Unknown {method.partition('s/')[0]}: {name}")
        offer, meta = offers[name], _object(params.get("_meta"))
        arguments = _arguments(offer, _object(params.get("arguments")))
        call = json.dumps([method, name, arguments], sort_keys=True)
        token = params.get("requestState")
        state = None if token is None else self._seal.open(call, token)
        answers = {k: _object(v) for k, v in _object(params.get("inputResponses")).items()}
        outcome = offer.flow(arguments, answers, state)
        progress = None
        if offer.progress is not None:
            progress = _progress(meta.get("progressToken"), arguments[offer.progress])
        if isinstance(outcome, Reply):
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
    app.router.add_post("/mcp", Server(lifetime_s).post)
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
    try:
        asyncio.run(_serve(parser.parse_args().port))
    except OSError as error:
        sys.exit(f"cannot listen on {HOST}: {error.strerror}")


if __name__ == "__main__":
    main()
