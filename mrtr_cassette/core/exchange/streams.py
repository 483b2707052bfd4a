"""Which stream a GET resumes: the one in which the server issued the event that it names.

Source: MCP 2025-11-25, "Resumability and Redelivery": the event after which the client asks for the
rest stands in `Last-Event-ID`, whichever stream it is of, that of a call or a listening one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Generic, TypeVar

from mrtr_cassette.core.exchange.recorded import Cassette, RecordedExchange
from mrtr_cassette.core.exchange.sessions import opened_session, session_of
from mrtr_cassette.core.protocol.calls import resumed_event
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.protocol.messages import completed_by
from mrtr_cassette.core.wire.http import Request, Response
from mrtr_cassette.core.wire.sse import event_id

E = TypeVar("E")


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
