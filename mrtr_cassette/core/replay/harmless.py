"""Requests that were never recorded and that every server answers alike.

Rule: an answer depends on nothing that only the recorded server knew. What was recorded is played
and never answered from here.
Source: docs/matching.md, "Harmless requests".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from mrtr_cassette.core.protocol.calls import Call, resumed_event
from mrtr_cassette.core.protocol.jsonrpc import ID_PATH, Kind, Message
from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.wire.http import EVENT_STREAM, SESSION_HEADER, Headers

_JSON: Final[Headers] = (("Content-Type", "application/json"),)
_NO_METHOD: Final = b'"error":{"code":-32601,"message":"Method not found"}'
"""A refusal of `server/discover` that clients take for a server of the 2025 era."""


class Harmless(NamedTuple):
    """A request that was not recorded, and the answer of any server.

    Attributes:
        call: the request.
        status: the HTTP status of the answer.
        headers: its headers.
        body: its body.
        answer: what it says, in a few words.
    """

    call: Call
    status: int
    headers: Headers
    body: bytes
    answer: str


class HarmlessRequests:
    """What was recorded at each endpoint, as far as it decides which requests are harmless."""

    def __init__(self, playables: Iterable[Playable]) -> None:
        """Look at what was recorded."""
        self._methods: dict[str, set[str]] = {}
        for each in playables:
            if resumed_event(each.request):
                continue
            self._methods.setdefault(each.key.endpoint, set()).add(each.key.method)

    def answer_to(self, call: Call) -> Harmless | None:
        """Return what any server answers to a request; None where that depends on the server."""
        endpoint = call.endpoint
        if call.message is not None:
            methods = self._methods.get(endpoint)
            return None if methods is None else _answer_to_message(call, call.message, methods)
        http_method, _, path = endpoint.partition(" ")
        if http_method == "GET" and "/.well-known/" in path.partition("?")[0]:
            return Harmless(call, 404, (), b"", "404")
        if f"POST {path}" not in self._methods:
            return None
        if http_method == "DELETE" and call.request.header(SESSION_HEADER):
            return Harmless(call, 204, (), b"", "204")
        wants_stream = EVENT_STREAM in call.request.header("accept")
        wants_stream = wants_stream and not resumed_event(call.request)
        if http_method == "GET" and wants_stream and endpoint not in self._methods:
            return Harmless(call, 405, (("Allow", "POST, DELETE"),), b"", "405")
        return None


def _answer_to_message(call: Call, message: Message, methods: set[str]) -> Harmless | None:
    if message.kind is Kind.NOTIFICATION and message.method.startswith("notifications/"):
        return Harmless(call, 202, (), b"", "202")
    if message.kind is not Kind.REQUEST:
        return None
    if message.method == "ping":
        return Harmless(call, 200, _JSON, _response(message, b'"result":{}'), "{}")
    if message.method == "server/discover" and "initialize" in methods:
        body = _response(message, _NO_METHOD)
        return Harmless(call, 200, _JSON, body, "Method not found")
    return None


def _response(request: Message, outcome: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,%b}' % (request.spelled(ID_PATH) or b"null", outcome)
