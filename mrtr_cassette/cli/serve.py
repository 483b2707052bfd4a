"""The command `serve`: one process for the cassettes of a whole suite, in any language."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import click
import orjson

from mrtr_cassette.cli.common import (
    TERMS,
    Log,
    TakesCommand,
    after_dashes,
    log_format,
    read_options,
    say,
    shared_options,
    tell,
)
from mrtr_cassette.errors import UsageError, counted
from mrtr_cassette.options import MODE_VARIABLE, Mode, ServeOptions, mode_named
from mrtr_cassette.shell.files.log import Announcer, heard_by
from mrtr_cassette.shell.http.access import is_loopback, listening
from mrtr_cassette.shell.http.server import serving
from mrtr_cassette.shell.runs.running import (
    SERVE_VARIABLE,
    run,
    run_command,
    stop_signals,
)
from mrtr_cassette.testing.plays import Plays

_GIVEN = click.core.ParameterSource.COMMANDLINE
_TOKEN_VARIABLE = "MRTR_CASSETTE_TOKEN"  # noqa: S105  the name of a variable


@click.command(cls=TakesCommand, program="COMMAND")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@shared_options(ServeOptions)
@log_format
@click.pass_context
def serve(
    context: click.Context, /, folder: Path, log_format: str, **given: Any
) -> None:
    """Serve the cassettes in FOLDER to a whole suite, in any language.

    Each test begins a play of its own by a POST to /.mrtr/plays, points its client at the play's
    URL, and ends it by a DELETE, whose response says what the test has to fail with.

    \b
      curl -H 'Content-Type: application/json' -d '{"cassette": "deploy.json"}' \\
        http://127.0.0.1:8722/.mrtr/plays

    Ctrl-C ends it, and so does the end of -- COMMAND, such as -- go test ./..., which finds the
    address in the environment variable MRTR_CASSETTE_SERVE. The exit code is 1 if a play missed.
    """  # noqa: D301  \b is click's mark for lines that stay as they are
    log = Log(log_format)
    options = read_options(ServeOptions, given, log)
    command = after_dashes(context) or []
    if command and options.exit_on_eof:
        raise UsageError(
            "--exit-on-eof and -- COMMAND don't go together",
            hint="it ends with the command anyway",
        )
    if not is_loopback(options.host) and not os.environ.get(_TOKEN_VARIABLE):
        raise UsageError(
            f"--host {options.host} lets others start upstreams on this machine",
            hint=f"set {_TOKEN_VARIABLE} to a secret, by which requests are authorized then",
        )
    if command and context.get_parameter_source("port") is not _GIVEN:
        # The command is told the address.
        options = replace(options, port=0)
    place = Path(os.path.abspath(folder))  # noqa: PTH100  without parts such as ..
    sys.exit(run(_serve(place, options, log, command)))


async def _serve(
    folder: Path, options: ServeOptions, log: Log, command: list[str]
) -> int:
    announcer = Announcer(log.line, heard_by(log.event), TERMS)
    token = os.environ.get(_TOKEN_VARIABLE, "")
    plays = Plays(folder, _mode_of_all(), token, announcer)
    code = 0
    async with stop_signals() as signals:
        with listening(options) as listener:
            plays.url = listener.url("")
            try:
                async with serving(plays.handle, listener, options, log.line):
                    _tell_ready(plays.url, log)
                    if command:
                        end = await run_command(
                            command, plays.url, signals, say, variable=SERVE_VARIABLE
                        )
                        code = end.code
                    else:
                        if options.exit_on_eof:
                            _signal_at_eof(signals)
                        await signals.get()
            finally:
                await plays.close()
    _tell_end(plays, log)
    if options.exit_zero:
        return code
    return code or int(bool(plays.failed))


def _mode_of_all() -> Mode | None:
    """Return the mode that the environment settles for all plays, or None."""
    given = os.environ.get(MODE_VARIABLE)
    if not given:
        return None
    return mode_named(given, f"the environment variable {MODE_VARIABLE}")


def _tell_ready(url: str, log: Log) -> None:
    if log.line is None:
        tell(orjson.dumps({"event": "listening", "url": url}).decode())
    else:
        tell(f"listening on {url}")


def _tell_end(plays: Plays, log: Log) -> None:
    counts = [f"{count} {outcome}" for outcome, count in sorted(plays.outcomes.items())]
    text = ", ".join(counts) or "there were no plays"
    if plays.failed:
        text += f"; {counted(plays.failed, 'play')} failed"
    event = {
        "event": "concluded",
        "plays": dict(plays.outcomes),
        "failed": plays.failed,
    }
    log.tell(text, event)


def _signal_at_eof(signals: asyncio.Queue[signal.Signals]) -> None:
    """Let the end of standard input count as SIGTERM."""
    loop = asyncio.get_running_loop()

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        loop.call_soon_threadsafe(signals.put_nowait, signal.SIGTERM)

    # A kind of file that an event loop can't watch is possible too.
    Thread(target=wait, daemon=True).start()
