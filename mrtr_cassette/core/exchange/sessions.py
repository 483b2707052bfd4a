"""Which session an exchange belongs to, and which streams tell what others caused.

Owns: finding session ids, as cassettes and journals have them, in headers, URLs and events.
Does not own: sessions in a replay (`replay`), what stands for a session id (`secrets.surrogates`).
Rule: a client without a session shares the one session that has no id.
Source: MCP 2025-11-25, "Session Management"; MCP 2024-11-05, "HTTP with SSE".
"""

from __future__ import annotations

from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.secrets.surrogates import SEALED_HASH, SESSION_SURROGATE_IN_TEXT
from mrtr_cassette.core.wire.http import SESSION_HEADER, Request, Response, header_value
from mrtr_cassette.core.wire.lines import opens_channel
from mrtr_cassette.core.wire.sse import read_event

NO_SESSION = ""
"""The session of all clients that have none."""


def session_of(request: Request) -> str:
    """Return the id of the session in which a recorded request was sent."""
    return header_value(request.headers, SESSION_HEADER) or session_in(request.target)


def session_in(text: str) -> str:
    """Return the session id that stands in a URL of a recording."""
    match = SESSION_SURROGATE_IN_TEXT.search(text) or SEALED_HASH.search(text)
    return NO_SESSION if match is None else match[0].replace("%3A", ":")


def opened_session(response: Response | None) -> str:
    """Return the id of the session that a recorded response opens.

    It stands in a header, or in the URL to which the client shall post.
    """
    if response is None:
        return NO_SESSION
    session = header_value(response.headers, SESSION_HEADER)
    if session or not (response.is_event_stream and response.pieces):
        return session
    endpoint = endpoint_in(response.pieces[0].raw)
    return NO_SESSION if endpoint is None else session_in(endpoint.decode("latin-1"))


def endpoint_in(first_event: bytes) -> bytes | None:
    """Return the URL to which a client of HTTP+SSE shall post, or None for any other event."""
    if b"event: endpoint" not in first_event and b"event:endpoint" not in first_event:
        return None
    return read_event(first_event, first=True).data


def listens(call: Call, response: Response | None) -> bool:
    """Tell whether the response to a request is a stream that tells what other requests caused."""
    if call.message is None:
        is_stream = response is not None and response.is_event_stream
        return (call.request.method == "GET" and is_stream) or opens_channel(call.request)
    return call.message.kind is Kind.REQUEST and call.method == "subscriptions/listen"
