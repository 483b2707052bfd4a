"""The body of a response while it passes: decoded, and cut into events, lines or chunks."""

from __future__ import annotations

from collections.abc import Sequence

from mrtr_cassette.core.record.sealing import kept_headers_of_response
from mrtr_cassette.core.wire.codings import ContentDecoder, content_coding
from mrtr_cassette.core.wire.http import (
    End,
    Headers,
    Piece,
    Response,
    header_value,
    is_event_stream,
    lines_in,
    without_header,
)
from mrtr_cassette.core.wire.sse import SseFramer

_TOO_MANY_DIGITS_FOR_LENGTH = 20
"""Digits of what is no length of a body."""


class PassingBody:
    """The body of a response while it passes: decoded, and cut into events, lines or chunks."""

    def __init__(self, *, is_lines: bool) -> None:
        self.size = 0
        """Bytes, as they passed."""
        self.pieces: list[Piece] = []
        self.written_count = 0
        """How many pieces of a stream that goes on are on disk."""
        self._is_lines = is_lines
        self._framer: SseFramer | None = None
        self._decoder: ContentDecoder | None = None
        self._coded_chunks: list[Piece] = []
        """The chunks of a body that is decoded."""
        self._announced_length: int | None = None
        """Bytes of the whole, if the head tells."""

    @property
    def is_stream(self) -> bool:
        """Whether it is a stream of events."""
        return self._framer is not None

    @property
    def is_message_stream(self) -> bool:
        """Whether each piece is a message's own: an event or a line."""
        return self._is_lines or self._framer is not None

    @property
    def is_whole(self) -> bool:
        """Whether as many bytes have passed as the head tells."""
        if self._announced_length is None:
            return False

        return self.size >= self._announced_length

    def take_headers(self, headers: Headers, largest: int) -> None:
        """Take the headers; a body is decoded up to the `largest` size."""
        length = header_value(headers, "content-length")
        if length.isdecimal() and len(length) < _TOO_MANY_DIGITS_FOR_LENGTH:
            self._announced_length = int(length)

        coding = content_coding(headers)
        if coding:
            self._decoder = ContentDecoder(coding, largest)

        if is_event_stream(headers):
            self._framer = SseFramer()

    def add_chunk(
        self, chunk: bytes, at_ms: float, arrived_count: int
    ) -> Sequence[bytes]:
        """Take the next bytes; return the events or lines that they complete."""
        self.size += len(chunk)
        if self._decoder is not None:
            self._coded_chunks.append(Piece(chunk, at_ms, arrived_count))
            chunk = self._decoder.decode(chunk)

        messages: Sequence[bytes] = ()
        if self._framer is not None:
            messages = self._framer.feed(chunk)
        elif self._is_lines:
            messages = lines_in(chunk)
        elif chunk:
            self.pieces.append(Piece(chunk, at_ms, arrived_count))

        for raw in messages:
            self.pieces.append(Piece(raw, at_ms, arrived_count))

        return messages

    def add_rest(self, at_ms: float, arrived_count: int) -> bool:
        """Take the end; tell whether bytes were held back that are no whole event."""
        if self._framer is None:
            return False

        last_event, incomplete_event = self._framer.finish()
        rest = last_event or incomplete_event
        if rest:
            self.pieces.append(Piece(rest, at_ms, arrived_count))

        return bool(rest)

    def response_so_far(
        self, response_head: Response, end: End, first_piece: int
    ) -> Response:
        """Return the response so far, without the first pieces of its body."""
        headers = kept_headers_of_response(response_head.headers)
        pieces = self.pieces[first_piece:]
        if self._decoder is not None and not self._is_decoded(self._decoder, end):
            pieces = self._coded_chunks
        elif self._decoder is not None:
            headers = without_header(headers, "content-encoding")

        is_of_known_size = self._announced_length is not None and not self.is_stream
        if is_of_known_size and len(pieces) > 1:
            # The rhythm of such a body is the network's.
            body = b"".join([piece.raw for piece in pieces])
            pieces = [pieces[-1]._replace(raw=body)]

        return Response(response_head.status, headers, tuple(pieces), end)

    def _is_decoded(self, decoder: ContentDecoder, end: End) -> bool:
        """Whether the decoded bytes are kept; a body that was cut short goes on as it came."""
        if decoder.failed or not decoder.is_known:
            return False
        return self.is_stream or end is not End.COMPLETE or decoder.is_whole
