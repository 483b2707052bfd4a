"""`mrtr-cassette replay`."""

from __future__ import annotations

import gc
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from mrtr_cassette.cli.common import (
    CASSETTE,
    Log,
    aside,
    command_argument,
    json_report,
    log_format,
    read_options,
    refuse_http_options,
    shared_options,
    tell_no_client,
    tell_of_journal,
    tell_unused,
    until_stopped,
    warn_of_strangers,
)
from mrtr_cassette.options import ReplayOptions
from mrtr_cassette.shell.files.stores import Location

if TYPE_CHECKING:
    from mrtr_cassette.core.report.runs import ReplayReport

_DRAIN_S: Final = 10.0
"""Seconds that requests under way have to end when a stateless replay does."""


@click.command()
@click.argument("cassette", type=CASSETTE)
@shared_options(ReplayOptions)
@log_format
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write what was played, missed and unplayed: JSON, or JUnit XML where the name ends "
    "in .xml.",
)
@click.option("--stdio", is_flag=True, help="Serve the own stdin and stdout instead of HTTP.")
@command_argument
@click.pass_context
def replay(
    context: click.Context,
    /,
    cassette: Location,
    log_format: str,
    report: Path | None,
    command: tuple[str, ...],
    *,
    stdio: bool,
    **given: Any,
) -> None:
    """Serve CASSETTE as if it were the server.

    Nothing else is needed, no network either. Point the client at the address that is printed
    and stop with Ctrl-C, or give -- COMMAND: it finds the address in the environment variable
    MRTR_CASSETTE_URL. A request that was not recorded gets an error that says why, and the exit
    code is 1, as where the command sent no request at all.

    With --stdio it is the server that a client starts; -- COMMAND may say in whose place it stands,
    and is not started.
    """
    # What is imported and loaded stays: the collector need not look at it again and again.
    gc.disable()
    from mrtr_cassette.shell.runs.running import allow_many_files, run

    log = Log(log_format)
    options = read_options(ReplayOptions, given, log)
    if report is not None:
        from mrtr_cassette.shell.files.reports import REPORT, check_place

        check_place(report, REPORT)
    tell_of_journal(cassette, log)
    if stdio:
        refuse_http_options(context)
        with aside(log) as beside:
            piped = replace(options, log=beside.line)
            sys.exit(run(_replay_pipe(cassette, piped, beside, report, command)))
    warn_of_strangers(options)
    allow_many_files()
    sys.exit(run(_replay(cassette, options, log, report, command)))


async def _replay(
    cassette: Location,
    options: ReplayOptions,
    log: Log,
    report: Path | None,
    command: tuple[str, ...],
) -> int:
    from mrtr_cassette.shell.runs.replaying import replaying
    from mrtr_cassette.shell.runs.running import stop_signals

    # What a load balancer has sent here is answered before this process ends.
    drain_s = _DRAIN_S if options.stateless else 0.0
    async with stop_signals() as signals:
        async with replaying(cassette, options, on_event=log.event, drain_s=drain_s) as session:
            _collect_from_now_on()
            end = await until_stopped(session, command, signals)
        summary = session.report
        fails = _conclude(summary, options, log, report)
        tell_unused(session.unused_ignores, log)
        is_played = any(each.plays for each in summary.interactions)
        is_unused = bool(command) and end.has_run and not is_played and not summary.misses
        if is_unused:
            tell_no_client(command, log)
    return end.code or int(fails or is_unused)


def _collect_from_now_on() -> None:
    gc.freeze()
    gc.enable()


async def _replay_pipe(
    cassette: Location,
    options: ReplayOptions,
    log: Log,
    report: Path | None,
    command: tuple[str, ...],
) -> int:
    from mrtr_cassette.shell.runs.piped import replay_pipe

    _collect_from_now_on()
    session = await replay_pipe(cassette, options, log.event, server_command=command)
    fails = _conclude(session.report, options, log, report)
    tell_unused(session.unused_ignores, log)
    return int(fails)


def _conclude(summary: ReplayReport, options: ReplayOptions, log: Log, report: Path | None) -> bool:
    """Say what a replay came to; return whether it fails."""
    from mrtr_cassette.core.report.runs import summary_event, summary_text

    log.tell(summary_text(summary), summary_event(summary))
    _report(summary, report)
    return bool(summary.misses or (options.fail_on_unplayed and summary.incomplete))


def _report(summary: ReplayReport, path: Path | None) -> None:
    """Write the report, and print misses as annotations under GitHub Actions."""
    from mrtr_cassette.core.report.junit import junit
    from mrtr_cassette.core.report.misses import annotation
    from mrtr_cassette.core.report.runs import summary_data
    from mrtr_cassette.shell.files.reports import REPORT, write_own

    if os.environ.get("GITHUB_ACTIONS") == "true":
        # Standard error has one JSON object a line, if asked for; the runner reads both streams.
        for miss in summary.misses:
            click.echo(annotation(miss))
    if path is None:
        return
    is_xml = path.suffix.lower() == ".xml"
    data = junit(summary) if is_xml else f"{json_report(summary_data(summary))}\n".encode()
    write_own(path, REPORT, [data])
