"""Recording: a proxy between a client and the upstream, and what becomes of what passes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from mrtr_cassette.core.drive.live_asks import LiveAsks
from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.secrets.credentials import shown_by
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell import cassette_file
from mrtr_cassette.shell.admin import Admin
from mrtr_cassette.shell.announcing import Announcer, OnEvent
from mrtr_cassette.shell.answering import answering
from mrtr_cassette.shell.appending import appender_of, player_of
from mrtr_cassette.shell.clock import CLOCK, Clock
from mrtr_cassette.shell.http.access import access_of, listening
from mrtr_cassette.shell.http.server import REQUEST_TIMEOUTS, RequestTimeouts
from mrtr_cassette.shell.keeping import check_output, journal_header, keeping, rules_of_both
from mrtr_cassette.shell.record_session import RecordSession
from mrtr_cassette.shell.relay import Relay
from mrtr_cassette.shell.stores import Location
from mrtr_cassette.shell.transport import Handler
from mrtr_cassette.shell.upstream_target import STARTED_HERE, target_of

DEFAULTS: Final = RecordOptions()


@asynccontextmanager
async def recording(
    upstream: str | Sequence[str],
    output: Location,
    options: RecordOptions = DEFAULTS,
    *,
    started: Sequence[str] | None = None,
    kept_for: Location | None = None,
    on_event: OnEvent | None = None,
    clock: Clock = CLOCK,
    timeouts: RequestTimeouts = REQUEST_TIMEOUTS,
) -> AsyncIterator[RecordSession]:
    """Record what passes until the block ends, then publish the cassette.

    With `existing="append"`, what the cassette has is played, and only what it lacks is sent to the
    upstream and recorded. Where it lacks nothing, the file stays untouched.

    Args:
        upstream: URL of the real server, or the command of one on pipes, which is called over HTTP.
        started: the command by which we have started the server at the URL, or an empty one where
            it is an application: the cassette doesn't name the port, which is another on every run.
        kept_for: the cassette, named by messages, that the caller makes of the journal; or None.

    Raises:
        CassetteError: the cassette can't be written, or exists.
        UsageError: the upstream is no URL, or the address can't be bound.
    """
    admin = Admin(options)
    target = target_of(upstream, options, options.redaction, started or ())
    with cassette_file.without_collection():
        earlier = check_output(output, options)
        earlier = None if earlier is None else replace(earlier, path=str(kept_for or output))
        player = None if earlier is None else player_of(earlier, options, target.given)
    rules = rules_of_both(earlier, options.redaction)
    shown = shown_by(rules)
    access = access_of(options)
    with listening(access) as listener:
        if target.port == listener.port and access.is_named(target.host):
            raise UsageError(f"the upstream {shown(target.name)} is this proxy itself")
        own_url = listener.url(target.path)
        session = RecordSession(own_url, shown(own_url), output, earlier, player, options.terms)
        header = journal_header(
            options, rules, shown(target.name if started is None else STARTED_HERE)
        )
        live_asks = LiveAsks()
        announcer = Announcer(options.log, admin.told(on_event), options.terms)
        with keeping(
            *(session, header, options, announcer, clock),
            publishes=kept_for is None,
            on_ask=None if earlier is None else live_asks.asked,
        ) as watcher:
            async with target.connecting(watcher.recorder) as server:
                relay = Relay(server, target.origin, target.headers, watcher)
                playables = () if player is None else player.playables
                async with (
                    _handling(relay, options, earlier, player, live_asks) as handler,
                    watcher.finishing(),
                    admin.serving(
                        *(handler, listener, access, announcer, playables), timeouts=timeouts
                    ) as session.admin_url,
                ):
                    yield session


@asynccontextmanager
async def _handling(
    relay: Relay,
    options: RecordOptions,
    earlier: Cassette | None,
    player: Player | None,
    live_asks: LiveAsks,
) -> AsyncIterator[Handler]:
    """Give what handles requests: the relay, and what stands before it."""
    if earlier is not None and player is not None:
        yield appender_of(relay, earlier, player, live_asks).handle
        return
    async with answering(relay, options.answers) as handles:
        yield handles.handle
