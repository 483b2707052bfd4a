"""The command `serve`: one process for the cassettes of a whole suite, in any language."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple, NoReturn

import click
import orjson

from mrtr_cassette.cli.common import (
    TERMS,
    Log,
    log_option,
    read_options,
    report_option,
    shared_options,
    with_free_port,
    write_reports,
)
from mrtr_cassette.cli.group import TakesCommand, after_dashes, say, tell
from mrtr_cassette.core.report.ci import trials_junit
from mrtr_cassette.core.report.trials import (
    TrialsReport,
    trials_data,
    trials_markdown,
    validity_text,
)
from mrtr_cassette.errors import UsageError, counted
from mrtr_cassette.options import (
    MODE_VARIABLE,
    ListeningOptions,
    Mode,
    ReplayOptions,
    ServeOptions,
    mode_named,
)
from mrtr_cassette.shell.files.cassettes import load_cassette
from mrtr_cassette.shell.files.log import Announcer, given_listeners
from mrtr_cassette.shell.http.access import is_loopback, listening
from mrtr_cassette.shell.http.server import serving
from mrtr_cassette.shell.runs.running import run, run_command, stop_signals
from mrtr_cassette.testing.plays import EndedPlays, Plays, Trials

_TOKEN_VARIABLE = "MRTR_CASSETTE_TOKEN"  # noqa: S105  the name of a variable


@click.command(cls=TakesCommand, program="COMMAND")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@shared_options(ServeOptions)
@log_option
@report_option(
    "Write the outcome of each play that recorded nothing", ".json", ".xml", ".md"
)
@click.pass_context
def serve(
    context: click.Context,
    /,
    folder: Path,
    log: Log,
    reports: tuple[Path, ...],
    **given_options: Any,
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
    options = read_options(ServeOptions, given_options, log)
    command = after_dashes(context) or []
    if command and options.exit_on_eof:
        hint = "it ends with the command anyway"
        raise UsageError("--exit-on-eof and -- COMMAND don't go together", hint=hint)

    served_folder = Path(os.path.abspath(folder))  # noqa: PTH100  without parts such as ..
    _check_host(options)
    options = with_free_port(options, context, command)
    setup = _ServeSetup(
        served_folder, _mode_of_all_plays(), command, reports, options.exit_on_eof
    )
    exit_code, has_failed = run(_serve_plays(setup, options, log))
    sys.exit(exit_code or int(has_failed and not options.exit_zero))


def serve_trials(
    context: click.Context,
    trials: Trials,
    options: ReplayOptions,
    log: Log,
    reports: tuple[Path, ...],
) -> NoReturn:
    """Serve plays that are all trials of the same cassettes, until a command or a signal ends it.

    Raises:
        CassetteError: one of the cassettes can't be read.
    """
    for cassette in trials.cassettes:
        load_cassette(cassette)

    command = after_dashes(context) or []
    _check_host(options)
    options = with_free_port(options, context, command)
    setup = _ServeSetup(Path.cwd(), "none", command, reports, trials=trials)
    exit_code, has_failed = run(_serve_plays(setup, options, log))
    sys.exit(exit_code or int(has_failed))


def _check_host(options: ListeningOptions) -> None:
    """Refuse a host that other machines can reach, unless requests need a token."""
    if not is_loopback(options.host) and not os.environ.get(_TOKEN_VARIABLE):
        problem = f"--host {options.host} lets others start upstreams on this machine"
        hint = (
            f"set {_TOKEN_VARIABLE} to a secret, by which requests are authorized then"
        )
        raise UsageError(problem, hint=hint)


class _ServeSetup(NamedTuple):
    """What a process serves plays of, to whom, and the reports that it writes at the end."""

    folder: Path
    mode: Mode | None
    command: list[str]
    reports: tuple[Path, ...]
    exit_on_eof: bool = False
    trials: Trials | None = None


async def _serve_plays(
    setup: _ServeSetup, options: ListeningOptions, log: Log
) -> tuple[int, bool]:
    """Serve until the end; return the exit code of the command, and whether plays failed."""
    announcer = Announcer(log.write_line, given_listeners(log.write_event), TERMS)
    token = os.environ.get(_TOKEN_VARIABLE, "")
    plays = Plays(
        setup.folder,
        setup.mode,
        token,
        announcer,
        setup.trials,
        keeps_trials=bool(setup.reports),
    )

    command = setup.command
    exit_code = 0
    async with stop_signals() as signals:
        with listening(options) as listener:
            plays.url = listener.url("")
            try:
                async with serving(
                    plays.answer_request, listener, options, log.write_line
                ):
                    _tell_ready(plays.url, log)
                    if command:
                        # Programs mostly know the real paths of their files.
                        folder = str(setup.folder.resolve())
                        command_end = await run_command(
                            command, plays.url, signals, say, folder=folder
                        )
                        exit_code = command_end.exit_code
                    else:
                        if setup.exit_on_eof:
                            _signal_at_eof(signals)

                        await signals.get()
            finally:
                await plays.close()

    ended_plays = plays.ended_plays
    report = TrialsReport(tuple(ended_plays.trials))
    forms = {".json": trials_data, ".md": trials_markdown, ".xml": trials_junit}
    write_reports(setup.reports, report, forms)
    valid_trials_text = ""
    if setup.trials:
        valid_trials_text = validity_text(
            ended_plays.validity_counts[True], ended_plays.validity_counts.total()
        )

    _tell_end(ended_plays, log, valid_trials_text)
    return exit_code, bool(ended_plays.failed_count)


def _mode_of_all_plays() -> Mode | None:
    """Return the mode that the environment settles for all plays, or None."""
    mode_name = os.environ.get(MODE_VARIABLE)
    if not mode_name:
        return None
    return mode_named(mode_name, f"the environment variable {MODE_VARIABLE}")


def _tell_ready(url: str, log: Log) -> None:
    """Print the server's address on stdout; under `--log-format json`, as an event."""
    if log.write_line is None:
        tell(orjson.dumps({"event": "listening", "url": url}).decode())
    else:
        tell(f"listening on {url}")


def _tell_end(ended_plays: EndedPlays, log: Log, valid_trials_text: str) -> None:
    """Log how many plays had which outcome, and their validity or else how many failed."""
    outcome_texts = []
    for outcome, count in sorted(ended_plays.outcome_counts.items()):
        outcome_texts.append(f"{count} {outcome}")

    text = ", ".join(outcome_texts) or "there were no plays"
    if valid_trials_text:
        text += f"; {valid_trials_text}"
    elif ended_plays.failed_count:
        text += f"; {counted(ended_plays.failed_count, 'play')} failed"

    event = {
        "event": "concluded",
        "plays": dict(ended_plays.outcome_counts),
        "failed": ended_plays.failed_count,
    }
    log.tell(text, event)


def _signal_at_eof(signals: asyncio.Queue[signal.Signals]) -> None:
    """Let the end of standard input count as SIGTERM."""
    loop = asyncio.get_running_loop()

    def wait_for_eof() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass

        loop.call_soon_threadsafe(signals.put_nowait, signal.SIGTERM)

    # A kind of file that an event loop can't watch is possible too.
    Thread(target=wait_for_eof, daemon=True).start()
