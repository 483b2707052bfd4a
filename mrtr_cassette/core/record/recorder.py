"""Turns relayed bytes into exchanges that can be written to disk; it sees copies of what passes.

What must not reach the disk is taken out of an exchange; the framing of its response stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from mrtr_cassette.core.cassette.digests import Announced, may_announce
from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.cassette.sessions import (
    endpoint_piece,
    is_endpoint,
    listens,
    may_lead,
    posted_to,
)
from mrtr_cassette.core.protocol.calls import (
    Call,
    CallKey,
    gets_lines,
    ids_given_in,
    line_label,
    read_call,
)
from mrtr_cassette.core.protocol.dialect import (
    REQUEST_STATE,
    InputRequired,
    input_request,
    may_ask,
    recognise,
)
from mrtr_cassette.core.protocol.jsonrpc import (
    SUBSCRIPTION_ID,
    Kind,
    Message,
    hides_response,
    name_in,
    response_to,
    server_message,
    splice_pieces,
    unread_texts,
)
from mrtr_cassette.core.protocol.methods import CANCELLED, PING, method_of
from mrtr_cassette.core.protocol.origins import origin_in
from mrtr_cassette.core.protocol.tasks import created_id, named_task, notified_states
from mrtr_cassette.core.record.pushes import OpenPush, PushTurns
from mrtr_cassette.core.secrets.credentials import Credentials, Given, KnownTexts
from mrtr_cassette.core.secrets.names import HASH, is_of_kind, sealed_hash, sha256_of
from mrtr_cassette.core.secrets.redact import Redactor
from mrtr_cassette.core.secrets.sealed import (
    StatePlace,
    find_places,
    is_searched,
    may_have_places,
    replaced_states,
    seal_answers,
    with_task,
)
from mrtr_cassette.core.wire.codings import (
    ContentDecoder,
    content_coding,
    readable,
    why_unread,
)
from mrtr_cassette.core.wire.http import (
    ACCEPTED,
    LARGEST_BODY,
    LAST_EVENT_ID_HEADER,
    NO_METHOD,
    NO_STATUS,
    SESSION_HEADER,
    End,
    Headers,
    Piece,
    Request,
    Response,
    channel_request,
    header_value,
    is_event_stream,
    kept_request_headers,
    kept_response_headers,
    line_request,
    lines_in,
    why_no_line,
)
from mrtr_cassette.core.wire.jsonbytes import Span, canonical, splice
from mrtr_cassette.core.wire.sse import SseFramer, event_id_spans, read_event
from mrtr_cassette.errors import BodyTooLargeError, printable

E = TypeVar("E")
Side = Literal["request", "response"]

_LONGEST_LENGTH = 20
"""Digits of what is no length of a body."""
_MOST_EVENTS = 100_000
"""Events, or lines, up to which a response is kept: each costs memory, however small."""
_IDS = (SESSION_HEADER, LAST_EVENT_ID_HEADER)
NOTHING = Response(NO_STATUS, (), (), End.COMPLETE)


class Due(NamedTuple):
    """An exchange that has to be written now; nothing has been taken out of it yet."""

    exchange: RecordedExchange
    call: Call
    continues: bool = False
    """Its response has only what came since it was written before."""


class Unread(NamedTuple):
    """A body that can't be read, and why, as the rest of a sentence."""

    side: Side
    reason: str
    hides_id: bool = False
    """Nobody knows where the response has the caller's id, so it is played to no other caller."""


class Sealed(NamedTuple):
    """An exchange ready for the disk."""

    exchange: RecordedExchange
    ask: InputRequired | None
    """What its response asks; None for a final response."""
    unread: Sequence[Unread]


@dataclass(slots=True)
class Recorder:
    """One recording: numbers what arrives, and seals what is due."""

    seals: bool
    """Raw states are replaced by their hash."""
    redactor: Redactor | None = None
    credentials: Credentials | None = None
    """Credentials seen and secrets found so far; replaced wherever they are repeated."""
    seals_answers: bool = False
    """Of what users answer only hashes reach the disk."""
    kept_headers: frozenset[str] = frozenset()
    """Lower-case names of headers of requests that are kept besides MCP's."""
    largest_body: int = LARGEST_BODY
    """Bytes up to which a response is kept."""
    known: KnownTexts = field(default_factory=KnownTexts)
    """The states that were issued or echoed."""
    announced: Announced = field(default_factory=Announced)
    arrived: int = 0
    played: dict[str, list[int]] = field(default_factory=dict)
    """Numbers of the writes that were played from the cassette since the last request, by session.
    """
    pushes: PushTurns[OpenPush] = field(default_factory=PushTurns)
    opening: dict[int | None, str] = field(default_factory=dict)
    """What the disk has for the target that a stream names, by the number of its exchange."""
    endpoints: dict[str, str] = field(default_factory=dict)
    """The targets to which clients of HTTP+SSE post, and what the disk has for each."""

    def shown(self, text: str, *, is_target: bool = False) -> str:
        """Return a text, or a request's target, as a log may have it: sealed and redacted."""
        if is_target:
            text = self.endpoints.get(text, text)
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
        return self.pushes.is_open(channel, message.same_id)

    def has_played(self, request: Request, number: int) -> None:
        """Take note that a recorded write is played for a request."""
        self.played.setdefault(request.header(SESSION_HEADER), []).append(number)

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

    def seal(self, seen: RecordedExchange, call: Call) -> Sealed:
        """Take out what must not reach the disk; the states are known from now on."""
        request, sent = call.request, seen.response or NOTHING
        body, response = sent.body, sent
        raw = request.body + body
        request = replace(
            request, target=self.endpoints.get(request.target, request.target)
        )
        if seen.number in self.opening:
            response = _with_sealed_endpoint(response, self.opening[seen.number])
        request = replace(request, headers=_kept(request.headers, self.kept_headers))
        has_event_ids = response.is_event_stream and b"id:" in body
        if has_event_ids and self._is_in_session(seen.number, request, sent):
            response = replace(
                response, pieces=tuple(map(_with_sealed_event_id, response.pieces))
            )
        # Most exchanges have no state and no task: one look at both bodies says so.
        may_tell = may_have_places(raw) or may_ask(raw)
        message, issued, echoed, tasks = (
            _names_in(call, response) if may_tell else (None, None, None, [])
        )
        for task in tasks if self.seals else ():
            self.known.remember(task)
        if self.seals and (self.known.texts or may_tell):
            request, response, states = _seal_states(request, response, self.known)
            if message is None and states:
                # What was not understood, such as an ask that broke off, may issue one too.
                issued = states[0]
        if self.seals_answers:
            request = replace(request, body=seal_answers(request.body))
        if self.redactor is not None:
            request, response = redacted(request, response, self.redactor)
        if self.credentials is not None and self.credentials.known.texts:
            request, response = _without_known(
                request, response, self.credentials.known
            )
        ask = None if message is None else recognise(message.tree.get("result"))
        sealed = replace(
            seen,
            request=request,
            response=None if seen.response is None else response,
            issued_sha256=None if issued is None else sha256_of(issued),
            echoed_sha256=None if echoed is None else sha256_of(echoed),
        )
        # Most responses announce nothing, and have no secret.
        if ask is None and (response.pieces != sent.pieces or may_announce(body)):
            sealed = replace(sealed, digests=self.announced.add(sent, response))
        return Sealed(sealed, ask, _unread(call, sent))

    def _is_in_session(
        self, number: int | None, request: Request, response: Response
    ) -> bool:
        """Whether an exchange opens a session or belongs to one, by its headers."""
        if number in self.opening:
            return True
        heads = (request.headers, response.headers)
        return any(header_value(headers, SESSION_HEADER) for headers in heads)

    def may_repeat(self, journal: bytes) -> bool:
        """Tell, quickly, whether a journal may have secrets that were found after its lines."""
        credentials = self.credentials
        has_found = credentials is not None and credentials.has_found
        return (
            has_found
            and credentials is not None
            and credentials.known.may_be_in(journal)
        )

    def without_repeated(self, exchange: RecordedExchange) -> RecordedExchange:
        """Return an exchange without the secrets that were found after it was sealed."""
        if self.credentials is None:
            return exchange
        known = self.credentials.known
        request, response = _without_known(
            exchange.request, exchange.response or NOTHING, known
        )
        if exchange.response is None:
            return replace(exchange, request=request)
        return replace(exchange, request=request, response=response)


class Observation:
    """One exchange while it passes, which says when it is due on disk.

    What an input returns has to be written before anything of the input is passed on: a killed
    recording lacks nothing that a client has. Due is what makes the client's response whole, and
    each message of a stream that tells what other requests cause. What passes later is due once, at
    the end.
    """

    def __init__(
        self, recorder: Recorder, number: int, call: Call, at_ms: float
    ) -> None:
        request, message = call.request, call.message
        self.recorder = recorder
        self.number = number
        self.call = call
        self.follows = tuple(recorder.played.pop(request.header(SESSION_HEADER), ()))
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
        self.pings: list[Message] = []
        """The pings in this response that nobody has taken."""
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
        self._may_lead = message is None and request.method == "GET"
        """The next event may say where to post."""
        if message is not None:
            self._begin(message)

    def _begin(self, message: Message) -> None:
        """Tell those that link pushed questions what this request is."""
        pushes = self.recorder.pushes
        if message.kind is Kind.REQUEST and not method_of(message.method).listens:
            self._is_call = True
            pushes.begun(self._channel, self.number, message.same_id, self.call)
        elif message.kind is Kind.RESPONSE:
            self.answered = pushes.answered(self._channel, message.same_id, self.number)

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

    def response_started(
        self, status: int, headers: Headers, at_ms: float = 0.0
    ) -> Due | None:
        """Take the response's head."""
        self.status = status
        # Over pipes only a request gets a response, and the beginning of the channel.
        self._has_begun = not self._is_line or gets_lines(self.call)
        self._headers = headers
        if self.recorder.credentials is not None:
            self.recorder.credentials.seen(headers)
        length = header_value(headers, "content-length")
        if length.isdecimal() and len(length) < _LONGEST_LENGTH:
            self._missing = int(length)
        coding = content_coding(headers)
        if coding:
            self._decoder = ContentDecoder(coding, self.recorder.largest_body)
        if is_event_stream(headers):
            self._framer = SseFramer()
        if (self._framer is not None or self._is_line) and not coding:
            self.is_listening = listens(
                self.call, Response(status, headers, (), End.OPEN)
            )
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
            raise BodyTooLargeError(
                f"the response to {self.label}", recorder.largest_body
            )
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
        headers, decoder = _kept(self._headers), self._decoder
        if decoder is not None:
            # One that was sent whole and yet is cut short goes on as it came.
            is_cut = (
                end is End.COMPLETE and self._framer is None and not decoder.is_whole
            )
            if decoder.is_known and not decoder.failed and not is_cut:
                headers = tuple(
                    (name, value)
                    for name, value in headers
                    if name.lower() != "content-encoding"
                )
            else:
                pieces = self._coded
        if self._missing is not None and self._framer is None and len(pieces) > 1:
            # Where the size was known from the start, the rhythm is the network's.
            pieces = [
                pieces[-1]._replace(raw=b"".join([piece.raw for piece in pieces]))
            ]
        response = (
            Response(self.status, headers, tuple(pieces), end)
            if self._has_begun
            else None
        )
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
            raise BodyTooLargeError(
                f"the response to {self.label}", _MOST_EVENTS, "events"
            )
        pieces += [Piece(raw, at_ms, recorder.arrived) for raw in messages]
        first = pieces[0].raw
        for raw in messages:
            # Every request and every response has an id, and hardly any notification.
            if b'"id"' in raw or self._may_lead:
                self._read(raw, is_first=raw is first)

    def _opened(self, url: str) -> None:
        """Take the URL to which a client of HTTP+SSE has to post from now on."""
        recorder, listening = self.recorder, self.call.request.target
        self._channel = posted_to(listening, url)
        spans = ids_given_in(self._channel, listening)
        sealed = sealed_endpoint(self._channel, spans, self.number)
        recorder.opening[self.number] = sealed
        recorder.endpoints[self._channel] = sealed
        if recorder.credentials is not None:
            ids = [self._channel[span.start : span.end] for span in spans]
            recorder.credentials.seen(tuple((SESSION_HEADER, text) for text in ids))

    def _read(self, raw: bytes, *, is_first: bool) -> None:
        request, pushes = self.call.message, self.recorder.pushes
        data = raw if self._is_line else read_event(raw, first=is_first).data
        if self._may_lead:
            self._may_lead = may_lead(raw, data)
            if data and is_endpoint(raw):
                self._may_lead = False
                self._opened(data.decode("latin-1"))
        message = None if data is None else server_message(data)
        if message is None:
            return
        if message.kind is Kind.REQUEST and message.method == PING:
            pushes.pinged(self._channel, message.id)
            self.pings.append(message)
        elif message.kind is Kind.REQUEST:
            turn, call = pushes.pushed(
                self._channel, self.number, message.same_id, shared=not self._is_call
            )
            key = turn.key_for(message.method)
            asked = input_request(message.method, message.params)
            turn.asked.append(
                OpenPush(turn.owner, call or self.call, key, asked, message)
            )
            self.pushed.append(turn.asked[-1])
        elif message.kind is Kind.RESPONSE:
            called = (
                request
                if request is not None and request.kind is Kind.REQUEST
                else None
            )
            if called is not None and message.same_id == called.same_id:
                self.is_answered = True
                pushes.ended(self._channel, self.number)
            else:
                pushes.responded(self._channel, message.same_id)


# Lines on pipes


class Channel(Generic[E]):
    """One run of a server on a pipe: assigns each line to its exchange.

    The server's response to a request belongs to it, and so does what names the request by its
    progress token or its subscription, and what is said while it alone is pending. Everything else
    the server says of its own accord: that is the response to the channel's beginning.
    Source: docs/cassette-format.md, "Over pipes"; MCP 2026-07-28, basic, "Transports", stdio.

    `begin` begins an exchange with its request. `session` is empty for the server's first start.
    """

    def __init__(self, begin: Callable[[Request], E], session: str = "") -> None:
        self._begin, self._session = begin, session
        self._listening = begin(channel_request(session))
        self._has_spoken = False
        self._pending: dict[str, list[E]] = {}
        """Requests without their responses, by canonical texts of their ids."""
        self._by_token: dict[str, E] = {}
        self._calling: dict[E, None] = {}
        """The calls that wait for their responses, the latest last."""

    def client_line(self, line: bytes) -> tuple[E, bool]:
        """Begin the exchange of a client's line; return also whether nothing follows in it."""
        request = line_request(line, self._session)
        call = read_call(request)
        exchange = self._begin(request)
        message = call.message
        if message is None or message.kind is not Kind.REQUEST or message.id is None:
            if message is not None and message.method == CANCELLED:
                # No response is expected any more; one that comes is still the request's own.
                cancelled = canonical(message.params.get("requestId"))
                for pending in self._pending.get(cancelled, ()):
                    self.given_up(pending)
            return exchange, True
        self._pending.setdefault(message.id, []).append(exchange)
        if message.progress_token is not None:
            self._by_token[message.progress_token] = exchange
        if not listens(call, None):
            self._calling[exchange] = None
        return exchange, False

    def server_line(self, line: bytes) -> tuple[E, bool]:
        """Return which exchange a line of the server belongs to, and whether it is the last one."""
        message = server_message(line)
        is_response = message is not None and message.kind is Kind.RESPONSE
        identity = message.id if message is not None and is_response else None
        identity = name_in(self._pending, identity)
        if identity is not None:
            same = self._pending[identity]
            exchange = same.pop(0)
            if not same:
                del self._pending[identity]
            self._by_token = {
                key: it for key, it in self._by_token.items() if it != exchange
            }
            self.given_up(exchange)
            return exchange, True
        named = None if message is None else self._named_by(message)
        if named is None and len(self._calling) == 1:
            (named,) = self._calling
        if named is not None:
            return named, False
        self._has_spoken = True
        return self._listening, False

    def given_up(self, exchange: E) -> None:
        """Take note that nobody waits for the response of a call any more."""
        self._calling.pop(exchange, None)

    @property
    def latest_call(self) -> E | None:
        """The latest call that waits for its response."""
        return next(reversed(self._calling), None)

    def is_pending(self, identity: str) -> bool:
        """Tell whether a request with an id, as canonical text, waits for its response."""
        return name_in(self._pending, identity) is not None

    def _named_by(self, message: Message) -> E | None:
        token = message.params.get("progressToken")
        if token is not None:
            name = name_in(self._by_token, canonical(token))
            return None if name is None else self._by_token[name]
        if message.method == CANCELLED:
            named = self._pending_as(message.params.get("requestId"))
            # Only what listens is cancelled by a server; otherwise it cancels what it has asked.
            return None if named in self._calling else named
        return self._pending_as(message.meta.get(SUBSCRIPTION_ID))

    def _pending_as(self, identity: Any) -> E | None:
        """Return the oldest request with an id, which a server may repeat in another type."""
        name = None if identity is None else name_in(self._pending, canonical(identity))
        return None if name is None else self._pending[name][0]

    def ended(self, *, by_server: bool) -> list[tuple[E, End | None]]:
        """Return what the end of the channel ends; by the server, or by the client that left.

        Each exchange is returned with its end; None where there is nothing to keep of it.
        """
        listening_end = End.COMPLETE if by_server else End.OPEN
        kept = listening_end if self._has_spoken or by_server else None
        end = End.BROKEN if by_server else End.OPEN
        pending = [(each, end) for same in self._pending.values() for each in same]
        return [(self._listening, kept), *pending]


# What is taken out


def _names_in(
    call: Call, response: Response
) -> tuple[Message | None, str | None, str | None, list[str]]:
    """Return the JSON-RPC response, the state or task that it issues, and the one that is echoed.

    Returns also the id of the task that the response creates, and those that both name.
    """
    located, answers = response_to(call.message, response), call.answers
    message = None if located is None else located.message
    result = None if message is None else message.tree.get("result")
    issued = result.get(REQUEST_STATE) if isinstance(result, dict) else None
    echoed = None if answers is None else answers.request_state
    created, named = created_id(call.message, message), named_task(call.message)
    # Where it is short, and the task's creation is not recorded, an id is no secret.
    ids = [named or "", *(state.id for state in notified_states(response))]
    tasks = [*filter(None, [created]), *filter(is_searched, ids)]
    return (
        message,
        created or (issued if isinstance(issued, str) else None),
        named or echoed,
        tasks,
    )


# Headers come again with call after call; what is kept of them is worked out once.


@lru_cache(maxsize=2048)
def _kept(headers: Headers, named: frozenset[str] | None = None) -> Headers:
    """Return what is kept of a response's headers, or of a request's, with the `named` ones."""
    kept = (
        kept_response_headers(headers)
        if named is None
        else kept_request_headers(headers, named)
    )
    if not header_value(kept, SESSION_HEADER):
        return kept
    # The id of an event that stands beside that of a session is sealed, too.
    return tuple(
        (name, _sealed_id(it) if name.lower() in _IDS else it) for name, it in kept
    )


def _sealed_id(identity: str) -> str:
    # That of a replay, which is recorded, is sealed already.
    return identity if is_of_kind(identity, HASH) else sealed_hash(identity)


# States and ids of tasks


def _seal_states(
    request: Request, response: Response, known: KnownTexts
) -> tuple[Request, Response, list[str]]:
    """Replace states and ids where they are known to stand, then wherever they are repeated.

    Returns also the raw states of the response; the states of both are known from now on.
    """

    def sealed(state: str) -> str:
        # A state that the client tampered with may contain the one that it was given.
        # With that one replaced in its place, the tampering can be matched on replay.
        partly = state if state in known else known.seal_text(state)
        return sealed_hash(state) if partly == state else partly

    request = with_task(
        request, lambda task: sealed_hash(task) if task in known else task
    )
    echoed = find_places(request.body, known)
    issued = _places_in(response, known)
    if echoed:
        request = replace(
            request, body=splice(request.body, replaced_states(echoed, sealed))
        )
    if issued:
        pieces = splice_pieces(response.pieces, replaced_states(issued, sealed_hash))
        response = replace(response, pieces=pieces)
    for place in (*echoed, *issued):
        known.remember(place.state)
    request, response = _without_known(request, response, known)
    return request, response, [place.state for place in issued if not place.is_task]


def _places_in(response: Response, known: KnownTexts) -> list[StatePlace]:
    """Return the states and ids in the messages of a response, and where in its body they stand."""
    if not response.is_framed:
        return find_places(response.body, known)
    places: list[StatePlace] = []
    offset = 0
    for index, piece in enumerate(response.pieces):
        if may_have_places(piece.raw):
            event = (
                read_event(piece.raw, first=index == 0)
                if response.is_event_stream
                else None
            )
            for place in find_places(
                piece.raw if event is None else event.data or b"", known
            ):
                span = place.span if event is None else event.raw_span(place.span)
                if span is not None:
                    span = Span(span.start + offset, span.end + offset)
                    places.append(place._replace(span=span))
        offset += len(piece.raw)
    return places


def sealed_endpoint(target: str, ids: Sequence[Span], number: int) -> str:
    """Return what the disk has for a target to which a client of HTTP+SSE posts.

    A session without an id in its target gets one of ours, by the number of its stream, so that a
    replay has it apart from others.
    """
    if not ids:
        separator = "&" if "?" in target else "?"
        return f"{target}{separator}session_id={sealed_hash(f'{number} {target}')}"
    raw = target.encode("latin-1")
    sealed = [
        (span, sealed_hash(target[span.start : span.end]).encode()) for span in ids
    ]
    return splice(raw, sealed).decode("latin-1")


def _with_sealed_endpoint(response: Response, sealed: str) -> Response:
    """Replace the target to which the client of a stream posts."""
    index, url = endpoint_piece(response)
    if url is None:
        return response
    piece = response.pieces[index]
    span = read_event(piece.raw, first=index == 0).raw_span(Span(0, len(url)))
    if span is None:
        return response
    origin = origin_in(url.decode("latin-1"))
    raw = splice(piece.raw, [(span, (origin + sealed).encode("latin-1"))])
    pieces = list(response.pieces)
    pieces[index] = piece._replace(raw=raw)
    return replace(response, pieces=tuple(pieces))


def _with_sealed_event_id(piece: Piece) -> Piece:
    """Replace the id of an event, from which a client of its session may resume the stream."""
    raw, sealed = piece.raw, []
    for span in event_id_spans(raw):
        identity = raw[span.start : span.end].decode("utf-8", "surrogateescape")
        sealed.append((span, _sealed_id(identity).encode()))
    return piece._replace(raw=splice(raw, sealed)) if sealed else piece


# Secrets and credentials


def redacted(
    request: Request, response: Response, redactor: Redactor
) -> tuple[Request, Response]:
    """Replace the secrets in an exchange by placeholders."""
    content_type = header_value(response.headers, "content-type")
    request, headers = redactor.request(request), redactor.headers(response.headers)
    return request, _changed(
        response, headers, partial(redactor.body, content_type=content_type)
    )


def _without_known(
    request: Request, response: Response, known: KnownTexts
) -> tuple[Request, Response]:
    """Replace the states or the credentials that an exchange repeats."""
    values = [value for _, value in (*request.headers, *response.headers)]
    head = "\0".join([request.target, *values]).encode("utf-8", "surrogatepass")
    # One look at all that both say: most exchanges repeat none.
    if not known.may_be_in(b"\0".join((head, request.body, response.body))):
        return request, response
    headers = known.sealed_headers(response.headers)
    return known.sealed_request(request), _changed(response, headers, known.seal)


def _changed(
    response: Response, headers: Headers, change: Callable[[bytes], bytes]
) -> Response:
    """Change a body: piece by piece, or whole, as what is changed may stand across two chunks."""
    pieces, body = response.pieces, response.body
    changed = change(body)
    if changed == body:
        return (
            response
            if headers == response.headers
            else replace(response, headers=headers)
        )
    if len(pieces) > 1 and response.is_framed:
        pieces = tuple([piece._replace(raw=change(piece.raw)) for piece in pieces])
    else:
        pieces = (pieces[-1]._replace(raw=changed),)
    return Response(response.status, headers, pieces, response.end)


def _unread(call: Call, response: Response) -> list[Unread]:
    """Return which bodies can't be read, and what on a pipe was no line."""
    request = call.request
    found = [Unread("request", why_unread(request))]
    hides = hides_response(call.message, response)
    reason = why_unread(response)
    if not reason and (hides or unread_texts(response)):
        reason = "it is no JSON-RPC that can be read here"
    found.append(Unread("response", reason, hides))
    if call.message is None and request.is_line:
        found.append(Unread("request", why_no_line(request.body)))
        found += [
            Unread("response", why_no_line(piece.raw)) for piece in response.pieces
        ]
    return [unread for unread in found if unread.reason]
