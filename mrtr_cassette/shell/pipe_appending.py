"""Adding to a cassette of a server on pipes: what it has is played, what it lacks is recorded.

Owns: putting the parts of such a recording together.
Does not own: which of the two a request gets (`appending`), the client's side (`piped_client`), the
server's side (`pipe_upstream`).
Rule: the server is started for the first request that the cassette lacks, and not before.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mrtr_cassette.core.drive.live_asks import LiveAsks
from mrtr_cassette.core.exchange.recorded import Cassette
from mrtr_cassette.core.exchange.transports import over_pipes
from mrtr_cassette.core.wire.lines import opens_channel
from mrtr_cassette.errors import UsageError
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.announcing import Announcer, OnEvent
from mrtr_cassette.shell.appending import appender_of, player_of
from mrtr_cassette.shell.clock import CLOCK
from mrtr_cassette.shell.keeping import journal_header, keeping, rules_of_both, shown_command
from mrtr_cassette.shell.line_pipes import OWN_PIPES, PipeEnds
from mrtr_cassette.shell.pipe_upstream import pipe_upstream
from mrtr_cassette.shell.piped_client import PipedClient
from mrtr_cassette.shell.record_session import RecordSession
from mrtr_cassette.shell.relay import Relay

_LAST_S: Final = 10.0
"""Seconds after the client's end for what the server is still to say."""


async def append_pipe(
    command: Sequence[str],
    earlier: Cassette,
    output: Path,
    options: RecordOptions,
    signals: asyncio.Queue[signal.Signals],
    *,
    on_event: OnEvent | None = None,
    ends: PipeEnds = OWN_PIPES,
) -> tuple[RecordSession, int]:
    """Answer from a cassette, and record from a server what that lacks, until the client ends.

    Args:
        command: the server's program and its arguments.
        earlier: the cassette.
        output: its file.
        options: how it is recorded.
        signals: those that come to this process.
        on_event: takes what the log takes and more as facts, for programs.
        ends: the client's side.

    Returns:
        what it came to, and the server's exit code; 0 where it was never started.

    Raises:
        UsageError: the cassette was recorded over HTTP.
        CassetteError: the cassette can't be written.
    """
    if earlier.transport != "stdio":
        raise UsageError(
            f"{output} was recorded over HTTP, and this recording would be over pipes",
            hint="choose another <<cassette>>, or add to it over HTTP",
        )
    rules = rules_of_both(earlier, options.redaction)
    shown = shown_command(command, rules)
    player = player_of(over_pipes(earlier), options)
    session = RecordSession(shown, shown, output, earlier, player, options.terms)
    header = journal_header(options, rules, shown, "stdio")
    announcer = Announcer(options.log, on_event, options.terms)
    live_asks = LiveAsks()
    with keeping(session, header, options, announcer, CLOCK, on_ask=live_asks.asked) as watcher:
        async with watcher.finishing(), pipe_upstream(command, options.max_body) as upstream:
            relay = Relay(upstream, shown, (), watcher)
            handler = appender_of(relay, earlier, player, live_asks).handle
            client = PipedClient(ends, options.max_body)
            upstream.on_own_line = lambda: client.listen(relay.handle)
            if any(opens_channel(each.exchanges[0].request) for each in earlier.interactions):
                client.listen(handler)
            await client.run(handler, signals, _LAST_S)
    return session, upstream.exit_code or 0
