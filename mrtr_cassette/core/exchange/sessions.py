"""Which session an exchange belongs to, which streams tell what others caused, and who resumes one.

Rule: a client without a session shares the one session that has no id.
Source: MCP 2025-11-25, "Session Management", "Resumability and Redelivery"; MCP 2024-11-05, "HTTP
with SSE".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Generic, TypeVar

from mrtr_cassette.core.exchange.recorded import Cassette, RecordedExchange
from mrtr_cassette.core.protocol.calls import Call, resumed_event
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.messages import completed_by
from mrtr_cassette.core.protocol.session_ids import NO_SESSION, session_in, session_of
from mrtr_cassette.core.wire.http import SESSION_HEADER, Request, Response, header_value
from mrtr_cassette.core.wire.lines import opens_channel
from mrtr_cassette.core.wire.sse import event_id, read_event

E = TypeVar("E")

__all__ = [
    "NO_SESSION",
    "Streams",
    "endpoint_in",
    "ends_session",
    "event_ids",
    "is_answered",
    "listens",
    "opened_session",
    "rejoined",
    "session_in",
    "session_of",
]


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


def event_ids(response: Response | None) -> Iterator[tuple[int, str]]:
    """Yield the ids of a stream's events, each with the index of its piece."""
    if response is not None and response.is_event_stream:
        for index, piece in enumerate(response.pieces):
            identity = event_id(piece.raw)
            if identity:
                yield index, identity


def is_answered(response: Response) -> bool:
    """Tell whether a stream has the response to the request that it is in response to."""
    return any(
        (b'"result"' in piece.raw or b'"error"' in piece.raw)
        and (message := completed_by(response, index)) is not None
        and message.kind is Kind.RESPONSE
        for index, piece in reversed([*enumerate(response.pieces)])
    )


def ends_session(request: Request, response: Response | None) -> bool:
    """Tell whether a request ends its session; one that is refused ends nothing."""
    return request.method == "DELETE" and (response is None or response.status < 400)


def rejoined(cassette: Cassette) -> Cassette:
    """Return a cassette in which the response to a call goes on with what resumed its stream."""
    own = [exchange for interaction in cassette.interactions for exchange in interaction.own]
    streams = Streams[RecordedExchange]()
    whole: dict[RecordedExchange, Response] = {}
    for each in sorted(own, key=lambda each: each.number or 0):
        begun, rest = streams.add(each, each), each.response
        if begun is None or rest is None or not rest.is_event_stream or begun.response is None:
            continue
        if begun.call.message is not None:
            before = whole.get(begun, begun.response)
            had = {identity for _, identity in event_ids(before)}
            again = {index for index, identity in event_ids(rest) if identity in had}
            more = tuple([piece for at, piece in enumerate(rest.pieces) if at not in again])
            whole[begun] = replace(before, pieces=before.pieces + more, end=rest.end)
    if not whole:
        return cassette
    joined = {each: replace(each, response=response) for each, response in whole.items()}
    interactions = [
        replace(each, exchanges=tuple([joined.get(one, one) for one in each.exchanges]))
        for each in cassette.interactions
    ]
    return replace(cassette, interactions=tuple(interactions))


class Streams(Generic[E]):
    """The streams of a recording, by the ids of their events."""

    def __init__(self) -> None:
        """Begin with none."""
        self._begun: dict[tuple[str, str], E] = {}

    def add(self, exchange: RecordedExchange, known_as: E) -> E | None:
        """Take the next exchange; return the one with which the stream began that it resumes.

        Args:
            exchange: the exchange, after all whose requests arrived earlier.
            known_as: what stands for it.
        """
        request = exchange.request
        session = session_of(request) or opened_session(exchange.response)
        begun = self._begun.get((session, resumed_event(request)))
        for _, identity in event_ids(exchange.response):
            self._begun.setdefault((session, identity), known_as if begun is None else begun)
        return begun
