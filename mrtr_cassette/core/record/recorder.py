"""Turns relayed bytes into exchanges that can be written to disk; it sees copies of what passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import NamedTuple

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.cassette.sessions import endpoint_in, listens
from mrtr_cassette.core.protocol.calls import (
    Call,
    CallKey,
    gets_lines,
    ids_given_in,
    line_label,
    read_call,
)
from mrtr_cassette.core.protocol.dialect import InputRequired, input_request
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message, classify
from mrtr_cassette.core.protocol.methods import LISTEN
from mrtr_cassette.core.protocol.tasks import named_task
from mrtr_cassette.core.record.linking import OpenPush, PushTurns
from mrtr_cassette.core.record.sealing import Sealer, kept_of_response
from mrtr_cassette.core.secrets.credentials import Given
from mrtr_cassette.core.wire.http import (
    ACCEPTED,
    LARGEST_BODY,
    NO_METHOD,
    NO_STATUS,
    SESSION_HEADER,
    ContentDecoder,
    End,
    Headers,
    Piece,
    Request,
    Response,
    content_coding,
    header_value,
    is_event_stream,
    lines_in,
    readable,
)
from mrtr_cassette.core.wire.sse import SseFramer, read_event
from mrtr_cassette.errors import BodyTooLargeError, printable

_MOST_EVENTS = 100_000
"""Events, or lines, up to which a response is kept: each costs memory, however small."""
_LONGEST_LENGTH = 19
"""Digits of a `Content-Length` that no body reaches."""


class Due(NamedTuple):
    """An exchange that has to be written now; nothing has been taken out of it yet."""

    exchange: RecordedExchange
    call: Call
    continues: bool = False
    """Its response has only what came since it was written before."""


@dataclass(slots=True)
class Recorder(Sealer):
    """One recording: numbers what arrives, and seals what is due."""

    largest_body: int = LARGEST_BODY
    """Bytes up to which a response is kept."""
    arrived: int = 0
    played: list[int] = field(default_factory=list)
    """Numbers of the writes that were played from the cassette since the last request."""
    pushes: PushTurns[OpenPush] = field(default_factory=PushTurns)

    def shown(self, text: str, *, is_target: bool = False) -> str:
        """Return a text, or a request's target, as a log may have it: sealed and redacted."""
        if self.credentials is not None:
            text = self.credentials.known.seal_text(text)
        if self.seals:
            text = self.known.seal_text(text)
        if self.redactor is not None:
            text = self.redactor.target(text) if is_target else self.redactor.text(text)
        return printable(text)

    def label(self, call: Call, *, is_sealed: bool = False) -> str:
        """Return a call as a log may name it: without arguments, sealed and redacted.

        The call of a sealed exchange is so already.
        """
        request, method = call.request, call.method
        if method:
            is_task = self.seals and named_task(call.message) is not None
            text = str(CallKey("", method, "" if is_task else call.name, ""))
            return text if is_sealed else self.shown(text)
        if request.is_line:
            return line_label(call)
        target = request.target
        shown = printable(target) if is_sealed else self.shown(target, is_target=True)
        return f"{printable(request.method)} {shown}"

    def has_asked(self, call: Call) -> bool:
        """Tell whether a request, which has not been received yet, answers an open push."""
        message, request = call.message, call.request
        if message is None or message.kind is not Kind.RESPONSE:
            return False
        channel = header_value(request.headers, SESSION_HEADER) or request.target
        return self.pushes.is_open(channel, message.id)

    def was_given(self, given: Given) -> None:
        """Look for the credentials in what the user gives for the server."""
        if self.credentials is not None:
            self.credentials.was_given(given)

    def read(self, request: Request) -> Call:
        """Read a request, which may be compressed."""
        return read_call(readable(request, self.largest_body))

    def request_received(self, request: Request, at_ms: float) -> Observation:
        """Begin an exchange; its request has arrived whole."""
        self.arrived += 1
        if self.credentials is not None:
            self.credentials.seen(request.headers)
        return Observation(self, self.arrived, self.read(request), at_ms)


class Observation:
    """One exchange while it passes, which says when it is due on disk.

    What an input returns has to be written before anything of the input is passed on: a killed
    recording lacks nothing that a client has. Due is what makes the client's response whole, and
    each message of a stream that tells what other requests cause. What passes later is due once, at
    the end.
    """

    def __init__(self, recorder: Recorder, number: int, call: Call, at_ms: float) -> None:
        request, message = call.request, call.message
        self.recorder = recorder
        self.number = number
        self.call = call
        self.follows, recorder.played = tuple(recorder.played), []
        self.started_ms = at_ms
        self.status = NO_STATUS
        """The response's HTTP status, or 0 before it began, and over a pipe."""
        self.size = 0
        """Bytes of the response's body so far, as they passed."""
        self.is_answered = False
        """The client has its whole response, or will have with the bytes seen last."""
        self.is_listening = False
        """The response tells, message by message, what other requests cause."""
        self.ask: InputRequired | None = None
        """What the response asks, as sealing found; None for a final response."""
        self.answered: OpenPush | None = None
        """What the request answers."""
        self.pushed: list[OpenPush] = []
        """What the server has pushed in this response and nobody has taken."""
        self._is_line = request.method == NO_METHOD
        self._has_begun = False
        self._headers: Headers = ()
        self._decoder: ContentDecoder | None = None
        self._framer: SseFramer | None = None
        self._coded: list[Piece] = []
        self._pieces: list[Piece] = []
        self._missing: int | None = None
        self._written: int | None = None
        """How many pieces of a stream that goes on were due by now."""
        self._was_due = False
        self._has_more = False
        """The exchange was due whole, and more has come since."""
        self._channel = header_value(request.headers, SESSION_HEADER) or request.target
        """What all requests of a session share, whether a header or the URL has its id."""
        self._is_call = False
        if message is None:
            return
        if message.kind is Kind.REQUEST and message.method != LISTEN:
            self._is_call = True
            recorder.pushes.begun(self._channel, number, message.id, call)
        elif message.kind is Kind.RESPONSE:
            self.answered = recorder.pushes.answered(self._channel, message.id, number)

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
    def response(self) -> Message | None:
        """The JSON-RPC response to the request, as it came; None where there is none."""
        return self._due(End.COMPLETE, 0.0).exchange.rpc_response

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

    def response_started(self, status: int, headers: Headers, at_ms: float = 0.0) -> Due | None:
        """Take the response's head."""
        self.status = status
        # Over pipes only a request gets a response, and the beginning of the channel.
        self._has_begun = not self._is_line or gets_lines(self.call)
        self._headers = headers
        if self.recorder.credentials is not None:
            self.recorder.credentials.seen(headers)
        length = header_value(headers, "content-length")
        if length.isascii() and length.isdigit() and len(length) < _LONGEST_LENGTH:
            self._missing = int(length)
        coding = content_coding(headers)
        if coding:
            self._decoder = ContentDecoder(coding, self.recorder.largest_body)
        if is_event_stream(headers):
            self._framer = SseFramer()
        if (self._framer is not None or self._is_line) and not coding:
            self.is_listening = listens(self.call, Response(status, headers, (), End.OPEN))
            if self.is_listening and status != NO_STATUS:
                return self._so_far(at_ms)
        return None

    def response_bytes(self, chunk: bytes, at_ms: float) -> Due | None:
        """Take the next bytes of the response's body, before they are passed on.

        Raises:
            BodyTooLargeError: the body is larger than what is kept.
        """
        recorder, decoder = self.recorder, self._decoder
        self.size += len(chunk)
        if self.size > recorder.largest_body:
            raise BodyTooLargeError(f"the response to {self.label}", recorder.largest_body)
        if self._missing is not None:
            self._missing -= len(chunk)
            self.is_answered = self.is_answered or self._missing <= 0
        if decoder is not None:
            self._coded.append(Piece(chunk, at_ms, recorder.arrived))
            chunk = decoder.decode(chunk)
        if self._framer is not None:
            self._messages_passed(self._framer.feed(chunk), at_ms)
        elif self._is_line:
            self._messages_passed(lines_in(chunk), at_ms)
        elif chunk:
            self._pieces.append(Piece(chunk, at_ms, recorder.arrived))
        if self._was_due:
            self._has_more = True
        elif self.is_answered:
            self._was_due = True
            return self._due(End.COMPLETE, at_ms)
        elif self.is_listening and len(self._pieces) > (self._written or 0):
            return self._so_far(at_ms)
        return None

    def response_ended(self, at_ms: float, end: End = End.COMPLETE) -> Due | None:
        """Take the end of the bytes, whatever caused it."""
        goes_on = self.status == ACCEPTED
        self.recorder.pushes.ended(self._channel, self.number, goes_on=goes_on)
        if self._framer is not None:
            # Bytes were held back that are no whole event.
            last, rest = self._framer.finish()
            if last or rest:
                self._pieces.append(Piece(last or rest, at_ms, self.recorder.arrived))
                self._has_more = True
        if self._was_due and not self._has_more:
            return None
        since = None if self._was_due else self._written
        self._was_due, self._has_more = True, False
        return self._due(end, at_ms, since)

    def take_pushed(self) -> list[OpenPush]:
        """Return what the server has pushed in this response since this was asked last."""
        pushed, self.pushed = self.pushed, []
        return pushed

    def seal(self, end: End, at_ms: float) -> RecordedExchange:
        """Seal the exchange as it is now, and return it ready for the disk."""
        due = self._due(end, at_ms)
        exchange, self.ask, _ = self.recorder.seal(due.exchange, due.call)
        return exchange

    def _so_far(self, at_ms: float) -> Due:
        """Return what has come of a stream since it was due last."""
        since, self._written = self._written, len(self._pieces)
        return self._due(End.OPEN, at_ms, since)

    def _due(self, end: End, at_ms: float, since: int | None = None) -> Due:
        """Return the exchange as it is now; `since` pieces of the response are on disk already."""
        end = End.COMPLETE if self.is_answered else end
        pieces = self._pieces[since:] if since else self._pieces
        headers, decoder = kept_of_response(self._headers), self._decoder
        if decoder is not None:
            # One that was sent whole and yet is cut short goes on as it came.
            is_cut = end is End.COMPLETE and self._framer is None and not decoder.is_whole
            if decoder.is_known and not decoder.failed and not is_cut:
                headers = tuple(
                    (name, value) for name, value in headers if name.lower() != "content-encoding"
                )
            else:
                pieces = self._coded
        if self._missing is not None and self._framer is None and len(pieces) > 1:
            # Where the size was known from the start, the rhythm is the network's.
            pieces = [pieces[-1]._replace(raw=b"".join([piece.raw for piece in pieces]))]
        response = Response(self.status, headers, tuple(pieces), end) if self._has_begun else None
        exchange = RecordedExchange(
            self.number,
            self.call.request,
            response,
            self.started_ms,
            at_ms,
            ended_after=self.recorder.arrived,
            follows=self.follows,
        )
        return Due(exchange, self.call, continues=since is not None)

    def _messages_passed(self, messages: Sequence[bytes], at_ms: float) -> None:
        recorder, pieces = self.recorder, self._pieces
        if not messages:
            return
        if len(pieces) + len(messages) > _MOST_EVENTS:
            raise BodyTooLargeError(f"the response to {self.label}", _MOST_EVENTS, "events")
        # A stream that no message began may begin with an event that says where to post.
        may_lead = not pieces and self.call.message is None
        pieces += map(_PIECE, zip(messages, repeat(at_ms), repeat(recorder.arrived)))
        first = pieces[0].raw
        for raw in messages:
            # Every request and every response has an id, and hardly any notification.
            if b'"id"' in raw or (may_lead and raw is first):
                self._read(raw, is_first=raw is first)

    def _read(self, raw: bytes, *, is_first: bool) -> None:
        endpoint = endpoint_in(raw) if is_first and self.call.message is None else None
        if endpoint is not None:
            self._opens_session(endpoint.decode("latin-1"))
        data = raw if self._is_line else read_event(raw, first=is_first).data
        message = None if data is None else classify(data)
        if message is None:
            return
        pushes = self.recorder.pushes
        if message.kind is Kind.REQUEST:
            self._was_pushed(message)
        elif message.kind is Kind.RESPONSE:
            request = self.call.message
            if request is not None and request.kind is Kind.REQUEST and message.id == request.id:
                self.is_answered = True
                pushes.ended(self._channel, self.number)
            else:
                pushes.responded(self._channel, message.id)

    def _opens_session(self, url: str) -> None:
        """Take the URL that a client of HTTP+SSE has to post to; it may be path and query only."""
        is_target = url.startswith("/")
        self._channel = url if is_target else f"/{url.partition('://')[2].partition('/')[2]}"
        if self.recorder.credentials is not None:
            ids = tuple((SESSION_HEADER, each) for each in ids_given_in(url))
            self.recorder.credentials.seen(ids)

    def _was_pushed(self, message: Message) -> None:
        turn, call = self.recorder.pushes.pushed(
            self._channel, self.number, message.id, shared=not self._is_call
        )
        key, request = turn.key_for(message.method), input_request(message.method, message.params)
        turn.asked.append(OpenPush(turn.owner, call or self.call, key, request, message))
        self.pushed.append(turn.asked[-1])


_PIECE: Callable[[tuple[bytes, float, int]], Piece] = partial(tuple.__new__, Piece)
"""Makes a piece of its values without a call of Python's for each: a stream has many."""
