"""`mrtr-cassette record`."""

from __future__ import annotations

import gc
import shlex
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from mrtr_cassette.cli.common import (
    CASSETTE,
    Log,
    aside,
    check_stdio,
    command_argument,
    log_format,
    read_options,
    say,
    shared_options,
    tell_no_client,
    tell_unused,
    until_stopped,
    warn_of_path,
    warn_of_strangers,
)
from mrtr_cassette.errors import UpstreamError, UsageError
from mrtr_cassette.options import RecordOptions
from mrtr_cassette.shell.stores import Location

if TYPE_CHECKING:
    from mrtr_cassette.shell.record_session import RecordSession


@click.command()
@click.option("--upstream", metavar="URL", help="The real server, as the client would name it.")
@click.option(
    "--upstream-command",
    metavar="'SERVER ARGS ...'",
    help="A server that a command starts, in the place of a URL: clients call it over HTTP.",
)
@click.option(
    "--stdio",
    is_flag=True,
    help="Record between the own stdin and stdout and a server, which -- COMMAND starts.",
)
@click.option(
    "--output",
    default="cassette.json",
    show_default=True,
    type=CASSETTE,
    help="The cassette to write: a file, or an object in a store such as s3://bucket/name.json.",
)
@shared_options(RecordOptions)
@log_format
@command_argument
@click.pass_context
def record(
    context: click.Context,
    /,
    upstream: str | None,
    upstream_command: str | None,
    output: Location,
    log_format: str,
    command: tuple[str, ...],
    *,
    stdio: bool,
    **given: Any,
) -> None:
    """Record what passes between client and server.

    Point the client at the address that is printed, do what is to be recorded, and stop with
    Ctrl-C: the cassette is written then. With -- COMMAND it stops when the command ends; the
    command finds the address in the environment variable MRTR_CASSETTE_URL. A command that failed
    leaves no cassette, and neither do requests that got only errors such as 404. With --append the
    upstream is called only for what the cassette lacks; --ignore and --repeat say what that is.

    With --stdio it takes the place of a server that a client starts: -- COMMAND is the server, and
    the cassette is written when it ends. The exit code is the server's.
    """
    from mrtr_cassette.shell.running import allow_many_files, run

    log = Log(log_format)
    options = read_options(RecordOptions, given, log)
    if stdio:
        check_stdio(context, command, upstream or upstream_command)
        sys.exit(_record_pipe(command, output, options, log))
    server, command = _server_and_client(upstream, upstream_command, command)
    if options.answers is not None:
        say("note: this proxy answers in its client's place, and is not transparent")
    warn_of_strangers(options)
    warn_of_path(server, [output] if options.existing == "append" else [], options.redaction)
    allow_many_files()
    sys.exit(run(_record(server, output, options, log, command)))


def _server_and_client(
    upstream: str | None, upstream_command: str | None, command: tuple[str, ...]
) -> tuple[str | list[str], tuple[str, ...]]:
    """Return the URL or the command of the server, and the command that is its client.

    Raises:
        UsageError: two servers are given, or a command that a shell couldn't read either.
        click.UsageError: none is.
    """
    if upstream is not None and upstream_command is not None:
        raise UsageError("--upstream and --upstream-command don't go together")
    if upstream_command and upstream_command.strip():
        try:
            return shlex.split(upstream_command), command
        except ValueError as error:
            reason = str(error).lower()
            raise UsageError(f"--upstream-command {upstream_command!r}: {reason}") from None
    if upstream is None and command and command[0].startswith(("http://", "https://")):
        upstream, *rest = command
        command = tuple(rest)
    if upstream is None:
        raise click.UsageError("Missing option '--upstream', '--upstream-command', or '--stdio'.")
    return upstream, command


async def _record(
    upstream: str | list[str],
    output: Location,
    options: RecordOptions,
    log: Log,
    command: tuple[str, ...],
) -> int:
    from mrtr_cassette.shell.recording import recording
    from mrtr_cassette.shell.running import stop_signals

    async with stop_signals() as signals:
        async with recording(upstream, output, options, on_event=log.event) as session:
            # What was imported stays: the collector need not look at it again and again.
            gc.freeze()
            end = await until_stopped(session, command, signals)
            if end.code and not end.was_stopped:
                session.failure = f"{command[0]!r} ended with {end.code}"
        _conclude(session, log)
        is_unused = bool(command) and end.has_run and session.is_unused
        if is_unused:
            tell_no_client(command, log)
    return end.code or _code_of(session, log) or int(is_unused)


def _record_pipe(
    command: tuple[str, ...], output: Location, options: RecordOptions, log: Log
) -> int:
    from mrtr_cassette.shell.starter import client_sha256

    with aside(log) as beside:
        options = replace(options, log=beside.line)
        client = client_sha256()
        if options.existing == "append":
            from mrtr_cassette.shell.pipe_appending import record_or_append

            session, code = record_or_append(command, output, options, beside.event, client=client)
        else:
            # The client waits for its server, so what only adds to cassettes is not imported.
            from mrtr_cassette.shell.pipe_recording import record_pipe

            session, code = record_pipe(command, output, options, beside.event, client=client)
        _conclude(session, beside)
        return code or _code_of(session, beside)


def _code_of(session: RecordSession, log: Log) -> int:
    """Return the exit code of a recording, and say why it is not whole."""
    if session.problem is not None:
        text = f"error: the recording is not whole: {session.problem}"
        log.tell(text, {"event": "concluded", "problem": session.problem})
        return 3
    if session.objection is not None or (session.unreachable and not session.exchanges):
        return UpstreamError.exit_code
    return 1 if session.unrecorded else 0


def _conclude(session: RecordSession, log: Log) -> None:
    """Say what a recording came to."""
    from mrtr_cassette.core.report.summary import recording_event, recording_text

    report = session.report
    log.tell(recording_text(report), recording_event(report))
    tell_unused(session.unused_ignores, log)
