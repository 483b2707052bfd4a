"""Record and replay on this process's own pipes, in the place of the client's server."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.transports import over_pipes
from mrtr_cassette.core.record.channel import Channel
from mrtr_cassette.core.secrets.sealed import sha256_of
from mrtr_cassette.core.wire.http import NO_STATUS, End, Line, Request, opens_channel
from mrtr_cassette.errors import BodyTooLargeError, CassetteError, UsageError
from mrtr_cassette.options import RecordOptions, ReplayOptions
from mrtr_cassette.shell.files import cassettes
from mrtr_cassette.shell.files.cassettes import recover_journal
from mrtr_cassette.shell.files.disk import is_locked
from mrtr_cassette.shell.files.log import CLOCK, Announcer, OnEvent, heard_by
from mrtr_cassette.shell.files.stores import Location
from mrtr_cassette.shell.pipes.lines import STDIN, STDOUT, LineWriter, lines_from
from mrtr_cassette.shell.pipes.processes import (
    ServerProcess,
    given_to,
    server_process,
    shown_command,
)
from mrtr_cassette.shell.pipes.transport import LAST_S, PipedClient, pipe_upstream
from mrtr_cassette.shell.runs.appending import appender_of, appending_player
from mrtr_cassette.shell.runs.record_session import (
    ExchangeRecording,
    Watcher,
    check_output,
    journaling,
    rules_of_both,
)
from mrtr_cassette.shell.runs.relay import Relay
from mrtr_cassette.shell.runs.replaying import load_server
from mrtr_cassette.shell.runs.running import told_to_end
from mrtr_cassette.shell.runs.sessions import RecordSession, ReplaySession

_PREDECESSOR_S: Final = 5.0
"""Seconds to wait for the end of a recorder that the same client started before."""
_LOOK_S: Final = 0.02
"""Seconds between two looks whether it has ended."""
_LAST_S: Final = 4.0
"""Seconds after the client's end for what a server that is added from is still to say."""


async def record_pipe(
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
    """Record between our own stdin and stdout and a server, until both sides have ended.

    With `existing="append"`, what the cassette has is played, and the server is started for the
    first request that it lacks. Where the same client has recorded the cassette, or is about to end
    its recording, this one is added to it: some clients start a server twice.

    Args:
        client: hash of the client; None where nobody can tell.
        named: the cassette that is added to, as shown in messages.

    Returns:
        what it came to, and the server's exit code; 0 where it was never started.

    Raises:
        CassetteError: the cassette can't be written, or exists.
        UsageError: a cassette that is to be added to was recorded over HTTP.
        CommandError: the server can't be started.
    """
    plays = options.existing == "append"
    if client is not None:
        await _predecessor_ended(output, client, named or output)
        if _client_of(output) == client or _kept_mark(output, client).exists():
            options = replace(options, existing="append")
    with cassettes.without_collection():
        earlier = check_output(output, options)
    shown = shown_command(command, rules_of_both(earlier, options.redaction))
    player = None
    if plays and earlier is not None:
        check_transport(earlier)
        earlier = replace(earlier, path=str(named or output))
        player = appending_player(over_pipes(earlier), options, given_to(command))
    session = RecordSession(shown, shown, output, earlier, player, options.terms)
    session.publishes_anyway = options.publish_anyway
    announcer = Announcer(options.log, heard_by(on_event), options.terms)
    began(session)
    async with told_to_end() as told:
        run = (session, options, announcer, CLOCK)
        with journaling(*run, upstream=shown, transport="stdio", client=client) as watcher:
            if earlier is not None and player is not None:
                longest = watcher.recorder.largest_body
                upstream = pipe_upstream(command, longest, watcher.recorder, told, cwd)
                async with watcher.finishing(), upstream as live:
                    relay = Relay(live, shown, (), watcher)
                    answered = PipedClient(appender_of(relay, earlier, player).handle, longest)
                    live.on_own_line = partial(answered.listen, relay.handle)
                    await _answer(answered, earlier, told, _LAST_S)
                return session, live.exit_code or 0
            with server_process(command, watcher.recorder, cwd) as server:
                code = await _PipedRecorder(watcher, server).run(told)
            if not session.outcomes.errors and not session.outcomes.has_success:
                session.failure = f"{command[0]!r} ended with {code} and answered nothing"
    if client is not None and session.published is not None and session.published.is_same:
        _kept_mark(output, client).touch()
    return session, code


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


async def _predecessor_ended(output: Location, client: str, named: Location) -> None:
    """Wait until the client's earlier recording is published.

    Raises:
        CassetteError: it goes on, or was killed, and what it left can't be published.
    """
    journal = cassettes.journal_path(output)
    looks = round(_PREDECESSOR_S / _LOOK_S)
    while cassettes.client_of(journal) == client:
        if not is_locked(journal):
            # Whoever ended it did not wait for its cassette.
            recover_journal(output)
        elif not looks:
            raise CassetteError(
                named,
                "a server that the client has started before is still running",
                hint="end it first: what two servers say at the same time is no one recording",
            )
        else:
            looks -= 1
            await asyncio.sleep(_LOOK_S)


def _kept_mark(output: Location, client: str | None) -> Path:
    """Return the file that tells that a client recorded a cassette which was left alone."""
    name = sha256_of(f"{client} {output.absolute()}")[:32]
    return Path(tempfile.gettempdir()) / f"mrtr-cassette-kept-{name}"


def _client_of(output: Location) -> str | None:
    try:
        return cassettes.load_cassette(output).client if cassettes.exists(output) else None
    except CassetteError:
        return None


class _PipedRecorder:
    """Passes lines between a client and a server, and records them."""

    def __init__(self, watcher: Watcher, server: ServerProcess) -> None:
        self._watcher = watcher
        self._server = server
        self._client = LineWriter(STDOUT, server.client_has_left)
        # Each run of the server after the first one in a cassette is a session of its own.
        session = secrets.token_hex(16) if watcher.session.base is not None else ""
        self._channel: Channel[ExchangeRecording] = Channel(self._begin, session)

    async def run(self, told: asyncio.Event) -> int:
        """Pass lines on until both sides have ended; return the server's exit code."""
        heard = asyncio.ensure_future(self._from_server())
        said = asyncio.ensure_future(self._from_client())
        by_server = await self._server.ended(told, heard)
        for task in (said, heard):
            task.cancel()
        for exchange, end in self._channel.ended(by_server=by_server):
            if end is None:
                exchange.forget()
            else:
                exchange.response_ended(end)
        return self._server.exit_code

    async def _from_client(self) -> None:
        writer = self._server.writer
        async for lines in lines_from(STDIN, self._watcher.recorder.largest_body):
            for line in lines:
                # Nothing that the server says in response is read before the line is shown.
                writer.write(line.raw)
                self._show(line, self._client_said)
            await writer.room()
        await self._server.close_stdin()

    async def _from_server(self) -> None:
        client = self._client
        async for lines in self._server.lines(self._watcher.recorder.largest_body):
            for line in lines:
                self._show(line, self._server_said)
                client.write(line.raw)
            await client.room()
        await client.finish()
        client.close()

    def _begin(self, request: Request) -> ExchangeRecording:
        exchange = ExchangeRecording(self._watcher, request)
        if opens_channel(request):
            exchange.response_started(NO_STATUS, ())
        return exchange

    def _show(self, line: Line, said: Callable[[bytes], None]) -> None:
        if not line.is_whole:
            self._watcher.failed(BodyTooLargeError("a line", self._watcher.recorder.largest_body))
            return
        try:
            said(line.raw)
        except Exception as error:  # noqa: BLE001  the recorder is a spectator
            self._watcher.failed(error)

    def _client_said(self, line: bytes) -> None:
        exchange, is_over = self._channel.client_line(line)
        if is_over:
            exchange.response_ended(End.COMPLETE)
        else:
            exchange.response_started(NO_STATUS, ())

    def _server_said(self, line: bytes) -> None:
        exchange, is_over = self._channel.server_line(line)
        exchange.response_bytes(line)
        if is_over:
            exchange.response_ended(End.COMPLETE)


async def _answer(
    client: PipedClient, cassette: Cassette, told: asyncio.Event, last_s: float = LAST_S
) -> None:
    """Answer a client from a cassette until it ends."""
    if any(opens_channel(each.exchanges[0].request) for each in cassette.interactions):
        client.listen()
    await client.run(told, last_s)


async def replay_pipe(
    path: Location,
    options: ReplayOptions,
    on_event: OnEvent | None = None,
    *,
    server_command: Sequence[str] = (),
    began: Callable[[ReplaySession], None] = lambda _session: None,
) -> tuple[ReplaySession, int]:
    """Serve a cassette on our own pipes until the client ends, a signal comes, or the server ended.

    `server_command` starts the server in whose place it stands, where that is known. Returns what
    it came to, and an exit code.

    Raises:
        CassetteError: the cassette can't be read, or not be played over pipes.
    """
    announcer = Announcer(options.log, heard_by(on_event), options.terms)
    cassette, server = load_server(path, over_pipes, options, announcer)
    server.player.was_given(given_to(server_command))
    session = ReplaySession("", "", path, cassette, server.player, options.terms)
    began(session)
    async with told_to_end() as told:
        await _answer(PipedClient(server.handle, options.max_body), cassette, told)
    return session, int(bool(server.player.misses))
