"""Replaying over pipes: the recording is a server that its client has started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from mrtr_cassette.core.exchange.transports import over_pipes
from mrtr_cassette.core.wire.lines import opens_channel
from mrtr_cassette.options import ReplayOptions
from mrtr_cassette.shell.announcing import Announcer, OnEvent
from mrtr_cassette.shell.line_pipes import OWN_PIPES
from mrtr_cassette.shell.piped_client import PipedClient
from mrtr_cassette.shell.replaying import ReplaySession, load_server
from mrtr_cassette.shell.server_process import given_to
from mrtr_cassette.shell.stores import Location


async def replay_pipe(
    path: Location,
    options: ReplayOptions,
    told_to_end: asyncio.Event,
    on_event: OnEvent | None = None,
    *,
    server_command: Sequence[str] = (),
    began: Callable[[ReplaySession], None] = lambda _session: None,
) -> ReplaySession:
    """Serve a cassette on our own pipes until the client ends, a signal comes, or the server ended.

    Args:
        server_command: what starts the server in whose place it stands, where that is known.
        began: called with what is replayed, before it is.

    Raises:
        CassetteError: the cassette can't be read, or not be played over pipes.
    """
    announcer = Announcer(options.log, on_event, options.terms)
    cassette, server = load_server(path, over_pipes, options, announcer)
    server.player.was_given(given_to(server_command))
    session = ReplaySession("", "", cassette, server.player, options.terms)
    began(session)
    client = PipedClient(OWN_PIPES, options.max_body)
    if any(opens_channel(each.exchanges[0].request) for each in cassette.interactions):
        client.listen(server.handle)
    await client.run(server.handle, told_to_end)
    return session
