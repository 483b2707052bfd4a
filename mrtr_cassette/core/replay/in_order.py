"""Recordings of the same request, one after the other, by what this replay has played so far.

Rule: an exchange is played as often as it was recorded, in the order of the recording, and a retry
only where its ask has been played.
Source: docs/matching.md, "Several recordings of one call".
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from mrtr_cassette.core.exchange.caller_values import CallerValues
from mrtr_cassette.core.exchange.lookup import LookupKey
from mrtr_cassette.core.protocol.calls import is_read_only
from mrtr_cassette.core.protocol.jsonrpc import Kind
from mrtr_cassette.core.replay.given import GivenOut
from mrtr_cassette.core.replay.index import Candidates
from mrtr_cassette.core.replay.live_sessions import LiveSession, LiveSessions
from mrtr_cassette.core.replay.matching import Secret
from mrtr_cassette.core.replay.playable import Playable
from mrtr_cassette.core.replay.timeline import Timelines, Waits
from mrtr_cassette.core.replay.told_apart import ToldApart
from mrtr_cassette.core.wire.http import Request

_SAFE_HTTP = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})


class Repeat(Enum):
    """Whether an exchange that has been played may be played again."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


class InOrder:
    """What one replay remembers, and what it plays next because of that."""

    def __init__(
        self, by_arrival: Sequence[Playable], timelines: Timelines, given: GivenOut, repeat: Repeat
    ) -> None:
        """Begin with nothing played.

        Args:
            by_arrival: all exchanges of the cassette, in the order in which they arrived.
            timelines: what waits for what.
            given: is told what is played.
            repeat: whether what has been played may be played again.
        """
        self._sessions = LiveSessions(by_arrival)
        self._timelines = timelines
        self._given = given
        self._repeat = repeat
        self._told_apart = ToldApart()

    def known_as(self, lookup: LookupKey) -> LookupKey:
        """Return a lookup key as it is: each recording stands for itself."""
        return lookup

    def session_of(self, request: Request) -> LiveSession:
        """Return the session in which a client sent a request."""
        return self._sessions.of(request)

    def of_session(self, session: LiveSession, nearest: list[Playable]) -> list[Playable]:
        """Return those of several exchanges that are of the recorded session that is played."""
        return self._sessions.fitting(session, nearest)

    def fitting(
        self, nearest: list[Playable], secrets: tuple[Secret, ...], candidates: Candidates | None
    ) -> list[Playable]:
        """Return the exchanges whose secrets can be those of a request."""
        several = candidates is not None and candidates.has_several_secrets
        return self._told_apart.fitting(nearest, secrets, several=several)

    def choose(
        self, fitting: Sequence[Playable], caller: str, session: LiveSession
    ) -> Playable | None:
        """Return which of several equal exchanges is played to a caller, or None."""
        reachable = [each for each in fitting if session.was_asked(each)]
        rounds = 0
        if reachable and self._begins_again(reachable[-1]):
            rounds = min(session.played.get(each, 0) for each in reachable)
        unplayed = [each for each in reachable if session.played.get(each, 0) <= rounds]
        if len(unplayed) > 1:
            for each in unplayed:
                if each.caller == caller:
                    return each
        if unplayed:
            return unplayed[0]
        return reachable[-1] if reachable and self._may_repeat(reachable[-1]) else None

    def _begins_again(self, playable: Playable) -> bool:
        """Tell whether the first one is played again when all like it have been played."""
        if self._repeat is Repeat.AUTO:
            return playable.opens_session or playable.key.method == "initialize"
        return self._repeat is Repeat.ALWAYS

    def _may_repeat(self, playable: Playable) -> bool:
        if self._repeat is Repeat.NEVER:
            return False
        if playable.kind is None or playable.kind is Kind.RESPONSE:
            return playable.request.method in _SAFE_HTTP
        return playable.kind is Kind.NOTIFICATION or is_read_only(playable.key.method)

    def played(
        self, chosen: Playable, secrets: tuple[Secret, ...], session: LiveSession
    ) -> LiveSession:
        """Take note that an exchange is played now; return the session that its client is in."""
        self._told_apart.played(chosen, secrets)
        if not chosen.played and chosen.exchange.response is not None:
            self._given.played(chosen.exchange.response)
        if chosen.opens_session:
            # Which client it is shows only from now on.
            session.count(chosen)
            session = self._sessions.open(chosen)
        elif chosen.key.method == "initialize" and chosen in session.played:
            session = self._sessions.begin_anew()
        session.count(chosen)
        return session

    def arrived(self, chosen: Playable, values: CallerValues, session: LiveSession) -> None:
        """Take note that a request like a recorded one has come, with its caller's values."""
        session.arrive(chosen, values if chosen.session else None)
        if chosen.kind is Kind.REQUEST:
            session.callers[chosen] = values

    def waits_of(self, playable: Playable) -> Waits:
        """Return what the response to a request waits for."""
        return self._timelines.waits_of(playable)
