"""Turns relayed bytes into exchanges that can be written to disk; it sees copies of what passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal, NamedTuple, NoReturn

from mrtr_cassette.core.cassette.digests import AnnouncedDigests, may_have_sha256
from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.cassette.sessions import (
    is_endpoint_event,
    is_listening_stream,
    may_precede_endpoint,
    post_target,
    without_empty_query,
)
from mrtr_cassette.core.protocol.calls import (
    Call,
    CallKey,
    gets_response_lines,
    line_label,
    read_call,
    session_ids_in_target,
)
from mrtr_cassette.core.protocol.dialect import InputRequired, input_request, may_ask
from mrtr_cassette.core.protocol.hooks import RecordHook
from mrtr_cassette.core.protocol.jsonrpc import (
    Kind,
    Message,
    hides_response,
    server_message,
    unread_texts,
)
from mrtr_cassette.core.protocol.methods import PING, method_of
from mrtr_cassette.core.record.passing_body import PassingBody
from mrtr_cassette.core.record.pushes import OpenPush, PushTurns
from mrtr_cassette.core.record.sealing import (
    NO_RESPONSE,
    ExchangeNames,
    Replacement,
    exchange_without_known_secrets,
    kept_headers_of_request,
    names_in_exchange,
    redacted_messages,
    sealed_endpoint,
    sealed_event_ids,
    spliced_response,
    state_places,
    with_references,
    with_sealed_endpoint,
    with_sealed_states,
    without_known_secrets,
)
from mrtr_cassette.core.secrets.credentials import (
    Credentials,
    RepeatedSecrets,
    UserSettings,
)
from mrtr_cassette.core.secrets.names import sealed_hash, sha256_of
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.sealed import (
    may_have_states_or_task_ids,
    seal_answers,
    state_replacements,
)
from mrtr_cassette.core.secrets.values import NO_VALUES, Values
from mrtr_cassette.core.wire.codings import (
    content_coding,
    why_body_unreadable,
    with_decoded_body,
)
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
    why_line_is_no_message,
)
from mrtr_cassette.core.wire.jsonbytes import is_json
from mrtr_cassette.core.wire.sse import read_event
from mrtr_cassette.errors import BodyTooLargeError, printable

Side = Literal["request", "response"]
_MOST_EVENTS = 100_000
"""Events, or lines, up to which a response is kept: each costs memory, however small."""


class DueExchange(NamedTuple):
    """An exchange that has to be written now; nothing has been taken out of it yet."""

    exchange: RecordedExchange
    call: Call
    continues_written: bool = False
    """Its response has only what came since it was written before."""


class UnreadBody(NamedTuple):
    """A body that can't be read, and why, as the rest of a sentence."""

    side: Side
    reason: str
    hides_id: bool = False
    """Nobody knows where the response has the caller's id, so it is played to no other caller."""


class SealedExchange(NamedTuple):
    """An exchange ready for the disk."""

    exchange: RecordedExchange
    ask: InputRequired | None
    """What its response asks; None for a final response."""

    unread: Sequence[UnreadBody]


@dataclass(slots=True)
class Arrivals:
    """Counts what has arrived, and keeps the questions that are still open."""

    count: int = 0
    """How many requests."""

    played_writes: dict[str, list[int]] = field(default_factory=dict)
    """Numbers of the writes that were played from the cassette since the last request, by session.
    """

    pushes: PushTurns[OpenPush] = field(default_factory=PushTurns)


@dataclass(slots=True)
class Endpoints:
    """What the disk has for the targets to which clients of HTTP+SSE post."""

    by_stream: dict[int | None, str] = field(default_factory=dict)
    """By the number of the exchange whose stream names the target."""

    by_target: dict[str, str] = field(default_factory=dict)

    def sealed_target(self, target: str) -> str:
        """Return what the disk has for the target of a request."""
        return self.by_target.get(without_empty_query(target), target)


@dataclass(slots=True)
class Recorder:
    """One recording: numbers what arrives, and seals what is due."""

    seals_states: bool
    """Raw states are replaced by their hash."""

    redactor: Redactor | None = None
    credentials: Credentials | None = None
    """Credentials seen and secrets found so far; replaced wherever they are repeated."""

    seals_answers: bool = False
    """Only hashes of users' answers reach the disk."""

    values: Values = NO_VALUES
    """Texts that references replace."""

    kept_headers: frozenset[str] = frozenset()
    """Lower-case names of headers of requests that are kept besides MCP's."""

    before_record: RecordHook | None = None
    """A user's function that changes requests, or leaves their calls out."""

    largest_body: int = LARGEST_BODY
    """Bytes up to which a response is kept."""

    known_states: RepeatedSecrets = field(default_factory=RepeatedSecrets)
    """The states that were issued or echoed."""

    announced: AnnouncedDigests = field(default_factory=AnnouncedDigests)
    arrivals: Arrivals = field(default_factory=Arrivals)
    endpoints: Endpoints = field(default_factory=Endpoints)
    left_out: set[int | str] = field(default_factory=set)
    """Numbers of exchanges that are not recorded, and hashes of what they issued."""

    def loggable_text(self, text: str, *, is_target: bool = False) -> str:
        """Return a text, or a request's target, as a log may have it: sealed and redacted."""
        if is_target:
            text = self.endpoints.sealed_target(text)

        if self.credentials is not None:
            text = self.credentials.known_secrets.sealed_text(text)

        if self.seals_states:
            text = self.known_states.sealed_text(text)

        if self.redactor is not None:
            redact = (
                self.redactor.redacted_target
                if is_target
                else self.redactor.redacted_text
            )
            text = redact(text)

        return printable(text)

    def label(self, call: Call, *, is_sealed: bool = False) -> str:
        """Return a call as a log may name it: without arguments, sealed and redacted.

        The call of a sealed exchange is so already.
        """
        request = call.request
        method = call.method
        if method:
            is_id = self.seals_states and call.named_task_id is not None
            name = "" if is_id else call.name
            title = str(CallKey("", method, name, ""))

            return title if is_sealed else self.loggable_text(title)

        if request.is_line:
            return line_label(call)

        if is_sealed:
            target = printable(request.target)
        else:
            target = self.loggable_text(request.target, is_target=True)

        return f"{printable(request.method)} {target}"

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

    def add_settings(self, settings: UserSettings) -> None:
        """Look for the credentials in what the user gives for the server."""
        if self.credentials is not None:
            self.credentials.add_settings(settings)

    def read_request(self, request: Request) -> Call:
        """Read a request, which may be compressed."""
        return read_call(with_decoded_body(request, self.largest_body))

    def request_received(self, request: Request, at_ms: float) -> Observation:
        """Begin an exchange; its request has arrived whole."""
        self.arrivals.count += 1
        if self.credentials is not None:
            self.credentials.add_headers(request.headers)

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
        echoed_hash = _hash_of_state(call.echoed or None)
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

    def note_endpoint(self, stream_number: int, listening_target: str, url: str) -> str:
        """Return the target of the URL to which the client of a stream posts from now on."""
        target = post_target(listening_target, url)
        id_spans = session_ids_in_target(target, listening_target)
        sealed_target = sealed_endpoint(target, id_spans, stream_number)
        self.endpoints.by_stream[stream_number] = sealed_target
        self.endpoints.by_target[target] = sealed_target
        if self.credentials is not None:
            for span in id_spans:
                session_id = span.slice_of(target)
                self.credentials.add_headers(((SESSION_HEADER, session_id),))

        return target

    def seal(self, observed: RecordedExchange, call: Call) -> SealedExchange:
        """Take out what must not reach the disk; the states are known from now on.

        Each step searches the result of the one before. The hash of an answer, or of a secret, is
        that of a text whose states have been replaced, and a secret found in one place is replaced
        in all others by the last step: so these steps can't share the splice for ids and states.
        """
        sent_response = observed.response or NO_RESPONSE
        request, response, exchange_names = self._without_names(
            observed.number, call, sent_response
        )
        if self.seals_answers:
            request = replace(request, body=seal_answers(request.body))

        if self.redactor is not None:
            request, response = redacted_messages(request, response, self.redactor)

        if self.credentials is not None and self.credentials.known_secrets.texts:
            known_secrets = self.credentials.known_secrets
            request, response = without_known_secrets(request, response, known_secrets)

        digests = observed.digests
        # Most responses announce nothing, and have no secret.
        is_changed = response.pieces != sent_response.pieces
        may_need_digests = is_changed or may_have_sha256(sent_response.body)
        if may_need_digests and exchange_names.ask is None:
            digests = self.announced.add_response(sent_response, response)

        if self.values.names:
            request, response = with_references(request, response, self.values)

        # For every exchange, `replace` would take longer than the rest of this function.
        sealed_exchange = RecordedExchange(
            observed.number,
            request,
            None if observed.response is None else response,
            observed.started_ms,
            observed.ended_ms,
            issued_sha256=_hash_of_state(exchange_names.issued_name),
            echoed_sha256=_hash_of_state(exchange_names.echoed_name),
            ended_after=observed.ended_after,
            recorded_by=observed.recorded_by,
            played_writes=observed.played_writes,
            digests=digests,
        )
        unread_bodies = _unread_bodies(call, sent_response)
        return SealedExchange(sealed_exchange, exchange_names.ask, unread_bodies)

    def _without_names(
        self, number: int | None, call: Call, sent_response: Response
    ) -> tuple[Request, Response, ExchangeNames]:
        """Replace the ids of sessions and events, and states and other ids; return the latter."""
        request = self._kept_request(call.request)
        response = sent_response
        if number in self.endpoints.by_stream:
            response = with_sealed_endpoint(response, self.endpoints.by_stream[number])

        # Most exchanges have no state and no such id: one look at both bodies says so.
        both_bodies = call.request.body + sent_response.body
        has_names = may_have_states_or_task_ids(both_bodies) or may_ask(both_bodies)
        exchange_names = ExchangeNames()
        if has_names:
            exchange_names = names_in_exchange(call, response)

        replacements: list[Replacement] = []
        if response.is_event_stream and self._is_in_session(number, request, response):
            replacements.extend(sealed_event_ids(response))

        if not self.seals_states or not (has_names or self.known_states.texts):
            return request, spliced_response(response, replacements), exchange_names

        for issued_id in exchange_names.ids:
            self.known_states.remember_state(issued_id)

        places = state_places(response, self.known_states)
        replacements.extend(state_replacements(places, sealed_hash))
        response = spliced_response(response, replacements)
        request = with_sealed_states(request, self.known_states)
        states = [place.state for place in places if place.is_state]
        if states and not exchange_names.is_response_found:
            # What was not understood, such as an ask that broke off, may issue one too.
            exchange_names = exchange_names._replace(issued_name=states[0])

        for place in places:
            self.known_states.remember_state(place.state)

        request, response = without_known_secrets(request, response, self.known_states)
        return request, response, exchange_names

    def _kept_request(self, request: Request) -> Request:
        """Return a request with what is kept of its target and its headers."""
        target = self.endpoints.sealed_target(request.target)
        headers = kept_headers_of_request(request.headers, self.kept_headers)
        return Request(request.method, target, headers, request.body)

    def _is_in_session(
        self, number: int | None, request: Request, response: Response
    ) -> bool:
        """Whether an exchange opens a session or belongs to one, by its headers."""
        if number in self.endpoints.by_stream:
            return True

        if header_value(request.headers, SESSION_HEADER):
            return True

        return bool(header_value(response.headers, SESSION_HEADER))

    def may_repeat_secrets(self, journal: bytes) -> bool:
        """Tell, quickly, whether a journal may have secrets that were found after its lines."""
        if self.credentials is None or not self.credentials.has_found_repeatable_secret:
            return False
        return self.credentials.known_secrets.may_occur_in(journal)

    def without_repeated_secrets(self, exchange: RecordedExchange) -> RecordedExchange:
        """Return an exchange without the secrets that were found after it was sealed."""
        if self.credentials is None or not self.credentials.has_found_repeatable_secret:
            return exchange

        return exchange_without_known_secrets(exchange, self.credentials.known_secrets)


def _hash_of_state(state: str | None) -> str | None:
    """Return the hash of a state, if there is one."""
    return None if state is None else sha256_of(state)


def _unread_bodies(call: Call, response: Response) -> list[UnreadBody]:
    """Return which bodies can't be read, and what on a pipe was no line."""
    request = call.request
    has_unread_texts = False
    for text in unread_texts(response):
        if not _is_other_json(text, call, response):
            has_unread_texts = True

    hides_id = has_unread_texts and hides_response(call.message, response)
    response_reason = why_body_unreadable(response)
    if has_unread_texts and not response_reason:
        response_reason = "it is not readable JSON-RPC"

    unread_bodies = []
    request_reason = why_body_unreadable(request)
    if request_reason:
        unread_bodies.append(UnreadBody("request", request_reason))

    if response_reason:
        unread_bodies.append(UnreadBody("response", response_reason, hides_id))

    if call.message is None and request.is_line:
        unread_bodies += _misframed_lines(request, response)

    return unread_bodies


def _is_other_json(text: bytes, call: Call, response: Response) -> bool:
    """Tell whether a text is JSON that is read, where no message is awaited: of OAuth, say."""
    awaits_message = call.message is not None or bool(call.batch)
    return not awaits_message and not response.is_message_stream and is_json(text)


def _misframed_lines(request: Request, response: Response) -> list[UnreadBody]:
    """Return which lines of a pipe are no messages as MCP has them."""
    unread_lines = []
    request_reason = why_line_is_no_message(request.body)
    if request_reason:
        unread_lines.append(UnreadBody("request", request_reason))

    for piece in response.pieces:
        response_reason = why_line_is_no_message(piece.raw)
        if response_reason:
            unread_lines.append(UnreadBody("response", response_reason))

    return unread_lines


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
        return self.recorder.label(self.call)

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
        if recorder.credentials is not None:
            recorder.credentials.add_headers(headers)

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
        exchange, self.ask, _ = self.recorder.seal(due.exchange, due.call)
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
                self._channel = self._recorder.note_endpoint(
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
