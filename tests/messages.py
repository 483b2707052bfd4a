"""The messages of MCP that all tests speak in, as JSON values, and their bytes."""

# ruff: noqa: A002  JSON-RPC calls it `id`

from __future__ import annotations

import json
from typing import Any

Json = Any
JsonObject = dict[str, Any]

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
CLIENT_KEY = "io.modelcontextprotocol/clientInfo"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
CAPABLE: JsonObject = {
    VERSION_KEY: "2026-07-28",
    CAPABILITIES_KEY: {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {},
        "roots": {},
    },
}
"""The `_meta` of a client that can be asked for everything."""

YES: JsonObject = {"action": "accept", "content": {"ok": True}}
NO: JsonObject = {"action": "decline"}


def compact(value: Json) -> bytes:
    """Spell JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


# Messages


def message(method: str, params: Json = None, *, id: Json = 1) -> JsonObject:
    """Make a JSON-RPC request; one without an id is a notification."""
    made: JsonObject = {"jsonrpc": "2.0"}
    if id is not None:
        made["id"] = id

    made["method"] = method
    if params is not None:
        made["params"] = params

    return made


def tool_call(name: str, *, id: Json = 1, **params: Json) -> JsonObject:
    """Make a `tools/call` request; `params` are all but the name, `arguments` among them."""
    return message("tools/call", {"name": name, **params}, id=id)


def result(value: Json, *, id: Json = 1) -> JsonObject:
    """Make a JSON-RPC response."""
    return {"jsonrpc": "2.0", "id": id, "result": value}


def input_required(
    *keys: str, state: str | None = None, id: Json = 1, **more: Json
) -> JsonObject:
    """Make a JSON-RPC response whose result `asks`; `more` are other members of the result."""
    return result(asks(*keys, state=state) | more, id=id)


# What stands under `result`, and what users answer


def form(words: str = "Are you sure?") -> JsonObject:
    """Make a form elicitation, one of the `inputRequests`."""
    return {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": words},
    }


def asks(*keys: str, state: str | None = None, words: str = "") -> JsonObject:
    """Make an input-required result that asks a form under each key, in these words or its own."""
    made: JsonObject = {"resultType": "input_required"}
    if keys:
        made["inputRequests"] = {key: form(words or f"{key}?") for key in keys}

    if state is not None:
        made["requestState"] = state

    return made


def array_asks(*keys: str, state: str) -> JsonObject:
    """Make an input-required result of the array dialect."""
    requests = [{"id": key, "kind": "string", "description": f"{key}?"} for key in keys]
    return {"inputRequests": requests, "requestState": state}


def text(words: str) -> JsonObject:
    """Make a final result."""
    return {"resultType": "complete", "content": [{"type": "text", "text": words}]}


def yes(*keys: str) -> JsonObject:
    """Make answers that accept, each with its key as content."""
    return {key: {"action": "accept", "content": {key: True}} for key in keys}
