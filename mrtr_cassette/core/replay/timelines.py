"""Order constraints of a recording: what the server says waits for what its client said before."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Final, NamedTuple

from mrtr_cassette.core.cassette.entries import Lifetime, ReplayEntry
from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.cassette.sessions import ends_session, has_rpc_response
from mrtr_cassette.core.protocol.calls import NO_SESSION, read_call
from mrtr_cassette.core.protocol.jsonrpc import (
    Kind,
    Message,
    comparable_id_or_token,
    messages_in,
    repeated_token,
)
from mrtr_cassette.core.protocol.methods import CANCELLED, PING, method_of
from mrtr_cassette.core.wire.http import End, Piece, Response

_ACKNOWLEDGED_KINDS: Final = (Kind.RESPONSE, Kind.NOTIFICATION)
_EXTRA_PATIENCE_S: Final = 10.0
"""Seconds that a client may wait longer than the recorded one."""

_NEVER: Final = float("inf")


class PieceArrival(NamedTuple):
    """When a piece came: after how many requests in all, and at which time of the recorder."""

    arrived_count: int
    at_ms: float


_TimedCall = tuple[PieceArrival, ReplayEntry]
"""A call, and when its response came."""


def arrival_of_piece(piece: Piece, end_arrival: PieceArrival) -> PieceArrival:
    """Return when a piece came; of a whole body only its end is known."""
    if not piece.arrived_count:
        return end_arrival
    return PieceArrival(piece.arrived_count, piece.at_ms)


def _arrival_number(entry: ReplayEntry) -> int:
    """Return the place of a request in the order of arrival."""
    return entry.exchange.number or 0


def _count_arrived_by(arrivals: Sequence[ReplayEntry], arrived_count: int) -> int:
    """Return how many of some entries were among the first `arrived_count` requests."""
    return bisect_right(arrivals, arrived_count, key=_arrival_number)


class Gate(NamedTuple):
    """What a part of a response waits for, besides all that is sent before it.

    Attributes:
        causes: what clients must have sent, in the order of arrival.
        subject_request: the request that a message on a listening stream is about, or None.
        is_response: whether the message is the response to that request.
        call_before_line: the call whose response came before a line that is not a message, or None.
        calls_before_message: the calls whose responses came before a message that is about no
            request: those that the client has made get their responses first.
        follows_cancellation: whether the recorded client had cancelled the call that it is about.
    """

    causes: tuple[ReplayEntry, ...] = ()
    subject_request: ReplayEntry | None = None
    is_response: bool = False
    call_before_line: ReplayEntry | None = None
    calls_before_message: tuple[ReplayEntry, ...] = ()
    follows_cancellation: bool = False

    def depends_on_later_request(self, entry: ReplayEntry) -> bool:
        """Tell whether it depends on another request than the one of its stream, or a later one."""
        if self.subject_request not in (None, entry):
            return True

        own_number = _arrival_number(entry)
        for cause in self.causes:
            if cause.kind is Kind.NOTIFICATION or is_reading_request(cause):
                continue
            if _arrival_number(cause) > own_number:
                return True

        return False


def is_reading_request(entry: ReplayEntry) -> bool:
    """Tell whether an exchange is a request that changes nothing."""
    return entry.kind is Kind.REQUEST and method_of(entry.key.method).reads


def _is_session_step(entry: ReplayEntry) -> bool:
    """Tell whether a read is a step of its session, and not repeated as time passes."""
    is_first = entry.numbers.occurrence == 1
    is_poll = entry.call_of_step is not None or entry.key.method == PING
    return entry.session != NO_SESSION and is_first and not is_poll


def _without_reads(causes: Sequence[ReplayEntry]) -> tuple[ReplayEntry, ...]:
    """Return the causes that may have changed something."""
    return tuple([cause for cause in causes if not is_reading_request(cause)])


OPEN_GATE: Final = Gate()
"""Waits for nothing."""


class Waits(NamedTuple):
    """What the pieces of one response wait for, and its end; no pieces where nothing waits."""

    piece_gates: tuple[Gate, ...] = ()
    end_gate: Gate = OPEN_GATE

    def any_depends_on_later_request(self, entry: ReplayEntry) -> bool:
        """Tell whether something waits for another request than the one of its stream."""
        for gate in (*self.piece_gates, self.end_gate):
            if gate.depends_on_later_request(entry):
                return True

        return False


NO_WAITS: Final = Waits()


class Patience(NamedTuple):
    """How long a client waits for a response that it can't get, until it is told.

    Attributes:
        is_for_cancellation: whether the response was recorded, after a cancellation of its call.
    """

    seconds: float
    is_for_cancellation: bool


def _gates_of_pieces_and_end(
    causes: Sequence[ReplayEntry], arrived_counts: Sequence[int]
) -> list[Gate]:
    """Split what a response waits for among its pieces and its end, by what came before each."""
    cause_counts = [0]
    for arrived_count in arrived_counts:
        cause_counts.append(_count_arrived_by(causes, arrived_count))

    piece_and_end_gates = []
    for begin, end in pairwise(accumulate(cause_counts, max)):
        piece_and_end_gates.append(Gate(tuple(causes[begin:end])))

    return piece_and_end_gates


class Timelines:
    """What the clients of each recorded session sent; no session waits for another one."""

    def __init__(self, entries_by_arrival: Sequence[ReplayEntry]) -> None:
        self._entries_by_arrival = entries_by_arrival
        self._requests_by_session: dict[str, list[ReplayEntry]] = {}
        self._other_causes_by_session: dict[str, list[ReplayEntry]] = {}
        """What is no request and may cause something."""
        self._requests_by_id_or_token: dict[
            tuple[str, bool, str | None], list[ReplayEntry]
        ] = {}
        """The requests of a session by their ids (True) and their progress tokens."""
        self._answers_by_pending: dict[ReplayEntry, list[ReplayEntry]] = {}
        self._pending_call_by_question: dict[
            tuple[RecordedExchange, int], ReplayEntry
        ] = {}
        self._cancellations: dict[ReplayEntry, ReplayEntry] = {}
        self._cancelled_calls: dict[ReplayEntry, ReplayEntry] = {}
        for entry in entries_by_arrival:
            # Nothing waits for the answer to a ping.
            if entry.exchange.number is not None and not entry.is_pong:
                self._index_entry(entry)

    def _index_entry(self, entry: ReplayEntry) -> None:
        """Take what a client sent, by all that may wait for it."""
        session = entry.session
        question = entry.answered_question
        call = entry.call_of_question
        if question is not None and call is not None:
            self._answers_by_pending.setdefault(call, []).append(entry)
            self._pending_call_by_question[question.exchange, question.piece_index] = (
                call
            )

        message = entry.client_message
        if message is not None and message.kind is Kind.REQUEST:
            token = comparable_id_or_token(message.progress_token)
            id_key = (session, True, message.comparable_id)
            token_key = (session, False, token)
            self._requests_by_id_or_token.setdefault(id_key, []).append(entry)
            self._requests_by_id_or_token.setdefault(token_key, []).append(entry)
            if not is_reading_request(entry) or _is_session_step(entry):
                self._requests_by_session.setdefault(session, []).append(entry)
        # Clients without a session have nothing in common but what they change.
        elif session != NO_SESSION and _may_be_cause(entry):
            self._other_causes_by_session.setdefault(session, []).append(entry)
            self._note_cancelled_call(entry)

    def _note_cancelled_call(self, entry: ReplayEntry) -> None:
        """Take note of the call that a client cancelled, if it did."""
        if entry.key.method != CANCELLED:
            return

        message = read_call(entry.exchange.request).message
        if message is None:
            return

        cancelled_id = comparable_id_or_token(message.cancelled_id)
        calls_with_id = self._requests_by_id_or_token.get(
            (entry.session, True, cancelled_id)
        )
        if calls_with_id:
            latest_call = calls_with_id[-1]
            self._cancelled_calls[entry] = latest_call
            self._cancellations.setdefault(latest_call, entry)

    def cancellation_of(self, call: ReplayEntry) -> ReplayEntry | None:
        """Return the notification that cancels a call, or None."""
        return self._cancellations.get(call)

    def cancelled_or_asking_call(self, entry: ReplayEntry) -> ReplayEntry | None:
        """Return the call that a notification cancels, or during which an answer was asked for."""
        return self._cancelled_calls.get(entry, entry.call_of_question)

    # When calls ended

    def lifetime_of(self, entry: ReplayEntry) -> Lifetime:
        """Return when a request arrived, and when it had its response, wherever that came."""
        if entry.exchange.number is None:
            # Without the recording block there is only the order of the file.
            return Lifetime(entry.arrival, entry.arrival)

        arrived_by_end: float | None = _arrived_by_own_response(entry)
        if not arrived_by_end:
            arrived_by_end = self._arrived_by_response_elsewhere.get(entry, _NEVER)

        return Lifetime(entry.arrival, (arrived_by_end, _NEVER, _NEVER))

    def was_given_up(self, entry: ReplayEntry) -> bool:
        """Tell whether an exchange is about a call whose client left before the response."""
        response = entry.exchange.response
        if response is not None and not response.is_acknowledgement:
            if response.end is not End.OPEN:
                return False

        stream_call = entry.stream
        if stream_call.kind is not Kind.REQUEST or stream_call.is_listening:
            return False

        if stream_call.exchange.rpc_response is not None:
            return False

        # The response may have come on another stream.
        return stream_call not in self._arrived_by_response_elsewhere

    def patience_with(self, entry: ReplayEntry) -> Patience | None:
        """Return how long to let a client wait for a response that it can't get.

        Somewhat longer than the recorded one waited, which left or cancelled its call; None for
        what has its response without that.
        """
        was_given_up = self.was_given_up(entry)
        if not was_given_up and not self.is_cancelled(entry.stream):
            return None

        waited_ms = self._given_up_ms(entry) - entry.exchange.started_ms
        patience_s = waited_ms / 1000 + _EXTRA_PATIENCE_S
        return Patience(patience_s, is_for_cancellation=not was_given_up)

    def is_cancelled(self, call: ReplayEntry) -> bool:
        """Tell whether a client cancelled a call before it had the response."""
        cancellation = self._cancellations.get(call)
        if cancellation is None or call.is_listening:
            return False

        return _arrival_number(cancellation) <= self.lifetime_of(call).end[0]

    def _given_up_ms(self, entry: ReplayEntry) -> float:
        """Return the time at which a client stopped waiting for a response."""
        cancellation = self._cancellations.get(entry.stream)
        if cancellation is not None:
            return cancellation.exchange.started_ms

        response = entry.exchange.response
        ending_times = [entry.exchange.ended_ms]
        if response is not None and response.is_acknowledgement:
            # HTTP+SSE: responses come on the stream that opened the session.
            for stream in self._entries_by_arrival:
                if stream.is_listening and stream.session == entry.session:
                    ending_times.append(stream.exchange.ended_ms)

        return max(ending_times)

    @cached_property
    def _arrived_by_response_elsewhere(self) -> dict[ReplayEntry, float]:
        """How many requests had arrived with responses on a stream that another request began."""
        arrived_by_end: dict[ReplayEntry, float] = {}
        for entry in self._entries_by_arrival:
            response = entry.exchange.response
            if entry.is_listening and response is not None:
                gates = self.waits_of(entry).piece_gates
                for piece, gate in zip(response.pieces, gates, strict=False):
                    if gate.is_response and gate.subject_request is not None:
                        arrived_by_end[gate.subject_request] = piece.arrived_count
            elif entry.resumed_entry is not None:
                own_end = _arrived_by_own_response(entry)
                if own_end is not None:
                    arrived_by_end[entry.resumed_entry] = own_end

        return arrived_by_end

    # What waits

    def waits_of(self, entry: ReplayEntry) -> Waits:
        """Return what the response to a request waits for.

        It waits for the notifications and the posted answers that had arrived before it. That the
        server has taken one of these, or a request whose response comes on a listening stream,
        waits for nothing: a client that posts one after the other would wait for ever.
        """
        exchange = entry.exchange
        response = exchange.response
        if response is None or exchange.number is None:
            return NO_WAITS
        if _is_acknowledgement(entry, response):
            return NO_WAITS

        causes = self._causes_of_response(entry, response)
        if not causes and not entry.is_listening:
            return NO_WAITS

        arrived_by_end = _arrived_count_at_end(exchange, response)
        arrived_counts = []
        for piece in response.pieces:
            # Of a whole body only its end is known.
            arrived_counts.append(piece.arrived_count or arrived_by_end)

        gates = _gates_of_pieces_and_end(causes, (*arrived_counts, arrived_by_end))
        end_gate = Gate(_without_reads(gates.pop().causes))
        if entry.is_listening:
            gates = self._gates_of_stream(entry, response, gates)

        for index, arrived_count in enumerate(arrived_counts):
            gates[index] = self._gate_after_cancellation(
                gates[index], entry, arrived_count
            )

        if not has_rpc_response(response):
            end_gate = self._gate_after_cancellation(end_gate, entry, arrived_by_end)

        return Waits(tuple(gates), end_gate)

    def _gate_after_cancellation(
        self, gate: Gate, entry: ReplayEntry, arrived_count: int
    ) -> Gate:
        """Return a gate that knows whether its call was cancelled when so many had arrived.

        A cancellation may cause all that comes after it to its call, which nobody else would get.
        """
        call = gate.subject_request or entry.stream
        cancellation = self._cancellations.get(call)
        if cancellation is None or _arrival_number(cancellation) > arrived_count:
            return gate

        causes = tuple([cause for cause in gate.causes if cause is not cancellation])
        return gate._replace(causes=causes, follows_cancellation=True)

    def messages_depend_on_later_requests(self, entry: ReplayEntry) -> bool:
        """Tell whether a message of a listening stream depends on other requests."""
        response = entry.exchange.response
        if response is None:
            return False

        messages = messages_in(response)
        if not messages:
            return False

        gates = self.waits_of(entry).piece_gates
        waits_up_to_last_message = Waits(gates[: messages[-1].piece + 1])
        return waits_up_to_last_message.any_depends_on_later_request(entry)

    def _gates_of_stream(
        self, entry: ReplayEntry, response: Response, gates: Sequence[Gate]
    ) -> list[Gate]:
        """Let each message of a listening stream wait for the request that it is about.

        One that is about none waits for all requests before it, as a client takes them in order,
        and comes after the responses before it. A line that is no message, such as a log, is about
        the last one of these.
        """
        messages = {located.piece: located.message for located in messages_in(response)}
        responses = self._responses_by_session.get(entry.session, [])
        # Its client had these before it began to listen.
        passed_count = bisect_left(
            responses, (_arrival_number(entry.stream), 0.0), key=itemgetter(0)
        )
        reads_before: list[ReplayEntry] = []
        waiting_gates = []
        for index, piece in enumerate(response.pieces):
            message = messages.get(index)
            piece_arrival = (piece.arrived_count, piece.at_ms)
            reads_before += filter(is_reading_request, gates[index].causes)
            gate = Gate(_without_reads(gates[index].causes))
            if message is not None:
                subject = self._subject_request_of(message, entry, index)
                gate = Gate(gate.causes, subject, message.kind is Kind.RESPONSE)
                if subject is None:
                    causes = sorted([*gate.causes, *reads_before], key=_arrival_number)
                    reads_before = []
                    # What came in the same millisecond may have come later.
                    count = bisect_left(responses, piece_arrival, key=itemgetter(0))
                    calls = _calls_of_session(responses[passed_count:count])
                    passed_count = max(passed_count, count)
                    gate = gate._replace(
                        causes=tuple(causes), calls_before_message=calls
                    )
            elif response.is_lines:
                count = bisect_right(responses, piece_arrival, key=itemgetter(0))
                if count:
                    _, call = responses[count - 1]
                    gate = gate._replace(call_before_line=call)

            waiting_gates.append(gate)

        return waiting_gates

    @cached_property
    def _responses_by_session(self) -> dict[str, list[_TimedCall]]:
        """The calls of each session whose responses were theirs alone, by when these came."""
        responses_by_session: dict[str, list[_TimedCall]] = {}
        for entry in self._entries_by_arrival:
            exchange = entry.exchange
            located = exchange.located_response
            if exchange.response is None or located is None:
                continue

            end_arrival = PieceArrival(exchange.ended_after or 0, exchange.ended_ms)
            response_arrival = arrival_of_piece(
                exchange.response.pieces[located.piece], end_arrival
            )
            responses_by_session.setdefault(entry.session, []).append(
                (response_arrival, entry)
            )

        for responses in responses_by_session.values():
            responses.sort(key=itemgetter(0))

        return responses_by_session

    def _subject_request_of(
        self, message: Message, stream: ReplayEntry, piece: int
    ) -> ReplayEntry | None:
        """Return the latest request that a message on a stream is about, or None."""
        exchange = stream.exchange
        is_response = message.kind is Kind.RESPONSE
        id_or_token = message.comparable_id
        if not is_response:
            id_or_token = comparable_id_or_token(repeated_token(message))

        if id_or_token is not None and exchange.response is not None:
            session_and_id = (stream.session, is_response, id_or_token)
            possible_requests = self._requests_by_id_or_token.get(session_and_id, [])
            arrived_count = exchange.response.pieces[piece].arrived_count
            count_so_far = _count_arrived_by(possible_requests, arrived_count)
            if count_so_far:
                return possible_requests[count_so_far - 1]

        return self._pending_call_by_question.get((exchange, piece))

    def answers_during(self, pending_call: ReplayEntry) -> Sequence[ReplayEntry]:
        """Return the answers to what the server asked during a call, as they arrived."""
        return self._answers_by_pending.get(pending_call, ())

    def answers_with_same_id(
        self, answer: Message, session: str
    ) -> Sequence[ReplayEntry]:
        """Return the recorded answers of a session under the id of an answer.

        Under an id that no question had, it is taken for the answer to the oldest one.
        """
        session_answers = []
        answers_with_id = []
        for entry in self._entries_by_arrival:
            if entry.answered_question is None or entry.session != session:
                continue

            session_answers.append(entry)
            message = entry.client_message
            if message is not None and message.comparable_id == answer.comparable_id:
                answers_with_id.append(entry)

        return answers_with_id or session_answers

    def _causes_of_response(
        self, entry: ReplayEntry, response: Response
    ) -> list[ReplayEntry]:
        """Return what clients sent for which a response waits.

        Calls do not wait for each other, nor for answers to what was asked during other calls. A
        listening stream tells what all of them caused, so it waits for every answer, and for all
        requests since it began.
        """
        messages = self._other_causes_by_session.get(entry.session, [])
        beginning_request = entry.stream
        if entry.is_listening:
            requests = self._requests_by_session.get(entry.session, [])
            requests_before = _count_arrived_by(
                requests, _arrival_number(beginning_request)
            )
            return sorted([*messages, *requests[requests_before:]], key=_arrival_number)

        # What left a call without its response may be the end of the session.
        lacks_response = response.is_event_stream and not has_rpc_response(response)
        causes = []
        for message in messages or self.answers_during(beginning_request):
            is_waited_for = message.call_of_question in (None, beginning_request)
            if message.kind is None:
                is_waited_for = lacks_response

            if is_waited_for:
                causes.append(message)

        return causes


def interactions_connected_by_streams(
    entries: Sequence[ReplayEntry],
) -> Iterator[tuple[int, int]]:
    """Yield pairs of interactions of which one's stream has what the server said about the other.

    Args:
        entries: those of one cassette, in the order of arrival.
    """
    timelines = Timelines(entries)
    for entry in entries:
        yield entry.interaction, entry.stream.interaction
        if not entry.is_listening:
            continue

        for gate in timelines.waits_of(entry).piece_gates:
            if gate.subject_request is not None:
                yield entry.interaction, gate.subject_request.interaction


def _calls_of_session(responses: Sequence[_TimedCall]) -> tuple[ReplayEntry, ...]:
    """Return the calls of some responses that have a session, but for polls."""
    calls = []
    for _, call in responses:
        # How often a task is polled depends on the pace.
        is_poll = call.call_of_step is not None
        if not is_poll and call.session != NO_SESSION:
            calls.append(call)

    return tuple(calls)


def _may_be_cause(entry: ReplayEntry) -> bool:
    """Tell whether something else than a request may have caused what the server said."""
    if entry.kind is not None:
        return True
    return ends_session(entry.normalised.request, entry.exchange.response)


def _is_acknowledgement(entry: ReplayEntry, response: Response) -> bool:
    """Tell whether a response only says that the server has taken a message."""
    if response.is_acknowledgement:
        return True
    return entry.kind in _ACKNOWLEDGED_KINDS and not response.is_message_stream


def _arrived_count_at_end(exchange: RecordedExchange, response: Response) -> int:
    """Return how many requests had arrived when a response ended, or had its last piece."""
    if exchange.ended_after is not None:
        return exchange.ended_after
    if not response.pieces:
        return 0
    return response.pieces[-1].arrived_count


def _arrived_by_own_response(entry: ReplayEntry) -> int | None:
    """Return how many requests had arrived when a request had its response on its own stream."""
    exchange = entry.exchange
    response = exchange.response
    if entry.kind is not Kind.REQUEST:
        return exchange.ended_after
    if response is None or response.is_acknowledgement:
        return None

    if not response.is_message_stream:
        if response.end is not End.COMPLETE:
            return None
        return exchange.ended_after

    arrived_by_then = None
    located = exchange.located_response
    if located is not None:
        arrived_by_then = response.pieces[located.piece].arrived_count

    if not arrived_by_then and has_rpc_response(response):
        return exchange.ended_after

    return arrived_by_then
