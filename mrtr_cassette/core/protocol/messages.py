"""The JSON-RPC messages of a response, where they stand in its body, and which one asks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from mrtr_cassette.core.protocol.dialect import InputRequired, may_ask, recognise
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message, classify
from mrtr_cassette.core.wire.http import Piece, Response
from mrtr_cassette.core.wire.jsonbytes import Span, splice
from mrtr_cassette.core.wire.sse import Event, read_event


@dataclass(frozen=True, slots=True)
class Located:
    """A message of a response."""

    message: Message
    piece: int
    offset: int
    event: Event | None = None

    def in_body(self, span: Span) -> Span | None:
        """Return where in the body a span of the message stands, or None if it crosses lines."""
        inner = span if self.event is None else self.event.raw_span(span)
        return None if inner is None else Span(inner.start + self.offset, inner.end + self.offset)


def messages_in(response: Response) -> list[Located]:
    """Return the messages of a response, in order.

    An HTTP body that is no event stream is one message, or one per line: a server may respond to
    `subscriptions/listen` with newline-delimited JSON.
    """
    if response.is_framed:
        return list(_messages_of_pieces(response))
    body = response.body
    whole = classify(body) if body else None
    if whole is not None:
        return [Located(whole, len(response.pieces) - 1, 0)]
    return list(_messages_of_lines(response.pieces, body)) if b"\n" in body.strip() else []


def _messages_of_pieces(response: Response) -> Iterator[Located]:
    offset = 0
    is_event_stream = response.is_event_stream
    for index, piece in enumerate(response.pieces):
        event = read_event(piece.raw, first=index == 0) if is_event_stream else None
        data = piece.raw if event is None else event.data
        message = classify(data) if data else None
        if message is not None:
            yield Located(message, index, offset, event)
        offset += len(piece.raw)


def _messages_of_lines(pieces: tuple[Piece, ...], body: bytes) -> Iterator[Located]:
    ends = list(accumulate(len(piece.raw) for piece in pieces))
    offset = 0
    for line in body.splitlines(keepends=True):
        message = classify(line)
        if message is not None:
            yield Located(message, bisect_left(ends, offset + len(line)), offset)
        offset += len(line)


def response_to(request: Message | None, response: Response) -> Located | None:
    """Return the response to a request; other messages may have the same id."""
    if request is None or request.kind is not Kind.REQUEST:
        return None
    for located in messages_in(response):
        if located.message.kind is Kind.RESPONSE and located.message.id == request.id:
            return located
    return None


def last_response(response: Response) -> Message | None:
    """Return the last JSON-RPC response in the body of a response, or None."""
    messages = (each.message for each in reversed(messages_in(response)))
    return next((each for each in messages if each.kind is Kind.RESPONSE), None)


def completed_by(response: Response, piece: int) -> Message | None:
    """Return the message that a piece of a response completes, or None."""
    raw = response.pieces[piece].raw
    if response.is_event_stream:
        data = read_event(raw, first=piece == 0).data
        return None if data is None else classify(data)
    # A message of its own line needs nothing of what came before it.
    alone = classify(raw)
    if alone is not None:
        return alone
    return next((each.message for each in messages_in(response) if each.piece == piece), None)


Via = Literal["result", "push", "task"]
"""How a server asks for input: its response to the call is an input-required result; or it sends a
request of its own, which the client answers by a JSON-RPC response; or the state of the call's task
says so, which the client answers by an update of the task."""


@dataclass(frozen=True, slots=True)
class Ask(InputRequired):
    """A response that asks for input: an input-required result."""

    message: Message
    piece: int


def ask_in(request: Message | None, response: Response) -> Ask | None:
    """Return where a response asks for input, or None."""
    if not may_ask(response.body):
        return None
    located = response_to(request, response)
    required = recognise(located.message.tree.get("result")) if located is not None else None
    if located is None or required is None:
        return None
    dialect, requests, state = required.dialect, required.input_requests, required.request_state
    return Ask(dialect, requests, state, located.message, located.piece)


def splice_pieces(
    pieces: tuple[Piece, ...], replacements: Iterable[tuple[Span, bytes]]
) -> tuple[Piece, ...]:
    """Replace spans of the whole body; a replacement stands in the piece where its span begins."""
    ordered = sorted(replacements)
    changed = []
    start = index = 0
    for piece in pieces:
        end = start + len(piece.raw)
        here = []
        while index < len(ordered) and ordered[index][0].start < end:
            span, new = ordered[index]
            if span.end > start:
                inner = Span(max(span.start, start) - start, min(span.end, end) - start)
                here.append((inner, new if span.start >= start else b""))
            if span.end > end:
                break
            index += 1
        changed.append(Piece(splice(piece.raw, here), *piece[1:]) if here else piece)
        start = end
    return tuple(changed)
