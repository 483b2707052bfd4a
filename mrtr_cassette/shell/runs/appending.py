"""Append to a cassette: play what it has, and record what it lacks.

Rule: nothing of what is sent for that is recorded.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.drive.appending import (
    RecordedAsks,
    ReplayToAsk,
    SessionOpening,
    Sessions,
    Unrecorded,
)
from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.matching import redactor_of
from mrtr_cassette.core.replay.player import Play, Player
from mrtr_cassette.core.report.events import caught_up_said, unrecorded_event
from mrtr_cassette.core.report.misses import error_body, report_of_unrecorded
from mrtr_cassette.core.secrets.credentials import Given
from mrtr_cassette.core.wire.http import JSON_HEADERS, Request
from mrtr_cassette.errors import BodyTooLargeError, UpstreamError
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.http.transport import Downstream
from mrtr_cassette.shell.runs.live_server import LiveServer
from mrtr_cassette.shell.runs.relay import Relay
from mrtr_cassette.shell.runs.replaying import ReplayServer, player_of

_REFUSED = (
    "it answers what was asked during a call that is played as recorded, and any answer but the "
    "recorded one is refused"
)

_FIXED = "it is about the task of a call that is played as recorded"


@dataclass(slots=True)
class Appender:
    """Answers requests from a cassette, or from the upstream if the cassette lacks them.

    `live_server` is the same upstream, which it brings to where the client is; `opening` is held
    while a session is opened, which others may need too.
    """

    server: ReplayServer
    relay: Relay
    live_server: LiveServer
    recorded_asks: RecordedAsks
    sessions: Sessions
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def handle(self, request: Request, downstream: Downstream) -> None:
        """Answer one request."""
        if self._is_for_live(request):
            self.server.player.goes_live(request)
            await self.relay.handle(request, downstream, self.sessions.in_live(request))
            return
        player = self.server.player
        decision = player.request_received(request, self.server.clock.wall())
        if isinstance(decision, Play):
            entry = decision.entry
            self.sessions.played(request, entry.key.method, entry.exchange.response)
            if entry.exchange.number is not None and player.is_write(entry):
                self.relay.watcher.recorder.played.append(entry.exchange.number)
            await self.server.play(decision, downstream)
            return
        # What the cassette lacks is no miss of a run that records it.
        player.misses.pop()
        if isinstance(decision, Miss) and decision.is_refused:
            self._unrecorded(Unrecorded(decision.call, _REFUSED))
            await self.server.accept(downstream)
            return
        nearest = decision.nearest if isinstance(decision, Miss) else None
        if nearest is not None and nearest.created_by is not None:
            body = self._unrecorded(Unrecorded(decision.call, _FIXED, nearest))
            await downstream.send_whole(200, JSON_HEADERS, body)
            return
        try:
            sent = await self._as_live(request, decision.call)
        except (UpstreamError, BodyTooLargeError) as error:
            await self.relay.answer_unreachable(request, downstream, str(error))
            return
        if isinstance(sent, Unrecorded):
            body = self._unrecorded(sent)
            await downstream.send_whole(200, JSON_HEADERS, body)
        else:
            player.goes_live(request)
            await self.relay.handle(request, downstream, sent)

    def _is_for_live(self, request: Request) -> bool:
        watcher = self.relay.watcher
        call = watcher.recorder.read(request)
        return watcher.live_asks.answered_by(call) or watcher.recorder.has_asked(call)

    async def _as_live(self, request: Request, shown: Call) -> Request | Unrecorded:
        """Bring the live server to the client's turn, and return the request in its terms."""
        async with self.opening:
            opening = self.sessions.opening_for(shown)
            if isinstance(opening, SessionOpening):
                await self.live_server.follow(opening)
                if opening.failure is None:
                    self.sessions.opened(opening)
                opening = opening.failure
        if opening is not None:
            return opening
        sent = self.sessions.in_live(request)
        catch_up = self.recorded_asks.replay_for(read_call(sent), shown)
        if catch_up is None or isinstance(catch_up, Unrecorded):
            return catch_up or sent
        await self.live_server.follow(catch_up)
        if catch_up.failure is not None:
            return catch_up.failure
        if isinstance(catch_up, ReplayToAsk):
            self._say_caught_up(catch_up)
        return catch_up.retry()

    def _say_caught_up(self, catch_up: ReplayToAsk) -> None:
        watcher = self.relay.watcher
        for live, recorded in catch_up.states:
            watcher.recorder.known.remember(recorded)
            watcher.recorder.known.remember(live, shown_as=recorded)
        watcher.announcer.say(caught_up_said, catch_up.asker)

    def _unrecorded(self, failure: Unrecorded) -> bytes:
        watcher = self.relay.watcher
        player = self.server.player
        terms = watcher.announcer.terms
        report = report_of_unrecorded(failure, player.path, player.redacted, terms)
        watcher.session.unrecorded.append(report.text)
        watcher.announcer.say(lambda: (unrecorded_event(failure), report.text))
        return error_body(report, failure.call)


def appender_of(relay: Relay, earlier: Cassette, player: Player) -> Appender:
    """Return an appender that plays a cassette and records the rest through a relay."""
    as_recorded, credentials = redactor_of(earlier), relay.watcher.recorder.credentials
    for interaction in earlier.interactions:
        for exchange in interaction.own:
            if exchange.response is not None:
                relay.watcher.recorder.announced.add(exchange.response, exchange.response)
    return Appender(
        ReplayServer(player, relay.watcher.announcer, paced=False),
        relay,
        LiveServer(relay.upstream, relay.shown_as, relay.headers),
        RecordedAsks(player, as_recorded, credentials),
        Sessions(as_recorded, credentials),
    )


def appending_player(earlier: Cassette, options: RecordOptions, given: Given) -> Player:
    """Return the player of a cassette that is added to; the live server has these credentials."""
    # What it lacks is for the upstream to answer, harmless or not.
    player = player_of(earlier, options, strict=True)
    player.was_given(given)
    return player
