"""Record on our own pipes, between a client and a server that a command starts."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from mrtr_cassette.core.cassette.recorded import Cassette
from mrtr_cassette.core.cassette.transports import cassette_over_pipes
from mrtr_cassette.core.record.channel import Channel
from mrtr_cassette.core.replay.player import Player
from mrtr_cassette.core.secrets.credentials import UserSettings, text_redactor
from mrtr_cassette.core.wire.http import NO_STATUS, End, Line, Request, opens_channel
from mrtr_cassette.errors import BodyTooLargeError, CassetteError
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.files.cassettes import (
    cassette_exists,
    journal_path,
    without_garbage_collection,
)
from mrtr_cassette.shell.files.disk import is_free_within
from mrtr_cassette.shell.files.journals import client_of, recover_journal
from mrtr_cassette.shell.files.log import Announcer, OnEvent, given_listeners
from mrtr_cassette.shell.files.stores import Location
from mrtr_cassette.shell.pipes.commands import credentials_given_to, shown_command
from mrtr_cassette.shell.pipes.lines import (
    STDIN,
    STDOUT,
    LineWriter,
    PipedClient,
    pipe_reads,
)
from mrtr_cassette.shell.pipes.processes import ServerProcess, server_process
from mrtr_cassette.shell.runs.journaling import (
    ExchangeRecording,
    RecordedServer,
    RecordingRun,
    check_output,
    check_transport,
    combined_rules,
    journaling,
)
from mrtr_cassette.shell.runs.piped import StartingClient, answer_pipe, starting_client
from mrtr_cassette.shell.runs.replaying import player_of
from mrtr_cassette.shell.runs.running import catching_end_signals

_PREDECESSOR_S: Final = 5.0
"""Seconds to wait for the end of a recorder that the same client started before."""


async def _wait_for_predecessor(
    client: StartingClient, cassette: Location, shown_place: str
) -> None:
    """Wait until the client's last recording is published; it may have been killed.

    Raises:
        CassetteError: it goes on.
    """
    journal = journal_path(cassette)
    if client_of(journal) != client.sha256:
        return
    if not await asyncio.to_thread(is_free_within, journal, _PREDECESSOR_S):
        reason = "a server that the client has started before is still running"
        hint = "end it first: two servers at once can't share a recording"
        raise CassetteError(shown_place, reason, hint=hint)

    if client_of(journal) == client.sha256:
        # Whoever ended it did not wait for its cassette.
        recover_journal(cassette)


def next_free_place(output: Path) -> Path:
    """Return where this start of a client records: the first place that no other recording has.

    After `c.json` comes `c-2.json`. A start that continues the client's last one has its place.
    """
    client = starting_client()
    number = 1
    place = output
    while cassette_exists(place) or journal_path(place).exists():
        if client is not None:
            is_under_way = client_of(journal_path(place)) == client.sha256
            if is_under_way or client.continues_recording(place):
                return place

        number += 1
        place = output.with_stem(f"{output.stem}-{number}")

    return place


_LAST_RESPONSES_S: Final = 4.0
"""Seconds after the client's end for responses of a server that is added from."""


async def record_pipe(
    command: Sequence[str],
    output: Location,
    options: RecordOptions,
    on_event: OnEvent | None,
    *,
    client: StartingClient | None,
    cwd: Path | None = None,
    shown_place: str = "",
    on_begin: Callable[[RecordingRun], None] = lambda _recording_run: None,
) -> tuple[RecordingRun, int]:
    """Record between our own stdin and stdout and a server, until both sides have ended.

    With `existing="append"`, what the cassette has is played, and the server is started for the
    first request that it lacks. Where the same client has recorded the cassette, or is about to end
    its recording, this one is added to it: some clients start a server twice.

    Args:
        client: None where nobody can tell who it is.
        shown_place: the cassette as messages show it.

    Returns:
        the run, and the server's exit code; 0 where it was never started.

    Raises:
        CassetteError: the cassette can't be written, or exists.
        UsageError: a cassette that is to be added to was recorded over HTTP.
        CommandError: the server can't be started.
    """
    command = options.filled_command(command)
    plays_cassette = options.existing == "append"
    shown_place = shown_place or str(output)
    if client is not None:
        await _wait_for_predecessor(client, output, shown_place)
        if client.continues_recording(output):
            options = replace(options, existing="append")

    with without_garbage_collection():
        earlier = check_output(output, options)

    command_text = _shown_command(command, earlier, options)
    player = None
    if plays_cassette and earlier is not None:
        check_transport(earlier, shown_place, "stdio")
        earlier = replace(earlier, path=shown_place)
        settings = credentials_given_to(command)
        player = player_of(cassette_over_pipes(earlier), options, settings, strict=True)
        player.recording = replace(player.recording, upstream=command_text)

    announcer = Announcer(options.log, given_listeners(on_event), options.terms)
    client_hash = None if client is None else client.sha256
    server = RecordedServer(command_text, "stdio", client_hash)
    process = _ServerCommand(command, cwd)
    async with catching_end_signals() as end_requested:
        journal = journaling(output, options, announcer, earlier, player, server)
        with journal as recording_run:
            on_begin(recording_run)
            if player is None:
                exit_code = await _record_on_pipes(
                    recording_run, process, end_requested
                )
            else:
                exit_code = await _append_on_pipes(
                    recording_run, player, process, end_requested, options
                )

    if client is not None and recording_run.report.is_same:
        client.leave_note("kept", output)

    return recording_run, exit_code


class _ServerCommand(NamedTuple):
    """The command of a server, and the folder in which it runs, if that is not ours."""

    arguments: Sequence[str]
    cwd: Path | None


def _shown_command(
    command: Sequence[str], earlier: Cassette | None, options: RecordOptions
) -> str:
    """Return the command without secrets."""
    rules = combined_rules(earlier, options.redaction)
    without_secrets = text_redactor(rules, UserSettings(secrets=options.secrets))
    return without_secrets(shown_command(command, rules))


async def _append_on_pipes(
    recording_run: RecordingRun,
    player: Player,
    server_command: _ServerCommand,
    end_requested: asyncio.Event,
    options: RecordOptions,
) -> int:
    """Play a cassette, and record what it lacks; return the server's exit code, if it has one."""
    from mrtr_cassette.shell.files.ignored import ignored_for_options
    from mrtr_cassette.shell.pipes.upstream import pipe_upstream
    from mrtr_cassette.shell.runs.recording import Appender, Relay

    earlier = recording_run.played_cassette
    if earlier is None:
        raise AssertionError("unreachable because a player plays a cassette")

    recorder = recording_run.recorder
    longest_line = recorder.largest_body
    upstream = pipe_upstream(
        server_command.arguments,
        longest_line,
        recorder.sealer.add_settings,
        end_requested,
        server_command.cwd,
    )
    async with (
        recording_run.background_work.finished_at_end(),
        upstream as live_upstream,
    ):
        relay = Relay(live_upstream, recording_run.url, recording_run)
        ignored_for = ignored_for_options(
            options.ignore, options.ignore_from, options.masks
        )
        appender = Appender(relay, earlier, player, ignored_for)
        client = PipedClient(appender.answer_request, longest_line)
        live_upstream.on_unsolicited_line = partial(
            client.pass_on_unsolicited, appender.pass_on_unsolicited
        )
        await answer_pipe(client, earlier, end_requested, _LAST_RESPONSES_S)

    return live_upstream.exit_code or 0


async def _record_on_pipes(
    recording_run: RecordingRun,
    server_command: _ServerCommand,
    end_requested: asyncio.Event,
) -> int:
    """Record all that passes; return the server's exit code."""
    add_settings = recording_run.recorder.sealer.add_settings
    with server_process(
        server_command.arguments, add_settings, server_command.cwd
    ) as server:
        exit_code = await _PipedRecorder(recording_run, server).record_until_ended(
            end_requested
        )

    if not recording_run.publishing.outcomes.has_response:
        program = server_command.arguments[0]
        recording_run.publishing.failure = (
            f"{program!r} ended with {exit_code} and answered nothing"
        )

    return exit_code


class _PipedRecorder:
    """Passes lines between a client and a server, and records them."""

    def __init__(self, recording_run: RecordingRun, server: ServerProcess) -> None:
        self._recording_run = recording_run
        self._longest_line = recording_run.recorder.largest_body
        self._server = server
        self._client_writer = LineWriter(STDOUT, server.client_left.set)
        # Each run of the server after the first one in a cassette is a session of its own.
        name = "" if recording_run.played_cassette is None else secrets.token_hex(16)
        self._channel: Channel[ExchangeRecording] = Channel(self._begin_exchange, name)

    async def record_until_ended(self, end_requested: asyncio.Event) -> int:
        """Pass lines on until both sides have ended; return the server's exit code."""
        server_lines_task = asyncio.ensure_future(self._pass_server_lines())
        client_lines_task = asyncio.ensure_future(self._pass_client_lines())
        server_ended_first = await self._server.wait_until_ended(
            end_requested, server_lines_task
        )
        client_lines_task.cancel()
        server_lines_task.cancel()
        for exchange, end in self._channel.ended_exchanges(
            by_server=server_ended_first
        ):
            if end is None:
                exchange.leave_unrecorded()
            else:
                exchange.response_ended(end)

        return self._server.exit_code

    async def _pass_client_lines(self) -> None:
        """Pass on the client's lines and record them; at their end close the server's stdin."""
        server_writer = self._server.writer
        async for pipe_read in pipe_reads(STDIN, self._longest_line):
            for line in pipe_read.lines:
                # Nothing that the server says in response is read before the line is shown.
                server_writer.write(line.new_bytes)
                self._record_line(line, self._record_client_line)

            if pipe_read.rest:
                server_writer.write(pipe_read.rest)

            await server_writer.wait_for_room()

        await self._server.close_stdin()

    async def _pass_server_lines(self) -> None:
        """Record the server's lines and pass them on; at their end close the client's pipe."""
        client_writer = self._client_writer
        async for pipe_read in self._server.stdout_reads(self._longest_line):
            for line in pipe_read.lines:
                self._record_line(line, self._record_server_line)
                client_writer.write(line.new_bytes)

            if pipe_read.rest:
                client_writer.write(pipe_read.rest)

            await client_writer.wait_for_room()

        await client_writer.finish()
        client_writer.close()

    def _begin_exchange(self, request: Request) -> ExchangeRecording:
        """Begin to record an exchange; unsolicited messages are a response that has started."""
        exchange = ExchangeRecording(self._recording_run, request)
        if opens_channel(request):
            exchange.response_started(NO_STATUS, ())

        return exchange

    def _record_line(self, line: Line, record: Callable[[bytes], None]) -> None:
        """Record a line by `record`; a failure is said, and lines are passed on all the same."""
        if not line.is_whole:
            self._recording_run.report_failure(
                BodyTooLargeError("a line", self._longest_line)
            )
            return

        try:
            record(line.raw)
        except Exception as error:  # noqa: BLE001  the recorder is a spectator
            self._recording_run.report_failure(error)

    def _record_client_line(self, line: bytes) -> None:
        """Record a line of the client, whose exchange is complete if no response follows."""
        exchange, is_over = self._channel.take_client_line(line)
        if is_over:
            exchange.response_ended(End.COMPLETE)
        else:
            exchange.response_started(NO_STATUS, ())

    def _record_server_line(self, line: bytes) -> None:
        """Record a line of the server, and the end of its exchange if it is the last line."""
        exchange, is_over = self._channel.take_server_line(line)
        exchange.response_bytes(line)
        if is_over:
            exchange.response_ended(End.COMPLETE)
