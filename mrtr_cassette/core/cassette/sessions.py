"""Sessions and streams of recorded exchanges, as MCP 2025-11-25 and 2024-11-05 (SSE) have them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, Generic, TypeVar

from mrtr_cassette.core.cassette.recorded import Cassette, RecordedExchange
from mrtr_cassette.core.protocol.calls import (
    NO_SESSION,
    Call,
    resumed_event,
    session_in,
    session_of,
)
from mrtr_cassette.core.protocol.jsonrpc import Kind, last_response
from mrtr_cassette.core.protocol.methods import LISTEN
from mrtr_cassette.core.protocol.origins import ServerOrigin
from mrtr_cassette.core.wire.http import (
    SESSION_HEADER,
    Request,
    Response,
    header_value,
    opens_channel,
)
from mrtr_cassette.core.wire.sse import event_id, read_event

E = TypeVar("E")

_STARTS: Final = (b"event: endpoint", b"event:endpoint")
_URL = re.compile(rb"(?<=[\r\n])data: ?(https?://)([^/\r\n]*)(?=[/\r\n])")
_END = re.compile(rb"\n\r?\n|\r\r")


def opened_session(response: Response | None) -> str:
    """Return the session that a response opens, by a header or in the URL to post to."""
    if response is None:
        return NO_SESSION
    session = header_value(response.headers, SESSION_HEADER)
    if session or not (response.is_event_stream and response.pieces):
        return session
    endpoint = endpoint_in(response.pieces[0].raw)
    return NO_SESSION if endpoint is None else session_in(endpoint.decode("latin-1"))


def endpoint_in(first_event: bytes) -> bytes | None:
    """Return the URL that a client of HTTP+SSE has to post to, or None for any other event."""
    is_endpoint = any(start in first_event for start in _STARTS)
    return read_event(first_event, first=True).data if is_endpoint else None


def listens(call: Call, response: Response | None) -> bool:
    """Tell whether a response is a stream of messages that other requests caused."""
    if call.message is None:
        is_stream = response is not None and response.is_event_stream
        return (call.request.method == "GET" and is_stream) or opens_channel(call.request)
    return call.message.kind is Kind.REQUEST and call.method == LISTEN


def event_ids(response: Response | None) -> Iterator[tuple[int, str]]:
    """Yield the ids of a stream's events, each with the index of its piece."""
    if response is not None and response.is_event_stream:
        for index, piece in enumerate(response.pieces):
            identity = event_id(piece.raw)
            if identity:
                yield index, identity


def is_answered(response: Response) -> bool:
    """Tell whether a stream has the JSON-RPC response that ends it."""
    return last_response(response) is not None


def ends_session(request: Request, response: Response | None) -> bool:
    """Tell whether a request ends its session; one that is refused ends nothing."""
    return request.method == "DELETE" and (response is None or response.status < 400)


def rejoined(cassette: Cassette) -> Cassette:
    """Return a cassette in which interrupted streams are joined with those that resumed them."""
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
    return cassette.with_exchanges(
        {each: replace(each, response=response) for each, response in whole.items()}
    )


class Streams(Generic[E]):
    """The streams of a recording, by the ids of their events."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, str], E] = {}

    def add(self, exchange: RecordedExchange, known_as: E) -> E | None:
        """Take the next exchange in arrival order; return the name of the one that it resumes."""
        request = exchange.request
        session = session_of(request) or opened_session(exchange.response)
        begun = self._begun.get((session, resumed_event(request)))
        for _, identity in event_ids(exchange.response):
            self._begun.setdefault((session, identity), known_as if begun is None else begun)
        return begun


class EndpointPassing:
    """Takes the server's host out of the URL in the first event of an HTTP+SSE stream.

    It holds back that event only, until it is whole; once `is_over`, all bytes pass.
    """

    def __init__(self, authority: str) -> None:
        """Begin before the first byte of a stream of the server at `authority`, `host:port`."""
        self.is_over = False
        self._origin = ServerOrigin(f"http://{authority}")
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes, and return those that pass."""
        if self.is_over:
            return chunk
        self._held = held = self._held + chunk
        may_begin = any(held.startswith(start) or start.startswith(held) for start in _STARTS)
        return b"" if may_begin and not _END.search(held) else self.finish()

    def finish(self) -> bytes:
        """Return the bytes held back; from now on there are none."""
        held, self._held, self.is_over = self._held, b"", True
        end = _END.search(held)
        url = _URL.search(held, 0, len(held) if end is None else end.end())
        is_ours = url and self._origin.is_named(f"http://{url[2].decode('latin-1')}")
        if url is None or not is_ours or not held.startswith(_STARTS):
            return held
        return held[: url.start(1)] + held[url.end() :]
