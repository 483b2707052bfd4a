"""Replaying: the recording is the server.

Owns: sending recorded replies, waiting where a part has to wait, and holding open what had no end.
Does not own: which reply a request gets (`core.player`).
Rule: nothing here can reach the network; no HTTP client is imported (see tests/test_layering.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from mrtr_cassette.core.exchange.caller_values import Own
from mrtr_cassette.core.format.model import InteractionModel
from mrtr_cassette.core.replay.diagnosis import Miss
from mrtr_cassette.core.replay.player import Play, Player, Repeat
from mrtr_cassette.core.replay.reply import Part, Reply
from mrtr_cassette.core.report.events import missed_event, played_event
from mrtr_cassette.core.report.misses import miss_body, report_of_miss
from mrtr_cassette.core.wire.http import End, Request
from mrtr_cassette.core.wire.jsonbytes import MemberPath
from mrtr_cassette.shell import files
from mrtr_cassette.shell.http_server import (
    LOOPBACK,
    Access,
    Response,
    break_off,
    render_head,
    serving,
)

Log = Callable[[str], None]
_TOLD_AFTER = 500
"""Interactions after which to look whether a second has passed."""

OnEvent = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class ReplaySession:
    """A replay under way.

    Attributes:
        url: what the client connects to.
        player: knows what it came to.
    """

    url: str
    player: Player


@asynccontextmanager
async def replaying(
    cassette: Path,
    *,
    access: Access = LOOPBACK,
    ignored: Collection[MemberPath] = (),
    repeat: Repeat = Repeat.AUTO,
    paced: bool = False,
    log: Log | None = None,
    on_event: OnEvent | None = None,
) -> AsyncIterator[ReplaySession]:
    """Serve a cassette until the block ends.

    Args:
        cassette: the file.
        access: where to listen, and for whom.
        ignored: members of the params that don't count in matching.
        repeat: whether what has been played may be played again.
        paced: event streams keep the recorded rhythm.
        log: takes the text of each miss.
        on_event: takes each play and each miss as facts, for programs.

    Raises:
        CassetteError: the cassette can't be read.
        UsageError: the address can't be bound.
    """
    with files.without_collection():
        recorded, interactions, exchanges = files.read_parts(cassette)
        upstream = urlsplit(recorded.upstream)
        player = Player(
            recorded,
            str(cassette),
            interactions=_telling(interactions, cassette, log, on_event),
            exchanges=exchanges,
            ignored=ignored,
            repeat=repeat,
            paced=paced,
        )
        del recorded, interactions, exchanges
    server = ReplayServer(player, paced, log, on_event)
    async with serving(server.handle, access, log) as address:
        query = f"?{upstream.query}" if upstream.query else ""
        yield ReplaySession(address.url(f"{upstream.path or '/'}{query}"), player)


def _telling(
    interactions: Iterable[InteractionModel], path: Path, log: Log | None, on_event: OnEvent | None
) -> Iterator[InteractionModel]:
    """Pass interactions on, and tell every second how many there were."""
    told = time.monotonic()
    for count, interaction in enumerate(interactions, start=1):
        yield interaction
        if count % _TOLD_AFTER == 0 and time.monotonic() - told >= 1:
            told = time.monotonic()
            if log is not None:
                log(f"reading {path}: {count:,} interactions so far")
            if on_event is not None:
                on_event({"event": "reading", "interactions": count})


@dataclass(slots=True)
class ReplayServer:
    """Answers requests from a player."""

    player: Player
    paced: bool
    log: Log | None
    on_event: OnEvent | None
    arrival: asyncio.Event | None = None

    async def handle(self, request: web.BaseRequest, asked: Request) -> web.StreamResponse:
        """Answer one request."""
        decision = self.player.request_received(asked)
        if isinstance(decision, Miss):
            return self._missed(decision)
        return await self.play(request, decision)

    async def play(self, request: web.BaseRequest, play: Play) -> web.StreamResponse:
        """Answer a request with what was recorded for it."""
        if self.on_event is not None:
            with suppress(OSError):
                self.on_event(played_event(play))
        if self.arrival is not None:
            self.arrival.set()
            self.arrival = None
        if play.reply is None:
            return await _hold_open()
        return await self._send(request, play.reply, play.own)

    def _missed(self, miss: Miss) -> web.StreamResponse:
        report = report_of_miss(miss, self.player.path, self.player.redacted)
        with suppress(OSError):
            if self.on_event is not None:
                self.on_event(missed_event(miss))
            if self.log is not None:
                self.log(report.text)
        if miss.call.message is None:
            return web.Response(status=404, text=f"{report.text}\n")
        return web.Response(body=miss_body(report, miss.call), content_type="application/json")

    async def _send(self, request: web.BaseRequest, reply: Reply, own: Own) -> web.StreamResponse:
        started = time.monotonic()
        response = Response(request, render_head(reply.status, reply.headers))
        is_whole = len(reply.parts) <= 1 and not reply.is_event_stream
        if is_whole and reply.end is End.COMPLETE and not any(part.gate for part in reply.parts):
            await response.send_whole(b"".join(part.fill(own) for part in reply.parts))
            return response
        ends = reply.end is End.COMPLETE
        if not reply.parts:
            await response.send(is_last=ends)
        for number, part in enumerate(reply.parts, start=1):
            if self.paced or not self.player.is_due(part.gate):
                # The head does not wait for the first part.
                await response.send()
                await self._wait_for(part, started)
            await response.send(part.fill(own), is_last=ends and number == len(reply.parts))
        if reply.end is End.OPEN:
            return await _hold_open()
        if reply.end is End.BROKEN:
            break_off(request)
        return response

    async def _wait_for(self, part: Part, started: float) -> None:
        """Wait until the requests that caused a part have come, and for its time."""
        while not self.player.is_due(part.gate):
            if self.arrival is None:
                self.arrival = asyncio.Event()
            await self.arrival.wait()
        if self.paced:
            elapsed = time.monotonic() - started
            await asyncio.sleep(max(0.0, part.at_ms / 1000 - elapsed))


async def _hold_open() -> web.StreamResponse:
    """Wait until the client leaves or the replay ends; both cancel the request's task."""
    await asyncio.Event().wait()
    raise AssertionError("unreachable because nobody sets this event")
