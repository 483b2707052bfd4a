"""Turns relayed bytes into exchanges that can be written to disk; it sees copies of what passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, NamedTuple, NoReturn

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.cassette.sessions import (
    is_endpoint_event,
    is_listening_stream,
    may_precede_endpoint,
    without_empty_query,
)
from mrtr_cassette.core.protocol.calls import Call, gets_response_lines, read_call
from mrtr_cassette.core.protocol.dialect import InputRequired, input_request
from mrtr_cassette.core.protocol.hooks import RecordHook
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message, server_message
from mrtr_cassette.core.protocol.methods import PING, method_of
from mrtr_cassette.core.record.passing_body import PassingBody
from mrtr_cassette.core.record.pushes import OpenPush, PushTurns
from mrtr_cassette.core.record.sealing import ExchangeSealer, hash_of_state
from mrtr_cassette.core.wire.codings import content_coding, with_decoded_body
from mrtr_cassette.core.wire.http import (
    ACCEPTED,
    LARGEST_BODY,
    NO_STATUS,
    SESSION_HEADER,
    End,
    Headers,
    Request,
    Response,
    header_value,
)
from mrtr_cassette.core.wire.sse import read_event
from mrtr_cassette.errors import BodyTooLargeError

_MOST_EVENTS = 100_000
"""Events, or lines, up to which a response is kept: each costs memory, however small."""


class DueExchange(NamedTuple):
    """An exchange that has to be written now; nothing has been taken out of it yet."""

    exchange: RecordedExchange
    call: Call
    continues_written: bool = False
    """Its response has only what came since it was written before."""


@dataclass(slots=True)
class Arrivals:
    """Counts what has arrived, and keeps the questions that are still open."""

    count: int = 0
    """How many requests."""

    played_writes: dict[str, list[int]] = field(default_factory=dict)
    """Numbers of the writes that were played from the cassette since the last request, by session.
    """

    pushes: PushTurns[OpenPush] = field(default_factory=PushTurns)


class Recorder:
    """One recording: numbers what arrives, and leaves out what is not recorded.

    Attributes:
        sealer: takes out of exchanges what must not reach the disk.
        before_record: a user's function that changes requests, or leaves their calls out.
        largest_body: bytes up to which a response is kept.
        left_out: numbers of exchanges that are not recorded, and hashes of what they issued.
    """

    def __init__(
        self,
        sealer: ExchangeSealer,
        *,
        before_record: RecordHook | None = None,
        largest_body: int = LARGEST_BODY,
    ) -> None:
        self.sealer = sealer
        self.before_record = before_record
        self.largest_body = largest_body
        self.arrivals = Arrivals()
        self.left_out: set[int | str] = set()

    def answers_open_push(self, call: Call) -> bool:
        """Tell whether a request, which has not been received yet, answers an open push."""
        message = call.message
        if message is None or message.kind is not Kind.RESPONSE:
            return False

        channel = _channel_of(call.request)
        return self.arrivals.pushes.is_open(channel, message.comparable_id)

    def note_played_write(self, request: Request, number: int) -> None:
        """Take note that a recorded write is played for a request."""
        session = request.header(SESSION_HEADER)
        self.arrivals.played_writes.setdefault(session, []).append(number)

    def read_request(self, request: Request) -> Call:
        """Read a request, which may be compressed."""
        return read_call(with_decoded_body(request, self.largest_body))

    def request_received(self, request: Request, at_ms: float) -> Observation:
        """Begin an exchange; its request has arrived whole."""
        self.arrivals.count += 1
        if self.sealer.credentials is not None:
            self.sealer.credentials.add_headers(request.headers)

        session = request.header(SESSION_HEADER)
        played_writes = tuple(self.arrivals.played_writes.pop(session, []))
        call = self.read_request(request)
        kept_call = self._kept_call(call)
        return Observation(self, call, kept_call, at_ms, played_writes)

    def _kept_call(self, call: Call) -> Call:
        """Return a request as it is recorded, unless its call is left out."""
        hook = self.before_record
        if hook is None:
            return call

        request = hook.request_after_hook(call.request)
        echoed_hash = hash_of_state(call.echoed or None)
        continues_left_out_call = echoed_hash in self.left_out
        if request is None or continues_left_out_call:
            self.left_out.add(self.arrivals.count)
            return call

        return read_call(request)

    def leave_out(self, exchange: RecordedExchange, call: Call) -> None:
        """Take an exchange that is not recorded: what continues its call isn't either.

        Raises:
            HookError: its response comes on a stream that many calls share.
        """
        if exchange.issued_sha256 is not None:
            self.left_out.add(exchange.issued_sha256)

        response = exchange.response
        is_accepted = response is not None and response.is_acknowledgement
        if is_accepted and call.kind is Kind.REQUEST and self.before_record:
            raise self.before_record.error(
                f"left out {call.title}, whose response is on a stream of many calls"
            )


# One exchange while it passes


def _channel_of(request: Request) -> str:
    """Return what all requests of a session share, whether a header or the URL has its id."""
    id_in_header = header_value(request.headers, SESSION_HEADER)
    return id_in_header or without_empty_query(request.target)


class _OnDisk(Enum):
    """What the journal has of an exchange."""

    NOTHING = "nothing"
    BEGINNING = "the beginning of a stream"
    ALL = "all that has passed"
    UP_TO_RESPONSE = "all that had passed when the client's response was whole"


class Observation:
    """One exchange while it passes, which says when it is due on disk.

    What an input returns has to be written before anything of the input is passed on: a killed
    recording lacks nothing that a client has. Due is what makes the client's response whole, and
    each message of a stream that tells what other requests cause. What passes later is due once, at
    the end.
    """

    def __init__(
        self,
        recorder: Recorder,
        call: Call,
        kept_call: Call,
        started_ms: float,
        writes_played_before: tuple[int, ...],
    ) -> None:
        self.recorder = recorder
        self.number = recorder.arrivals.count
        """Its place in the order of arrival, from 1."""
        self.call = call
        self.started_ms = started_ms
        """When the request had arrived."""
        self._kept_call = kept_call
        self._writes_played_before = writes_played_before
        self.is_answered = False
        """The client has its whole response, or will have with the bytes seen last."""
        self.is_listening = False
        """The response tells, message by message, what other requests cause."""
        self.ask: InputRequired | None = None
        """What the response asks, as sealing found; None for a final response."""
        self._response_head: Response | None = None
        self._body = PassingBody(is_lines=call.request.is_line)
        self._response_messages = _ResponseMessages(recorder, self.number, call)
        self._on_disk = _OnDisk.NOTHING
        answered_push = self._response_messages.answered_push
        if answered_push is not None:
            if answered_push.exchange_number in recorder.left_out:
                recorder.left_out.add(self.number)

    @property
    def is_left_out(self) -> bool:
        """Whether it is part of a call that is not recorded."""
        return self.number in self.recorder.left_out

    @property
    def status(self) -> int:
        """The response's HTTP status, or 0 before it began, and over a pipe."""
        return NO_STATUS if self._response_head is None else self._response_head.status

    @property
    def size(self) -> int:
        """Bytes of the response's body so far, as they passed."""
        return self._body.size

    @property
    def body(self) -> bytes:
        """The response's body so far, decoded and not sealed."""
        return b"".join(piece.raw for piece in self._body.pieces)

    @property
    def label(self) -> str:
        """The call as a log may name it: without arguments, sealed and redacted."""
        return self.recorder.sealer.label(self.call)

    @property
    def piece_count(self) -> int:
        """How many events, lines or other pieces the response has so far."""
        return len(self._body.pieces)

    @property
    def events(self) -> list[bytes]:
        """The events of the response so far, as they came."""
        if not self._body.is_stream:
            return []
        return [piece.raw for piece in self._body.pieces]

    @property
    def response(self) -> Message | None:
        """The JSON-RPC response to the request, as it came; None where there is none."""
        return self._due_exchange(End.COMPLETE, 0.0).exchange.rpc_response

    @property
    def answered_push(self) -> OpenPush | None:
        """The pushed request that the request answers."""
        return self._response_messages.answered_push

    @property
    def is_acknowledgement(self) -> bool:
        """Whether the response, which has begun, is none to a JSON-RPC request, and no stream.

        Many a client leaves such a response without having read it.
        """
        if self._body.is_message_stream:
            return False

        return self.status == ACCEPTED or self.call.kind is not Kind.REQUEST

    @property
    def session(self) -> str:
        """The session id that the response names, or an empty string."""
        if self._response_head is None:
            return ""
        return header_value(self._response_head.headers, SESSION_HEADER)

    def response_started(
        self, status: int, headers: Headers, at_ms: float = 0.0
    ) -> DueExchange | None:
        """Take the response's head."""
        recorder = self.recorder
        if recorder.sealer.credentials is not None:
            recorder.sealer.credentials.add_headers(headers)

        head = Response(status, headers, (), End.OPEN)
        # Over pipes only a request gets a response, and the beginning of the channel.
        if not self.call.request.is_line or gets_response_lines(self.call):
            self._response_head = head

        self._body.take_headers(headers, recorder.largest_body)
        if self._body.is_message_stream and not content_coding(headers):
            self.is_listening = is_listening_stream(self.call, head)

        if self.is_listening and status != NO_STATUS:
            return self._due_stream_part(at_ms)

        return None

    def response_bytes(self, chunk: bytes, at_ms: float) -> DueExchange | None:
        """Take the next bytes of the response's body, before they are passed on.

        Raises:
            BodyTooLargeError: the body is larger than what is kept.
        """
        body = self._body
        recorder = self.recorder
        if body.size + len(chunk) > recorder.largest_body:
            self._refuse_large_response(recorder.largest_body)

        messages = body.add_chunk(chunk, at_ms, recorder.arrivals.count)
        if len(body.pieces) > _MOST_EVENTS and messages:
            self._refuse_large_response(_MOST_EVENTS, "events")

        is_first = len(messages) == len(body.pieces)
        self._response_messages.take_messages(messages, is_first=is_first)
        if body.is_whole or self._response_messages.has_response:
            self.is_answered = True

        return self._due_exchange_after_bytes(at_ms)

    def _due_exchange_after_bytes(self, at_ms: float) -> DueExchange | None:
        """Return what has to be written after some bytes."""
        if self._on_disk in (_OnDisk.ALL, _OnDisk.UP_TO_RESPONSE):
            self._on_disk = _OnDisk.UP_TO_RESPONSE
            return None

        if self.is_answered:
            self._on_disk = _OnDisk.ALL
            return self._due_exchange(End.COMPLETE, at_ms)

        if self.is_listening and len(self._body.pieces) > self._body.written_count:
            return self._due_stream_part(at_ms)

        return None

    def response_ended(
        self, at_ms: float, end: End = End.COMPLETE
    ) -> DueExchange | None:
        """Take the end of the bytes, whatever caused it."""
        self._response_messages.take_end(call_goes_on=self.status == ACCEPTED)
        had_rest = self._body.add_rest(at_ms, self.recorder.arrivals.count)
        if self._on_disk is _OnDisk.ALL and not had_rest:
            return None

        has_written_beginning = self._on_disk is _OnDisk.BEGINNING
        self._on_disk = _OnDisk.ALL
        return self._due_exchange(end, at_ms, continues_written=has_written_beginning)

    def _refuse_large_response(
        self, limit: int, unit: Literal["bytes", "events"] = "bytes"
    ) -> NoReturn:
        """Refuse a response that is larger than what is kept."""
        raise BodyTooLargeError(f"the response to {self.label}", limit, unit)

    def take_pushes(self) -> list[OpenPush]:
        """Return what the server has pushed in this response since this was asked last."""
        pushes = self._response_messages.new_pushes
        self._response_messages.new_pushes = []
        return pushes

    def take_pings(self) -> list[Message]:
        """Return the pings in this response since this was asked last."""
        pings = self._response_messages.pings
        self._response_messages.pings = []
        return pings

    def seal(self, end: End, at_ms: float) -> RecordedExchange:
        """Seal the exchange as it is now, and return it ready for the disk."""
        due = self._due_exchange(end, at_ms)
        exchange, self.ask, _ = self.recorder.sealer.seal(due.exchange, due.call)
        return exchange

    def _due_stream_part(self, at_ms: float) -> DueExchange:
        """Return what has come of a stream since it was due last."""
        due = self._due_exchange(
            End.OPEN, at_ms, continues_written=self._on_disk is _OnDisk.BEGINNING
        )
        self._on_disk = _OnDisk.BEGINNING
        self._body.written_count = len(self._body.pieces)

        return due

    def _due_exchange(
        self, end: End, at_ms: float, *, continues_written: bool = False
    ) -> DueExchange:
        """Return the exchange as it is now, or what continues its beginning on disk."""
        response = None
        if self._response_head is not None:
            end = End.COMPLETE if self.is_answered else end
            first_piece = self._body.written_count if continues_written else 0
            response = self._body.response_so_far(self._response_head, end, first_piece)

        exchange = RecordedExchange(
            self.number,
            self._kept_call.request,
            response,
            self.started_ms,
            at_ms,
            ended_after=self.recorder.arrivals.count,
            played_writes=self._writes_played_before,
        )
        return DueExchange(exchange, self._kept_call, continues_written)


class _ResponseMessages:
    """The messages of one response, linked to the calls and pushed questions of its session."""

    def __init__(self, recorder: Recorder, number: int, call: Call) -> None:
        self.answered_push: OpenPush | None = None
        """What the request answers."""
        self.new_pushes: list[OpenPush] = []
        """What the server has pushed in this response and nobody has taken."""
        self.pings: list[Message] = []
        """The pings in this response that nobody has taken."""
        self.has_response = False
        """The response to the request has passed."""
        self._recorder = recorder
        self._number = number
        self._call = call
        self._channel = _channel_of(call.request)
        message = call.message
        method = method_of(call.method)
        is_request = call.kind is Kind.REQUEST
        self._is_call = is_request and not method.listens
        self._may_precede_endpoint = message is None and call.request.method == "GET"
        """The next event may say where to post."""
        pushes = recorder.arrivals.pushes
        if message is not None and self._is_call and not method.is_step:
            pushes.begin_call(self._channel, number, message.comparable_id, call)
        elif message is not None and message.kind is Kind.RESPONSE:
            self.answered_push = pushes.close_answered_push(
                self._channel, message.comparable_id, number
            )

    def take_messages(self, messages: Sequence[bytes], *, is_first: bool) -> None:
        """Take the next events or lines of the response, the first of all with `is_first`."""
        for raw in messages:
            # Every request and every response has an id, and hardly any notification.
            if b'"id"' in raw or self._may_precede_endpoint:
                self._read_message(raw, is_first=is_first)

            is_first = False

    def take_end(self, *, call_goes_on: bool) -> None:
        """Take the end; the call goes on if the response only accepted it."""
        pushes = self._recorder.arrivals.pushes
        pushes.end_response(self._channel, self._number, call_goes_on=call_goes_on)

    def _read_message(self, raw: bytes, *, is_first: bool) -> None:
        """Read an event or a line that may have a message."""
        data: bytes | None = raw
        if not self._call.request.is_line:
            data = read_event(raw, first=is_first).data

        if self._may_precede_endpoint:
            self._may_precede_endpoint = may_precede_endpoint(raw, data)
            if data and is_endpoint_event(raw):
                self._may_precede_endpoint = False
                self._channel = self._recorder.sealer.note_endpoint(
                    self._number, self._call.request.target, data.decode("latin-1")
                )

        message = None if data is None else server_message(data)
        if message is None:
            return

        if message.kind is Kind.RESPONSE:
            self._take_response(message)
        elif message.kind is Kind.REQUEST:
            self._take_server_request(message)

    def _take_server_request(self, message: Message) -> None:
        """Take a ping, or a request that the server pushes."""
        pushes = self._recorder.arrivals.pushes
        if message.method == PING:
            pushes.add_ping(self._channel, message.comparable_id)
            self.pings.append(message)
            return

        turn, call = pushes.add_push(
            self._channel,
            self._number,
            message.comparable_id,
            is_shared=not self._is_call,
        )
        key = turn.key_for(message.method)
        asked_request = input_request(message.method, message.params)
        push = OpenPush(
            turn.owner_number, call or self._call, key, asked_request, message
        )
        turn.pushes.append(push)
        self.new_pushes.append(push)

    def _take_response(self, message: Message) -> None:
        """Take the response to this request, or to another one."""
        pushes = self._recorder.arrivals.pushes
        request_id = None
        if self._call.message is not None and self._call.kind is Kind.REQUEST:
            request_id = self._call.message.comparable_id

        if request_id is not None and message.comparable_id == request_id:
            self.has_response = True
            pushes.end_response(self._channel, self._number)
        else:
            pushes.end_answered_call(self._channel, message.comparable_id)
