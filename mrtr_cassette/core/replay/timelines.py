"""Order constraints of a recording: what the server says waits for what its client said before."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property
from operator import itemgetter
from typing import Final, NamedTuple

from mrtr_cassette.core.cassette.entries import Lifetime, ReplayEntry
from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.cassette.sessions import ends_session, is_answered
from mrtr_cassette.core.protocol.calls import NO_SESSION
from mrtr_cassette.core.protocol.jsonrpc import (
    Kind,
    Message,
    messages_in,
    repeated_token,
    same_name,
)
from mrtr_cassette.core.protocol.methods import PING, method_of
from mrtr_cassette.core.wire.http import End, Response

_ACKNOWLEDGED: Final = (Kind.RESPONSE, Kind.NOTIFICATION)
_NEVER: Final = (float("inf"), float("inf"))


def _number_of(entry: ReplayEntry) -> int:
    """Return the place of a request in the order of arrival."""
    return entry.exchange.number or 0


def _arrived(arrivals: Sequence[ReplayEntry], after: int) -> int:
    """Return how many of some entries had arrived when `after` requests had arrived in all."""
    return bisect_right(arrivals, after, key=_number_of)


class Gate(NamedTuple):
    """What a part of a response waits for, besides all that is sent before it.

    Attributes:
        causes: what clients must have sent, in the order of arrival.
        request: the request that a message on a listening stream is about, or None.
        responds: whether the message is the response to that request.
        follows: the call whose response came before a line that is not a message, or None.
        behind: the calls whose responses came before a message that is about no request: those that
            the client has made get their responses first.
    """

    causes: tuple[ReplayEntry, ...] = ()
    request: ReplayEntry | None = None
    responds: bool = False
    follows: ReplayEntry | None = None
    behind: tuple[ReplayEntry, ...] = ()

    def depends_on_later(self, entry: ReplayEntry) -> bool:
        """Tell whether it depends on another request than the one of its stream, or a later one."""
        if self.request not in (None, entry):
            return True

        number = _number_of(entry)
        for cause in self.causes:
            changes = cause.kind is not Kind.NOTIFICATION and not only_asks(cause)
            if changes and _number_of(cause) > number:
                return True

        return False


def only_asks(entry: ReplayEntry) -> bool:
    """Tell whether an exchange is a request that changes nothing."""
    return entry.kind is Kind.REQUEST and method_of(entry.key.method).reads


def _is_step(entry: ReplayEntry) -> bool:
    """Tell whether a read is a step of its session, and not repeated as time passes."""
    is_first = entry.numbers.occurrence == 1
    is_poll = entry.created_by is not None or entry.key.method == PING
    return entry.session != NO_SESSION and is_first and not is_poll


def _causing(causes: Sequence[ReplayEntry]) -> tuple[ReplayEntry, ...]:
    """Return those that may have caused something."""
    return tuple([cause for cause in causes if not only_asks(cause)])


OPEN: Final = Gate()
"""Waits for nothing."""


class Waits(NamedTuple):
    """What the pieces of one response wait for, and its end; no pieces where nothing waits."""

    pieces: tuple[Gate, ...] = ()
    end: Gate = OPEN

    def depend_on_later(self, entry: ReplayEntry) -> bool:
        """Tell whether something waits for another request than the one of its stream."""
        for gate in (*self.pieces, self.end):
            if gate.depends_on_later(entry):
                return True

        return False


NO_WAITS: Final = Waits()


class _Passage:
    """Splits what a response waits for among its pieces, by what had arrived before each."""

    def __init__(self, causes: Sequence[ReplayEntry]) -> None:
        self._causes = causes
        self._passed = 0

    def gate(self, after: int) -> Gate:
        """Return the gate of the next piece, which came after this many requests in all."""
        before = self._passed
        self._passed = max(before, _arrived(self._causes, after))
        return Gate(tuple(self._causes[before : self._passed]))


class Timelines:
    """What the clients of each recorded session sent; no session waits for another one."""

    def __init__(self, by_arrival: Sequence[ReplayEntry]) -> None:
        self._by_arrival = by_arrival
        # By session, the requests, and all else that may cause something.
        self._requests: dict[str, list[ReplayEntry]] = {}
        self._messages: dict[str, list[ReplayEntry]] = {}
        # The requests by their ids (True) and their progress tokens.
        self._requests_by_name: dict[
            tuple[str, bool, str | None], list[ReplayEntry]
        ] = {}
        self._during: dict[ReplayEntry, list[ReplayEntry]] = {}
        self._asking: dict[tuple[RecordedExchange, int], ReplayEntry] = {}
        for entry in by_arrival:
            # Nothing waits for the answer to a ping.
            if entry.exchange.number is not None and not entry.is_pong:
                self._add(entry)

    def _add(self, entry: ReplayEntry) -> None:
        """Take what a client sent, by all that may wait for it."""
        session = entry.session
        question = entry.answered_question
        if question is not None and entry.answered_call is not None:
            self._during.setdefault(question.pending, []).append(entry)
            pushed = question.request
            self._asking[pushed.exchange, pushed.piece] = question.pending

        if entry.kind is Kind.REQUEST and entry.asker is not None:
            by_id = (session, True, entry.asker.same_id)
            by_progress_token = (session, False, same_name(entry.asker.progress_token))
            self._requests_by_name.setdefault(by_id, []).append(entry)
            self._requests_by_name.setdefault(by_progress_token, []).append(entry)
            if not only_asks(entry) or _is_step(entry):
                self._requests.setdefault(session, []).append(entry)
        # Clients without a session have nothing in common but what they change.
        elif session != NO_SESSION and _is_cause(entry):
            self._messages.setdefault(session, []).append(entry)

    # When calls ended

    def lifetime_of(self, entry: ReplayEntry) -> Lifetime:
        """Return when a request arrived, and when it had its response, wherever that came."""
        if entry.exchange.number is None:
            # Without the recording block there is only the order of the file.
            return Lifetime(entry.arrival, entry.arrival)

        ended = _end_of(entry) or self._ended_elsewhere.get(entry)
        if ended is None:
            return Lifetime(entry.arrival, _NEVER)

        return Lifetime(entry.arrival, (ended, *_NEVER))

    def _has_response(self, call: ReplayEntry) -> bool:
        """Tell whether the response to a call was recorded, on whichever stream it came."""
        return call.exchange.rpc_response is not None or call in self._ended_elsewhere

    def is_given_up(self, entry: ReplayEntry) -> bool:
        """Tell whether it is about a call whose client left before the response."""
        response = entry.exchange.response
        if response is not None and not response.only_accepts:
            if response.end is not End.OPEN:
                return False

        call = entry.stream
        if call.kind is not Kind.REQUEST or call.is_listening:
            return False

        return not self._has_response(call)

    def given_up_ms(self, entry: ReplayEntry) -> float:
        """Return the time at which a client stopped waiting for a response."""
        response = entry.exchange.response
        times = [entry.exchange.ended_ms]
        if response is not None and response.only_accepts:
            # HTTP+SSE: responses come on the stream that opened the session.
            for stream in self._by_arrival:
                if stream.is_listening and stream.session == entry.session:
                    times.append(stream.exchange.ended_ms)

        return max(times)

    @cached_property
    def _ended_elsewhere(self) -> dict[ReplayEntry, int]:
        """How many requests had arrived with responses on a stream that another request began."""
        ended: dict[ReplayEntry, int] = {}
        for entry in self._by_arrival:
            response = entry.exchange.response
            if entry.is_listening and response is not None:
                gates = self.waits_of(entry).pieces
                for piece, gate in zip(response.pieces, gates, strict=False):
                    if gate.responds and gate.request is not None:
                        ended[gate.request] = piece.after
            elif entry.resumed is not None:
                end = _end_of(entry)
                if end is not None:
                    ended[entry.resumed] = end

        return ended

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
        if _acknowledges(entry, response):
            return NO_WAITS

        causes = self._causes_of(entry, response)
        if not causes and not entry.is_listening:
            return NO_WAITS

        ended = _ended_after(exchange, response)
        passage = _Passage(causes)
        # Of a whole body only its end is known.
        gates = [passage.gate(piece.after or ended) for piece in response.pieces]
        if entry.is_listening:
            gates = self._about_requests(entry, response, gates)
            gates = self._after_responses(entry, response, gates)

        end = passage.gate(ended)
        return Waits(tuple(gates), Gate(_causing(end.causes)))

    def depends_on_later(self, entry: ReplayEntry) -> bool:
        """Tell whether a message of a listening stream depends on other requests."""
        response = entry.exchange.response
        if response is None:
            return False

        messages = messages_in(response)
        if not messages:
            return False

        gates = self.waits_of(entry).pieces
        return Waits(gates[: messages[-1].piece + 1]).depend_on_later(entry)

    def _about_requests(
        self, entry: ReplayEntry, response: Response, gates: Sequence[Gate]
    ) -> list[Gate]:
        """Let each message of a listening stream wait for the request that it is about.

        One that is about none waits for all requests before it, as a client takes them in order.
        """
        waiting = []
        messages = _messages_by_piece(response)
        asked: list[ReplayEntry] = []
        for index, gate in enumerate(gates):
            message = messages.get(index)
            after = response.pieces[index].after
            request = None
            if message is not None:
                request = self._request_of(entry.session, message, after)
                request = request or self._asking.get((entry.exchange, index))

            asked += filter(only_asks, gate.causes)
            causes = _causing(gate.causes)
            if message is not None and request is None:
                causes = tuple(sorted([*causes, *asked], key=_number_of))
                asked = []

            responds = message is not None and message.kind is Kind.RESPONSE
            waiting.append(Gate(causes, request, responds))

        return waiting

    def _after_responses(
        self, entry: ReplayEntry, response: Response, gates: Sequence[Gate]
    ) -> list[Gate]:
        """Let what is about no request come after the responses before it.

        A line that is no message, such as a log, is about the last one.
        """
        responses = self._responses.get(entry.session, [])
        messages = _messages_by_piece(response)
        waiting = list(gates)
        # Its client had these before it began to listen.
        passed = bisect_left(
            responses, (_number_of(entry.stream), 0.0), key=itemgetter(0)
        )
        for index, piece in enumerate(response.pieces):
            gate = gates[index]
            came = (piece.after, piece.at_ms)
            if index not in messages:
                before = bisect_right(responses, came, key=itemgetter(0))
                if before and response.is_lines:
                    _, call = responses[before - 1]
                    waiting[index] = gate._replace(follows=call)
            elif gate.request is None and entry.session != NO_SESSION:
                # What came in the same millisecond may have come later.
                before = bisect_left(responses, came, key=itemgetter(0))
                behind = []
                for _, call in responses[passed:before]:
                    # How often a task is polled depends on the pace.
                    if call.created_by is None:
                        behind.append(call)

                waiting[index] = gate._replace(behind=tuple(behind))
                passed = max(passed, before)

        return waiting

    @cached_property
    def _responses(self) -> dict[str, list[tuple[tuple[int, float], ReplayEntry]]]:
        """The calls of each session whose responses were theirs alone, by when these came."""
        found: dict[str, list[tuple[tuple[int, float], ReplayEntry]]] = {}
        for entry in self._by_arrival:
            exchange = entry.exchange
            located = exchange.located_response
            if exchange.response is None or located is None:
                continue

            piece = exchange.response.pieces[located.piece]
            came = (piece.after, piece.at_ms)
            if not piece.after:
                # Of a whole body only its end is known.
                came = (exchange.ended_after or 0, exchange.ended_ms)

            found.setdefault(entry.session, []).append((came, entry))

        for responses in found.values():
            responses.sort(key=itemgetter(0))

        return found

    def _request_of(
        self, session: str, message: Message, after: int
    ) -> ReplayEntry | None:
        """Return the latest request that a message of the server is about, or None."""
        responds = message.kind is Kind.RESPONSE
        name = message.same_id
        if not responds:
            name = same_name(repeated_token(message))

        if name is None:
            return None

        named = self._requests_by_name.get((session, responds, name), [])
        arrived = _arrived(named, after)
        if not arrived:
            return None

        return named[arrived - 1]

    def answers_during(self, pending: ReplayEntry) -> Sequence[ReplayEntry]:
        """Return the answers to what the server asked during a call, as they arrived."""
        return self._during.get(pending, ())

    def answers_like(self, answer: Message, session: str) -> Sequence[ReplayEntry]:
        """Return the recorded answers of a session under the id of an answer.

        Under an id that no question had, it is taken for the answer to the oldest one.
        """
        here = []
        expected = []
        for entry in self._by_arrival:
            if entry.answered_question is None or entry.session != session:
                continue

            here.append(entry)
            if entry.asker is not None and entry.asker.same_id == answer.same_id:
                expected.append(entry)

        return expected or here

    def _causes_of(self, entry: ReplayEntry, response: Response) -> list[ReplayEntry]:
        """Return what clients sent for which a response waits.

        Calls do not wait for each other, nor for answers to what was asked during other calls. A
        listening stream tells what all of them caused, so it waits for every answer, and for all
        requests since it began.
        """
        messages = self._messages.get(entry.session, [])
        begun = entry.stream
        if entry.is_listening:
            requests = self._requests.get(entry.session, [])
            since = _arrived(requests, _number_of(begun))
            return sorted([*messages, *requests[since:]], key=_number_of)

        # What left a call without its response may be the end of the session.
        is_cut = response.is_event_stream and not is_answered(response)
        causes = []
        for message in messages or self.answers_during(begun):
            waits = message.answered_call in (None, begun)
            if message.kind is None:
                waits = is_cut

            if waits:
                causes.append(message)

        return causes


def _messages_by_piece(response: Response) -> dict[int, Message]:
    """Return the messages of a response by the pieces in which they are."""
    return {located.piece: located.message for located in messages_in(response)}


def _is_cause(entry: ReplayEntry) -> bool:
    """Tell whether something else than a request may have caused what the server said."""
    if entry.kind is not None:
        return True
    return ends_session(entry.matched.request, entry.exchange.response)


def _acknowledges(entry: ReplayEntry, response: Response) -> bool:
    """Tell whether a response only says that the server has taken a message."""
    if response.only_accepts:
        return True
    return entry.kind in _ACKNOWLEDGED and not response.is_framed


def _ended_after(exchange: RecordedExchange, response: Response) -> int:
    """Return how many requests had arrived when a response ended, or had its last piece."""
    if exchange.ended_after is not None:
        return exchange.ended_after
    if not response.pieces:
        return 0
    return response.pieces[-1].after


def _end_of(entry: ReplayEntry) -> int | None:
    """Return how many requests had arrived when a request had its response on its own stream."""
    exchange = entry.exchange
    response = exchange.response
    if entry.kind is not Kind.REQUEST:
        return exchange.ended_after
    if response is None or response.only_accepts:
        return None

    if not response.is_framed:
        if response.end is not End.COMPLETE:
            return None
        return exchange.ended_after

    after = None
    located = exchange.located_response
    if located is not None:
        after = response.pieces[located.piece].after

    if not after and is_answered(response):
        return exchange.ended_after

    return after
