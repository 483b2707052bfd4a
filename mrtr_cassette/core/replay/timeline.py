"""What the server says waits for what the client said before, within one recorded session."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from mrtr_cassette.core.cassette.recorded import RecordedExchange
from mrtr_cassette.core.cassette.sessions import ends_session, is_answered
from mrtr_cassette.core.protocol.calls import NO_SESSION
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message, repeated_token
from mrtr_cassette.core.protocol.messages import messages_in
from mrtr_cassette.core.protocol.methods import is_read_only
from mrtr_cassette.core.replay.matching import ReplayEntry
from mrtr_cassette.core.wire.http import Response

_ACKNOWLEDGED = (Kind.RESPONSE, Kind.NOTIFICATION)


class Arrivals:
    """Recorded exchanges in the order in which their requests arrived."""

    def __init__(self) -> None:
        self.entries: list[ReplayEntry] = []
        self._numbers: list[int] = []

    def add(self, entry: ReplayEntry, number: int) -> None:
        """Add an exchange, after all whose requests arrived earlier."""
        self.entries.append(entry)
        self._numbers.append(number)

    def before(self, after: int) -> int:
        """Return how many had arrived when `after` requests had arrived in all."""
        return bisect_right(self._numbers, after)


class Lane(NamedTuple):
    """Requests for which a response waits one after the other; the `first` ones don't count."""

    arrivals: Arrivals
    first: int = 0


class Gate(NamedTuple):
    """What a part of a response waits for.

    Attributes:
        counts: for each lane of the response, how many of its requests must have come.
        request: the request that a message on a listening stream is about, or None.
    """

    counts: tuple[int, ...]
    request: ReplayEntry | None = None
    responds: bool = False


OPEN: Final = Gate(())
"""Waits for nothing."""


@dataclass(frozen=True, slots=True)
class Waits:
    """What one response waits for.

    Attributes:
        pieces: the gate of each piece of it; none at all where nothing waits.
        responded: how many requests had arrived when it responded to each of those that it is the
            response to.
    """

    lanes: tuple[Lane, ...] = ()
    pieces: tuple[Gate, ...] = ()
    end: Gate = OPEN
    responded: Mapping[ReplayEntry, int] = field(default_factory=dict, compare=False)

    def over(self, entry: ReplayEntry) -> int | None:
        """Return how many requests had arrived when one was over; None where it never was."""
        response = entry.exchange.response
        if entry.kind is Kind.REQUEST and response is not None and response.only_accepts:
            return self.responded.get(entry)
        return entry.exchange.ended_after

    def is_for_later(self, gate: Gate, entry: ReplayEntry) -> bool:
        """Tell whether a gate is about another request, or waits for one that came after one."""
        number = entry.exchange.number or 0
        return gate.request not in (None, entry) or any(
            each.kind is not Kind.NOTIFICATION and (each.exchange.number or 0) > number
            for lane, count in zip(self.lanes, gate.counts, strict=True)
            for each in reversed(lane.arrivals.entries[:count])
        )


NO_WAITS: Final = Waits()


class Timelines:
    """What the clients of each recorded session sent; no session waits for another one."""

    def __init__(self, by_arrival: Sequence[ReplayEntry]) -> None:
        self._sessions: dict[str, _Timeline] = {}
        self._during: dict[ReplayEntry, Arrivals] = {}
        self._asking: dict[tuple[RecordedExchange, int], ReplayEntry] = {}
        for each in by_arrival:
            number = each.exchange.number
            if number is None:
                continue
            if each.answers is not None and each.answers.pending.kind is Kind.REQUEST:
                pending, pushed = each.answers
                self._during.setdefault(pending, Arrivals()).add(each, number)
                self._asking[pushed.exchange, pushed.piece] = pending
            self._sessions.setdefault(each.session, _Timeline()).add(each, number)

    def waits_of(self, entry: ReplayEntry) -> Waits:
        """Return what the response to a request waits for.

        It waits for the notifications and the posted answers that had arrived before it. That the
        server has taken one of these, or a request whose response comes on a listening stream,
        waits for nothing: a client that posts one after the other would wait for ever.
        """
        exchange, response = entry.exchange, entry.exchange.response
        if response is None or exchange.number is None:
            return NO_WAITS
        is_message = entry.kind in _ACKNOWLEDGED and not response.is_framed
        if is_message or response.only_accepts:
            return NO_WAITS
        lanes = self._lanes(entry, response)
        if not lanes and not entry.is_listening:
            return NO_WAITS

        def gate(after: int) -> Gate:
            return Gate(tuple([max(arrivals.before(after), first) for arrivals, first in lanes]))

        # Of a whole body only its end is known.
        last = response.pieces[-1].after if response.pieces else 0
        ended = last if exchange.ended_after is None else exchange.ended_after
        pieces = [gate(piece.after or ended) for piece in response.pieces]
        responded: dict[ReplayEntry, int] = {}
        for located in messages_in(response) if entry.is_listening else ():
            place, message = located.piece, located.message
            after = response.pieces[place].after
            request = self._sessions[entry.session].request_of(message, after)
            responds = message.kind is Kind.RESPONSE
            if responds and request is not None:
                responded[request] = after
            request = request or self._asking.get((exchange, place))
            pieces[place] = pieces[place]._replace(request=request, responds=responds)
        return Waits(lanes, tuple(pieces), gate(ended), responded)

    def answers_during(self, pending: ReplayEntry) -> Sequence[ReplayEntry]:
        """Return the answers to what the server asked during a call, as they arrived."""
        arrivals = self._during.get(pending)
        return () if arrivals is None else arrivals.entries

    def _lanes(self, entry: ReplayEntry, response: Response) -> tuple[Lane, ...]:
        """Return the requests for which a response waits.

        Calls do not wait for each other, nor for answers to what was asked during other calls. A
        listening stream tells what all of them caused, so it waits for every answer, and for all
        requests that can have changed something since it began.
        """
        timeline, begun = self._sessions[entry.session], entry.stream
        if entry.is_listening:
            changes = timeline.changes
            since = changes.before(begun.exchange.number or 0)
            lanes = [Lane(timeline.messages), Lane(changes, since)]
        else:
            lanes = [Lane(timeline.of_no_call)]
            if begun in self._during:
                lanes.append(Lane(self._during[begun]))
            if timeline.endings.entries and response.is_event_stream:
                # What left a call without its response may be the end of the session.
                lanes += () if is_answered(response) else (Lane(timeline.endings),)
        return tuple([lane for lane in lanes if lane.arrivals.entries])


class _Timeline:
    """What the client of one session sent."""

    def __init__(self) -> None:
        self.messages = Arrivals()
        self.of_no_call = Arrivals()
        self.changes = Arrivals()
        self.endings = Arrivals()
        self._requests = Arrivals()

    def add(self, entry: ReplayEntry, number: int) -> None:
        is_message = entry.kind in _ACKNOWLEDGED
        # Clients without a session have nothing in common but what they change.
        if is_message and entry.session != NO_SESSION:
            self.messages.add(entry, number)
            if entry.answers is None or entry.answers.pending.kind is not Kind.REQUEST:
                self.of_no_call.add(entry, number)
        elif entry.kind is Kind.REQUEST:
            self._requests.add(entry, number)
            if not is_read_only(entry.key.method):
                self.changes.add(entry, number)
        elif ends_session(entry.request, entry.exchange.response):
            self.changes.add(entry, number)
            self.endings.add(entry, number)

    def request_of(self, message: Message, after: int) -> ReplayEntry | None:
        """Return the latest request that a message of the server is about, or None."""
        is_response = message.kind is Kind.RESPONSE
        name = message.id if is_response else repeated_token(message)
        arrivals = self._requests_by_name.get((is_response, name))
        place = 0 if arrivals is None else arrivals.before(after)
        return arrivals.entries[place - 1] if arrivals is not None and place else None

    @cached_property
    def _requests_by_name(self) -> dict[tuple[bool, str | None], Arrivals]:
        """The requests by their ids (True) and their progress tokens."""
        grouped: dict[tuple[bool, str | None], Arrivals] = {}
        for entry in self._requests.entries:
            message, number = entry.asker, entry.exchange.number
            if message is None or number is None:
                continue
            for key in ((True, message.id), (False, message.progress_token)):
                if key[1] is not None:
                    grouped.setdefault(key, Arrivals()).add(entry, number)
        return grouped
