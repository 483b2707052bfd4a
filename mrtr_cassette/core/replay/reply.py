"""What a client gets for a request: recorded bytes with its own values, as soon as they are due."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Final, NamedTuple

from mrtr_cassette.core.cassette.entries import Lifetime, ReplayEntry, places_of_events
from mrtr_cassette.core.cassette.lookup import CallerValues
from mrtr_cassette.core.cassette.matchers import Matchers
from mrtr_cassette.core.cassette.sessions import event_ids, is_answered
from mrtr_cassette.core.cassette.texts import headers_with
from mrtr_cassette.core.protocol.calls import NO_SESSION, read_call
from mrtr_cassette.core.protocol.jsonrpc import (
    Kind,
    Located,
    Message,
    echoes_of_request,
    messages_in,
)
from mrtr_cassette.core.protocol.methods import INITIALIZE
from mrtr_cassette.core.protocol.tasks import (
    TaskState,
    clock_spans,
    notified_state,
    polled_state,
)
from mrtr_cassette.core.replay.order import LiveSession, Refusal
from mrtr_cassette.core.replay.timelines import (
    NO_WAITS,
    OPEN_GATE,
    Gate,
    Timelines,
    Waits,
    is_reading_request,
)
from mrtr_cassette.core.secrets.names import id_replacer
from mrtr_cassette.core.secrets.values import Values
from mrtr_cassette.core.wire.http import (
    End,
    Headers,
    Piece,
    Response,
    kept_response_headers,
)
from mrtr_cassette.core.wire.jsonbytes import Span

# Replies


class Gap(NamedTuple):
    """A place in a body that has another value in every replay, or the recorded bytes.

    Attributes:
        value: its name, as `CallerValues` has it, or the state of a task.
        source: the id of that task, or the request whose caller it is, if not the caller itself.
    """

    span: Span
    value: str
    recorded: bytes
    source: ReplayEntry | str | None = None


class PieceArrival(NamedTuple):
    """When a piece came: after how many requests in all, and at which time of the recorder."""

    arrived_count: int
    at_ms: float


UNKNOWN_ARRIVAL: Final = PieceArrival(0, 0)
"""Stands for when it is not known."""


class Part(NamedTuple):
    """Pieces of a recorded body that are sent together, in rhythm `at_ms` after the request."""

    segments: tuple[bytes | Gap, ...]
    at_ms: float
    gate: Gate
    pieces: range
    arrival: PieceArrival


class Reply(NamedTuple):
    """One recorded response, ready to be served: outside the gaps every byte is recorded.

    Attributes:
        notified: the states of tasks of which its pieces notify the client.
        response_piece: the piece that completes the JSON-RPC response to the request, or None.
    """

    status: int
    headers: Headers
    parts: tuple[Part, ...]
    end: End
    is_event_stream: bool
    is_framed: bool
    waits: Waits
    notified: Mapping[int, TaskState]
    response_piece: int | None


FindRepeated = Callable[[Located], list[tuple[Span, str]]]
"""Finds where a message repeats values of its request, with the names of these."""


class Caller(NamedTuple):
    """What a response may repeat of a request, besides its id and its token.

    Attributes:
        batch: the requests, if it is a batch.
        repeated: finds values of its arguments.
    """

    batch: Sequence[Message] = ()
    repeated: FindRepeated | None = None


NO_CALLER: Final = Caller()


def build_reply(
    request: Message | None,
    response: Response,
    waits: Waits = NO_WAITS,
    *,
    tasks: Collection[str] = (),
    started_ms: float = 0,
    ended: PieceArrival = UNKNOWN_ARRIVAL,
    piecewise: bool = False,
    caller: Caller = NO_CALLER,
) -> Reply:
    """Return what to send for a recorded response to a request; `piecewise` keeps pieces apart.

    What depends on the clock in the states of `tasks` is a gap.
    """
    places = _Places(response, tasks)
    places.find_gaps(request, waits)
    if caller.repeated is not None:
        places.add_repeated(caller.repeated)

    if not places.gaps:
        places.find_gaps_of_batch(caller.batch)

    parts = _parts_sent_together(
        response, waits, places.gaps, started_ms, ended, piecewise=piecewise
    )
    end = response.end
    # Who posts a message may leave as soon as it is accepted; others read on.
    if end is End.OPEN and response.only_accepts:
        end = End.COMPLETE

    return Reply(
        status=response.status,
        # A stranger's cassette may have what no recorder keeps: other framing, or cookies.
        headers=kept_response_headers(response.headers),
        parts=parts,
        end=end,
        is_event_stream=response.is_event_stream,
        is_framed=response.is_framed,
        waits=waits,
        notified=places.notified,
        response_piece=places.response_piece,
    )


def _parts_sent_together(
    response: Response,
    waits: Waits,
    gaps: Sequence[Gap],
    started_ms: float,
    ended: PieceArrival,
    *,
    piecewise: bool,
) -> tuple[Part, ...]:
    """Return the pieces of a body that are sent together: all up to one that waits."""
    body = response.body
    gates = waits.pieces or (OPEN_GATE,) * len(response.pieces)
    first_pieces = []
    for index, gate in enumerate(gates):
        if piecewise or index == 0 or gate != OPEN_GATE:
            first_pieces.append(index)

    piece_ends = list(accumulate([len(piece.raw) for piece in response.pieces]))
    remaining_gaps = list(gaps)
    sent_bytes = 0
    parts = []
    for first, behind in pairwise([*first_pieces, len(gates)]):
        part_end = piece_ends[behind - 1]
        segments: list[bytes | Gap] = []
        # A value goes whole with the part in which it begins.
        while remaining_gaps and remaining_gaps[0].span.start < part_end:
            gap = remaining_gaps.pop(0)
            segments += (body[sent_bytes : gap.span.start], gap)
            sent_bytes = gap.span.end

        segments.append(body[sent_bytes:part_end])
        sent_bytes = max(sent_bytes, part_end)
        piece = response.pieces[first]
        parts.append(
            Part(
                tuple(segments),
                piece.at_ms - started_ms,
                gates[first],
                range(first, behind),
                _arrival_of_piece(piece, ended),
            )
        )

    return tuple(parts)


def _arrival_of_piece(piece: Piece, ended: PieceArrival) -> PieceArrival:
    """Return when a piece came; of a whole body only its end is known."""
    if not piece.arrived_count:
        return ended
    return PieceArrival(piece.arrived_count, piece.at_ms)


_Place = tuple[Span, str, ReplayEntry | str | None]
"""A span of a message, with the value and the source of its gap."""


class _Places:
    """Finds the gaps of a body, and what its messages are about."""

    def __init__(self, response: Response, tasks: Collection[str]) -> None:
        self.gaps: list[Gap] = []
        self.notified: dict[int, TaskState] = {}
        self.response_piece: int | None = None
        self._response = response
        self._task_ids: Collection[str] = ()
        if b'"taskId"' in response.body:
            self._task_ids = tasks

    def find_gaps(self, request: Message | None, waits: Waits) -> None:
        """Find the gaps in the messages of the body.

        The gates of a listening stream tell to which requests it responds.
        """
        caller = None
        if request is not None and request.kind is Kind.REQUEST:
            caller = request

        for located in messages_in(self._response):
            if caller is not None and _responds_to(located.message, caller):
                self.response_piece = located.piece

            subject_request = None
            if waits.pieces:
                subject_request = waits.pieces[located.piece].subject_request

            places = _echo_places(located.message, caller, subject_request)
            if self._task_ids:
                places += self._task_times(located.message, located.piece)

            for place in places:
                self._add_gap(located, place)

        self.gaps.sort(key=attrgetter("span"))

    def _add_gap(self, located: Located, place: _Place) -> None:
        """Take a place in a message as a gap of the body."""
        inner, value, source = place
        span = located.in_body(inner)
        if span is not None:
            recorded = self._response.body[span.start : span.end]
            self.gaps.append(Gap(span, value, recorded, source))

    def add_repeated(self, repeated: FindRepeated) -> None:
        """Take what messages repeat of the values that a request has."""
        for located in messages_in(self._response):
            for span, name in repeated(located):
                self._add_gap(located, (span, name, None))

        self.gaps.sort(key=attrgetter("span"))

    def _task_times(self, message: Message, piece: int) -> list[_Place]:
        """Return the places in a state of a task that depend on the clock."""
        state = notified_state(message) or polled_state(message)
        if state is None or state.id not in self._task_ids:
            return []

        if message.method:
            self.notified[piece] = state

        return [(span, name, state.id) for name, span in clock_spans(message)]

    def find_gaps_of_batch(self, batch: Sequence[Message]) -> None:
        """Find the gaps in a body that responds to several requests."""
        if not batch:
            return

        gaps: dict[Span, Gap] = {}
        for located in messages_in(self._response):
            for place_in_batch, asker in enumerate(batch):
                for echo in echoes_of_request(located.message, asker):
                    span = located.in_body(echo.span)
                    is_exact = echo.value in ("id", "progress_token")
                    # Beside `1` another request may have `"1"`, which is nearly the same.
                    if span is not None and (is_exact or span not in gaps):
                        recorded = self._response.body[span.start : span.end]
                        gaps[span] = Gap(
                            span, f"{place_in_batch}:{echo.value}", recorded
                        )

        self.gaps += sorted(gaps.values(), key=attrgetter("span"))


def _responds_to(message: Message, request: Message) -> bool:
    """Tell whether a message is the response to a request, by its id."""
    return message.kind is Kind.RESPONSE and message.id == request.id


def _echo_places(
    message: Message, caller: Message | None, about: ReplayEntry | None
) -> list[_Place]:
    """Return where a message repeats values of the caller, or else of the request it is about."""
    places: list[_Place] = []
    if caller is not None:
        for echo in echoes_of_request(message, caller):
            places.append((echo.span, echo.value, None))

    if places or about is None or about.asker is None:
        return places

    for echo in echoes_of_request(message, about.asker):
        places.append((echo.span, echo.value, about))

    return places


# Replies on their way


class Sending(NamedTuple):
    """Bytes that are due: pieces of the recorded body, which may respond to another request."""

    raw: bytes
    at_ms: float
    is_last: bool
    pieces: range
    is_response: bool = False


@dataclass(slots=True)
class Delivery:
    """A reply on its way to one client: what is sent next, and whether it has to wait.

    A wait that can't end, because the client gave another answer than the recorded one, ends with
    the miss as the response to the call. A client that has sent what it sent later while recorded
    has passed over what was over by then: nothing waits for that any more, and what was said about
    a call that it may still make is set aside until then.

    Attributes:
        values: the caller's values.
        texts: returns the texts of values, as far as they are known by now; None without values.
        listening_streams: those of its session, whose clients get there first what came
            before the response to the request.
        sent_count: parts that its client has had.
        is_left: whether its client has left, or reads no more.
    """

    entry: ReplayEntry
    reply: Reply
    session: LiveSession
    values: CallerValues
    lifetime_of: Callable[[ReplayEntry], Lifetime]
    texts: Callable[[], Values] | None = None
    listening_streams: Sequence[Delivery] = ()
    sent_count: int = 0
    is_left: bool = False
    _parts_set_aside: list[Part] = field(default_factory=list)

    def switch_stream(self, entry: ReplayEntry, reply: Reply) -> None:
        """Go on with what another recorded session has in the place of this stream."""
        self.entry = entry
        self.reply = reply
        self.sent_count = min(self.sent_count, len(reply.parts))
        self._parts_set_aside = []

    @property
    def _is_all_sent(self) -> bool:
        """Whether all parts were sent, but for those that are set aside."""
        return self.sent_count == len(self.reply.parts)

    @property
    def skippable_request(self) -> ReplayEntry | None:
        """What its client may never send and next part waits for: a notification, or a read.

        Nothing is skipped before a client has initialized.
        """
        gate = self.reply.waits.end
        if not self._is_all_sent:
            gate = self.reply.parts[self.sent_count].gate

        missing = self._first_missing_cause(gate)
        if missing is None or missing.key.method == INITIALIZE:
            return None
        if missing.kind is Kind.NOTIFICATION or is_reading_request(missing):
            return missing

        return None

    @property
    def is_behind(self) -> bool:
        """Whether it only waits for what listening streams have to send first."""
        part = self._due_part()
        return part is not None and bool(self._streams_owing(part))

    def stop_waiting_for_streams(self) -> None:
        """Wait no more for streams that nobody reads."""
        part = self._due_part()
        if part is None:
            return

        for stream in self._streams_owing(part):
            stream.is_left = True

    def end(self) -> None:
        """Take note that its client has all of it, or has left: nobody waits for it any more."""
        self.is_left = True
        self.session.note_response(self.entry.stream)

    def _streams_owing(self, part: Part) -> list[Delivery]:
        """Return the streams that have to send something before a part."""
        # Without the recording block nobody knows what came first.
        if (
            self.reply.response_piece not in part.pieces
            or not part.arrival.arrived_count
        ):
            return []

        owing = []
        for stream in self.listening_streams:
            if stream.has_part_due_before(self.entry.stream, part.arrival):
                owing.append(stream)

        return owing

    def has_part_due_before(self, call: ReplayEntry, came: PieceArrival) -> bool:
        """Tell whether what it sends next came before the response to a call, which came then.

        What waits for other requests is not sent next: a client may send these after the response.
        """
        if self.is_left:
            return False

        part = self._due_part()
        if part is None:
            return False
        # Clients of several requests have progress of each on one stream, always before the end.
        if part.gate.subject_request is call and not part.gate.is_response:
            return part.arrival.arrived_count <= came.arrived_count

        return part.arrival <= came

    @property
    def is_whole(self) -> bool:
        """Whether the response can be sent in one write as soon as it is due."""
        reply = self.reply
        if reply.is_event_stream or reply.end is not End.COMPLETE:
            return False
        return len(reply.parts) <= 1

    @property
    def headers(self) -> Headers:
        """The headers of the response, as its client gets them."""
        headers = self.reply.headers
        if self.texts is not None:
            headers = self.texts().revealed_headers(headers)

        recorded = self.entry.session
        if not recorded:
            return headers

        change = id_replacer({recorded: self.session.id})
        return headers_with(headers, lambda raw, _name: change(raw))

    @property
    def body(self) -> bytes:
        """All that is sent, whether it is due or not."""
        return b"".join(map(self._bytes_of_part, self.reply.parts))

    def next(self) -> Sending | Refusal | End | None:
        """Return what is sent next, or the end; None while it waits for what clients send."""
        session = self.session
        call = self.entry.stream
        if call in session.misses_of_refused_calls:
            self.sent_count = 0
            self._parts_set_aside = []
            self.reply = self.reply._replace(parts=(), end=End.COMPLETE, waits=NO_WAITS)

            return session.take_refusal(call, self.values.id, is_last=True)

        if session.unrecorded_events and self.entry.is_listening:
            raw = session.unrecorded_events.popleft()
            return Sending(raw, 0, is_last=False, pieces=range(0))

        part = self._due_part()
        if part is None and self._is_all_sent:
            return self._end_unless_more_comes()
        if part is None or self._streams_owing(part):
            return None

        return self._send_part(part)

    def _send_part(self, part: Part) -> Sending | Refusal:
        """Take a part as sent; return it with live values, or the miss that stands for it."""
        session = self.session
        self._mark_part_sent(part)
        raw = self._bytes_of_part(part)
        if self.entry.session:
            session.sent_counts[self.entry] = self.sent_count

        is_last = self._is_all_sent and self._end_unless_more_comes() is End.COMPLETE
        responds = part.gate.is_response
        request = part.gate.subject_request
        if (
            responds
            and request is not None
            and request in session.misses_of_refused_calls
        ):
            identity = session.values_of(request).id
            return session.take_refusal(request, identity, is_last=is_last)

        self._tell_tasks(part)
        return Sending(raw, part.at_ms, is_last, part.pieces, responds)

    def _bytes_of_part(self, part: Part) -> bytes:
        """Return the bytes of a part with live values and ids."""
        live_segments = []
        for segment in part.segments:
            if isinstance(segment, Gap):
                live_segments.append(self._value_of(segment))
            elif self.texts is None:
                live_segments.append(segment)
            else:
                live_segments.append(self.texts().reveal(segment))

        raw = b"".join(live_segments)
        live_names = self.session.known_tasks
        if self.entry.session:
            live_names = {**live_names, self.entry.session: self.session.id}

        if not live_names:
            return raw

        return id_replacer(live_names)(raw)

    def _tell_tasks(self, part: Part) -> None:
        """Tell the plays of tasks of which states a part notifies the client."""
        notified = self.reply.notified
        if not notified:
            return

        tasks = self.session.tasks
        for piece in part.pieces:
            state = notified.get(piece)
            if state is not None and state.id in tasks:
                tasks[state.id].note_notified_state(state)

    def _end_unless_more_comes(self) -> End | None:
        """Return how the response ends now, or None while more of it may come."""
        recorded_end = self.reply.end
        if recorded_end is End.COMPLETE:
            is_missing = self._first_missing_cause(self.reply.waits.end) is not None
            may_come = is_missing or self._has_lines_to_come()
        else:
            # On a stream that has all responses, what was not recorded may still come.
            is_shared = self.session.unrecorded_events is not None
            may_come = recorded_end is End.OPEN and (
                is_shared or bool(self._parts_set_aside)
            )

        if may_come:
            return None

        return recorded_end

    def _value_of(self, gap: Gap) -> bytes:
        """Return the live value for a gap, or the recorded one."""
        source = gap.source
        if isinstance(source, str):
            task = self.session.tasks.get(source)
            if task is None:
                return gap.recorded
            return task.live_value(gap.value, gap.recorded)

        values = self.values
        if source is not None:
            values = self.session.values_of(source)

        return values.spelled_value(gap.value) or gap.recorded

    def _due_part(self) -> Part | None:
        """Return the part that is sent next; what was passed over before it is set aside."""
        for part in self._parts_set_aside:
            gate = part.gate
            if self._has_subject_arrived(gate) and not self._first_missing_cause(gate):
                return part

        while not self._is_all_sent:
            part = self.reply.parts[self.sent_count]
            gate = part.gate
            if self._first_missing_cause(gate) or self._is_early(gate):
                return None
            if self._has_subject_arrived(gate):
                return part

            request = gate.subject_request
            if request is not None and not self._is_passed_over(request):
                return None

            self.sent_count += 1
            self._parts_set_aside.append(part)

        return None

    def _has_subject_arrived(self, gate: Gate) -> bool:
        """Tell whether what a part is about has come, and what it follows was sent."""
        earlier_call = gate.earlier_call
        if earlier_call is not None and not self.session.has_answered(earlier_call):
            return False
        subject = gate.subject_request
        return subject is None or self.session.has_arrived(subject)

    def _is_early(self, gate: Gate) -> bool:
        """Tell whether a response that came before is still under way."""
        session = self.session
        for call in gate.earlier_calls:
            if session.has_arrived(call) and not session.has_answered(call):
                return True

        return False

    def _has_lines_to_come(self) -> bool:
        """Tell whether lines wait for the response to a call that its client has made."""
        for part in self._parts_set_aside:
            call = part.gate.earlier_call
            if call is not None and self.session.has_arrived(call):
                return True

        return False

    def _mark_part_sent(self, part: Part) -> None:
        """Take note that a part is sent."""
        if part in self._parts_set_aside:
            self._parts_set_aside.remove(part)
        else:
            self.sent_count += 1

    def _first_missing_cause(self, gate: Gate) -> ReplayEntry | None:
        """Return the first cause that has not come, and is waited for; None where all have."""
        for cause in gate.causes:
            if not (self.session.has_arrived(cause) or self._is_passed_over(cause)):
                return cause

        return None

    def _is_passed_over(self, entry: ReplayEntry) -> bool:
        """Tell whether the client has gone on without a request that it sent while recorded."""
        session = self.session
        if not entry.session or entry.session != session.recorded_id:
            return False

        if entry.kind is Kind.RESPONSE:
            call = entry.call_of_question
            if call is None or session.has_arrived(call):
                return False
            return self._is_passed_over(call)

        return session.latest_arrived_number > self.lifetime_of(entry).end[0]


class Deliveries:
    """Sends the recorded responses of one replay on their way.

    Attributes:
        paced: pieces of streams are sent one by one.
        texts: returns the texts of values, as far as they are known by now; None without values.
    """

    texts: Callable[[], Values] | None = None

    def __init__(
        self,
        by_arrival: Sequence[ReplayEntry],
        timelines: Timelines,
        tasks: Collection[str],
        *,
        stateless: bool,
        matchers: Matchers | None = None,
    ) -> None:
        """Prepare to send.

        Args:
            timelines: what the parts of responses wait for.
            tasks: the ids of recorded tasks.
            matchers: find what messages of a response repeat of a recorded request.
        """
        self._matchers = matchers
        self._timelines = timelines
        self._by_arrival = by_arrival
        self._task_ids = tasks
        self.paced = False
        self._is_stateless = stateless
        self._replies: dict[ReplayEntry, Reply] = {}
        self.start_afresh()

    def start_afresh(self) -> None:
        """Forget what was sent."""
        self._listening_by_session: dict[LiveSession, list[Delivery]] = {}

    def new_delivery(
        self, entry: ReplayEntry, session: LiveSession, values: CallerValues
    ) -> Delivery | None:
        """Return the response to a request on its way; None where none was recorded."""
        reply = self._reply_for_entry(entry)
        if reply is None:
            return None

        values = session.values_of_callers.get(entry.stream, values)
        streams: Sequence[Delivery] = ()
        if entry.session and not entry.is_listening and not self._is_stateless:
            streams = self._listening_by_session.setdefault(session, [])

        lifetime_of = self._timelines.lifetime_of
        return Delivery(entry, reply, session, values, lifetime_of, self.texts, streams)

    def delivery_of_chosen(
        self, entry: ReplayEntry, session: LiveSession, values: CallerValues
    ) -> Delivery | None:
        """Return the same for an exchange that was chosen, which may be a stream to listen to."""
        delivery = self.new_delivery(entry, session, values)
        if delivery is None or self._is_stateless:
            return delivery
        if not entry.is_listening or not entry.session:
            return delivery

        if session.play_counts.get(entry, 0) > 1:
            # The end of a resumed stream was not recorded, so keep it open.
            delivery.reply = delivery.reply._replace(end=End.OPEN)
            if entry.resumed_entry is None:
                delivery.sent_count = session.sent_counts.get(entry, 0)

        self._add_listening_stream(session, delivery)
        return delivery

    def delivery_of_rest(
        self, event: tuple[str, str], session: LiveSession
    ) -> Delivery | None:
        """Return what a stream has after an event after which no recorded client resumed it."""
        if not event[1] or event not in self._places_of_events:
            return None

        entry, piece = self._places_of_events[event]
        if not entry.is_listening and entry.stream not in session.values_of_callers:
            return None

        delivery = self.new_delivery(entry, session, CallerValues(None, None))
        if delivery is None:
            return None

        delivery.sent_count = piece + 1
        if len(delivery.reply.parts) == delivery.sent_count:
            # What a call's stream has after that was never seen, unless it has its response.
            is_whole = _has_whole_response(entry.exchange.response)
            if not entry.is_listening and not is_whole:
                return None

            delivery.reply = delivery.reply._replace(end=End.OPEN)

        if entry.is_listening:
            self._add_listening_stream(session, delivery)

        return delivery

    def _add_listening_stream(self, session: LiveSession, delivery: Delivery) -> None:
        """Take note of a stream to which the client of a session listens."""
        streams = self._listening_by_session.setdefault(session, [])
        streams[:] = [stream for stream in streams if not stream.is_left]
        streams.append(delivery)

    def switch_streams_of_session(self, session: LiveSession) -> Iterator[ReplayEntry]:
        """Let a client listen to the session that it has turned out to have; yield the streams."""
        for delivery in self._listening_by_session.get(session, ()):
            entry = self._stream_like(delivery.entry, session.recorded_id)
            if entry is None:
                continue

            reply = self._reply_for_entry(entry)
            if reply is not None:
                delivery.switch_stream(entry, reply)
                yield entry

    def _stream_like(self, stream: ReplayEntry, session: str) -> ReplayEntry | None:
        """Return the first equal listening stream of a recorded session, or None."""
        number = stream.numbers.lookup
        for entry in self._by_arrival:
            is_here = entry.session == session and entry.is_listening
            if is_here and entry.numbers.lookup == number:
                return entry

        return None

    @cached_property
    def _places_of_events(self) -> dict[tuple[str, str], tuple[ReplayEntry, int]]:
        """Where events are, by session and id."""
        return places_of_events(self._by_arrival)

    def has_json_rpc_response(self, entry: ReplayEntry) -> bool:
        """Tell whether what is sent for a recorded request has its JSON-RPC response."""
        reply = self._reply_for_entry(entry)
        return reply is not None and reply.response_piece is not None

    def _reply_for_entry(self, entry: ReplayEntry) -> Reply | None:
        """Return what to send for a recorded response, which is built once; None without one."""
        response = entry.exchange.response
        if response is not None and entry not in self._replies:
            self._replies[entry] = self._built_reply(entry, response)

        return self._replies.get(entry)

    def _built_reply(self, entry: ReplayEntry, response: Response) -> Reply:
        """Return what to send for a recorded response."""
        exchange = entry.exchange
        waits = self._timelines.waits_of(entry)
        waited_for = waits
        if self._is_stateless:
            waited_for = NO_WAITS

        repeated_values_finder = None
        if self._matchers is not None:
            request = entry.stream.exchange.request
            repeated_values_finder = partial(self._matchers.echo_spans, request)

        batch: Sequence[Message] = ()
        if entry.stream.asker is None:
            batch = read_call(entry.matched.request).batch

        # A stream may be resumed at any event that has an id.
        may_be_resumed = entry.session != NO_SESSION or any(event_ids(response))
        reply = build_reply(
            entry.stream.asker,
            response,
            waited_for,
            tasks=self._task_ids,
            started_ms=exchange.started_ms,
            ended=PieceArrival(exchange.ended_after or 0, exchange.ended_ms),
            piecewise=self.paced or may_be_resumed,
            caller=Caller(batch, repeated_values_finder),
        )

        is_stateless_stream = self._is_stateless and entry.is_listening
        if is_stateless_stream and waits.depend_on_later(entry):
            reply = reply._replace(end=End.OPEN)

        return reply


def _has_whole_response(response: Response | None) -> bool:
    """Tell whether a stream had its response, or was open when the recording ended."""
    if response is None:
        return False
    return response.end is End.OPEN or is_answered(response)
