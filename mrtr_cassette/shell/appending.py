"""Appending: what is recorded is played, what is missing is recorded.

Owns: which of the two a request gets, and having the live server follow a recorded conversation
before a retry that continues it is relayed.
Does not own: the relay and its upstream (`recording`), playing (`replaying`), what is sent to lead
the server (`core.leading`).
Rule: nothing of what leads the server is recorded.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web

from mrtr_cassette.core.drive.leading import Lead, Leads, LiveAsks, NotLed, Opening, Sessions
from mrtr_cassette.core.protocol.calls import Call, read_call
from mrtr_cassette.core.record.recorder import Observation
from mrtr_cassette.core.replay.player import Play
from mrtr_cassette.core.report.unrecorded import report_of_unrecorded, unrecorded_body
from mrtr_cassette.core.wire.http import Request
from mrtr_cassette.errors import BodyTooLargeError, UpstreamError
from mrtr_cassette.shell.replaying import ReplayServer


class Upstream(Protocol):
    """What is needed of the relay."""

    async def handle(
        self, request: web.BaseRequest, asked: Request, sent: Request | None = None
    ) -> web.StreamResponse:
        """Relay and record one exchange, in which something else is sent than the client asked."""
        ...

    async def ask(self, observation: Observation) -> None:
        """Send a request of our own, and show its response to the observation.

        Raises:
            UpstreamError: there was no response.
            BodyTooLargeError: the response is larger than what is kept.
        """
        ...

    def unreachable(self, asked: Request, problem: str) -> web.StreamResponse:
        """Answer for an upstream that gave no response."""
        ...

    def led(self, lead: Lead) -> None:
        """Take note that the server has been led."""
        ...

    def not_led(self, failure: NotLed) -> None:
        """Take note that it could not be led."""
        ...


@dataclass(slots=True)
class Appender:
    """Answers requests from a cassette, and those that it lacks from the upstream.

    Attributes:
        server: plays the cassette.
        upstream: records what is missing.
        leads: what retries answer in the cassette.
        live_asks: what the upstream asked in this run.
        sessions: which live sessions stand for the recorded ones.
        opening: held while a session is opened, which others may need too.
    """

    server: ReplayServer
    upstream: Upstream
    leads: Leads
    live_asks: LiveAsks = field(default_factory=LiveAsks)
    sessions: Sessions = field(init=False)
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        """Begin without sessions."""
        self.sessions = Sessions(self.leads.redactor)

    async def handle(self, request: web.BaseRequest, asked: Request) -> web.StreamResponse:
        """Answer one request."""
        call = read_call(asked)
        if self.live_asks.answered_by(call):
            return await self.upstream.handle(request, asked, self.sessions.in_live(asked))
        player = self.server.player
        decision = player.request_received(asked)
        if isinstance(decision, Play):
            self.sessions.played(decision.call, decision.node.response)
            return await self.server.play(request, decision)
        # What the cassette lacks is no miss of a run that records it.
        player.misses.pop()
        try:
            sent = await self._as_live(asked, decision.call)
        except (UpstreamError, BodyTooLargeError) as error:
            return self.upstream.unreachable(asked, str(error))
        if isinstance(sent, NotLed):
            self.upstream.not_led(sent)
            report = report_of_unrecorded(sent, player.path, player.redacted)
            body = unrecorded_body(report, sent.call)
            return web.Response(body=body, content_type="application/json")
        return await self.upstream.handle(request, asked, sent)

    async def _as_live(self, asked: Request, shown: Call) -> Request | NotLed:
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
        sent = self.sessions.in_live(asked)
        lead = self.leads.lead_for(read_call(sent), shown)
        if not isinstance(lead, Lead):
            return sent if lead is None else lead
        failure = await self._follow(lead)
        if failure is not None:
            return failure
        self.upstream.led(lead)
        return lead.retry()

    async def _follow(self, steps: Lead | Opening) -> NotLed | None:
        """Send what leads the server, one request after the other."""
        while (observation := steps.next()) is not None:
            await self.upstream.ask(observation)
            failure = steps.responded(observation)
            if failure is not None:
                return failure
        return None
