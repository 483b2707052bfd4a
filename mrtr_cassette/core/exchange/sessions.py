"""Which session an exchange belongs to, and which streams tell what others caused.

Owns: which session a response opens, and which responses are listening streams.
Does not own: finding the session id of a request (`protocol.session_ids`), sessions in a replay
(`replay`).
Rule: a client without a session shares the one session that has no id.
Source: MCP 2025-11-25, "Session Management"; MCP 2024-11-05, "HTTP with SSE".
"""

from __future__ import annotations

from mrtr_cassette.core.protocol.calls import Call
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.session_ids import NO_SESSION, session_in, session_of
from mrtr_cassette.core.wire.http import SESSION_HEADER, Response, header_value
from mrtr_cassette.core.wire.lines import opens_channel
from mrtr_cassette.core.wire.sse import read_event

__all__ = ["NO_SESSION", "endpoint_in", "listens", "opened_session", "session_in", "session_of"]


def opened_session(response: Response | None) -> str:
    """Return the id of the session that a recorded response opens.

    It stands in a header, or in the URL that the client has to post to.
    """
    if response is None:
        return NO_SESSION
    session = header_value(response.headers, SESSION_HEADER)
    if session or not (response.is_event_stream and response.pieces):
        return session
    endpoint = endpoint_in(response.pieces[0].raw)
    return NO_SESSION if endpoint is None else session_in(endpoint.decode("latin-1"))


def endpoint_in(first_event: bytes) -> bytes | None:
    """Return the URL that a client of HTTP+SSE has to post to, or None for any other event."""
    if b"event: endpoint" not in first_event and b"event:endpoint" not in first_event:
        return None
    return read_event(first_event, first=True).data


def listens(call: Call, response: Response | None) -> bool:
    """Tell whether the response to a request is a stream that tells what other requests caused."""
    if call.message is None:
        is_stream = response is not None and response.is_event_stream
        return (call.request.method == "GET" and is_stream) or opens_channel(call.request)
    return call.message.kind is Kind.REQUEST and call.method == "subscriptions/listen"
