"""What the server says waits for what the client said before, within one recorded session.

Owns: which messages of the client each piece of a response, and its end, wait for.
Does not own: whether they have come (`live_sessions`), waiting (the shell).
Rule: whatever the server says waits for the posted answers and the notifications that had arrived
before it. A listening stream tells what other requests caused, so it waits for these too: an event
and the end for all that can have changed something since the stream began, a response or progress
for its very request. Calls of a session don't wait for each other, as parallel calls owe each other
nothing; and no session waits for another one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from mrtr_cassette.core.exchange.sessions import NO_SESSION
from mrtr_cassette.core.protocol.calls import is_read_only
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message, repeated_token
from mrtr_cassette.core.protocol.messages import messages_in
from mrtr_cassette.core.replay.playable import Playable


class Gate(NamedTuple):
    """What a part of a response waits for.

    Attributes:
        messages: how many of the posted answers and notifications must have come, the first ones.
        changes: how many of the requests that change something; 0 where they don't count.
        request: the request that a message on a listening stream is about, or None.
        responds: whether that message is the response to it.
    """

    messages: int
    changes: int
    request: Playable | None = None
    responds: bool = False


OPEN: Final = Gate(0, 0)
"""Waits for nothing."""


@dataclass(frozen=True, slots=True)
class Waits:
    """What one response waits for.

    Attributes:
        messages: posted answers and notifications of its session, as they arrived.
        changes: requests of its session that change something, as they arrived.
        first_change: how many of these came before its own request, and don't count.
        pieces: the gate of each piece of it; none at all where nothing waits.
        end: the gate of its end.
    """

    messages: Sequence[Playable] = ()
    changes: Sequence[Playable] = ()
    first_change: int = 0
    pieces: tuple[Gate, ...] = ()
    end: Gate = OPEN


NO_WAITS: Final = Waits()


class Timelines:
    """What the clients of each recorded session sent, in the order of its arrival."""

    def __init__(self, playables: Sequence[Playable]) -> None:
        """Sort what was recorded.

        Args:
            playables: all of a cassette, in the order in which their requests arrived.
        """
        self._sessions: dict[str, _Timeline] = {}
        # Clients without a session have nothing in common but what one call was asked meanwhile.
        self._calls: dict[int, _Arrivals] = {}
        for each in playables:
            number = each.exchange.number
            if number is None:
                continue
            is_message = each.kind is Kind.RESPONSE or each.kind is Kind.NOTIFICATION
            if each.session == NO_SESSION and is_message:
                if each.answers is not None:
                    self._calls.setdefault(each.interaction, _Arrivals()).add(each, number)
            elif is_message or each.kind is Kind.REQUEST or each.request.method == "DELETE":
                timeline = self._sessions.setdefault(each.session, _Timeline())
                timeline.add(each, number, is_message=is_message)

    def waits_of(self, playable: Playable) -> Waits:
        """Return what the response to a request waits for."""
        exchange, response = playable.exchange, playable.exchange.response
        if response is None or exchange.number is None:
            return NO_WAITS
        timeline = self._sessions.get(playable.session, _NOBODY)
        messages = timeline.messages
        if playable.session == NO_SESSION:
            messages = self._calls.get(playable.interaction, _NOBODY.messages)
        is_listening = playable.is_listening
        if not messages.playables and not is_listening:
            return NO_WAITS
        changes = timeline.changes if is_listening else _NOBODY.changes
        first_change = changes.before(exchange.number)

        def gate(after: int) -> Gate:
            return Gate(messages.before(after), max(changes.before(after), first_change))

        # Of a whole body only its end is known.
        last = response.pieces[-1].after if response.pieces else 0
        ended = last if exchange.ended_after is None else exchange.ended_after
        pieces = [gate(piece.after or ended) for piece in response.pieces]
        for located in messages_in(response) if is_listening else ():
            place, message = located.piece, located.message
            request = timeline.request_of(message, response.pieces[place].after)
            responds = message.kind is Kind.RESPONSE
            pieces[place] = pieces[place]._replace(request=request, responds=responds)
        return Waits(
            messages.playables, changes.playables, first_change, tuple(pieces), gate(ended)
        )


@dataclass(frozen=True, slots=True)
class _Arrivals:
    """Playables in the order in which their requests arrived."""

    playables: list[Playable] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def add(self, playable: Playable, number: int) -> None:
        self.playables.append(playable)
        self.numbers.append(number)

    def before(self, after: int) -> int:
        """Return how many had arrived when `after` requests had arrived in all."""
        return bisect_right(self.numbers, after)


class _Timeline:
    """What the client of one session sent."""

    def __init__(self) -> None:
        self.messages = _Arrivals()
        self.changes = _Arrivals()
        self._requests = _Arrivals()

    def add(self, playable: Playable, number: int, *, is_message: bool) -> None:
        if is_message:
            self.messages.add(playable, number)
            return
        if playable.kind is Kind.REQUEST:
            self._requests.add(playable, number)
        if not is_read_only(playable.key.method):
            self.changes.add(playable, number)

    def request_of(self, message: Message, after: int) -> Playable | None:
        """Return the latest request that a message of the server is about, or None."""
        if message.kind is Kind.RESPONSE:
            arrivals = self._by_id.get(message.id)
        else:
            arrivals = self._by_token.get(repeated_token(message))
        place = 0 if arrivals is None else arrivals.before(after)
        return arrivals.playables[place - 1] if arrivals is not None and place else None

    @cached_property
    def _by_id(self) -> dict[str | None, _Arrivals]:
        return self._requests_by(lambda message: message.id)

    @cached_property
    def _by_token(self) -> dict[str | None, _Arrivals]:
        return self._requests_by(lambda message: message.progress_token)

    def _requests_by(self, value: Callable[[Message], str | None]) -> dict[str | None, _Arrivals]:
        grouped: dict[str | None, _Arrivals] = {}
        requests = self._requests
        for playable, number in zip(requests.playables, requests.numbers, strict=True):
            message = playable.call.message
            key = None if message is None else value(message)
            if key is not None:
                grouped.setdefault(key, _Arrivals()).add(playable, number)
        return grouped


_NOBODY: Final = _Timeline()
