"""JSON-RPC messages of MCP as JSON objects, and their bytes.

Does not own: whole requests and responses (`builders`, `standin`).
"""

# ruff: noqa: A002  JSON-RPC calls it `id`

from __future__ import annotations

import json
from typing import Any

JsonObject = dict[str, Any]


def compact(value: Any) -> bytes:
    """Spell JSON without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def message(method: str, params: Any = None, *, id: Any = 1) -> JsonObject:
    """Make a JSON-RPC request; one without an id is a notification."""
    made: JsonObject = {"jsonrpc": "2.0"}
    if id is not None:
        made["id"] = id
    made["method"] = method
    if params is not None:
        made["params"] = params
    return made


def tool(name: str, *, id: Any = 1, **params: Any) -> JsonObject:
    """Make a call of a tool without arguments; `params` are others of the request's params."""
    return message("tools/call", {"name": name, **params}, id=id)


def result(value: Any, *, id: Any = 1) -> JsonObject:
    """Make a JSON-RPC response."""
    return {"jsonrpc": "2.0", "id": id, "result": value}


def asks(state: str | None = None, *keys: str, id: Any = 1, **more: Any) -> JsonObject:
    """Make a response that requires input."""
    asked: JsonObject = {"resultType": "input_required"}
    if keys:
        asked["inputRequests"] = {
            key: {"method": "elicitation/create", "params": {"message": f"{key}?"}} for key in keys
        }
    if state is not None:
        asked["requestState"] = state
    return result(asked | more, id=id)


def yes(*keys: str) -> JsonObject:
    """Make answers that accept."""
    return {key: {"action": "accept", "content": {key: True}} for key in keys}


NO_ANSWER = {"action": "decline"}


META = "io.modelcontextprotocol/"
CAPABLE: JsonObject = {
    META + "protocolVersion": "2026-07-28",
    META + "clientCapabilities": {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {},
        "roots": {},
    },
}
