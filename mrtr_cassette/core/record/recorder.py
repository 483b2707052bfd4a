"""Observing one run: bytes that pass go in, exchanges ready for the disk come out.

Rule: nothing here can change what passes; it sees copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import repeat

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.exchange.sessions import endpoint_in, listens
from mrtr_cassette.core.protocol.calls import Call, CallKey, gets_lines, line_label, read_call
from mrtr_cassette.core.protocol.dialect import InputRequired
from mrtr_cassette.core.protocol.jsonrpc import Kind, classify
from mrtr_cassette.core.protocol.session_ids import ids_given_in
from mrtr_cassette.core.record.open_pushes import OpenPush, OpenPushes
from mrtr_cassette.core.record.sealer import Sealer, Seen, kept_of_response
from mrtr_cassette.core.record.sealing import Unread
from mrtr_cassette.core.secrets.credentials import Given
from mrtr_cassette.core.wire.coding import LARGEST_RATIO, ContentDecoder
from mrtr_cassette.core.wire.http import (
    ACCEPTED,
    LARGEST_BODY,
    NO_STATUS,
    SESSION_HEADER,
    End,
    Headers,
    Piece,
    Request,
    Response,
    header_value,
    is_event_stream,
)
from mrtr_cassette.core.wire.lines import lines_in
from mrtr_cassette.core.wire.readable import readable
from mrtr_cassette.core.wire.sse import SseFramer, read_event
from mrtr_cassette.errors import BodyTooLargeError, printable

_LONGEST_LENGTH = 19
"""Digits of a `Content-Length` that no body reaches."""


@dataclass(slots=True)
class Recorder(Sealer):
    """One recording: numbers what arrives, and seals what it has seen.

    Attributes:
        largest_body: bytes up to which a response is kept.
        most_events: events up to which one is kept; each costs memory of its own, however small.
        arrived: how many requests have arrived.
        pushes: the pushed requests that wait for their answers.
    """

    largest_body: int = LARGEST_BODY
    most_events: int = 100_000
    arrived: int = 0
    pushes: OpenPushes = field(default_factory=OpenPushes)

    def sealed_text(self, text: str) -> str:
        """Return a text for the log without the states and the credentials that are known."""
        if self.credentials is not None:
            text = self.credentials.sealed_text(text)
        return self.known.seal_text(text) if self.seals else text

    def shown_target(self, target: str) -> str:
        """Return a request's target as a log may show it."""
        target = self.sealed_text(target)
        return printable(target if self.redactor is None else self.redactor.target(target))

    def label(self, call: Call) -> str:
        """Return a call as a log may name it: without arguments, sealed and redacted."""
        request = call.request
        if not call.method:
            if request.is_line:
                return line_label(call)
            return f"{printable(request.method)} {self.shown_target(request.target)}"
        return self.shown(str(CallKey("", call.method, call.name, "")))

    def shown(self, text: str) -> str:
        """Return a text as a log may have it: sealed and redacted."""
        text = self.sealed_text(text)
        return printable(text if self.redactor is None else self.redactor.text(text))

    def has_asked(self, call: Call) -> bool:
        """Tell whether a request, which has not been received yet, answers an open push."""
        return self.pushes.is_answered_by(_channel_of(call.request), call)

    def was_given(self, given: Given) -> None:
        """Look for the credentials in what the user gives for the server from now on."""
        if self.credentials is not None:
            self.credentials.was_given(given)

    def session_opened(self, url: str) -> None:
        """Look for the session id in the URL that a server of HTTP+SSE gave from now on."""
        if self.credentials is not None:
            self.credentials.seen(tuple((SESSION_HEADER, each) for each in ids_given_in(url)))

    def request_received(self, request: Request, at_ms: float) -> Observation:
        """Begin an exchange; its request has arrived whole.

        Args:
            request: the request.
            at_ms: when it had arrived.
        """
        self.arrived += 1
        if self.credentials is not None:
            self.credentials.seen(request.headers)
        return Observation(self, self.arrived, self.read(request), at_ms)

    def read(self, request: Request) -> Call:
        """Read a request, which may be compressed."""
        return read_call(readable(request, self.largest_body))


class Observation:
    """What is seen of one exchange while it passes.

    Attributes:
        recorder: what it belongs to.
        number: place of the request in arrival order, from 1.
        call: the request, read.
        is_answered: the client has its whole response, or will have with the bytes seen last.
        ask: what the response asks, as `seal` found; None for a final response.
        unread: which bodies can't be read, as `seal` found.
        status: the response's HTTP status, or 0 before it began, and over a pipe.
        started_ms: when the request had arrived.
        size: bytes of the response's body so far, as they passed.
        answered: the pushed request that the request answers, or None.
        is_listening: the response tells, message by message, what other requests cause.
    """

    def __init__(self, recorder: Recorder, number: int, call: Call, at_ms: float) -> None:
        """Begin with the request."""
        self.number = number
        self.call = call
        self.is_answered = False
        self.recorder = recorder
        self._is_line = call.request.is_line
        self.started_ms = at_ms
        self.status = NO_STATUS
        self.size = 0
        self.is_listening = False
        self._has_begun = False
        self._headers: Headers = ()
        self._decoder = _UNCODED
        self._framer: SseFramer | None = None
        self._arrived: list[Piece] = []
        self._pieces: list[Piece] = []
        self._missing: int | None = None
        self.ask: InputRequired | None = None
        self.unread: Sequence[Unread] = ()
        self._channel = _channel_of(call.request)
        self.answered = recorder.pushes.request_arrived(number, self._channel, call)
        self._pushed: list[OpenPush] = []

    @property
    def label(self) -> str:
        """The call as a log may name it: without arguments, sealed and redacted."""
        return self.recorder.label(self.call)

    @property
    def pieces(self) -> int:
        """How many events, lines or other pieces the response has so far."""
        return len(self._pieces)

    @property
    def events(self) -> list[bytes]:
        """The events of the response so far, as they came."""
        return [] if self._framer is None else [piece.raw for piece in self._pieces]

    @property
    def acknowledges(self) -> bool:
        """Whether the response, which has begun, is none to a JSON-RPC request, and no stream.

        Many a client leaves such a response without having read it.
        """
        message = self.call.message
        is_request = message is not None and message.kind is Kind.REQUEST
        is_unframed = self._framer is None and not self._is_line
        return is_unframed and (self.status == ACCEPTED or not is_request)

    @property
    def session(self) -> str:
        """The session id that the response names, or an empty string."""
        return header_value(self._headers, SESSION_HEADER)

    def response_started(self, status: int, headers: Headers) -> None:
        """Take the response's head."""
        self.status = status
        # Over pipes only a request gets a response, and the beginning of the channel.
        self._has_begun = not self._is_line or gets_lines(self.call)
        self._headers = headers
        if self.recorder.credentials is not None:
            self.recorder.credentials.seen(headers)
        coding, self._missing = _framing_of(headers)
        if coding:
            self._decoder = ContentDecoder(coding, self.recorder.largest_body)
        if is_event_stream(headers):
            self._framer = SseFramer()
        if (self._framer is not None or self._is_line) and not coding:
            begun = Response(status, headers, (), End.OPEN)
            self.is_listening = listens(self.call, begun)

    def response_bytes(self, chunk: bytes, at_ms: float) -> None:
        """Take the next bytes of the response's body, before they are passed on.

        Raises:
            BodyTooLargeError: the body is larger, or has more events, than what is kept.
        """
        recorder = self.recorder
        self.size += len(chunk)
        if self.size > recorder.largest_body:
            raise BodyTooLargeError(self.label, recorder.largest_body)
        if self._missing is not None:
            self._missing -= len(chunk)
            self.is_answered = self.is_answered or self._missing <= 0
        if self._decoder.coding:
            self._arrived.append(Piece(chunk, at_ms, recorder.arrived))
            chunk = self._decoder.decode(chunk)
            if self._decoder.is_bomb:
                raise BodyTooLargeError(self.label, LARGEST_RATIO, "times its size")
        if self._framer is not None:
            self._messages_passed(self._framer.feed(chunk), at_ms)
        elif self._is_line:
            self._messages_passed(lines_in(chunk), at_ms)
        elif chunk:
            self._pieces.append(Piece(chunk, at_ms, recorder.arrived))

    def _messages_passed(self, messages: Sequence[bytes], at_ms: float) -> None:
        """Take the next events or lines."""
        recorder, pieces = self.recorder, self._pieces
        if not messages:
            return
        if len(pieces) + len(messages) > recorder.most_events:
            raise BodyTooLargeError(
                self.label, recorder.most_events, "lines" if self._is_line else "events"
            )
        # A stream that no message began may begin with an event that says where to post.
        may_lead = not pieces and self.call.message is None
        pieces += map(_PIECE, zip(messages, repeat(at_ms), repeat(recorder.arrived)))
        first = pieces[0].raw
        for raw in messages:
            # Every request and every response has an id, and hardly any notification.
            if b'"id"' in raw or (may_lead and raw is first):
                self._read(raw, is_first=raw is first)

    def _read(self, raw: bytes, *, is_first: bool) -> None:
        """Take note of what an event or a line says."""
        endpoint = endpoint_in(raw) if is_first and self.call.message is None else None
        if endpoint is not None:
            url = endpoint.decode("latin-1")
            self._channel = _target_of(url)
            self.recorder.session_opened(url)
        data = raw if self._is_line else read_event(raw, first=is_first).data
        message = None if data is None else classify(data)
        if message is None:
            return
        push = self.recorder.pushes.said(self.number, self._channel, self.call, message)
        if push is not None:
            self._pushed.append(push)
        request = self.call.message
        if request is not None and request.kind is Kind.REQUEST:
            is_response = message.kind is Kind.RESPONSE and message.id == request.id
            self.is_answered = self.is_answered or is_response

    def take_pushed(self) -> list[OpenPush]:
        """Return what the server has pushed in this response since this was asked last."""
        pushed = self._pushed
        if pushed:
            self._pushed = []
        return pushed

    def response_ended(self, at_ms: float) -> bool:
        """Take the end of the bytes, whatever caused it.

        Returns:
            whether bytes had been held back that were no whole event.
        """
        self.recorder.pushes.ended(self.number, self._channel, self.call, self.status)
        if self._framer is not None:
            last, rest = self._framer.finish()
            if last or rest:
                self._pieces.append(Piece(last or rest, at_ms, self.recorder.arrived))
                return True
        return False

    def seen(self, end: End, at_ms: float, *, since: int | None = None) -> Seen:
        """Return the exchange as it is now.

        Args:
            end: how the response ended; one that the client has whole counts as complete.
            at_ms: the time of the end.
            since: how many pieces of the response are left out, as they are on disk; None where
                nothing is.
        """
        response = self._response(End.COMPLETE if self.is_answered else end, since or 0)
        # Where the size was known from the start, the rhythm is the network's, not the server's.
        is_paced = self._missing is None or self._framer is not None
        return Seen(
            self.number,
            self.call,
            response,
            self._has_begun,
            is_paced,
            self.started_ms,
            at_ms,
            self.recorder.arrived,
            continues=since is not None,
        )

    def seal(self, end: End, at_ms: float) -> RecordedExchange:
        """Seal the exchange as it is now, and return it ready for the disk."""
        exchange, self.ask, self.unread = self.recorder.seal(self.seen(end, at_ms))
        return exchange

    def _response(self, end: End, since: int) -> Response:
        pieces = self._pieces[since:] if since else self._pieces
        headers = kept_of_response(self._headers)
        if self._decoder.coding:
            # One that was sent whole and yet is cut short goes on as it came.
            is_cut = end is End.COMPLETE and self._framer is None and not self._decoder.is_whole
            if self._decoder.is_known and not self._decoder.failed and not is_cut:
                headers = tuple(
                    (name, value) for name, value in headers if name.lower() != "content-encoding"
                )
            else:
                pieces = self._arrived
        return Response(self.status, headers, tuple(pieces), end)


_UNCODED = ContentDecoder("")
_PIECE: Callable[[tuple[bytes, float, int]], Piece] = partial(tuple.__new__, Piece)
"""Makes a piece of its values without a call of Python's for each: a stream has many."""

# Headers come again with call after call; what they mean is worked out once.


@lru_cache(maxsize=1024)
def _framing_of(headers: Headers) -> tuple[str, int | None]:
    """Return the content coding of a response, and its length in bytes or None."""
    length = header_value(headers, "content-length")
    is_length = length.isascii() and length.isdigit() and len(length) < _LONGEST_LENGTH
    return header_value(headers, "content-encoding"), int(length) if is_length else None


def _channel_of(request: Request) -> str:
    """Return what all requests of a session share, whether a header or the URL has its id."""
    return request.header(SESSION_HEADER) or request.target


def _target_of(url: str) -> str:
    """Return path and query of a URL that may have only these."""
    return url if url.startswith("/") else f"/{url.partition('://')[2].partition('/')[2]}"
