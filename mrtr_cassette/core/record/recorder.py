"""Observing one run: bytes that pass go in, exchanges ready for the disk come out.

Owns: numbering requests, framing what arrives, and knowing when a client has its whole response.
Does not own: what must not reach the disk (`sealing`), when an exchange is due there (`writer`),
joining exchanges to interactions (`assembly`), sockets and files (`shell`).
Rule: nothing here can change what passes; it sees copies.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

from mrtr_cassette.core.exchange.recorded import RecordedExchange
from mrtr_cassette.core.exchange.sessions import endpoint_in
from mrtr_cassette.core.protocol.calls import Call, CallKey, line_label, read_call
from mrtr_cassette.core.protocol.dialect import (
    REQUEST_STATE,
    InputRequired,
    may_ask,
    recognise,
)
from mrtr_cassette.core.protocol.jsonrpc import Kind, classify
from mrtr_cassette.core.protocol.messages import response_to
from mrtr_cassette.core.record.open_pushes import OpenPush, OpenPushes
from mrtr_cassette.core.record.sealing import (
    Unread,
    in_encoding,
    in_utf8,
    redacted_response,
    seal_states,
    unread_bodies,
    without_bodies,
    without_credentials,
)
from mrtr_cassette.core.secrets.answers import seal_answers
from mrtr_cassette.core.secrets.credentials import Credentials
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.states import KnownStates
from mrtr_cassette.core.secrets.surrogates import (
    sealed_hash,
    sha256_of,
)
from mrtr_cassette.core.wire.coding import ContentDecoder
from mrtr_cassette.core.wire.http import (
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
    kept_request_headers,
    kept_response_headers,
)
from mrtr_cassette.core.wire.readable import readable
from mrtr_cassette.core.wire.sse import SseFramer, read_event
from mrtr_cassette.errors import BodyTooLargeError, printable

_LONGEST_LENGTH = 19
"""Digits of a `Content-Length` that no body reaches."""


@dataclass(slots=True)
class Recorder:
    """One recording: numbers what arrives and remembers the states that were issued.

    Attributes:
        seals: raw states are replaced by their hash on the way to disk.
        redactor: replaces secrets on the way to disk.
        seals_answers: of what users answer only hashes reach the disk.
        credentials: those that have passed, which are replaced wherever they are repeated.
        withholds: of a body that can't be read only its size and digest reach the disk.
        kept_headers: lower-case names of headers of requests that are kept besides MCP's.
        largest_body: bytes up to which a response is kept.
        most_events: events up to which one is kept; each costs memory of its own, however small.
        arrived: how many requests have arrived.
        known: the states that were issued or echoed.
        pushes: the pushed requests that wait for their answers.
    """

    seals: bool
    redactor: Redactor | None = None
    credentials: Credentials | None = None
    seals_answers: bool = False
    withholds: bool = False
    kept_headers: frozenset[str] = frozenset()
    largest_body: int = LARGEST_BODY
    most_events: int = 100_000
    arrived: int = 0
    known: KnownStates = field(default_factory=KnownStates)
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

    def was_given(self, headers: Headers, query: Headers) -> None:
        """Look for the credentials that the user gave for the upstream from now on."""
        if self.credentials is not None:
            self.credentials.seen(headers, ours=True)
            self.credentials.seen(query)

    def request_received(self, request: Request, at_ms: float) -> Observation:
        """Begin an exchange; its request has arrived whole."""
        self.arrived += 1
        if self.credentials is not None:
            self.credentials.seen(request.headers)
        return Observation(self, self.arrived, readable(request, self.largest_body), at_ms)


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
    """

    def __init__(self, recorder: Recorder, number: int, request: Request, at_ms: float) -> None:
        """Begin with the request, as it can be read."""
        self.number = number
        self.call: Call = read_call(request)
        self.is_answered = False
        self.recorder = recorder
        self._is_line = request.is_line
        self.started_ms = at_ms
        self.status = NO_STATUS
        self.size = 0
        self._has_begun = False
        self._headers: Headers = ()
        self._decoder = _UNCODED
        self._framer: SseFramer | None = None
        self._arrived: list[Piece] = []
        self._pieces: list[Piece] = []
        self._missing: int | None = None
        self.ask: InputRequired | None = None
        self.unread: list[Unread] = []
        self._channel = _channel_of(request)
        self.answered = recorder.pushes.request_arrived(number, self._channel, self.call)
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
    def session(self) -> str:
        """The session id that the response names, or an empty string."""
        return header_value(self._headers, SESSION_HEADER)

    def response_started(self, status: int, headers: Headers) -> None:
        """Take the response's head."""
        self.status = status
        self._has_begun = True
        self._headers = headers
        if self.recorder.credentials is not None:
            self.recorder.credentials.seen(headers)
        coding, self._missing = _framing_of(headers)
        if coding:
            self._decoder = ContentDecoder(coding, self.recorder.largest_body)
        if is_event_stream(headers):
            self._framer = SseFramer()

    def response_bytes(self, chunk: bytes, at_ms: float) -> None:
        """Take the next bytes of the response's body, before they are passed on.

        Raises:
            BodyTooLargeError: the body is larger, or has more events, than what is kept.
        """
        self.size += len(chunk)
        if self.size > self.recorder.largest_body:
            raise BodyTooLargeError(self.label, self.recorder.largest_body)
        if self._missing is not None:
            self._missing -= len(chunk)
            self.is_answered = self.is_answered or self._missing <= 0
        arrived = self.recorder.arrived
        if self._decoder.coding:
            self._arrived.append(Piece(chunk, at_ms, arrived))
            chunk = self._decoder.decode(chunk)
        if self._is_line:
            self._message_passed(chunk, at_ms)
        elif self._framer is not None:
            for event in self._framer.feed(chunk):
                self._message_passed(event, at_ms)
        elif chunk:
            self._pieces.append(Piece(chunk, at_ms, arrived))

    def _message_passed(self, raw: bytes, at_ms: float) -> None:
        """Take the next event or line."""
        recorder = self.recorder
        if len(self._pieces) == recorder.most_events:
            raise BodyTooLargeError(
                self.label, recorder.most_events, "lines" if self._is_line else "events"
            )
        self._pieces.append(Piece(raw, at_ms, recorder.arrived))
        # Every request and every response has an id, and hardly any notification.
        if raw.find(b'"id"') >= 0 or (self.call.message is None and len(self._pieces) == 1):
            self._read(raw)

    def _read(self, raw: bytes) -> None:
        """Take note of what an event or a line, the last so far, says."""
        is_first = len(self._pieces) == 1
        endpoint = endpoint_in(raw) if is_first and self.call.message is None else None
        if endpoint is not None:
            self._channel = _target_of(endpoint.decode("latin-1"))
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

    def seal(self, end: End, at_ms: float) -> RecordedExchange:
        """Seal the exchange as it is now, and return it ready for the disk.

        Its states are known from now on, `ask` is what its response asks, and `unread` which body
        can't be read.

        Args:
            end: how the response ended; one that the client has whole counts as complete.
            at_ms: the time of the end.
        """
        recorder = self.recorder
        received = self.call.request
        headers = _kept_of_request(received.headers, recorder.kept_headers)
        request = Request(received.method, received.target, headers, received.body)
        response, encoding = in_utf8(self._response(End.COMPLETE if self.is_answered else end))
        self.unread = unread_bodies(received, response)
        if recorder.withholds:
            request, response = without_bodies(request, response, self.unread)
        answers = self.call.answers
        echoed = answers.request_state if answers is not None else None
        located = None
        if may_ask(response.body):
            located = response_to(self.call.message, response)
        result = located.message.tree.get("result") if located is not None else None
        self.ask = recognise(result)
        issued = result.get(REQUEST_STATE) if isinstance(result, dict) else None
        if recorder.seals:
            request, response, states = seal_states(request, response, recorder.known)
            if located is None and states:
                # What was not understood, such as an ask that broke off, may issue one too.
                issued = states[0]
        if recorder.seals_answers:
            request = replace(request, body=seal_answers(request.body))
        if recorder.redactor is not None:
            request = recorder.redactor.request(request)
            response = redacted_response(response, recorder.redactor)
        if recorder.credentials is not None:
            request = recorder.credentials.sealed_request(request)
            response = without_credentials(response, recorder.credentials)
        return RecordedExchange(
            number=self.number,
            request=request,
            response=in_encoding(response, encoding) if self._has_begun else None,
            started_ms=self.started_ms,
            ended_ms=at_ms,
            issued_sha256=sha256_of(issued) if isinstance(issued, str) else None,
            echoed_sha256=None if echoed is None else sha256_of(echoed),
        )

    def _response(self, end: End) -> Response:
        pieces = self._pieces
        headers = _kept_of_response(self._headers)
        if self._decoder.coding:
            # One that was sent whole and yet is cut short goes on as it came.
            is_cut = end is End.COMPLETE and self._framer is None and not self._decoder.is_whole
            if self._decoder.is_known and not self._decoder.failed and not is_cut:
                headers = tuple(
                    (name, value) for name, value in headers if name.lower() != "content-encoding"
                )
            else:
                pieces = self._arrived
        if self._missing is not None and self._framer is None:
            # Its size was known from the start, so its rhythm is the network's, not the server's.
            pieces = _joined(pieces)
        return Response(self.status, headers, tuple(pieces), end)


_UNCODED = ContentDecoder("")

# Headers come again with call after call; what they mean is worked out once.


@lru_cache(maxsize=1024)
def _framing_of(headers: Headers) -> tuple[str, int | None]:
    """Return the content coding of a response, and its length in bytes or None."""
    length = header_value(headers, "content-length")
    is_length = length.isascii() and length.isdigit() and len(length) < _LONGEST_LENGTH
    return header_value(headers, "content-encoding"), int(length) if is_length else None


@lru_cache(maxsize=1024)
def _kept_of_request(headers: Headers, named: frozenset[str]) -> Headers:
    return _sealed_session(kept_request_headers(headers, named))


@lru_cache(maxsize=1024)
def _kept_of_response(headers: Headers) -> Headers:
    return _sealed_session(kept_response_headers(headers))


def _channel_of(request: Request) -> str:
    """Return what all requests of a session share, whether a header or the URL has its id."""
    return request.header(SESSION_HEADER) or request.target


def _target_of(url: str) -> str:
    """Return path and query of a URL that may have only these."""
    return url if url.startswith("/") else f"/{url.partition('://')[2].partition('/')[2]}"


def _joined(pieces: list[Piece]) -> list[Piece]:
    if len(pieces) < 2:
        return pieces
    return [replace(pieces[-1], raw=b"".join(piece.raw for piece in pieces))]


def _sealed_session(headers: Headers) -> Headers:
    return tuple(
        (name, sealed_hash(value) if name.lower() == SESSION_HEADER else value)
        for name, value in headers
    )
