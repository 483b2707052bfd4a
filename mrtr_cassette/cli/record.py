"""`mrtr-cassette record`."""

from __future__ import annotations

import gc
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from mrtr_cassette.cli.common import (
    CASSETTE,
    Log,
    aside,
    command_argument,
    log_format,
    read_options,
    refuse_http_options,
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
from mrtr_cassette.shell.files.stores import Location

if TYPE_CHECKING:
    from mrtr_cassette.shell.runs.record_session import RecordSession


@click.command()
@click.option(
    "--upstream",
    metavar="URL|COMMAND",
    help="The real server, as the client would name it; or what starts one on pipes, such as "
    "'python server.py', which clients call over HTTP.",
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
    from mrtr_cassette.shell.runs.running import allow_many_files, run

    log = Log(log_format)
    options = read_options(RecordOptions, given, log)
    if stdio:
        _check_stdio(context, command, upstream)
        with aside(log) as beside:
            piped = replace(options, log=beside.line)
            sys.exit(run(_record_pipe(command, output, piped, beside)))
    server, command = _server_and_client(upstream, command)
    if options.answers is not None:
        say("note: this proxy answers in its client's place, and is not transparent")
    warn_of_strangers(options)
    warn_of_path(server, [output] if options.existing == "append" else [], options.redaction)
    allow_many_files()
    sys.exit(run(_record(server, output, options, log, command)))


def _check_stdio(context: click.Context, command: Sequence[str], upstream: str | None) -> None:
    """Make sure that nothing of HTTP is given for a server on pipes."""
    if not command or upstream is not None:
        raise UsageError(
            "--stdio needs a command that starts the server, and no URL",
            hint="mrtr-cassette record --stdio --output FILE -- SERVER ARGS",
        )
    refuse_http_options(context)


def _server_and_client(
    upstream: str | None, command: tuple[str, ...]
) -> tuple[str | list[str], tuple[str, ...]]:
    """Return the URL or the command of the server, and the command that is its client."""
    if upstream is None and command and command[0].startswith(("http://", "https://")):
        return command[0], command[1:]
    if not upstream or not upstream.strip():
        raise click.UsageError("Missing option '--upstream' or '--stdio'.")
    if "://" in upstream:
        return upstream, command
    try:
        server = shlex.split(upstream)
    except ValueError as error:
        raise UsageError(f"--upstream {upstream!r}: {str(error).lower()}") from None
    if shutil.which(server[0]) is None:
        raise UsageError(
            f"the upstream {upstream!r} is no HTTP URL, and there is no such program",
            hint="a URL begins with http:// or https://",
        )
    return server, command


async def _record(
    upstream: str | list[str],
    output: Location,
    options: RecordOptions,
    log: Log,
    command: tuple[str, ...],
) -> int:
    from mrtr_cassette.shell.runs.recording import recording
    from mrtr_cassette.shell.runs.running import stop_signals

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


async def _record_pipe(
    command: tuple[str, ...], output: Location, options: RecordOptions, log: Log
) -> int:
    from mrtr_cassette.shell.pipes.processes import client_sha256
    from mrtr_cassette.shell.runs.piped import record_pipe

    # What was imported stays: the collector need not look at it again and again.
    gc.freeze()
    client = client_sha256()
    session, code = await record_pipe(command, output, options, log.event, client=client)
    _conclude(session, log)
    return code or _code_of(session, log)


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
    from mrtr_cassette.core.report.runs import recording_event, recording_text

    report = session.report
    log.tell(recording_text(report), recording_event(report))
    tell_unused(session.unused_ignores, log)
