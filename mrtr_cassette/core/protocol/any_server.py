"""What any server answers to a request that was not recorded, such as a ping."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from mrtr_cassette.core.protocol.calls import Call, resumed_event_id
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message
from mrtr_cassette.core.protocol.methods import DISCOVER, INITIALIZE, PING
from mrtr_cassette.core.wire.http import (
    ACCEPTED,
    EVENT_STREAM,
    JSON_HEADERS,
    SESSION_HEADER,
    Headers,
)

_METHOD_NOT_FOUND_ERROR: Final = b'"error":{"code":-32601,"message":"Method not found"}'
"""A refusal of `server/discover` that clients take for a server of the 2025 era."""


class HarmlessReply(NamedTuple):
    """A request that was not recorded, and the HTTP answer of any server, also in a few words."""

    call: Call
    status: int
    headers: Headers
    body: bytes
    answer: str


def reply_without_body(call: Call, status: int, headers: Headers = ()) -> HarmlessReply:
    """Return an answer without a body."""
    return HarmlessReply(call, status, headers, b"", str(status))


def json_rpc_reply(call: Call, outcome: bytes, answer: str) -> HarmlessReply:
    """Return a JSON-RPC response with the id of a request."""
    spelled_id = b"null"
    if call.message is not None:
        spelled_id = call.message.spelled_id or spelled_id

    body = b'{"jsonrpc":"2.0","id":%b,%b}' % (spelled_id, outcome)
    return HarmlessReply(call, 200, JSON_HEADERS, body, answer)


def answer_of_any_server(
    call: Call, recorded: Collection[tuple[str, str]], *, lacks_session: bool
) -> HarmlessReply | None:
    """Return what every server answers to a request that was not recorded, or None.

    To one that lacks the session which the server wants, most of this is no answer.

    Args:
        recorded: the endpoints and the methods of the calls that were recorded.
    """
    message = call.message
    endpoints = {endpoint for endpoint, _ in recorded}
    if message is None:
        path = call.endpoint.partition(" ")[2].partition("?")[0]
        if call.request.method == "GET" and "/.well-known/" in path:
            return reply_without_body(call, 404)
        if lacks_session:
            return None
        return _answer_to_no_message(call, endpoints)

    if call.endpoint not in endpoints:
        return None
    if lacks_session and message.method != DISCOVER:
        return None

    has_initialize = (call.endpoint, INITIALIZE) in recorded
    return _answer_to_message(call, message, initializes=has_initialize)


def _answer_to_no_message(
    call: Call, endpoints: Collection[str]
) -> HarmlessReply | None:
    """Return what every server answers to a request of HTTP itself, such as an end of a session."""
    http_method, _, path = call.endpoint.partition(" ")
    if f"POST {path}" not in endpoints:
        return None
    if http_method == "DELETE" and call.request.header(SESSION_HEADER):
        return reply_without_body(call, 204)

    wants_stream = EVENT_STREAM in call.request.header("accept")
    is_new = call.endpoint not in endpoints and not resumed_event_id(call.request)
    if http_method == "GET" and wants_stream and is_new:
        return reply_without_body(call, 405, (("Allow", "POST, DELETE"),))

    return None


def _answer_to_message(
    call: Call, message: Message, *, initializes: bool
) -> HarmlessReply | None:
    """Return what every server answers to a message; `initializes` is one of the 2025 era."""
    if message.kind is Kind.NOTIFICATION:
        if message.method.startswith("notifications/"):
            return reply_without_body(call, ACCEPTED)
        return None

    if message.kind is not Kind.REQUEST:
        return None
    if message.method == PING:
        return json_rpc_reply(call, b'"result":{}', "{}")
    if message.method == DISCOVER and initializes:
        return json_rpc_reply(call, _METHOD_NOT_FOUND_ERROR, "Method not found")

    return None
