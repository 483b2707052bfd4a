"""JSON-RPC as the demo server speaks it: its errors, and the JSON that it reads and writes.

Source: JSON-RPC 2.0; MCP 2026-07-28, error codes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION = -32020, -32021, -32022


class RpcError(Exception):
    """A JSON-RPC error on its way to the client."""

    def __init__(self, code: int, text: str, data: JsonObject | None = None) -> None:
        super().__init__(text)
        self.status = 404 if code == METHOD_NOT_FOUND else 400
        self.error = {"code": code, "message": text} | ({"data": data} if data else {})


def object_of(value: object) -> JsonObject:
    """Return a JSON object as it is, and an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def schema_of(properties: Mapping[str, JsonObject]) -> JsonObject:
    """Return the schema of an object all of whose properties are required."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def text_content(text: str) -> JsonObject:
    """Return a content block."""
    return {"type": "text", "text": text}


def dump(value: object) -> bytes:
    """Return compact JSON."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # A lone surrogate has no UTF-8, but its backslash form is its JSON escape.
    return text.encode(errors="backslashreplace")


def parse(body: bytes) -> JsonObject:
    """Return the message that a body is.

    Raises:
        RpcError: it is no JSON, or neither a request nor a notification.
    """
    try:
        # NaN and Infinity are no JSON; int() refuses them.
        message = object_of(json.loads(body.decode(), parse_constant=int))
    except (ValueError, RecursionError):
        raise RpcError(PARSE_ERROR, "Parse error") from None
    is_rpc = message.get("jsonrpc") == "2.0" and isinstance(message.get("method"), str)
    if not is_rpc or type(message.get("id", 0)) not in {int, str}:
        raise RpcError(INVALID_REQUEST, "Not a JSON-RPC request or notification")
    return message
