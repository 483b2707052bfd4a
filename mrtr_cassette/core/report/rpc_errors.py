"""The JSON-RPC errors that a client gets from the proxy itself.

Source: JSON-RPC 2.0, sections 4 and 5.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, Kind
from mrtr_cassette.core.wire.http import Request

MISS_CODE = -32010
"""A miss."""

UPSTREAM_CODE = -32011
"""The upstream gave no response."""

UNRECORDED_CODE = -32012
"""A request that the cassette lacks could not be recorded."""


def error_body(call: Call, code: int, message: str, data: Mapping[str, Any] | None = None) -> bytes:
    """Return a JSON-RPC error with the id of a call; null where the call has none."""
    request = call.message
    is_request = request is not None and request.kind is Kind.REQUEST
    identity = request.spelled(ID_PATH) if request is not None and is_request else None
    return error_with_id(identity, code, message, data)


def error_with_id(
    identity: bytes | None, code: int, message: str, data: Mapping[str, Any] | None = None
) -> bytes:
    """Return a JSON-RPC error with an id as it is spelled; null for None."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return b'{"jsonrpc":"2.0","id":%s,"error":%s}' % (identity or b"null", orjson.dumps(error))


def upstream_error_body(request: Request, problem: str) -> bytes:
    """Return the JSON-RPC error that a client gets when the upstream gave no response."""
    return error_body(read_call(request), UPSTREAM_CODE, problem)
