"""Replies on their way to clients: what is sent next, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple

from mrtr_cassette.core.cassette.entries import ReplayEntry, entry_and_piece_by_event
from mrtr_cassette.core.cassette.lookup import CallerValues
from mrtr_cassette.core.cassette.matchers import Matchers
from mrtr_cassette.core.cassette.sessions import event_ids, has_rpc_response
from mrtr_cassette.core.cassette.texts import headers_with_changed_values
from mrtr_cassette.core.protocol.calls import NO_SESSION, read_call
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message
from mrtr_cassette.core.protocol.methods import INITIALIZE
from mrtr_cassette.core.replay.diagnosis import Miss, Reason
from mrtr_cassette.core.replay.order import ChosenRecording
from mrtr_cassette.core.replay.reply import EchoSources, Gap, Part, Reply, build_reply
from mrtr_cassette.core.replay.sessions import LiveSession
from mrtr_cassette.core.replay.timelines import (
    NO_WAITS,
    Gate,
    Patience,
    PieceArrival,
    Timelines,
    is_reading_request,
)
from mrtr_cassette.core.secrets.names import id_replacer
from mrtr_cassette.core.secrets.values import Values
from mrtr_cassette.core.wire.http import End, Headers, Request, Response


class Sending(NamedTuple):
    """Bytes that are due: pieces of the recorded body, which may respond to another request."""

    raw: bytes
    at_ms: float
    is_last: bool
    pieces: range
    is_response: bool = False


class Refusal(NamedTuple):
    """A call gets, under its own id, the miss of an answer in the place of its response."""

    miss: Miss
    id: bytes | None
    is_last: bool


@dataclass(slots=True)
class Delivery:
    """A reply on its way to one client: what is sent next, and whether it has to wait.

    A wait that can't end, because the client gave another answer than the recorded one, ends with
    the miss as the response to the call. A client that has sent what it sent later while recorded
    has passed over what was over by then: nothing waits for that any more, and what was said about
    a call that it may still make is set aside until then.

    Attributes:
        caller_values: the caller's values.
        arrival_place: the place of its request among those of its session; 0 if many share the
            stream.
        current_values: returns the texts of values as far as they are known by now, if there are
            values.
        listening_streams: those of its session, whose clients get there first what came
            before the response to the request.
        sent_count: parts that its client has had.
        is_finished: whether its client has left, or reads no more.
        may_be_switched: whether its client may turn out to listen to another recorded session.
    """

    entry: ReplayEntry
    reply: Reply
    session: LiveSession
    caller_values: CallerValues
    timelines: Timelines
    arrival_place: int
    current_values: Callable[[], Values] | None
    listening_streams: Sequence[Delivery]
    sent_count: int = 0
    is_finished: bool = False
    may_be_switched: bool = False
    _parts_set_aside: list[Part] = field(default_factory=list)

    def switch_stream(self, entry: ReplayEntry, reply: Reply) -> None:
        """Go on with what is recorded elsewhere in the place of this stream."""
        self.entry = entry
        self.reply = reply
        self.sent_count = min(self.sent_count, len(reply.parts))
        self._parts_set_aside = []

    @property
    def _are_all_parts_sent(self) -> bool:
        """Whether all parts were sent, but for those that are set aside."""
        return self.sent_count == len(self.reply.parts)

    @property
    def _next_gate(self) -> Gate:
        """What the next part waits for, or the end."""
        if self._are_all_parts_sent:
            return self.reply.waits.end_gate
        return self.reply.parts[self.sent_count].gate

    @property
    def awaited_answers(self) -> dict[str | None, ReplayEntry]:
        """The posted answers for which the next part waits, by the ids of their questions."""
        answers_by_id = {}
        for cause in self._next_gate.causes:
            message = cause.client_message
            if message is None or message.kind is not Kind.RESPONSE:
                continue

            if not self.session.requests.has_arrived(cause):
                answers_by_id[message.comparable_id] = cause

        return answers_by_id

    @property
    def skippable_request(self) -> ReplayEntry | None:
        """The request that the next part waits for and its client may never send, or None.

        This is a notification, a read, or another call than the one that the part is about. Nothing
        is skipped before a client has initialized.
        """
        gate = self._next_gate
        missing_cause = self._first_missing_cause(gate)
        if missing_cause is None or missing_cause.key.method == INITIALIZE:
            return None
        if missing_cause.kind is Kind.NOTIFICATION or is_reading_request(missing_cause):
            return missing_cause

        # Its client may make no other call before it has this part.
        subject = gate.subject_request
        is_other_call = missing_cause.kind is Kind.REQUEST and subject is not None
        if is_other_call and self._has_subject_arrived(gate):
            return missing_cause

        return None

    @property
    def is_asked_on_unread_stream(self) -> bool:
        """Whether it waits for an answer to a question on a stream that its client doesn't read."""
        for stream in self.listening_streams:
            if not stream.is_finished:
                return False

        for answer in self.awaited_answers.values():
            question = answer.answered_question
            if question is None:
                continue

            asking_exchange = question.exchange
            if asking_exchange.request.method == "GET":
                return True

        return False

    @property
    def streams_due_first(self) -> list[Delivery]:
        """The listening streams that have to send something before what it sends next."""
        return self._streams_due_before(self._due_part())

    def refuse_call(self, miss: Miss) -> None:
        """Let the call get a miss as its response; nobody waits for its cancellation any more."""
        self.session.misses_of_refused_calls[self.entry] = miss
        cancellation = self.timelines.cancellation_of(self.entry)
        if cancellation is not None:
            self.session.waive_request(cancellation)

    def note_finished(self) -> None:
        """Take note that its client has all of it, or has left: nobody waits for it any more."""
        self.is_finished = True
        self.session.requests.note_response_to(self.entry.stream)

    def _streams_due_before(self, part: Part | None) -> list[Delivery]:
        """Return the streams that have to send something before a part, if there is one."""
        if part is None or self.reply.response_piece not in part.pieces:
            return []
        # Without the recording block nobody knows what came first.
        if not part.arrival.arrived_count:
            return []

        due_streams = []
        for stream in self.listening_streams:
            if stream.has_part_due_before(self.entry.stream, part.arrival):
                due_streams.append(stream)

        return due_streams

    def has_part_due_before(
        self, call: ReplayEntry, response_arrival: PieceArrival
    ) -> bool:
        """Tell whether what it sends next came before the response to a call, which came then.

        What waits for other requests is not sent next: a client may send these after the response.
        """
        if self.is_finished:
            return False

        due_part = self._due_part()
        if due_part is None:
            return False
        # Clients of several requests have progress of each on one stream, always before the end.
        if due_part.gate.subject_request is call and not due_part.gate.is_response:
            return due_part.arrival.arrived_count <= response_arrival.arrived_count

        return due_part.arrival <= response_arrival

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
        if self.current_values is not None:
            headers = self.current_values().revealed_headers(headers)

        recorded_session = self.entry.session
        if not recorded_session:
            return headers

        replace_session = id_replacer({recorded_session: self.session.id})
        return headers_with_changed_values(
            headers, lambda raw, _name: replace_session(raw)
        )

    @property
    def body(self) -> bytes:
        """All that is sent, whether it is due or not."""
        return b"".join(map(self._bytes_of_part, self.reply.parts))

    def take_next(self) -> Sending | Refusal | End | None:
        """Return what is sent next, or the end; None while it waits for what clients send."""
        session = self.session
        call = self.entry.stream
        if call in session.misses_of_refused_calls:
            empty_reply = self.reply._replace(
                parts=(), end=End.COMPLETE, waits=NO_WAITS
            )
            self.switch_stream(self.entry, empty_reply)
            miss = session.misses_of_refused_calls.pop(call)
            return Refusal(miss, self.caller_values.id, is_last=True)

        if session.unrecorded_events and self.entry.is_listening:
            raw = session.unrecorded_events.popleft()
            return Sending(raw, 0, is_last=False, pieces=range(0))

        due_part = self._due_part()
        if due_part is None and self._are_all_parts_sent:
            return self._end_if_nothing_more_comes()
        if due_part is None or self._streams_due_before(due_part):
            return None

        return self._send_part(due_part)

    def _send_part(self, part: Part) -> Sending | Refusal:
        """Take a part as sent; return it with live values, or the miss that stands for it."""
        session = self.session
        self._mark_part_sent(part)
        raw = self._bytes_of_part(part)
        if self.entry.session:
            session.sent_counts[self.entry] = self.sent_count

        is_last = (
            self._are_all_parts_sent
            and self._end_if_nothing_more_comes() is End.COMPLETE
        )
        is_response = part.gate.is_response
        request = part.gate.subject_request
        if is_response and request is not None:
            miss = session.misses_of_refused_calls.pop(request, None)
            if miss is not None:
                request_id = session.requests.caller_values_of(request).id
                return Refusal(miss, request_id, is_last)

        self._note_notified_states(part)
        return Sending(raw, part.at_ms, is_last, part.pieces, is_response)

    def _bytes_of_part(self, part: Part) -> bytes:
        """Return the bytes of a part with live values and ids."""
        live_segments = []
        for segment in part.segments:
            if isinstance(segment, Gap):
                live_segments.append(self._live_value_of(segment))
            elif self.current_values is None:
                live_segments.append(segment)
            else:
                live_segments.append(self.current_values().revealed_bytes(segment))

        raw = b"".join(live_segments)
        live_ids = self.session.swapped_ids
        if self.entry.session:
            live_ids = {**live_ids, self.entry.session: self.session.id}

        if not live_ids:
            return raw

        return id_replacer(live_ids)(raw)

    def _note_notified_states(self, part: Part) -> None:
        """Tell the session of which states a part notifies the client."""
        for piece in part.pieces:
            state = self.reply.notified_state_by_piece.get(piece)
            if state is not None:
                self.session.note_notified_state(state)

    def _end_if_nothing_more_comes(self) -> End | None:
        """Return how the response ends now, or None while more of it may come."""
        recorded_end = self.reply.end
        if recorded_end is End.COMPLETE:
            end_gate = self.reply.waits.end_gate
            is_cause_missing = self._first_missing_cause(end_gate) is not None
            is_waiting = is_cause_missing or self._awaits_cancellation(end_gate)
            more_may_come = is_waiting or self._has_pending_lines()
        elif recorded_end is End.OPEN:
            # On a stream that has all responses, what was not recorded may still come.
            may_get_unrecorded = self.session.unrecorded_events is not None
            may_have_other_parts = self.may_be_switched or bool(self._parts_set_aside)
            more_may_come = may_get_unrecorded or may_have_other_parts
        else:
            more_may_come = False

        if more_may_come:
            return None

        return recorded_end

    def _live_value_of(self, gap: Gap) -> bytes:
        """Return the live value for a gap, or the recorded one."""
        source = gap.source
        if isinstance(source, str):
            return self.session.live_value_in_state(source, gap.value, gap.recorded)

        caller_values = self.caller_values
        if source is not None:
            caller_values = self.session.requests.caller_values_of(source)

        return caller_values.spelled_value(gap.value) or gap.recorded

    def _due_part(self) -> Part | None:
        """Return the part that is sent next; what was passed over before it is set aside."""
        for part in self._parts_set_aside:
            gate = part.gate
            if self._is_subject_ready(gate) and not self._first_missing_cause(gate):
                return part

        while not self._are_all_parts_sent:
            part = self.reply.parts[self.sent_count]
            gate = part.gate
            is_cause_missing = self._first_missing_cause(gate) is not None
            if is_cause_missing or self._awaits_earlier_response(gate):
                return None
            if self._is_subject_ready(gate):
                return part
            if not self._can_be_set_aside(gate):
                return None

            self.sent_count += 1
            self._parts_set_aside.append(part)

        return None

    def _is_subject_ready(self, gate: Gate) -> bool:
        """Tell whether the call that a part is about has come, and was cancelled if it had been."""
        return self._has_subject_arrived(gate) and not self._awaits_cancellation(gate)

    def _can_be_set_aside(self, gate: Gate) -> bool:
        """Tell whether a part that is not ready holds up nothing of what follows it."""
        request = gate.subject_request
        if request is None:
            return not self._awaits_cancellation(gate)
        if self.session.requests.has_arrived(request):
            return True

        return self._is_passed_over(request, gate)

    def _awaits_cancellation(self, gate: Gate) -> bool:
        """Tell whether a part follows a cancellation that its client has not sent."""
        if not gate.follows_cancellation:
            return False

        session = self.session
        call = self.entry.stream
        request_id = self.caller_values.id
        if gate.subject_request is not None:
            call = gate.subject_request
            request_id = session.requests.caller_values_of(call).id

        is_refused = call in session.misses_of_refused_calls
        return not is_refused and not session.requests.has_cancelled(request_id)

    def _has_subject_arrived(self, gate: Gate) -> bool:
        """Tell whether what a part is about has come, and what it follows was sent."""
        requests = self.session.requests
        earlier_call = gate.call_before_line
        if earlier_call is not None and not requests.has_response_to(earlier_call):
            return False
        subject = gate.subject_request
        return subject is None or requests.has_arrived(subject)

    def _awaits_earlier_response(self, gate: Gate) -> bool:
        """Tell whether a response that came before is still under way."""
        requests = self.session.requests
        for call in gate.calls_before_message:
            if requests.has_arrived(call) and not requests.has_response_to(call):
                return True

        return False

    def _has_pending_lines(self) -> bool:
        """Tell whether lines wait for the response to a call that its client has made."""
        for part in self._parts_set_aside:
            call = part.gate.call_before_line
            if call is not None and self.session.requests.has_arrived(call):
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
            has_come = self.session.requests.has_arrived(cause)
            if not has_come and not self._is_passed_over(cause, gate):
                return cause

        return None

    def _is_passed_over(self, entry: ReplayEntry, gate: Gate) -> bool:
        """Tell whether the client has gone on without a request that it sent while recorded.

        What it sent before the call that a part is about says nothing of what it sends after it.
        """
        session = self.session
        if not entry.session or entry.session != session.recorded_session:
            return False

        call = self.timelines.cancelled_or_asking_call(entry)
        if call is not None and not session.requests.has_arrived(call):
            # Without the call it can't come.
            return entry.kind is Kind.NOTIFICATION or self._is_passed_over(call, gate)
        if entry.kind is Kind.RESPONSE:
            return False

        call_place = self.arrival_place
        if gate.subject_request is not None:
            call_place = session.requests.place_of(gate.subject_request)

        response_number = self.timelines.lifetime_of(entry).end[0]
        return session.requests.latest_number_since(call_place) > response_number


class Play(NamedTuple):
    """A hit; without a delivery where the recorded request got no response.

    The miss, if there is one, is what its client will find where the response sends it.

    Attributes:
        play_count: how often its exchange has been played by now.
        patience: how long a client waits for a response that it can't get, after all that it can,
            until it is told; None where it expects no response, or gets one.
    """

    request: Request
    entry: ReplayEntry
    session: LiveSession
    delivery: Delivery | None
    play_count: int
    patience: Patience | None
    miss: Miss | None = None

    @property
    def request_id(self) -> bytes | None:
        """The id of the call, as its client spells it."""
        if self.delivery is not None:
            return self.delivery.caller_values.id

        message = read_call(self.request).message
        return None if message is None else message.spelled_id


class Deliveries:
    """Sends the recorded responses of one replay on their way.

    Attributes:
        paced: pieces of streams are sent one by one.
        current_values: returns the texts of values as far as they are known by now, if there are
            values.
    """

    current_values: Callable[[], Values] | None = None

    def __init__(
        self,
        entries_by_arrival: Sequence[ReplayEntry],
        timelines: Timelines,
        *,
        stateless: bool,
        matchers: Matchers | None,
    ) -> None:
        """Prepare to send.

        Args:
            timelines: what the parts of responses wait for.
            matchers: find what messages of a response repeat of a recorded request.
        """
        self._matchers = matchers
        self._timelines = timelines
        self._entries_by_arrival = entries_by_arrival
        self.sends_pieces = False
        self._is_stateless = stateless
        self._replies: dict[ReplayEntry, Reply] = {}
        self.start_afresh()

    def start_afresh(self) -> None:
        """Forget what was sent."""
        self._listening_deliveries: dict[LiveSession, list[Delivery]] = {}
        self._asking_deliveries: dict[LiveSession, list[Delivery]] = {}

    def new_delivery(
        self, entry: ReplayEntry, session: LiveSession, caller_values: CallerValues
    ) -> Delivery | None:
        """Return the response to a request on its way; None where none was recorded."""
        reply = self._reply_for_entry(entry)
        if reply is None:
            return None

        latest_values = session.requests.caller_values_by_entry
        caller_values = latest_values.get(entry.stream, caller_values)
        streams: Sequence[Delivery] = ()
        if entry.session and not entry.is_listening and not self._is_stateless:
            streams = self._listening_deliveries.setdefault(session, [])

        arrival_place = 0
        if not entry.is_listening:
            arrival_place = max(0, session.requests.placed_count - 1)

        return Delivery(
            entry,
            reply,
            session,
            caller_values,
            self._timelines,
            arrival_place,
            self.current_values,
            streams,
        )

    def delivery_of_chosen(
        self, entry: ReplayEntry, session: LiveSession, caller_values: CallerValues
    ) -> Delivery | None:
        """Return the same for an exchange that was chosen, which may be a stream to listen to."""
        delivery = self.new_delivery(entry, session, caller_values)
        if delivery is None or self._is_stateless:
            return delivery
        if self._timelines.answers_during(entry):
            _add_open_delivery(self._asking_deliveries, session, delivery)

        if not entry.is_listening or not entry.session:
            return delivery

        if session.plays.counts.get(entry, 0) > 1:
            # The end of a resumed stream was not recorded, so keep it open.
            delivery.reply = delivery.reply._replace(end=End.OPEN)
            if entry.resumed_entry is None:
                delivery.sent_count = session.sent_counts.get(entry, 0)

        delivery.may_be_switched = len(self._sessions_with_equal_stream(entry)) > 1
        _add_open_delivery(self._listening_deliveries, session, delivery)
        return delivery

    def delivery_after_event(
        self, event_id: str, session: LiveSession
    ) -> Delivery | None:
        """Return what a stream has after an event after which no recorded client resumed it."""
        event = (session.recorded_session, event_id)
        if not event_id or event not in self._places_of_events:
            return None

        entry, piece = self._places_of_events[event]
        has_caller = entry.stream in session.requests.caller_values_by_entry
        if not entry.is_listening and not has_caller:
            return None

        delivery = self.new_delivery(entry, session, CallerValues(None, None))
        if delivery is None:
            return None

        delivery.sent_count = piece + 1
        if len(delivery.reply.parts) == delivery.sent_count:
            # What a call's stream has after that was never seen, unless it has its response.
            is_whole = _was_answered_or_open(entry.exchange.response)
            if not entry.is_listening and not is_whole:
                return None

            delivery.reply = delivery.reply._replace(end=End.OPEN)

        if entry.is_listening:
            _add_open_delivery(self._listening_deliveries, session, delivery)

        return delivery

    def checked_against_awaited_answer(
        self, chosen_recording: ChosenRecording, session: LiveSession
    ) -> tuple[ChosenRecording, Delivery | None]:
        """Hold an answer to the call that waits for one.

        Returns:
            The recording that the answer gets, and the reply that goes on as the one to another
            call, if the client answers the server as that one was answered.
        """
        answer = chosen_recording.entry
        if answer is None:
            return chosen_recording, None

        delivery = self._delivery_awaiting_other_answer(answer, session)
        if delivery is None:
            return chosen_recording, None
        if not self._can_switch_to_call_of(delivery, answer):
            awaited_answers = tuple(delivery.awaited_answers.values())
            return ChosenRecording(None, awaited_answers, Reason.ANSWERS_DIFFER), None
        if delivery.entry.is_listening:
            # It is switched with its session.
            return chosen_recording, None

        return chosen_recording, delivery

    def _delivery_awaiting_other_answer(
        self, answer: ReplayEntry, session: LiveSession
    ) -> Delivery | None:
        """Return what waits for another answer to the question that a client answers now.

        None where something waits for this answer, or nothing for any.
        """
        pending_number = answer.numbers.pending
        if pending_number is None or answer.client_message is None:
            return None

        question_id = answer.client_message.comparable_id
        awaiting_delivery = None
        asking_deliveries = self._asking_deliveries.get(session, ())
        listening_deliveries = self._listening_deliveries.get(session, ())
        for delivery in (*asking_deliveries, *listening_deliveries):
            awaited_answer = delivery.awaited_answers.get(question_id)
            if delivery.is_finished or awaited_answer is None:
                continue
            if awaited_answer.answered_question is None:
                continue
            if awaited_answer.numbers.lookup == answer.numbers.lookup:
                return None

            is_equal_call = awaited_answer.numbers.pending == pending_number
            if is_equal_call and awaiting_delivery is None:
                awaiting_delivery = delivery

        return awaiting_delivery

    def _can_switch_to_call_of(self, delivery: Delivery, answer: ReplayEntry) -> bool:
        """Tell whether a reply can go on as the one to the equal call with another answer."""
        call = answer.call_of_question
        question = answer.answered_question
        if call is None or question is None:
            return False

        # One listening stream has the questions of its session in their recorded order.
        is_asked_by_call = question.exchange is call.exchange
        if not is_asked_by_call and answer.session == delivery.entry.session:
            return False
        if delivery.entry.is_listening:
            return True

        equal_delivery = self.new_delivery(
            call, delivery.session, delivery.caller_values
        )
        if equal_delivery is None or not _is_at_same_question(equal_delivery, delivery):
            return False

        return answer in equal_delivery.awaited_answers.values()

    def switch_to_entry(self, delivery: Delivery, entry: ReplayEntry) -> bool:
        """Let a reply go on as the recorded one to an equal request, if there is one."""
        reply = self._reply_for_entry(entry)
        if reply is None:
            return False

        delivery.switch_stream(entry, reply)
        delivery.session.requests.caller_values_by_entry[entry] = delivery.caller_values
        return True

    def switch_streams_of_session(self, session: LiveSession) -> Iterator[ReplayEntry]:
        """Let a client listen to the session that it has turned out to have; yield the streams."""
        for delivery in self._listening_deliveries.get(session, ()):
            entry = self._equal_stream_in(delivery.entry, session.recorded_session)
            if entry is not None and self.switch_to_entry(delivery, entry):
                yield entry

    def _sessions_with_equal_stream(self, stream: ReplayEntry) -> set[str]:
        """Return the recorded sessions that have an equal listening stream."""
        return self._sessions_by_stream[stream.numbers.lookup]

    @cached_property
    def _sessions_by_stream(self) -> dict[int, set[str]]:
        """The recorded sessions that have a listening stream, by the number of its request."""
        sessions: dict[int, set[str]] = {}
        for entry in self._entries_by_arrival:
            if entry.is_listening:
                sessions.setdefault(entry.numbers.lookup, set()).add(entry.session)

        return sessions

    def _equal_stream_in(self, stream: ReplayEntry, session: str) -> ReplayEntry | None:
        """Return the first equal listening stream of a recorded session, or None."""
        lookup_number = stream.numbers.lookup
        for entry in self._entries_by_arrival:
            is_in_session = entry.session == session and entry.is_listening
            if is_in_session and entry.numbers.lookup == lookup_number:
                return entry

        return None

    @cached_property
    def _places_of_events(self) -> dict[tuple[str, str], tuple[ReplayEntry, int]]:
        """Where events are, by session and id."""
        return entry_and_piece_by_event(self._entries_by_arrival)

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
        played_waits = waits
        if self._is_stateless:
            played_waits = NO_WAITS

        repeated_values_finder = None
        if self._matchers is not None:
            request = entry.stream.exchange.request
            repeated_values_finder = partial(
                self._matchers.spans_repeating_values, request
            )

        batch: Sequence[Message] = ()
        if entry.stream.client_message is None:
            batch = read_call(entry.normalised.request).batch

        # A stream may be resumed at any event that has an id.
        may_be_resumed = entry.session != NO_SESSION or any(event_ids(response))
        reply = build_reply(
            entry.stream.client_message,
            response,
            played_waits,
            started_ms=exchange.started_ms,
            end_arrival=PieceArrival(exchange.ended_after or 0, exchange.ended_ms),
            piecewise=self.sends_pieces or may_be_resumed,
            echo_sources=EchoSources(batch, repeated_values_finder),
        )

        if self._is_stateless and entry.is_listening:
            # What it waits for is not remembered, so it stays open.
            if waits.any_depends_on_later_request(entry):
                reply = reply._replace(end=End.OPEN)

        return reply


def _was_answered_or_open(response: Response | None) -> bool:
    """Tell whether a stream had its response, or was open when the recording ended."""
    if response is None:
        return False
    return response.end is End.OPEN or has_rpc_response(response)


def _add_open_delivery(
    deliveries_by_session: dict[LiveSession, list[Delivery]],
    session: LiveSession,
    delivery: Delivery,
) -> None:
    """Add a reply to those of a session that are on their way."""
    deliveries = deliveries_by_session.setdefault(session, [])
    # The list is the one that other replies have.
    deliveries[:] = [
        open_delivery for open_delivery in deliveries if not open_delivery.is_finished
    ]
    deliveries.append(delivery)


def _is_at_same_question(equal_delivery: Delivery, delivery: Delivery) -> bool:
    """Tell whether an equal call was asked the same, after all that a client has been sent.

    Its earlier questions were answered as this client has answered them.
    """
    sent_count = delivery.sent_count
    if equal_delivery.reply.is_event_stream != delivery.reply.is_event_stream:
        return False
    if len(equal_delivery.reply.parts) < sent_count:
        return False

    for part in equal_delivery.reply.parts[:sent_count]:
        if not all(map(delivery.session.requests.has_arrived, part.gate.causes)):
            return False

    equal_delivery.sent_count = sent_count
    return equal_delivery.awaited_answers.keys() == delivery.awaited_answers.keys()
