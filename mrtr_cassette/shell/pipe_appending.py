"""Adding to a cassette of a server on pipes: what it has is played, what it lacks is recorded.

Rule: the server is started for the first request that the cassette lacks, and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
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
from mrtr_cassette.shell.keeping import check_output, journal_header, keeping, rules_of_both
from mrtr_cassette.shell.line_pipes import OWN_PIPES
from mrtr_cassette.shell.pipe_recording import predecessor_ended, record_pipe
from mrtr_cassette.shell.pipe_upstream import pipe_upstream
from mrtr_cassette.shell.piped_client import PipedClient
from mrtr_cassette.shell.record_session import RecordSession
from mrtr_cassette.shell.relay import Relay
from mrtr_cassette.shell.running import run, told_to_end
from mrtr_cassette.shell.server_process import given_to, shown_command
from mrtr_cassette.shell.stores import Location

_LAST_S: Final = 10.0
"""Seconds after the client's end for what the server is still to say."""


def record_or_append(
    command: Sequence[str],
    output: Location,
    options: RecordOptions,
    on_event: OnEvent | None = None,
    *,
    cwd: Path | None = None,
    client: str | None = None,
    named: Location | None = None,
    began: Callable[[RecordSession], None] = lambda _session: None,
) -> tuple[RecordSession, int]:
    """Record between our own stdin and stdout and a server; what a cassette has may be played.

    Args:
        command: the server's program and its arguments.
        client: hash of the client; None where nobody can tell.
        named: how messages name a cassette that is added to, where that is not its path.
        began: called with an addition, before it begins.

    Returns:
        what it came to, and the server's exit code; 0 where it was never started.

    Raises:
        CassetteError: the cassette can't be written, or exists.
        UsageError: a cassette that is to be added to was recorded over HTTP.
        CommandError: the server can't be started.
    """
    if options.existing == "append":
        if client is not None:
            predecessor_ended(output, client)
        earlier = check_output(output, options)
        if earlier is not None:
            earlier = replace(earlier, path=str(named or output))
            append = partial(_append, command, earlier, output, options)
            return run(append(on_event=on_event, cwd=cwd, client_sha256=client, began=began))
    return record_pipe(command, output, options, on_event, cwd=cwd, client=client)


def check_transport(earlier: Cassette) -> None:
    """Make sure that a cassette can be added to over pipes.

    Raises:
        UsageError: it was recorded over HTTP.
    """
    if earlier.transport != "stdio":
        raise UsageError(
            f"{earlier.path} was recorded over HTTP, and this recording would be over pipes",
            hint="choose another <<cassette>>, or add to it over HTTP",
        )


async def _append(
    command: Sequence[str],
    earlier: Cassette,
    output: Location,
    options: RecordOptions,
    *,
    on_event: OnEvent | None,
    cwd: Path | None,
    client_sha256: str | None,
    began: Callable[[RecordSession], None],
) -> tuple[RecordSession, int]:
    """Answer from a cassette, and record from a server what that lacks, until the client ends."""
    check_transport(earlier)
    rules = rules_of_both(earlier, options.redaction)
    shown = shown_command(command, rules)
    player = player_of(over_pipes(earlier), options, given_to(command))
    session = RecordSession(shown, shown, output, earlier, player, options.terms)
    header = journal_header(options, rules, shown, "stdio", client_sha256)
    announcer = Announcer(options.log, on_event, options.terms)
    live_asks = LiveAsks()
    began(session)
    async with told_to_end() as told:
        with keeping(session, header, options, announcer, CLOCK, on_ask=live_asks.asked) as watcher:
            upstream = pipe_upstream(command, options.max_body, watcher.recorder, cwd)
            async with watcher.finishing(), upstream as server:
                relay = Relay(server, shown, (), watcher)
                handler = appender_of(relay, earlier, player, live_asks).handle
                client = PipedClient(OWN_PIPES, options.max_body)
                server.on_own_line = lambda: client.listen(relay.handle)
                if any(opens_channel(each.exchanges[0].request) for each in earlier.interactions):
                    client.listen(handler)
                server.told_to_end = told
                await client.run(handler, told, _LAST_S)
    return session, server.exit_code or 0
