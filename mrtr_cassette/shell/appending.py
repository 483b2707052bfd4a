"""Appending: what is recorded is played, what is missing is recorded.

Owns: which of the two a request gets, and having the live server follow a recorded conversation
before a retry that continues it is relayed.
Does not own: the relay and its upstream (`relay`), playing (`replaying`), what is sent to lead
the server (`core.leading`).
Rule: nothing of what leads the server is recorded.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial

from mrtr_cassette.core.drive.leading import Lead, Leads, LiveAsks, NotLed, Opening, Sessions
from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.replay.player import Play
from mrtr_cassette.core.report.events import lead_event, lead_line, not_led_event
from mrtr_cassette.core.report.unrecorded import report_of_unrecorded, unrecorded_body
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.errors import BodyTooLargeError, UpstreamError
from mrtr_cassette.shell.relay import Relay
from mrtr_cassette.shell.replaying import ReplayServer
from mrtr_cassette.shell.transport import JSON_HEADERS, Downstream


@dataclass(slots=True)
class Appender:
    """Answers requests from a cassette, and those that it lacks from the upstream.

    Attributes:
        server: plays the cassette.
        relay: records what is missing.
        leads: what retries answer in the cassette.
        live_asks: what the upstream asked in this run.
        sessions: which live sessions stand for the recorded ones.
        opening: held while a session is opened, which others may need too.
    """

    server: ReplayServer
    relay: Relay
    leads: Leads
    live_asks: LiveAsks
    sessions: Sessions = field(init=False)
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        """Begin without sessions."""
        self.sessions = Sessions(self.leads.redactor)

    async def handle(self, request: Request, downstream: Downstream) -> None:
        """Answer one request."""
        call = read_call(request)
        if self.live_asks.answered_by(call):
            await self.relay.handle(request, downstream, self.sessions.in_live(request))
            return
        player = self.server.player
        decision = player.request_received(request)
        if isinstance(decision, Play):
            self.sessions.played(decision.call, decision.playable.exchange.response)
            await self.server.play(decision, downstream)
            return
        # What the cassette lacks is no miss of a run that records it.
        player.misses.pop()
        try:
            sent = await self._as_live(request, decision.call)
        except (UpstreamError, BodyTooLargeError) as error:
            await self.relay.answer_unreachable(request, downstream, str(error))
            return
        if isinstance(sent, NotLed):
            body = self._not_led(sent)
            await downstream.send_whole(200, JSON_HEADERS, body)
        else:
            await self.relay.handle(request, downstream, sent)

    async def _as_live(self, request: Request, shown: Call) -> Request | NotLed:
        """Return a request as the live server understands it, once that is where the client is."""
        async with self.opening:
            opening = self.sessions.opening_for(shown)
            if isinstance(opening, Opening):
                failure = await self._follow(opening)
                if failure is None:
                    self.sessions.opened(opening)
                opening = failure
        if opening is not None:
            return opening
        sent = self.sessions.in_live(request)
        lead = self.leads.lead_for(read_call(sent), shown)
        if not isinstance(lead, Lead):
            return sent if lead is None else lead
        failure = await self._follow(lead)
        if failure is not None:
            return failure
        self._say_led(lead)
        return lead.retry()

    async def _follow(self, steps: Lead | Opening) -> NotLed | None:
        """Send what leads the server, one request after the other."""
        while (observation := steps.next()) is not None:
            await self.relay.ask(observation)
            failure = steps.responded(observation)
            if failure is not None:
                return failure
        return None

    def _say_led(self, lead: Lead) -> None:
        """Say that the server has been led, and look for its states from now on."""
        watcher = self.relay.watcher
        for live, recorded in lead.states:
            watcher.recorder.known.remember(recorded)
            watcher.recorder.known.remember(live, shown_as=recorded)
        watcher.announcer.say(partial(lead_event, lead), partial(lead_line, lead))

    def _not_led(self, failure: NotLed) -> bytes:
        """Take note of a retry that the server could not be led to; return the answer to it."""
        watcher = self.relay.watcher
        watcher.session.not_led.append(failure)
        player = self.server.player
        terms = watcher.announcer.terms
        report = report_of_unrecorded(failure, player.path, player.redacted, terms)
        watcher.announcer.say(partial(not_led_event, failure), lambda: report.text)
        return unrecorded_body(report, failure.call)
