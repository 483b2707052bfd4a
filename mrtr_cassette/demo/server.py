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

__all__ = ["create_app", "main", "serve"]

HOST = "127.0.0.1"
JsonObject: TypeAlias = dict[str, Any]
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602


class RpcError(Exception):
    """A JSON-RPC error on its way to the client."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.status = 404 if code == METHOD_NOT_FOUND else 400
        self.error = {"code": code, "message": text}


def _schema_of(properties: Mapping[str, JsonObject]) -> JsonObject:
    """Return the JSON Schema of an object that requires all these properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def _text_block(text: str) -> JsonObject:
    """Return a text as a content block."""
    return {"type": "text", "text": text}


Question: TypeAlias = tuple[str, str]
"""The kind of an input that is asked for, and a message: a template over the arguments."""

FORMS: dict[str, type] = {"boolean": bool, "string": str}
"""The kinds that are a form with one field, which has the question's key and this JSON type."""


def _input_request(key: str, kind: str, text: str) -> JsonObject:
    """Return the input request for a question; a form has a single field, `key`."""
    if kind == "roots":
        return {"method": "roots/list", "params": {}}

    if kind == "sampling":
        message = {"role": "user", "content": _text_block(text)}
        params: JsonObject = {"messages": [message], "maxTokens": 200}
        return {"method": "sampling/createMessage", "params": params}

    if kind in FORMS:
        params = {
            "mode": "form",
            "message": text,
            "requestedSchema": _schema_of({key: {"type": kind}}),
        }
    else:
        params = {
            "mode": "url",
            "message": text,
            "url": "https://example.com/auth",
        }

    return {"method": "elicitation/create", "params": params}


def _agreement_and_text(key: str, kind: str, answer: JsonObject) -> tuple[bool, str]:
    """Tell whether the client agreed, and what it answered, as text."""
    if "action" not in answer:
        items = answer.get("roots") or [answer["content"]]
        texts = [item.get("uri") or item["text"] for item in items]
        return True, " ".join(texts)

    action = answer["action"]
    value = answer.get("content", {}).get(key)
    is_valid = action == "accept" and isinstance(value, FORMS.get(kind, NoneType))
    agrees = is_valid and value is not False
    if kind == "string" and agrees:
        return True, value
    if action == "accept" and not agrees:
        return False, "refuse"

    return agrees, action


# The tools, prompts and resources.

STRING: JsonObject = {"type": "string"}
COUNT: JsonObject = {"type": "integer", "minimum": 0, "maximum": 1000}
NUMBER: JsonObject = {"type": "number", "minimum": -1e300, "maximum": 1e300}


def _confirming_round(text: str) -> dict[str, Question]:
    """Return a round with one yes-or-no question."""
    return {"confirm": ("boolean", text)}


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
        done=lambda known_values: str(known_values["a"] + known_values["b"]),
        parameters={"a": NUMBER, "b": NUMBER},
    ),
    "deploy": Offer(
        done="Deployed to {env}".format_map,
        refused="Deployment cancelled",
        rounds=[_confirming_round("Deploy to {env}?")],
        parameters={"env": STRING},
    ),
    "tag-release": Offer(
        done="Tagged {tag}".format_map,
        refused="Tagging cancelled by the operator",
        rounds=[_confirming_round("Tag {tag}?")],
        parameters={"tag": STRING},
        fails=True,
    ),
    "provision": Offer(
        done="Provisioned {name} in {region}".format_map,
        refused="Provisioning cancelled",
        rounds=[
            {
                "name": ("string", "Database name?"),
                "region": ("string", "Which region?"),
            }
        ],
    ),
    "wipe-cache": Offer(
        done="Wiped {scope}".format_map,
        refused="Wiping cancelled",
        rounds=[
            _confirming_round("Really wipe the cache?"),
            {"scope": ("string", "Which scope?")},
        ],
        has_state=True,
    ),
    "release-train": Offer(
        done="Train {version}: {window}, {notes}".format_map,
        refused="Train {version} cancelled",
        rounds=[
            {"approve": ("boolean", "Approve train {version}?")},
            {"window": ("string", "Which window?")},
            {"notes": ("string", "Any notes?")},
        ],
        parameters={"version": STRING},
        has_state=True,
    ),
    "everything": Offer(
        done=(
            "confirm {confirm}, signin {signin}, summary {summary}, roots {roots}"
        ).format_map,
        rounds=[
            {
                "confirm": ("boolean", "Continue?"),
                "signin": ("url", "Sign in to continue"),
                "summary": ("sampling", "Summarize the diff"),
                "roots": ("roots", ""),
            }
        ],
        has_state=True,
    ),
    "build": Offer(
        done="Built {target}".format_map,
        rounds=[{}],
        parameters={"target": STRING},
        has_state=True,
    ),
    "count": Offer(
        done="Counted to {to}".format_map,
        parameters={"to": COUNT},
        progress="to",
    ),
    "ask-late": Offer(
        done="Done after {steps}".format_map,
        refused="Stopped after {steps}",
        rounds=[_confirming_round("Finish after {steps}?")],
        parameters={"steps": COUNT},
        has_state=True,
        progress="steps",
    ),
}
PROMPTS = {
    "release-notes": Offer(
        done="Notes on {version} for {audience}".format_map,
        refused="Notes on {version} for everyone",
        rounds=[{"audience": ("string", "Who reads the notes?")}],
        parameters={"version": STRING},
    )
}
RESOURCES = {
    "config://deployment": Offer(
        done="replicas: 3".format_map,
        refused="withheld",
        rounds=[_confirming_round("Reveal the deployment configuration?")],
    ),
    "config://plain": Offer(done="plain".format_map),
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


def _fixed_results() -> dict[str, JsonObject]:
    """Return the results that are always the same, by method."""
    discovered: JsonObject = {
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
    }

    tools = []
    for name, offer in TOOLS.items():
        tools.append({"name": name, "inputSchema": _schema_of(offer.parameters)})

    prompts = []
    for name, offer in PROMPTS.items():
        arguments = []
        for parameter in offer.parameters:
            arguments.append({"name": parameter, "required": True})

        prompts.append({"name": name, "arguments": arguments})

    resources = []
    for uri in RESOURCES:
        name = uri.partition("://")[2]
        resources.append({"uri": uri, "name": name})

    return {
        "ping": {},
        "server/discover": CACHEABLE | discovered,
        "tools/list": CACHEABLE | {"tools": tools},
        "prompts/list": CACHEABLE | {"prompts": prompts},
        "resources/list": CACHEABLE | {"resources": resources},
        "resources/templates/list": CACHEABLE | {"resourceTemplates": []},
    }


FIXED_RESULTS = _fixed_results()


class CallEnd(NamedTuple):
    """The end of a call, with the text of its result or error."""

    text: str
    is_error: bool = False


def _result_of_ended_call(method: str, name: str, call_end: CallEnd) -> JsonObject:
    """Return the result of a call that has ended, in the form of its method."""
    if method == "tools/call":
        return {
            "content": [_text_block(call_end.text)],
            "isError": call_end.is_error,
        }

    if method == "prompts/get":
        message = {"role": "user", "content": _text_block(call_end.text)}
        return {"messages": [message]}

    content = {
        "uri": name,
        "mimeType": "text/plain",
        "text": call_end.text,
    }
    return {"contents": [content], **CACHEABLE}


def _progress_notifications(token: object, steps: int) -> list[JsonObject]:
    """Return a notification for every step; none if the client sent no progress token."""
    if token is None:
        return []

    notifications: list[JsonObject] = []
    for step in range(1, steps + 1):
        params = {
            "progressToken": token,
            "progress": step,
            "total": steps,
            "message": f"step {step}",
        }

        notification = {
            "jsonrpc": "2.0",
            "method": "notifications/progress",
            "params": params,
        }
        notifications.append(notification)

    return notifications


def _read_message(body: bytes) -> JsonObject:
    """Return the JSON-RPC message in a request's body, or raise the error to answer with."""
    try:
        message = orjson.loads(body)
    except ValueError:
        raise RpcError(PARSE_ERROR, "Parse error") from None

    invalid_request = RpcError(
        INVALID_REQUEST, "Not a JSON-RPC request or notification"
    )
    if not isinstance(message, dict):
        raise invalid_request
    if not isinstance(message.get("method"), str):
        raise invalid_request
    if type(message.get("id", 0)) not in {int, str}:
        raise invalid_request

    return {"jsonrpc": "2.0", **message}


class CallProgress(NamedTuple):
    """How far a call is that may be asked for more input."""

    call: bytes
    """Its method, name and arguments; a retry has the same."""

    turn: int
    """How many rounds are answered."""

    known_values: JsonObject
    """The arguments and the answers."""


class DemoServer:
    """Answers JSON-RPC messages; holds how far the calls are whose states it issued."""

    def __init__(self) -> None:
        self._progress_by_state: dict[str, CallProgress] = {}

    async def post(self, request: web.Request) -> web.StreamResponse:
        """Answer one message, as JSON or as a stream."""
        message: JsonObject = {}
        status = 200
        notifications = None
        try:
            message = _read_message(await request.read())
            if "id" not in message:
                return web.Response(status=202)

            params = message.get("params", {})
            result, notifications = self._answer_request(message["method"], params)
            outcome: JsonObject = {"result": {**result, "_meta": SERVER_META}}
        except RpcError as error:
            status = error.status
            outcome = {"error": error.error}
        except (AttributeError, KeyError, TypeError):
            invalid_params = RpcError(INVALID_PARAMS, "Invalid params")
            status = invalid_params.status
            outcome = {"error": invalid_params.error}

        response = {"jsonrpc": "2.0", "id": message.get("id"), **outcome}
        if notifications is not None:
            return await _stream_messages(request, [*notifications, response])

        return web.Response(
            body=orjson.dumps(response),
            status=status,
            content_type="application/json",
        )

    def _answer_request(
        self, method: str, params: JsonObject
    ) -> tuple[JsonObject, list[JsonObject] | None]:
        """Return the result and, if it is streamed, the notifications that come before it."""
        if method in FIXED_RESULTS:
            return {"resultType": "complete", **FIXED_RESULTS[method]}, None
        if method not in METHODS:
            raise RpcError(METHOD_NOT_FOUND, f"Method not found: {method}")

        named_by, offers = METHODS[method]
        name = params[named_by]
        arguments = params.get("arguments", {})
        if name not in offers:
            kind = method.partition("s/")[0]
            raise RpcError(INVALID_PARAMS, f"Unknown {kind}: {name}")

        offer = offers[name]
        notifications = None
        if offer.progress is not None:
            steps = min(arguments[offer.progress], COUNT["maximum"])
            token = params.get("_meta", {}).get("progressToken")
            notifications = _progress_notifications(token, steps)

        call = orjson.dumps([method, name, arguments], option=orjson.OPT_SORT_KEYS)
        call_progress = self._progress_of_call(
            call, arguments, params.get("requestState")
        )
        outcome = self._advance_call(offer, call_progress, params)
        if isinstance(outcome, CallEnd):
            result = _result_of_ended_call(method, name, outcome)
            return {"resultType": "complete", **result}, notifications

        return {"resultType": "input_required", **outcome}, notifications

    def _progress_of_call(
        self, call: bytes, arguments: JsonObject, state: str | None
    ) -> CallProgress:
        """Return how far a call is that comes with a state, or without."""
        if state is None:
            return CallProgress(call, 0, arguments)

        call_progress = self._progress_by_state.get(state)
        if call_progress is None or call_progress.call != call:
            raise RpcError(INVALID_PARAMS, "Invalid or expired requestState")

        return call_progress

    def _advance_call(
        self, offer: Offer, call_progress: CallProgress, params: JsonObject
    ) -> CallEnd | JsonObject:
        """Return how the call ends, or what is asked next."""
        answers_read = None
        # Answers that come without the state of their questions answer nothing.
        has_state = params.get("requestState") is not None
        is_retry = has_state or not offer.has_state
        if is_retry and call_progress.turn < len(offer.rounds):
            questions = offer.rounds[call_progress.turn]
            answers_read = _read_answers(questions, params.get("inputResponses", {}))

        if answers_read is not None:
            agrees, texts = answers_read
            known_texts = call_progress.known_values | texts
            if offer.refused is not None and not agrees:
                return CallEnd(offer.refused.format_map(known_texts), offer.fails)

            call_progress = CallProgress(
                call_progress.call, call_progress.turn + 1, known_texts
            )

        if call_progress.turn == len(offer.rounds):
            return CallEnd(offer.done(call_progress.known_values))

        return self._ask_next_round(offer, call_progress)

    def _ask_next_round(self, offer: Offer, call_progress: CallProgress) -> JsonObject:
        """Return what the next round asks."""
        result: JsonObject = {}
        requests = {}
        for key, (kind, template) in offer.rounds[call_progress.turn].items():
            text = template.format_map(call_progress.known_values)
            requests[key] = _input_request(key, kind, text)

        if requests:
            result["inputRequests"] = requests

        if offer.has_state:
            token = secrets.token_urlsafe(48)
            result["requestState"] = token
            self._progress_by_state[token] = call_progress

        return result


async def _stream_messages(
    request: web.Request, messages: Sequence[JsonObject]
) -> web.StreamResponse:
    """Send messages as server-sent events, and return the response that they make up."""
    stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await stream.prepare(request)
    for message in messages:
        data = orjson.dumps(message)
        await stream.write(b"event: message\ndata: " + data + b"\n\n")

    return stream


def _read_answers(
    questions: Mapping[str, Question], answers: Mapping[str, JsonObject]
) -> tuple[bool, dict[str, str]] | None:
    """Tell whether the client agreed to all, and what it answered; None if an answer is missing."""
    if not questions.keys() <= answers.keys():
        return None

    agrees_to_all = True
    texts = {}
    for key, (kind, _) in questions.items():
        agrees, texts[key] = _agreement_and_text(key, kind, answers[key])
        agrees_to_all = agrees_to_all and agrees

    return agrees_to_all, texts


def create_app() -> web.Application:
    """Make the application that serves POST /mcp."""
    app = web.Application()
    app.router.add_post("/mcp", DemoServer().post)
    return app


def main() -> None:
    """Serve on the port that the command line names."""
    parser = argparse.ArgumentParser(description="A small MCP server that asks back.")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free port")
    serve(parser.parse_args().port)


def serve(port: int) -> None:
    """Serve on the loopback address until SIGINT or SIGTERM; port 0 takes a free one."""
    try:
        listening_socket = socket.create_server((HOST, port))
    except OSError as error:
        sys.exit(
            f"cannot listen on port {port}: {error.strerror}; port 0 takes a free one"
        )

    print(
        f"listening on http://{HOST}:{listening_socket.getsockname()[1]}/mcp",
        flush=True,
    )
    web.run_app(create_app(), sock=listening_socket, access_log=None, print=None)


if __name__ == "__main__":
    main()
