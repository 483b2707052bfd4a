"""The replay side of one run: requests in, recorded replies or misses out.

Rule: a request gets a recorded reply only if call, request state and answers are the recorded
ones. The closest match is never played.
Source: docs/matching.md.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from mrtr_cassette.core.exchange.caller_values import CallerValues, caller_values, cut_body
from mrtr_cassette.core.exchange.lookup import LookupKey, has_member, lookup_key
from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.exchange.sessions import event_ids, is_answered
from mrtr_cassette.core.protocol.calls import (
    Call,
    CallKey,
    Traits,
    read_call,
    resumed_event,
    traits_of_headers,
)
from mrtr_cassette.core.protocol.jsonrpc import Kind, Message
from mrtr_cassette.core.replay.delivery import Delivery
from mrtr_cassette.core.replay.diagnosis import Miss, no_match, no_more, other_secrets
from mrtr_cassette.core.replay.given import GivenOut
from mrtr_cassette.core.replay.harmless import Harmless, HarmlessRequests
from mrtr_cassette.core.replay.in_order import InOrder, Repeat
from mrtr_cassette.core.replay.index import Candidates, Index
from mrtr_cassette.core.replay.live_sessions import LiveSession
from mrtr_cassette.core.replay.matching import MatchedForm, Secret, alike, has_placeholders
from mrtr_cassette.core.replay.playable import Playable, number_lookups, playables_of
from mrtr_cassette.core.replay.reply import KnownEchoes, Reply, build_reply
from mrtr_cassette.core.replay.stateless import SeveralAnswers, Stateless
from mrtr_cassette.core.replay.timeline import Timelines
from mrtr_cassette.core.secrets.credentials import Given
from mrtr_cassette.core.wire.http import ANSWERED_BY_HEADER, End, Request
from mrtr_cassette.core.wire.jsonbytes import MemberPath
from mrtr_cassette.core.wire.pointers import escape_pointer
from mrtr_cassette.core.wire.readable import readable


@dataclass(frozen=True, slots=True)
class Play:
    """A hit.

    Attributes:
        request: the client's request.
        playable: what was recorded for it.
        delivery: the recorded reply on its way; None where the recorded request never got one.
    """

    request: Request
    playable: Playable
    delivery: Delivery | None

    @property
    def call(self) -> Call:
        """The request, read."""
        return read_call(self.request)


class _Wanted(NamedTuple):
    """What a request is matched by, and the caller's values in it."""

    lookup: LookupKey
    traits: Traits
    caller: str
    values: CallerValues
    secrets: tuple[Secret, ...]


class Player:
    """One replay of one cassette.

    Attributes:
        path: how messages name the cassette's file.
        interactions: for each interaction, the exchanges that no earlier one has.
        playables: all of them.
        misses: the requests that got no recorded reply, in order.
        harmless: the requests that were not recorded and got what any server answers, in order.
        plays: how many did.
        told_apart: without memory, the same request with several answers.
    """

    def __init__(
        self,
        cassette: Cassette,
        *,
        ignored: Collection[MemberPath] = (),
        repeat: Repeat = Repeat.AUTO,
        paced: bool = False,
        strict: bool = False,
        stateless: bool = False,
    ) -> None:
        """Prepare a replay.

        Args:
            cassette: what was recorded.
            ignored: members of the params that don't count, as keys from the outermost inwards.
            repeat: whether what has been played may be played again.
            paced: the shell will keep the recorded rhythm.
            strict: harmless requests that were not recorded are misses.
            stateless: no reply depends on what has been played.

        Raises:
            CassetteError: the cassette can't be played without memory.
        """
        self.path = cassette.path
        self.misses: list[Miss] = []
        self.harmless: list[Harmless] = []
        self.plays = 0
        self._ignored = tuple(ignored)
        self._unseen = list(self._ignored)
        self._paced = paced
        self._given = GivenOut(cassette.upstream)
        self._matched = MatchedForm(cassette, self._given)
        self.interactions = playables_of(cassette, self._matched, self._ignored)
        self.playables = [each for own in self.interactions for each in own]
        self._harmless = None if strict else HarmlessRequests(self.playables)
        by_arrival = sorted(self.playables, key=lambda each: each.arrival)
        number_lookups(by_arrival)
        self._timelines = Timelines(by_arrival)
        self.told_apart: tuple[SeveralAnswers, ...] = ()
        self._held_open: set[Playable] = set()
        self._listening: dict[LiveSession, list[Delivery]] = {}
        self._replies: dict[Playable, Reply] = {}
        self._echoes = KnownEchoes()
        self._by_digest: dict[bytes, Playable] = {}
        self._posted: dict[tuple[str, str | None], list[Playable]] = {}
        self._streams: dict[tuple[str, int], Playable] = {}
        # What the recording proxy answered in its client's place is answered so here too.
        self._answered = {
            each.parent: each
            for each in by_arrival
            if each.parent is not None and each.request.header(ANSWERED_BY_HEADER)
        }
        self._order: InOrder | Stateless
        if stateless:
            self._order = self._stateless(cassette, by_arrival)
        else:
            self._order = InOrder(by_arrival, self._timelines, self._given, repeat)
        self._index = Index(self._order.known_as, has_placeholders=self._matched.has_placeholders)
        self._sort(by_arrival)

    def _sort(self, by_arrival: Sequence[Playable]) -> None:
        """Sort exchanges by what finds them."""
        for each in by_arrival:
            if each.same is None:
                self._index.add(each)
            if each.is_listening:
                self._streams.setdefault((each.session, each.lookup_number), each)
            if each.answers is not None and each.call.message is not None:
                self._posted.setdefault((each.session, each.call.message.id), []).append(each)
            # Otherwise the form in which a request is matched depends on all of it.
            if each.digest is not None and self._matched.keeps_body(each.request):
                self._by_digest.setdefault(each.digest, each)

    def _stateless(self, cassette: Cassette, by_arrival: Sequence[Playable]) -> Stateless:
        order = Stateless(cassette, by_arrival, self._timelines, self._answered)
        order.purity.check(self.path)
        self.told_apart, self._held_open = order.purity.told_apart, order.held_open
        for each in by_arrival:
            # Another process may have given it to the client.
            if each.exchange.response is not None:
                self._given.played(each.exchange.response)
        return order

    def key_of(self, call: Call) -> CallKey:
        """Return the call key by which a request is matched, for a miss."""
        return call.key(self._ignored)

    def request_received(self, request: Request) -> Play | Miss | Harmless:
        """Find the recorded reply to a request, and count it as played, missed or harmless."""
        session = self._order.session_of(request)
        recorded = readable(session.in_recorded(request))
        wanted = self._recognised(recorded) or self._read(recorded)
        candidates = self._candidates(wanted.lookup, recorded)
        nearest = candidates.nearest(wanted.traits) if candidates is not None else []
        taken_for = session.recorded
        nearest = self._order.of_session(session, nearest)
        if session.recorded != taken_for:
            self._follow(session)
        fitting = self._order.fitting(nearest, wanted.secrets, candidates)
        chosen = self._order.choose(fitting, wanted.caller, session)
        if chosen is not None:
            return self._play(request, chosen, session, wanted)
        rest = self._rest(request, session)
        return rest or self._count(session, self._explained(recorded, session, nearest, fitting))

    def _play(
        self, request: Request, chosen: Playable, session: LiveSession, wanted: _Wanted
    ) -> Play:
        session = self._order.played(chosen, wanted.secrets, session)
        chosen.played += 1
        self.plays += 1
        if chosen in self._answered:
            return self._play(request, self._answered[chosen], session, wanted)
        self._order.arrived(chosen, wanted.values, session)
        delivery = self._delivery(chosen, session, wanted.values)
        # Where nothing is counted, every client listens for itself.
        times = session.played.get(chosen, 0)
        if delivery is not None and chosen.is_listening and chosen.session and times:
            if times > 1:
                # Nobody saw what ends it for the second time.
                reply = delivery.reply._replace(end=End.OPEN)
                had = 0 if chosen.begun else session.sent.get(chosen, 0)
                delivery = replace(delivery, reply=reply, resumes=had)
            self._listening.setdefault(session, []).append(delivery)
        return Play(request, chosen, delivery)

    def _rest(self, request: Request, session: LiveSession) -> Play | None:
        """Find what a stream has after an event after which no recorded client resumed it."""
        event = self._events.get((session.recorded, resumed_event(request)))
        if event is None:
            return None
        playable, piece = event
        delivery = self._delivery(playable, session, CallerValues(None, None))
        if delivery is None or not (playable.is_listening or playable.stream in session.callers):
            return None
        delivery = replace(delivery, resumes=piece + 1)
        if len(delivery.reply.parts) == delivery.resumes:
            # What a call's stream has after that was never seen, unless it has its response.
            response = playable.exchange.response
            has_all = response is not None and (response.end is End.OPEN or is_answered(response))
            if not playable.is_listening and not has_all:
                return None
            delivery.reply = delivery.reply._replace(end=End.OPEN)
        if playable.is_listening:
            self._listening.setdefault(session, []).append(delivery)
        self.plays += 1
        return Play(request, playable, delivery)

    def _recognised(self, request: Request) -> _Wanted | None:
        """Read a request that differs from a recorded one in the caller's values only."""
        cut = cut_body(request.body)
        same = None if cut is None else self._by_digest.get(cut.digest)
        if (
            cut is None
            or same is None
            or request.method != same.request.method
            or request.target != same.request.target
            or traits_of_headers(request.headers) != traits_of_headers(same.request.headers)
        ):
            return None
        return _Wanted(same.lookup, same.traits, same.caller, cut.values, ())

    def _read(self, request: Request) -> _Wanted:
        received = read_call(request)
        matched, secrets = alike(self._matched, self._matched.received(request), self._ignored)
        call = received if matched is request else read_call(matched)
        if self._unseen:
            self._see(call)
        lookup = self._order.known_as(lookup_key(call, self._ignored))
        values = caller_values(received.message)
        traits = call.traits_with(self._matched.header_names)
        return _Wanted(lookup, traits, call.caller, values, secrets)

    def _see(self, call: Call) -> None:
        self._unseen = [path for path in self._unseen if not has_member(call, path)]

    def unused_ignores(self) -> list[str]:
        """Return, as pointers, what was to be left out and no request has, recorded or received."""
        for each in self.playables if self._unseen else ():
            self._see(each.call)
        return ["".join(f"/{escape_pointer(key)}" for key in path) for path in self._unseen]

    def _candidates(self, lookup: LookupKey, received: Request) -> Candidates | None:
        candidates = self._index.of(lookup)
        # A secret that the client knows by itself is found by the same rule while recording.
        if candidates is None and self._matched.has_placeholders and has_placeholders(received):
            return self._index.of_any_rule(lookup)
        return candidates

    def _explained(
        self,
        recorded: Request,
        session: LiveSession,
        nearest: Sequence[Playable],
        fitting: Sequence[Playable],
    ) -> Miss | Harmless:
        """Say why nothing was recorded for a request, or what any server answers.

        Args:
            recorded: the request as it would have been recorded.
            session: the session that it was sent in.
            nearest: the recorded requests that are like it.
            fitting: those among them that have its secrets.
        """
        if self._harmless is not None and not nearest:
            harmless = self._harmless.answer_to(read_call(recorded))
            if harmless is not None:
                return harmless
        # What is told of a miss has no secrets either.
        call = read_call(self._matched.told(recorded))
        if not nearest:
            return no_match(call, self.playables, self._ignored)
        if not fitting:
            return other_secrets(call, nearest)
        return no_more(call, fitting, was_asked=any(map(session.was_asked, fitting)))

    def _count(self, session: LiveSession, found: Miss | Harmless) -> Miss | Harmless:
        """Count a request without a recorded reply, of which it is known why."""
        if isinstance(found, Harmless):
            self.harmless.append(found)
            return found
        answer = found.call.message
        is_answer = answer is not None and answer.kind is Kind.RESPONSE
        if answer is not None and is_answer:
            is_refused = self._refuse(answer, session, found)
            found = replace(found, is_refused=is_refused)
        self.misses.append(found)
        return found

    def _refuse(self, answer: Message, session: LiveSession, miss: Miss) -> bool:
        """Let the call during which the server asked get a miss; return whether there is one."""
        asked = self._posted.get((session.recorded, answer.id))
        if asked is None:
            # Under an id that no question had, it is taken for the answer to the oldest one.
            posted = self._posted.items()
            asked = [each for key, own in posted if key[0] == session.recorded for each in own]
        for expected in asked:
            question = expected.answers
            if (
                question is not None
                and session.was_asked(expected)
                and not session.has_arrived(expected)
            ):
                pending = question.pending
                is_refused = pending.kind is Kind.REQUEST
                # Nothing else has to wait any more for the right answer, nor for later ones.
                session.waive(expected)
                for each in self._timelines.answers_during(pending):
                    session.waive(each)
                if is_refused:
                    session.refused[pending] = miss
                return is_refused
        return False

    def _delivery(
        self, playable: Playable, session: LiveSession, values: CallerValues
    ) -> Delivery | None:
        reply = self._reply(playable)
        if reply is None:
            return None
        values = session.callers.get(playable.stream, values)
        return Delivery(playable, reply, session, values)

    def _follow(self, session: LiveSession) -> None:
        """Let a client listen to the session that it has turned out to have."""
        for delivery in self._listening.get(session, ()):
            place = session.recorded, delivery.playable.lookup_number
            stream = self._streams.get(place)
            reply = None if stream is None else self._reply(stream)
            if stream is not None and reply is not None:
                stream.played += 1
                session.count(stream)
                delivery.follow(stream, reply)

    @cached_property
    def _events(self) -> dict[tuple[str, str], tuple[Playable, int]]:
        """The events of recorded streams by session and id: whose, and which piece of it."""
        by_arrival = sorted(self.playables, key=lambda each: each.arrival)
        return {
            (each.session, identity): (each, index)
            for each in by_arrival
            for index, identity in event_ids(each.exchange.response)
        }

    def _reply(self, playable: Playable) -> Reply | None:
        exchange = playable.exchange
        if exchange.response is None:
            return None
        reply = self._replies.get(playable)
        if reply is None:
            waits = self._order.waits_of(playable)
            # A stream may be resumed at any event that has an id.
            has_ids = any(event_ids(exchange.response))
            reply = build_reply(
                self._echoes.of(playable, waits),
                exchange.response,
                waits,
                started_ms=exchange.started_ms,
                piecewise=self._paced or playable.session != "" or has_ids,
            )
            if playable in self._held_open:
                reply = reply._replace(end=End.OPEN)
            # Of all replies only a stream costs more to put together than to keep.
            if reply.is_event_stream:
                self._replies[playable] = reply
        return reply

    def respond_on_stream(self, request: Request, message: bytes) -> bool:
        """Put a message that was not recorded on the stream that has all responses of a session.

        Returns:
            whether the session of the request has such a stream.
        """
        events = self._order.session_of(request).unrecorded
        if events is not None:
            events.append(b"event: message\ndata: %b\n\n" % message)
        return events is not None

    def was_given(self, given: Given) -> None:
        """Look for the credentials in what the server, or who plays it, was given from now on."""
        self._matched.was_given(given)

    def redacted(self, text: str) -> str:
        """Return a text for the terminal, without known secrets."""
        return self._matched.shown(text)

    @property
    def unplayed(self) -> list[int]:
        """Numbers of the interactions of which something was never played."""
        return [
            number
            for number, own in enumerate(self.interactions, start=1)
            if not all(each.was_played for each in own)
        ]
